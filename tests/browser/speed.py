"""Times of changes on the screen."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

__all__ = ["Speed"]


@dataclass(frozen=True)
class Speed:
    """Milliseconds of each change, and what they should stay below."""

    times_ms: tuple[float, ...]
    target_ms: float

    @property
    def median_ms(self) -> float:
        """The median."""
        return statistics.median(self.times_ms)

    @property
    def p95_ms(self) -> float:
        """The 95th percentile."""
        return float(np.percentile(self.times_ms, 95))

    def __str__(self) -> str:
        return f"median {self.median_ms:.0f} ms, p95 {self.p95_ms:.0f} ms of {len(self.times_ms)} (target {self.target_ms:.0f} ms)"
