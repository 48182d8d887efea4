"""Number rows of integer columns: distinct combinations, and repetitions of one number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["first_rows", "number_rows", "positions", "stable_order"]

IntArray = npt.NDArray[np.int64]

#: Up to this many distinct keys, looking each one up is faster than sorting them all.
_FEW_BITS = 12
_FEW = 1 << _FEW_BITS
#: From here on the compiled search pays for being loaded.
_MANY_ROWS = 1 << 18


def number_rows(*columns: npt.NDArray[np.integer]) -> tuple[IntArray, int]:
    """Number the distinct combinations of columns, in ascending order of the columns.

    Parameters
    ----------
    columns : ndarray of int, shape (n,)
        At least one.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Number of each row's combination.
    count : int
        How many there are.

    Examples
    --------
    >>> number_rows(np.array([5, 5, 1]), np.array([0, 1, 0]))
    (array([1, 2, 0]), 3)
    """
    n = len(columns[0])
    if n == 0:
        return np.zeros(0, np.int64), 0
    key, width = np.zeros(n, np.int64), 1
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        if span == 1:
            continue
        if width * span >= 1 << 62:
            key, width = _dense(key, width)
            column, span = _dense(column.astype(np.int64) - low if span < 1 << 62 else np.unique(column, return_inverse=True)[1], span)
            low = 0
        key = key * span + (column.astype(np.int64, copy=False) - low)
        width *= span
    return _dense(key, width)


def _dense(key: IntArray, width: int) -> tuple[IntArray, int]:
    """Number keys below `width`; a table is faster than a sort where it is not much larger than the keys."""
    if width <= 8 * len(key) + 4096:
        present = np.zeros(width, np.bool_)
        present[key] = True
        table = np.cumsum(present) - 1
        return table[key], int(table[-1]) + 1
    if len(key) >= _MANY_ROWS:
        from commcanary_lab.trace.numbering_kernels import number_few

        codes, distinct = number_few(np.ascontiguousarray(key), _FEW_BITS)
        if len(distinct):
            rank = np.empty(len(distinct), np.int64)
            rank[np.argsort(distinct)] = np.arange(len(distinct))
            return rank[codes], len(distinct)
    elif len(values := np.unique(key)) <= _FEW:  # found faster than sorted
        return np.searchsorted(values, key).astype(np.int64, copy=False), len(values)
    values, codes = np.unique(key, return_inverse=True)
    return codes.astype(np.int64, copy=False), len(values)


def stable_order(codes: npt.NDArray[np.integer], count: int) -> npt.NDArray[np.intp]:
    """Return the rows sorted by code, those of one code in row order.

    Parameters
    ----------
    codes : ndarray of int, shape (n,)
        Numbers from 0 to `count` - 1.
    count : int
        Up to 65,536 codes are sorted by their digits, in linear time.

    Examples
    --------
    >>> stable_order(np.array([1, 0, 1, 0]), 2)
    array([1, 3, 0, 2])
    """
    return np.argsort(codes.astype(np.uint16) if count <= 1 << 16 else codes, kind="stable")


def positions(codes: npt.NDArray[np.integer]) -> IntArray:
    """Number the rows of each code in row order.

    Examples
    --------
    >>> positions(np.array([7, 3, 7, 7]))
    array([0, 0, 1, 2])
    """
    n = len(codes)
    if n == 0:
        return np.zeros(0, np.int64)
    ordered = bool(np.all(codes[1:] >= codes[:-1]))
    order = np.arange(n) if ordered else np.argsort(codes, kind="stable")
    new = np.ones(n, np.bool_)
    new[1:] = codes[order][1:] != codes[order][:-1]
    starts = np.flatnonzero(new)
    out = np.empty(n, np.int64)
    out[order] = np.arange(n) - np.repeat(starts, np.diff(starts, append=n))
    return out


def first_rows(codes: npt.NDArray[np.integer], count: int) -> IntArray:
    """Return the first row of each code from 0 to `count` - 1, all of which occur.

    Examples
    --------
    >>> first_rows(np.array([1, 0, 1, 0]), 2)
    array([1, 0])
    """
    out = np.zeros(count, np.int64)
    out[codes[::-1]] = np.arange(len(codes))[::-1]  # the last write is that of the first row
    return out
