"""Algorithm and bus bandwidth, as nccl-tests defines them."""

from __future__ import annotations

import math

__all__ = ["algbw_gb_s", "bus_factor"]

_SPREAD = frozenset({"all_gather", "reduce_scatter", "all_to_all", "all_to_all_v"})
_WHOLE = frozenset({"broadcast", "reduce", "send", "recv", "point_to_point"})


def bus_factor(op: str, group_size: int) -> float:
    """Return busbw / algbw of an operation over `group_size` ranks; NaN where none is defined.

    Examples
    --------
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("send", 2), bus_factor("barrier", 8)
    (1.75, 0.75, 1.0, nan)
    """
    if op == "all_reduce":
        return 2 * (group_size - 1) / group_size
    if op in _SPREAD:
        return (group_size - 1) / group_size
    return 1.0 if op in _WHOLE else math.nan


def algbw_gb_s(size_bytes: float, time_us: float) -> float:
    """Return B / time in GB/s (1e9); NaN where the time is unknown or 0.

    Examples
    --------
    >>> algbw_gb_s(1_000_000, 10.0), algbw_gb_s(8, 0.0)
    (100.0, nan)
    """
    return size_bytes / (time_us * 1e3) if time_us > 0 else math.nan
