"""The dominant period of a sequence of codes, in near-linear time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Period", "find_period", "occurrences"]

IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]

#: Distances taken from each context length as candidates, by count and by the events they span.
_CANDIDATES = 12
#: A larger period must repeat over this much more of the sequence than a smaller one.
_MARGIN = 0.98
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2**64


@dataclass(frozen=True)
class Period:
    """A stretch of a sequence that repeats.

    Parameters
    ----------
    length : int
        The period, in elements.
    start, stop : int
        The longest stretch in which every element equals the one a period later; at least two periods long.
    """

    length: int
    start: int
    stop: int


def find_period(codes: IntArray) -> Period | None:
    """Return the period of the longest repeating stretch, or None where nothing repeats.

    Of all candidate periods the one with the longest stretch wins, and among equals the smallest: 24 equal elements and one other,
    repeated, have period 25 and not 1. Candidates are distances between successive equal contexts of growing length, so that a period
    is found even if none of its elements occurs only once in it; each candidate is then checked exactly.

    Parameters
    ----------
    codes : ndarray of int64, shape (n,)
        Non-negative codes.

    Examples
    --------
    >>> find_period(np.array([9, 8, 0, 0, 1, 0, 0, 1, 0, 0, 1, 7]))
    Period(length=3, start=2, stop=11)
    >>> find_period(np.array([1, 2, 3])) is None
    True
    """
    n = len(codes)
    seen: dict[int, tuple[int, int]] = {}
    hashes = _Hashes(codes)
    context = 1
    while context <= n // 2:
        distances = _distances(hashes.windows(context))
        if not distances:
            break  # no context of this length occurs twice, so no longer one does
        for length in distances:
            if length <= n // 2 and length not in seen:
                seen[length] = _longest(codes, length)
        if max((stop - start for start, stop in seen.values()), default=0) >= _MARGIN * n:
            break
        context *= 2 if context < 16 else 4
    best = max((stop - start for start, stop in seen.values()), default=0)
    for length in sorted(seen):
        start, stop = seen[length]
        if best and stop - start >= _MARGIN * best:
            return Period(length, start, stop)
    return None


def occurrences(codes: IntArray, start: int, length: int) -> IntArray:
    """Return where ``codes[start:start + length]`` occurs, without overlaps, ascending.

    Examples
    --------
    >>> occurrences(np.array([5, 0, 1, 0, 1, 5, 0, 1]), 1, 2).tolist()
    [1, 3, 6]
    """
    windows = _Hashes(codes).windows(length)
    found = np.flatnonzero(windows == windows[start])
    if length > 1:
        kept, end = [], 0
        for position in found.tolist():
            if position >= end:
                kept.append(position)
                end = position + length
        found = np.array(kept, np.int64)
    same = np.ones(len(found), np.bool_)  # hashes may collide: compare the elements
    for offset in range(length):
        same &= codes[found + offset] == codes[start + offset]
    return found[same]


class _Hashes:
    """Hashes of all windows of one length: sums of random words times powers, shifted back to the window's start."""

    def __init__(self, codes: IntArray) -> None:
        n = len(codes)
        words = np.random.default_rng(20_260_101).integers(0, 1 << 64, int(codes.max(initial=0)) + 1, np.uint64)
        powers = np.full(n, _BASE, np.uint64)
        inverse = np.full(n, np.uint64(pow(int(_BASE), -1, 1 << 64)), np.uint64)
        powers[:1] = inverse[:1] = 1
        self._inverse = np.multiply.accumulate(inverse)
        self._prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words[codes] * np.multiply.accumulate(powers), dtype=np.uint64)])

    def windows(self, length: int) -> HashArray:
        """Shape (n - length + 1,)."""
        sums = self._prefix[length:] - self._prefix[: len(self._prefix) - length]
        return sums * self._inverse[: len(sums)]


def _distances(names: HashArray) -> list[int]:
    """Distances between successive equal names: the most frequent ones, and those that span most elements."""
    order = np.argsort(names, kind="stable")
    equal = names[order[1:]] == names[order[:-1]]
    distance = (order[1:] - order[:-1])[equal]
    if not len(distance):
        return []
    counts = np.bincount(distance)
    lengths = np.flatnonzero(counts)
    by_count = lengths[np.argsort(-counts[lengths], kind="stable")[:_CANDIDATES]]
    by_span = lengths[np.argsort(-counts[lengths] * lengths, kind="stable")[:_CANDIDATES]]
    return sorted({*by_count.tolist(), *by_span.tolist()})


def _longest(codes: IntArray, length: int) -> tuple[int, int]:
    """The longest stretch with this period, or (0, 0) if it is shorter than two periods."""
    differs = np.flatnonzero(codes[length:] != codes[:-length])
    edges = np.concatenate([[-1], differs, [len(codes) - length]])
    runs = np.diff(edges) - 1
    i = int(np.argmax(runs))
    run, start = int(runs[i]), int(edges[i]) + 1
    return (start, start + run + length) if run >= length else (0, 0)
