"""Records of all ranks as columns: what `records.Record` is, for sources with millions of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.groups import ProcessGroup

__all__ = ["RecordColumns"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RecordColumns:
    """One row per record; the rows of a rank are in the order of its source.

    Parameters
    ----------
    rank : ndarray of int64, shape (n,)
        Global rank whose source it is; a member of the communicator, and one of the two ends of a message.
    communicator : ndarray of int64, shape (n,)
        Index into `communicators`. Two communicators may have the same name and members.
    op : ndarray of int64, shape (n,)
        Index into `ops`.
    size_bytes : ndarray of int64, shape (n,)
        B.
    sequence : ndarray of int64, shape (n,)
        The communicator's own count of the collective; not looked at for messages.
    sender, receiver : ndarray of int64, shape (n,)
        Global ranks of a message's ends, -1 for a collective.
    start_ns, duration_ns : ndarray of int64, shape (n,)
        Start on this rank's clock, and measured time; -1 where unknown.
    communicators : tuple of ProcessGroup
        Names and members.
    ops : tuple of str
        Canonical operations; a message's is ``point_to_point``.
    custom : frozenset of str
        Which of `ops` are outside of the vocabulary.
    sequence_per_op : bool
        True where the communicator counts every operation for itself.
    """

    rank: IntArray
    communicator: IntArray
    op: IntArray
    size_bytes: IntArray
    sequence: IntArray
    sender: IntArray
    receiver: IntArray
    start_ns: IntArray
    duration_ns: IntArray
    communicators: tuple[ProcessGroup, ...]
    ops: tuple[str, ...]
    custom: frozenset[str] = frozenset()
    sequence_per_op: bool = False

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def message(self) -> npt.NDArray[np.bool_]:
        """True for messages, shape (n,)."""
        return self.sender >= 0

    def take(self, rows: npt.NDArray[np.intp]) -> RecordColumns:
        """Return some rows."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        changes: dict[str, Any] = {name: a[rows] for name, a in arrays.items() if isinstance(a, np.ndarray)}
        return replace(self, **changes)

    def by_rank(self) -> RecordColumns:
        """Return the rows with the ranks in ascending order.

        Examples
        --------
        >>> one = np.zeros(2, np.int64)
        >>> r = RecordColumns(np.array([1, 0]), one, one, np.array([8, 4]), one, one - 1, one - 1, one, one, (), ())
        >>> r.by_rank().size_bytes.tolist()
        [4, 8]
        """
        if np.all(self.rank[1:] >= self.rank[:-1]):
            return self
        return self.take(np.argsort(self.rank, kind="stable"))
