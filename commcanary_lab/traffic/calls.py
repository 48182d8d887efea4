"""The calls behind a traffic matrix: B summed over events that are attributed alike, and their attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.inspect.grouping import group_by
from commcanary_lab.traffic.attribution import Algorithm, BoolArray, Calls, IntArray, Links, algorithms
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.parts import Part
from commcanary_lab.traffic.placement import Placement

__all__ = ["CallTable", "attribute"]


@dataclass(frozen=True, eq=False)
class CallTable:
    """Calls of collectives, enough to attribute them again under another algorithm, ring order or placement.

    Parameters
    ----------
    part : ndarray of int64, shape (n,)
        Part of the matrix that each call belongs to.
    size_bytes : ndarray of int64, shape (n,)
        B, summed over the events of the call.
    root : ndarray of int64, shape (n,)
        Global rank of the root, -1 where the operation has none.
    observers : ndarray of int64, shape (n,)
        Index into `rank_sets` of the ranks that report the call, -1 when all members do.
    rank_sets : tuple of tuple of int
        Sets of reporting ranks.
    algorithm : ndarray of int64, shape (n,)
        Index into `algorithms` of what attributes each call.
    algorithms : tuple of str
        Names of algorithms.
    """

    part: IntArray
    size_bytes: IntArray
    root: IntArray
    observers: IntArray
    rank_sets: tuple[tuple[int, ...], ...]
    algorithm: IntArray
    algorithms: tuple[str, ...]

    @classmethod
    def none(cls) -> CallTable:
        """No call."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, empty, (), empty, ())

    def __len__(self) -> int:
        return len(self.part)

    def remapped(self, new: IntArray) -> CallTable:
        """Renumber the parts; calls whose part becomes negative are left out.

        Parameters
        ----------
        new : ndarray of int64
            New number of each part.
        """
        part = new[self.part]
        kept = part >= 0
        size, root, observers, algorithm = (x[kept] for x in (self.size_bytes, self.root, self.observers, self.algorithm))
        return CallTable(part[kept], size, root, observers, self.rank_sets, algorithm, self.algorithms)

    def __add__(self, other: CallTable) -> CallTable:
        """Put the calls of another table behind; both number the same parts."""
        moved = np.where(other.observers >= 0, other.observers + len(self.rank_sets), -1)
        part, size, root = (np.concatenate([getattr(x, f) for x in (self, other)]) for f in ("part", "size_bytes", "root"))
        names = tuple(dict.fromkeys((*self.algorithms, *other.algorithms)))
        algorithm = np.concatenate([np.array([names.index(n) for n in x.algorithms], np.int64)[x.algorithm] for x in (self, other)])
        observers, rank_sets = np.concatenate([self.observers, moved]), (*self.rank_sets, *other.rank_sets)
        return CallTable(part, size, root, observers, rank_sets, algorithm, names)

    def used(self, parts: Sequence[Part]) -> set[tuple[str, str]]:
        """Return the pairs of operation and algorithm that occur."""
        pairs = np.unique(np.stack([self.part, self.algorithm]), axis=1).T.tolist() if len(self) else []
        return {(parts[part].op, self.algorithms[code]) for part, code in pairs}


def attribute(parts: Sequence[Part], table: CallTable, order: RingOrder, placement: Placement | None) -> Links:
    """Attribute calls to links, all groups of one size, operation and algorithm together; `call` of the result is the part.

    Raises
    ------
    UsageError
        If an algorithm needs nodes and there is no placement.
    RefusedError
        If an algorithm is not defined for the way a group lies on its nodes.
    """
    if not len(table):
        return Links.none()
    names = sorted({p.op for p in parts})
    op = np.array([names.index(p.op) for p in parts], np.int64)[table.part]
    sizes = np.array([p.group.size for p in parts], np.int64)[table.part]
    batch = group_by(op, sizes, table.algorithm)
    by_batch, starts = np.argsort(batch.codes, kind="stable"), np.concatenate([[0], np.cumsum(batch.sizes)])
    known = algorithms()
    out = []
    for b in range(batch.count):
        rows = by_batch[starts[b] : starts[b + 1]]
        algorithm = known[table.algorithms[table.algorithm[rows[0]]]]
        links = algorithm.attribute(_calls(parts, table, rows, algorithm, order, placement))
        out.append(Links(table.part[rows][links.call], links.src, links.dst, links.size_bytes))
    return Links.joined(out)


def _calls(
    parts: Sequence[Part],
    table: CallTable,
    rows: npt.NDArray[np.intp],
    algorithm: Algorithm,
    order: RingOrder,
    placement: Placement | None,
) -> Calls:
    picked = [parts[p] for p in table.part[rows].tolist()]
    members = np.array([order.members(p.group) for p in picked], np.int64)
    root = table.root[rows]
    position = np.where(root >= 0, np.argmax(members == root[:, None], axis=1), -1)
    nodes = rails = None
    if placement is not None and algorithm.needs_nodes:
        nodes, rails = placement.nodes(members), placement.rails(members)
    return Calls(picked[0].op, members, table.size_bytes[rows].astype(np.float64), _reporting(table, rows, members), position, nodes, rails)


def _reporting(table: CallTable, rows: npt.NDArray[np.intp], members: IntArray) -> BoolArray:
    reporting = np.ones(members.shape, np.bool_)
    observers = table.observers[rows]
    for i in np.flatnonzero(observers >= 0).tolist():
        reporting[i] = np.isin(members[i], table.rank_sets[observers[i]])
    return reporting
