"""The alpha-beta fit: time = steps * alpha + bytes on the busiest link / bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.replay.calibration.costs import Cost, cost_of
from commcanary_lab.replay.calibration.goodness import Goodness, judge
from commcanary_lab.replay.calibration.resample import Interval, below, generator, resampled_rounds
from commcanary_lab.replay.calibration.samples import SizeSamples, reduced
from commcanary_lab.replay.calibration.solve import solve
from commcanary_lab.replay.calibration.terms import Terms, rate_gb_s
from commcanary_lab.simulate.alpha_beta import AlphaBeta
from commcanary_lab.simulate.backend import Backend

__all__ = ["Fit", "Residual", "fit"]

FloatArray = npt.NDArray[np.float64]

#: Fewer sizes than this leave nothing to check the line against.
MIN_SIZES = 3
#: From this many repetitions on, resampling them says how sure a statistic is; no number suffices for the minimum.
MIN_ROUNDS = {"median": 10, "p10": 14}
#: Latencies that are drawn at a time.
_DRAWN = 2_000_000


@dataclass(frozen=True)
class Residual:
    """One size: what was measured and what the fit says.

    Parameters
    ----------
    size_bytes : int
        B.
    time_us : float
        The statistic of its repetitions.
    interval_us : Interval or None
        Of that statistic; None where there are too few repetitions.
    predicted_us : float
        By the fit.
    """

    size_bytes: int
    time_us: float
    interval_us: Interval | None
    predicted_us: float

    @property
    def residual_us(self) -> float:
        """Measured minus predicted."""
        return self.time_us - self.predicted_us

    @property
    def relative(self) -> float:
        """That over the measured time."""
        return self.residual_us / self.time_us


@dataclass(frozen=True, eq=False)
class Fit:
    """A calibrated latency and bandwidth.

    Parameters
    ----------
    samples : SizeSamples
        What was fitted.
    cost : Cost
        Steps and bytes of its operation.
    statistic : str
        What stands for the repetitions of a size: min, p10 or median.
    terms : Terms
        alpha and bandwidth, with resampled pairs.
    residuals : tuple of Residual
        Per size.
    goodness : Goodness
        Whether model and samples go together.
    uncertainty : str
        What was resampled: ``repetitions``, or ``residuals`` where there are too few repetitions.
    seed : int
        Of the resampling.
    """

    samples: SizeSamples
    cost: Cost
    statistic: str
    terms: Terms
    residuals: tuple[Residual, ...]
    goodness: Goodness
    uncertainty: str
    seed: int

    @property
    def alpha_us(self) -> float:
        """Latency of one step, microseconds."""
        return self.terms.alpha_us

    @property
    def bandwidth_gb_s(self) -> float:
        """Bandwidth of the busiest link, GB/s: the bus bandwidth that large messages approach."""
        return self.terms.bandwidth_gb_s

    @property
    def half_size_bytes(self) -> float:
        """B at which latency and bandwidth cost the same; infinite where the samples show no cost of bytes."""
        return self.cost.half_size_bytes(self.alpha_us, self.bandwidth_gb_s)

    @cached_property
    def alpha_interval_us(self) -> Interval:
        """Interval of alpha."""
        return Interval.of(self.terms.draws[:, 0], self.terms.confidence)

    @cached_property
    def bandwidth_interval_gb_s(self) -> Interval:
        """Interval of the bandwidth."""
        beta = Interval.of(self.terms.draws[:, 1], self.terms.confidence)
        return Interval(rate_gb_s(beta.high), rate_gb_s(beta.low))

    @cached_property
    def half_size_interval_bytes(self) -> Interval:
        """Interval of the half-performance size."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.terms.draws[:, 1] > 0, self.terms.draws[:, 0] / self.terms.draws[:, 1], np.inf)
        return Interval.of(ratio * self.cost.steps / self.cost.share, self.terms.confidence)

    @property
    def verdict(self) -> str:
        """fits, misfit or inconclusive."""
        return self.goodness.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is not ``fits``."""
        return self.goodness.reasons

    def time_us(self, size_bytes: float) -> float:
        """Return the time of one call of B bytes by the fit."""
        return self.terms.time_us(self.cost.steps, self.cost.wire_bytes(size_bytes))

    def band_us(self, size_bytes: Sequence[float]) -> list[Interval]:
        """Return the interval of that time at each size."""
        return [Interval.of(self.terms.draws_us(self.cost.steps, self.cost.wire_bytes(s)), self.terms.confidence) for s in size_bytes]

    def backend(self, name: str | None = None) -> Backend:
        """Return a simulated backend with these terms: bandwidth, and alpha as its latency floor.

        With the cost model ``alpha-beta`` the simulator then gives the times of this fit. ``commcanary-v4`` has other constants
        beside the floor, so that under it the terms are only the backend's, not its times.

        Parameters
        ----------
        name : str, optional
            Its label; by default one that says what was measured where.

        Raises
        ------
        RefusedError
            If no cost per byte was found, or the algorithm is a tree, which the simulator does not have.
        """
        self._simulable()
        label = f"{self.samples.origin}: {self.cost.op} on {self.samples.ranks} ranks, {self.samples.ran_on}"
        return Backend(name or label, bandwidth_gbps=8 * self.bandwidth_gb_s, latency_floor_us=self.alpha_us)

    def model(self) -> AlphaBeta:
        """Return the cost model ``alpha-beta`` with these terms, whatever the backend says.

        Raises
        ------
        RefusedError
            As for `backend`.
        """
        self._simulable()
        return AlphaBeta(self.alpha_us, 8 * self.bandwidth_gb_s)

    def _simulable(self) -> None:
        if self.cost.algorithm == "tree":
            raise RefusedError("the simulator counts the steps of rings: alpha of a tree is another quantity",
                               remedy="fit the samples as a ring (algorithm='ring')")  # fmt: skip
        if not self.terms.us_per_byte > 0:
            raise RefusedError("the samples show no cost per byte, so there is no bandwidth to simulate", remedy="measure larger sizes")


def fit(samples: SizeSamples, *, algorithm: str | None = None, statistic: str = "auto", confidence: float = 0.95,
        replicates: int = 1000, seed: int = 7) -> Fit:  # fmt: skip
    """Fit alpha and bandwidth to samples.

    Each size counts by its relative error, and large errors count less (soft-L1), so that neither the largest messages nor one
    disturbed size decides. With enough repetitions (10 for the median, 14 for p10), whole rounds are resampled; otherwise the residuals
    of the sizes are, which cannot see what disturbed all sizes alike.

    Parameters
    ----------
    samples : SizeSamples
        At least three sizes.
    algorithm : str, optional
        ring, tree, pairwise or point_to_point; what the operation usually is by default.
    statistic : str
        auto (p10 from twenty repetitions on, otherwise min), min, p10 or median.
    confidence : float
        Of the intervals, between 0 and 1.
    replicates : int
        Resamples, at least 100.
    seed : int
        Of the resampling.

    Returns
    -------
    Fit

    Raises
    ------
    RefusedError
        If there are fewer than three sizes, or the operation has no cost here.
    UsageError
        If an option is out of range.

    Examples
    --------
    >>> sizes = tuple(1 << i for i in range(10, 24, 2))
    >>> cost = cost_of("all_reduce", 4)
    >>> times = tuple(np.full(1, cost.steps * 12.0 + cost.wire_bytes(b) / 2e3) for b in sizes)
    >>> found = fit(SizeSamples("all_reduce", 4, None, sizes, times, "nothing: computed", "synthetic"))
    >>> round(found.alpha_us, 6), round(found.bandwidth_gb_s, 6), round(found.half_size_bytes), found.verdict
    (12.0, 2.0, 96000, 'fits')
    """
    if not 0 < confidence < 1:
        raise UsageError(f"a confidence of {confidence}", remedy="give a number between 0 and 1, such as 0.95")
    if not 100 <= replicates <= 100_000:
        raise UsageError(f"{replicates} resamples", remedy="give a number from 100 to 100000")
    cost = cost_of(samples.op, samples.ranks, algorithm)
    if len(samples.size_bytes) < MIN_SIZES:
        raise RefusedError(f"{len(samples.size_bytes)} sizes say nothing of whether a latency and a bandwidth describe them",
                           remedy=f"give at least {MIN_SIZES} sizes")  # fmt: skip
    chosen = samples.choose(statistic)
    times = samples.statistic(chosen)
    steps = np.full(len(times), float(cost.steps))
    wire = np.array([cost.wire_bytes(s) for s in samples.size_bytes])
    alpha, beta = solve(steps, wire, times[None])[0].tolist()
    predicted = steps * alpha + wire * beta
    named = canonical_bytes([samples.op, samples.ranks, list(samples.size_bytes), chosen, seed]).decode()
    intervals: list[Interval | None] = [None] * len(times)
    if chosen in MIN_ROUNDS and samples.repetitions >= MIN_ROUNDS[chosen]:
        uncertainty, resampled = "repetitions", _rounds(samples, chosen, replicates, named)
        intervals = [Interval.of(column, confidence) for column in resampled.T]
    else:
        uncertainty, resampled = "residuals", _residuals(steps, wire, times, predicted, replicates, named)
    draws = solve(steps, wire, resampled)
    terms = Terms(alpha, beta, draws, confidence, samples.origin, f"{samples.op} on {samples.ranks} ranks, {samples.ran_on}")
    rows = tuple(Residual(s, float(t), i, float(p)) for s, t, i, p in zip(samples.size_bytes, times, intervals, predicted, strict=True))
    return Fit(samples, cost, chosen, terms, rows, judge(samples, cost, chosen, times, terms, intervals), uncertainty, seed)


def _rounds(samples: SizeSamples, statistic: str, replicates: int, seed: str) -> FloatArray:
    """Statistics of resampled repetitions, shape (replicates, sizes)."""
    if not samples.in_rounds:
        columns = zip(samples.size_bytes, samples.latencies_us, strict=True)
        return np.hstack([_resampled(v[:, None], statistic, replicates, f"{seed}:{size}") for size, v in columns])
    return _resampled(samples.rounds_us, statistic, replicates, seed)  # what disturbs a round disturbs all its sizes: drawn whole


def _resampled(rounds_us: FloatArray, statistic: str, replicates: int, seed: str) -> FloatArray:
    out = np.empty((replicates, rounds_us.shape[1]))
    step = max(1, _DRAWN // rounds_us.size)  # resamples at a time: bounds the memory
    for first in range(0, replicates, step):
        rows = min(step, replicates - first)
        drawn = resampled_rounds(len(rounds_us), rows, f"{seed}:{first}")
        out[first : first + rows] = reduced(rounds_us[drawn], statistic, axis=1)
    return out


def _residuals(steps: FloatArray, wire: FloatArray, times: FloatArray, predicted: FloatArray, replicates: int, seed: str) -> FloatArray:
    """Times whose relative errors are drawn from those of all sizes, shape (replicates, sizes).

    Errors are stretched for the influence that each size has on the line, and for the two coefficients.
    """
    n = len(times)
    predicted = np.maximum(predicted, 0.05 * times)  # an empty message may be predicted to take no time
    x = np.column_stack([steps / predicted, wire / predicted])
    leverage = np.clip(np.einsum("ij,ji->i", x, np.linalg.pinv(x)), 0, 0.95)
    errors = (times / predicted - 1) / np.sqrt(1 - leverage)
    index = below(generator(seed), n, replicates * n).reshape(replicates, n)
    out: FloatArray = predicted * np.maximum(0.05, 1 + errors[index])
    return out
