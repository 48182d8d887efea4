"""Small compiled loops of the preparation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["mean_wait_us"]


@njit(cache=True, nogil=True)
def mean_wait_us(
    arrival_ns: npt.NDArray[np.int64], pointers: npt.NDArray[np.int64], group_size: npt.NDArray[np.int64], skew_us: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Mean over ranks of (last arrival - own arrival), summed left to right in rank order as the published model does.

    Where only the skew is known, every rank but the last arrives at 0.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    out = np.zeros(len(group_size))
    for i in range(len(out)):
        k, start = group_size[i], pointers[i]
        if pointers[i + 1] - start == k and k > 1:
            low, high = arrival_ns[start], arrival_ns[start]
            for j in range(start + 1, start + k):
                low, high = min(low, arrival_ns[j]), max(high, arrival_ns[j])
            last, total = (high - low) / 1000.0, 0.0
            for j in range(start, start + k):
                total += last - (arrival_ns[j] - low) / 1000.0
            out[i] = total / k
        elif k > 1:
            total = 0.0
            for _ in range(k - 1):
                total += skew_us[i]
            out[i] = total / k
    return out
