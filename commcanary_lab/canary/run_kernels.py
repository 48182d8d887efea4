"""Compiled kernels that find every maximal repeat ("run") of a sequence in near-linear time.

A run is a maximal stretch ``[start, end)`` with smallest period ``p`` and ``end - start >= 2 * p``. Every run contains, at
some position i, a Lyndon root: the longest Lyndon word that starts at i, under the usual or the reversed order of the
symbols, has length p (Bannai, I, Inenaga, Nakashima, Takeda, Tsuruta, "The 'Runs' Theorem", SIAM J. Comput. 46(5), 2017).
So two sweeps that compute that word for every position, each extended to both sides, see all runs; there are fewer than n.

Common extensions are compared symbol by symbol for a while, then looked up in a memo per distance, then found by a
galloping search over polynomial hashes modulo 2**61 - 1. A hash collision could only report a wrong extension; callers
verify what they fold.

Import this module inside functions: importing numba takes a third of a second.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["find_runs", "mulmod", "prefix_hash", "range_hash"]

MODULUS = (1 << 61) - 1
BASE = 1_732_050_807_568_877_293 % MODULUS
_MASK31 = (1 << 31) - 1
_MASK30 = (1 << 30) - 1
#: Symbols compared one by one before the memo, and before the hashes, are asked.
_SHORT = 2
_NAIVE = 48


@njit(cache=True, inline="always")
def mulmod(a: int, b: int) -> int:
    """Return a * b modulo 2**61 - 1 without leaving int64 (both below the modulus)."""
    a_high = a >> 31
    a_low = a & _MASK31
    b_high = b >> 31
    b_low = b & _MASK31
    mid = a_low * b_high + a_high * b_low
    x = a_high * b_high * 2 + (mid >> 30) + ((mid & _MASK30) << 31) + a_low * b_low
    x = (x >> 61) + (x & MODULUS)
    if x >= MODULUS:
        x -= MODULUS
    return x


@njit(cache=True)
def prefix_hash(s: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return prefix hashes (n + 1) and powers of the base (n + 1)."""
    n = s.size
    prefix = np.zeros(n + 1, np.int64)
    power = np.ones(n + 1, np.int64)
    for i in range(n):
        x = mulmod(prefix[i], BASE) + s[i] + 1
        if x >= MODULUS:
            x -= MODULUS
        prefix[i + 1] = x
        power[i + 1] = mulmod(power[i], BASE)
    return prefix, power


@njit(cache=True, inline="always")
def range_hash(prefix: NDArray[np.int64], power: NDArray[np.int64], start: int, end: int) -> int:
    """Return the hash of ``s[start:end]``."""
    x = prefix[end] - mulmod(prefix[start], power[end - start])
    if x < 0:
        x += MODULUS
    return x


@njit(cache=True)
def _gallop_right(prefix: NDArray[np.int64], power: NDArray[np.int64], i: int, j: int, known: int, limit: int) -> int:
    """Longest common extension of suffixes i < j, at least `known` and at most `limit`."""
    low = known
    step = max(known, 1)
    high = limit + 1
    while low < limit:
        t = min(low + step, limit)
        if range_hash(prefix, power, i, i + t) == range_hash(prefix, power, j, j + t):
            low = t
            step *= 2
        else:
            high = t
            break
    while high - low > 1:
        t = (low + high) >> 1
        if range_hash(prefix, power, i, i + t) == range_hash(prefix, power, j, j + t):
            low = t
        else:
            high = t
    return low


@njit(cache=True)
def _gallop_left(prefix: NDArray[np.int64], power: NDArray[np.int64], i: int, j: int, known: int) -> int:
    """Longest common extension to the left of positions i < j (exclusive), at least `known`."""
    low = known
    step = max(known, 1)
    high = i + 1
    while low < i:
        t = min(low + step, i)
        if range_hash(prefix, power, i - t, i) == range_hash(prefix, power, j - t, j):
            low = t
            step *= 2
        else:
            high = t
            break
    while high - low > 1:
        t = (low + high) >> 1
        if range_hash(prefix, power, i - t, i) == range_hash(prefix, power, j - t, j):
            low = t
        else:
            high = t
    return low


@njit(cache=True)
def _extend_right(
    s: NDArray[np.int64],
    prefix: NDArray[np.int64],
    power: NDArray[np.int64],
    memo_low: NDArray[np.int32],
    memo_high: NDArray[np.int32],
    i: int,
    j: int,
) -> int:
    """Longest common extension of suffixes i < j; i falls from call to call, so that the memo per distance stays useful."""
    limit = s.size - j
    k = 0
    short = min(_SHORT, limit)
    while k < short and s[i + k] == s[j + k]:
        k += 1
    if k < short or k == limit:
        return k
    distance = j - i
    low = memo_low[distance]
    high = memo_high[distance]
    if low <= i + k and i + k < high - distance:
        memo_low[distance] = i
        return high - j
    naive = min(_NAIVE, limit)
    while k < naive and s[i + k] == s[j + k]:
        k += 1
        if i + k == low and low < high - distance:
            k = high - j  # the rest of this stretch is known
            naive = -1
            break
    if k == naive and k < limit:
        k = _gallop_right(prefix, power, i, j, k, limit)
    memo_low[distance] = i
    memo_high[distance] = j + k
    return k


@njit(cache=True)
def _sweep(
    s: NDArray[np.int64],
    prefix: NDArray[np.int64],
    power: NDArray[np.int64],
    expanded: NDArray[np.int64],
    min_gain: int,
    upward: bool,
) -> NDArray[np.int64]:
    """Runs whose Lyndon root is seen under one order of the symbols (`upward` or not), as rows (period, start, end)."""
    n = s.size
    memo_low = np.full(n + 1, n + 1, np.int32)
    memo_high = np.zeros(n + 1, np.int32)
    run_low = np.full(n + 1, n + 1, np.int32)
    run_high = np.zeros(n + 1, np.int32)
    next_smaller = np.full(n + 1, n, np.int32)
    found = np.empty((64, 3), np.int64)
    count = 0
    for i in range(n - 1, -1, -1):
        j = i + 1
        right = 0
        while j < n:
            difference = s[i] - s[j]
            if difference == 0:
                right = _extend_right(s, prefix, power, memo_low, memo_high, i, j)
                if j + right == n:
                    break  # the end of the sequence is smaller than every symbol, in both orders
                difference = s[i + right] - s[j + right]
            if (difference > 0) == upward:
                break
            j = next_smaller[j]
            right = 0
        next_smaller[i] = j
        period = j - i
        if right == 0 and (i == 0 or s[i - 1] != s[j - 1]):
            continue  # nothing to either side: a run needs one more symbol even at period 1
        if i >= run_low[period] and j <= run_high[period]:
            continue
        left = 0
        naive = min(_NAIVE, i)
        while left < naive and s[i - 1 - left] == s[j - 1 - left]:
            left += 1
        if left == naive and left < i:
            left = _gallop_left(prefix, power, i, j, left)
        start = i - left
        end = j + right
        run_low[period] = start
        run_high[period] = end
        if left + right < period:
            continue
        if ((end - start) // period - 1) * (expanded[start + period] - expanded[start]) < min_gain:
            continue
        if count == found.shape[0]:
            bigger = np.empty((2 * count, 3), np.int64)
            bigger[:count] = found
            found = bigger
        found[count, 0] = period
        found[count, 1] = start
        found[count, 2] = end
        count += 1
    return found[:count]


@njit(cache=True)
def find_runs(
    s: NDArray[np.int64], prefix: NDArray[np.int64], power: NDArray[np.int64], expanded: NDArray[np.int64], min_gain: int
) -> NDArray[np.int64]:
    """Return the runs of `s` that would save at least `min_gain` events, as rows (period, start, end), unsorted, maybe twice.

    `expanded` holds the prefix sums (n + 1) of how many events each symbol stands for.
    """
    up = _sweep(s, prefix, power, expanded, min_gain, True)
    down = _sweep(s, prefix, power, expanded, min_gain, False)
    both = np.empty((up.shape[0] + down.shape[0], 3), np.int64)
    both[: up.shape[0]] = up
    both[up.shape[0] :] = down
    return both
