"""One threshold at a time: a latency or the hidden share of two reports against a policy, in exact decimal arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from commcanary_lab.review.policy import Policy
from commcanary_lab.simulate.report import LatencySummary
from commcanary_lab.simulate.report_file import ReportFile

__all__ = ["SEVERITY", "Evaluation", "evaluate"]

#: Verdicts of one evaluation and of all, mildest first.
SEVERITY = ("pass", "warn", "fail")

_LATENCIES = ("median", "p95", "p99")
HIDDEN = "communication_hidden_pct_drop"


@dataclass(frozen=True)
class Evaluation:
    """One value of both reports against its threshold.

    Parameters
    ----------
    scope : str
        ``overall``, ``phase`` or ``operation``.
    name : str or None
        The phase or operation.
    metric : str
        ``median``, ``p95``, ``p99`` (microseconds) or ``communication_hidden_pct_drop`` (percentage points).
    baseline, candidate : float or None
        Both values; None where a report lacks the phase or operation.
    absolute_delta : float or None
        Candidate minus baseline, 3 decimals; for the hidden share the drop in points, 2 decimals, never below 0.
    relative_delta_pct : float or None
        The same relative to the baseline, 2 decimals; None where the baseline is 0.
    relative_status : str or None
        ``finite``, ``zero_baseline`` (then only the absolute threshold decides), ``absent``, or None for the hidden share.
    threshold : float
        Allowed growth in percent, or allowed drop in points.
    absolute_threshold_us : float or None
        Growth up to this never counts.
    threshold_result : str
        ``pass``, ``warn`` or ``fail``.
    """

    scope: str
    name: str | None
    metric: str
    baseline: float | None
    candidate: float | None
    absolute_delta: float | None
    relative_delta_pct: float | None
    relative_status: str | None
    threshold: float
    absolute_threshold_us: float | None
    threshold_result: str

    @property
    def is_hidden_share(self) -> bool:
        """True for the one that compares hidden shares."""
        return self.metric == HIDDEN

    @property
    def label(self) -> str:
        """Short name, such as ``p99`` or ``decode p99``."""
        metric = "hidden share" if self.is_hidden_share else self.metric
        return metric if self.name is None else f"{self.name} {metric}"

    @property
    def key(self) -> str:
        """Name among the deltas of a comparison, such as ``p99_pct`` or ``phase.decode.p99_pct``."""
        if self.is_hidden_share:
            return "hidden_points"
        return f"{self.metric}_pct" if self.name is None else f"{self.scope}.{self.name}.{self.metric}_pct"

    @property
    def delta(self) -> float | None:
        """Relative change in percent, or the change of the hidden share in points."""
        if not self.is_hidden_share:
            return self.relative_delta_pct
        assert self.baseline is not None
        assert self.candidate is not None
        return round(self.candidate - self.baseline, 2)

    @property
    def change(self) -> float | None:
        """`delta` without rounding, for text that rounds once."""
        if self.relative_delta_pct is None or self.baseline is None or self.candidate is None:
            return self.delta if self.is_hidden_share else None
        return float((exact(self.candidate) - exact(self.baseline)) * 100 / exact(self.baseline))

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as a JSON object."""
        out: dict[str, Any] = {"metric": f"{self.scope}.{self.metric}", "baseline": self.baseline, "candidate": self.candidate}
        if self.name is not None:
            out["name"] = self.name
        if self.is_hidden_share:
            out |= {"drop_points": self.absolute_delta, "threshold_points": self.threshold}
        else:
            out |= {
                "absolute_delta": self.absolute_delta,
                "absolute_threshold_us": self.absolute_threshold_us,
                "relative_delta_pct": self.relative_delta_pct,
                "relative_status": self.relative_status,
                "threshold_pct": self.threshold,
            }
        return {**out, "threshold_result": self.threshold_result}


def evaluate(base: ReportFile, candidate: ReportFile, policy: Policy) -> tuple[Evaluation, ...]:
    """Evaluate every threshold: overall latencies, hidden share, then each phase and operation, the largest growth of p99 first.

    Parameters
    ----------
    base, candidate : ReportFile
        Two reports.
    policy : Policy
        The thresholds.
    """
    out = [_latency("overall", None, m, base.metrics[f"{m}_us"], candidate.metrics[f"{m}_us"], policy) for m in _LATENCIES]
    out.append(_hidden(base.metrics["communication_hidden_pct"], candidate.metrics["communication_hidden_pct"], policy))
    out += _breakdown("phase", base.by_phase, candidate.by_phase, policy)
    out += _breakdown("operation", base.by_op, candidate.by_op, policy)
    return tuple(out)


def exact(value: float) -> Fraction:
    """The decimal that a float is written as: 0.1 is one tenth."""
    return Fraction(repr(float(value)))


def _latency(scope: str, name: str | None, metric: str, a: float, b: float, policy: Policy) -> Evaluation:
    pct, floor_us = policy.latency_limits(scope, metric)
    old, growth = exact(a), exact(b) - exact(a)

    def exceeds(share: Fraction) -> bool:
        # a baseline of 0 is not divided by: any growth is more than a share of nothing
        return growth * 100 > old * exact(pct) * share and growth > exact(floor_us) * share

    result = "fail" if exceeds(Fraction(1)) else "warn" if exceeds(exact(policy.warn_fraction)) else "pass"
    relative = round(float(growth * 100 / old), 2) if old else None
    status = "finite" if old else "zero_baseline"
    return Evaluation(scope, name, metric, a, b, round(float(growth), 3), relative, status, pct, floor_us, result)


def _hidden(a: float, b: float, policy: Policy) -> Evaluation:
    drop, limit = max(Fraction(0), exact(a) - exact(b)), exact(policy.hidden_drop_threshold_points)
    result = "fail" if drop > limit else "warn" if drop > limit * exact(policy.warn_fraction) else "pass"
    points = round(float(drop), 2)
    return Evaluation("overall", None, HIDDEN, a, b, points, None, None, policy.hidden_drop_threshold_points, None, result)


def _breakdown(
    scope: str, base: Mapping[str, LatencySummary], candidate: Mapping[str, LatencySummary], policy: Policy
) -> Iterator[Evaluation]:
    groups = []
    for name in sorted({*base, *candidate}):
        a, b = base.get(name), candidate.get(name)
        if a is None or b is None:
            groups.append([_absent(scope, name, m, a, b, policy) for m in _LATENCIES])
        else:
            groups.append([_latency(scope, name, m, getattr(a, f"{m}_us"), getattr(b, f"{m}_us"), policy) for m in _LATENCIES])
    groups.sort(key=lambda g: (-_growth(g[-1]), g[-1].name or ""))
    for group in groups:
        yield from group


def _growth(evaluation: Evaluation) -> float:
    if evaluation.relative_delta_pct is not None:
        return evaluation.relative_delta_pct
    return float("inf") if evaluation.threshold_result != "pass" else 0.0


def _absent(scope: str, name: str, metric: str, a: LatencySummary | None, b: LatencySummary | None, policy: Policy) -> Evaluation:
    pct, floor_us = policy.latency_limits(scope, metric)
    values = [None if s is None else getattr(s, f"{metric}_us") for s in (a, b)]
    return Evaluation(scope, name, metric, values[0], values[1], None, None, "absent", pct, floor_us, "warn")
