"""Distinct keys of long columns, found in one pass; imported only where there are many rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["number_few"]

IntArray = npt.NDArray[np.int64]

#: 2**64 over the golden ratio: its products spread keys that lie close together (Knuth, The Art of Computer Programming, 6.4).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def number_few(key: IntArray, bits: int) -> tuple[IntArray, IntArray]:
    """Number keys by first appearance, as long as there are few.

    Parameters
    ----------
    key : ndarray of int64, shape (n,)
        Any values.
    bits : int
        Up to ``2**bits`` distinct ones.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Number of each key; no use where there are too many.
    distinct : ndarray of int64
        The keys in the order of their numbers; empty where there are too many.

    Examples
    --------
    >>> number_few(np.array([7, -3, 7]), 4)
    (array([0, 1, 0]), array([ 7, -3]))
    >>> number_few(np.array([1, 2, 3]), 1)[1]
    array([], dtype=int64)
    """
    most, mask, shift = 1 << bits, (4 << bits) - 1, np.uint64(62 - bits)
    slots = np.full(mask + 1, -1, np.int64)
    distinct = np.empty(most, np.int64)
    codes = np.empty(len(key), np.int64)
    count = 0
    for i in range(len(key)):
        value = key[i]
        at = np.int64((np.uint64(value) * _SPREAD) >> shift)
        while slots[at] >= 0 and distinct[slots[at]] != value:
            at = (at + 1) & mask
        if slots[at] < 0:
            if count == most:
                return codes, distinct[:0]
            distinct[count] = value
            slots[at] = count
            count += 1
        codes[i] = slots[at]
    return codes, distinct[:count]
