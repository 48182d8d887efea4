"""Compiled form of `trace.order.order_by_ranks`, for ranks that no simple sort reconciles."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["placed"]

IntArray = npt.NDArray[np.int64]


def placed(event: IntArray, starts: IntArray, count: int) -> tuple[IntArray, int]:
    """Place events so that every rank's own order holds.

    Parameters
    ----------
    event : ndarray of int64, shape (n,)
        Events in the order of each rank, one rank behind the other; an event's number is its priority, the lowest first.
    starts : ndarray of int64, shape (ranks + 1,)
        Where each rank begins, and the end.
    count : int
        Number of events.

    Returns
    -------
    order : ndarray of int64, shape (count,)
        The events in order.
    forced : int
        How many were placed against the order of some rank.

    Examples
    --------
    >>> placed(np.array([0, 1, 1, 0]), np.array([0, 2, 4]), 2)
    (array([0, 1]), 1)
    """
    rank = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    by_event = np.argsort(event, kind="stable")
    pointers = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(event, minlength=count), out=pointers[1:])
    order, forced = _place(event, starts, rank[by_event], pointers)
    return order, int(forced)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _place(event: Any, starts: Any, rank: Any, pointers: Any) -> Any:
    count, ranks = len(pointers) - 1, len(starts) - 1
    waiting = pointers[1:] - pointers[:-1]
    at = starts[:-1].copy()
    done = np.zeros(count, np.bool_)
    order = np.empty(count, np.int64)
    ready = [np.int64(0) for _ in range(0)]  # events that all their ranks have reached
    heads = [np.int64(0) for _ in range(0)]  # events that some rank has reached; those placed since are dropped when met
    arriving = [np.int64(r) for r in range(ranks)]
    forced = 0
    for n in range(count):
        for r in arriving:
            while at[r] < starts[r + 1] and done[event[at[r]]]:
                at[r] += 1
            if at[r] < starts[r + 1]:
                e = event[at[r]]
                waiting[e] -= 1
                heapq.heappush(heads, e)
                if waiting[e] == 0:
                    heapq.heappush(ready, e)
        if len(ready) > 0:
            e = heapq.heappop(ready)
        else:
            while done[heads[0]]:
                heapq.heappop(heads)
            e = heads[0]
            forced += 1
        order[n] = e
        done[e] = True
        arriving.clear()
        for i in range(pointers[e], pointers[e + 1]):
            r = rank[i]
            if at[r] < starts[r + 1] and event[at[r]] == e:
                at[r] += 1
                arriving.append(r)
    return order, forced
