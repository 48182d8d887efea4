"""The operations of a log as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.nccl_log_comms import Communicators
from commcanary_lab.importers.nccl_log_lines import LogReader
from commcanary_lab.importers.nccl_log_match import IntArray
from commcanary_lab.importers.nccl_log_ops import MESSAGES, Meaning, meaning

__all__ = ["Table"]


@dataclass(frozen=True, eq=False)
class Table:
    """The operations of a log as columns, one entry each, in the order of the log.

    Parameters
    ----------
    lines : LogReader
        The lines that they come from.
    comms : Communicators
        Communicators.
    meanings : tuple of Meaning
        Of each distinct call.
    instance, call, comm : ndarray of int64, shape (n,)
        Handle, call and communicator.
    group_rank, nranks : ndarray of int64, shape (n,)
        Rank in the communicator (-1 where unknown), and its size.
    peer : ndarray of int64, shape (n,)
        Rank of the peer or the root in the communicator; -1 where there is none.
    message, sends : ndarray of bool, shape (n,)
        Messages, and which of them send.
    """

    lines: LogReader
    comms: Communicators
    meanings: tuple[Meaning, ...]
    instance: IntArray
    call: IntArray
    comm: IntArray
    group_rank: IntArray
    nranks: IntArray
    peer: IntArray
    message: npt.NDArray[np.bool_]
    sends: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, lines: LogReader, comms: Communicators) -> Table:
        """Make the table."""
        instance = np.array(lines.rows_instance, np.int64)
        call = np.array(lines.rows_call, np.int64)
        meanings = tuple(meaning(c) for c in lines.calls)
        message = np.array([c.op in MESSAGES for c in lines.calls], np.bool_)
        sends = np.array([c.op == "Send" for c in lines.calls], np.bool_)
        peer = np.array([c.root if m.rooted else -1 for c, m in zip(lines.calls, meanings, strict=True)], np.int64)
        sizes = np.array([i.nranks for i in lines.instances], np.int64)
        comm, rank = np.array(comms.of_instance, np.int64)[instance], np.array(comms.rank_of_instance, np.int64)[instance]
        return cls(lines, comms, meanings, instance, call, comm, rank, sizes[instance], peer[call], message[call], sends[call])

    def size_bytes(self, rows: IntArray) -> IntArray:
        """B of each row."""
        part = np.array([m.part_bytes for m in self.meanings], np.int64)
        scaled = np.array([m.per_rank for m in self.meanings], np.bool_)
        call = self.call[rows]
        return part[call] * np.where(scaled[call], self.nranks[rows], 1)
