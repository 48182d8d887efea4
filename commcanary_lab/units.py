"""The one conversion module: nanoseconds, microseconds, bytes, rates, and how they are shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["MAX_TIME_US", "bits_per_us", "format_bytes", "format_count", "format_ns", "format_rate", "format_us", "ns_to_us", "us_to_ns"]

#: Largest time in a trace (11.6 days): below it every whole nanosecond is exact in float64 microseconds.
MAX_TIME_US = 1e12


def us_to_ns(time_us: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Convert microseconds to whole nanoseconds, exactly.

    Parameters
    ----------
    time_us : array_like of float
        Times in microseconds.

    Returns
    -------
    time_ns : ndarray of int64
        The nearest whole nanosecond.
    exact : ndarray of bool
        True where the input is a whole number of nanoseconds, that is, where ``time_ns / 1000`` gives the same
        float64 back. (``x * 1000`` alone would not do: 1.001 * 1000 is 1000.9999999999999 in float64 arithmetic.)

    Examples
    --------
    >>> us_to_ns([78.296, 0.0005])
    (array([78296,     0]), array([ True, False]))
    """
    import numpy as np

    values = np.asarray(time_us, dtype=np.float64)
    # the two casts are guarded by callers that bound values by MAX_TIME_US
    with np.errstate(invalid="ignore", over="ignore"):
        time_ns = np.rint(values * 1000.0).astype(np.int64)
    return time_ns, time_ns / 1000.0 == values


def ns_to_us(time_ns: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Convert nanoseconds to float64 microseconds.

    Examples
    --------
    >>> ns_to_us([78296]).tolist()
    [78.296]
    """
    import numpy as np

    return np.asarray(time_ns) / 1000.0


def bits_per_us(rate_gbps: float) -> float:
    """Bits that a link of `rate_gbps` Gbit/s moves in one microsecond.

    Examples
    --------
    >>> bits_per_us(55.0)
    55000.0
    """
    return rate_gbps * 1000.0


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, 2 - magnitude)}f}"


def format_bytes(size_bytes: float) -> str:
    """Format a byte count for people, in binary units and three significant digits.

    Examples
    --------
    >>> format_bytes(2415919104), format_bytes(640), format_bytes(0)
    ('2.25 GiB', '640 B', '0 B')
    """
    if not math.isfinite(size_bytes):
        return "unknown"
    value, unit, larger = float(size_bytes), "B", ["PiB", "TiB", "GiB", "MiB", "KiB"]
    while abs(value) >= 1024 and larger:
        value, unit = value / 1024, larger.pop()
    return f"{value:,.0f} B" if unit == "B" else f"{_three_digits(value)} {unit}"


def format_us(time_us: float) -> str:
    """Format a time for people.

    Examples
    --------
    >>> format_us(43000.0), format_us(7.5), format_us(0.25), format_us(2.5e6)
    ('43.0 ms', '7.50 us', '250 ns', '2.50 s')
    """
    if not math.isfinite(time_us):
        return "unknown"
    if time_us == 0:
        return "0 us"
    for limit, scale, unit in ((1.0, 1e3, "ns"), (1e3, 1.0, "us"), (1e6, 1e-3, "ms")):
        if abs(time_us) < limit:
            return f"{_three_digits(time_us * scale)} {unit}"
    return f"{_three_digits(time_us * 1e-6)} s"


def format_ns(time_ns: float) -> str:
    """Format nanoseconds for people.

    Examples
    --------
    >>> format_ns(43_000_000)
    '43.0 ms'
    """
    return format_us(time_ns / 1000.0)


def format_rate(rate_gb_s: float) -> str:
    """Format a rate in GB/s (1 GB = 1e9 bytes).

    Examples
    --------
    >>> format_rate(29.3614)
    '29.4 GB/s'
    """
    return "unknown" if not math.isfinite(rate_gb_s) else f"{_three_digits(rate_gb_s)} GB/s"


def format_count(count: int) -> str:
    """Format a count with thousands separators.

    Examples
    --------
    >>> format_count(216092)
    '216,092'
    """
    return f"{count:,d}"
