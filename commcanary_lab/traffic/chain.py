"""Chain: a ring that is open at the root."""

from __future__ import annotations

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, register

__all__ = ["chain"]


@register("chain", ops=("broadcast", "reduce"), default_for=("broadcast", "reduce"), uses_order=True, rooted=("broadcast", "reduce"))
def chain(calls: Calls) -> Links:
    """Attribute to the k - 1 links of a chain, B each.

    A broadcast flows from the root once around the ring and does not return to it; a reduce flows around the ring into the root, which
    sends nothing.

    Examples
    --------
    >>> members, every = np.array([[0, 1, 2]]), np.ones((1, 3), bool)
    >>> links = chain(Calls("broadcast", members, np.array([8.0]), every, np.array([1])))
    >>> list(zip(links.src.tolist(), links.dst.tolist()))
    [(1, 2), (2, 0)]
    >>> links = chain(Calls("reduce", members, np.array([8.0]), every, np.array([1])))
    >>> list(zip(links.src.tolist(), links.dst.tolist()))
    [(0, 1), (2, 0)]
    """
    k = calls.group_size
    if k == 1:
        return Links.none()
    position = np.arange(k)[None, :]
    root = calls.root[:, None]
    silent = position == (root if calls.op == "reduce" else (root - 1) % k)
    return Links.where(
        calls.reporting & ~silent, calls.members, np.roll(calls.members, -1, axis=1), np.repeat(calls.size_bytes[:, None], k, axis=1)
    )
