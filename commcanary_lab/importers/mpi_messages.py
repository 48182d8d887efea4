"""Messages of PMPI traces: which send a receive belongs to, so that each is counted once and with the size that was sent."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from commcanary_lab.importers.mpi_comms import Group

__all__ = ["ANY", "Message", "level", "match"]

#: A tag or a source that matches any.
ANY = -1


@dataclass
class Message:
    """One end of a message.

    Parameters
    ----------
    rank : int
        Global rank that wrote it.
    sends : bool
        It is the sending end.
    peer : int
        Global rank of the other end; `ANY` for a receive from any source.
    tag : int
        `ANY` for a receive of any tag.
    size_bytes : int
        What was sent; for a receive the posted buffer, until its send is found.
    posted : bool
        The size is that of a posted buffer.
    """

    rank: int
    sends: bool
    peer: int
    tag: int
    size_bytes: int
    group: Group
    dtype: str | None
    start_ns: int
    duration_ns: int | None
    overlap_ns: int | None
    posted: bool = False
    dropped: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """Sender and receiver."""
        return (self.rank, self.peer) if self.sends else (self.peer, self.rank)

    @property
    def key(self) -> tuple[Group, int, int, int]:
        """What both ends share, besides the order."""
        return (self.group, *self.ends, self.tag)


def match(by_rank: Mapping[int, list[Message]]) -> tuple[int, int]:
    """Match receives to sends, in place: exact ones first, then those from any source or of any tag by the time of the send.

    A receive gets the tag, the sender and the size of its send. Receives from any source that no send is left for are dropped.

    Parameters
    ----------
    by_rank : mapping of int to list of Message
        Messages of each rank in its order.

    Returns
    -------
    guessed : int
        Receives from any source that were given a send by time.
    dropped : int
        Those for which no send is left.
    """
    waiting: dict[tuple[Group, int, int, int], deque[Message]] = defaultdict(deque)
    for messages in by_rank.values():
        for m in messages:
            if m.sends:
                waiting[m.key].append(m)
    loose = []
    for messages in by_rank.values():
        for m in messages:
            if m.sends:
                continue
            if ANY in (m.peer, m.tag):
                loose.append(m)
            elif waiting[m.key]:
                waiting[m.key].popleft()
    to: dict[tuple[Group, int], list[tuple[Group, int, int, int]]] = defaultdict(list)
    for key in waiting:
        to[(key[0], key[2])].append(key)
    guessed = dropped = 0
    for m in sorted(loose, key=lambda m: (m.peer == ANY) + (m.tag == ANY)):  # what can take few comes before what can take any
        fits = [k for k in to[(m.group, m.rank)] if waiting[k] and m.peer in (ANY, k[1]) and m.tag in (ANY, k[3])]
        if fits:
            best = min(fits, key=lambda k: (waiting[k][0].start_ns, k[1], k[3]))
            waiting[best].popleft()
            guessed += m.peer == ANY
            m.peer, m.tag = best[1], best[3]
        elif m.peer == ANY or m.peer in by_rank:
            m.dropped = True
            dropped += 1
    _sizes(by_rank)
    return guessed, dropped


def _sizes(by_rank: Mapping[int, list[Message]]) -> None:
    """Messages of one direction and tag do not overtake each other: the n-th receive has the size of the n-th send."""
    sent: dict[tuple[Group, int, int, int], list[Message]] = defaultdict(list)
    seen: Counter[tuple[Group, int, int, int]] = Counter()
    for messages in by_rank.values():
        for m in messages:
            if m.sends:
                sent[m.key].append(m)
    for messages in by_rank.values():
        for m in messages:
            if not m.sends and not m.dropped:
                sends = sent[m.key]
                if seen[m.key] < len(sends):
                    one = sends[seen[m.key]]
                    m.size_bytes, m.posted, m.dtype = one.size_bytes, False, one.dtype
                seen[m.key] += 1


def level(by_rank: Mapping[int, list[Message]]) -> bool:
    """Drop the measured time of messages that only one end has, in place; return True where some were dropped."""
    ends: dict[tuple[Group, int, int, int, int], list[Message]] = defaultdict(list)
    count: Counter[tuple[object, ...]] = Counter()
    for messages in by_rank.values():
        for m in messages:
            if not m.dropped:
                side = (*m.key, m.sends)
                ends[(*m.key, count[side])].append(m)
                count[side] += 1
    found = False
    for pair in ends.values():
        if len({m.duration_ns is None for m in pair}) > 1:
            found = True
            for m in pair:
                m.duration_ns = m.overlap_ns = None
    return found
