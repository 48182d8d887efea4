"""Compiled costs of intervals of one step stream, updated as an interval grows.

An interval is grown to the right, block by block (a block is one row, or several that no cut may separate). Field and gap
extremes and the gap sum update in constant time. The prefix error for a constant gap c is the largest |S[k] - S[i] - (k - i) c|
over its inner rows, S being running sums: a linear function over points, so its extremes lie on the upper and lower convex
hulls of the points, which grow from the right in amortised constant time and answer any c by binary search.

Import this module inside functions: importing numba takes a third of a second. After a change here, delete the cached kernels of
`interval_cuts`, which contain these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from commcanary_lab.canary.interval_rows import Rows, field_costs, gap_constant, ratio, widen

__all__ = ["Blocks", "Scratch", "grow", "make_blocks", "make_scratch", "shrink", "single_blocks"]

_BIG = np.iinfo(np.int64).max
#: Room for rounding before an interval is given up.
_SLACK = 1.0 + 1e-9


class Blocks(NamedTuple):
    """Rows between candidate cuts: extremes per block, and the hulls of the running sums strictly inside each block."""

    cuts: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    gap_low: NDArray[np.int64]
    gap_high: NDArray[np.int64]
    head_low: NDArray[np.int64]
    head_high: NDArray[np.int64]
    upper: NDArray[np.int64]
    upper_ptr: NDArray[np.int64]
    lower: NDArray[np.int64]
    lower_ptr: NDArray[np.int64]


class Scratch(NamedTuple):
    """Working memory of one growing interval: field extremes, hull points, and the cost at each end."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    upper_x: NDArray[np.int64]
    upper_y: NDArray[np.int64]
    lower_x: NDArray[np.int64]
    lower_y: NDArray[np.int64]
    cost: NDArray[np.float64]


@njit(cache=True, nogil=True)
def make_scratch(fields: int, m: int) -> Scratch:
    """Allocate working memory for intervals of up to m rows."""
    return Scratch(
        np.empty(fields),
        np.empty(fields),
        np.empty(m + 1, np.int64),
        np.empty(m + 1, np.int64),
        np.empty(m + 1, np.int64),
        np.empty(m + 1, np.int64),
        np.empty(m + 1),
    )


@njit(cache=True, nogil=True, inline="always")
def _push(xs: NDArray[np.int64], ys: NDArray[np.int64], n: int, x: int, y: int, sign: int) -> int:
    """Append a point right of all others to the upper (`sign` 1) or lower (-1) hull; return its size."""
    while n >= 2:
        dx = xs[n - 1] - xs[n - 2]
        dy = ys[n - 1] - ys[n - 2]
        if sign * (float(y - ys[n - 1]) * dx - float(dy) * (x - xs[n - 1])) < 0.0:
            break
        n -= 1
    xs[n] = x
    ys[n] = y
    return n + 1


@njit(cache=True, nogil=True, inline="always")
def _extreme(xs: NDArray[np.int64], ys: NDArray[np.int64], n: int, slope: int, sign: int) -> int:
    """Largest (`sign` 1, upper hull) or smallest (-1, lower hull) y - slope * x."""
    low = 0
    high = n - 1
    while low < high:
        k = (low + high) >> 1
        if sign * ((ys[k + 1] - ys[k]) - slope * (xs[k + 1] - xs[k])) > 0:
            low = k + 1
        else:
            high = k
    return ys[low] - slope * xs[low]


@njit(cache=True, nogil=True)
def make_blocks(rows: Rows, cuts: NDArray[np.int64]) -> Blocks:
    """Return the blocks between `cuts` (0, ..., m)."""
    blocks = cuts.size - 1
    m = rows.gap.size
    fields = rows.low.shape[1]
    low = np.full((blocks, fields), np.inf)
    high = np.full((blocks, fields), -np.inf)
    gap_low = np.full(blocks, _BIG, np.int64)
    gap_high = np.full(blocks, -1, np.int64)
    head_low = np.full(blocks, _BIG, np.int64)
    head_high = np.full(blocks, -1, np.int64)
    upper = np.empty(m, np.int64)
    lower = np.empty(m, np.int64)
    upper_ptr = np.zeros(blocks + 1, np.int64)
    lower_ptr = np.zeros(blocks + 1, np.int64)
    xs = np.empty(m + 1, np.int64)
    ys = np.empty(m + 1, np.int64)
    for b in range(blocks):
        for k in range(cuts[b], cuts[b + 1]):
            for f in range(fields):
                low[b, f] = min(low[b, f], rows.low[k, f])
                high[b, f] = max(high[b, f], rows.high[k, f])
            if k == cuts[b + 1] - 1:
                head_low[b] = gap_low[b]
                head_high[b] = gap_high[b]
            gap_low[b] = min(gap_low[b], rows.gap[k])
            gap_high[b] = max(gap_high[b], rows.gap[k])
        for sign in (1, -1):
            n = 0
            for k in range(cuts[b] + 1, cuts[b + 1]):
                n = _push(xs, ys, n, k, rows.sums[k], sign)
            at = upper_ptr[b] if sign == 1 else lower_ptr[b]
            out = upper if sign == 1 else lower
            for k in range(n):
                out[at + k] = xs[k]
            if sign == 1:
                upper_ptr[b + 1] = at + n
            else:
                lower_ptr[b + 1] = at + n
    return Blocks(cuts, low, high, gap_low, gap_high, head_low, head_high, upper, upper_ptr, lower, lower_ptr)


@njit(cache=True, nogil=True, inline="always")
def _gap_cost(
    ux: NDArray[np.int64],
    uy: NDArray[np.int64],
    nu: int,
    lx: NDArray[np.int64],
    ly: NDArray[np.int64],
    nl: int,
    slope: int,
    shift: int,
    gap_error: int,
    gap_scale: float,
    prefix_scale: float,
    limit: float,
) -> float:
    """Cost of gap and prefix gap for one constant; beyond the limit the exact cost is of no interest and only a bound.

    Running errors are y - slope * x - shift over the points of both hulls.
    """
    cost = ratio(float(gap_error), gap_scale)
    if cost <= limit:
        above = _extreme(ux, uy, nu, slope, 1) - shift
        below = _extreme(lx, ly, nl, slope, -1) - shift
        cost = max(cost, ratio(float(max(above, -below)), prefix_scale))
    return cost


@njit(cache=True, nogil=True)
def single_blocks(rows: Rows) -> Blocks:
    """Return blocks of one row each, without copying the fields."""
    m = rows.gap.size
    none = np.empty(0, np.int64)
    never = np.full(m, -1, np.int64)
    ptr = np.zeros(m + 1, np.int64)
    return Blocks(np.arange(m + 1), rows.low, rows.high, rows.gap, rows.gap, np.full(m, _BIG, np.int64), never, none, ptr, none, ptr)


@njit(cache=True, nogil=True, inline="always")
def _allowed(limit: float, scale: float) -> float:
    """Largest error that costs no more than the limit."""
    return np.inf if math.isinf(scale) else limit * scale


@njit(cache=True, nogil=True)
def grow(rows: Rows, blocks: Blocks, scratch: Scratch, a: int, limit: float) -> int:
    """Grow an interval from block a, until no longer one can cost `limit` or less; return the last end that was reached.

    ``scratch.cost[b]`` becomes the cost of blocks a to b - 1. An interval is hopeless, with all its extensions, once a field costs
    more than the limit, or no constant gap could keep every gap and every running sum near enough.
    """
    # arrays as locals: attribute access inside the loop would count references
    sums, whole, scales, mean, skew = rows.sums, rows.whole, rows.scales, rows.mean, rows.skew
    cuts, block_low, block_high, head_low, head_high = blocks.cuts, blocks.low, blocks.high, blocks.head_low, blocks.head_high
    gap_low, gap_high, upper, upper_ptr, lower, lower_ptr = blocks[3], blocks[4], blocks[7], blocks[8], blocks[9], blocks[10]
    low, high, ux, uy, lx, ly, cost = scratch
    gap_scale, prefix_scale = scales[low.size], scales[low.size + 1]
    gap_reach, reach = _allowed(limit, gap_scale), _allowed(limit, prefix_scale)
    start = cuts[a]
    origin = sums[start]
    low[:] = np.inf
    high[:] = -np.inf
    field_cost = field_bound = 0.0
    least, most = _BIG, -1
    slope_low, slope_high = -np.inf, np.inf  # constants that keep all running sums so far within reach
    nu = nl = 0
    for b in range(a, cuts.size - 1):
        if b > a:
            x, y = cuts[b] - start, sums[cuts[b]] - origin
            nu = _push(ux, uy, nu, x, y, 1)
            nl = _push(lx, ly, nl, x, y, -1)
            slope_low = max(slope_low, (y - reach) / x)
            slope_high = min(slope_high, (y + reach) / x)
        for k in range(upper_ptr[b], upper_ptr[b + 1]):
            x, y = upper[k] - start, sums[upper[k]] - origin
            nu = _push(ux, uy, nu, x, y, 1)
            slope_low = max(slope_low, (y - reach) / x)
        for k in range(lower_ptr[b], lower_ptr[b + 1]):
            x, y = lower[k] - start, sums[lower[k]] - origin
            nl = _push(lx, ly, nl, x, y, -1)
            slope_high = min(slope_high, (y + reach) / x)
        if widen(low, high, block_low, block_high, b):
            field_cost, field_bound = field_costs(low, high, whole, scales, skew)
        head_least, head_most = min(least, head_low[b]), max(most, head_high[b])
        least, most = min(least, gap_low[b]), max(most, gap_high[b])
        end = cuts[b + 1]
        steps = end - start - 1
        value = field_cost
        if steps > 0:
            head = sums[end - 1] - origin
            c = gap_constant(least, most, sums[end] - origin, steps + 1)
            error = max(abs(head - c * steps), head_most - c, c - head_least)
            gap_cost = _gap_cost(ux, uy, nu, lx, ly, nl, c, 0, error, gap_scale, prefix_scale, limit)
            if mean and gap_cost > field_cost:
                c = head // steps
                error = max(abs(head - c * steps), head_most - c, c - head_least)
                gap_cost = min(gap_cost, _gap_cost(ux, uy, nu, lx, ly, nl, c, 0, error, gap_scale, prefix_scale, limit))
            value = max(value, gap_cost)
        cost[b + 1] = value
        if value > limit:
            c_low, c_high = slope_low, slope_high
            if steps > 0:
                c_low, c_high = max(c_low, head_most - gap_reach), min(c_high, head_least + gap_reach)
            if field_bound > limit * _SLACK or c_low > c_high * _SLACK + 1e-6:
                return b + 1
    return cuts.size - 1


@njit(cache=True, nogil=True)
def shrink(rows: Rows, scratch: Scratch) -> None:
    """Fill ``scratch.cost[k]`` with the cost of rows k to the end, for all k > 0: `grow`, mirrored."""
    gap, sums, whole, scales, mean, skew = rows.gap, rows.sums, rows.whole, rows.scales, rows.mean, rows.skew
    row_low, row_high = rows.low, rows.high
    low, high, ux, uy, lx, ly, cost = scratch
    gap_scale, prefix_scale = scales[low.size], scales[low.size + 1]
    m = gap.size
    low[:] = np.inf
    high[:] = -np.inf
    field_cost = 0.0
    least = most = gap[m - 1]
    head_least, head_most = _BIG, -1
    nu = nl = 0
    for k in range(m - 1, 0, -1):
        if widen(low, high, row_low, row_high, k):
            field_cost, _ = field_costs(low, high, whole, scales, skew)
        value = field_cost
        steps = m - k - 1
        if steps > 0:
            # points arrive from left to right as x = rows to the end
            nu = _push(ux, uy, nu, steps, sums[k + 1] - sums[m], 1)
            nl = _push(lx, ly, nl, steps, sums[k + 1] - sums[m], -1)
            head_least, head_most = min(head_least, gap[k]), max(head_most, gap[k])
            least, most = min(least, gap[k]), max(most, gap[k])
            head = sums[m - 1] - sums[k]
            c = gap_constant(least, most, sums[m] - sums[k], steps + 1)
            error = max(abs(head - c * steps), head_most - c, c - head_least)
            shift = sums[k] - sums[m] + c * (steps + 1)
            gap_cost = _gap_cost(ux, uy, nu, lx, ly, nl, -c, shift, error, gap_scale, prefix_scale, np.inf)
            if mean and gap_cost > field_cost:
                c = head // steps
                error = max(abs(head - c * steps), head_most - c, c - head_least)
                shift = sums[k] - sums[m] + c * (steps + 1)
                gap_cost = min(gap_cost, _gap_cost(ux, uy, nu, lx, ly, nl, -c, shift, error, gap_scale, prefix_scale, np.inf))
            value = max(value, gap_cost)
        cost[k] = value
