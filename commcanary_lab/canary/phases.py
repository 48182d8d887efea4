"""Split runs of equal operations by the period of their timing.

Attention and MLP of a layer may end in the same all-reduce, with different compute before it. As far as signatures tell, a decode
step is then one run of all-reduces; its timing alternates. Bounded timing needs one stream per position in the loop body, so such a
run becomes a loop over as many positions as its timing has phases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.grammar import Grammar, Leaves

__all__ = ["PERIODS", "split_runs"]

#: Periods that are looked for, besides the length of the whole run up to `_LONGEST`: the first operation of a step may wait longer.
PERIODS = (2, 3, 4, 5, 6, 8, 12, 16)
_LONGEST = 256
#: A split must leave less than this share of the spread, and be as good as any other period up to `_SLACK`.
_GAIN = 0.7
_SLACK = 1.15
#: Fewest executions per phase.
_MIN_ROWS = 8


def split_runs(program: Grammar, leaves: Leaves, features: npt.NDArray[np.float64]) -> Grammar:
    """Return the program with terminal runs split by the period of their timing.

    Parameters
    ----------
    program : Grammar
        Terminals are symbols.
    leaves : Leaves
        Of `program`.
    features : ndarray of float64, shape (F, n)
        Timing of each event, in units in which fields compare.

    Returns
    -------
    Grammar
        Expands to the same symbols.

    Examples
    --------
    >>> from commcanary_lab.canary.grammar import leaf_occurrences
    >>> g = Grammar.from_rules([[(0, 32)]])
    >>> print(split_runs(g, leaf_occurrences(g), np.array([[45.0, 60.0] * 16])).text())
    R0 = R1^16
    R1 = 0 0
    """
    order = np.argsort(leaves.event_leaf, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(leaves.event_leaf, minlength=len(leaves.symbol)))])
    terminal = np.flatnonzero(leaves.item_leaf >= 0)
    common = np.zeros(len(leaves.symbol), np.int64)
    np.gcd.at(common, leaves.item_leaf[terminal], program.counts[terminal])
    values, counts = program.values.astype(np.int64), np.array(program.counts)
    bodies: list[list[int]] = []
    for leaf in np.flatnonzero(common > 1).tolist():
        rows = order[bounds[leaf] : bounds[leaf + 1]]
        period = _period(features[:, rows], int(common[leaf]))
        if period == 1:
            continue
        bodies.append([int(leaves.symbol[leaf])] * period)
        items = terminal[leaves.item_leaf[terminal] == leaf]
        values[items] = -(program.rule_count + len(bodies) - 1)
        counts[items] //= period
    if not bodies:
        return program
    flat = np.array([s for body in bodies for s in body], np.int64)
    ends = program.row_ptr[-1] + np.cumsum([len(body) for body in bodies])
    return Grammar(np.concatenate([values, flat]).astype(np.int32), np.concatenate([counts, np.ones(len(flat), np.int64)]),
                   np.concatenate([program.row_ptr, ends]))  # fmt: skip


def _period(features: npt.NDArray[np.float64], common: int) -> int:
    """The smallest period that explains the spread of the timing; 1 if none does."""
    rows = features.shape[1]
    if rows < 2 * _MIN_ROWS:
        return 1
    spreads = {1: float(features.std(axis=1, ddof=1).sum())}
    for p in {*PERIODS, common}:
        if common % p == 0 and rows >= _MIN_ROWS * p and p <= _LONGEST:
            spreads[p] = float(features.reshape(len(features), -1, p).std(axis=1, ddof=1).mean(axis=1).sum())
    best = min(spreads.values())
    if len(spreads) == 1 or best >= _GAIN * spreads[1]:
        return 1
    return min(p for p, spread in spreads.items() if spread <= max(best * _SLACK, 1e-9))
