"""NVLS tree: the switch inside each node, double trees between equal positions of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, register
from commcanary_lab.traffic.node_grid import NodeGrid
from commcanary_lab.traffic.nvls import through_switch
from commcanary_lab.traffic.trees import both_ways, parents, second_parents

__all__ = ["nvls_tree"]


@register("nvls_tree", ops=("all_reduce",), needs_nodes=True)
def nvls_tree(calls: Calls) -> Links:
    """Attribute to the switches as `nvls` does, and the blocks of B / m between nodes to a double tree per position.

    Every position reduces and spreads its own block: B / (2 m) up and down on each edge of each of its two trees.

    Examples
    --------
    >>> calls = Calls("all_reduce", np.array([[0, 1, 2, 3]]), np.array([8.0]), np.ones((1, 4), bool), np.array([-1]),
    ...               nodes=np.array([[0, 0, 1, 1]]), rails=np.array([[0, 1, 0, 1]]))
    >>> links = nvls_tree(calls)
    >>> between = (links.src >= 0) & (links.dst >= 0)
    >>> sorted(set(zip(links.src[between].tolist(), links.dst[between].tolist()))), links.size_bytes[between].sum()
    ([(0, 2), (1, 3), (2, 0), (3, 1)], np.float64(16.0))
    """
    if calls.group_size == 1:
        return Links.none()
    return Links.joined(part for call in range(len(calls.members)) for part in _call(calls, call))


def _call(calls: Calls, call: int) -> Iterator[Links]:
    grid = NodeGrid.of(calls, call, "nvls_tree")
    size = float(calls.size_bytes[call])
    yield through_switch(grid, "all_reduce", size)
    for parent in (parents(grid.node_count), second_parents(grid.node_count)):
        child = np.flatnonzero(parent >= 0)
        below, above = grid.ranks[child].ravel(), grid.ranks[parent[child]].ravel()
        reports = grid.reporting[child].ravel(), grid.reporting[parent[child]].ravel()
        yield both_ways(below, above, np.full(len(below), size / (2 * grid.per_node)), reports, np.full(len(below), grid.call, np.int64))
