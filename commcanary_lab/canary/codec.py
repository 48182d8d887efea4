"""Exact encodings of a column: constant, runs, a cycle after a head, an arithmetic sequence, or the plain list.

The encoded form is JSON that a person can read:

====================================  ==================================================
form                                  values
====================================  ==================================================
``96000``                             the same value on every row
``[1, 5, 2]``                         one value per row
``{"run": [[96000, 7], [240000, 1]]}``  96000 seven times, then 240000
``{"head": [0], "cycle": [96000]}``   0, then 96000 again and again (both parts encoded in turn)
``{"from": 3, "step": 2}``            3, 5, 7, ...
====================================  ==================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import FormatError

__all__ = ["Encoded", "decode", "encode", "record_count", "thousandths"]

Encoded = Any
Values = npt.NDArray[Any]

#: Deepest nesting of cycles that is read or written.
_MAX_DEPTH = 8


def encode(values: Values, depth: int = 0, *, arrays: bool = False) -> Encoded:
    """Encode a column exactly, in the shortest of the forms.

    Parameters
    ----------
    values : ndarray of int64 or float64, shape (m,)
        The column.
    arrays : bool
        Leave a list of whole numbers as the array that it is, for `canonical.canonical_bytes` to write.

    Returns
    -------
    JSON value

    Examples
    --------
    >>> encode(np.array([7, 7, 7])), encode(np.array([0] + [96000] * 9)), encode(np.array([1, 5, 2]))
    (7, {'run': [[0, 1], [96000, 9]]}, [1, 5, 2])
    >>> encode(np.arange(5) * 2 + 3)
    {'from': 3, 'step': 2}
    """
    n = len(values)
    if n == 0:
        return []
    first = values[0].item()
    if n < 4 or depth >= _MAX_DEPTH:
        return first if (values == first).all() else values.tolist()
    from commcanary_lab.canary.codec_kernels import measure

    is_int = values.dtype != np.float64
    # floats are compared by their bits; a fresh array: one compiled form whatever the flags
    arithmetic, plain, run_bytes, runs, head, period, cycle_bytes = measure(np.array(values).view(np.int64))
    if runs == 1:
        return first
    if arithmetic and is_int:
        return {"from": first, "step": int(values[1]) - first}
    if not is_int:  # the bytes of bits say nothing about the bytes of decimals: compare counts of values
        plain, run_bytes, cycle_bytes = 12 * n, 16 * runs, 12 * (head + period)
    if run_bytes < plain and not (period and head + period < runs and cycle_bytes < run_bytes):
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        lengths = np.diff(np.append(starts, n))
        return {"run": [[v, m] for v, m in zip(values[starts].tolist(), lengths.tolist(), strict=True)]}
    if period and cycle_bytes < plain:
        return _encode_cycle(values, head, period, depth)
    return np.ascontiguousarray(values) if arrays and is_int else values.tolist()


def _encode_cycle(values: Values, head: int, period: int, depth: int) -> Encoded:
    cycle = encode(values[head : head + period], depth + 1)
    if isinstance(cycle, dict) and "step" in cycle:
        cycle = values[head : head + period].tolist()  # a cycle must say its own length
    elif isinstance(cycle, dict) and "cycle" in cycle:
        cycle = {**cycle, "rows": period}
    return {"head": values[:head].tolist(), "cycle": cycle} if head else {"cycle": cycle}


def decode(value: Encoded, rows: int, dtype: npt.DTypeLike = np.int64, depth: int = 0) -> Values:
    """Decode a column of known length.

    Parameters
    ----------
    value : JSON value
        From `encode`.
    rows : int
        Number of rows.
    dtype : dtype
        int64 or float64.

    Raises
    ------
    FormatError
        If the value has another form or another number of rows.

    Examples
    --------
    >>> decode({"head": [0], "cycle": 4}, 5).tolist()
    [0, 4, 4, 4, 4]
    """
    if depth > _MAX_DEPTH:
        raise FormatError("an encoded column nests too deeply")
    if isinstance(value, list):
        out = _array(value, dtype)
        if len(out) != rows:
            raise FormatError(f"an encoded column has {len(out)} rows, expected {rows}")
        return out
    if isinstance(value, dict):
        return _decode_dict(value, rows, dtype, depth)
    return np.full(rows, _array([value], dtype)[0])


def _array(values: list[Any], dtype: npt.DTypeLike) -> Values:
    allowed = (int,) if np.dtype(dtype) == np.int64 else (int, float)
    for v in values:
        if type(v) not in allowed:
            raise FormatError(f"an encoded column holds {v!r}", remedy="expected numbers only")
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise FormatError("an encoded column holds a number outside 64 bits") from None


def _decode_dict(value: dict[str, Any], rows: int, dtype: npt.DTypeLike, depth: int) -> Values:
    keys = set(value)
    if keys == {"run"} and isinstance(value["run"], list):
        pairs = value["run"]
        if not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            raise FormatError("a run is not a list of [value, count] pairs")
        counts = _array([p[1] for p in pairs], np.int64)
        if (counts < 1).any() or sum(counts.tolist()) != rows:
            raise FormatError(f"runs cover {sum(counts.tolist())} rows, expected {rows}")
        return np.repeat(_array([p[0] for p in pairs], dtype), counts)
    if keys == {"from", "step"}:
        first, step = _array([value["from"], value["step"]], np.int64).tolist()
        if abs(first) + abs(step) * rows >= 1 << 63:
            raise FormatError("an arithmetic column leaves 64 bits")
        return first + step * np.arange(rows, dtype=np.int64)
    if keys in ({"cycle"}, {"head", "cycle"}, {"cycle", "rows"}, {"head", "cycle", "rows"}):
        head = _array(value.get("head", []), dtype) if isinstance(value.get("head", []), list) else _array([None], dtype)
        left = rows - len(head)
        if left < 0:
            raise FormatError("the head of a cycle is longer than its column")
        body = _cycle(value["cycle"], left, dtype, depth + 1)
        return np.concatenate([head, np.resize(body, left)]) if left else head
    raise FormatError(f"an encoded column has the keys {sorted(keys)}", remedy="see the canary format")


def _cycle(value: Encoded, rows: int, dtype: npt.DTypeLike, depth: int) -> Values:
    """One period; a nested cycle says its rows, other forms imply them."""
    if isinstance(value, list):
        period = len(value)
    elif isinstance(value, dict) and isinstance(value.get("rows"), int):
        period = value["rows"]
    elif isinstance(value, dict) and isinstance(value.get("run"), list):
        period = sum(p[1] for p in value["run"] if isinstance(p, list) and len(p) == 2 and isinstance(p[1], int))
    else:
        period = 1
    if not 1 <= period <= max(1, rows):
        raise FormatError(f"a cycle has a period of {period} in {rows} rows")
    return decode(value, period, dtype, depth)


def record_count(value: Encoded) -> int:
    """Return how many values an encoded column writes down.

    Examples
    --------
    >>> record_count(96000), record_count({"head": [0], "cycle": [1, 2]}), record_count({"run": [[1, 9], [2, 9]]})
    (1, 3, 2)
    """
    if isinstance(value, (list, np.ndarray)):
        return len(value)
    if isinstance(value, dict):
        if "run" in value:
            return len(value["run"])
        if "cycle" in value:
            return len(value.get("head", [])) + record_count(value["cycle"])
    return 1


def thousandths(values: Values) -> npt.NDArray[np.int64] | None:
    """Return float values as whole thousandths, or None where one of them has more than 3 decimals.

    Examples
    --------
    >>> thousandths(np.array([0.5, 0.478])).tolist(), thousandths(np.array([1 / 3]))
    ([500, 478], None)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        milli = np.rint(values * 1000)
    signed_zero = np.signbit(values) & (values == 0)  # a whole number has no -0
    if (np.abs(milli) < 1e15).all() and (milli / 1000 == values).all() and not signed_zero.any():
        return milli.astype(np.int64)
    return None
