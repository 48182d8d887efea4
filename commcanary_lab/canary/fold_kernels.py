"""Compiled kernels that choose which repeats to fold, in which phase, and rewrite the sequence.

Import this module inside functions: importing numba takes a third of a second.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from commcanary_lab.canary.run_kernels import range_hash

__all__ = ["absorb", "choose_phases", "fold", "least_rotations", "range_hashes", "score_runs", "select_runs"]

_NEVER = np.iinfo(np.int32).max


@njit(cache=True, inline="always")
def _next_free(free: NDArray[np.int32], x: int) -> int:
    """First unpainted position at or after x (path halving)."""
    while free[x] != x:
        free[x] = free[free[x]]
        x = free[x]
    return x


@njit(cache=True)
def score_runs(
    period: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return what folding each run would save once the shorter loops inside its body are folded, and where bodies are cut.

    Runs are sorted by (period, start). A position that a run of a shorter period repeats counts nothing towards the size of
    a longer body, so that `(A B)^8 C (A B)^7 C` twice does not outweigh its own inner loops. The second array holds, for
    each position, the shortest period of a run that has this position strictly inside: no good place to begin a longer body.
    """
    runs = period.size
    score = np.zeros(runs, np.int64)
    inside = np.full(n + 1, _NEVER, np.int32)
    if runs == 0:
        return score, inside
    tree = np.zeros(n + 1, np.int32)  # Fenwick tree over "position counts"
    for i in range(1, n + 1):
        tree[i] = i & -i
    free = np.arange(n + 2).astype(np.int32)
    free_inside = free.copy()
    longest = period[runs - 1]
    first = 0
    while first < runs:
        p = period[first]
        last = first
        while last < runs and period[last] == p:
            weight = 0
            i = start[last] + p
            while i > 0:
                weight += tree[i]
                i &= i - 1
            i = start[last]
            while i > 0:
                weight -= tree[i]
                i &= i - 1
            score[last] = ((end[last] - start[last]) // p - 1) * max(weight, 1)
            last += 1
        if p == longest:
            break
        for r in range(first, last):
            x = _next_free(free, start[r] + p)
            while x < end[r]:
                i = x + 1
                while i <= n:
                    tree[i] -= 1
                    i += i & -i
                free[x] = x + 1
                x = _next_free(free, x)
            x = _next_free(free_inside, start[r] + 1)
            while x < end[r]:
                inside[x] = p
                free_inside[x] = x + 1
                x = _next_free(free_inside, x)
        first = last
    return score, inside


@njit(cache=True)
def select_runs(
    order: NDArray[np.int64],
    period: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    segment: NDArray[np.int64],
    expanded: NDArray[np.int64],
    terminals: NDArray[np.int64],
    min_gain: int,
) -> NDArray[np.int64]:
    """Return non-overlapping runs that pay, best first in `order`, as rows (start, end, period) by position.

    A run that only touches others at its ends is clipped; one that loses more than half that way waits for the next round.
    `segment` is the number of events of the whole sequence that each run lies in, `terminals` the prefix sums of plain symbols.
    """
    n = expanded.size - 1
    taken = np.zeros(n + 1, np.bool_)
    kept = np.empty((order.size, 3), np.int64)
    count = 0
    for r in order:
        p = period[r]
        low = start[r]
        high = end[r]
        while low < high and taken[low]:
            low += 1
        while high > low and taken[high - 1]:
            high -= 1
        times = (high - low) // p
        if times < 2 or 2 * (times - 1) < (end[r] - start[r]) // p - 1:
            continue
        events = expanded[low + p] - expanded[low]
        gain = (times - 1) * p
        if (times - 1) * events < min_gain:
            continue
        # a short repeat of folded loops must not buy its few items with many new steps, unless it explains the sequence
        plain = terminals[low + p] - terminals[low]
        if not (gain >= min_gain or (gain >= 2 and gain >= 4 * plain) or 2 * (expanded[high] - expanded[low]) >= segment[r]):
            continue
        clear = True
        for x in range(low, high):
            if taken[x]:
                clear = False
                break
        if not clear:
            continue
        taken[low:high] = True
        kept[count, 0] = low
        kept[count, 1] = high
        kept[count, 2] = p
        count += 1
    kept = kept[:count]
    return kept[np.argsort(kept[:, 0], kind="mergesort")]


@njit(cache=True)
def least_rotations(
    s: NDArray[np.int64], prefix: NDArray[np.int64], power: NDArray[np.int64], kept: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return per run the offset of the least rotation of its body, and a key that all rotations of one body share."""
    offset = np.zeros(kept.shape[0], np.int64)
    key = np.zeros(kept.shape[0], np.int64)
    for r in range(kept.shape[0]):
        a = kept[r, 0]
        p = kept[r, 2]
        i = 0
        j = 1
        k = 0
        while i < p and j < p and k < p:  # two candidates race; a run holds two periods, so no index wraps
            x = s[a + i + k]
            y = s[a + j + k]
            if x == y:
                k += 1
                continue
            if x > y:
                i += k + 1
            else:
                j += k + 1
            if i == j:
                j += 1
            k = 0
        offset[r] = min(i, j)
        key[r] = range_hash(prefix, power, a + offset[r], a + offset[r] + p) ^ (p << 1)
    return offset, key


@njit(cache=True)
def choose_phases(
    kept: NDArray[np.int64], offset: NDArray[np.int64], group: NDArray[np.int64], rotation: NDArray[np.int64], inside: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return per run where its first body begins and how many bodies it has; fills unknown (-1) rotations of the groups.

    A run of length L and period p leaves L % p symbols over, so its body may begin at L % p + 1 places. All runs of one cyclic
    body begin at the rotation that costs most of them nothing and cuts the fewest shorter loops; ties go to the earliest.
    """
    runs = kept.shape[0]
    groups = rotation.size
    base = np.zeros(groups + 1, np.int64)
    leader = np.full(groups, -1, np.int64)
    for r in range(runs):
        if leader[group[r]] < 0:
            leader[group[r]] = r
    for g in range(groups):
        base[g + 1] = base[g] + (kept[leader[g], 2] if rotation[g] < 0 else 0)
    votes = np.zeros(base[groups], np.int64)
    for r in range(runs):
        g = group[r]
        if rotation[g] >= 0:
            continue
        p = kept[r, 2]
        for phase in range((kept[r, 1] - kept[r, 0]) % p + 1):
            at = kept[r, 0] + phase
            whole = inside[at] >= p and inside[at + p] >= p
            votes[base[g] + (phase - offset[r]) % p] += 3 if whole else 1
    for g in range(groups):
        if rotation[g] < 0:
            p = kept[leader[g], 2]
            best = -1
            for phase in range(p):
                turn = (phase - offset[leader[g]]) % p
                if votes[base[g] + turn] > best:
                    best = votes[base[g] + turn]
                    rotation[g] = turn
    begin = np.empty(runs, np.int64)
    times = np.empty(runs, np.int64)
    for r in range(runs):
        p = kept[r, 2]
        length = kept[r, 1] - kept[r, 0]
        phase = (rotation[group[r]] + offset[r]) % p
        if (length - phase) // p < 2:  # sharing would undo the loop: keep its own best phase
            phase = 0
            for own in range(length % p + 1):
                at = kept[r, 0] + own
                if inside[at] >= p and inside[at + p] >= p:
                    phase = own
                    break
        begin[r] = kept[r, 0] + phase
        times[r] = (length - phase) // p
    return begin, times


@njit(cache=True)
def fold(
    ids: NDArray[np.int64],
    raw: NDArray[np.int64],
    begin: NDArray[np.int64],
    stop: NDArray[np.int64],
    new_id: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and raw offsets with each ``[begin, stop)`` replaced by one id."""
    n = ids.size
    removed = 0
    for r in range(begin.size):
        removed += stop[r] - begin[r] - 1
    out = np.empty(n - removed, np.int64)
    out_raw = np.empty(n - removed, np.int64)
    at = 0
    x = 0
    for r in range(begin.size):
        gap = begin[r] - x
        out[at : at + gap] = ids[x : begin[r]]
        out_raw[at : at + gap] = raw[x : begin[r]]
        at += gap
        out[at] = new_id[r]
        out_raw[at] = raw[begin[r]]
        at += 1
        x = stop[r]
    out[at:] = ids[x:]
    out_raw[at:] = raw[x:]
    return out, out_raw


@njit(cache=True, inline="always")
def _edge(keys: NDArray[np.int64], node: int, symbol: int) -> int:
    """Slot of the edge that leaves `node` with `symbol` in an open hash table of a power-of-two size, or of the hole for it."""
    mask = keys.size - 1
    key = (node << 32) | symbol
    mixed = key * -7046029254386353131  # wraps: a Fibonacci hash
    slot = ((mixed >> 32) ^ mixed) & mask
    while keys[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _trie(text: NDArray[np.int64], row_ptr: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return a trie of the bodies of all rules but the program: edge keys, the node each leads to, the rule that ends at a node."""
    total = row_ptr[-1] - row_ptr[1]
    size = 16
    while size < 2 * total:
        size *= 2
    keys = np.full(size, -1, np.int64)
    target = np.zeros(size, np.int64)
    ends = np.full(total + 1, -1, np.int64)
    nodes = 1
    for r in range(1, row_ptr.size - 1):
        node = 0
        for x in range(row_ptr[r], row_ptr[r + 1]):
            slot = _edge(keys, node, text[x])
            if keys[slot] < 0:
                keys[slot] = (node << 32) | text[x]
                target[slot] = nodes
                nodes += 1
            node = target[slot]
        ends[node] = r
    return keys, target, ends


@njit(cache=True)
def _repeats(text: NDArray[np.int64], begin: int, size: int, at: int, end: int) -> int:
    """How often ``text[begin:begin + size]`` follows itself from `at` on."""
    times = 0
    while at + size <= end:
        for k in range(size):
            if text[begin + k] != text[at + k]:
                return times
        times += 1
        at += size
    return times


@njit(cache=True)
def absorb(
    text: NDArray[np.int64], row_ptr: NDArray[np.int64], events: NDArray[np.int64], min_events: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Replace stray copies of loop bodies, longest first, by references to them.

    `text` holds the bodies of all rules, `events` counts the events of one execution of each. Returns per item a rule (or -1:
    the id stands), the number of repeats, and the new row pointers. Comparisons stop after a budget linear in the text.
    """
    n = text.size
    keys, target, ends = _trie(text, row_ptr)
    rule = np.empty(n, np.int64)
    item = np.empty(n, np.int64)
    rows = np.zeros(row_ptr.size, np.int64)
    budget = 64 * n + 1024
    out = 0
    for row in range(row_ptr.size - 1):
        x = row_ptr[row]
        end = row_ptr[row + 1]
        while x < end:
            match = -1
            times = 0
            node = 0
            at = x
            while at < end and budget > 0:
                slot = _edge(keys, node, text[at])
                if keys[slot] < 0:
                    break
                budget -= 1
                node = target[slot]
                at += 1
                q = ends[node]
                if q < 0 or q == row:
                    continue
                again = _repeats(text, row_ptr[q], at - x, at, end) + 1
                if again * events[q] >= min_events:
                    match = q
                    times = again
            if match >= 0:
                rule[out] = match
                item[out] = times
                x += times * (row_ptr[match + 1] - row_ptr[match])
            else:
                rule[out] = -1
                item[out] = text[x]
                x += 1
            out += 1
        rows[row + 1] = out
    return rule[:out], item[:out], rows


@njit(cache=True)
def range_hashes(
    prefix: NDArray[np.int64], power: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a key per range of the raw sequence: its hash, mixed with its length."""
    out = np.empty(start.size, np.int64)
    for k in range(start.size):
        out[k] = range_hash(prefix, power, start[k], end[k]) ^ ((end[k] - start[k]) << 20)
    return out
