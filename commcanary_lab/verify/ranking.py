"""Ranking decisions: for each pair of backends and each metric, which one is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from commcanary_lab.simulate.report import Report
from commcanary_lab.verify.model import Check, Tolerances

__all__ = ["METRICS", "Decision", "decisions", "ranking_checks"]

#: Metrics that decide; lower is better.
METRICS = ("median_us", "p95_us", "p99_us", "mean_us")


@dataclass(frozen=True)
class Decision:
    """One ranking decision: ``left``, ``right`` or ``tie``."""

    left: str
    right: str
    metric: str
    outcome: str


def decisions(reports: Sequence[Report], tie_us: float = 0.001) -> tuple[Decision, ...]:
    """Return the decision of every pair of reports on every metric, from the rounded metrics.

    Parameters
    ----------
    reports : sequence of Report
        One per backend.
    tie_us : float
        Differences up to this are ties.
    """
    out = []
    for a, b in combinations(reports, 2):
        for metric in METRICS:
            difference = a.metrics[metric] - b.metrics[metric]
            outcome = "tie" if abs(difference) <= tie_us else ("left" if difference < 0 else "right")
            out.append(Decision(a.backend.label, b.backend.label, metric, outcome))
    return tuple(out)


def ranking_checks(source: Sequence[Report], canary: Sequence[Report], tolerances: Tolerances) -> list[Check]:
    """Compare the decisions of a source and a canary, one check each.

    Returns
    -------
    list of Check
    """
    pairs = zip(decisions(source, tolerances.tie_us), decisions(canary, tolerances.tie_us), strict=True)
    return [Check("ranking", d.metric, d.outcome == e.outcome, d.outcome, e.outcome, f"{d.left} / {d.right}") for d, e in pairs]
