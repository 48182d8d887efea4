"""Compiled measures of a column: what each of its encodings would take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from commcanary_lab.number_text import decimal_digits

__all__ = ["measure"]


@njit(cache=True, nogil=True)
def _best_cycle(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Find the head length and period that leave the fewest values to write, by the border table of the reversed sequence."""
    n = len(values)
    border = np.zeros(n + 1, np.int64)
    border[0] = -1
    best_head, best_period = n, 0
    k = -1
    for i in range(n):
        x = values[n - 1 - i]
        while k >= 0 and values[n - 1 - k] != x:
            k = border[k]
        k += 1
        border[i + 1] = k
        length = i + 1
        period = length - k
        if 2 * period <= length and (n - length) + period < best_head + best_period:
            best_head, best_period = n - length, period
    return best_head, best_period


@njit(cache=True, nogil=True)
def measure(values: npt.NDArray[np.int64]) -> tuple[bool, int, int, int, int, int, int]:
    """Return whether the steps are equal, then bytes of the list and of the runs, number of runs, head, period, bytes of head and cycle."""
    n = len(values)
    arithmetic, runs, run_start = True, 0, 0
    plain, run_bytes = 1 + n, 10
    for i in range(n):
        plain += decimal_digits(values[i])
        if i >= 2 and values[i] - values[i - 1] != values[1] - values[0]:
            arithmetic = False
        if i + 1 == n or values[i + 1] != values[i]:
            runs += 1
            run_bytes += decimal_digits(values[i]) + decimal_digits(i + 1 - run_start) + 4
            run_start = i + 1
    head, period = _best_cycle(values)
    cycle = 20 + head + period
    for i in range(head + period if period else 0):
        cycle += decimal_digits(values[i])
    return arithmetic, plain, run_bytes, runs, head, period, cycle
