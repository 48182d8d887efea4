"""How much communication time compute hides, per operation, group or phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from commcanary_lab.errors import UsageError
from commcanary_lab.inspect.grouping import IntArray, group_by, group_codes, sums, text_codes
from commcanary_lab.inspect.html import table_html
from commcanary_lab.trace import Column, ImportCoverage, Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OverlapShare", "OverlapShares", "exposure", "overlap_shares"]


def exposure(trace: Trace) -> tuple[Column, Column]:
    """Split the measured time of each event into hidden and exposed time, nanoseconds.

    overlapped = min(duration, overlap) and exposed = duration - overlapped where the duration was measured and the overlap is
    known. Where the source states the exposed latency itself and no duration, that value is taken. Everything else is masked.

    Returns
    -------
    overlapped_ns, exposed_ns : Column, shape (n,)

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup, Ragged
    >>> t = Trace.build(1, op=Coded.constant(1, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(1, np.int32),
    ...                 size_bytes=np.array([8]), overlap_ns=Column(np.array([3000])), duration_ns=Ragged.from_rows([[10_000, 9_000]]))
    >>> [c.values.tolist() for c in exposure(t)]
    [[3000], [7000]]
    """
    duration, overlap, observed = trace.duration_max_ns, trace.overlap_ns, trace.observed_exposed_ns
    both = duration.mask & overlap.mask
    hidden = np.where(both, np.minimum(duration.values, overlap.values), 0)
    exposed = np.where(both, duration.values - hidden, np.where(observed.mask, observed.values, 0))
    return Column(hidden, both), Column(exposed, both | (observed.mask & ~duration.mask))


@dataclass(frozen=True)
class OverlapShare:
    """Hidden and exposed communication of one operation, group or phase.

    Parameters
    ----------
    name : str
        The operation, group or phase.
    count : int
        Events.
    known : int
        Events whose duration was measured and whose overlap is known; the times below are theirs.
    time_us, overlapped_us, exposed_us : float
        Sums; NaN when `known` is 0.
    hidden_fraction : float
        overlapped / time; NaN when nothing is known or no time passed.
    """

    name: str
    count: int
    known: int
    time_us: float
    overlapped_us: float
    exposed_us: float
    hidden_fraction: float


@dataclass(frozen=True)
class OverlapShares:
    """Overlap shares by one property of the events, most exposed time first."""

    by: str
    rows: tuple[OverlapShare, ...]
    unknown: int
    coverage: ImportCoverage
    notes: tuple[str, ...] = ()
    origin: str = "measured"

    def __repr__(self) -> str:
        return f"OverlapShares({len(self.rows)} rows)"

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table."""
        import pandas as pd

        names = list(OverlapShare.__dataclass_fields__)
        return pd.DataFrame([asdict(r) for r in self.rows], columns=names).rename(columns={"name": self.by})

    def _repr_html_(self) -> str:
        rows = ((r.name, r.count, r.known, r.time_us, r.overlapped_us, r.exposed_us, r.hidden_fraction) for r in self.rows)
        title = f"Communication hidden by compute, by {self.by} ({self.origin}; unknown for {self.unknown:,} events)"
        return table_html(title, [self.by, "events", "known", "time (us)", "hidden (us)", "exposed (us)", "hidden share"], rows,
                          len(self.rows), self.notes)


def overlap_shares(trace: Trace, by: str = "op") -> OverlapShares:
    """Sum hidden and exposed communication time per operation, group or phase.

    Parameters
    ----------
    trace : Trace
        The events.
    by : {"op", "group", "phase"}
        What to sum over.

    Raises
    ------
    UsageError
        If `by` is something else.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup, Ragged
    >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32),
    ...                 size_bytes=np.array([8, 8]), overlap_ns=Column.from_optional([4000, None]),
    ...                 duration_ns=Ragged.from_rows([[10_000], [9_000]]))
    >>> [(r.name, r.count, r.known, r.exposed_us, r.hidden_fraction) for r in overlap_shares(t).rows]
    [('all_reduce', 2, 1, 6.0, 0.4)]
    """
    codes, names = _keys(trace, by)
    hidden, exposed = exposure(trace)
    grouping = group_by(codes)
    known = hidden.mask
    picked = grouping.codes[known]
    counts = grouping.sizes
    measured = np.bincount(picked, minlength=grouping.count)
    hidden_ns = sums(picked, hidden.values[known], grouping.count)
    exposed_ns = sums(picked, exposed.values[known], grouping.count)
    rows = []
    for i, code in enumerate(codes[grouping.first].tolist()):
        n = int(measured[i])
        h, e = (int(hidden_ns[i]) / 1000, int(exposed_ns[i]) / 1000) if n else (np.nan, np.nan)
        total = int(hidden_ns[i] + exposed_ns[i]) / 1000 if n else np.nan
        rows.append(OverlapShare(names[code], int(counts[i]), n, total, h, e, h / total if total > 0 else np.nan))
    rows.sort(key=lambda r: (-r.exposed_us if r.known else np.inf, r.name))
    return OverlapShares(by, tuple(rows), len(trace) - int(np.count_nonzero(known)), trace.coverage, trace.notes, trace.origin)


def _keys(trace: Trace, by: str) -> tuple[IntArray, Sequence[str]]:
    if by == "op":
        codes, texts = text_codes(trace.op)
        return codes, [str(t) for t in texts]
    if by == "phase":
        codes, texts = text_codes(trace.phase)
        return codes, ["no phase" if t is None else t for t in texts]
    if by == "group":
        codes, groups = group_codes(trace)
        return codes, [g.label for g in groups]
    raise UsageError(f"cannot sum by {by!r}", remedy="give op, group or phase")
