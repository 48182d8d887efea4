"""The verdict on a fabric: figures per ring order, the verdict over them, and what it does not say."""

from __future__ import annotations

import math
from dataclasses import dataclass

from commcanary_lab._shown import Shown
from commcanary_lab.inspect.html import table_html
from commcanary_lab.trace import ImportCoverage
from commcanary_lab.traffic.crossing import Crossing
from commcanary_lab.traffic.moe import MoeWhatIf
from commcanary_lab.units import format_bytes

__all__ = ["DEPENDS", "SATURATES", "VIABLE", "FabricVerdict", "OrderVerdict", "Utilisation", "congestion", "judged"]

VIABLE = "viable"
SATURATES = "saturates"
DEPENDS = "depends on ring order"


@dataclass(frozen=True)
class OrderVerdict:
    """The verdict for one order of the rings.

    Parameters
    ----------
    order : {"group", "rail_aligned", "hierarchical", "stated"}
        Group order; all nodes on one rail, then the next; rings inside and between nodes; or what the source or the user states.
    crossing : Crossing or None
        Where the bytes travel; None where the order does not exist for this job.
    spine_fraction : float
        Bandwidth of the spine over that of a fat tree.
    reason : str or None
        Why there is no verdict.
    """

    order: str
    crossing: Crossing | None
    spine_fraction: float
    reason: str | None = None

    @property
    def cross_rail_fraction(self) -> float:
        """Share of the inter-node bytes that needs the spine; NaN where unknown."""
        return math.nan if self.crossing is None else self.crossing.spine_share

    @property
    def fat_tree_congestion(self) -> float:
        """Cross-rail fraction over the spine of a fat tree, which is 1."""
        return self.cross_rail_fraction

    @property
    def rail_congestion(self) -> float:
        """Cross-rail fraction over the spine fraction; saturated above 1."""
        return congestion(self.cross_rail_fraction, self.spine_fraction)

    @property
    def verdict(self) -> str | None:
        """``viable`` or ``saturates``."""
        return None if self.crossing is None else judged(self.rail_congestion)


@dataclass(frozen=True)
class Utilisation:
    """The absolute form: bytes over what links can carry in the time.

    Parameters
    ----------
    link_gb_s : float
        Capacity of the network card of one GPU, 1e9 bytes per second, each direction.
    step_time_s : float
        Time in which the bytes of M travel.
    nic : float
        Of the busiest network card.
    rail_spine, fat_tree_spine : float
        Of the spine, whose capacity is its fraction of the sum of all cards; infinite without a spine.
    """

    link_gb_s: float
    step_time_s: float
    nic: float
    rail_spine: float
    fat_tree_spine: float


@dataclass(frozen=True)
class FabricVerdict(Shown):
    """Rail-optimised network against fat tree.

    Parameters
    ----------
    gpus_per_node, nodes : int
        The job's shape.
    spine_fraction : float
        Bandwidth of the spine of the rail-optimised network over that of a fat tree; also its cost, relative to the fat tree's.
    pxn : bool
        Whether PXN was counted.
    by_order : tuple of OrderVerdict
        The verdict per order of rings.
    own : OrderVerdict
        For M as it was given: in the stated order where there is one, otherwise in group order.
    ordered : bool
        Whether any traffic depends on the order at all.
    moe : MoeWhatIf or None
        The same inter-node volume as an expert exchange; None on a single node.
    utilisation : Utilisation or None
        Where link capacity and step time were given.
    source, algorithm, ring_order, origin : str
        Where M comes from.
    coverage : ImportCoverage
        What was read and used.
    limits : tuple of str
        What the verdict does not say; to be shown beside it.
    notes : tuple of str
        Notes of M.
    """

    gpus_per_node: int
    nodes: int
    spine_fraction: float
    pxn: bool
    by_order: tuple[OrderVerdict, ...]
    own: OrderVerdict
    ordered: bool
    moe: MoeWhatIf | None
    utilisation: Utilisation | None
    source: str
    algorithm: str
    ring_order: str
    origin: str
    coverage: ImportCoverage
    limits: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """``viable``, ``saturates``, or ``depends on ring order`` where that is assumed and the orders disagree."""
        found = {v.verdict for v in self.by_order if v.verdict is not None}
        if self.ring_order != "stated" and len(found) > 1:
            return DEPENDS
        return self.own.verdict or VIABLE

    @property
    def crossing(self) -> Crossing:
        """Where the bytes of M travel as it was given."""
        assert self.own.crossing is not None
        return self.own.crossing

    @property
    def inter_node_bytes(self) -> float:
        """Bytes between nodes."""
        return self.crossing.inter_node_bytes

    @property
    def on_rail_bytes(self) -> float:
        """Of these, between GPUs of equal index."""
        return self.crossing.on_rail_bytes

    @property
    def cross_rail_fraction(self) -> float:
        """Share of the inter-node bytes that needs the spine."""
        return self.own.cross_rail_fraction

    @property
    def fat_tree_congestion(self) -> float:
        """Congestion of a fat tree's spine."""
        return self.own.fat_tree_congestion

    @property
    def rail_congestion(self) -> float:
        """Congestion of the rail-optimised network's spine; saturated above 1."""
        return self.own.rail_congestion

    @property
    def break_even_spine(self) -> float:
        """The smallest spine fraction that does not saturate: the cross-rail fraction."""
        return self.cross_rail_fraction

    @property
    def relative_cost(self) -> float:
        """Cost of the spine relative to the fat tree's."""
        return self.spine_fraction

    @property
    def moe_fat_tree_congestion(self) -> float:
        """Congestion of a fat tree under the expert exchange; NaN on a single node."""
        return math.nan if self.moe is None else self.moe.cross_rail_fraction

    @property
    def moe_rail_congestion(self) -> float:
        """Congestion of the rail-optimised network under the expert exchange."""
        return congestion(self.moe_fat_tree_congestion, self.spine_fraction)

    @property
    def moe_verdict(self) -> str | None:
        """``viable`` or ``saturates`` under the expert exchange; None on a single node."""
        return None if self.moe is None else judged(self.moe_rail_congestion)

    def _repr_html_(self) -> str:
        title = (
            f"Rail-optimised, spine {self.spine_fraction:g}: {self.verdict} ({self.origin}: {self.algorithm}, ring order {self.ring_order})"
        )
        rows = [(v.order.replace("_", "-"), v.verdict or v.reason or "", *figures(v)) for v in self.by_order]
        headers = ["ring order", "verdict", "inter-node", "cross-rail", "congestion"]
        return table_html(title, headers, rows, len(rows), (*self.limits, *self.notes))


def figures(v: OrderVerdict) -> tuple[str, str, str]:
    """Return inter-node bytes, cross-rail fraction and congestion of a verdict as text; empty where there is none."""
    if v.crossing is None:
        return "", "", ""
    return format_bytes(v.crossing.inter_node_bytes), f"{v.cross_rail_fraction:.2f}", f"{v.rail_congestion:.2f}"


def congestion(cross_rail_fraction: float, spine_fraction: float) -> float:
    """Return the cross-rail fraction over the spine fraction; without a spine nothing may cross.

    Examples
    --------
    >>> congestion(0.75, 0.1), congestion(0.0, 0.0), congestion(0.1, 0.0)
    (7.5, 0.0, inf)
    """
    if cross_rail_fraction == 0:
        return 0.0
    return cross_rail_fraction / spine_fraction if spine_fraction else math.inf


def judged(value: float) -> str:
    """Return the verdict on a congestion."""
    return VIABLE if value <= 1 else SATURATES
