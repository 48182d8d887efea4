"""Match the operations of all ranks of a log to events, and order them. No clock is needed: every rank's own order is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.numbering import number_rows, positions
from commcanary_lab.trace.order import order_rows

__all__ = ["Matched", "Rows", "match"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Usable operations in the order of the log, one entry each.

    Parameters
    ----------
    comm, rank : ndarray of int64, shape (n,)
        Communicator, and global rank of the process that wrote it.
    op_count : ndarray of int64, shape (n,)
        The log's operation count.
    meaning : ndarray of int64, shape (n,)
        Code of what must agree between the ranks: operation, size, datatype, reduction, root.
    sender, receiver : ndarray of int64, shape (n,)
        Global ranks of a message; -1 for a collective.
    sends : ndarray of bool, shape (n,)
        The row was written by the sender.
    """

    comm: IntArray
    rank: IntArray
    op_count: IntArray
    meaning: IntArray
    sender: IntArray
    receiver: IntArray
    sends: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Matched:
    """Events.

    Parameters
    ----------
    event : ndarray of int64, shape (n,)
        Event of each row, numbered in the order of the trace.
    count : int
        Number of events.
    desync : ndarray of int64, shape (m, 2)
        Pairs (first row of the position, first row that disagrees with it), one per position at which ranks disagree.
    unpaired : int
        Messages that only one of two logged ends shows.
    short : ndarray of int64
        Communicators whose logged ranks show different numbers of collectives.
    forced : int
        Events placed against the order of some rank.
    """

    event: IntArray
    count: int
    desync: IntArray
    unpaired: int
    short: IntArray
    forced: int


def match(rows: Rows) -> Matched:
    """Match and order the operations.

    Collectives are matched by their order inside the communicator. The operation count decides where the order does not fit, as in
    logs that begin or end at different operations; it is no rule, for it counts messages too, and newer versions print 0 throughout.
    Ranks that disagree at one position are not merged. A message is the same on both ends.

    Parameters
    ----------
    rows : Rows
        The operations.

    Returns
    -------
    Matched
    """
    n = len(rows.comm)
    message = rows.sender >= 0
    collective = np.flatnonzero(~message)
    place, short = _places(rows, collective)
    kind = np.zeros(n, np.int64)
    nth = np.zeros(n, np.int64)
    kind[collective] = 0
    nth[collective] = place
    sent = np.flatnonzero(message)
    if len(sent):
        kind[sent] = 1
        one_end, _ = number_rows(
            rows.comm[sent], rows.sender[sent], rows.receiver[sent], rows.meaning[sent], rows.sends[sent].astype(np.int64)
        )
        nth[sent] = positions(one_end)
    event, count = number_rows(kind, rows.comm, np.where(message, rows.sender, -1), np.where(message, rows.receiver, -1), nth, rows.meaning)
    desync = _disagreements(rows, collective, place)
    unpaired = _unpaired(rows, sent, event)
    new, forced = order_rows(rows.rank, event, count)
    return Matched(new[event] if n else event, count, desync, unpaired, short, forced)


def _places(rows: Rows, at: IntArray) -> tuple[IntArray, IntArray]:
    """Position of each collective in its communicator, and the communicators whose ranks do not end alike."""
    if not len(at):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    comm, rank, meaning = rows.comm[at], rows.rank[at], rows.meaning[at]
    by_order = positions(number_rows(comm, rank)[0])
    again = positions(number_rows(comm, rank, rows.op_count[at])[0])
    by_count, _ = number_rows(rows.op_count[at], again)
    comms = int(comm.max()) + 1
    observers = np.bincount(np.unique(comm * (int(rank.max()) + 1) + rank) // (int(rank.max()) + 1), minlength=comms)
    scores = [_score(comm, place, meaning, observers, comms) for place in (by_order, by_count)]
    better = (scores[1][0] < scores[0][0]) | ((scores[1][0] == scores[0][0]) & (scores[1][1] < scores[0][1]))
    short = np.flatnonzero(np.where(better, scores[1][1], scores[0][1]) > 0)
    return np.where(better[comm], by_count, by_order), short


def _score(comm: IntArray, place: IntArray, meaning: IntArray, observers: IntArray, comms: int) -> tuple[IntArray, IntArray]:
    """Positions with more than one meaning, and positions that some logged rank does not show, per communicator."""
    position, n = number_rows(comm, place)
    of = np.zeros(n, np.int64)
    of[position] = comm
    variant, m = number_rows(position, meaning)
    first = np.zeros(m, np.int64)
    first[variant] = position
    mixed = np.bincount(first, minlength=n) > 1
    missing = np.bincount(position, minlength=n) < observers[of]
    return np.bincount(of[mixed], minlength=comms), np.bincount(of[missing], minlength=comms)


def _disagreements(rows: Rows, at: IntArray, place: IntArray) -> IntArray:
    if not len(at):
        return np.zeros((0, 2), np.int64)
    position, n = number_rows(rows.comm[at], place)
    order = np.lexsort((np.arange(len(at)), position))
    first = np.full(n, -1, np.int64)
    first[position[order[::-1]]] = order[::-1]  # the last write is the first row
    other = rows.meaning[at] != rows.meaning[at][first[position]]
    if not other.any():
        return np.zeros((0, 2), np.int64)
    bad = np.flatnonzero(other)
    _, unique = np.unique(position[bad], return_index=True)
    bad = np.sort(bad[unique])
    return np.stack([at[first[position[bad]]], at[bad]], axis=1)


def _unpaired(rows: Rows, sent: IntArray, event: IntArray) -> int:
    """Messages whose other end is a rank of the log that does not show them."""
    if not len(sent):
        return 0
    here = np.unique(rows.rank)
    ends, n = number_rows(event[sent])
    seen = np.bincount(ends, minlength=n)
    other = np.where(rows.sends[sent], rows.receiver[sent], rows.sender[sent])
    return int(np.count_nonzero((seen[ends] == 1) & np.isin(other, here)))
