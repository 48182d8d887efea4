"""NVLS: the switch of a node reduces and multicasts; there is no peer inside the node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, register, switch_of
from commcanary_lab.traffic.hierarchical import hierarchical_passes
from commcanary_lab.traffic.node_grid import NodeGrid, send

__all__ = ["nvls", "through_switch"]


@register("nvls", ops=("all_reduce", "all_gather", "reduce_scatter"), needs_nodes=True)
def nvls(calls: Calls) -> Links:
    """Attribute to the switch of each node (its NVSwitch domain), and to rings between equal positions of the nodes.

    With m members on a node, each owns a block of B / m. Reduce_scatter: the switch reads B from every member, reduces, and hands each
    its block of B / m. All_gather: every member writes its block of B / m to the switch, which multicasts all m blocks, B, to every
    member, its own block included. All_reduce: both, (1 + 1 / m) * B in each direction and per member, against 2 (m - 1) / m * B in a
    ring (Ishii and Wells, "The NVLink-Network Switch", Hot Chips 34, 2022: N + 1 instead of 2 N). Between n nodes, blocks travel as in
    `hierarchical`. What passes a switch is no traffic between ranks: it stands beside M, never in it.

    Examples
    --------
    >>> calls = Calls("all_reduce", np.array([[0, 1]]), np.array([8.0]), np.ones((1, 2), bool), np.array([-1]),
    ...               nodes=np.array([[3, 3]]), rails=np.array([[0, 1]]))
    >>> links = nvls(calls)
    >>> sorted(zip(links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()))
    [(-4, 0, 12.0), (-4, 1, 12.0), (0, -4, 12.0), (1, -4, 12.0)]
    """
    if calls.group_size == 1:
        return Links.none()
    return Links.joined(part for call in range(len(calls.members)) for part in _call(calls, call))


def _call(calls: Calls, call: int) -> Iterator[Links]:
    grid = NodeGrid.of(calls, call, "nvls")
    n, m = grid.node_count, grid.per_node
    size = float(calls.size_bytes[call])
    yield through_switch(grid, calls.op, size)
    yield grid.ring_between(hierarchical_passes(calls.op) * size * (n - 1) / (n * m))


def through_switch(grid: NodeGrid, op: str, size_bytes: float) -> Links:
    """Return what passes the switches: what reporting members send to them, and what those send to reporting members."""
    m = grid.per_node
    if m == 1:
        return Links.none()
    whole, block = size_bytes, size_bytes / m
    up, down = {"all_reduce": (whole + block, whole + block), "reduce_scatter": (whole, block), "all_gather": (block, whole)}[op]
    switch = np.broadcast_to(switch_of(grid.nodes)[:, None], grid.ranks.shape)
    return Links.joined(
        [send(grid.call, grid.ranks, switch, up, grid.reporting), send(grid.call, switch, grid.ranks, down, grid.reporting)]
    )
