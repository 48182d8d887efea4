"""Uneven all-to-all: bytes from the split lists of the reporting ranks; what they do not say stays unattributed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import InputError
from commcanary_lab.inspect.grouping import group_by
from commcanary_lab.trace import Trace
from commcanary_lab.traffic.attribution import IntArray, Links, check_links

__all__ = ["SplitTraffic", "attribute_splits"]

#: Values of the split lists that are looked at in one pass.
_PASS = 1 << 22


@dataclass(eq=False)
class SplitTraffic:
    """What the split lists say, accumulated over passes.

    Parameters
    ----------
    links : list of Links
        Contributions; `call` is the part.
    payload_bytes : ndarray of int64, shape (parts,)
        Sum of B over the records, where the B of a record is the larger of what the rank sent and received.
    unattributed, unattributed_received : ndarray of int64, shape (parts,)
        Row and column totals less the parts that are known.
    unknown_rows : int
        Rows of reporting ranks with unknown splits and an unknown total.
    """

    payload_bytes: IntArray
    unattributed: IntArray
    unattributed_received: IntArray
    links: list[Links] = field(default_factory=list)
    unknown_rows: int = 0


def attribute_splits(trace: Trace, events: npt.NDArray[np.intp], part: IntArray, parts: int) -> SplitTraffic:
    """Attribute uneven all-to-alls.

    A reporting rank's sent splits fill its row of M and its received splits its column, each cell once. The chunk that a rank keeps
    belongs to the row total and never to M.

    Parameters
    ----------
    trace : Trace
        The trace.
    events : ndarray of int, shape (n,)
        Events that have split lists.
    part : ndarray of int64, shape (n,)
        Part of each of them.
    parts : int
        Number of parts.

    Raises
    ------
    InputError
        If sender and receiver state different values for one cell, a total contradicts its splits, or a split list has the wrong length.
    """
    out = SplitTraffic(np.zeros(parts, np.int64), np.zeros(parts, np.int64), np.zeros(parts, np.int64))
    keys = group_by(part, trace.observers[events] + 1, trace.group[events])
    order = np.argsort(keys.codes, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(keys.sizes)])
    for i, first in enumerate(keys.first.tolist()):
        batch = events[order[bounds[i] : bounds[i + 1]]]
        _Exchange(trace, batch, int(part[first]), out).attribute()
    return out


class _Exchange:
    """Events of one group, reported by the same ranks."""

    def __init__(self, trace: Trace, events: npt.NDArray[np.intp], part: int, out: SplitTraffic) -> None:
        self.trace, self.events, self.part, self.out = trace, events, part, out
        self.members = np.array(trace.groups[trace.group[events[0]]].members, np.int64)
        self.observers = np.array(trace.observers_of(int(events[0])), np.int64)
        self.position = np.searchsorted(self.members, self.observers)
        self.silent = np.setdiff1d(np.arange(len(self.members)), self.position)
        check_links("all_to_all_v", 2 * len(self.members) * len(self.observers))

    def attribute(self) -> None:
        k, o = len(self.members), len(self.observers)
        width = o * (2 + 2 * k)
        lengths = self.trace.splits.lengths[self.events]
        if (lengths != width).any():
            event = int(self.events[np.argmax(lengths != width)])
            raise InputError(
                f"the split list has {self.trace.splits.lengths[event]} values; {o} reporting ranks of {k} need {width}",
                record=event,
                field="splits",
                remedy="give per rank: total sent, total received, k sent, k received",
            )
        sent, received = np.zeros((o, k), np.int64), np.zeros((o, k), np.int64)
        step = max(1, _PASS // width)
        for low in range(0, len(self.events), step):
            events = self.events[low : low + step]
            block = self.trace.splits.values[self.trace.splits.pointers[events][:, None] + np.arange(width)].reshape(-1, o, 2 + 2 * k)
            self._pass(events, block, sent, received)
        rows = Links.where(sent != 0, np.repeat(self.observers[:, None], k, 1), np.repeat(self.members[None, :], o, 0), sent.astype(float))
        columns = Links.where(
            received != 0, np.repeat(self.members[None, :], o, 0), np.repeat(self.observers[:, None], k, 1), received.astype(float)
        )
        for links in (rows, columns):
            other = links.src != links.dst
            call = np.full(int(other.sum()), self.part, np.int64)
            self.out.links.append(Links(call, links.src[other], links.dst[other], links.size_bytes[other]))

    def _pass(self, events: npt.NDArray[np.intp], block: IntArray, sent: IntArray, received: IntArray) -> None:
        """Add some events: `sent` are rows of observers, `received` columns of observers as far as their senders do not report."""
        k = len(self.members)
        rows, columns = block[:, :, 2 : 2 + k], block[:, :, 2 + k :]
        # both sides of what observers exchange with each other, (event, sender, receiver)
        by_sender, by_receiver = rows[:, :, self.position], columns[:, :, self.position].transpose(0, 2, 1)
        self._agree(events, by_sender, by_receiver)
        agreed = np.maximum(by_sender, by_receiver)  # unknown is -1: the side that knows wins
        full_rows, full_columns = rows.copy(), columns.copy()
        full_rows[:, :, self.position] = agreed
        full_columns[:, :, self.position] = agreed.transpose(0, 2, 1)
        sent += np.maximum(full_rows, 0).sum(axis=0)
        received[:, self.silent] += np.maximum(full_columns[:, :, self.silent], 0).sum(axis=0)
        lost, blind = self._missing(events, block[:, :, 0], full_rows, "sent")
        self.out.unattributed[self.part] += lost
        self.out.unknown_rows += blind
        self.out.unattributed_received[self.part] += self._missing(events, block[:, :, 1], full_columns, "received")[0]
        totals = np.maximum(np.maximum(block[:, :, 0], block[:, :, 1]), np.maximum(_full_sum(rows), _full_sum(columns)))
        self.out.payload_bytes[self.part] += int(np.where(totals >= 0, totals, self.trace.size_bytes[events][:, None]).sum())

    def _agree(self, events: npt.NDArray[np.intp], by_sender: IntArray, by_receiver: IntArray) -> None:
        differs = (by_sender != by_receiver) & (by_sender >= 0) & (by_receiver >= 0)
        if differs.any():
            e, i, j = (int(x[0]) for x in np.nonzero(differs))
            raise InputError(
                f"rank {self.observers[i]} says that it sent {by_sender[e, i, j]} bytes to rank {self.observers[j]}, "
                f"which says that it received {by_receiver[e, i, j]}",
                record=int(events[e]),
                field="splits",
                remedy="the captures belong to different runs, or the job was out of step",
            )

    def _missing(self, events: npt.NDArray[np.intp], totals: IntArray, cells: IntArray, what: str) -> tuple[int, int]:
        """Bytes of the totals that no known cell explains, and rows where neither is known."""
        complete = (cells >= 0).all(axis=2)
        missing = totals - np.maximum(cells, 0).sum(axis=2)
        wrong = (totals >= 0) & ((missing < 0) | (complete & (missing != 0)))
        if wrong.any():
            e, i = (int(x[0]) for x in np.nonzero(wrong))
            raise InputError(
                f"rank {self.observers[i]} {what} {totals[e, i]} bytes in total but its splits add up to {totals[e, i] - missing[e, i]}",
                record=int(events[e]),
                field="splits",
                remedy="check how the source counts elements and their width",
            )
        return int(missing[totals >= 0].sum()), int(np.count_nonzero((totals < 0) & ~complete))


def _full_sum(cells: IntArray) -> IntArray:
    """Sum of each row whose cells are all known, else -1."""
    return np.where((cells >= 0).all(axis=2), cells.sum(axis=2), -1)
