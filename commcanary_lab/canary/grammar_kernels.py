"""Compiled kernels over a grammar's columns. Nothing here recurses: depth is bounded by the number of rules.

Import this module inside functions: importing numba takes a third of a second.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["executed_once", "expand_items", "label_leaves", "lengths", "post_order", "pre_order"]

_TOO_LONG = 4.0e18


@njit(cache=True)
def post_order(values: NDArray[np.int32], row_ptr: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the reachable rules, children first, and a rule that (indirectly) contains itself, or -1."""
    rules = row_ptr.size - 1
    state = np.zeros(rules, np.int8)  # 0 new, 1 open, 2 done
    order = np.empty(rules, np.int64)
    stack = np.empty(rules, np.int64)
    item = np.empty(rules, np.int64)
    done = 0
    depth = 0
    stack[0] = 0
    item[0] = row_ptr[0]
    state[0] = 1
    while depth >= 0:
        r = stack[depth]
        x = item[depth]
        while x < row_ptr[r + 1] and (values[x] >= 0 or state[-values[x]] == 2):
            x += 1
        item[depth] = x
        if x == row_ptr[r + 1]:
            state[r] = 2
            order[done] = r
            done += 1
            depth -= 1
            continue
        q = -values[x]
        if state[q] == 1:
            return order[:done], q
        state[q] = 1
        depth += 1
        stack[depth] = q
        item[depth] = row_ptr[q]
    return order[:done], -1


@njit(cache=True)
def pre_order(values: NDArray[np.int64], row_ptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rules of an acyclic grammar in the order in which its program first enters them."""
    rules = row_ptr.size - 1
    seen = np.zeros(rules, np.bool_)
    order = np.empty(rules, np.int64)
    stack = np.empty(rules, np.int64)
    item = np.empty(rules, np.int64)
    count = 1
    depth = 0
    order[0] = 0
    stack[0] = 0
    item[0] = row_ptr[0]
    seen[0] = True
    while depth >= 0:
        r = stack[depth]
        x = item[depth]
        while x < row_ptr[r + 1] and (values[x] >= 0 or seen[-values[x]]):
            x += 1
        if x == row_ptr[r + 1]:
            depth -= 1
            continue
        item[depth] = x + 1
        q = -values[x]
        seen[q] = True
        order[count] = q
        count += 1
        depth += 1
        stack[depth] = q
        item[depth] = row_ptr[q]
    return order[:count]


@njit(cache=True)
def lengths(
    values: NDArray[np.int32], counts: NDArray[np.int64], row_ptr: NDArray[np.int64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the expanded length of every rule; -1 where it would leave int64."""
    length = np.zeros(row_ptr.size - 1, np.int64)
    for r in order:
        total = 0
        rough = 0.0
        for x in range(row_ptr[r], row_ptr[r + 1]):
            size = 1
            if values[x] < 0:
                size = length[-values[x]]
            if size < 0:
                rough = _TOO_LONG
                break
            rough += float(size) * float(counts[x])
            if rough >= _TOO_LONG:
                break
            total += size * counts[x]
        length[r] = total if rough < _TOO_LONG else -1
    return length


@njit(cache=True)
def expand_items(
    values: NDArray[np.int32],
    counts: NDArray[np.int64],
    row_ptr: NDArray[np.int64],
    length: NDArray[np.int64],
    label: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return the label of the item behind every event. Each rule is walked once; all its other executions are copies."""
    rules = row_ptr.size - 1
    out = np.empty(length[0], np.int32)
    first = np.full(rules, -1, np.int64)
    stack = np.empty(rules, np.int64)
    item = np.empty(rules, np.int64)
    origin = np.empty(rules, np.int64)
    depth = 0
    at = 0
    stack[0] = 0
    item[0] = row_ptr[0]
    origin[0] = 0
    while True:
        r = stack[depth]
        x = item[depth]
        copy_from = -1
        size = 0
        if x == row_ptr[r + 1]:
            first[r] = origin[depth]
            depth -= 1
            if depth < 0:
                break
            x = item[depth]
            copy_from = first[r]
            size = length[r] * (counts[x] - 1)
        elif values[x] >= 0:
            for k in range(counts[x]):
                out[at + k] = label[x]
            at += counts[x]
        elif first[-values[x]] >= 0:
            copy_from = first[-values[x]]
            size = length[-values[x]] * counts[x]
        else:
            depth += 1
            stack[depth] = -values[x]
            item[depth] = row_ptr[-values[x]]
            origin[depth] = at
            continue
        if size > 0:
            # source and target may touch: a forward copy then repeats the first body, which is what is wanted
            period = length[r] if copy_from == first[r] else length[-values[x]]
            for k in range(min(period, size)):
                out[at + k] = out[copy_from + k]
            for k in range(period, size):
                out[at + k] = out[at + k - period]
            at += size
        item[depth] = x + 1
    return out


@njit(cache=True)
def executed_once(
    values: NDArray[np.int32], counts: NDArray[np.int64], row_ptr: NDArray[np.int64], order: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which rules run exactly once in the whole program."""
    times = np.zeros(row_ptr.size - 1, np.int64)  # 0, 1, or 2 for "more"
    times[0] = 1
    for k in range(order.size - 1, -1, -1):
        r = order[k]
        for x in range(row_ptr[r], row_ptr[r + 1]):
            if values[x] < 0:
                more = 2 if counts[x] > 1 else times[r]
                times[-values[x]] = min(2, times[-values[x]] + more)
    return times == 1


@njit(cache=True)
def label_leaves(
    values: NDArray[np.int32], row_ptr: NDArray[np.int64], once: NDArray[np.bool_], symbols: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the leaf of every item (-1 for references), and the rule and item of every leaf."""
    label = np.full(values.size, -1, np.int32)
    rule = np.empty(values.size, np.int64)
    item = np.empty(values.size, np.int64)
    shared = np.full(symbols, -1, np.int64)
    count = 0
    for r in range(row_ptr.size - 1):
        for x in range(row_ptr[r], row_ptr[r + 1]):
            v = values[x]
            if v < 0:
                continue
            if once[r] and shared[v] >= 0:
                label[x] = shared[v]
                continue
            if once[r]:
                shared[v] = count
            label[x] = count
            rule[count] = r
            item[count] = x - row_ptr[r]
            count += 1
    return label, rule[:count], item[:count]
