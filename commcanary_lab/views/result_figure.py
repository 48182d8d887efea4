"""The figure of any result: what Panel shows for it in a notebook (`__panel__`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from commcanary_lab.errors import UsageError

__all__ = ["FIGURES", "figure"]

#: Results by class, and the public figure that shows each. By name: a result of one layer needs no other layer to be imported.
FIGURES = {
    "commcanary_lab.canary.model.Canary": "canary",
    "commcanary_lab.inspect.table.OperationTable": "ops",
    "commcanary_lab.minimize.contrast.Contrast": "contrast",
    "commcanary_lab.minimize.ddmin.Reduction": "ddmin",
    "commcanary_lab.minimize.methods.MethodTable": "methods",
    "commcanary_lab.minimize.pareto.Frontier": "pareto",
    "commcanary_lab.minimize.search.Search": "search",
    "commcanary_lab.replay.campaign.result.Campaign": "campaign",
    "commcanary_lab.replay.result.Replay": "replay",
    "commcanary_lab.review.comparison.Comparison": "comparison",
    "commcanary_lab.review.history.History": "history",
    "commcanary_lab.review.measured.MeasuredComparison": "comparison",
    "commcanary_lab.simulate.ablation.AblationTable": "ablation",
    "commcanary_lab.simulate.report.Report": "report",
    "commcanary_lab.trace.model.Trace": "trace",
    "commcanary_lab.traffic.fabric_verdict.FabricVerdict": "verdict",
    "commcanary_lab.traffic.matrix.TrafficMatrix": "traffic",
    "commcanary_lab.traffic.sources.SourceComparison": "sources",
    "commcanary_lab.verify.model.Verification": "statuses",
}


def figure(result: object) -> Any:
    """Show a result with the figure that fits it.

    Parameters
    ----------
    result : object
        A trace, canary, report, verification, matrix, comparison, or another result that `FIGURES` lists.

    Returns
    -------
    panel.viewable.Viewable

    Raises
    ------
    UsageError
        If nothing shows such an object.
    """
    for cls in type(result).__mro__:
        name = FIGURES.get(f"{cls.__module__}.{cls.__qualname__}")
        if name is not None:
            return getattr(import_module("commcanary_lab.views"), name)(result)
    raise UsageError(f"no figure shows a {type(result).__name__}", remedy="give a result of the library")
