"""Ring: every rank sends to the next one."""

from __future__ import annotations

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, register

__all__ = ["ring"]

#: Passes of the whole buffer around the ring, less the part that a rank keeps.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


@register("ring", ops=tuple(_PASSES), default_for=tuple(_PASSES), uses_order=True)
def ring(calls: Calls) -> Links:
    """Attribute to the links of a ring.

    ``M[r, next(r)] += 2 (k - 1) / k * B`` for all_reduce (a reduce-scatter and an all-gather), half of it for all_gather and
    reduce_scatter: k blocks of B / k, of which each rank forwards k - 1 per pass.

    Examples
    --------
    >>> links = ring(Calls("all_reduce", np.array([[0, 4, 5, 9]]), np.array([64.0]), np.ones((1, 4), bool), np.array([-1])))
    >>> links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()
    ([0, 4, 5, 9], [4, 5, 9, 0], [96.0, 96.0, 96.0, 96.0])
    """
    k = calls.group_size
    if k == 1:
        return Links.none()
    per_link = calls.size_bytes * (_PASSES[calls.op] * (k - 1)) / k
    return Links.where(calls.reporting, calls.members, np.roll(calls.members, -1, axis=1), np.repeat(per_link[:, None], k, axis=1))
