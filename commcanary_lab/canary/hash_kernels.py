"""Compiled mixing of column values into row hashes (for the locator; not a cryptographic hash)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["mix_ragged", "mix_values", "sums_by_bit"]


@njit(cache=True, nogil=True, inline="always")
def _mix(h: np.uint64, value: np.uint64) -> np.uint64:
    v = (h ^ value) + np.uint64(0x9E3779B97F4A7C15)
    v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return v ^ (v >> np.uint64(31))


@njit(cache=True, nogil=True)
def mix_values(h: npt.NDArray[np.uint64], values: npt.NDArray[np.uint64]) -> None:
    """Mix one value per row into the row hashes, in place."""
    for i in range(len(h)):
        h[i] = _mix(h[i], values[i])


@njit(cache=True, nogil=True)
def mix_ragged(h: npt.NDArray[np.uint64], values: npt.NDArray[np.int64], pointers: npt.NDArray[np.int64]) -> None:
    """Mix the length and the values of each ragged row into the row hashes, in place."""
    for i in range(len(h)):
        x = _mix(h[i], np.uint64(pointers[i + 1] - pointers[i]))
        for j in range(pointers[i], pointers[i + 1]):
            x = _mix(x, np.uint64(values[j]))
        h[i] = x


@njit(cache=True, nogil=True)
def sums_by_bit(hashes: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """Sum the row hashes, mod 2^64: for each bit over the rows whose index has it set, and over all rows as the last sum.

    A block of rows shares all bits but its lowest ones: the sum of a block is added to those once.
    """
    low = min(bits, 10)
    out = np.zeros(bits + 1, np.uint64)
    for begin in range(0, len(hashes), 1 << low):
        block = np.uint64(0)
        for i in range(begin, min(len(hashes), begin + (1 << low))):
            block += hashes[i]
            for b in range(low):
                if i >> b & 1:
                    out[b] += hashes[i]
        for b in range(low, bits):
            if begin >> b & 1:
                out[b] += block
        out[bits] += block
    return out
