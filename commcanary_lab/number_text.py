"""Numbers as text, millions at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["decimal_digits", "int_list"]

_COMMA, _MINUS, _ZERO, _OPEN, _CLOSE = ord(","), ord("-"), ord("0"), ord("["), ord("]")


_TEN = np.uint64(10)
_POWERS = np.uint64(10) ** np.arange(1, 20, dtype=np.uint64)


@njit(cache=True, nogil=True)
def _magnitude(value: int) -> np.uint64:
    """The number without its sign; the smallest one has no negative, so its bits are negated."""
    return np.uint64(value) if value >= 0 else ~np.uint64(value) + np.uint64(1)


@njit(cache=True, nogil=True)
def decimal_digits(value: int) -> int:
    """Count the characters of a decimal number.

    Examples
    --------
    >>> decimal_digits(-120), decimal_digits(0)
    (4, 1)
    """
    size = _magnitude(value)
    count = 0
    while count < 19 and size >= _POWERS[count]:
        count += 1
    return count + 2 if value < 0 else count + 1


@njit(cache=True, nogil=True)
def _written(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    size = 1 + max(1, len(values))  # brackets, and commas between
    for value in values:
        size += decimal_digits(value)
    out = np.empty(size, np.uint8)
    out[0], place = _OPEN, size - 1
    for i in range(len(values) - 1, -1, -1):  # from the end: the last digit comes first
        out[place] = _COMMA
        value = values[i]
        left = _magnitude(value)
        while left >= _TEN:
            rest = left // _TEN
            place -= 1
            out[place] = _ZERO + (left - rest * _TEN)
            left = rest
        place -= 1
        out[place] = _ZERO + left
        if value < 0:
            place -= 1
            out[place] = _MINUS
        place -= 1
    out[size - 1] = _CLOSE
    return out


def int_list(values: npt.NDArray[np.int64]) -> bytes:
    """Return whole numbers as a JSON list without white space.

    Parameters
    ----------
    values : ndarray of int64, shape (n,)

    Returns
    -------
    bytes

    Examples
    --------
    >>> int_list(np.array([7, -10, 0])), int_list(np.zeros(0, np.int64))
    (b'[7,-10,0]', b'[]')
    """
    return _written(np.array(values, np.int64)).tobytes()
