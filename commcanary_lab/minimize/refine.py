"""Lower the timing budget of one signature group at a time while the canary still passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from commcanary_lab.minimize.plan import EXACT, Recipe

if TYPE_CHECKING:
    from commcanary_lab.minimize.work import Work

__all__ = ["refine"]

_ROUNDS = 3


def refine(work: Work, calls: int, levels: Sequence[str]) -> bool:
    """Refine the best candidate of a search; appends what it tries to the candidates.

    Each group, the costliest first, gets the cheapest level that bisection over its cheaper levels finds to pass; rounds go on until
    none changes. Passing is not monotone in the level, so this is a heuristic: it never accepts what does not pass, and need not find
    the smallest combination.

    Parameters
    ----------
    work : Work
        With a judged range.
    calls : int
        Candidates that may be judged.
    levels : sequence of str
        Levels to choose from, besides exact timing.

    Returns
    -------
    bool
        False when `calls` ended it.
    """
    best = work.best()
    if best is None or not calls:
        return best is None or not levels
    plan = work.workshop.plan
    program = "nested" if best.recipe.program == "lossless" else best.recipe.program
    groups = plan.group_count(program)
    if not groups:
        return True
    levels = [EXACT, *levels]
    start = best.recipe.levels or (EXACT,)
    current = list(start) * groups if len(start) == 1 else list(start)
    costs = np.stack([plan.group_sizes(program, level) for level in levels])
    left = calls
    for _ in range(_ROUNDS):
        changed = False
        now = np.array([costs[levels.index(level), g] for g, level in enumerate(current)])
        for g in np.argsort(-now, kind="stable").tolist():
            cheaper = _cheaper(levels, costs[:, g], levels.index(current[g]))
            low, high = 0, len(cheaper)
            while low < high:
                if not left:
                    return False
                middle = (low + high) // 2
                tried = [*current[:g], cheaper[middle], *current[g + 1 :]]
                left -= 1
                if _passes(work, Recipe(program, tuple(tried))):
                    current, high, changed = tried, middle, True
                else:
                    low = middle + 1
        if not changed:
            return True
    return True


def _cheaper(levels: Sequence[str], costs: np.ndarray, current: int) -> list[str]:
    """Levels that cost fewer bytes than the current one, cheapest first; of equal costs the first."""
    order = [i for i in np.argsort(costs, kind="stable").tolist() if costs[i] < costs[current]]
    kept = [i for j, i in enumerate(order) if j == 0 or costs[i] != costs[order[j - 1]]]
    return [levels[i] for i in kept]


def _passes(work: Work, recipe: Recipe) -> bool:
    """Whether a combination is smaller than the best so far and passes."""
    best = work.best()
    work.check()
    work.measure([("refine", recipe)])
    found = work.candidates[-1]
    if found.status == "duplicate":
        same = next(c for c in work.candidates if c.sha256 == found.sha256)
        return same.status == "accepted"
    if best is not None and found.size_bytes >= best.size_bytes:
        return False
    return work.judge([found.index])[0].status == "accepted"
