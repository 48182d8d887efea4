"""Figures: a result object goes in, a Panel object comes out. Everything needs the ``workbench`` extra and is imported on use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commcanary_lab.views.ablation_chart import ablation
    from commcanary_lab.views.agreement_matrix import agreement
    from commcanary_lab.views.baseline_table import methods
    from commcanary_lab.views.campaign_view import campaign
    from commcanary_lab.views.canary_view import canary
    from commcanary_lab.views.comparison_view import comparison
    from commcanary_lab.views.contrast_panel import contrast
    from commcanary_lab.views.ddmin_scrubber import ddmin
    from commcanary_lab.views.error_bounds import errors
    from commcanary_lab.views.fabric_panel import fabric, verdict
    from commcanary_lab.views.fit_chart import fit
    from commcanary_lab.views.heatmap import traffic
    from commcanary_lab.views.history_view import history
    from commcanary_lab.views.lanes import timeline
    from commcanary_lab.views.loop_nest import program
    from commcanary_lab.views.operations import ops
    from commcanary_lab.views.pareto_chart import pareto
    from commcanary_lab.views.ranking_matrix import ranking
    from commcanary_lab.views.replay_view import replay
    from commcanary_lab.views.report_view import report
    from commcanary_lab.views.result_figure import figure
    from commcanary_lab.views.search_scatter import search
    from commcanary_lab.views.sources_table import sources
    from commcanary_lab.views.status_chips import statuses
    from commcanary_lab.views.trace_view import trace
    from commcanary_lab.views.verification_matrix import verification

__all__ = [
    "ablation",
    "agreement",
    "canary",
    "campaign",
    "comparison",
    "contrast",
    "ddmin",
    "errors",
    "fabric",
    "figure",
    "fit",
    "history",
    "methods",
    "ops",
    "pareto",
    "program",
    "ranking",
    "replay",
    "report",
    "search",
    "sources",
    "statuses",
    "timeline",
    "trace",
    "traffic",
    "verdict",
    "verification",
]


#: Where each figure is defined; files and figures have different names, so that neither hides the other.
_DEFINED_IN = {
    "ablation": "ablation_chart",
    "agreement": "agreement_matrix",
    "canary": "canary_view",
    "campaign": "campaign_view",
    "comparison": "comparison_view",
    "contrast": "contrast_panel",
    "ddmin": "ddmin_scrubber",
    "errors": "error_bounds",
    "fabric": "fabric_panel",
    "figure": "result_figure",
    "fit": "fit_chart",
    "history": "history_view",
    "methods": "baseline_table",
    "ops": "operations",
    "pareto": "pareto_chart",
    "program": "loop_nest",
    "ranking": "ranking_matrix",
    "replay": "replay_view",
    "report": "report_view",
    "search": "search_scatter",
    "sources": "sources_table",
    "statuses": "status_chips",
    "timeline": "lanes",
    "trace": "trace_view",
    "traffic": "heatmap",
    "verdict": "fabric_panel",
    "verification": "verification_matrix",
}


def __getattr__(name: str) -> Any:
    """Import a figure when it is asked for (PEP 562)."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
