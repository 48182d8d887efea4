"""One criterion on the runs that there are: a value, its interval, the spread of the repetitions, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.calibration.resample import Interval, resampled_rounds
from commcanary_lab.replay.campaign.metrics import METRICS, reduce_samples, run_totals, run_values
from commcanary_lab.replay.campaign.outcome import Finding, Verdict
from commcanary_lab.replay.campaign.preregistration import Criterion, Preregistration
from commcanary_lab.replay.result import Replay

__all__ = ["Runs", "boundary_text", "bounds_of", "environment", "find", "spread_of", "verdict_of"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Runs:
    """Finished runs by configuration and repetition.

    Attributes
    ----------
    asked : Preregistration
        The campaign.
    seed : str
        Its identity; resampling is seeded by it and the criterion's name.
    done : mapping of str to mapping of int to Replay
        Runs that ended well.
    disputed : mapping of str to str
        Configurations whose counts are not what they have to be, and how.
    """

    asked: Preregistration
    seed: str
    done: Mapping[str, Mapping[int, Replay]]
    disputed: Mapping[str, str]

    def rounds(self, sides: Sequence[str]) -> list[int]:
        """Return the repetitions in which all of these configurations ended well."""
        return [r for r in range(1, self.asked.repetitions + 1) if all(r in self.done.get(s, {}) for s in sides)]

    def of(self, side: str, rounds: Sequence[int]) -> list[Replay]:
        """Return the runs of a configuration."""
        return [self.done[side][r] for r in rounds]

    def drawn(self, name: str, rounds: int) -> npt.NDArray[np.int64]:
        """Return resamples of the repetitions for a criterion, shape (resamples, rounds)."""
        return resampled_rounds(rounds, self.asked.resamples, f"{self.seed}:{name}")


def find(criterion: Criterion, runs: Runs) -> Finding:
    """Return the finding of a criterion on runs; criteria on rankings have their own.

    The order of questions: can the runs be compared at all, are they complete, do repetitions resemble each other, and on which side of
    the boundary does the interval lie.
    """
    asked, metric = runs.asked, METRICS[criterion.metric]
    sides = asked.sides(criterion)
    rounds = runs.rounds(sides)
    blank = Finding(
        name=criterion.name, metric=_told(criterion, sides), unit=_unit(criterion, metric.unit), boundary=boundary_text(criterion),
        verdict="inconclusive", repetitions=len(rounds), required=criterion.required,
    )  # fmt: skip
    against = _incomparable(sides, rounds, runs)
    if not rounds:
        return _with(blank, *(("incomparable", against) if against else ("inconclusive", "no repetition is complete")))
    values = {s: _values(criterion, runs, s, rounds) for s in sides}
    if against or len({v.shape for v in values.values()}) > 1:
        return _with(blank, "incomparable", against or "control and candidate do not have the same ranks")
    finding = _measure(criterion, runs, sides, rounds, values, blank)
    if finding.value is None:
        return _with(finding, "inconclusive", "some run has no such figure")
    if len(rounds) < asked.repetitions:
        return _with(finding, "inconclusive", f"{len(rounds)} of {asked.repetitions} repetitions are complete")
    limit = criterion.stability_limit or asked.stability_limit
    if finding.spread is not None and finding.spread > limit:
        return _with(finding, "inconclusive", f"the repetitions spread by {finding.spread:.1%}, more than {limit:.1%}")
    if finding.verdict == "inconclusive" and not finding.reason:
        return _with(finding, "inconclusive", "the interval crosses the boundary")
    return finding


def _with(finding: Finding, verdict: Verdict, reason: str) -> Finding:
    return msgspec.structs.replace(finding, verdict=verdict, reason=reason)


def environment(replay: Replay) -> tuple[str, ...]:
    """Return on what a run took place: devices, hosts and versions, whatever the order of the ranks."""
    known = [m for m in replay.markers if m is not None]
    return tuple(sorted({f"{m.host} ({m.device}), " + " ".join(f"{k} {v}" for k, v in sorted(m.versions.items())) for m in known}))


def _incomparable(sides: Sequence[str], rounds: Sequence[int], runs: Runs) -> str:
    for side in sides:
        if side in runs.disputed:
            return runs.disputed[side]
    places = {environment(r) for side in sides for r in runs.of(side, rounds)}
    if len(places) > 1:
        first, second, *_ = sorted(places)
        return f"runs took place on {'; '.join(first)}, and on {'; '.join(second)}"
    return ""


def _values(criterion: Criterion, runs: Runs, side: str, rounds: Sequence[int]) -> FloatArray:
    """Figures of a configuration, shape (rounds, ranks or 1)."""
    found = np.array([run_values(r, criterion) for r in runs.of(side, rounds)])
    if criterion.metric == "rate":
        found = found * next(r for r in runs.asked.rates if r.name == criterion.rate).per_cycle[side]
    return found


def _compared(criterion: Criterion, values: Sequence[FloatArray]) -> FloatArray:
    if not criterion.compare:
        return values[0]
    control, candidate = values
    if criterion.compare == "difference":
        return control - candidate
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = candidate / control
    return 100 * (1 - ratio) if criterion.compare == "reduction_pct" else ratio


def _measure(
    criterion: Criterion, runs: Runs, sides: Sequence[str], rounds: Sequence[int], values: Mapping[str, FloatArray], blank: Finding
) -> Finding:
    compared = _compared(criterion, [values[s] for s in sides])
    if not np.isfinite(compared).all():
        return blank
    metric = METRICS[criterion.metric]
    spread = None if metric.exact else spread_of(criterion, list(values.values()))
    if criterion.aggregate == "count":
        count, total = _count(criterion, runs, sides, rounds, compared)
        low, high = (total, None) if criterion.all else (criterion.at_least, criterion.at_most)
        verdict = verdict_of(Interval(count, count), _Bounds(low, high, criterion.equals))
        if criterion.all and not total:
            verdict = "inconclusive"
        return msgspec.structs.replace(blank, value=float(count), total=total, spread=spread, verdict=verdict)
    per_rank = criterion.aggregate == "every_rank"
    bounds = bounds_of(criterion)
    series = compared if per_rank or compared.shape[1] == 1 else _fleet(criterion, compared)[:, None]
    if metric.exact:
        found = [_held(series[:, r], bounds) for r in range(series.shape[1])]
        intervals = [Interval(v, v) for v in found]
    else:
        center = np.median if criterion.repetitions == "median" else np.mean
        found = [float(center(series[:, r])) for r in range(series.shape[1])]
        drawn = runs.drawn(criterion.name, len(rounds))
        intervals = [Interval.of(np.asarray(center(series[drawn, r], axis=1)), runs.asked.confidence) for r in range(series.shape[1])]
    verdicts = [verdict_of(i, bounds) for i in intervals]
    worst = min(range(len(found)), key=lambda r: (_ORDER[verdicts[r]], _margin(intervals[r], bounds)))
    interval = None if metric.exact or len(rounds) < 2 else intervals[worst]
    single = not metric.exact and len(rounds) < 2
    return msgspec.structs.replace(
        blank, value=found[worst], low=None if interval is None else interval.low, high=None if interval is None else interval.high,
        per_rank=tuple(found) if per_rank else (), spread=spread, verdict="inconclusive" if single else verdicts[worst],
        reason="one repetition has no interval" if single else _of_rank(per_rank, worst, verdicts[worst]),
    )  # fmt: skip


def _of_rank(per_rank: bool, rank: int, verdict: Verdict) -> str:
    if not per_rank or verdict == "pass":
        return ""
    return f"rank {rank}" if verdict == "fail" else f"rank {rank}: the interval crosses the boundary"


@dataclass(frozen=True)
class _Bounds:
    low: float | None
    high: float | None
    exactly: float | None


def bounds_of(criterion: Criterion) -> _Bounds:
    """Return the boundary of a criterion."""
    return _Bounds(criterion.at_least, criterion.at_most, criterion.equals)


#: A criterion is as good as its worst rank.
_ORDER: dict[Verdict, int] = {"fail": 0, "incomparable": 0, "inconclusive": 1, "pass": 2}


def verdict_of(interval: Interval, bounds: _Bounds) -> Verdict:
    """Return on which side of a boundary an interval lies.

    Examples
    --------
    >>> at_least_1 = _Bounds(1.0, None, None)
    >>> [verdict_of(i, at_least_1) for i in (Interval(1.0, 2.0), Interval(0.5, 0.99), Interval(0.9, 1.1))]
    ['pass', 'fail', 'inconclusive']
    """
    if bounds.exactly is not None:
        return "pass" if interval.low == interval.high == bounds.exactly else "fail"
    low = -math.inf if bounds.low is None else bounds.low
    high = math.inf if bounds.high is None else bounds.high
    if interval.low >= low and interval.high <= high:
        return "pass"
    return "fail" if interval.high < low or interval.low > high else "inconclusive"


def _margin(interval: Interval, bounds: _Bounds) -> float:
    """How far the worse end of an interval is inside the boundary."""
    if bounds.exactly is not None:
        return -abs(interval.low - bounds.exactly)
    margins = [interval.low - bounds.low] if bounds.low is not None else []
    margins += [bounds.high - interval.high] if bounds.high is not None else []
    return min(margins, default=0.0)


def _held(series: FloatArray, bounds: _Bounds) -> float:
    """A count has to hold in every repetition: the one that is worst for the criterion."""
    return min((float(v) for v in series), key=lambda v: _margin(Interval(v, v), bounds))


def _fleet(criterion: Criterion, compared: FloatArray) -> FloatArray:
    """One figure per repetition, shape (rounds,)."""
    name = {"fleet_median": "p50", "fleet_mean": "mean"}.get(criterion.aggregate, criterion.aggregate)
    return reduce_samples(compared, name, axis=1)


def _count(criterion: Criterion, runs: Runs, sides: Sequence[str], rounds: Sequence[int], compared: FloatArray) -> tuple[int, int]:
    if criterion.each_at_least is None and criterion.each_at_most is None:
        totals = sum(float(run_totals(r, criterion).sum()) for s in sides for r in runs.of(s, rounds))
        return round(float(compared.sum())), round(totals)
    low = -math.inf if criterion.each_at_least is None else criterion.each_at_least
    high = math.inf if criterion.each_at_most is None else criterion.each_at_most
    return int(((compared >= low) & (compared <= high)).sum()), int(compared.size)


def spread_of(criterion: Criterion, values: Sequence[FloatArray]) -> float | None:
    """Return the largest coefficient of variation of a configuration's repetitions; None where there is one repetition only.

    Each rank counts for itself where the criterion asks for every rank or counts; otherwise the fleet's figure does.

    Examples
    --------
    >>> criterion = Criterion(name="c", metric="cycle_us", aggregate="every_rank", at_most=1.0)
    >>> round(spread_of(criterion, [np.array([[1.0, 2.0], [1.0, 4.0]])]), 3)
    0.471
    """
    out = []
    for v in values:
        if len(v) < 2:
            return None
        series = v if criterion.aggregate in ("every_rank", "count") or v.shape[1] == 1 else _fleet(criterion, v)[:, None]
        mean = np.abs(series.mean(axis=0))
        deviation = series.std(axis=0, ddof=1)
        out += [float(d / m) if m else (0.0 if not d else math.inf) for d, m in zip(deviation, mean, strict=True)]
    return max(out)


def _told(criterion: Criterion, sides: Sequence[str]) -> str:
    """Name the metric for people: ``cycle_us p50, every_rank, control - candidate``."""
    metric = METRICS[criterion.metric]
    parts = [criterion.metric if criterion.metric != "rate" else criterion.rate]
    size = "" if criterion.size_bytes is None else f"{criterion.size_bytes} B"
    if criterion.op or size:
        parts.append("of " + " ".join(filter(None, (criterion.op, size))))
    if metric.sampled:
        parts.append(criterion.statistic)
    text = " ".join(parts)
    if criterion.aggregate:
        text += f", {criterion.aggregate}"
    how = {"difference": "{} - {}", "reduction_pct": "reduction from {} to {}", "ratio": "{1} / {0}", "": "{}"}[criterion.compare]
    return f"{text}, {how.format(*sides)}"


def _unit(criterion: Criterion, unit: str) -> str:
    if criterion.aggregate == "count" and (criterion.each_at_least is not None or criterion.each_at_most is not None):
        return "values"
    return {"reduction_pct": "%", "ratio": ""}.get(criterion.compare, unit)


def boundary_text(criterion: Criterion) -> str:
    """Return the boundary in words.

    Examples
    --------
    >>> boundary_text(Criterion(name="c", metric="cycle_us", at_least=1000.0))
    '>= 1,000'
    """
    if criterion.all:
        return "all"
    ends = ((">=", criterion.at_least), ("<=", criterion.at_most), ("=", criterion.equals))
    parts = [f"{sign} {value:,g}" for sign, value in ends if value is not None]
    return " and ".join(parts)
