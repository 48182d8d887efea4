"""Traffic over time: the matrix of the events that start in an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.trace import Trace
from commcanary_lab.trace.timing import clock_ns, timing_mode
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.matrix import TrafficMatrix

__all__ = ["Window", "in_window", "windows"]

#: More matrices than this are a mistake in the width.
_MAX_WINDOWS = 100_000


@dataclass(frozen=True)
class Window:
    """The traffic of one interval.

    Parameters
    ----------
    start_ns, stop_ns : int
        Half-open interval of event starts, from the first event of the trace.
    matrix : TrafficMatrix
        What the events that start in it send, whenever they end.
    """

    start_ns: int
    stop_ns: int
    matrix: TrafficMatrix


def in_window(trace: Trace, start_ns: int, stop_ns: int) -> Trace:
    """Return the events that start in ``[start_ns, stop_ns)``, counted from the first event.

    Raises
    ------
    UnknownValueError
        If the source has no times.
    UsageError
        If the interval is empty.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> len(in_window(lab.samples.adversarial(), 0, 10_000))
    10
    """
    if start_ns >= stop_ns:
        raise UsageError(f"the window [{start_ns}, {stop_ns}) ns is empty", remedy="give a stop after the start")
    clock = _clock(trace)
    kept = trace.take(np.flatnonzero((clock >= start_ns) & (clock < stop_ns)))
    return kept.with_notes(f"events that start from {start_ns / 1e9:g} s to {stop_ns / 1e9:g} s: {len(kept):,} of {len(trace):,}")


def windows(trace: Trace, *, count: int | None = None, width_ns: int | None = None, **options: Any) -> tuple[Window, ...]:
    """Cut a trace into intervals of equal length and return the matrix of each; their sum is the matrix of the trace.

    Parameters
    ----------
    trace : Trace
        Events with times.
    count : int, optional
        Number of intervals.
    width_ns : int, optional
        Length of each; give one of the two.
    **options
        As for `build_matrix`.

    Raises
    ------
    UnknownValueError
        If the source has no times.
    UsageError
        If not exactly one of `count` and `width_ns` is given, or it is not positive.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> parts = windows(lab.samples.tp8_decode(), count=4)
    >>> len(parts), sum(w.matrix.events for w in parts) == len(lab.samples.tp8_decode())
    (4, True)
    """
    if (count is None) == (width_ns is None) or (count if count is not None else width_ns or 0) < 1:
        raise UsageError("a cut needs a number of intervals or their length", remedy="give count or width_ns, 1 or more")
    clock = _clock(trace)
    if not len(clock):
        return ()
    span = int(clock.max()) + 1
    width = width_ns if width_ns is not None else -(-span // (count or 1))
    number = -(-span // width)
    if number > _MAX_WINDOWS:
        remedy = f"choose a length that gives at most {_MAX_WINDOWS:,}"
        raise UsageError(f"{span / 1e9:g} s make {number:,} intervals of {width} ns", remedy=remedy)
    code = clock // width
    out = []
    for i in range(count if count is not None else number):
        part = trace.take(np.flatnonzero(code == i))
        out.append(Window(i * width, (i + 1) * width, build_matrix(part, **options)))
    return tuple(out)


def _clock(trace: Trace) -> np.ndarray[Any, np.dtype[np.int64]]:
    if len(trace) and timing_mode(trace) == "none":
        raise UnknownValueError("the source has no times: nothing says when its events start", field="time",
                                remedy="open a source with times, or take M apart by op, group or phase")  # fmt: skip
    return clock_ns(trace)
