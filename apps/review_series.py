"""What a review of a series shows: from the address to the history, without any widget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from commcanary_lab.errors import LabError
from commcanary_lab.review.history import History, history
from commcanary_lab.review.policy import Policy
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace import Workspace
from commcanary_lab.workspace.inputs import measured_traces

from .page import Selection
from .policy_panel import policy_from
from .review_signoffs import Signed, newest, signed_for

__all__ = ["SeriesRequest", "SeriesReview", "series_review"]


@dataclass(frozen=True)
class SeriesRequest:
    """What to show.

    Parameters
    ----------
    of : {"reports", "measured"}
        What it is a series of.
    work : str or None
        Which workload, by the beginning of its SHA-256; None for measured traces.
    names : tuple of str
        Entries that were chosen one by one; empty for all of the workload.
    baseline : str
        ``first``, ``previous`` or the name of an entry.
    entry : str or None
        Entry whose comparison is shown.
    allow : bool
        Compare reports of different work.
    policy : Policy
    """

    of: str
    work: str | None
    names: tuple[str, ...]
    baseline: str
    entry: str | None
    allow: bool
    policy: Policy


@dataclass(frozen=True)
class SeriesReview:
    """The request, its history or why there is none, and what could be chosen instead.

    Parameters
    ----------
    request : SeriesRequest
    works : mapping of str to str
        Workloads of the workspace's reports: names for people, and what the address says.
    candidates : tuple of str
        Names that an entry could have.
    history : History or None
    problem : str
        Why there is none.
    unreadable : tuple of str
        Files that were left out because they cannot be opened, with the reason.
    signed : mapping
        For names of entries, the sign-offs about their comparison.
    elsewhere : int
        Reports of other workloads.
    """

    request: SeriesRequest
    works: Mapping[str, str]
    candidates: tuple[str, ...]
    history: History | None = None
    problem: str = ""
    unreadable: tuple[str, ...] = ()
    signed: Mapping[str, tuple[Signed, ...]] = field(default_factory=dict)
    elsewhere: int = 0

    @property
    def marks(self) -> dict[str, tuple[str, bool, str]]:
        """For names of entries, the decision that counts, whether it holds, and its words."""
        found = {name: newest(all_) for name, all_ in self.signed.items()}
        return {n: (s.signoff.decision, s.check.passed, s.words) for n, s in found.items() if s is not None}


def series_review(workspace: Workspace, selection: Selection) -> SeriesReview:
    """Compare the series that the address asks for."""
    of = "measured" if selection.option("of", "reports") == "measured" else "reports"
    asked = SeriesRequest(
        of,
        selection.option("work", "") or None,
        selection.options.get("series", ()),
        selection.option("against", "first"),
        selection.option("entry", "") or None,
        selection.option("allow", "") == "1",
        Policy(),
    )
    known, unreadable = _artifacts(workspace, of)
    groups = _groups(known) if of == "reports" else {}
    works = {_named(names, known): sha[:16] for sha, names in groups.items()}
    chosen = _chosen(asked, known, groups)
    asked = replace(asked, work=None if of == "measured" else _work(chosen, known))
    out = SeriesReview(asked, works, tuple(known), unreadable=unreadable, elsewhere=len(known) - len(chosen))
    try:
        asked = replace(asked, policy=policy_from(selection.options.get("policy", ())))
        out = replace(out, request=asked)
        if len(chosen) < 2:
            return out
        baseline = asked.baseline
        memo = _memo(workspace)
        members = [(n, known[n]) for n in chosen]
        found = history(members, asked.policy, baseline=baseline, allow_incompatible=asked.allow, memo=memo)
    except LabError as e:
        return replace(out, problem=str(e))
    entry = asked.entry if asked.entry in chosen else _shown_first(found)
    signed = {e.name: signed_for(workspace, (str(e.against), e.name), e.comparison) for e in found.entries if e.comparison is not None}
    return replace(out, request=replace(asked, entry=entry), history=found, signed=signed)


def _memo(workspace: Workspace) -> Callable[[str, Callable[[], Any]], Any]:
    """Results by the content they rest on: they stay right whatever files are called."""
    return lambda key, compute: workspace.cache.get(("history", key), compute)


def _artifacts(workspace: Workspace, of: str) -> tuple[dict[str, ReportFile | Trace], tuple[str, ...]]:
    names = [a.name for a in workspace.list("report")] if of == "reports" else measured_traces(workspace)
    known: dict[str, ReportFile | Trace] = {}
    problems = []
    for name in names:
        try:
            known[name] = workspace.report(name) if of == "reports" else workspace.trace(name)
        except LabError as e:
            problems.append(f"{name}: {e.problems[0].what}")
    return known, tuple(problems)


def _groups(known: Mapping[str, ReportFile | Trace]) -> dict[str, list[str]]:
    """Names of reports by workload, the largest series first."""
    out: dict[str, list[str]] = defaultdict(list)
    for name, report in known.items():
        if isinstance(report, ReportFile):
            out[report.workload_sha256].append(name)
    return dict(sorted(out.items(), key=lambda pair: (-len(pair[1]), pair[1][0].casefold())))


def _named(names: list[str], known: Mapping[str, ReportFile | Trace]) -> str:
    """What a workload is called: as the source of its reports, else like its first report."""
    first = known[names[0]]
    assert isinstance(first, ReportFile)
    source = first.source.get("trace") or names[0].split(".")[0]
    return f"{source}, {first.events:,} events: {len(names)} report{'s' * (len(names) != 1)} ({first.workload_sha256[:6]})"


def _chosen(asked: SeriesRequest, known: Mapping[str, ReportFile | Trace], groups: Mapping[str, list[str]]) -> list[str]:
    if asked.names:
        return [n for n in dict.fromkeys(asked.names) if n in known]
    if asked.of == "measured":
        return list(known)
    by_work = next((names for sha, names in groups.items() if asked.work and sha.startswith(asked.work)), None)
    return by_work or next(iter(groups.values()), [])


def _work(chosen: list[str], known: Mapping[str, ReportFile | Trace]) -> str | None:
    first = known[chosen[0]] if chosen else None
    return first.workload_sha256[:16] if isinstance(first, ReportFile) else None


def _shown_first(found: History) -> str:
    return next((e.name for e in reversed(found.entries) if e.comparison is not None), found.newest.name)
