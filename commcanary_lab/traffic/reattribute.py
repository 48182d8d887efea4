"""Attribute the collectives of a matrix again, under another algorithm, ring order or placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from commcanary_lab.traffic.attribution import algorithms, choose
from commcanary_lab.traffic.calls import attribute
from commcanary_lab.traffic.cells import canonical
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.placement import Placement

__all__ = ["reattribute"]


def reattribute(
    m: TrafficMatrix, algorithm: str | Mapping[str, str] | None, order: RingOrder | None, placement: Placement | None
) -> TrafficMatrix:
    """Return the matrix as `TrafficMatrix.reattributed` describes it."""
    own = {op: name for op, name in m.algorithms if name in algorithms()}
    wanted = own if algorithm is None else {**own, **{op: a.name for op, a in choose(algorithm).items() if _names(algorithm, op)}}
    chosen, placement = choose(wanted), placement if placement is not None else m.placement
    links = attribute(m.parts, m.calls, chosen, order if order is not None else RingOrder(None, {}), placement)
    fixed = ~np.isin(m.part, m.calls.part)
    old = m.part_cells.where(fixed)
    part, cells = canonical(
        np.concatenate([m.part[fixed], links.call]),
        np.concatenate([old.src, links.src]),
        np.concatenate([old.dst, links.dst]),
        np.concatenate([old.size_bytes, links.size_bytes]),
    )
    collectives = {m.parts[p].op for p in np.unique(m.calls.part).tolist()}
    used = {*(a for a in m.algorithms if a[0] not in collectives), *((op, chosen[op].name) for op in collectives)}
    return replace(m, part=part, part_cells=cells, algorithms=tuple(sorted(used)), ring_order="assumed", placement=placement)


def _names(wanted: str | Mapping[str, str], op: str) -> bool:
    """Whether a choice of algorithms says something about an operation."""
    return op in algorithms()[wanted].ops if isinstance(wanted, str) else op in wanted
