"""A series of reports or measured traces of one workload: the verdict of each against a baseline, and where the figures moved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from commcanary_lab._shown import Shown
from commcanary_lab.errors import LabError, UsageError
from commcanary_lab.review.compare import compare
from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.dates import ordered
from commcanary_lab.review.history_entry import Entry, Member
from commcanary_lab.review.history_words import headline, sentences
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.review.policy import Policy, load_policy
from commcanary_lab.review.steps import Step, steps
from commcanary_lab.simulate.report import Report
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace.model import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASELINES", "FORMAT", "Entry", "History", "history"]

FORMAT = "commcanary_lab.history.v1"

#: Baselines that are no name.
BASELINES = ("first", "previous")

T = TypeVar("T")
#: Computes what a key names, or knows it already.
Memo = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True, eq=False)
class History(Shown):
    """A series under a policy.

    Attributes
    ----------
    kind : {"reports", "measured"}
        What it is a series of.
    entries : tuple of Entry
        In order; those that cannot be compared, too.
    baseline : str
        ``first``, ``previous``, or the name of an entry.
    ordered_by : str
        By what the entries are ordered.
    policy : Policy
        The thresholds.
    """

    kind: str
    entries: tuple[Entry, ...] = field(repr=False)
    baseline: str
    ordered_by: str
    policy: Policy = field(repr=False)

    @property
    def newest(self) -> Entry:
        """The last entry."""
        return self.entries[-1]

    @property
    def verdict(self) -> str:
        """Verdict of the newest entry."""
        return self.newest.verdict

    @property
    def passed(self) -> bool:
        """True where the newest entry is within the policy: ``pass`` or ``warn``."""
        return self.verdict in ("pass", "warn")

    @property
    def incomparable(self) -> tuple[Entry, ...]:
        """Entries that cannot be compared, each with its reason."""
        return tuple(e for e in self.entries if not e.comparable)

    @property
    def moved(self) -> tuple[tuple[Entry, Step], ...]:
        """Every step up or down, in order."""
        return tuple((e, s) for e in self.entries for s in e.steps if s.moved)

    @property
    def headline(self) -> str:
        """The verdict of the newest entry and how the others stand, in one line."""
        return headline(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reviewer has to know, in plain sentences."""
        return sentences(self)

    def entry(self, name: str) -> Entry:
        """Return an entry by name.

        Raises
        ------
        UsageError
            If the history has none of that name.
        """
        found = next((e for e in self.entries if e.name == name), None)
        if found is None:
            raise UsageError(f"the history has no entry named {name!r}", remedy="choose one of its entries")
        return found

    def __repr__(self) -> str:
        return f"History({self.headline})"

    @cached_property
    def df(self) -> pd.DataFrame:
        """One row per entry; latencies in microseconds, changes against the entry's baseline in percent."""
        import pandas as pd

        rows = []
        for e in self.entries:
            row: dict[str, Any] = {"name": e.name, "date": e.date, "what": e.member.what, **e.member.figures, "verdict": e.verdict}
            row |= {"against": e.against, "problem": e.problem or None}
            row |= {f"step_{m}": next((s.verdict for s in e.steps if s.metric == m), None) for m in ("median", "p95", "p99")}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the history as a JSON object."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "verdict": self.verdict,
            "sentences": list(self.sentences),
            "baseline": self.baseline,
            "ordered_by": self.ordered_by,
            "rows": [e.to_json() for e in self.entries],
            "thresholds": self.policy.to_json(self.kind),
            "policy_sha256": self.policy.sha256(self.kind),
            "steps": {k: getattr(self.policy, f"measured_{k}") for k in ("confidence", "resamples", "seed")},
        }

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        headers = ["entry", "date", "p50 (us)", "p95 (us)", "p99 (us)", "mean (us)", "verdict", "against"]
        rows = ((e.name, e.date, *e.member.figures.values(), e.verdict, e.against) for e in self.entries)
        return table_html(self.headline, headers, rows, len(self.entries), self.sentences)


def history(
    members: Iterable[tuple[str, Report | ReportFile | Trace]],
    policy: Policy | str | os.PathLike[str] | None = None,
    *,
    baseline: str = "first",
    keep_order: bool = False,
    allow_incompatible: bool = False,
    memo: Memo | None = None,
) -> History:
    """Compare a series of reports, or of measured traces, of one workload.

    Entries are ordered by the date that each artifact states (in a note such as ``recorded on 2026-11-30``, or in a description of the
    system), else by the date in its name, else by name; never by the time of a file. An entry that cannot be compared with its
    baseline (other work, another protocol, nothing measured) stays in the history with the reason.

    Parameters
    ----------
    members : iterable of (str, Report, ReportFile or Trace)
        Names and artifacts; names are unique.
    policy : Policy or path, optional
        The thresholds, or a TOML file with them.
    baseline : str
        ``first``, ``previous`` (the comparable entry before), or the name of an entry.
    keep_order : bool
        Keep the order of `members`.
    allow_incompatible : bool
        Compare reports of different work or protocols; such an entry is at least ``warn``.
    memo : callable, optional
        Takes a key and a function; returns what the function returns, perhaps from a cache. The key names everything that the
        result depends on.

    Returns
    -------
    History

    Raises
    ------
    UsageError
        If there are fewer than two entries, two have one name, or none has the name of the baseline.
    RefusedError
        If no entry can be a baseline.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> weeks = [(f"2026-W{40 + i}", lab.simulate(trace, name)) for i, name in enumerate(["baseline", "baseline", "high_bandwidth"])]
    >>> found = history(weeks)
    >>> [e.verdict for e in found.entries], found.passed, found.ordered_by
    (['baseline', 'pass', 'fail'], False, 'the date in each name')
    """
    thresholds = Policy() if policy is None else policy if isinstance(policy, Policy) else load_policy(policy)
    series = [Member(name, ReportFile.of(a) if isinstance(a, Report) else a) for name, a in members]
    names = [m.name for m in series]
    if len(series) < 2:
        raise UsageError("a history needs at least two entries", remedy="give two or more reports, or measured traces")
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise UsageError(f"two entries are named {twice[0]!r}", remedy="give every entry its own name")
    if baseline not in BASELINES and baseline not in names:
        raise UsageError(f"no entry is named {baseline!r}", remedy=f"expected first, previous, or one of {', '.join(sorted(names)[:12])}")
    order, by = (
        (list(range(len(series))), "the order in which they were given") if keep_order else ordered(names, [m.dated for m in series])
    )
    series = [series[i] for i in order]
    judge = _Judge(thresholds, allow_incompatible, memo or (lambda _, compute: compute()))
    entries = judge.entries(series, baseline)
    return History(_kind(entries, series), judge.with_steps(entries), baseline, by, thresholds)


def _kind(entries: list[Entry], series: list[Member]) -> str:
    return next((e.member.kind for e in entries if e.verdict == "baseline"), series[0].kind)


class _Judge:
    """Compares one entry with another."""

    def __init__(self, policy: Policy, allow: bool, memo: Memo) -> None:
        self.policy, self.allow, self.memo = policy, allow, memo

    def entries(self, series: list[Member], baseline: str) -> list[Entry]:
        """Judge every entry."""
        fixed = None
        if baseline != "previous":
            usable = (m for m in series if not _useless(m))
            fixed = next(usable, series[0]) if baseline == "first" else next(m for m in series if m.name == baseline)
            if (why := _useless(fixed)) is not None:
                raise UsageError(f"{fixed.name} cannot be the baseline: {why}", remedy="choose another baseline")
        last = fixed
        out = []
        for member in series:
            if (why := _useless(member)) is not None:
                out.append(Entry(member, "incomparable", problem=why))
                continue
            reference = last if baseline == "previous" else fixed
            if reference is None or reference is member:
                entry = Entry(member, "baseline")
            else:
                entry = self._compared(reference, member)
            if entry.comparable:
                last = member
            out.append(entry)
        return out

    def _compared(self, a: Member, b: Member) -> Entry:
        if a.kind != b.kind:
            words = {"reports": "a report", "measured": "a measured trace"}
            why = f"it is {words[b.kind]}, and the baseline {a.name} is {words[a.kind]}"
            return Entry(b, "incomparable", against=a.name, problem=why)
        key = f"compare {a.sha256} {b.sha256} {self.policy.sha256(a.kind)} {self.allow}"
        try:
            found: Comparison | MeasuredComparison = self.memo(key, lambda: self._pair(a, b))
        except LabError as e:
            return Entry(b, "incomparable", against=a.name, problem="; ".join(p.what for p in e.problems))
        if isinstance(found, MeasuredComparison) and not found.rows:
            return Entry(b, "incomparable", against=a.name, problem=f"no operation was measured both in it and in {a.name}")
        return Entry(b, found.verdict, a.name, found)

    def _pair(self, a: Member, b: Member) -> Comparison | MeasuredComparison:
        x, y = a.artifact, b.artifact
        if isinstance(x, ReportFile) and isinstance(y, ReportFile):
            return compare(x, y, self.policy, allow_incompatible=self.allow)
        assert isinstance(x, Trace)
        assert isinstance(y, Trace)
        return compare(x, y, self.policy)

    def with_steps(self, entries: list[Entry]) -> tuple[Entry, ...]:
        """Test every comparable entry against the comparable entry before it."""
        chain = [e for e in entries if e.comparable]
        tests = len(chain) - 1
        found = {b.name: (a.name, self._steps(a.member, b.member, tests)) for a, b in pairwise(chain)}
        return tuple(replace(e, before=found[e.name][0], steps=found[e.name][1]) if e.name in found else e for e in entries)

    def _steps(self, a: Member, b: Member, tests: int) -> tuple[Step, ...]:
        p = self.policy
        key = f"steps {a.sha256} {b.sha256} {p.measured_confidence} {p.measured_resamples} {p.measured_seed} {tests}"
        seed = f"{a.sha256} {b.sha256}"
        return self.memo(key, lambda: steps(a.values_us, b.values_us, p, paired=_paired(a, b), tests=tests, seed=seed))


def _useless(member: Member) -> str | None:
    """Say why an artifact cannot stand in any comparison."""
    return "it has no measured latency" if member.figures["p50_us"] is None else None


def _paired(a: Member, b: Member) -> bool:
    """True where the samples are the same events of the same workload."""
    x, y = a.artifact, b.artifact
    if not isinstance(x, ReportFile) or not isinstance(y, ReportFile):
        return False
    return x.workload_sha256 == y.workload_sha256 and x.backend.iterations == y.backend.iterations
