"""What one comparison of two versions can say: how much fewer bytes may save at most, and which factor of a rate changed.

The worked example is a decode step on 4 ranks. It gathered logits (4,816,896 bytes) to find the best token; the changed version finds
the best token of each rank first and gathers those (768 bytes). See docs/levers.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.replay.calibration.costs import cost_of

__all__ = ["LOCAL_ARGMAX", "ByteSaving", "RateChange", "RateParts", "byte_saving_bound", "factor_rate"]


def byte_saving_bound(size_before_bytes: int, size_after_bytes: int, ranks: int, bandwidth_gb_s: float, *, op: str = "all_gather") -> float:
    """Return the most that fewer bytes can save, microseconds: the bytes that no longer travel, over the bandwidth.

    Latency stays, because the call stays. What is computed in exchange for the bytes is not counted.

    Parameters
    ----------
    size_before_bytes, size_after_bytes : int
        B of the call, before and after.
    ranks : int
        k.
    bandwidth_gb_s : float
        Of the busiest link, GB/s (1e9).
    op : str
        The operation; an all_gather puts (k - 1) / k of B on each link.

    Raises
    ------
    UsageError
        If the bandwidth is not above 0, or a size is negative.

    Examples
    --------
    >>> [round(byte_saving_bound(4_816_896, 768, 4, rate) / 1000, 2) for rate in (8, 16, 25, 50)]
    [0.45, 0.23, 0.14, 0.07]
    """
    if not (math.isfinite(bandwidth_gb_s) and bandwidth_gb_s > 0):
        raise UsageError(f"the bandwidth is {bandwidth_gb_s} GB/s", remedy="give a number above 0")
    if size_before_bytes < 0 or size_after_bytes < 0:
        raise UsageError("a size is negative", remedy="give bytes >= 0")
    return cost_of(op, ranks).wire_bytes(size_before_bytes - size_after_bytes) / (bandwidth_gb_s * 1e3)


@dataclass(frozen=True)
class RateParts:
    """A rate as a quotient: what a cycle emits over how long it takes.

    Parameters
    ----------
    emitted_per_cycle : float
        Tokens per cycle.
    cycle_ms : float
        Milliseconds.

    Raises
    ------
    InputError
        If a part is no number above 0.
    """

    emitted_per_cycle: float
    cycle_ms: float

    def __post_init__(self) -> None:
        for name in ("emitted_per_cycle", "cycle_ms"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}", field=name, remedy="give a number above 0")

    @property
    def per_second(self) -> float:
        """The rate."""
        return self.emitted_per_cycle / self.cycle_ms * 1e3


@dataclass(frozen=True)
class RateChange:
    """How a rate changed, and through which factor.

    Logarithms of factors add up, so each factor has a share of the change: ``ln(rate ratio) = ln(emitted ratio) - ln(cycle ratio)``.
    Where the factors pull in opposite directions, a share is below 0 and the other above 1.

    Parameters
    ----------
    before, after : RateParts
        The two measurements.
    """

    before: RateParts
    after: RateParts

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of rate after over rate before."""
        return self.log_emitted + self.log_cycle

    @property
    def log_emitted(self) -> float:
        """What the tokens per cycle contribute to it."""
        return math.log(self.after.emitted_per_cycle / self.before.emitted_per_cycle)

    @property
    def log_cycle(self) -> float:
        """What the cycle time contributes to it."""
        return -math.log(self.after.cycle_ms / self.before.cycle_ms)

    @property
    def change(self) -> float:
        """Relative change of the rate."""
        return math.expm1(self.log_ratio)

    @property
    def emitted_share(self) -> float | None:
        """Share of the tokens per cycle in the change; None where the rate did not change."""
        return self.log_emitted / self.log_ratio if self.log_ratio else None

    @property
    def cycle_share(self) -> float | None:
        """Share of the cycle time in the change; None where the rate did not change."""
        return self.log_cycle / self.log_ratio if self.log_ratio else None


def factor_rate(before: RateParts, after: RateParts) -> RateChange:
    """Split the change of a rate into the parts of its factors.

    Examples
    --------
    >>> change = factor_rate(RateParts(3.9552, 39.35), RateParts(3.9546, 40.38))
    >>> round(change.before.per_second, 1), round(change.after.per_second, 1), f"{change.change:.2%}", f"{change.cycle_share:.1%}"
    (100.5, 97.9, '-2.57%', '99.4%')
    """
    return RateChange(before, after)


@dataclass(frozen=True)
class ByteSaving:
    """A change that sends fewer bytes, and what one comparison of before and after measured.

    Parameters
    ----------
    size_before_bytes, size_after_bytes : int
        B of the call.
    ranks : int
        k.
    before, after : RateParts
        What was measured.
    collectives_per_cycle : int
        Calls in a cycle, as many before as after.
    """

    size_before_bytes: int
    size_after_bytes: int
    ranks: int
    before: RateParts
    after: RateParts
    collectives_per_cycle: int

    @property
    def factor(self) -> float:
        """How many times fewer bytes."""
        return self.size_before_bytes / self.size_after_bytes

    @property
    def growth_ms(self) -> float:
        """How much longer the cycle became."""
        return self.after.cycle_ms - self.before.cycle_ms

    def bound_ms(self, bandwidth_gb_s: float) -> float:
        """Return the most that the bytes can have saved."""
        return byte_saving_bound(self.size_before_bytes, self.size_after_bytes, self.ranks, bandwidth_gb_s) / 1e3

    def added_ms(self, bandwidth_gb_s: float) -> tuple[float, float]:
        """Return the least and the most that everything else in the change cost: growth = added - saved, 0 <= saved <= the bound.

        Examples
        --------
        >>> [round(x, 2) for x in LOCAL_ARGMAX.added_ms(8)]
        [1.03, 1.48]
        """
        return self.growth_ms, self.growth_ms + self.bound_ms(bandwidth_gb_s)

    @property
    def rate(self) -> RateChange:
        """The change of the rate by its factors."""
        return factor_rate(self.before, self.after)


#: Logits gathered against the best token of each rank.
LOCAL_ARGMAX = ByteSaving(4_816_896, 768, 4, RateParts(3.9552, 39.35), RateParts(3.9546, 40.38), 97)
