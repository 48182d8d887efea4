"""Hierarchical: rings inside nodes, and rings between equal positions of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, register
from commcanary_lab.traffic.node_grid import NodeGrid, send

__all__ = ["hierarchical", "hierarchical_passes"]

#: Passes over the buffer; an all_reduce reduces and gathers.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
_ROOTED = ("broadcast", "reduce")


@register("hierarchical", ops=(*_PASSES, *_ROOTED), rooted=_ROOTED, needs_nodes=True)
def hierarchical(calls: Calls) -> Links:
    """Attribute to rings inside nodes and rings between the members at equal positions, with n nodes of m members each, k = n m.

    An all_reduce is a reduce-scatter inside each node ((m - 1) / m * B per rank), an all-reduce of the remaining B / m between equal
    positions of the nodes (2 (n - 1) / n * B / m), and an all-gather inside. Reduce_scatter and all_gather are halves of it. A broadcast
    goes along a chain of the nodes at the root's position, then along a chain inside each node; a reduce takes the way back. Sums are
    those of `ring` and `chain`. Positions are in order of rails: where every node holds the same rails, what crosses nodes stays on its
    rail.

    Examples
    --------
    >>> calls = Calls("all_reduce", np.array([[0, 1, 2, 3]]), np.array([8.0]), np.ones((1, 4), bool), np.array([-1]),
    ...               nodes=np.array([[0, 0, 1, 1]]), rails=np.array([[0, 1, 0, 1]]))
    >>> links = hierarchical(calls)
    >>> sorted(zip(links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()))[:3]
    [(0, 1, 8.0), (0, 2, 4.0), (1, 0, 8.0)]
    """
    if calls.group_size == 1:
        return Links.none()
    one = _chains if calls.op in _ROOTED else _rings
    return Links.joined(part for call in range(len(calls.members)) for part in one(calls, call))


def hierarchical_passes(op: str) -> int:
    """Return how often an operation passes over the buffer: 2 for all_reduce, 1 for its halves."""
    return _PASSES[op]


def _rings(calls: Calls, call: int) -> Iterator[Links]:
    grid = NodeGrid.of(calls, call, "hierarchical")
    n, m = grid.node_count, grid.per_node
    size = float(calls.size_bytes[call]) * _PASSES[calls.op]
    yield grid.ring_inside(size * (m - 1) / m)
    yield grid.ring_between(size * (n - 1) / (n * m))


def _chains(calls: Calls, call: int) -> Iterator[Links]:
    """B on every edge of a tree: a chain of nodes at the root's position, and a chain inside each node that begins there."""
    grid = NodeGrid.of(calls, call, "hierarchical")
    root = calls.members[call, calls.root[call]]
    row, column = (int(x[0]) for x in np.nonzero(grid.ranks == root))
    ranks = np.roll(grid.ranks, (-row, -column), (0, 1))
    reporting = np.roll(grid.reporting, (-row, -column), (0, 1))
    size = float(calls.size_bytes[call])
    for away, towards, reports in (
        (ranks[:-1, 0], ranks[1:, 0], (reporting[:-1, 0], reporting[1:, 0])),
        (ranks[:, :-1].ravel(), ranks[:, 1:].ravel(), (reporting[:, :-1].ravel(), reporting[:, 1:].ravel())),
    ):
        if calls.op == "broadcast":
            yield send(call, away, towards, size, reports[0])
        else:
            yield send(call, towards, away, size, reports[1])
