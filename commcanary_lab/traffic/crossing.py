"""Traffic between nodes: what stays on its rail, what crosses rails, and what PXN moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commcanary_lab.traffic.attribution import BoolArray, IntArray
from commcanary_lab.traffic.cells import Cells, between_ranks
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.placement import Placement

__all__ = ["Crossing"]


@dataclass(frozen=True, eq=False)
class Crossing:
    """Bytes of M by where they travel.

    Parameters
    ----------
    intra_node_bytes : float
        Inside nodes.
    on_rail_bytes : float
        Between GPUs of equal index on different nodes.
    cross_rail_bytes : float
        Between GPUs of different index on different nodes.
    pxn_bytes : float
        Cross-rail bytes that PXN hands to the GPU on the destination's rail inside the sending node, so that they stay on that rail.
    nic_egress_bytes, nic_ingress_bytes : float
        Of the busiest network card (one per GPU).
    """

    intra_node_bytes: float
    on_rail_bytes: float
    cross_rail_bytes: float
    pxn_bytes: float
    nic_egress_bytes: float
    nic_ingress_bytes: float

    @classmethod
    def of(cls, m: TrafficMatrix, placement: Placement, *, pxn: bool = False) -> Crossing:
        """Sort the bytes of a matrix.

        Parameters
        ----------
        m : TrafficMatrix
            The matrix.
        placement : Placement
            Ranks on nodes.
        pxn : bool
            Whether messages cross to the destination's rail inside the sending node, where a member of their group is on it.

        Examples
        --------
        >>> import commcanary_lab as lab
        >>> found = Crossing.of(lab.traffic(lab.samples.tp8_decode()), Placement(4))
        >>> found.inter_node_bytes == found.cross_rail_bytes > 0  # a ring in group order: 3 -> 4 and 7 -> 0
        True
        """
        ranks = between_ranks(m.part_cells)
        cells, part = m.part_cells.where(ranks), m.part[ranks]
        src_node, dst_node = placement.nodes(cells.src), placement.nodes(cells.dst)
        src_rail, dst_rail = placement.rails(cells.src), placement.rails(cells.dst)
        inter = src_node != dst_node
        cross = inter & (src_rail != dst_rail)
        card = src_node * placement.gpus_per_node + dst_rail  # where a message leaves its node under PXN
        moved = cross & _has_proxy(m, placement, part, card, cross) if pxn else np.zeros(len(cells), np.bool_)
        leaves = np.where(moved, card, placement.positions(cells.src))

        def total(mask: BoolArray) -> float:
            return float(cells.size_bytes[mask].sum())

        return cls(
            total(~inter), total(inter & ~cross), total(cross), total(moved), _busiest(leaves, cells, inter),
            _busiest(placement.positions(cells.dst), cells, inter),
        )  # fmt: skip

    @property
    def inter_node_bytes(self) -> float:
        """Bytes between nodes."""
        return self.on_rail_bytes + self.cross_rail_bytes

    @property
    def spine_bytes(self) -> float:
        """Bytes that a rail-optimised network carries over its spine."""
        return self.cross_rail_bytes - self.pxn_bytes

    @property
    def spine_share(self) -> float:
        """Spine bytes over inter-node bytes; 0 where nothing crosses nodes."""
        return self.spine_bytes / self.inter_node_bytes if self.inter_node_bytes else 0.0


def _has_proxy(m: TrafficMatrix, placement: Placement, part: IntArray, card: IntArray, cross: BoolArray) -> BoolArray:
    """Whether the group of each cell has a member on the card."""
    parts = np.unique(part[cross]).tolist()
    if not parts:
        return cross
    members = [np.array(m.parts[p].group.members, np.int64) for p in parts]
    slots = placement.positions(np.concatenate(members))
    span = int(max(slots.max(), card.max())) + 1
    owned = np.repeat(np.array(parts, np.int64), [len(x) for x in members]) * span + slots
    return np.isin(part * span + card, owned)


def _busiest(slots: IntArray, cells: Cells, inter: BoolArray) -> float:
    if not inter.any():
        return 0.0
    _, code = np.unique(slots[inter], return_inverse=True)
    return float(np.bincount(code, weights=cells.size_bytes[inter]).max())
