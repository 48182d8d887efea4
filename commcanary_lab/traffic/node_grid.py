"""Members of a call by node: what algorithms with a part inside nodes and a part between them share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.trace.groups import ranks_text
from commcanary_lab.traffic.attribution import BoolArray, Calls, IntArray, Links

__all__ = ["NodeGrid", "by_node", "send"]


@dataclass(frozen=True, eq=False)
class NodeGrid:
    """Members of one call, by node and by position in the node (in order of rails).

    Parameters
    ----------
    call : int
        Row of `Calls`.
    ranks : ndarray of int64, shape (n, m)
        Global ranks: n nodes with m members each, nodes in ascending order.
    reporting : ndarray of bool, shape (n, m)
        Whether each reports.
    nodes : ndarray of int64, shape (n,)
        Node numbers.
    """

    call: int
    ranks: IntArray
    reporting: BoolArray
    nodes: IntArray

    @classmethod
    def of(cls, calls: Calls, call: int, algorithm: str) -> NodeGrid:
        """Arrange the members of a call.

        Raises
        ------
        UsageError
            If nobody said which ranks share a node.
        RefusedError
            If the nodes hold different numbers of members: the algorithm has no definition there.
        """
        rows = by_node(calls, call, algorithm)
        nodes = node_numbers(calls, call)
        counts = {len(row) for row in rows}
        if len(counts) > 1:
            group = ranks_text(tuple(np.sort(calls.members[call]).tolist()))
            uneven = ", ".join(f"{len(row)} on node {node}" for row, node in zip(rows[:4], nodes[:4].tolist(), strict=True))
            raise RefusedError(
                f"{algorithm} needs as many ranks of a group on every node; {group} has {uneven}{', ...' if len(rows) > 4 else ''}",
                remedy="choose ring, tree or nccl_tree for this operation",
            )
        grid = np.stack(rows)
        return cls(call, calls.members[call][grid], calls.reporting[call][grid], nodes)

    @property
    def node_count(self) -> int:
        """n."""
        return self.ranks.shape[0]

    @property
    def per_node(self) -> int:
        """m."""
        return self.ranks.shape[1]

    def ring_inside(self, size_bytes: float) -> Links:
        """Every member sends `size_bytes` to the next one of its node."""
        return (
            send(self.call, self.ranks, np.roll(self.ranks, -1, axis=1), size_bytes, self.reporting) if self.per_node > 1 else Links.none()
        )

    def ring_between(self, size_bytes: float) -> Links:
        """Every member sends `size_bytes` to the member at its position on the next node."""
        return (
            send(self.call, self.ranks, np.roll(self.ranks, -1, axis=0), size_bytes, self.reporting)
            if self.node_count > 1
            else Links.none()
        )


def send(call: int, src: IntArray, dst: IntArray, size_bytes: float, kept: BoolArray) -> Links:
    """Return contributions of equal size from arrays of one shape, where `kept`."""
    src, dst = src[kept], dst[kept]
    return Links(np.full(len(src), call, np.int64), src, dst, np.full(len(src), size_bytes))


def by_node(calls: Calls, call: int, algorithm: str) -> list[npt.NDArray[np.intp]]:
    """Return the positions of the members on each node, in order of nodes and of rails.

    Raises
    ------
    UsageError
        If nobody said which ranks share a node.
    """
    if calls.nodes is None or calls.rails is None:
        raise UsageError(
            f"the algorithm {algorithm!r} needs to know which ranks share a node", remedy="give gpus_per_node, or a layout that has it"
        )
    nodes = calls.nodes[call]
    order = np.lexsort((calls.members[call], calls.rails[call], nodes))
    return np.split(order, np.flatnonzero(np.diff(nodes[order])) + 1)


def node_numbers(calls: Calls, call: int) -> IntArray:
    """Return the nodes that hold members of a call, ascending."""
    return np.unique(calls.nodes[call]) if calls.nodes is not None else np.zeros(0, np.int64)
