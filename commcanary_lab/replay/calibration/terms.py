"""Latency and bandwidth with what is known of their uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UsageError
from commcanary_lab.replay.calibration.resample import Interval

__all__ = ["Terms"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Terms:
    """alpha and bandwidth of ``time = steps * alpha + bytes / bandwidth``.

    Parameters
    ----------
    alpha_us : float
        Latency of one step, microseconds.
    us_per_byte : float
        Microseconds per byte on the busiest link; 0 where the samples show no cost of bytes.
    draws : ndarray of float64, shape (n, 2), optional
        Resampled pairs of both, in these units; without them nothing is known of the uncertainty.
    confidence : float
        Of the intervals.
    origin : str
        measured or assumed.
    source : str
        In words.
    """

    alpha_us: float
    us_per_byte: float
    draws: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    confidence: float = 0.95
    origin: str = "measured"
    source: str = ""

    @classmethod
    def assumed(cls, alpha_us: float, bandwidth_gb_s: float) -> Terms:
        """Return terms that somebody states, without uncertainty.

        Raises
        ------
        UsageError
            If a value is no number above 0 (alpha may be 0).

        Examples
        --------
        >>> t = Terms.assumed(5.0, 25.0)
        >>> t.time_us(6, 3_000_000), t.origin, t.interval_us(6, 3_000_000)
        (150.0, 'assumed', None)
        """
        if not (math.isfinite(alpha_us) and alpha_us >= 0):
            raise UsageError(f"alpha is {alpha_us} us", remedy="give a number of microseconds >= 0")
        if not (math.isfinite(bandwidth_gb_s) and bandwidth_gb_s > 0):
            raise UsageError(f"the bandwidth is {bandwidth_gb_s} GB/s", remedy="give a number above 0")
        return cls(
            float(alpha_us), 1e-3 / bandwidth_gb_s, origin="assumed", source=f"{alpha_us:g} us and {bandwidth_gb_s:g} GB/s, as given"
        )

    @property
    def bandwidth_gb_s(self) -> float:
        """Bandwidth in GB/s (1e9); infinite where the samples show no cost of bytes."""
        return rate_gb_s(self.us_per_byte)

    def time_us(self, steps: float, wire_bytes: float) -> float:
        """Return ``steps * alpha + wire_bytes / bandwidth``, microseconds."""
        return steps * self.alpha_us + wire_bytes * self.us_per_byte

    def draws_us(self, steps: float, wire_bytes: float) -> FloatArray:
        """Return that time for each resampled pair, shape (n,)."""
        out: FloatArray = self.draws @ np.array([steps, wire_bytes])
        return out

    def interval_us(self, steps: float, wire_bytes: float) -> Interval | None:
        """Return the interval of that time; None where the uncertainty is unknown."""
        return Interval.of(self.draws_us(steps, wire_bytes), self.confidence) if len(self.draws) else None


def rate_gb_s(us_per_byte: float) -> float:
    """Return GB/s from microseconds per byte."""
    return 1e-3 / us_per_byte if us_per_byte > 0 else math.inf
