"""Traffic between nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commcanary_lab.errors import UsageError
from commcanary_lab.traffic.cells import Cells, FloatArray, IntArray, Link, canonical, ranked

__all__ = ["NodeMatrix"]


@dataclass(frozen=True, eq=False)
class NodeMatrix:
    """Bytes between nodes; unlike in M the diagonal counts: it is the traffic inside each node.

    Parameters
    ----------
    gpus_per_node : int
        Global rank r is on node ``r // gpus_per_node``.
    nodes : ndarray of int64, shape (n,)
        Node numbers, ascending.
    cells : Cells
        Cells between nodes, the diagonal included.
    """

    gpus_per_node: int
    nodes: IntArray
    cells: Cells

    @classmethod
    def of(cls, ranks: IntArray, cells: Cells, gpus_per_node: int) -> NodeMatrix:
        """Sum cells between ranks to cells between nodes.

        Raises
        ------
        UsageError
            If `gpus_per_node` is not positive.

        Examples
        --------
        >>> m = NodeMatrix.of(np.arange(4), Cells(np.array([0, 1]), np.array([1, 3]), np.array([5.0, 7.0])), 2)
        >>> m.intra_bytes, m.inter_bytes, m.dense().tolist()
        (5.0, 7.0, [[5.0, 7.0], [0.0, 0.0]])
        """
        if gpus_per_node < 1:
            raise UsageError(f"{gpus_per_node} GPUs per node is not a positive number", remedy="give 1 or more")
        src, dst = cells.src // gpus_per_node, cells.dst // gpus_per_node
        _, summed = canonical(np.zeros(len(src), np.int64), src, dst, cells.size_bytes)
        return cls(gpus_per_node, np.unique(ranks // gpus_per_node), summed)

    @property
    def intra_bytes(self) -> float:
        """Bytes that stay inside a node."""
        return float(self.cells.size_bytes[self.cells.src == self.cells.dst].sum())

    @property
    def inter_bytes(self) -> float:
        """Bytes that cross nodes."""
        return float(self.cells.size_bytes[self.cells.src != self.cells.dst].sum())

    def links(self, top: int | None = None) -> list[Link]:
        """Return the traffic between nodes, and inside them, by bytes."""
        return ranked(self.cells, top)

    def dense(self) -> FloatArray:
        """Return the matrix, shape (n, n)."""
        return self.cells.dense(self.nodes)
