"""What a review compares: from the address to the result, without any widget."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from commcanary_lab.errors import LabError, UsageError
from commcanary_lab.review.compare import compare
from commcanary_lab.review.comparison import Comparison, verify_comparison
from commcanary_lab.review.comparison_file import ComparisonFile
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.review.policy import Policy
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.simulate.report_file import ReportFile, parse_report
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace import Workspace
from commcanary_lab.workspace.inputs import inputs_of, measured_traces

from .backend_choice import known_backends
from .page import Selection
from .policy_panel import policy_from
from .review_signoffs import Signed, signed_for

if TYPE_CHECKING:
    from commcanary_lab.verify.documents import DocumentCheck

__all__ = ["MODES", "Request", "Review", "Saved", "request_of", "review"]

#: Ways to compare, as the address names them.
MODES = ("reports", "measured", "simulated")

Result = Comparison | MeasuredComparison


@dataclass(frozen=True)
class Request:
    """What to compare.

    Parameters
    ----------
    mode : {"reports", "measured", "simulated"}
        Two reports, two measured traces, or two configurations simulated now.
    baseline, candidate : str or None
        Names in the workspace; None where there is nothing to choose.
    backends : (str, str)
        Configurations of both sides, for ``simulated``.
    allow : bool
        Compare reports of different work.
    assume : bool
        Simulate what the source does not say as 0.
    policy : Policy
    """

    mode: str
    baseline: str | None
    candidate: str | None
    backends: tuple[str, str]
    allow: bool
    assume: bool
    policy: Policy

    @property
    def names(self) -> tuple[str, str]:
        """What both sides are called."""
        sides = str(self.baseline), str(self.candidate)
        if self.mode != "simulated":
            return sides
        return f"{sides[0]} on {self.backends[0]}", f"{sides[1]} on {self.backends[1]}"

    @property
    def kind(self) -> str:
        """Which thresholds it uses."""
        return "measured" if self.mode == "measured" else "reports"


@dataclass(frozen=True)
class Saved:
    """A comparison file that was opened.

    Parameters
    ----------
    name : str
    stated : ComparisonFile
        What it says.
    check : DocumentCheck or None
        Whether that follows from its inputs; None where these are not in the workspace.
    """

    name: str
    stated: ComparisonFile
    check: DocumentCheck | None


@dataclass(frozen=True)
class Review:
    """The request, its result or why there is none, and what could be chosen instead."""

    request: Request
    artifacts: tuple[str, ...]
    backends: tuple[str, ...]
    result: Result | None = None
    problem: str = ""
    unknown: tuple[str, ...] = ()
    saved: Saved | None = None
    signed: tuple[Signed, ...] = ()
    reports: tuple[ReportFile, ReportFile] | None = field(default=None, repr=False)


def review(workspace: Workspace, selection: Selection) -> Review:
    """Compare what the address asks for."""
    known, _ = known_backends(workspace.path)
    labels = tuple(b.label for b in known)
    saved: Saved | None = None
    asked = request_of(workspace, selection, Policy())
    artifacts = choices(workspace, asked.mode)
    out = Review(asked, artifacts, labels)
    try:
        asked = replace(asked, policy=policy_from(selection.options.get("policy", ())))
        if name := selection.option("comparison", ""):
            asked, saved = _opened(workspace, name, asked)
        out = Review(asked, choices(workspace, asked.mode), labels, saved=saved)
        if saved is not None and saved.check is None:
            return out
        found = _compared(workspace, out, {b.label: b for b in known})
        return found if found.result is None else replace(found, signed=signed_for(workspace, found.request.names, found.result))
    except LabError as e:
        unknown = _unknown(workspace, asked) if asked.mode == "simulated" else ()
        return replace(out, problem=str(e), unknown=unknown)


def request_of(workspace: Workspace, selection: Selection, policy: Policy) -> Request:
    """Return the request of an address; what it leaves open has a sensible value."""
    mode = selection.option("compare", MODES[0])
    mode = mode if mode in MODES else MODES[0]
    names = choices(workspace, mode)
    baseline = selection.option("baseline", "") or _first(names, mode, selection)
    candidate = selection.option("candidate", "") or _second(names, baseline, mode)
    backends = (selection.option("baseline_backend", "baseline"), selection.option("candidate_backend", "high_bandwidth"))
    allow, assume = selection.option("allow", "") == "1", selection.option("assume", "") == "0"
    return Request(mode, baseline, candidate, backends, allow, assume, policy)


def choices(workspace: Workspace, mode: str) -> tuple[str, ...]:
    """Return what a way to compare can choose from."""
    if mode == "measured":
        return tuple(measured_traces(workspace))
    kinds = ("report",) if mode == "reports" else ("trace", "canary")
    return tuple(a.name for a in workspace.list() if a.kind in kinds)


def _first(names: tuple[str, ...], mode: str, selection: Selection) -> str | None:
    if mode != "reports" and selection.trace in names:
        return selection.trace
    return next((n for n in names if "base" in n.lower()), names[0] if names else None)


def _second(names: tuple[str, ...], baseline: str | None, mode: str) -> str | None:
    """The same work under another name; simulated now, the same trace on another backend."""
    if mode == "simulated":
        return baseline
    others = [n for n in names if n != baseline]
    stem = (baseline or "").split(".")[0]
    alike = [n for n in others if n.split(".")[0] == stem] or [n for n in others if n.startswith(stem)]
    return (alike or others or [None])[0]


def _opened(workspace: Workspace, name: str, asked: Request) -> tuple[Request, Saved]:
    """Open a saved comparison: its inputs, its policy, and whether it can be recomputed from them."""
    stated = workspace.comparison(name)
    mode = "reports" if stated.kind == "reports" else "measured"
    found = inputs_of(workspace, stated)
    asked = replace(asked, mode=mode, policy=stated.policy, allow=stated.allow_incompatible)
    if found is None:
        return replace(asked, baseline=None, candidate=None), Saved(name, stated, None)
    open_one = workspace.report if mode == "reports" else workspace.trace
    base, candidate = (open_one(n) for n in found)
    check = workspace.derived(name, f"verify {found!r}", lambda: verify_comparison(stated.document, base, candidate))
    return replace(asked, baseline=found[0], candidate=found[1]), Saved(name, stated, check)


def _compared(workspace: Workspace, out: Review, known: dict[str, Backend]) -> Review:
    asked = out.request
    if asked.baseline is None or asked.candidate is None:
        return out
    if asked.mode == "measured":
        base, other = workspace.trace(asked.baseline), workspace.trace(asked.candidate)
        key = f"measured {asked.candidate} {workspace.get(asked.candidate).stamp} {asked.policy.sha256('measured')}"
        return replace(out, result=workspace.derived(asked.baseline, key, lambda: compare(base, other, asked.policy)))
    unknown: tuple[str, ...] = ()
    if asked.mode == "reports":
        reports = workspace.report(asked.baseline), workspace.report(asked.candidate)
    else:
        unknown = _unknown(workspace, asked)
        names = (asked.baseline, asked.candidate)
        a, b = (_simulated(workspace, n, label, known, asked.assume) for n, label in zip(names, asked.backends, strict=True))
        reports = a, b
    found = compare(*reports, asked.policy, allow_incompatible=asked.allow)
    return replace(out, result=found, reports=reports, unknown=unknown)


def _workload(workspace: Workspace, name: str) -> Trace:
    return workspace.canary(name).trace if workspace.get(name).kind == "canary" else workspace.trace(name)


def _unknown(workspace: Workspace, asked: Request) -> tuple[str, ...]:
    try:
        fields = [f for n in (asked.baseline, asked.candidate) if n is not None for f in _workload(workspace, n).unknown_fields]
    except LabError:
        return ()
    return tuple(dict.fromkeys(fields))


def _simulated(workspace: Workspace, name: str, label: str, known: dict[str, Backend], assume: bool) -> ReportFile:
    """Simulate one side; the report is the one that ``simulate -o`` would write, samples included."""
    if label not in known:
        raise UsageError(f"unknown backend {label!r}", remedy=f"known: {', '.join(known)}; or add a TOML file with [backends.{label}]")
    backend = known[label]

    def compute() -> ReportFile:
        trace = _workload(workspace, name)
        assumed = dict.fromkeys(trace.unknown_fields, 0.0) if assume else None
        report = simulate_prepared(prepare(trace, assumed), backend)
        document = report.to_json()
        is_canary = workspace.get(name).kind == "canary"
        document["source"] = {"canary": workspace.canary(name).identity} if is_canary else {"trace": name}
        again = ReportFile.of(report)
        return replace(parse_report(document), exposed_us=again.exposed_us, parts=again.parts)

    return workspace.derived(name, f"report {backend!r} {assume}", compute)
