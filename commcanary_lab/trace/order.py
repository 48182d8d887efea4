"""Order logical events that no clock orders: every rank's own order is kept."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.numbering import first_rows, positions

__all__ = ["order_by_ranks", "order_rows"]

_T = TypeVar("_T", bound=Hashable)


def order_by_ranks(sequences: Sequence[Sequence[_T]]) -> tuple[list[_T], int]:
    """Merge the ranks' sequences of events into one order that agrees with each of them.

    An event comes after everything that any of its ranks did before it. Among events that are free to come next, the one that its
    ranks reached after the fewest events comes first; ties go to the first rank.

    Parameters
    ----------
    sequences : sequence of sequences
        Events of each rank in that rank's order. A rank names an event at most once.

    Returns
    -------
    order : list
        Every event once.
    forced : int
        How many events were placed against the order of some rank, because the ranks contradict each other; 0 normally.

    Examples
    --------
    >>> order_by_ranks([["a", "b"], ["c", "a", "b"]])
    (['c', 'a', 'b'], 0)
    >>> order_by_ranks([["a", "b"], ["b", "a"]])
    (['a', 'b'], 1)
    """
    reached: dict[_T, int] = {}
    ranks_of: dict[_T, list[int]] = {}
    for rank, sequence in enumerate(sequences):
        for position, event in enumerate(sequence):
            reached[event] = max(position, reached.get(event, 0))
            ranks_of.setdefault(event, []).append(rank)
    number = {event: i for i, event in enumerate(ranks_of)}
    waiting = {event: len(ranks) for event, ranks in ranks_of.items()}
    at = [0] * len(sequences)
    done: set[_T] = set()
    ready: list[tuple[int, int, _T]] = []

    def arrive(rank: int) -> None:
        """Let a rank wait at its next event that is not placed yet."""
        sequence = sequences[rank]
        while at[rank] < len(sequence) and sequence[at[rank]] in done:
            at[rank] += 1
        if at[rank] < len(sequence):
            event = sequence[at[rank]]
            waiting[event] -= 1
            if not waiting[event]:
                heapq.heappush(ready, (reached[event], number[event], event))

    for rank in range(len(sequences)):
        arrive(rank)
    order: list[_T] = []
    forced = 0
    while len(order) < len(ranks_of):
        if not ready:
            heads = {s[i] for s, i in zip(sequences, at, strict=True) if i < len(s)}
            event = min(heads, key=lambda e: (reached[e], number[e]))
            forced += 1
        else:
            event = heapq.heappop(ready)[2]
        order.append(event)
        done.add(event)
        for rank in ranks_of[event]:
            if at[rank] < len(sequences[rank]) and sequences[rank][at[rank]] == event:
                at[rank] += 1
                arrive(rank)
    return order, forced


def order_rows(
    rank: npt.NDArray[np.integer], event: npt.NDArray[np.integer], count: int, lane: npt.NDArray[np.integer] | None = None
) -> tuple[npt.NDArray[np.int64], int]:
    """Order events as `order_by_ranks` does, from one row per event and rank.

    Parameters
    ----------
    rank : ndarray of int, shape (n,)
        Rank of each row; the rows of a rank are in its order.
    event : ndarray of int, shape (n,)
        Event of each row, from 0 to `count` - 1. A rank names an event at most once.
    count : int
        Number of events.
    lane : ndarray of int, shape (n,), optional
        What of each rank is in order, where its rows as a whole are only roughly so: rows of a rank in different lanes say nothing about
        each other but how far the rank had come.

    Returns
    -------
    place : ndarray of int64, shape (count,)
        Place of each event in the order.
    forced : int
        As in `order_by_ranks`.

    Examples
    --------
    >>> order_rows(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1]), 3)
    (array([1, 2, 0]), 0)
    """
    place = np.empty(count, np.int64)
    if count == 0:
        return place, 0
    if np.any(rank[1:] < rank[:-1]):
        by_rank = np.argsort(rank, kind="stable")
        rank, event, lane = rank[by_rank], event[by_rank], None if lane is None else lane[by_rank]
    position = positions(rank)
    reached = np.zeros(count, np.int64)
    np.maximum.at(reached, event, position)
    order = np.lexsort((first_rows(event, count), reached))
    place[order] = np.arange(count)
    if lane is not None:
        by_lane = np.lexsort((lane, rank))
        rank, event, lane = rank[by_lane], event[by_lane], lane[by_lane]
    same = rank[1:] == rank[:-1]
    if lane is not None:
        same &= lane[1:] == lane[:-1]
    if np.all((np.diff(place[event]) > 0) | ~same):  # where this agrees with every rank, it is the order wanted
        return place, 0
    from commcanary_lab.trace.order_kernel import placed

    # the kernel numbers events by priority: the one that its ranks reached after the fewest events comes first
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1, [len(event)]]).astype(np.int64)
    sequence, forced = placed(place[event].astype(np.int64), starts, count)
    out = np.empty(count, np.int64)
    out[sequence] = np.arange(count)
    return out[place], int(forced)
