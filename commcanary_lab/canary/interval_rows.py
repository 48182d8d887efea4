"""Compiled encoding of intervals: the value of each field, the constant gap, and their exact errors.

Import this module inside functions: importing numba takes a third of a second. Numba's cache only notices changes of the file that
a kernel stands in: after a change here, delete the cached kernels of the other `interval_*` modules, which contain these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Rows", "encode_rows", "field_costs", "gap_constant", "part", "ratio", "widen"]


class Rows(NamedTuple):
    """A stream: gaps, their running sums (m + 1), lowest and highest value per row and field ((m, F); inf/-inf: unknown)."""

    gap: NDArray[np.int64]
    sums: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    whole: NDArray[np.bool_]
    scales: NDArray[np.float64]
    mean: bool  # whether the mean of all gaps but the last may stand in for their midrange
    skew: int  # the field that is derived from the middles of all later ones, or -1


@njit(cache=True, nogil=True)
def part(rows: Rows, begin: int, end: int) -> Rows:
    """Return a view of some rows."""
    return Rows(
        rows.gap[begin:end],
        rows.sums[begin : end + 1],
        rows.low[begin:end],
        rows.high[begin:end],
        rows.whole,
        rows.scales,
        rows.mean,
        rows.skew,
    )


@njit(cache=True, nogil=True, inline="always")
def ratio(error: float, scale: float) -> float:
    """Error in units of its scale; a scale of 0 forbids any error, an infinite one allows all."""
    if error == 0.0:
        return 0.0
    if scale == 0.0:
        return np.inf
    return error / scale


@njit(cache=True, nogil=True, inline="always")
def middle(low: float, high: float, whole: bool) -> float:
    """Midrange, in whole units where the field is whole."""
    half = (low + high) / 2
    return math.floor(half) if whole else half


@njit(cache=True, nogil=True, inline="always")
def spread(low: NDArray[np.float64], high: NDArray[np.float64], whole: NDArray[np.bool_], skew: int) -> float:
    """Encoded skew: the spread of the encoded arrivals, or the only arrival itself."""
    least = np.inf
    most = -np.inf
    for f in range(skew + 1, low.size):
        if low[f] <= high[f]:
            mid = middle(low[f], high[f], whole[f])
            least = min(least, mid)
            most = max(most, mid)
    if skew + 2 == low.size:
        return most
    return most - least


@njit(cache=True, nogil=True)
def field_costs(
    low: NDArray[np.float64], high: NDArray[np.float64], whole: NDArray[np.bool_], scales: NDArray[np.float64], skew: int
) -> tuple[float, float]:
    """Largest error / scale over the fields of an interval with these extremes, and a bound that no larger interval goes below."""
    bound = 0.0
    for f in range(low.size):
        if low[f] < high[f]:  # false for unknown and for constant fields
            mid = middle(low[f], high[f], whole[f])
            bound = max(bound, ratio(max(high[f] - mid, mid - low[f]), scales[f]))
    if skew < 0 or not low[skew] <= high[skew]:
        return bound, bound
    value = spread(low, high, whole, skew)
    return max(bound, ratio(max(abs(high[skew] - value), abs(value - low[skew])), scales[skew])), bound


@njit(cache=True, nogil=True, inline="always")
def gap_constant(low: int, high: int, total: int, length: int) -> int:
    """Encoded gap of all rows but the last: the midrange, lowered where the last gap would become negative."""
    if length == 1:
        return total
    return min((low + high) // 2, total // (length - 1))


@njit(cache=True, nogil=True, inline="always")
def widen(low: NDArray[np.float64], high: NDArray[np.float64], row_low: NDArray[np.float64], row_high: NDArray[np.float64], k: int) -> bool:
    """Let the extremes include row k; return whether any changed."""
    changed = False
    for f in range(low.size):
        if row_low[k, f] < low[f]:
            low[f] = row_low[k, f]
            changed = True
        if row_high[k, f] > high[f]:
            high[f] = row_high[k, f]
            changed = True
    return changed


@njit(cache=True, nogil=True)
def _gap_errors(rows: Rows, i: int, j: int, c: int) -> tuple[int, int]:
    """Largest error of the gaps and of their running sum in rows ``[i, j)`` if all but the last gap are c."""
    gap = rows.gap
    gap_error = 0
    prefix_error = 0
    drift = 0
    for k in range(i, j - 1):
        gap_error = max(gap_error, abs(c - gap[k]))
        drift += c - gap[k]
        prefix_error = max(prefix_error, abs(drift))
    return max(gap_error, abs(drift)), prefix_error  # the last gap makes up for the drift


@njit(cache=True, nogil=True)
def encode_rows(
    rows: Rows, cuts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Encode the intervals between `cuts`: gap constants, residuals, middles (F, n), errors (F + 2, n), row by row and exact."""
    n = cuts.size - 1
    fields = rows.low.shape[1]
    constant = np.zeros(n, np.int64)
    residual = np.zeros(n, np.int64)
    middles = np.zeros((fields, n))
    errors = np.zeros((fields + 2, n))
    low = np.empty(fields)
    high = np.empty(fields)
    for r in range(n):
        i = cuts[r]
        j = cuts[r + 1]
        low[:] = np.inf
        high[:] = -np.inf
        for k in range(i, j):
            widen(low, high, rows.low, rows.high, k)
        for f in range(fields):
            if low[f] <= high[f]:
                mid = low[f] if low[f] == high[f] else middle(low[f], high[f], rows.whole[f])
                if f == rows.skew:
                    mid = spread(low, high, rows.whole, rows.skew)
                middles[f, r] = mid
                errors[f, r] = max(abs(high[f] - mid), abs(mid - low[f]))
        gap_low = rows.gap[i]
        gap_high = rows.gap[i]
        for k in range(i, j):
            gap_low = min(gap_low, rows.gap[k])
            gap_high = max(gap_high, rows.gap[k])
        total = rows.sums[j] - rows.sums[i]
        c = gap_constant(gap_low, gap_high, total, j - i)
        gap_error, prefix_error = _gap_errors(rows, i, j, c)
        if rows.mean and j - i > 1:
            other = (rows.sums[j - 1] - rows.sums[i]) // (j - i - 1)
            other_gap, other_prefix = _gap_errors(rows, i, j, other)
            cost = max(ratio(float(gap_error), rows.scales[fields]), ratio(float(prefix_error), rows.scales[fields + 1]))
            if max(ratio(float(other_gap), rows.scales[fields]), ratio(float(other_prefix), rows.scales[fields + 1])) < cost:
                c = other
                gap_error = other_gap
                prefix_error = other_prefix
        constant[r] = c
        residual[r] = total - c * (j - i)
        errors[fields, r] = gap_error
        errors[fields + 1, r] = prefix_error
    return constant, residual, middles, errors
