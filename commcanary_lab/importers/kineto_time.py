"""Times of a profiler trace as exact nanoseconds.

``ts`` and ``dur`` are microseconds. ``ts`` is either relative to ``baseTimeNanoseconds`` or absolute (since 1970), which its magnitude
tells: 1e14 us is 1973, and no profile runs for three years.

An absolute time in float64 has steps of 0.25 us, and its shortest text shows at most one digit after the point (.2 for .25, .8 for
.75). A file whose absolute times all look like that went through float64: the value meant is the float64 one, not the text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

__all__ = ["ABSOLUTE_US", "BadTimeError", "TimeReader"]

#: From this magnitude on a time counts from 1970.
ABSOLUTE_US = 10**14

#: int64 nanoseconds end here.
_LIMIT_US = 9 * 10**15


class BadTimeError(ValueError):
    """The text is not a time."""


def _shown(text: bytes) -> str:
    return " ".join(text[:40].decode(errors="replace").split())


class TimeReader:
    """Converts the texts of one file.

    Parameters
    ----------
    base_ns : int, optional
        ``baseTimeNanoseconds``.

    Attributes
    ----------
    float64_grid : bool
        Absolute times of the file went through float64 (resolution 250 ns).
    relative, absolute : bool
        Which kinds of times were converted.
    rounded : int
        Values with a fraction of a nanosecond, rounded to the nearest.

    Examples
    --------
    >>> t = TimeReader(1711964646000000000)
    >>> t.start_ns(b"1000.25"), t.start_ns(b"1711964646001005.2")
    (1711964646001000250, 1711964646001005200)
    >>> t.detect_grid([b"1711964646001005.2"]); t.start_ns(b"1711964646001005.2"), t.float64_grid
    (1711964646001005250, True)
    """

    def __init__(self, base_ns: int | None) -> None:
        self.base_ns = base_ns
        self.float64_grid = False
        self.relative = False
        self.absolute = False
        self.rounded = 0
        self.largest_change_ns = Fraction(0)

    def detect_grid(self, texts: Iterable[bytes]) -> None:
        """Find out from the texts of many ``ts`` whether absolute times went through float64."""
        short = False
        for text in texts:
            whole, _, digits = text.strip(b'"').partition(b".")
            if len(whole) < 15 or not digits:
                continue
            if len(digits) > 1:
                self.float64_grid = False
                return
            short = short or digits != b"0"
        self.float64_grid = short

    def start_ns(self, text: bytes) -> int:
        """Nanoseconds since 1970, or since an unknown origin where times are relative and the file has no base.

        Raises
        ------
        BadTimeError
            If the text is not a time.
        """
        ns = self.span_ns(text)
        if ns < ABSOLUTE_US * 1000:
            self.relative = True
            if ns + (self.base_ns or 0) >= 1 << 63:
                raise BadTimeError(f"{_shown(text)} after baseTimeNanoseconds {self.base_ns} is beyond the range of times")
            return ns + (self.base_ns or 0)
        self.absolute = True
        if self.float64_grid:
            exact = Fraction(float(text.strip(b'"'))) * 1000
            return self._whole(exact)
        return ns

    def span_ns(self, text: bytes) -> int:
        """Nanoseconds of a microsecond text, exact; a fraction of a nanosecond is rounded and counted.

        Raises
        ------
        BadTimeError
            If the text is not a number, or beyond int64 nanoseconds.
        """
        # the texts that profilers write: whole microseconds, or exactly three digits after the point
        if text.isdigit() and len(text) < 16:
            return int(text) * 1000
        if text[-4:-3] == b"." and len(text) < 20 and text[:1] != b'"':
            with contextlib.suppress(ValueError):
                return int(text.replace(b".", b""))
        whole, point, digits = text.partition(b".")
        if whole.isdigit() and len(whole) <= 16 and len(digits) <= 3 and (not point or digits.isdigit()):
            us = int(whole)
            if us < _LIMIT_US:
                return us * 1000 + int(digits.ljust(3, b"0"))
        try:
            value = Decimal(text.strip(b'"').decode("ascii"))
        except (InvalidOperation, UnicodeDecodeError):
            raise BadTimeError(f"{_shown(text) or 'nothing'} is not a time") from None
        if not value.is_finite() or abs(value) > _LIMIT_US:
            raise BadTimeError(f"{_shown(text)} is beyond the range of times")
        if not value or value.adjusted() < -40:  # never expand an absurd exponent
            return 0
        return self._whole(Fraction(value) * 1000)

    def _whole(self, exact: Fraction) -> int:
        ns = round(exact)
        if ns != exact:
            self.rounded += 1
            self.largest_change_ns = max(self.largest_change_ns, abs(exact - ns))
        return ns
