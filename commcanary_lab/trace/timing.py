"""Timing semantics: which field governs, derived gaps, and the order of events.

- Every event has ``start_us``: time orders the trace and gaps are differences of starts.
- No event has it: input order and ``gap_us`` (or ``compute_before_us``) govern.
- Mixed: accepted only when every event has its own ``gap_us``; input order and gaps govern.
- ``start_us`` and ``gap_us`` of one event that contradict each other by more than 0.001 us are refused.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import Problem, TimingError
from commcanary_lab.trace.columns import Column
from commcanary_lab.trace.model import Trace

__all__ = ["CONTRADICTION_NS", "check_timing", "clock_ns", "gaps_ns", "in_time_order", "timing_mode"]

#: Largest difference between a gap and the difference of starts that is not a contradiction: 0.001 us.
CONTRADICTION_NS = 1


def timing_mode(trace: Trace) -> str:
    """Return which field governs: ``start``, ``gap``, ``compute_before`` or ``none``.

    ``gap`` also covers the mixed case, where every event has its own gap.
    """
    if len(trace) and trace.start_ns.all_known:
        return "start"
    if trace.gap_ns.known_count:
        return "gap"
    return "compute_before" if trace.compute_before_ns.known_count else "none"


def gaps_ns(trace: Trace) -> npt.NDArray[np.int64]:
    """Return the effective gap before each event, shape (n,), nanoseconds.

    The difference of ``start_us`` (first event: its ``gap_us`` or 0), or ``gap_us``, or ``compute_before_us``, or 0.
    """
    if timing_mode(trace) == "start":
        gaps = np.diff(trace.start_ns.values, prepend=trace.start_ns.values[:1])
        gaps[0] = trace.gap_ns.values[0] if trace.gap_ns.mask[0] else 0
        return gaps
    return np.where(trace.gap_ns.mask, trace.gap_ns.values, trace.compute_before_ns.filled(0))


def clock_ns(trace: Trace) -> npt.NDArray[np.int64]:
    """Return the time of each event from the first one, shape (n,), nanoseconds."""
    gaps = gaps_ns(trace)
    clock = np.cumsum(gaps)
    return clock - clock[0] if len(clock) else clock


def in_time_order(trace: Trace) -> Trace:
    """Sort by ``start_us`` where every event has one; ties keep input order."""
    if len(trace) < 2 or not trace.start_ns.all_known:
        return trace
    starts = trace.start_ns.values
    if np.all(starts[1:] >= starts[:-1]):
        return trace
    # not `take`: whether gaps agree with the sorted starts is for `check_timing` to say
    return trace.rows(np.argsort(starts, kind="stable"))


def check_timing(trace: Trace, file: str | None = None, order: npt.NDArray[np.intp] | None = None) -> None:
    """Refuse timing that is mixed without gaps, or contradicts itself.

    Parameters
    ----------
    trace : Trace
        The trace, in time order.
    file : str, optional
        Its file, for messages.
    order : ndarray of int, shape (n,), optional
        Index of each event in the file, where the file is not in time order.

    Raises
    ------
    TimingError
        Listing every event in question.
    """
    problems: list[Problem] = []
    start, gap = trace.start_ns, trace.gap_ns
    if start.known_count and not start.all_known:
        for i in np.flatnonzero(~gap.mask).tolist():
            problems.append(
                Problem(
                    "some events have start_us, some do not, and this one has no gap_us",
                    file=file,
                    record=i,
                    field="gap_us",
                    remedy="give every event a start_us, or every event a gap_us",
                )
            )
    both = _adjacent_starts(start) & gap.mask
    rows = np.flatnonzero(both)
    rows = rows[rows > 0]
    difference = np.abs(start.values[rows] - start.values[rows - 1] - gap.values[rows])
    for i, d in zip(rows[difference > CONTRADICTION_NS].tolist(), difference[difference > CONTRADICTION_NS].tolist(), strict=True):
        problems.append(
            Problem(
                f"gap_us is {gap.values[i] / 1000} but start_us is {d / 1000} us away from the previous start plus this gap",
                file=file,
                record=i if order is None else int(order[i]),
                field="gap_us",
                remedy="remove one of the two or make them agree",
            )
        )
    if problems:
        raise TimingError(problems)


def _adjacent_starts(start: Column) -> npt.NDArray[np.bool_]:
    known = start.mask.copy()
    known[1:] &= start.mask[:-1]
    return known
