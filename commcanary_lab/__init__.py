"""commcanary_lab: distil a distributed job's communication trace into a small canary, and prove that it still answers like the workload.

Examples
--------
>>> import commcanary_lab as lab
>>> trace = lab.samples.adversarial()
>>> canary = lab.compile(trace)
>>> lab.verify(trace, canary).claim
'verified'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commcanary_lab._shown import show_with

if TYPE_CHECKING:
    import commcanary_lab.capture
    import commcanary_lab.samples
    import commcanary_lab.views  # noqa: F401  (submodules of the public API)
    from commcanary_lab.api import compile, open, read_canary, simulate, verify, write
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.inspect import diff, iterations, ops, overlap_shares, stragglers
    from commcanary_lab.minimize import baseline, compare_methods, contrast, pareto, reduce, search  # type: ignore[no-redef]
    from commcanary_lab.replay.run import replay  # type: ignore[no-redef]
    from commcanary_lab.review import compare  # type: ignore[no-redef]
    from commcanary_lab.simulate.ablation import ablate
    from commcanary_lab.simulate.backend import Backend
    from commcanary_lab.simulate.report import Report
    from commcanary_lab.trace.model import Trace
    from commcanary_lab.traffic import TrafficMatrix, diagnose, fabric
    from commcanary_lab.traffic import build_matrix as traffic
    from commcanary_lab.verify.model import Tolerances, Verification

__all__ = [
    "Backend",
    "Canary",
    "Report",
    "Tolerances",
    "Trace",
    "TrafficMatrix",
    "Verification",
    "__version__",
    "ablate",
    "baseline",
    "capture",
    "compare",
    "compare_methods",
    "compile",
    "contrast",
    "diagnose",
    "diff",
    "fabric",
    "iterations",
    "open",
    "ops",
    "overlap_shares",
    "pareto",
    "read_canary",
    "reduce",
    "replay",
    "samples",
    "search",
    "simulate",
    "stragglers",
    "traffic",
    "verify",
    "views",
    "write",
]

__version__ = "0.1.0"

#: Packages of the public API; `replay`, `simulate`, `traffic` and `verify` are also functions (see `_callable`).
_PACKAGES = ("capture", "replay", "samples", "simulate", "traffic", "verify", "views")

#: Where each public name lives; modules are imported when a name is first used (start-up time, optional dependencies).
_HOMES = {
    **dict.fromkeys(("compile", "open", "read_canary", "write"), "commcanary_lab.api"),
    **dict.fromkeys(("diff", "iterations", "ops", "overlap_shares", "stragglers"), "commcanary_lab.inspect"),
    **dict.fromkeys(("baseline", "compare_methods", "contrast", "pareto", "reduce", "search"), "commcanary_lab.minimize"),
    "ablate": "commcanary_lab.simulate.ablation",
    **dict.fromkeys(("diagnose", "fabric"), "commcanary_lab.traffic"),
    "compare": "commcanary_lab.review",
    "Backend": "commcanary_lab.simulate.backend",
    "Canary": "commcanary_lab.canary.model",
    "Report": "commcanary_lab.simulate.report",
    "Tolerances": "commcanary_lab.verify.model",
    "Trace": "commcanary_lab.trace.model",
    "TrafficMatrix": "commcanary_lab.traffic",
    "Verification": "commcanary_lab.verify.model",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    value: Any
    if name in _PACKAGES:
        return import_module(f"commcanary_lab.{name}")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _figure(result: object) -> Any:
    """Make the figure of a result; views are imported when the first one is asked for."""
    from commcanary_lab.views.result_figure import figure

    return figure(result)


show_with(_figure)
