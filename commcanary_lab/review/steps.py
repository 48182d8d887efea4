"""Steps of a history: did a quantile move from one entry to the next, or does it only scatter?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.review.bootstrap import Interval, quantiles_replicates, replicate_count
from commcanary_lab.review.policy import Policy

__all__ = ["QUANTILES", "Step", "step_confidence", "steps"]

FloatArray = npt.NDArray[np.float64]

#: Quantiles, and the fewest values that say anything about them: two beyond the quantile, five for the median.
QUANTILES = (("median", 0.5, 5), ("p95", 0.95, 40), ("p99", 0.99, 200))

#: Values drawn for one step: more values get fewer resamples.
_MAX_DRAWN = 2_500_000
#: Resamples beyond each end of an interval; with fewer the interval is that of a normal distribution with their spread.
_BEYOND, _FEWEST_BEYOND = 10, 2


@dataclass(frozen=True)
class Step:
    """One quantile of an entry and of the entry before it.

    Parameters
    ----------
    metric : {"median", "p95", "p99"}
    before_us, after_us : float
        Microseconds.
    change_pct : float or None
        Relative change in percent; None where the quantile was 0.
    interval : Interval or None
        Bootstrap interval of the change, percent; None where nothing was resampled.
    verdict : {"rise", "fall", "same", "unclear", "untested"}
        ``rise`` and ``fall`` where the whole interval lies on one side of 0, ``same`` where both entries hold the same values,
        ``unclear`` where the interval holds 0, ``untested`` where it cannot be said.
    reason : str
        Why, in words.
    """

    metric: str
    before_us: float
    after_us: float
    change_pct: float | None
    interval: Interval | None
    verdict: str
    reason: str

    @property
    def moved(self) -> bool:
        """True for ``rise`` and ``fall``."""
        return self.verdict in ("rise", "fall")

    def to_json(self) -> dict[str, Any]:
        """Return the step as a JSON object."""
        return asdict(self)


def step_confidence(confidence: float, tests: int) -> float:
    """Return the confidence of each of several intervals that together have a confidence (Bonferroni).

    Examples
    --------
    >>> round(step_confidence(0.95, 10), 6)
    0.995
    """
    return 1 - (1 - confidence) / max(1, tests)


def steps(before: FloatArray | None, after: FloatArray | None, policy: Policy, *, paired: bool, tests: int, seed: str) -> tuple[Step, ...]:
    """Test every quantile of two entries that follow each other.

    The interval is the percentile interval of a circular block bootstrap (`review.bootstrap`) of the relative change. Its confidence
    is such that all intervals of one quantile in the history together hold with the policy's confidence (Bonferroni): a history of
    many entries does not show a step because it is long.

    Parameters
    ----------
    before, after : ndarray of float64 or None
        Latencies in time order, microseconds; None where an entry holds none.
    policy : Policy
        Gives confidence, resamples and seed.
    paired : bool
        Both hold the same events in the same order (two reports of one workload): the same events are drawn on both sides.
    tests : int
        Steps of the history.
    seed : str
        Names the draw.

    Returns
    -------
    tuple of Step
        One per quantile; empty where an entry holds no latencies.

    Examples
    --------
    >>> a = np.arange(1.0, 101.0)
    >>> [(s.metric, s.verdict) for s in steps(a, a * 1.5, Policy(), paired=True, tests=1, seed="a")]
    [('median', 'rise'), ('p95', 'rise'), ('p99', 'untested')]
    >>> {s.verdict for s in steps(a, a, Policy(), paired=False, tests=1, seed="a")}
    {'same'}
    """
    if before is None or after is None or not len(before) or not len(after):
        return ()
    same = np.array_equal(before, after)
    wanted = [(m, q, f) for m, q, f in QUANTILES if not same and min(len(before), len(after)) >= f]
    level = step_confidence(policy.measured_confidence, tests)
    drawn = _replicates(before, after, [q for _, q, _ in wanted], policy, level, paired, seed) if wanted else None
    out = []
    for metric, q, fewest in QUANTILES:
        old, new = (round(float(np.quantile(v, q)), 3) for v in (before, after))
        change = round((new - old) / old * 100, 2) if old else None
        place = [m for m, _, _ in wanted].index(metric) if metric in [m for m, _, _ in wanted] else None
        if same:
            out.append(Step(metric, old, new, change, None, "same", "both hold the same values"))
        elif place is None or drawn is None:
            few = f"{min(len(before), len(after)):,} values, a {metric} needs {fewest}"
            out.append(Step(metric, old, new, change, None, "untested", few))
        else:
            out.append(_judged(metric, old, new, change, drawn[0, place], drawn[1, place], level))
    return tuple(out)


def _replicates(
    before: FloatArray, after: FloatArray, quantiles: list[float], policy: Policy, level: float, paired: bool, seed: str
) -> FloatArray:
    wanted = max(policy.measured_resamples, math.ceil(2 * _BEYOND / (1 - level)))
    count = len(before) if paired else max(len(before), len(after))
    n = max(200, min(replicate_count(count, wanted), _MAX_DRAWN // count))
    name = canonical_bytes([policy.measured_seed, seed]).decode()
    if paired and len(before) == len(after):
        return quantiles_replicates([before, after], quantiles, n, name)
    one, two = (quantiles_replicates([v], quantiles, n, f"{name}{side}") for v, side in ((before, "a"), (after, "b")))
    return np.concatenate([one, two])


def _judged(metric: str, old: float, new: float, change: float | None, one: FloatArray, two: FloatArray, level: float) -> Step:
    if change is None or not one.all():  # a resample whose quantile is 0 has no relative change
        return Step(metric, old, new, change, None, "untested", "the earlier entry reaches 0 us")
    interval = _interval((two - one) / one * 100, level)
    span = f"{interval.low:+.1f} % to {interval.high:+.1f} %"
    if interval.low > 0 or interval.high < 0:
        return Step(metric, old, new, change, interval, "rise" if interval.low > 0 else "fall", f"the change is {span}")
    return Step(metric, old, new, change, interval, "unclear", f"the change is {span}: it rests on a few events, or on chance")


def _interval(replicates: FloatArray, level: float) -> Interval:
    if len(replicates) * (1 - level) / 2 >= _FEWEST_BEYOND:
        return Interval.of(replicates, level)
    reach = NormalDist().inv_cdf(1 - (1 - level) / 2) * float(replicates.std(ddof=1))
    middle = float(replicates.mean())
    return Interval(round(middle - reach, 3), round(middle + reach, 3))
