"""Compiled searches over the cuts of one step stream.

Import this module inside functions: importing numba takes a third of a second.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from commcanary_lab.canary.interval_costs import Blocks, grow, make_scratch, shrink, single_blocks
from commcanary_lab.canary.interval_rows import Rows, encode_rows, part, ratio

__all__ = ["beam", "best_partition", "changes", "edges", "farthest", "fewest", "greedy", "settle", "two_cut", "within"]


@njit(cache=True, nogil=True)
def edges(
    rows: Rows, blocks: Blocks, limit: float, max_tries: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], bool]:
    """Return every interval between cuts that costs at most `limit`: pointers per first cut, last cuts, costs.

    The last value is false if more than `max_tries` intervals were looked at and the search stopped.
    """
    count = blocks.cuts.size - 1
    scratch = make_scratch(rows.low.shape[1], rows.gap.size)
    values = scratch.cost
    ptr = np.zeros(count + 1, np.int64)
    to = np.empty(1024, np.int32)
    cost = np.empty(1024)
    n = 0
    tried = 0
    for a in range(count):
        last = grow(rows, blocks, scratch, a, limit)
        tried += last - a
        if tried > max_tries:
            return ptr, to[:n], cost[:n], False
        while n + last - a > to.size:
            to = np.concatenate((to, np.empty(to.size, np.int32)))
            cost = np.concatenate((cost, np.empty(cost.size)))
        for b in range(a + 1, last + 1):
            if values[b] <= limit:
                to[n] = b
                cost[n] = values[b]
                n += 1
        ptr[a + 1] = n
    return ptr, to[:n], cost[:n], True


@njit(cache=True, nogil=True)
def fewest(ptr: NDArray[np.int64], to: NDArray[np.int32], cost: NDArray[np.float64], limit: float) -> NDArray[np.int64]:
    """Return the cuts of the partition with the fewest intervals that cost at most `limit`; of these, the earliest cuts."""
    count = ptr.size - 1
    far = np.iinfo(np.int32).max
    need = np.full(count + 1, far, np.int32)
    need[count] = 0
    for a in range(count - 1, -1, -1):
        best = far
        for e in range(ptr[a], ptr[a + 1]):
            if cost[e] <= limit and need[to[e]] < best:
                best = need[to[e]]
        if best < far:  # a single block between two cuts may already be too costly
            need[a] = best + 1
    if need[0] == far:
        return np.zeros(0, np.int64)
    out = np.zeros(need[0] + 1, np.int64)
    a = 0
    for k in range(1, out.size):
        for e in range(ptr[a], ptr[a + 1]):
            if cost[e] <= limit and need[to[e]] == need[a] - 1:
                out[k] = to[e]
                break
        a = out[k]
    return out


@njit(cache=True, nogil=True)
def best_partition(rows: Rows, blocks: Blocks, limit: float, max_intervals: int, max_tries: int) -> tuple[NDArray[np.int64], float]:
    """Return the best partition at the candidate cuts that costs at most `limit` (its block numbers), and its cost; empty if given up.

    One call from end to end, so that several streams are searched at once.
    """
    ptr, to, cost, complete = edges(rows, blocks, limit, max_tries)
    if not complete:
        return np.zeros(0, np.int64), limit
    high, best = limit, fewest(ptr, to, cost, limit)
    low = -1.0  # no partition costs this little; `high` always suffices
    for every in (max(1, cost.size // 256), 1):  # a sample first, so that few costs are left to sort
        sample = cost[::every]
        costs = np.unique(sample[(sample > low) & (sample <= high)])
        first, last = 0, costs.size
        while first < last:
            middle = (first + last) // 2
            chosen = fewest(ptr, to, cost, costs[middle])
            if chosen.size and chosen.size - 1 <= max_intervals:
                best, high = chosen, costs[middle]
                last = middle
            else:
                low = costs[middle]
                first = middle + 1
    return best, high


@njit(cache=True, nogil=True)
def farthest(rows: Rows, blocks: Blocks, limit: float, max_intervals: int) -> NDArray[np.int64]:
    """Return cuts of greedy longest intervals that cost at most `limit`; empty if more than `max_intervals` are needed."""
    count = blocks.cuts.size - 1
    scratch = make_scratch(rows.low.shape[1], rows.gap.size)
    cost = scratch.cost
    out = np.zeros(max_intervals + 1, np.int64)
    n = 0
    a = 0
    while a < count:
        best = grow(rows, blocks, scratch, a, limit)
        while best > a and cost[best] > limit:
            best -= 1
        if n == max_intervals or best == a:
            return out[:0]
        n += 1
        out[n] = best
        a = best
    return out[: n + 1]


@njit(cache=True, nogil=True)
def greedy(rows: Rows, blocks: Blocks, high: float, max_intervals: int) -> NDArray[np.int64]:
    """Return cuts of greedy longest intervals at the smallest limit below `high` that bisection finds to suffice; empty for none."""
    low = 0.0
    found = np.zeros(0, np.int64)
    for _ in range(16):
        middle = low + (high - low) / 2
        cuts = farthest(rows, blocks, middle, max_intervals)
        if cuts.size:
            found = cuts
            high = middle
        else:
            low = middle
    return found


@njit(cache=True, nogil=True)
def two_cut(rows: Rows) -> tuple[int, float]:
    """Return the cut into two intervals with the smallest larger cost (the earliest such), and that cost, in near-linear time.

    All beginnings are swept from the left, all ends from the right.
    """
    m = rows.gap.size
    scratch = make_scratch(rows.low.shape[1], m)
    grow(rows, single_blocks(rows), scratch, 0, np.inf)
    left = scratch.cost.copy()
    shrink(rows, scratch)
    best = np.inf
    cut = m
    for k in range(1, m):
        cost = max(left[k], scratch.cost[k])
        if cost < best:
            best = cost
            cut = k
    return cut, best


@njit(cache=True, nogil=True)
def changes(rows: Rows) -> NDArray[np.float64]:
    """Return per row but the first how much fields and gap change before it, in units of their scales."""
    gap, low, high, scales = rows.gap, rows.low, rows.high, rows.scales
    fields = low.shape[1]
    out = np.zeros(max(gap.size - 1, 0))
    for k in range(1, gap.size):
        size = ratio(float(abs(gap[k] - gap[k - 1])), scales[fields])
        for f in range(fields):
            if low[k, f] <= high[k, f] and low[k - 1, f] <= high[k - 1, f]:
                size = max(size, ratio(abs(low[k, f] - low[k - 1, f]), scales[f]))
        out[k - 1] = size
    return out


@njit(cache=True, nogil=True)
def _alone(rows: Rows, begin: int, end: int) -> float:
    """Cost of one interval."""
    errors = encode_rows(rows, np.array([begin, end]))[3]
    cost = 0.0
    for f in range(errors.shape[0]):
        cost = max(cost, ratio(errors[f, 0], rows.scales[f]))
    return cost


@njit(cache=True, nogil=True)
def within(rows: Rows, row_ptr: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which streams are within all budgets as one interval (or empty)."""
    out = np.empty(row_ptr.size - 1, np.bool_)
    for s in range(row_ptr.size - 1):
        out[s] = row_ptr[s] == row_ptr[s + 1] or _alone(rows, row_ptr[s], row_ptr[s + 1]) <= 1.0
    return out


@njit(cache=True, nogil=True)
def settle(rows: Rows, row_ptr: NDArray[np.int64], max_intervals: int) -> NDArray[np.int64]:
    """Return per stream where its only cut is (its end for a single interval), or -1 where that takes a search."""
    out = np.full(row_ptr.size - 1, -1, np.int64)
    for s in range(row_ptr.size - 1):
        begin = row_ptr[s]
        end = row_ptr[s + 1]
        if begin == end or max_intervals == 1:
            out[s] = end
            continue
        alone = _alone(rows, begin, end)
        if alone == 0.0:
            out[s] = end
        elif max_intervals == 2:
            cut, cost = two_cut(part(rows, begin, end))
            out[s] = begin + cut if cost < alone else end
    return out


@njit(cache=True, nogil=True)
def beam(rows: Rows, blocks: Blocks, width: int) -> NDArray[np.int64]:
    """Fewest intervals of cost at most 1 that begin at up to `width` positions per layer: the farthest, and some behind them."""
    m = rows.gap.size
    parent = np.full(m + 1, -1, np.int64)
    parent[0] = 0
    layer = np.zeros(1, np.int64)
    scratch = make_scratch(rows.low.shape[1], m)
    cost = scratch.cost
    while True:
        last = 0
        for a in layer:
            end = grow(rows, blocks, scratch, a, 1.0)
            for b in range(a + 1, end + 1):
                if cost[b] <= 1.0:
                    if parent[b] < 0:
                        parent[b] = a
                    last = max(last, b)
        if last == m:
            break
        following = np.empty(width, np.int64)
        n = 0
        k = last
        floor = layer[layer.size - 1]
        step = 1
        while k > floor and n < width:
            if parent[k] >= 0:
                following[n] = k
                n += 1
                if 2 * n >= width:
                    step *= 2
            k -= step
        layer = np.sort(following[:n])
    count = 0
    k = m
    while k > 0:
        k = parent[k]
        count += 1
    out = np.zeros(count + 1, np.int64)
    k = m
    for i in range(count, 0, -1):
        out[i] = k
        k = parent[k]
    return out
