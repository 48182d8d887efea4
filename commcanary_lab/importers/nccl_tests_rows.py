"""Rows of an nccl-tests table, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measurement", "NcclTestsTable", "Row", "corrected", "rank_interval"]

#: Operations whose bus bandwidth is 2 (n - 1) / n times the algorithm bandwidth; the factor of most others is (n - 1) / n.
_TWICE = frozenset({"all_reduce"})
#: Operations whose bus bandwidth is the algorithm bandwidth, whatever the number of ranks.
_ONCE = frozenset({"broadcast", "reduce", "sendrecv"})
_MAX_RANKS = 1 << 20


@dataclass(frozen=True)
class Measurement:
    """One half of a row.

    Parameters
    ----------
    time_us : float or None
        Time of one call; None where the table has none.
    algbw_gb_s, busbw_gb_s : float or None
        Bandwidths as the table states them; GB = 1e9.
    wrong : float or None
        Wrong elements, or the error of older versions; None where it was not checked.
    """

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: float | None


@dataclass(frozen=True)
class Row:
    """One size.

    Parameters
    ----------
    size_bytes : int
        B.
    count : int
        Elements, as the test counts them.
    dtype, redop : str or None
        None where the table has no such column.
    root : int or None
        None where the operation has no root.
    out_of_place, in_place : Measurement or None
        None where the table leaves that half blank.
    line : int
        One-based line of the file; 0 in structured output.
    """

    size_bytes: int
    count: int
    dtype: str | None
    redop: str | None
    root: int | None
    out_of_place: Measurement | None
    in_place: Measurement | None
    line: int = 0

    @property
    def halves(self) -> tuple[Measurement, ...]:
        """The halves that are there."""
        return tuple(m for m in (self.out_of_place, self.in_place) if m is not None)


@dataclass(frozen=True)
class NcclTestsTable:
    """A table of nccl-tests or a test like it.

    Parameters
    ----------
    op : str or None
        Operation: what the file says, otherwise what its name says (then a note says so).
    rows : tuple of Row
        In the order of the file.
    ranks : int or None
        Number of ranks: stated, or the only one that fits the bandwidths.
    ranks_stated : bool
        The file lists its ranks.
    version : str or None
        Version of nccl-tests.
    failed : bool
        The test found wrong results: its own verdict, or a row with wrong elements.
    file : str
        The file.
    notes, warnings : tuple of str
        What was inferred or corrected, and what is damaged.
    """

    op: str | None
    rows: tuple[Row, ...]
    ranks: int | None
    ranks_stated: bool
    version: str | None
    failed: bool
    file: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def df(self) -> pd.DataFrame:
        """One row per size and half: ``size_bytes, count, dtype, redop, root, in_place, time_us, algbw_gb_s, busbw_gb_s, wrong``."""
        import pandas as pd

        out = [
            (
                r.size_bytes,
                r.count,
                r.dtype,
                r.redop,
                r.root,
                half is r.in_place,
                half.time_us,
                half.algbw_gb_s,
                half.busbw_gb_s,
                half.wrong,
            )
            for r in self.rows
            for half in r.halves
        ]
        names = ["size_bytes", "count", "dtype", "redop", "root", "in_place", "time_us", "algbw_gb_s", "busbw_gb_s", "wrong"]
        return pd.DataFrame(out, columns=names).astype({"root": "Int64", "wrong": "float64"})


def corrected(rows: Sequence[Row]) -> tuple[tuple[Row, ...], int]:
    """Restore the algorithm bandwidth where an old version printed the bus bandwidth in its column.

    Versions of 2020 and before folded the (n - 1) / n of all_gather into both columns: they are equal then, and differ from size / time.

    Returns
    -------
    rows : tuple of Row
        With algbw = size / time where that was so.
    changed : int
        How many rows were changed.
    """
    out, changed = [], 0
    for row in rows:
        halves = [None if m is None else _restored(m, row.size_bytes) for m in (row.out_of_place, row.in_place)]
        new = replace(row, out_of_place=halves[0], in_place=halves[1])
        changed += new != row
        out.append(new)
    return tuple(out), changed


def _restored(m: Measurement, size_bytes: int) -> Measurement:
    if not m.time_us or not m.algbw_gb_s or m.algbw_gb_s != m.busbw_gb_s:
        return m
    actual = size_bytes / m.time_us / 1e3
    # printed with two decimals, the time with four or five digits
    return replace(m, algbw_gb_s=actual) if actual - m.algbw_gb_s > 0.01 + 0.002 * actual else m


def rank_interval(rows: Sequence[Row], op: str | None) -> tuple[int, int] | None:
    """Return the smallest and largest number of ranks that all rows allow, from the ratio of their bandwidths and its rounding.

    Examples
    --------
    >>> half = Measurement(58.14, 18.04, 15.78, 0)
    >>> rank_interval([Row(1048576, 32768, "float", "none", None, half, None)], "alltoall")
    (8, 8)
    """
    if op in _ONCE:
        return None
    low, high = 1.0, float(_MAX_RANKS)
    used = False
    for row in rows:
        for m in row.halves:
            bounds = _bounds(m, row.size_bytes, 2 if op in _TWICE else 1)
            if bounds is not None:
                low, high, used = max(low, bounds[0]), min(high, bounds[1]), True
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    return (first, last) if used and first <= last < _MAX_RANKS else None


def _bounds(m: Measurement, size_bytes: int, passes: int) -> tuple[float, float] | None:
    """Numbers of ranks for which busbw / algbw = passes (n - 1) / n within the rounding of the columns."""
    if not m.time_us or not m.busbw_gb_s or not m.algbw_gb_s:
        return None
    algbw = size_bytes / m.time_us / 1e3  # more digits than the column
    if abs(algbw - m.algbw_gb_s) > 0.011 + 0.002 * algbw:
        algbw = m.algbw_gb_s
    slack = 0.0051 / m.busbw_gb_s + _rounding(m.time_us)
    ratio = m.busbw_gb_s / algbw / passes
    low, high = ratio * (1 - slack), ratio * (1 + slack)
    if low >= 1:
        return None
    return 1 / (1 - low), 1 / (1 - high) if high < 1 else float(_MAX_RANKS)


def _rounding(time_us: float) -> float:
    """Relative rounding of the time column: two decimals, later fewer, never less than four digits."""
    step = 0.01 if time_us < 1e3 else 0.1 if time_us < 1e4 else 1.0
    return 0.51 * step / time_us
