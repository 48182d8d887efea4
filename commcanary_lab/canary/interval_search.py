"""Where to cut a stream: exact where the search space allows it, candidate cuts refined round by round where it does not.

Import this module inside functions: importing numba takes a third of a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commcanary_lab.canary.interval_costs import Blocks, grow, make_blocks, make_scratch, single_blocks
from commcanary_lab.canary.interval_cuts import beam, best_partition, changes, edges, farthest, fewest, greedy
from commcanary_lab.canary.interval_rows import Rows, encode_rows

__all__ = ["Found", "cover", "minimise"]

#: Streams up to this many rows are always solved exactly (at most 131 thousand intervals).
EXACT_ROWS = 512
#: Longer streams are solved exactly, too, if about this many intervals (or so many per row) can beat the best partition known.
MAX_TRIES = 1 << 17
TRIES_PER_ROW = 16
#: Cut candidates per round otherwise: a tenth of the rows within these limits, or so many per interval if that is more.
CANDIDATES = 320
MORE_CANDIDATES = 896
CANDIDATES_PER_INTERVAL = 24
MAX_ROUNDS = 6
#: The grid moves by this part of its spacing from round to round.
GOLDEN = 0.6180339887498949
#: Positions from which the budget search goes on, per interval: fewer for very long streams.
MAX_BEAM = 64
MIN_BEAM = 16
BEAM_ROWS = 1 << 21


class Found(NamedTuple):
    """Cuts (0, ..., m) and whether they are known to be optimal."""

    cuts: NDArray[np.int64]
    exact: bool


def cost_of(rows: Rows, cuts: NDArray[np.int64]) -> float:
    """Largest error / scale of a partition."""
    errors = encode_rows(rows, cuts)[3]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(errors == 0.0, 0.0, errors / rows.scales[:, None])
    return float(ratios.max(initial=0.0))


def minimise(rows: Rows, max_intervals: int) -> Found:
    """Return at most `max_intervals` intervals with a small largest cost; see `intervals.partition` for what is exact."""
    m = rows.gap.size
    max_intervals = min(max_intervals, m)
    single = single_blocks(rows)
    free = farthest(rows, single, 0.0, max_intervals)
    wanted = max(CANDIDATES, min(MORE_CANDIDATES, m // 10), CANDIDATES_PER_INTERVAL * max_intervals)
    few = wanted < m and m > EXACT_ROWS
    blocks = make_blocks(rows, _grid(rows, max_intervals, wanted)) if few else single
    if free.size:
        best, limit = free, 0.0
    else:
        best, limit = _incumbent(rows, blocks, max_intervals)
    if _feasible(rows, single, limit):
        exact, _ = _best(rows, single, limit, max_intervals)
        if exact.size:
            return Found(exact, True)
    if limit == 0.0:
        return Found(best, False)
    return Found(_rounds(rows, blocks, best, limit, max_intervals, wanted), False)


def _feasible(rows: Rows, single: Blocks, limit: float) -> bool:
    """Whether all intervals that may cost at most `limit` can be looked at; estimated from up to 32 first rows."""
    m = rows.gap.size
    if m <= EXACT_ROWS:
        return True
    scratch = make_scratch(rows.low.shape[1], m)
    total = 0
    for k in range(32):
        a = k * m // 32
        total += grow(rows, single, scratch, a, limit) - a
        if total * m > 32 * _tries(m):
            return False
    return True


def _tries(m: int) -> int:
    return max(MAX_TRIES, TRIES_PER_ROW * m)


def _grid(rows: Rows, max_intervals: int, wanted: int) -> NDArray[np.int64]:
    """First candidate cuts: an even grid, the even split, and both sides of the rows before which most changes."""
    m = rows.gap.size
    grid = np.arange(wanted // 2 + 1) * m // (wanted // 2)
    even = np.arange(max_intervals + 1) * m // max_intervals
    jumps = _jumps(rows, wanted // 4)
    cuts = np.unique(np.concatenate([even, grid, jumps, jumps + 1]))
    return cuts[cuts <= m]


def _jumps(rows: Rows, count: int) -> NDArray[np.int64]:
    """The `count` rows before which fields and gaps change most, in units of their scales; ties go to the earliest."""
    size = changes(rows)
    if size.size <= count:
        return np.arange(1, size.size + 1)
    threshold = np.partition(size, size.size - count)[size.size - count]
    above = np.flatnonzero(size > threshold)
    return np.concatenate([above, np.flatnonzero(size == threshold)[: count - above.size]]) + 1


def _incumbent(rows: Rows, blocks: Blocks, max_intervals: int) -> tuple[NDArray[np.int64], float]:
    """A fair partition to beat, and its cost: greedy longest intervals at the smallest limit that bisection finds, or the even split."""
    m = rows.gap.size
    best = np.unique(np.arange(max_intervals + 1) * m // max_intervals)
    cost = cost_of(rows, best)
    found = greedy(rows, blocks, cost, max_intervals)
    if found.size:
        cuts = blocks.cuts[found]
        other = cost_of(rows, cuts)
        if other < cost:
            return cuts, other
    return best, cost


def _best(rows: Rows, blocks: Blocks, limit: float, max_intervals: int) -> tuple[NDArray[np.int64], float]:
    """Best partition at the candidate cuts whose cost is at most `limit`, and its cost; empty if that takes too long."""
    best, cost = best_partition(rows, blocks, limit, max_intervals, 4 * _tries(rows.gap.size))
    return blocks.cuts[best], cost


def _rounds(rows: Rows, blocks: Blocks, best: NDArray[np.int64], limit: float, max_intervals: int, wanted: int) -> NDArray[np.int64]:
    """Best partition at the candidate cuts, then with candidates ever closer around the best cuts known."""
    m = rows.gap.size
    spacing = max(1, 2 * m // wanted)
    for turn in range(1, MAX_ROUNDS + 1):
        cuts, cost = _best(rows, blocks, limit, max_intervals)
        if cuts.size == 0:
            break
        done = spacing == 1 and cost >= limit
        best, limit = cuts, cost
        if done or limit == 0.0:
            break
        inner = best[1:-1]
        half = max(1, wanted // (4 * max(1, inner.size)))
        spacing = max(1, -(-spacing // half))
        window = np.arange(-half, half + 1) * spacing
        near = (inner[:, None] + window).ravel()
        grid = (np.arange(wanted // 2) + turn * GOLDEN % 1.0) * m / (wanted // 2)
        candidates = np.unique(np.concatenate([[0, m], best, grid.astype(np.int64), near[(near > 0) & (near < m)]]))
        blocks = make_blocks(rows, candidates)
    return best


def cover(rows: Rows) -> Found:
    """Return few intervals that cost at most 1 (scales are budgets); see `intervals.partition_by_budget` for what is exact."""
    m = rows.gap.size
    single = single_blocks(rows)
    fields = rows.low.shape[1]
    monotone = np.isinf(rows.scales[fields:]).all() and (rows.skew < 0 or np.isinf(rows.scales[rows.skew]))
    if monotone and m > EXACT_ROWS:
        # longest intervals are optimal, though their cuts are not the earliest
        return Found(farthest(rows, single, 1.0, m), True)
    if _feasible(rows, single, 1.0):
        ptr, to, cost, complete = edges(rows, single, 1.0, 4 * _tries(m))
        if complete:
            return Found(fewest(ptr, to, cost, 1.0), True)
    longest = farthest(rows, single, 1.0, m)
    layered = beam(rows, single, max(MIN_BEAM, min(MAX_BEAM, BEAM_ROWS // m)))
    return Found(layered if layered.size < longest.size else longest, False)
