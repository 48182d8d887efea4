"""Tree: one binary tree."""

from __future__ import annotations

import numpy as np

from commcanary_lab.traffic.attribution import Calls, IntArray, Links, register
from commcanary_lab.traffic.trees import both_ways, parents

__all__ = ["on_tree", "tree"]


@register("tree", ops=("all_reduce",), uses_order=True)
def tree(calls: Calls) -> Links:
    """Attribute to the k - 1 edges of a binary tree: B up (the reduction) and B down (the result) on each, 2 (k - 1) B in all.

    Examples
    --------
    >>> links = tree(Calls("all_reduce", np.array([[0, 4, 5]]), np.array([8.0]), np.ones((1, 3), bool), np.array([-1])))
    >>> sorted(zip(links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()))
    [(0, 5, 8.0), (4, 5, 8.0), (5, 0, 8.0), (5, 4, 8.0)]
    """
    return on_tree(calls, parents(calls.group_size), 1.0)


def on_tree(calls: Calls, parent: IntArray, share: float) -> Links:
    """Attribute a share of every call to the edges of one tree over positions.

    Parameters
    ----------
    calls : Calls
        The calls.
    parent : ndarray of int64, shape (k,)
        Parent of each position, -1 for the root.
    share : float
        Part of B that goes up, and down, each edge.
    """
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    g, edges = len(calls.members), len(child)
    call = np.repeat(np.arange(g), edges)
    reports = calls.reporting[:, child].ravel(), calls.reporting[:, above].ravel()
    return both_ways(
        calls.members[:, child].ravel(), calls.members[:, above].ravel(), np.repeat(calls.size_bytes * share, edges), reports, call
    )
