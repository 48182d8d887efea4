"""One table over all minimisers: method x {bytes, events, each status, tail recall, worst error}."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

from commcanary_lab._shown import Shown
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize.baselines import KINDS, baseline
from commcanary_lab.minimize.ddmin import Cancel, Reduction, ddmin
from commcanary_lab.minimize.search import Search, search
from commcanary_lab.minimize.sides import Minimised, Side, make_side
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.model import Tolerances
from commcanary_lab.verify.setting import Setting

__all__ = ["MethodRow", "MethodTable", "compare_methods"]


@dataclass(frozen=True)
class MethodRow:
    """One method.

    Attributes
    ----------
    method : str
        ``search``, ``ddmin`` or a baseline.
    label : str
        The method with its settings.
    events : int
        Events that the canary runs.
    canary_records, canary_bytes : int
        Of the canary.
    timing, coverage, commitments, bounds, traffic, ranking, behavior, claim : str
        Statuses of its verification against the whole source.
    decisions_kept, decisions_total : int
        Ranking decisions.
    tail_recall : float or None
        Smallest over quantiles and backends.
    worst_error : float
        Largest difference over its tolerance; at most 1 passes.
    """

    method: str
    label: str
    events: int
    canary_records: int
    canary_bytes: int
    timing: str
    coverage: str
    commitments: str
    bounds: str
    traffic: str
    ranking: str
    behavior: str
    claim: str
    decisions_kept: int
    decisions_total: int
    tail_recall: float | None
    worst_error: float

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {**asdict(self), "worst_error": self.worst_error if math.isfinite(self.worst_error) else None}


@dataclass(frozen=True, eq=False)
class MethodTable(Shown):
    """Result of `compare_methods`.

    Attributes
    ----------
    rows : tuple of MethodRow
        Search and ddmin first, then the baselines for each event count.
    sides : tuple of Side
        The compared results, in the same order; two of them can be contrasted.
    reduction : Reduction
        The ddmin result.
    search : Search
        The search result.
    """

    rows: tuple[MethodRow, ...]
    sides: tuple[Side, ...]
    reduction: Reduction
    search: Search

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return {"rows": [r.to_json() for r in self.rows], "origin": "model"}

    def __repr__(self) -> str:
        passed = [r.method for r in self.rows if r.claim in ("verified", "partial")]
        return f"MethodTable({len(self.rows)} methods, passed: {', '.join(passed) or 'none'})"

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        passed = sum(r.claim in ("verified", "partial") for r in self.rows)
        rows = ((r.label, r.events, r.canary_bytes, f"{r.decisions_kept} of {r.decisions_total}", r.ranking, r.behavior, r.tail_recall,
                 r.worst_error, r.claim) for r in self.rows)  # fmt: skip
        headers = ["method", "events", "bytes", "decisions", "ranking", "behaviour", "tail recall", "worst error / tolerance", "claim"]
        return table_html(f"{passed} of {len(self.rows)} methods pass every check (model)", headers, rows, len(self.rows))


def compare_methods(
    trace: Trace,
    *,
    events: Iterable[int] | None = None,
    records: Iterable[int] = range(2, 33),
    seed: int = 0,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    model: str | CostModel = "commcanary-v4",
    tolerances: Tolerances | None = None,
    assume: Mapping[str, float] | None = None,
    reduction: Reduction | None = None,
    found: Search | None = None,
    executor: Executor | None = None,
    cancelled: Cancel | None = None,
) -> MethodTable:
    """Run every method on a trace and verify each result against the whole source.

    Parameters
    ----------
    trace : Trace
        The source.
    events : iterable of int, optional
        Event counts of the baselines; by default as many as ddmin kept, and as many as the search's canary has records, so that each
        is compared at equal counts.
    records : iterable of int
        Record budgets of the search.
    seed : int
        Of the baselines.
    backends, model, tolerances, assume
        As in `verify.run.verify_canary`.
    reduction, found : optional
        Results of `ddmin` and `search` that exist already.
    executor, cancelled
        For the search.

    Returns
    -------
    MethodTable

    Raises
    ------
    UsageError
        If the trace is empty, or the search was cancelled before it found a canary.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> table = compare_methods(lab.samples.adversarial(), records=range(2, 4))
    >>> [(r.method, r.events, r.behavior) for r in table.rows[:2]]
    [('search', 100, 'pass'), ('ddmin', 1, 'fail')]
    """
    if not len(trace):
        raise UsageError("the trace has no events", remedy="give a trace with events")
    setting = Setting.of(backends, tolerances, assume, model, b"")
    reduction = reduction or ddmin(trace, backends=backends, model=model, tolerances=tolerances, assume=assume, cancelled=cancelled)
    found = found or search(
        trace,
        records,
        backends=backends,
        model=model,
        tolerances=tolerances,
        assume=assume,
        executor=executor,
        cancelled=cancelled,
    )
    if found.canary is None:
        raise UsageError("the search found no canary", remedy="let it finish")
    counts = sorted({min(len(trace), n) for n in (events or (reduction.events_after, found.canary.records))})
    sides = [make_side(result, trace, label, setting) for label, result in _results(trace, reduction, found, counts, seed)]
    return MethodTable(tuple(_row(s) for s in sides), tuple(sides), reduction, found)


def _results(trace: Trace, reduction: Reduction, found: Search, counts: Sequence[int], seed: int) -> Iterator[tuple[str, Minimised]]:
    yield "search", found
    yield f"ddmin, {reduction.events_after:,} of {reduction.events_before:,} events", reduction
    for k in counts:
        for kind in KINDS:
            result = baseline(trace, kind, events=k, seed=seed)
            yield result.label, result


def _row(side: Side) -> MethodRow:
    check = side.verification
    return MethodRow(
        side.label.split(",")[0].removesuffix(" baseline"),
        side.label,
        side.canary.event_count,
        side.canary.records,
        side.canary.size_bytes,
        **check.statuses,
        claim=check.claim,
        decisions_kept=check.decisions_kept,
        decisions_total=check.decisions_total,
        tail_recall=side.tail_recall,
        worst_error=side.worst_error,
    )
