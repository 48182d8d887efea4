"""Fabric: is a rail-optimised network enough for this traffic, or does it need a fat tree?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.layout import Layout
from commcanary_lab.trace import Trace
from commcanary_lab.traffic.attribution import algorithms
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.crossing import Crossing
from commcanary_lab.traffic.fabric_verdict import FabricVerdict, OrderVerdict, Utilisation, congestion
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.moe import moe_what_if
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.traffic.reattribute import reattribute
from commcanary_lab.units import format_bytes

__all__ = ["fabric"]


def fabric(
    source: TrafficMatrix | Trace,
    *,
    gpus_per_node: int | None = None,
    spine: float = 0.1,
    pxn: bool = False,
    layout: Layout | None = None,
    placement: Placement | None = None,
    moe_skew: float = 0.0,
    link_gb_s: float | None = None,
    step_time_s: float | None = None,
) -> FabricVerdict:
    """Judge whether a rail-optimised network carries the traffic of a job.

    A rail connects the GPUs of equal index of all nodes; what changes rails between nodes needs the spine. ``congestion =
    cross_rail_fraction / spine_fraction``, saturated above 1. The verdict is computed for several orders of the rings, because sources
    rarely state theirs; where the orders disagree and none is stated it reads ``depends on ring order``.

    Parameters
    ----------
    source : TrafficMatrix or Trace
        The traffic.
    gpus_per_node : int, optional
        GPUs per node; needed unless the layout, the placement or M says it.
    spine : float
        Bandwidth of the spine over that of a fat tree, in [0, 1].
    pxn : bool
        Count PXN: messages change rails inside the sending node, where their group has a member on the destination's rail.
    layout : Layout, optional
        Where `gpus_per_node` is taken from.
    placement : Placement, optional
        Ranks on nodes, where they are not in order.
    moe_skew : float
        Skew of the expert exchange (see `moe.moe_what_if`).
    link_gb_s, step_time_s : float, optional
        Capacity of one network card per direction (1e9 bytes per second) and the time in which the bytes of M travel: gives `utilisation`.

    Returns
    -------
    FabricVerdict
        With its limits.

    Raises
    ------
    UsageError
        If nobody says how many GPUs a node has, or a figure is out of range.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> found = lab.fabric(lab.traffic(lab.samples.tp8_decode()), gpus_per_node=4, spine=0.1)
    >>> found.verdict, {v.order: v.cross_rail_fraction for v in found.by_order}
    ('depends on ring order', {'group': 1.0, 'rail_aligned': 0.5, 'hierarchical': 0.0})
    """
    if not 0 <= spine <= 1:
        raise UsageError(f"{spine} is not a fraction of a fat tree's spine", remedy="give a number from 0 to 1, for example 0.1")
    if isinstance(source, TrafficMatrix):
        m = source
    else:
        m = build_matrix(source, layout=layout, gpus_per_node=gpus_per_node, placement=placement)
    place = placement or Placement.of(gpus_per_node, layout) or m.placement
    if place is None:
        raise UsageError("nobody says how many GPUs a node has", remedy="give gpus_per_node, or a layout that has it")
    ordered = bool(_ordered_ops(m))
    own = OrderVerdict("stated" if m.ring_order == "stated" else "group", Crossing.of(m, place, pxn=pxn), spine)
    by_order = tuple(_orders(m, place, own, pxn=pxn))
    moe = moe_what_if(m.ranks, place, own.crossing.inter_node_bytes if own.crossing else 0.0, skew=moe_skew, pxn=pxn)
    return FabricVerdict(
        place.gpus_per_node,
        place.node_count(m.ranks),
        spine,
        pxn,
        by_order,
        own,
        ordered,
        moe,
        _utilisation(m, own, link_gb_s, step_time_s),
        m.source,
        m.algorithm,
        m.ring_order,
        m.origin,
        m.coverage,
        _limits(m, pxn, absolute=link_gb_s is not None),
        m.notes,
    )


def _ordered_ops(m: TrafficMatrix) -> set[str]:
    """Operations whose traffic depends on the order of the ranks."""
    known = algorithms()
    return {op for op, name in m.algorithms if name in known and known[name].uses_order}


def _orders(m: TrafficMatrix, place: Placement, own: OrderVerdict, *, pxn: bool) -> Iterator[OrderVerdict]:
    ops = _ordered_ops(m)
    if not ops:
        yield from (OrderVerdict(name, own.crossing, own.spine_fraction) for name in ("group", "rail_aligned", "hierarchical"))
        return

    def verdict(name: str, other: TrafficMatrix) -> OrderVerdict:
        return OrderVerdict(name, Crossing.of(other, place, pxn=pxn), own.spine_fraction)

    yield verdict("group", m.reattributed(placement=place))
    yield verdict("rail_aligned", m.reattributed(order=RingOrder.along_rails(place), placement=place))
    nested = {op: "hierarchical" for op in ops if op in algorithms()["hierarchical"].ops}
    try:
        yield verdict("hierarchical", reattribute(m, nested, None, place, rings_only=True))
    except RefusedError as e:
        yield OrderVerdict("hierarchical", None, own.spine_fraction, e.problems[0].what)
    if own.order == "stated":
        yield own


def _utilisation(m: TrafficMatrix, own: OrderVerdict, link_gb_s: float | None, step_time_s: float | None) -> Utilisation | None:
    if link_gb_s is None and step_time_s is None:
        return None
    if link_gb_s is None or step_time_s is None:
        raise UsageError("utilisation needs the capacity of a link and the step time", remedy="give both link_gb_s and step_time_s")
    if not (0 < link_gb_s < math.inf and 0 < step_time_s < math.inf):
        raise UsageError(f"{link_gb_s} GB/s and {step_time_s} s are not positive", remedy="give both as positive numbers")
    assert own.crossing is not None
    one = link_gb_s * 1e9 * step_time_s
    full = one * max(1, m.n)
    busiest = max(own.crossing.nic_egress_bytes, own.crossing.nic_ingress_bytes)
    share = own.crossing.spine_bytes / full
    return Utilisation(link_gb_s, step_time_s, busiest / one, congestion(share, own.spine_fraction), share)


def _limits(m: TrafficMatrix, pxn: bool, *, absolute: bool) -> tuple[str, ...]:
    out = ["volume-free: compares the share of the traffic that crosses rails with the spine's share of bandwidth, not bytes with time"]
    if not absolute:
        out[0] += " (link capacity and step time give the absolute form)"
    with_pxn = "counts PXN: messages change rails inside the sending node where their group has a rank on the destination's rail"
    out.append(with_pxn if pxn else "counts no PXN: messages that change rails all take the spine")
    out.append("one network card per GPU, one rail switch for all nodes, traffic averaged over the whole trace: bursts are not seen")
    if m.switch_cells.size_bytes.size:
        out.append("what passes switches inside nodes is not counted")
    if m.unattributed_bytes:
        out.append(f"{format_bytes(m.unattributed_bytes)} unattributed: their destination is unknown")
    return tuple(out)
