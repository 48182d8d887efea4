"""A rate that changed, taken apart: how much of the change is the yield of a cycle, how much is its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from commcanary_lab.errors import UsageError

__all__ = ["RateFactors", "factorise"]


@dataclass(frozen=True)
class RateFactors:
    """Change of a rate ``per_cycle / cycle_time`` and its two parts.

    The parts are differences of logarithms, which add up: ``ln(rate) = ln(per_cycle) - ln(cycle)``.

    Parameters
    ----------
    control, candidate : float
        The rates, per second.
    per_cycle_log, cycle_log : float
        What the yield and the cycle time contribute to the logarithm of candidate / control.
    """

    control: float
    candidate: float
    per_cycle_log: float
    cycle_log: float

    @property
    def change_log(self) -> float:
        """Logarithm of candidate / control."""
        return self.per_cycle_log + self.cycle_log

    @property
    def change_pct(self) -> float:
        """Change of the rate in percent of the control."""
        return 100 * (self.candidate / self.control - 1)

    @property
    def cycle_share(self) -> float:
        """Share of the change that is the cycle time; NaN where nothing changed, beyond 1 where the yield works against it."""
        return self.cycle_log / self.change_log if self.change_log else math.nan


def factorise(control: tuple[float, float], candidate: tuple[float, float]) -> RateFactors:
    """Take a change of a rate apart.

    Parameters
    ----------
    control, candidate : pair of float
        What a cycle yields, and its time in microseconds.

    Raises
    ------
    UsageError
        If a figure is not positive.

    Examples
    --------
    >>> factors = factorise((3.9552, 39_350.0), (3.9546, 40_380.0))
    >>> f"{factors.control:.2f} -> {factors.candidate:.2f} per second: {factors.change_pct:.2f} %"
    '100.51 -> 97.93 per second: -2.57 %'
    >>> f"{100 * factors.cycle_share:.1f} % of it is the cycle time"
    '99.4 % of it is the cycle time'
    """
    for value in (*control, *candidate):
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{value!r} is no part of a rate", remedy="give positive numbers: yield of a cycle, and its time")
    (e0, c0), (e1, c1) = control, candidate
    return RateFactors(1e6 * e0 / c0, 1e6 * e1 / c1, math.log(e1 / e0), -math.log(c1 / c0))
