"""Rows of different lengths, gathered without index arrays; imported only where there are many."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["gather"]


@njit(cache=True, nogil=True)
def gather(
    values: npt.NDArray[Any], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Copy the ranges ``values[starts[i]:stops[i]]`` one after the other.

    Returns
    -------
    values : ndarray
        The ranges, joined.
    pointers : ndarray of int64, shape (n + 1,)
        Where each begins.

    Examples
    --------
    >>> joined, pointers = gather(np.array([5, 6, 7]), np.array([1, 0, 2]), np.array([3, 0, 3]))
    >>> joined.tolist(), pointers.tolist()
    ([6, 7, 7], [0, 2, 2, 3])
    """
    pointers = np.empty(len(starts) + 1, np.int64)
    pointers[0] = 0
    for i in range(len(starts)):
        pointers[i + 1] = pointers[i] + stops[i] - starts[i]
    out = np.empty(pointers[-1], values.dtype)
    for i in range(len(starts)):
        at = pointers[i]
        for j in range(starts[i], stops[i]):
            out[at] = values[j]
            at += 1
    return out, pointers
