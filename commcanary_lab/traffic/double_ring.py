"""Double ring: every channel is duplicated in the reverse direction."""

from __future__ import annotations

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, register
from commcanary_lab.traffic.ring import ring

__all__ = ["double_ring"]


@register("double_ring", ops=("all_reduce", "all_gather", "reduce_scatter"), uses_order=True)
def double_ring(calls: Calls) -> Links:
    """Attribute half of the bytes to a ring and half to the same ring the other way round, as libraries do that duplicate their channels
    with reversed direction.

    ``M[r, next(r)] += (k - 1) / k * B`` and ``M[r, previous(r)] += (k - 1) / k * B`` for all_reduce, half of it for all_gather and
    reduce_scatter; the sum is that of `ring`.

    Examples
    --------
    >>> links = double_ring(Calls("all_reduce", np.array([[0, 4, 5, 9]]), np.array([64.0]), np.ones((1, 4), bool), np.array([-1])))
    >>> sorted(zip(links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()))[:3]
    [(0, 4, 48.0), (0, 9, 48.0), (4, 0, 48.0)]
    """
    half = calls.size_bytes / 2
    forward = ring(Calls(calls.op, calls.members, half, calls.reporting, calls.root))
    backward = ring(Calls(calls.op, np.flip(calls.members, 1), half, np.flip(calls.reporting, 1), calls.root))
    return Links.joined([forward, backward])
