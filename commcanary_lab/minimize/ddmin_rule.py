"""The rule of ddmin, apart from what it asks: which subsets are tested in which order, and what follows from each answer.

`docs/formats/ddmin.md` states it: chunks alone, then complements, then twice as many chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["Accepts", "Stop", "ranges_of", "reduce_by_rule"]

IntArray = npt.NDArray[np.int64]

#: Answers a test: its kind (``chunk`` or ``complement``), into how many parts the current events are cut, which part, and the events.
Accepts = Callable[[str, int, int, IntArray], bool]


class Stop(Exception):
    """Raised by a test that is not answered; says why."""


def reduce_by_rule(count: int, accepts: Accepts) -> tuple[IntArray, str]:
    """Apply the rule.

    Parameters
    ----------
    count : int
        Events of the whole trace.
    accepts : callable
        Answers a test, or raises `Stop`.

    Returns
    -------
    kept : ndarray of int64
        Indices of the last accepted events; all when nothing was accepted.
    stopped : str
        ``minimal``, or why `Stop` was raised.

    Examples
    --------
    >>> reduce_by_rule(8, lambda kind, parts, part, kept: {2, 5} <= set(kept.tolist()))
    (array([2, 5]), 'minimal')
    """
    current = np.arange(count, dtype=np.int64)
    parts = 2
    try:
        while len(current) >= 2:
            smaller = _smaller(accepts, current, parts)
            if smaller is not None:
                current, parts = smaller
            elif parts >= len(current):
                break
            else:
                parts = min(len(current), 2 * parts)
    except Stop as reason:
        return current, str(reason)
    return current, "minimal"


def _smaller(accepts: Accepts, current: IntArray, parts: int) -> tuple[IntArray, int] | None:
    """The first accepted chunk, or complement, with the number of chunks to go on with."""
    for i, (a, b) in _chunks(len(current), parts):
        if accepts("chunk", parts, i, current[a:b]):
            return current[a:b], 2
    if parts > 2:
        for i, (a, b) in _chunks(len(current), parts):
            rest = np.concatenate([current[:a], current[b:]])
            if accepts("complement", parts, i, rest):
                return rest, max(parts - 1, 2)
    return None


def _chunks(length: int, parts: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield number and bounds of each chunk; empty ones and the whole are left out."""
    for i in range(parts):
        a, b = int(i * length / parts), int((i + 1) * length / parts)
        if 0 < b - a < length:
            yield i, (a, b)


def ranges_of(kept: IntArray) -> list[list[int]]:
    """Return ascending indices as half-open ranges.

    Examples
    --------
    >>> ranges_of(np.array([0, 1, 2, 7])), ranges_of(np.array([], np.int64))
    ([[0, 3], [7, 8]], [])
    """
    if not len(kept):
        return []
    cuts = np.flatnonzero(np.diff(kept) != 1)
    firsts, lasts = kept[np.append(0, cuts + 1)], kept[np.append(cuts, len(kept) - 1)]
    return [[int(a), int(b) + 1] for a, b in zip(firsts, lasts, strict=True)]
