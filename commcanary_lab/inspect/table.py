"""The operation table: op x size x group with counts, bytes, latency, bandwidth and share of communication time."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from commcanary_lab._shown import Shown
from commcanary_lab.inspect.grouping import FloatArray, IntArray, dense_codes, group_by, group_codes, quantiles, sums, text_codes
from commcanary_lab.inspect.html import table_html
from commcanary_lab.inspect.rates import algbw_gb_s, bus_factor
from commcanary_lab.inspect.shares import exposure
from commcanary_lab.trace import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.units import format_bytes, format_us

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OperationRow", "OperationTable", "ops"]


@dataclass(frozen=True)
class OperationRow:
    """One operation at one size on one group, or one kind of unsized row.

    Parameters
    ----------
    op : str
        Operation; for unsized rows the name that the source gives.
    group : str or None
        Name of the process group; None where it has none, and for unsized rows.
    members : tuple of int
        Global ranks of the group; empty for unsized rows.
    size_bytes : int or None
        B of one event; None for unsized rows.
    count, measured : int
        Events, and those with a measured time.
    total_bytes : int
        Sum of B over the events; 0 for unsized rows, which never count as bytes.
    time_us, p50_us, p95_us : float
        Measured latency (the longest over the reporting ranks): sum and quantiles; NaN where nothing was measured.
    share : float
        Share of the time that the reporting ranks spend in collectives, unsized rows included; NaN where nothing was measured.
    algbw_gb_s, busbw_gb_s : float
        B / p50 and that times the bus factor of nccl-tests, GB = 1e9; NaN where the time is unknown or 0.
    overlapped_us, exposed_us : float
        Sums over the `overlap_known` events; NaN where there are none.
    sized : bool
        False for collectives of unknown size or members.
    """

    op: str
    group: str | None
    members: tuple[int, ...]
    size_bytes: int | None
    count: int
    measured: int
    total_bytes: int
    time_us: float
    p50_us: float
    p95_us: float
    share: float
    algbw_gb_s: float
    busbw_gb_s: float
    overlap_known: int
    overlapped_us: float
    exposed_us: float
    sized: bool = True

    @property
    def group_size(self) -> int:
        """k; 0 for unsized rows."""
        return len(self.members)


@dataclass(frozen=True)
class OperationTable(Shown):
    """The operation table of a trace, largest share of communication time first, then most bytes.

    Parameters
    ----------
    rows : tuple of OperationRow
        Sized rows and unsized rows together.
    communication_us : float
        Time that the reporting ranks spend in collectives: measured times summed over events and ranks, plus unsized rows.
    events, measured : int
        Events, and those with a measured time.
    unsized_count, unsized_us : int, float
        Collectives of unknown size or members, and their time.
    """

    rows: tuple[OperationRow, ...]
    communication_us: float
    events: int
    measured: int
    unsized_count: int
    unsized_us: float
    coverage: ImportCoverage
    notes: tuple[str, ...] = ()
    origin: str = "measured"

    def __repr__(self) -> str:
        return f"OperationTable({len(self.rows)} rows, {self.events:,} events, {self.measured:,} measured)"

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table; units are in the column names."""
        import pandas as pd

        frame = pd.DataFrame([asdict(r) for r in self.rows], columns=list(OperationRow.__dataclass_fields__))
        frame.insert(3, "group_size", [r.group_size for r in self.rows])
        return frame.astype({"size_bytes": "Int64"})

    def _repr_html_(self) -> str:
        title = (f"{self.events:,} events in {len(self.rows):,} rows; {self.measured:,} measured, "
                 f"{format_us(self.communication_us)} of communication ({self.origin})")
        if self.unsized_count:
            title += f"; {self.unsized_count:,} collectives of unknown size ({format_us(self.unsized_us)})"
        headers = ["op", "group", "ranks", "size", "count", "bytes", "p50 (us)", "p95 (us)", "algbw (GB/s)", "busbw (GB/s)", "share",
                   "hidden (us)", "exposed (us)"]
        rows = ((r.op, r.group, r.group_size or None, None if r.size_bytes is None else format_bytes(r.size_bytes), r.count,
                 format_bytes(r.total_bytes) if r.sized else None, r.p50_us, r.p95_us, r.algbw_gb_s, r.busbw_gb_s, r.share,
                 r.overlapped_us, r.exposed_us) for r in self.rows)
        return table_html(title, headers, rows, len(self.rows), self.notes)


def ops(trace: Trace) -> OperationTable:
    """Tabulate the collectives of a trace by operation, size and group.

    Parameters
    ----------
    trace : Trace
        The events.

    Returns
    -------
    OperationTable
        Times are measured ones; where the source measured none they are NaN and never 0.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup, Ragged
    >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32),
    ...                 size_bytes=np.array([10_000, 10_000]), duration_ns=Ragged.from_rows([[10_000, 8_000], [20_000, 20_000]]))
    >>> row = ops(t).rows[0]
    >>> row.count, row.total_bytes, row.p50_us, round(row.p95_us, 3), round(row.algbw_gb_s, 3), row.share
    (2, 20000, 15.0, 19.5, 0.667, 1.0)
    """
    rank_ns = _rank_time_ns(trace)
    total_ns = int(rank_ns.sum()) + sum(r.time_ns for r in trace.unsized)
    rows = [*_sized_rows(trace, rank_ns, total_ns), *_unsized_rows(trace.unsized, total_ns)]
    rows.sort(key=_order)
    return OperationTable(tuple(rows), total_ns / 1000, len(trace), trace.duration_max_ns.known_count, len(trace.unsized),
                          sum(r.time_ns for r in trace.unsized) / 1000, trace.coverage, trace.notes, trace.origin)


def _order(r: OperationRow) -> tuple[object, ...]:
    share = 1.0 if math.isnan(r.share) else -r.share
    return (share, -r.total_bytes, r.op, r.size_bytes or 0, r.group or "", r.members)


def _sized_rows(trace: Trace, rank_ns: IntArray, total_ns: int) -> list[OperationRow]:
    op, op_names = text_codes(trace.op)
    size, sizes = dense_codes(trace.size_bytes)
    group, groups = group_codes(trace)
    g = group_by(op, group, size)
    duration = trace.duration_max_ns
    codes, durations = g.codes[duration.mask], duration.values[duration.mask]
    measured = np.bincount(codes, minlength=g.count)
    p50, p95 = quantiles(codes, durations, g.count, (0.5, 0.95)) / 1000
    share = np.full(g.count, np.nan)
    if total_ns:
        np.divide(sums(g.codes, rank_ns, g.count), total_ns, out=share, where=measured > 0)
    overlapped, exposed = exposure(trace)
    hidden_us = _sum_us(g.codes[overlapped.mask], overlapped.values[overlapped.mask], g.count)
    exposed_us = _sum_us(g.codes[exposed.mask], exposed.values[exposed.mask], g.count)
    columns = zip(op[g.first].tolist(), group[g.first].tolist(), sizes[size[g.first]].tolist(), g.sizes.tolist(), measured.tolist(),
                  _sum_us(codes, durations, g.count).tolist(), p50.tolist(), p95.tolist(), share.tolist(),
                  np.bincount(g.codes[exposed.mask], minlength=g.count).tolist(), hidden_us.tolist(), exposed_us.tolist(), strict=True)
    rows = []
    for o, k, b, count, m, t, q50, q95, part, n, h, e in columns:
        name, where = str(op_names[o]), groups[k]
        rate = algbw_gb_s(b, q50)
        rows.append(OperationRow(name, where.name, where.members, b, count, m, b * count, t, q50, q95, part, rate,
                                 rate * bus_factor(name, where.size), n, h, e))
    return rows


def _rank_time_ns(trace: Trace) -> IntArray:
    """Measured time of each event summed over its reporting ranks, nanoseconds."""
    if trace.duration_ns.is_empty:
        return np.zeros(len(trace), np.int64)
    running = np.concatenate([[0], np.cumsum(np.maximum(trace.duration_ns.values, 0))])
    return running[trace.duration_ns.pointers[1:]] - running[trace.duration_ns.pointers[:-1]]


def _sum_us(codes: IntArray, values: IntArray, count: int) -> FloatArray:
    out = sums(codes, values, count) / 1000
    out[np.bincount(codes, minlength=count) == 0] = np.nan
    return out


def _unsized_rows(unsized: tuple[UnsizedRow, ...], total_ns: int) -> list[OperationRow]:
    by_name: dict[str, list[int]] = defaultdict(list)
    for row in unsized:
        by_name[row.name].append(row.time_ns)
    rows = []
    for name, times in by_name.items():
        timed = np.array([t for t in times if t > 0], np.int64)  # 0 stands for "the source gives none"
        p50, p95 = (quantiles(np.zeros(len(timed), np.int64), timed, 1, (0.5, 0.95))[:, 0] / 1000).tolist()
        time_us, share = (int(timed.sum()) / 1000, int(timed.sum()) / total_ns) if len(timed) else (math.nan, math.nan)
        rows.append(OperationRow(name, None, (), None, len(times), len(timed), 0, time_us, p50, p95, share, math.nan, math.nan, 0,
                                 math.nan, math.nan, sized=False))
    return rows
