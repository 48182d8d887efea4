"""NCCL's tree: a chain inside each node, double trees between nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from commcanary_lab.traffic.attribution import Calls, IntArray, Links, check_links, register
from commcanary_lab.traffic.node_grid import by_node
from commcanary_lab.traffic.trees import both_ways, parents, second_parents

__all__ = ["nccl_tree"]


@register("nccl_tree", ops=("all_reduce",), needs_nodes=True)
def nccl_tree(calls: Calls) -> Links:
    """Attribute to chains inside nodes and to double trees between them, 2 (k - 1) B in all.

    There are as many channels as the fullest node has members, each with an equal share of B. On channel c the chain of a node begins at
    its member c (in order of rails) and that member takes part in the trees between nodes, which carry half of the channel each. So every
    rail gets its share, as NCCL spreads its channels over the network cards of a node. Which card a channel really uses depends on the
    topology that NCCL finds: this is a model of it.

    Examples
    --------
    >>> calls = Calls("all_reduce", np.array([[0, 1, 2, 3]]), np.array([8.0]), np.ones((1, 4), bool), np.array([-1]),
    ...               nodes=np.array([[0, 0, 1, 1]]), rails=np.array([[0, 1, 0, 1]]))
    >>> links = nccl_tree(calls)
    >>> between = {(s, d) for s, d in zip(links.src.tolist(), links.dst.tolist()) if s // 2 != d // 2}
    >>> float(links.size_bytes.sum()) == 2 * (4 - 1) * 8, sorted(between)
    (True, [(0, 2), (1, 3), (2, 0), (3, 1)])
    """
    if calls.group_size == 1:
        return Links.none()
    return Links.joined(part for call in range(len(calls.members)) for part in _call(calls, call))


def _call(calls: Calls, call: int) -> Iterator[Links]:
    rows = by_node(calls, call, "nccl_tree")
    channels = max(len(row) for row in rows)
    check_links(calls.op, 2 * channels * calls.group_size)
    share = float(calls.size_bytes[call]) / channels
    above = parents(len(rows)), second_parents(len(rows))
    for channel in range(channels):
        chains = [np.roll(row, -(channel % len(row))) for row in rows]
        heads = np.array([chain[0] for chain in chains])
        inner = np.concatenate([chain[1:] for chain in chains])
        outer = np.concatenate([chain[:-1] for chain in chains])
        yield _edges(calls, call, inner, outer, share)
        for parent in above:
            child = np.flatnonzero(parent >= 0)
            yield _edges(calls, call, heads[child], heads[parent[child]], share / 2)


def _edges(
    calls: Calls, call: int, child: npt.NDArray[np.intp] | IntArray, parent: npt.NDArray[np.intp] | IntArray, size_bytes: float
) -> Links:
    members, reporting = calls.members[call], calls.reporting[call]
    return both_ways(members[child], members[parent], np.full(len(child), size_bytes), (reporting[child], reporting[parent]),
                     np.full(len(child), call, np.int64))  # fmt: skip
