"""Binary trees over k positions, as NCCL builds them (`ncclGetBtree`, `ncclGetDtree` in its `graph/trees.cc`), and what travels on them."""

from __future__ import annotations

import numpy as np

from commcanary_lab.traffic.attribution import BoolArray, FloatArray, IntArray, Links

__all__ = ["both_ways", "parents", "second_parents"]


def parents(k: int) -> IntArray:
    """Return the parent of each position in the first tree, shape (k,); -1 for the root, position 0.

    Position p > 0 with lowest set bit b hangs under ``(p ^ b) | 2 b`` where that exists, otherwise under ``p ^ b``; odd positions are
    leaves.

    Examples
    --------
    >>> parents(8).tolist()
    [-1, 2, 4, 2, 0, 6, 4, 6]
    """
    position = np.arange(k)
    bit = position & -position
    up = (position ^ bit) | (bit << 1)
    up = np.where(up >= k, position ^ bit, up)
    up[:1] = -1
    return up


def second_parents(k: int) -> IntArray:
    """Return the parents in the second tree: the first one mirrored for even k, shifted by one for odd k; its leaves are inner positions
    of the first.

    Examples
    --------
    >>> second_parents(8).tolist(), second_parents(5).tolist()
    ([1, 3, 1, 7, 5, 3, 5, -1], [1, -1, 3, 0, 3])
    """
    first = parents(k)
    if k % 2 == 0:
        return np.where(first < 0, -1, k - 1 - first)[::-1]
    up = np.where(first < 0, -1, (first + 1) % k)
    return np.roll(up, 1)


def both_ways(child: IntArray, parent: IntArray, size_bytes: FloatArray, reports: tuple[BoolArray, BoolArray], call: IntArray) -> Links:
    """Return the contributions of edges that carry `size_bytes` up and the same down, shapes (n,).

    Parameters
    ----------
    child, parent : ndarray of int64
        Global ranks.
    size_bytes : ndarray of float64
        Bytes in each direction.
    reports : (ndarray of bool, ndarray of bool)
        Whether the child and the parent report what they send.
    call : ndarray of int64
        Row of `Calls` of each edge.
    """
    up, down = reports
    return Links(np.concatenate([call[up], call[down]]), np.concatenate([child[up], parent[down]]),
                 np.concatenate([parent[up], child[down]]), np.concatenate([size_bytes[up], size_bytes[down]]))  # fmt: skip
