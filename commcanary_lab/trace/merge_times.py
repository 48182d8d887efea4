"""Starts and arrivals of events from those of their ranks, on columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.clocks import Clocks
from commcanary_lab.trace.columns import Column, Ragged

__all__ = ["Times", "event_times"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Times:
    """Time columns of a trace."""

    start_ns: Column
    arrival_ns: Ragged
    arrival_known: npt.NDArray[np.bool_]
    rank_start_ns: Ragged

    @classmethod
    def none(cls, n: int) -> Times:
        """No time at all."""
        return cls(Column.absent(n), Ragged.empty(n), np.zeros(n, np.bool_), Ragged.empty(n))


def event_times(rank: IntArray, start_ns: IntArray, pointers: IntArray, members: IntArray, clocks: Clocks) -> Times:
    """Return when events start, and how far apart their ranks arrive.

    Arrivals are known where every member reports its start and the clocks compare. Otherwise an event starts when its lowest timed
    rank says, and the ranks' own starts are kept.

    Parameters
    ----------
    rank, start_ns : ndarray of int64, shape (n,)
        Rank and start (-1 where unknown) of each record, by event, the ranks of an event ascending.
    pointers : ndarray of int64, shape (events + 1,)
        Where each event's records begin.
    members : ndarray of int64, shape (events,)
        How many ranks each event has.
    clocks : Clocks
        Offsets of the ranks; all ranks have one clock domain.

    Returns
    -------
    Times

    Examples
    --------
    >>> clocks = Clocks({0: 0, 1: 0}, {0: "monotonic@h", 1: "monotonic@h"}, False)
    >>> t = event_times(np.array([0, 1, 0]), np.array([100, 130, 200]), np.array([0, 2, 3]), np.array([2, 2]), clocks)
    >>> t.start_ns.values.tolist(), t.arrival_ns.row(0).tolist(), t.arrival_known.tolist(), t.rank_start_ns.row(1).tolist()
    ([0, 100], [0, 30], [True, False], [100])
    """
    n = len(members)
    timed = start_ns >= 0
    if not timed.any():
        return Times.none(n)
    sizes = np.diff(pointers)
    shifted = np.where(timed, start_ns + _offsets(rank, clocks), np.iinfo(np.int64).max)
    count = np.add.reduceat(timed, pointers[:-1], dtype=np.int64)
    comparable = clocks.comparable(clocks.offset_ns)
    known = (count == members) & (comparable | (members == 1))
    at = np.where(timed, np.arange(len(rank)), len(rank))
    leading = np.minimum.reduceat(at, pointers[:-1])  # the first timed row
    start = np.where(known, np.minimum.reduceat(shifted, pointers[:-1]), shifted[np.minimum(leading, len(rank) - 1)])
    has = count > 0
    arrivals = Ragged.from_lengths((shifted - np.repeat(start, sizes))[np.repeat(known, sizes)], np.where(known, sizes, 0))
    apart = has & ~known
    own = start_ns[np.repeat(apart, sizes)]
    lowest = int(own[own >= 0].min()) if np.any(own >= 0) else None
    origin = int(start[has].min())
    if clocks.shared and lowest is not None:
        origin = lowest = min(origin, lowest)
    rows = np.where(own >= 0, own - (lowest or 0), -1)
    column = Column(np.where(has, start - origin, 0), has)
    return Times(column, arrivals, known, Ragged.from_lengths(rows, np.where(apart, sizes, 0)))


def _offsets(rank: IntArray, clocks: Clocks) -> IntArray:
    ranks = np.array(sorted(clocks.offset_ns), np.int64)
    offsets = np.array([clocks.offset_ns[r] for r in ranks.tolist()], np.int64)
    return offsets[np.searchsorted(ranks, rank)]
