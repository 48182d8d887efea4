"""Attribute the collectives of a matrix again, under another algorithm, ring order or placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from commcanary_lab.traffic.attribution import algorithms, asked_ops, choose
from commcanary_lab.traffic.calls import attribute
from commcanary_lab.traffic.cells import canonical
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.placement import Placement

__all__ = ["reattribute"]


def reattribute(
    m: TrafficMatrix,
    algorithm: str | Mapping[str, str] | None,
    order: RingOrder | None,
    placement: Placement | None,
    *,
    rings_only: bool = False,
) -> TrafficMatrix:
    """Return the matrix as `TrafficMatrix.reattributed` describes it.

    Parameters
    ----------
    m, algorithm, order, placement
        As there.
    rings_only : bool
        Leave calls alone whose algorithm does not depend on the order of ranks.
    """
    calls, asked = m.calls, asked_ops(algorithm)
    if asked and len(calls):
        wanted, known = choose(algorithm), algorithms()
        fresh = [wanted[op].name for op in sorted(asked)]
        place = {op: len(calls.algorithms) + i for i, op in enumerate(sorted(asked))}
        code = np.array([place.get(p.op, -1) for p in m.parts], np.int64)[calls.part]
        if rings_only:
            rings = np.array([name in known and known[name].uses_order for name in calls.algorithms], np.bool_)
            code[~rings[calls.algorithm]] = -1
        calls = replace(calls, algorithm=np.where(code >= 0, code, calls.algorithm), algorithms=(*calls.algorithms, *fresh))
    placement = placement if placement is not None else m.placement
    links = attribute(m.parts, calls, order if order is not None else RingOrder(None, {}), placement)
    fixed = ~np.isin(m.part, calls.part)
    old = m.part_cells.where(fixed)
    part, cells = canonical(
        np.concatenate([m.part[fixed], links.call]),
        np.concatenate([old.src, links.src]),
        np.concatenate([old.dst, links.dst]),
        np.concatenate([old.size_bytes, links.size_bytes]),
    )
    collectives = {m.parts[p].op for p in np.unique(calls.part).tolist()}
    used = {*(a for a in m.algorithms if a[0] not in collectives), *calls.used(m.parts)}
    origin = "asked" if asked & collectives else m.algorithm_origin
    return replace(m, part=part, part_cells=cells, algorithms=tuple(sorted(used)), algorithm_origin=origin, calls=calls,
                   ring_order="assumed", placement=placement)  # fmt: skip
