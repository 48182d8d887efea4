"""Intervals and seeded resampling of repetitions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "generator", "resampled_rounds"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Examples
    --------
    >>> i = Interval.of(np.arange(101.0), 0.5)
    >>> i, i.half_width, 75.5 in i
    (Interval(low=25.0, high=75.0), 25.0, False)
    """

    low: float
    high: float

    @classmethod
    def of(cls, draws: FloatArray, confidence: float) -> Interval:
        """Return the percentile interval of draws; infinite draws are kept in order."""
        tail = (1 - confidence) / 2
        ordered = np.sort(draws)
        ends = []
        for q in (tail, 1 - tail):
            position = (len(ordered) - 1) * q
            low, high = float(ordered[int(position)]), float(ordered[min(int(position) + 1, len(ordered) - 1)])
            # between a number and infinity there is nothing to interpolate
            ends.append(low if low == high or position == int(position) else low + (high - low) * (position - int(position)))
        return cls(ends[0], ends[1])

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2 if self.high > self.low else 0.0

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def generator(seed: str) -> np.random.PCG64:
    """Return a bit generator seeded by the SHA-256 of a text; its raw output is the same in every numpy version."""
    return np.random.PCG64(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))


def below(bits: np.random.PCG64, bound: int, count: int) -> IntArray:
    """Return `count` whole numbers in [0, bound)."""
    raw = bits.random_raw(count) >> np.uint64(32)
    return (raw * np.uint64(bound) >> np.uint64(32)).astype(np.int64)


def permutation(bits: np.random.PCG64, count: int) -> list[int]:
    """Return the numbers 0 to count - 1 in random order.

    Examples
    --------
    >>> permutation(generator("a"), 5) == permutation(generator("a"), 5), sorted(permutation(generator("b"), 4))
    (True, [0, 1, 2, 3])
    """
    return [int(i) for i in np.argsort(bits.random_raw(count), kind="stable")]


def resampled_rounds(rounds: int, replicates: int, seed: str) -> IntArray:
    """Return round numbers of resamples, in circular blocks of the cube root of the number of rounds.

    Neighbouring rounds resemble each other (a machine is busy for a while), so runs of them are drawn, not single ones.

    Parameters
    ----------
    rounds : int
        Repetitions that there are, at least 1.
    replicates : int
        How many resamples.
    seed : str
        Names the draw.

    Returns
    -------
    ndarray of int64, shape (replicates, rounds)
    """
    block = max(1, round((rounds + 1e-9) ** (1 / 3))) if rounds >= 8 else 1
    blocks = -(-rounds // block)
    starts = below(generator(seed), rounds, replicates * blocks).reshape(replicates, blocks)
    drawn: IntArray = ((starts[:, :, None] + np.arange(block)) % rounds).reshape(replicates, blocks * block)[:, :rounds]
    return drawn
