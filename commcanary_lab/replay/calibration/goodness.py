"""Does the straight line describe the samples, and do the samples determine the line? Said, never silently passed over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.calibration.costs import Cost
from commcanary_lab.replay.calibration.resample import Interval
from commcanary_lab.replay.calibration.samples import SizeSamples, reduced
from commcanary_lab.replay.calibration.solve import SOFT_LIMIT, relative_loss, solve
from commcanary_lab.replay.calibration.terms import Terms, rate_gb_s
from commcanary_lab.units import format_bytes, format_rate, format_us

__all__ = ["Goodness", "Piece", "judge"]

FloatArray = npt.NDArray[np.float64]

#: Half-width of the interval of alpha or bandwidth over the value, beyond which the samples do not determine it.
TERM_LIMIT = 0.5
#: Half-width of the interval of a size's time over the time, beyond which the size is not determined.
TIME_LIMIT = 0.25
#: Share of the sizes that may be so.
SIZE_SHARE = 0.25
#: Change between the two halves of the rounds, median over the sizes.
DRIFT_LIMIT = 0.25
#: Root mean square and largest relative residual of a fit that describes its samples.
RMS_LIMIT, WORST_LIMIT = 0.15, 0.5
#: Two lines must beat one by this much (Bayesian information criterion), and one must miss by more than this.
BIC_LIMIT, SMALL_RMS = 10.0, 0.05
_PIECE_SIZES = 3
_ROUNDS_FOR_DRIFT = 10


@dataclass(frozen=True)
class Piece:
    """One of two lines: the terms between two sizes.

    Parameters
    ----------
    low_bytes, high_bytes : int
        The first and last B that it describes.
    alpha_us, bandwidth_gb_s : float
        Its terms.
    """

    low_bytes: int
    high_bytes: int
    alpha_us: float
    bandwidth_gb_s: float

    def __str__(self) -> str:
        rate = format_rate(self.bandwidth_gb_s) if math.isfinite(self.bandwidth_gb_s) else "no cost per byte"
        return f"{format_bytes(self.low_bytes)} to {format_bytes(self.high_bytes)}: alpha {format_us(self.alpha_us)}, {rate}"


@dataclass(frozen=True)
class Goodness:
    """What a fit is worth.

    Parameters
    ----------
    verdict : str
        ``fits``; ``misfit``, where the model does not describe the samples; ``inconclusive``, where they do not determine it.
    reasons : tuple of str
        Why it is not ``fits``.
    rms_relative, worst_relative : float
        Root mean square and largest absolute residual over the measured time.
    pieces : tuple of Piece
        Two lines, where they describe the samples much better than one.
    """

    verdict: str
    reasons: tuple[str, ...]
    rms_relative: float
    worst_relative: float
    pieces: tuple[Piece, ...] = ()


def judge(samples: SizeSamples, cost: Cost, statistic: str, times_us: FloatArray, terms: Terms,
          intervals: Sequence[Interval | None]) -> Goodness:  # fmt: skip
    """Judge a fit.

    Parameters
    ----------
    samples, cost, statistic
        What was fitted, and how.
    times_us : ndarray of float64, shape (sizes,)
        The statistic of each size.
    terms : Terms
        The result.
    intervals : sequence of Interval or None
        Interval of each size's time, None where it is unknown.
    """
    wire = np.array([cost.wire_bytes(s) for s in samples.size_bytes])
    relative = (cost.steps * terms.alpha_us + wire * terms.us_per_byte - times_us) / times_us
    rms, worst = float(np.sqrt(np.mean(relative**2))), float(np.abs(relative).max())
    open_ = [*_undetermined(terms), *_scattered(samples, times_us, intervals), *_drift(samples, statistic)]
    wrong = []
    pieces = _pieces(samples, cost, times_us, terms) if rms > SMALL_RMS else ()
    if pieces:
        wrong.append(f"two lines describe the times much better than one ({pieces[0]}; {pieces[1]}): for example a change of protocol")
    elif rms > RMS_LIMIT or worst > WORST_LIMIT:
        at = samples.size_bytes[int(np.abs(relative).argmax())]
        wrong.append(
            f"the line misses the times by {rms:.0%} (rms), at {format_bytes(at)} by {worst:.0%}: this model does not describe them"
        )
    verdict = "inconclusive" if open_ else "misfit" if wrong else "fits"
    return Goodness(verdict, (*open_, *wrong), rms, worst, pieces)


def _undetermined(terms: Terms) -> list[str]:
    out = []
    for name, value, column, wider in (("alpha", terms.alpha_us, 0, "smaller"), ("the bandwidth", terms.us_per_byte, 1, "larger")):
        draws = terms.draws[:, column]
        if value <= 0:
            out.append(f"the samples show no {'latency' if column == 0 else 'cost per byte'}: measure {wider} sizes")
        elif len(draws) and (width := Interval.of(draws, terms.confidence).half_width / value) > TERM_LIMIT:
            out.append(
                f"{name} is not determined (within {width:.0%} at {terms.confidence:.0%} confidence): measure {wider} sizes, or longer"
            )
    return out


def _scattered(samples: SizeSamples, times_us: FloatArray, intervals: Sequence[Interval | None]) -> list[str]:
    if all(i is None for i in intervals) and samples.repetitions > 1:
        return _lonely(samples)
    known = [(s, i.half_width / t) for s, t, i in zip(samples.size_bytes, times_us, intervals, strict=True) if i is not None]
    loose = [(width, s) for s, width in known if width > TIME_LIMIT]
    if not known or len(loose) <= SIZE_SHARE * len(known):
        return []
    width, size = max(loose)
    return [
        f"the repetitions scatter too much: the times of {len(loose)} of {len(known)} sizes are uncertain by more than {TIME_LIMIT:.0%} "
        f"({format_bytes(size)} by {width:.0%}); repeat more often, or on a quieter machine"
    ]


def _lonely(samples: SizeSamples) -> list[str]:
    """Few repetitions: a fastest one that no other comes near is no measurement."""
    gaps = []
    for size, values in zip(samples.size_bytes, samples.latencies_us, strict=True):
        first, second = np.partition(values, 1)[:2].tolist()
        gaps.append((second / first - 1, size))
    loose = [g for g in gaps if g[0] > 2 * TIME_LIMIT]
    if len(loose) <= SIZE_SHARE * len(gaps):
        return []
    gap, size = max(loose)
    return [
        f"the repetitions scatter too much: at {len(loose)} of {len(gaps)} sizes the second fastest takes more than "
        f"{2 * TIME_LIMIT:.0%} longer than the fastest ({format_bytes(size)}: {gap:.0%}); repeat more often, or on a quieter machine"
    ]


def _drift(samples: SizeSamples, statistic: str) -> list[str]:
    if not samples.in_rounds or samples.repetitions < _ROUNDS_FOR_DRIFT:
        return []
    rounds = samples.rounds_us
    half = len(rounds) // 2
    change = float(np.median(reduced(rounds[-half:], statistic) / reduced(rounds[:half], statistic))) - 1
    if abs(change) <= DRIFT_LIMIT:
        return []
    return [f"the machine changed while it was measured: the second half of the rounds is {change:+.0%} against the first"]


def _pieces(samples: SizeSamples, cost: Cost, times_us: FloatArray, terms: Terms) -> tuple[Piece, ...]:
    """Two lines, where they beat one by the information criterion."""
    n = len(times_us)
    if n < 2 * _PIECE_SIZES:
        return ()
    wire = np.array([cost.wire_bytes(s) for s in samples.size_bytes])
    steps = np.full(n, float(cost.steps))
    one = float(relative_loss(steps * terms.alpha_us + wire * terms.us_per_byte, times_us).sum())
    best: tuple[float, int, FloatArray] | None = None
    for cut in range(_PIECE_SIZES, n - _PIECE_SIZES + 1):
        found = np.vstack([solve(steps[part], wire[part], times_us[None, part]) for part in (slice(cut), slice(cut, n))])
        at = np.repeat(found, [cut, n - cut], axis=0)
        loss = float(relative_loss(steps * at[:, 0] + wire * at[:, 1], times_us).sum())
        if best is None or loss < best[0]:
            best = (loss, cut, found)
    assert best is not None
    loss, cut, found = best
    floor = n * (0.01 / SOFT_LIMIT) ** 2  # nobody measures times to better than a percent
    # two lines have three coefficients more: two terms, and where they meet
    if n * math.log((one + floor) / (loss + floor)) - 3 * math.log(n) <= BIC_LIMIT:
        return ()
    ends = ((samples.size_bytes[0], samples.size_bytes[cut - 1]), (samples.size_bytes[cut], samples.size_bytes[-1]))
    return tuple(Piece(low, high, float(a), rate_gb_s(float(b))) for (low, high), (a, b) in zip(ends, found, strict=True))
