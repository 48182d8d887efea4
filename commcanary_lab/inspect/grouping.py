"""Group rows by several integer columns, and quantiles per group, in a few numpy passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace import Coded, ProcessGroup, Trace

__all__ = ["Grouping", "dense_codes", "group_by", "group_codes", "quantiles", "sums", "text_codes"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Below this many possible keys a lookup table is cheaper than sorting.
_TABLE = 1 << 21


@dataclass(frozen=True, eq=False)
class Grouping:
    """Rows that agree in every key column.

    Parameters
    ----------
    codes : ndarray of int64, shape (n,)
        Group of each row; groups are numbered in the order of their key columns.
    first : ndarray of int64, shape (m,)
        The first row of each group.
    """

    codes: IntArray
    first: IntArray

    @property
    def count(self) -> int:
        """Number of groups, m."""
        return len(self.first)

    @property
    def sizes(self) -> IntArray:
        """Rows per group, shape (m,)."""
        return np.bincount(self.codes, minlength=self.count)


def dense_codes(values: npt.NDArray[np.integer]) -> tuple[IntArray, IntArray]:
    """Number the distinct values in ascending order.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
    distinct : ndarray of int64, shape (m,)

    Examples
    --------
    >>> codes, distinct = dense_codes(np.array([64, 8, 64]))
    >>> codes.tolist(), distinct.tolist()
    ([1, 0, 1], [8, 64])
    """
    values = values.astype(np.int64, copy=False)
    distinct = np.unique(values)
    return np.searchsorted(distinct, values).astype(np.int64, copy=False), distinct


def group_by(*columns: npt.NDArray[np.integer]) -> Grouping:
    """Group rows by columns of non-negative integers.

    Parameters
    ----------
    *columns : ndarray of int, shape (n,)
        Key columns, the most significant first.

    Examples
    --------
    >>> g = group_by(np.array([1, 0, 1, 1]), np.array([0, 0, 0, 2]))
    >>> g.codes.tolist(), g.first.tolist(), g.sizes.tolist()
    ([1, 0, 1, 2], [1, 0, 3], [1, 2, 1])
    """
    key = columns[0].astype(np.int64)
    n = len(key)
    if n == 0:
        return Grouping(np.zeros(0, np.int64), np.zeros(0, np.int64))
    span = int(key.max()) + 1
    for column in columns[1:]:
        width = int(column.max()) + 1
        if span * width >= 1 << 62:  # the composite would overflow: number what is there first
            key, distinct = dense_codes(key)
            span = len(distinct)
        key = key * width + column
        span *= width
    if span <= max(_TABLE, 2 * n):
        present = np.zeros(span, np.bool_)
        present[key] = True
        table = np.cumsum(present) - 1
        codes, count = table[key], int(table[-1]) + 1
    else:
        codes, distinct = dense_codes(key)
        count = len(distinct)
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(n - 1, -1, -1)  # the last assignment wins: the first row
    return Grouping(codes, first)


def sums(codes: IntArray, values: npt.NDArray[np.integer], count: int) -> IntArray:
    """Exact integer sums per group, shape (count,).

    Examples
    --------
    >>> sums(np.array([0, 1, 0]), np.array([2**60, 1, 1]), 2).tolist()
    [1152921504606846977, 1]
    """
    out = np.zeros(count, np.int64)
    np.add.at(out, codes, values.astype(np.int64, copy=False))
    return out


def quantiles(codes: IntArray, values: npt.NDArray[np.integer], count: int, at: Sequence[float]) -> FloatArray:
    """Quantiles per group, linearly interpolated at position (n - 1) q of the sorted sample.

    Parameters
    ----------
    codes : ndarray of int64, shape (n,)
        Group of each value.
    values : ndarray of int, shape (n,)
        Non-negative values.
    count : int
        Number of groups, m.
    at : sequence of float
        The quantiles, in [0, 1].

    Returns
    -------
    ndarray of float64, shape (len(at), m)
        NaN for groups without values.

    Examples
    --------
    >>> quantiles(np.array([0, 0, 0, 2]), np.array([10, 30, 20, 5]), 3, (0.5, 0.95)).tolist()
    [[20.0, nan, 5.0], [29.0, nan, 5.0]]
    """
    out = np.full((len(at), count), np.nan)
    if len(values) == 0:
        return out
    sizes = np.bincount(codes, minlength=count)
    width = int(values.max()) + 1
    if count * width < 1 << 62:
        ordered = np.sort(codes * width + values) % width
    else:
        ordered = values[np.lexsort((values, codes))]
    starts = np.cumsum(sizes) - sizes
    filled = sizes > 0
    for i, q in enumerate(at):
        position = (sizes[filled] - 1) * q
        low = np.floor(position).astype(np.int64)
        high = np.minimum(low + 1, sizes[filled] - 1)
        a, b = ordered[starts[filled] + low], ordered[starts[filled] + high]
        out[i, filled] = a + (b - a) * (position - low)
    return out


def text_codes(column: Coded) -> tuple[IntArray, tuple[str | None, ...]]:
    """Codes >= 0 of a text column and what they stand for; the last code is absent text (None).

    Examples
    --------
    >>> codes, names = text_codes(Coded.from_optional(["decode", None]))
    >>> codes.tolist(), names
    ([0, 1], ('decode', None))
    """
    table: dict[str | None, int] = {}
    lookup = [table.setdefault(name, len(table)) for name in column.names]
    lookup.append(len(table))  # code -1 reads the last entry
    return np.array(lookup, np.int64)[column.codes], (*table, None)


def group_codes(trace: Trace) -> tuple[IntArray, tuple[ProcessGroup, ...]]:
    """Codes of the process group of each event; equal groups share one code."""
    table: dict[ProcessGroup, int] = {}
    lookup = np.array([table.setdefault(g, len(table)) for g in trace.groups], np.int64)
    codes = lookup[trace.group] if len(trace) else np.zeros(0, np.int64)
    return codes, tuple(table)
