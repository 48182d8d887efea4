"""Do rankings agree? Pair by pair, and with Kendall's tau-b, with intervals from resampled repetitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.calibration.resample import Interval, resampled_rounds

__all__ = ["PairDecision", "RankingAgreement", "agree"]

FloatArray = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]

_WORDS = {-1: "left better", 0: "tie", 1: "right better"}


@dataclass(frozen=True)
class PairDecision:
    """What two rankings say of a pair of settings.

    Parameters
    ----------
    left, right : str
        The settings.
    reference, other : str
        ``left better``, ``right better`` or ``tie``.
    """

    left: str
    right: str
    reference: str
    other: str

    @property
    def agrees(self) -> bool:
        """Both say the same."""
        return self.reference == self.other


@dataclass(frozen=True)
class RankingAgreement:
    """A ranking against the reference.

    Parameters
    ----------
    name, reference : str
        The rankings.
    source : str
        ``measured``, or where the ranking comes from.
    settings : tuple of str
        What is ranked.
    values, reference_values : tuple of float
        Per setting; smaller is better.
    pairs : tuple of PairDecision
        Every pair of settings.
    tau_b : float, optional
        Kendall's tau-b of the values; None where one of them is all ties.
    agreement_interval, tau_interval : Interval, optional
        From resampled repetitions; None where there is one only.
    """

    name: str
    reference: str
    source: str
    settings: tuple[str, ...]
    values: tuple[float, ...]
    reference_values: tuple[float, ...]
    pairs: tuple[PairDecision, ...]
    tau_b: float | None
    agreement_interval: Interval | None = None
    tau_interval: Interval | None = None

    @property
    def agreeing(self) -> int:
        """Pairs on which both say the same."""
        return sum(p.agrees for p in self.pairs)

    @property
    def pair_agreement(self) -> float:
        """Share of the pairs on which both say the same."""
        return self.agreeing / len(self.pairs)

    @property
    def false_positives(self) -> tuple[PairDecision, ...]:
        """Pairs that the ranking tells apart and the reference does not."""
        return tuple(p for p in self.pairs if p.reference == "tie" != p.other)

    @property
    def false_negatives(self) -> tuple[PairDecision, ...]:
        """Pairs that the reference tells apart and the ranking does not."""
        return tuple(p for p in self.pairs if p.other == "tie" != p.reference)

    @property
    def inversions(self) -> tuple[PairDecision, ...]:
        """Pairs that the two order the other way round."""
        return tuple(p for p in self.pairs if "tie" not in (p.reference, p.other) and not p.agrees)


def agree(
    name: str,
    other: Mapping[str, FloatArray],
    reference: Mapping[str, FloatArray],
    *,
    against: str = "reference",
    source: str = "measured",
    tie_fraction: float = 0.0,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: str = "",
) -> RankingAgreement:
    """Compare a ranking with a reference.

    Parameters
    ----------
    name, against : str
        Names of the ranking and of the reference.
    other, reference : mapping of str to ndarray, shape (repetitions,)
        Figure of each setting in each repetition, smaller is better; one figure where it is no measurement.
    source : str
        Where `other` comes from.
    tie_fraction : float
        Settings tie where they differ by no more than this share of the smaller.
    confidence, resamples, seed
        Of the bootstrap over repetitions. Measured rankings are resampled together: the same repetitions of each.

    Examples
    --------
    >>> measured = {"1 Gbit/s": np.array([8.6, 8.7]), "500 Mbit/s": np.array([17.0, 17.2]), "200 Mbit/s": np.array([43.0, 43.1])}
    >>> isolated = {"1 Gbit/s": np.array([9.0]), "500 Mbit/s": np.array([8.0]), "200 Mbit/s": np.array([40.0])}
    >>> found = agree("isolated", isolated, measured)
    >>> found.agreeing, len(found.pairs), round(found.tau_b, 3), [(p.left, p.right) for p in found.inversions]
    (2, 3, 0.333, [('1 Gbit/s', '500 Mbit/s')])
    """
    settings = tuple(reference)
    a = np.array([np.median(reference[s]) for s in settings])
    b = np.array([np.median(other[s]) for s in settings])
    signs = [_signs(v[None, :], tie_fraction)[0] for v in (a, b)]
    pairs = tuple(
        PairDecision(settings[i], settings[j], _WORDS[int(signs[0][n])], _WORDS[int(signs[1][n])])
        for n, (i, j) in enumerate(combinations(range(len(settings)), 2))
    )
    intervals: tuple[Interval | None, Interval | None] = None, None
    rounds = min(len(v) for v in reference.values())
    if rounds > 1:
        intervals = _intervals(other, reference, settings, tie_fraction, confidence, resampled_rounds(rounds, resamples, seed))
    return RankingAgreement(
        name, against, source, settings, tuple(b.tolist()), tuple(a.tolist()), pairs, _tau_b(a, b), intervals[0], intervals[1]
    )  # fmt: skip


def _signs(values: FloatArray, tie_fraction: float) -> Signs:
    """Decision on each pair, shape (draws, pairs): -1 where the left one is better; values have shape (draws, settings)."""
    i, j = np.triu_indices(values.shape[1], 1)
    left, right = values[:, i], values[:, j]
    tied = np.abs(left - right) <= tie_fraction * np.minimum(left, right)
    return np.where(tied, 0, np.sign(left - right)).astype(np.int8)


def _tau_b(a: FloatArray, b: FloatArray) -> float | None:
    from scipy.stats import kendalltau

    if len(set(a.tolist())) < 2 or len(set(b.tolist())) < 2:
        return None
    return float(kendalltau(a, b, variant="b").statistic)


def _intervals(
    other: Mapping[str, FloatArray], reference: Mapping[str, FloatArray], settings: tuple[str, ...], tie_fraction: float, confidence: float,
    drawn: npt.NDArray[np.int64],
) -> tuple[Interval | None, Interval | None]:  # fmt: skip
    def medians(values: Mapping[str, FloatArray]) -> FloatArray:
        columns = [np.median(v[drawn], axis=1) if len(v) == drawn.shape[1] else np.full(len(drawn), np.median(v))
                   for v in (values[s] for s in settings)]  # fmt: skip
        return np.array(columns).T

    a, b = medians(reference), medians(other)
    agreement = (_signs(a, tie_fraction) == _signs(b, tie_fraction)).mean(axis=1)
    # tau-b is the correlation of the signs of all pairs
    s, t = _signs(a, 0.0).astype(np.float64), _signs(b, 0.0).astype(np.float64)
    weight = np.sqrt((s * s).sum(axis=1) * (t * t).sum(axis=1))
    known = weight > 0
    tau = (s * t).sum(axis=1)[known] / weight[known]
    return Interval.of(agreement, confidence), Interval.of(tau, confidence) if known.all() and len(tau) else None
