"""Iterations: the repeating unit of a trace, found from the sequence of its signatures."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UsageError
from commcanary_lab.inspect.grouping import FloatArray, IntArray, dense_codes, group_by, group_codes, text_codes
from commcanary_lab.inspect.html import table_html
from commcanary_lab.inspect.periods import Period, find_period, occurrences
from commcanary_lab.trace import ImportCoverage, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.trace.timing import clock_ns, timing_mode
from commcanary_lab.units import format_us

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Iteration", "Iterations", "iterations"]

#: Less of the reference rank's events than this inside iterations means that there are none.
MIN_COVERED = 0.5


@dataclass(frozen=True)
class Iteration:
    """One iteration.

    Parameters
    ----------
    index : int
        0, 1, ...
    start_event, stop_event : int
        Half-open range of events of the trace (all ranks).
    start_us, duration_us : float
        On the clock of the trace; the duration reaches to the next event of the reference rank. NaN where the trace has no times.
    size_bytes : int
        Sum of B over the events.
    communication_us : float
        Sum of the measured times of the events; NaN where none was measured.
    """

    index: int
    start_event: int
    stop_event: int
    start_us: float
    duration_us: float
    size_bytes: int
    communication_us: float

    @property
    def events(self) -> int:
        """Number of events."""
        return self.stop_event - self.start_event


@dataclass(frozen=True)
class Iterations:
    """The iterations of a trace.

    Parameters
    ----------
    rows : tuple of Iteration
        In time order.
    period : int
        Events of the reference rank in one iteration.
    reference_rank : int
        The rank whose sequence was used: its order is the order of its program, while ranks interleave differently each time.
    covered : float
        Share of the reference rank's events that lie inside iterations.
    prologue_events, epilogue_events : int
        Events of the trace before the first and after the last iteration.
    """

    rows: tuple[Iteration, ...]
    period: int
    reference_rank: int
    covered: float
    prologue_events: int
    epilogue_events: int
    coverage: ImportCoverage
    notes: tuple[str, ...] = ()
    origin: str = "measured"

    def __repr__(self) -> str:
        return f"Iterations({len(self.rows):,} of {self.period:,} events, rank {self.reference_rank}, {self.covered:.1%} of the events)"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def median_us(self) -> float:
        """Median duration, NaN where the trace has no times."""
        known = [r.duration_us for r in self.rows if not math.isnan(r.duration_us)]
        return float(np.median(known)) if known else math.nan

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table."""
        import pandas as pd

        return pd.DataFrame([asdict(r) for r in self.rows], columns=list(Iteration.__dataclass_fields__))

    def _repr_html_(self) -> str:
        title = (f"{len(self.rows):,} iterations of {self.period:,} events on rank {self.reference_rank}, "
                 f"median {format_us(self.median_us)} ({self.origin}; {self.covered:.1%} of the events)")
        headers = ["iteration", "first event", "end event", "start (us)", "duration (us)", "bytes", "communication (us)"]
        return table_html(title, headers, (tuple(asdict(r).values()) for r in self.rows), len(self.rows), self.notes)


def iterations(trace: Trace, *, period: int | None = None, rank: int | None = None) -> Iterations | None:
    """Find the iterations of a trace: the dominant period of the signature sequence (op, size, group, phase).

    The sizes of uneven all-to-alls differ in every iteration and are left out of the signature. Events before, between and after the
    iterations (a prologue, an evaluation, an incomplete last one) are allowed. An iteration starts where the repetition does: if the
    prologue ends like an iteration, so many events earlier than the program would say.

    Parameters
    ----------
    trace : Trace
        The events.
    period : int, optional
        Number of events of the reference rank in one iteration, if it is known.
    rank : int, optional
        The reference rank; default: the one with the most events, the lowest of them.

    Returns
    -------
    Iterations or None
        None if less than half of the reference rank's events repeat, or nothing occurs twice.

    Raises
    ------
    UsageError
        If `rank` takes part in no event or `period` is not at least 1.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup
    >>> names = ["broadcast"] + ["all_gather", "reduce_scatter"] * 3
    >>> t = Trace.build(7, op=Coded.from_optional(names), groups=(ProcessGroup("dp", (0, 1)),), group=np.zeros(7, np.int32),
    ...                 size_bytes=np.full(7, 64))
    >>> found = iterations(t)
    >>> found.period, [(r.start_event, r.stop_event, r.size_bytes) for r in found.rows]
    (2, [(1, 3, 128), (3, 5, 128), (5, 7, 128)])
    """
    if period is not None and period < 1:
        raise UsageError(f"the period {period} is not a positive number of events", remedy="give 1 or more")
    if len(trace) == 0:
        return None
    reference, index = _reference(trace, rank)
    codes = _signatures(trace)[index]
    found = find_period(codes) if period is None else _given(codes, period)
    if found is None:
        return None
    at = occurrences(codes, found.start, found.length)
    covered = len(at) * found.length / len(codes)
    if len(at) < 2 or covered < MIN_COVERED:
        return None
    starts = index[at]
    ends = at + found.length
    stops = np.where(ends < len(index), index[np.minimum(ends, len(index) - 1)], len(trace))
    return Iterations(_rows(trace, starts, stops), found.length, reference, covered, int(starts[0]), len(trace) - int(stops[-1]),
                      trace.coverage, trace.notes, trace.origin)


def _given(codes: IntArray, period: int) -> Period | None:
    """The first place where a period of the given length repeats at once."""
    if 2 * period > len(codes):
        return None
    differs = np.concatenate([[0], np.cumsum(codes[period:] != codes[:-period])])
    repeats = np.flatnonzero(differs[period:] == differs[: len(differs) - period])
    return Period(period, int(repeats[0]), int(repeats[0]) + 2 * period) if len(repeats) else None


def _reference(trace: Trace, rank: int | None) -> tuple[int, npt.NDArray[np.intp]]:
    """The reference rank and the events that it takes part in."""
    counts = np.bincount(trace.group, minlength=len(trace.groups)).tolist()
    if rank is None:
        per_rank: dict[int, int] = {}
        for group, n in zip(trace.groups, counts, strict=True):
            for member in group.members if n else ():
                per_rank[member] = per_rank.get(member, 0) + n
        rank = min(per_rank, key=lambda r: (-per_rank[r], r))
    takes_part = np.array([rank in g.members for g in trace.groups], np.bool_)
    index = np.flatnonzero(takes_part[trace.group])
    if not len(index):
        raise UsageError(f"rank {rank} takes part in no event", remedy=f"the trace has ranks {trace.ranks[0]} to {trace.ranks[-1]}")
    return rank, index


def _signatures(trace: Trace) -> IntArray:
    op, names = text_codes(trace.op)
    uneven = np.array([name == ALL_TO_ALL_V for name in names], np.bool_)
    size, _ = dense_codes(np.where(uneven[op], 0, trace.size_bytes))
    return group_by(op, size, group_codes(trace)[0], text_codes(trace.phase)[0]).codes


def _rows(trace: Trace, starts: IntArray, stops: IntArray) -> tuple[Iteration, ...]:
    volume = np.concatenate([[0], np.cumsum(trace.size_bytes)])
    duration = trace.duration_max_ns
    busy = np.concatenate([[0], np.cumsum(duration.values)])
    measured = np.concatenate([[0], np.cumsum(duration.mask)])
    busy_us = np.where(measured[stops] > measured[starts], (busy[stops] - busy[starts]) / 1000, np.nan)
    start_us, duration_us = _spans(trace, starts, stops)
    columns = zip(starts.tolist(), stops.tolist(), start_us.tolist(), duration_us.tolist(), (volume[stops] - volume[starts]).tolist(),
                  busy_us.tolist(), strict=True)
    return tuple(Iteration(i, *row) for i, row in enumerate(columns))


def _spans(trace: Trace, starts: IntArray, stops: IntArray) -> tuple[FloatArray, FloatArray]:
    """Start and duration of each range of events, microseconds."""
    if timing_mode(trace) == "none":
        unknown = np.full(len(starts), np.nan)
        return unknown, unknown
    clock = clock_ns(trace)
    duration = trace.duration_max_ns
    # after the last event of the trace nothing starts: its iteration ends when its last measured collective does
    tail = slice(int(starts[-1]), len(trace))
    known = duration.mask[tail]
    end = int((clock[tail] + duration.values[tail])[known].max()) if known.any() else -1
    ends = np.append(clock, end)[stops]
    spans = np.where(ends >= 0, (ends - clock[starts]) / 1000, np.nan)
    return clock[starts] / 1000, spans
