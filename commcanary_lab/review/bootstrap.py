"""Bootstrap of quantiles: seeded, the same on every machine, and aware that neighbouring events resemble each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "block_length", "quantile_replicates", "quantiles_replicates", "replicate_count"]

FloatArray = npt.NDArray[np.float64]

#: Values drawn in all for one operation: more measurements get fewer resamples.
_MAX_DRAWN = 20_000_000
_FEWEST = 200


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    @classmethod
    def of(cls, replicates: FloatArray, confidence: float) -> Interval:
        """Return the percentile interval of replicates.

        Examples
        --------
        >>> Interval.of(np.arange(101.0), 0.9)
        Interval(low=5.0, high=95.0)
        """
        tail = (1 - confidence) / 2
        low, high = np.quantile(replicates, [tail, 1 - tail])
        return cls(round(float(low), 3), round(float(high), 3))

    def crosses(self, other: Interval) -> bool:
        """True where the two have a point in common.

        Examples
        --------
        >>> Interval(1, 3).crosses(Interval(3, 5)), Interval(1, 2).crosses(Interval(3, 5))
        (True, False)
        """
        return self.low <= other.high and other.low <= self.high


def block_length(count: int) -> int:
    """Return the length of the blocks that are drawn: the cube root of the sample size, at least 1.

    Consecutive collectives are not independent (a slow window holds many of them); drawing runs instead of single values keeps
    that, where single draws would make the intervals too narrow.

    Examples
    --------
    >>> block_length(5), block_length(1000)
    (1, 10)
    """
    return max(1, round((count + 1e-9) ** (1 / 3))) if count >= 8 else 1


def replicate_count(count: int, wanted: int) -> int:
    """Return how many resamples are drawn for samples of `count` values together.

    Examples
    --------
    >>> replicate_count(500, 2000), replicate_count(100_000, 2000)
    (2000, 200)
    """
    return max(min(wanted, _FEWEST), min(wanted, _MAX_DRAWN // max(1, count)))


def quantile_replicates(values: FloatArray, q: float, replicates: int, seed: str) -> FloatArray:
    """Return the q-quantile of resamples of `values`, drawn in circular blocks.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        In time order, n >= 1.
    q : float
        The quantile, linearly interpolated at position (n - 1) q.
    replicates : int
        How many.
    seed : str
        Names the draw; its SHA-256 seeds the generator, whose raw output is the same in every numpy version.

    Returns
    -------
    ndarray of float64, shape (replicates,)

    Examples
    --------
    >>> quantile_replicates(np.array([4.0, 4.0, 4.0]), 0.5, 2, "a").tolist()
    [4.0, 4.0]
    """
    return quantiles_replicates([values], [q], replicates, seed)[0, 0]


def quantiles_replicates(sides: Sequence[FloatArray], quantiles: Sequence[float], replicates: int, seed: str) -> FloatArray:
    """Return quantiles of resamples, the same draw on every side: pairs of values stay pairs.

    Parameters
    ----------
    sides : sequence of ndarray of float64, each of shape (n,)
        In time order; the i-th values belong together.
    quantiles : sequence of float
    replicates : int
        How many.
    seed : str
        As for `quantile_replicates`.

    Returns
    -------
    ndarray of float64, shape (len(sides), len(quantiles), replicates)

    Examples
    --------
    >>> a = np.array([1.0, 2.0, 9.0])
    >>> one, two = quantiles_replicates([a, a + 5], [0.5], 4, "a")
    >>> (two - one).tolist()
    [[5.0, 5.0, 5.0, 5.0]]
    """
    n = len(sides[0])
    places = [((n - 1) * q, int((n - 1) * q), min(int((n - 1) * q) + 1, n - 1)) for q in quantiles]
    cuts = tuple(sorted({i for _, low, high in places for i in (low, high)}))
    out = np.empty((len(sides), len(quantiles), replicates))
    for first, index in _draws(n, replicates, seed):
        for side, values in enumerate(sides):
            drawn = np.partition(values[index], cuts, axis=1)
            for k, (position, low, high) in enumerate(places):
                out[side, k, first : first + len(index)] = drawn[:, low] + (drawn[:, high] - drawn[:, low]) * (position - low)
    return out


def _draws(n: int, replicates: int, seed: str) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield rows of indices, one row per resample, with the number of the first; memory is bounded."""
    block = block_length(n)
    blocks = -(-n // block)
    bits = np.random.PCG64(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
    offsets = np.arange(block)
    step = max(1, 2_000_000 // n)  # resamples at a time: bounds the memory
    for first in range(0, replicates, step):
        rows = min(step, replicates - first)
        raw = bits.random_raw(rows * blocks) >> np.uint64(32)
        starts = (raw * np.uint64(n) >> np.uint64(32)).astype(np.int64).reshape(rows, blocks)
        yield first, (starts[:, :, None] + offsets).reshape(rows, blocks * block)[:, :n] % n
