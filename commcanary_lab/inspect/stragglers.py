"""Which ranks arrive late at collectives, how late, and how long the others wait for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UnknownValueError
from commcanary_lab.inspect.grouping import IntArray, quantiles
from commcanary_lab.inspect.html import table_html
from commcanary_lab.trace import ImportCoverage, Ragged, Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StragglerRow", "StragglerTable", "stragglers"]

_ESTIMATED = "arrival skew is an estimate"


@dataclass(frozen=True)
class StragglerRow:
    """How one rank arrives at the collectives that it takes part in.

    Parameters
    ----------
    rank : int
        Global rank.
    events : int
        Collectives with known arrivals that the rank takes part in.
    last : int
        How often it arrived last (every rank of a tie counts; when all arrive together nobody is last).
    last_fraction : float
        last / events.
    median_lateness_us, p95_lateness_us, max_lateness_us : float
        Arrival relative to the first rank of each collective.
    waiting_caused_us : float
        Over the collectives where it arrived last: the time that the other ranks waited for it, summed over them (a tie shares it).
    waited_us : float
        Time that the rank itself waited for the last one.
    """

    rank: int
    events: int
    last: int
    last_fraction: float
    median_lateness_us: float
    p95_lateness_us: float
    max_lateness_us: float
    waiting_caused_us: float
    waited_us: float


@dataclass(frozen=True)
class StragglerTable:
    """Ranks by the waiting that they cause, most first.

    Parameters
    ----------
    rows : tuple of StragglerRow
        One per rank that takes part in a collective with known arrivals.
    known : int
        Collectives of two or more ranks with known per-rank arrivals.
    unknown : int
        Collectives whose arrival skew is unknown.
    skew_only : int
        Collectives whose source gives the skew but not which rank was late, or no arrivals at all.
    origin : str
        ``measured``, or ``model`` where the clocks were aligned by an estimate.
    """

    rows: tuple[StragglerRow, ...]
    known: int
    unknown: int
    skew_only: int
    coverage: ImportCoverage
    notes: tuple[str, ...] = ()
    origin: str = "measured"

    def __repr__(self) -> str:
        return f"StragglerTable({len(self.rows)} ranks, {self.known:,} events with known arrivals, {self.unknown:,} without)"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def waiting_us(self) -> float:
        """Waiting of all ranks together."""
        return sum(r.waited_us for r in self.rows)

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table."""
        import pandas as pd

        return pd.DataFrame([asdict(r) for r in self.rows], columns=list(StragglerRow.__dataclass_fields__))

    def _repr_html_(self) -> str:
        title = (f"Arrival of {len(self.rows)} ranks at {self.known:,} collectives ({self.origin}); unknown for {self.unknown:,}, "
                 f"without ranks for {self.skew_only:,}")
        headers = ["rank", "events", "last", "last share", "median late (us)", "p95 late (us)", "max late (us)", "waiting caused (us)",
                   "waited (us)"]
        return table_html(title, headers, (tuple(asdict(r).values()) for r in self.rows), len(self.rows), self.notes)


def stragglers(trace: Trace) -> StragglerTable:
    """Rank the ranks by how late they arrive.

    Parameters
    ----------
    trace : Trace
        The events; only those with an arrival offset per rank can be used.

    Raises
    ------
    UnknownValueError
        If no event has known per-rank arrivals.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup
    >>> t = Trace.build(1, op=Coded.constant(1, "all_reduce"), groups=(ProcessGroup("tp", (4, 5, 6)),), group=np.zeros(1, np.int32),
    ...                 size_bytes=np.array([8]), arrival_ns=Ragged.from_rows([[0, 9_000, 2_000]]))
    >>> row = stragglers(t).rows[0]
    >>> row.rank, row.last, row.max_lateness_us, row.waiting_caused_us
    (5, 1, 9.0, 16.0)
    """
    shared = trace.group_sizes > 1
    lengths = trace.arrival_ns.lengths
    usable = np.asarray(trace.arrival_known) & shared & (lengths == trace.group_sizes)
    unknown = int(np.count_nonzero(shared & ~np.asarray(trace.arrival_known)))
    rest = int(np.count_nonzero(shared)) - unknown - int(np.count_nonzero(usable))
    if not usable.any():
        _refuse(trace, unknown, rest)
    events = np.flatnonzero(usable)
    rows = _rows(trace, events)
    rows.sort(key=lambda r: (-r.waiting_caused_us, -r.last, r.rank))
    origin = "model" if any(_ESTIMATED in note for note in trace.notes) else trace.origin
    return StragglerTable(tuple(rows), len(events), unknown, rest, trace.coverage, trace.notes, origin)


def _refuse(trace: Trace, unknown: int, rest: int) -> None:
    if unknown:
        others = f"; {rest} others give no arrival per rank" if rest else ""
        raise UnknownValueError(f"arrival skew is unknown for {'the' if rest else 'all'} events ({unknown} of two or more ranks{others})",
                                remedy="give --clock-offsets or --align-ends when the trace is opened")
    if rest:
        raise UnknownValueError(f"the source gives no arrival per rank ({rest} events): which rank was late is unknown",
                                remedy="record with per-rank arrivals (rank_arrival_us), or open the captures of every rank")
    raise UnknownValueError(f"none of the {len(trace)} events has two or more ranks: nobody can wait",
                            remedy="open the trace of a job with more than one rank")


def _rows(trace: Trace, events: npt.NDArray[np.intp]) -> list[StragglerRow]:
    arrivals = trace.arrival_ns.take(events)
    members = Ragged.from_rows([g.members for g in trace.groups]).take(trace.group[events].astype(np.intp))
    ranks, rank = np.unique(members.values, return_inverse=True)
    n = len(ranks)
    sizes = arrivals.lengths
    first, last = arrivals.reduce(np.minimum), arrivals.reduce(np.maximum)
    late = arrivals.values - np.repeat(first, sizes)
    wait = np.repeat(last, sizes) - arrivals.values
    is_last = (wait == 0) & np.repeat(last > first, sizes)
    ties = np.add.reduceat(is_last, arrivals.pointers[:-1], dtype=np.int64)
    waited = np.add.reduceat(wait, arrivals.pointers[:-1])
    caused = np.repeat(waited / np.maximum(ties, 1), sizes)[is_last]
    count = np.bincount(rank, minlength=n)
    times_last = np.bincount(rank[is_last], minlength=n)
    p50, p95, top = quantiles(rank.astype(np.int64), late, n, (0.5, 0.95, 1.0)) / 1000
    caused_us = np.bincount(rank[is_last], weights=caused, minlength=n) / 1000
    waited_us = _sum_us(rank, wait, n)
    return [StragglerRow(int(ranks[i]), int(count[i]), int(times_last[i]), float(times_last[i] / count[i]), float(p50[i]), float(p95[i]),
                         float(top[i]), float(caused_us[i]), float(waited_us[i])) for i in range(n)]


def _sum_us(rank: npt.NDArray[np.intp], values: IntArray, n: int) -> npt.NDArray[np.float64]:
    out = np.zeros(n, np.int64)
    np.add.at(out, rank, values)
    return out / 1000
