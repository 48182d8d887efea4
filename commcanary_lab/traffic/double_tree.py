"""Double tree: two complementary binary trees, half of the bytes on each."""

from __future__ import annotations

from commcanary_lab.traffic.attribution import Calls, Links, register
from commcanary_lab.traffic.tree import on_tree
from commcanary_lab.traffic.trees import parents, second_parents

__all__ = ["double_tree"]


@register("double_tree", ops=("all_reduce",), uses_order=True)
def double_tree(calls: Calls) -> Links:
    """Attribute to two binary trees: B / 2 up and B / 2 down on each edge of each, 2 (k - 1) B in all.

    Inner positions of one tree are leaves of the other, so that no rank forwards everything (Sanders, Speck and Traeff, "Two-tree
    algorithms for full bandwidth broadcast, reduction and scan", 2009).

    Examples
    --------
    >>> import numpy as np
    >>> links = double_tree(Calls("all_reduce", np.array([[0, 4]]), np.array([8.0]), np.ones((1, 2), bool), np.array([-1])))
    >>> sorted(zip(links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()))
    [(0, 4, 4.0), (0, 4, 4.0), (4, 0, 4.0), (4, 0, 4.0)]
    """
    k = calls.group_size
    return Links.joined([on_tree(calls, parents(k), 0.5), on_tree(calls, second_parents(k), 0.5)])
