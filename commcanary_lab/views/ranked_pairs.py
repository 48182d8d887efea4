"""Ranking decisions as pairs: what the source decides, what its canary decides, and the values behind both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product

from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.report import Report
from commcanary_lab.verify.model import Check, Verification
from commcanary_lab.verify.ranking import METRICS, decisions

__all__ = ["METRIC_WORDS", "RankedPair", "ranked_pairs", "ranking_csv", "telling_metric"]

#: Metrics that decide, in the words of the user.
METRIC_WORDS = {"median_us": "median", "p95_us": "p95", "p99_us": "p99", "mean_us": "mean"}


@dataclass(frozen=True)
class RankedPair:
    """One pair of backends under one metric, lower is better.

    Parameters
    ----------
    left, right : str
        The backends.
    metric : str
        One of `METRIC_WORDS`.
    source : str
        Decision of the source: ``left``, ``right`` or ``tie``.
    canary : str or None
        Decision of the canary; None without a canary.
    source_left_us, source_right_us, canary_left_us, canary_right_us : float or None
        The metric on both backends, microseconds.
    """

    left: str
    right: str
    metric: str
    source: str
    canary: str | None = None
    source_left_us: float | None = None
    source_right_us: float | None = None
    canary_left_us: float | None = None
    canary_right_us: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the canary decides like its source; None without a canary."""
        return None if self.canary is None else self.canary == self.source

    def winner(self, side: str) -> str:
        """Return the name of the better backend in the ``source`` or the ``canary``, or ``tie``."""
        outcome = self.source if side == "source" else self.canary or ""
        return {"left": self.left, "right": self.right}.get(outcome, outcome)

    def values(self, side: str) -> tuple[float | None, float | None]:
        """Return the metric on the left and on the right backend."""
        return (self.source_left_us, self.source_right_us) if side == "source" else (self.canary_left_us, self.canary_right_us)


def ranked_pairs(source: Verification | Sequence[Report], canary: Sequence[Report] | None = None) -> tuple[RankedPair, ...]:
    """Return every pair under every metric.

    Parameters
    ----------
    source : Verification or sequence of Report
        A verification holds the decisions of both sides; otherwise the reports of the source, one per backend.
    canary : sequence of Report, optional
        The reports of the canary, on the same backends.

    Raises
    ------
    UsageError
        If source and canary were simulated on different backends.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> pairs = ranked_pairs([lab.simulate(trace, backend=b) for b in ("baseline", "congested")])
    >>> [(p.metric, p.winner("source"), p.agrees) for p in pairs][:2]
    [('median_us', 'baseline', None), ('p95_us', 'baseline', None)]
    """
    if isinstance(source, Verification):
        return _verified_pairs(source)
    if canary is not None and [r.backend for r in source] != [r.backend for r in canary]:
        raise UsageError("the source and the canary were simulated on different backends", remedy="simulate both on the same ones")
    ours = decisions(source)
    theirs = decisions(canary) if canary is not None else [None] * len(ours)
    a = {r.backend.label: r.metrics for r in source}
    b = {r.backend.label: r.metrics for r in canary or ()}
    out = []
    for d, e in zip(ours, theirs, strict=True):
        values = [side[name][d.metric] if name in side else None for side in (a, b) for name in (d.left, d.right)]
        out.append(RankedPair(d.left, d.right, d.metric, d.outcome, e.outcome if e is not None else None, *values))
    return tuple(out)


def _verified_pairs(v: Verification) -> tuple[RankedPair, ...]:
    """The decisions that a verification compared; the values behind them are among its checks of behaviour."""
    exposed = {(c.backend, c.name): c for c in v.checks if c.status == "behavior" and c.name.startswith("exposed ")}
    pairs = product(combinations(v.backends, 2), METRICS)
    out = []
    for ((left, right), metric), check in zip(pairs, (c for c in v.checks if c.status == "ranking"), strict=True):
        a, b = exposed.get((left, f"exposed {metric}")), exposed.get((right, f"exposed {metric}"))
        values = [_number(c, side) for side in ("source", "canary") for c in (a, b)]
        out.append(RankedPair(left, right, metric, str(check.source), str(check.canary), *values))
    return tuple(out)


def _number(check: Check | None, side: str) -> float | None:
    value = getattr(check, side) if check is not None else None
    return float(value) if isinstance(value, (int, float)) else None


def telling_metric(pairs: Sequence[RankedPair], default: str = "p99_us") -> str:
    """Return the metric under which most decisions differ; the default where none does, or as many.

    Examples
    --------
    >>> telling_metric([RankedPair("a", "b", "p99_us", "left", "left"), RankedPair("a", "b", "mean_us", "left", "tie")])
    'mean_us'
    """
    different = {m: sum(p.agrees is False for p in pairs if p.metric == m) for m in METRIC_WORDS}
    most = max(different.values())
    return default if different[default] == most else next(m for m, n in different.items() if n == most)


def ranking_csv(pairs: Sequence[RankedPair]) -> str:
    """Return all decisions as CSV, with units in the names.

    Examples
    --------
    >>> print(ranking_csv([RankedPair("a", "b", "p99_us", "left", None, 1.0, 2.0)]).splitlines()[1])
    a,b,p99_us,left,,1.0,2.0,,,
    """
    import pandas as pd

    names = [*RankedPair.__dataclass_fields__, "agrees"]
    return pd.DataFrame([{**asdict(p), "agrees": p.agrees} for p in pairs], columns=names).to_csv(index=False)
