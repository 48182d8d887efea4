"""Order logical events that no clock orders: every rank's own order is kept."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import TypeVar

__all__ = ["order_by_ranks"]

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
