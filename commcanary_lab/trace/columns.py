"""Column types of a trace: values with a mask, dictionary-coded text, and ragged rows.

All of them are immutable: the arrays are set read-only when a column is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Coded", "Column", "Ragged"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Column:
    """Values of one field with a mask for what is absent or unknown.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The values; 0 where masked.
    known : ndarray of bool, shape (n,), optional
        False where there is no value; None when every value is known.

    Examples
    --------
    >>> c = Column.from_optional([3, None, 5])
    >>> c.values.tolist(), c.known.tolist(), c.filled(-1).tolist()
    ([3, 0, 5], [True, False, True], [3, -1, 5])
    """

    values: npt.NDArray[Any]
    known: BoolArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _frozen(self.values))
        if self.known is not None:
            if self.known.all():
                object.__setattr__(self, "known", None)
            else:
                object.__setattr__(self, "known", _frozen(self.known))

    @classmethod
    def absent(cls, n: int, dtype: npt.DTypeLike = np.int64) -> Column:
        """Return a column with no value at all; it takes no memory."""
        return cls(np.broadcast_to(np.zeros((), dtype), (n,)), np.broadcast_to(np.False_, (n,)) if n else None)

    @classmethod
    def from_optional(cls, items: Sequence[Any], dtype: npt.DTypeLike = np.int64) -> Column:
        """Build a column from Python values where None means absent."""
        n = len(items)
        missing = items.count(None) if isinstance(items, (list, tuple)) else sum(x is None for x in items)
        if missing == n:
            return cls.absent(n, dtype)
        if not missing:
            return cls(np.array(items, dtype=dtype))
        known = np.fromiter((x is not None for x in items), np.bool_, n)
        values = np.fromiter((0 if x is None else x for x in items), dtype, n)
        return cls(values, known)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mask(self) -> BoolArray:
        """True where the value is known, always as an array."""
        return np.broadcast_to(np.True_, (len(self),)) if self.known is None else self.known

    @property
    def known_count(self) -> int:
        """How many values are known."""
        return len(self) if self.known is None else int(np.count_nonzero(self.known))

    @property
    def all_known(self) -> bool:
        """True when no value is missing."""
        return self.known is None

    @property
    def none_known(self) -> bool:
        """True when the column is not empty and has no value."""
        return len(self) > 0 and self.known_count == 0

    def filled(self, value: Any) -> npt.NDArray[Any]:
        """Return the values with `value` where nothing is known."""
        return self.values if self.known is None else np.where(self.known, self.values, value)

    def without(self, rows: BoolArray) -> Column:
        """Return the column with nothing known where `rows` is True."""
        return Column(np.where(rows, 0, self.values), self.mask & ~rows)

    def take(self, index: npt.NDArray[np.intp] | slice) -> Column:
        """Return the rows at `index`."""
        return Column(self.values[index], None if self.known is None else self.known[index])

    def equals(self, other: Column) -> bool:
        """Exact equality of values and masks."""
        return len(self) == len(other) and np.array_equal(self.mask, other.mask) and np.array_equal(self.filled(0), other.filled(0))


@dataclass(frozen=True, eq=False)
class Coded:
    """Dictionary-coded text: one int32 code per row into a table of distinct names, -1 where absent.

    Examples
    --------
    >>> c = Coded.from_optional(["decode", None, "decode"])
    >>> c.codes.tolist(), c.names, c.text(1) is None
    ([0, -1, 0], ('decode',), True)
    """

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", _frozen(self.codes))

    @classmethod
    def from_optional(cls, items: Sequence[str | None]) -> Coded:
        """Code text by first appearance; None means absent."""
        names = list(dict.fromkeys(items))
        if None in names:
            names.remove(None)
        table: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        table[None] = -1
        codes = np.fromiter(map(table.__getitem__, items), np.int32, len(items))
        return cls(codes, tuple(n for n in names if n is not None))

    @classmethod
    def constant(cls, n: int, name: str | None) -> Coded:
        """Return `n` rows of the same text."""
        if name is None:
            return cls(np.broadcast_to(np.int32(-1), (n,)))
        return cls(np.broadcast_to(np.int32(0), (n,)), (name,))

    def __len__(self) -> int:
        return len(self.codes)

    def text(self, row: int) -> str | None:
        """Return the text of one row."""
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]

    def to_list(self) -> list[str | None]:
        """Return the text of every row."""
        table = [*self.names, None]
        return [table[c] for c in self.codes.tolist()]

    def take(self, index: npt.NDArray[np.intp] | slice) -> Coded:
        """Return the rows at `index`, with the same table."""
        return Coded(self.codes[index], self.names)

    def normalised(self) -> Coded:
        """Return the same text with the table sorted and without unused names."""
        used = [c for c in np.unique(self.codes).tolist() if c >= 0]
        names = sorted({self.names[c] for c in used})
        new = {name: i for i, name in enumerate(names)}
        table = np.full(len(self.names) + 1, -1, np.int32)  # the last entry stands for -1
        for code in used:
            table[code] = new[self.names[code]]
        return Coded(table[self.codes], tuple(names))

    def equals(self, other: Coded) -> bool:
        """Equality of text, whatever the tables are."""
        if len(self) != len(other):
            return False
        a, b = self.normalised(), other.normalised()
        return a.names == b.names and np.array_equal(a.codes, b.codes)


#: From here on a compiled loop is worth its import.
_MANY_ROWS = 50_000


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths: all values in one array plus row pointers.

    Row `i` is ``values[pointers[i]:pointers[i + 1]]``.

    Examples
    --------
    >>> r = Ragged.from_rows([[1, 2], [], [3]])
    >>> r.row(0).tolist(), r.lengths.tolist(), r.take(np.array([2, 0])).values.tolist()
    ([1, 2], [2, 0, 1], [3, 1, 2])
    """

    values: npt.NDArray[Any]
    pointers: IntArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _frozen(self.values))
        object.__setattr__(self, "pointers", _frozen(self.pointers))

    @classmethod
    def empty(cls, n: int, dtype: npt.DTypeLike = np.int64) -> Ragged:
        """Return `n` empty rows; they take no memory."""
        return cls(np.zeros(0, dtype), np.broadcast_to(np.int64(0), (n + 1,)))

    @classmethod
    def from_lengths(cls, values: npt.NDArray[Any], lengths: npt.ArrayLike) -> Ragged:
        """Build from values and the length of each row."""
        lengths = np.asarray(lengths, np.int64)
        pointers = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=pointers[1:])
        return cls(values, pointers)

    @classmethod
    def from_rows(cls, rows: Sequence[Iterable[int]], dtype: npt.DTypeLike = np.int64) -> Ragged:
        """Build from a sequence of rows."""
        lists = [list(r) for r in rows]
        values = np.array([x for r in lists for x in r], dtype=dtype)
        return cls.from_lengths(values, [len(r) for r in lists])

    def __len__(self) -> int:
        return len(self.pointers) - 1

    @property
    def lengths(self) -> IntArray:
        """Length of each row."""
        return np.diff(self.pointers)

    @property
    def is_empty(self) -> bool:
        """True when no row holds a value."""
        return self.values.size == 0

    def row(self, i: int) -> npt.NDArray[Any]:
        """Return one row."""
        return self.values[self.pointers[i] : self.pointers[i + 1]]

    def take(self, index: npt.NDArray[np.intp] | slice) -> Ragged:
        """Return the rows at `index`."""
        if self.is_empty:
            n = len(range(*index.indices(len(self)))) if isinstance(index, slice) else len(index)
            return Ragged.empty(n, self.values.dtype)
        starts, stops = self.pointers[:-1][index], self.pointers[1:][index]
        if len(starts) >= _MANY_ROWS:
            from commcanary_lab.trace.gather_kernels import gather

            return Ragged(*gather(self.values, np.ascontiguousarray(starts), np.ascontiguousarray(stops)))
        lengths = stops - starts
        out = Ragged.from_lengths(np.zeros(0, self.values.dtype), lengths)
        within = np.arange(int(out.pointers[-1])) - np.repeat(out.pointers[:-1], lengths)
        return Ragged(self.values[np.repeat(starts, lengths) + within], out.pointers)

    def equals(self, other: Ragged) -> bool:
        """Exact equality of rows."""
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(self.values, other.values)

    def reduce(self, function: np.ufunc, default: int = 0) -> npt.NDArray[Any]:
        """Reduce each row with a ufunc such as ``numpy.maximum``; `default` for empty rows."""
        out = np.full(len(self), default, self.values.dtype)
        filled = self.lengths > 0
        if filled.any():
            out[filled] = function.reduceat(self.values, self.pointers[:-1][filled])
        return out
