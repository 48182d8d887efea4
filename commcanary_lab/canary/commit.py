"""Commitments: SHA-256 over the exact source values that a part of a canary stands for, and a locator of single changes.

A commitment hashes ``b"cclab.commit.v1\\0"``, the salt if there is one, then for each column: its name and dtype code (each with a
64-bit length), the row count, the null mask (bits, little-endian) and the values (little-endian; text as UTF-8 with 64-bit lengths;
ragged columns as row lengths, then values). Null values are written as zero.

The locator is no commitment. It holds sums of 64-bit row hashes, one over all rows and one per bit of the row index: when a single
row changes, the sums that change spell its index.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.model import Trace

__all__ = ["COLUMNS", "Committer", "Locator", "commitment", "locate", "locator"]

MAGIC = b"cclab.commit.v1\0"


@dataclass(frozen=True)
class _Part:
    """One column as bytes: `mask` is None when all rows are null or none is (then `nulls` says which).

    `width` bytes of `values` per value. A ragged column has row lengths (8 bytes each), and `pointers` to where each row begins.
    """

    header: bytes
    nulls: bool
    mask: npt.NDArray[np.bool_] | None
    values: memoryview
    width: int
    lengths: memoryview | None = None
    pointers: npt.NDArray[np.int64] | None = None


def _group_text(trace: Trace) -> Coded:
    return Coded(trace.group, tuple(g.name or "" for g in trace.groups))


def _group_nulls(trace: Trace) -> npt.NDArray[np.bool_]:
    return np.array([g.name is None for g in trace.groups] or [True], np.bool_)[trace.group]


def _members(trace: Trace) -> Ragged:
    table = Ragged.from_rows([g.members for g in trace.groups])
    return table.take(trace.group.astype(np.intp)) if len(trace) else Ragged.empty(0)


#: Committed columns in the order of the format, each with the attribute it comes from.
COLUMNS: tuple[tuple[str, Callable[[Trace], object]], ...] = (
    ("id", lambda t: t.ids),
    ("phase", lambda t: t.phase),
    ("op", lambda t: t.op),
    ("custom_op", lambda t: t.custom_op),
    ("dtype", lambda t: t.dtype),
    ("reduction_op", lambda t: t.reduction),
    ("bytes", lambda t: t.size_bytes),
    ("group", _group_text),
    ("members", _members),
    ("root_rank", lambda t: t.root),
    ("sender_rank", lambda t: t.sender),
    ("receiver_rank", lambda t: t.receiver),
    ("tag", lambda t: t.tag),
    ("channel", lambda t: t.channel),
    ("message_sequence", lambda t: t.message_sequence),
    ("start_ns", lambda t: t.start_ns),
    ("gap_ns", lambda t: t.gap_ns),
    ("arrival_ns", lambda t: t.arrival_ns),
    ("compute_before_ns", lambda t: t.compute_before_ns),
    ("compute_overlap_ns", lambda t: t.overlap_ns),
    ("observed_exposed_ns", lambda t: t.observed_exposed_ns),
    ("compute_pressure", lambda t: t.pressure),
    ("concurrent_groups", lambda t: t.concurrent_groups),
    ("splits", lambda t: t.splits),
)


def _text_rows(column: Coded) -> Ragged:
    table = [b"", *(n.encode("utf-8") for n in column.names)]
    rows = Ragged.from_lengths(np.frombuffer(b"".join(table), np.uint8), [len(x) for x in table])
    return rows.take((column.codes + 1).astype(np.intp))


def _part(name: str, value: object, trace: Trace) -> _Part:
    n = len(trace)
    mask: npt.NDArray[np.bool_] | None = None
    nulls = False
    if name == "group":
        mask = _group_nulls(trace)
    elif name == "arrival_ns":
        mask = ~np.asarray(trace.arrival_known)
    elif isinstance(value, Coded):
        mask = value.codes < 0
    elif isinstance(value, Column):
        mask = None if value.known is None else ~value.known
    elif value is None:  # no ids
        value, nulls = Ragged.empty(n, np.uint8), True
    if mask is not None:
        if not mask.any():
            mask = None
        elif mask.all():
            mask, nulls = None, True
    if isinstance(value, Coded):
        value = _text_rows(value)
    if isinstance(value, Ragged):
        code = "text" if value.values.dtype == np.uint8 else "ragged int64"
        lengths = np.diff(value.pointers).astype("<u8")
        values = np.ascontiguousarray(value.values)
        return _Part(_header(name, code), nulls, mask, _bytes(values), values.itemsize, _bytes(lengths), value.pointers)
    array = value.filled(0) if isinstance(value, Column) else np.asarray(value)
    code = {"f": "float64", "b": "bool"}.get(array.dtype.kind, "int64")
    target = {"float64": "<f8", "bool": "|u1", "int64": "<i8"}[code]
    array = np.ascontiguousarray(array.astype(target, copy=False))
    return _Part(_header(name, code), nulls, mask, _bytes(array), array.itemsize)


def _bytes(values: npt.NDArray[Any]) -> memoryview:
    """The bytes of an array; a view without elements cannot be cast."""
    return values.data.cast("B") if values.size else memoryview(b"")


def _header(name: str, code: str) -> bytes:
    return b"".join(struct.pack("<Q", len(x)) + x for x in (name.encode(), code.encode()))


class Committer:
    """Commits to row ranges of a trace; the columns are laid out once.

    Parameters
    ----------
    trace : Trace
        The rows, in the order in which ranges are contiguous.
    salt : bytes
        Kept by the owner; empty for none.

    Examples
    --------
    >>> from commcanary_lab.trace import ProcessGroup
    >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32),
    ...                 size_bytes=np.array([8, 9]))
    >>> c = Committer(t)
    >>> c.digest(0, 2) == Committer(t.rows(slice(0, 2))).digest(0, 2), c.digest(0, 1) == c.digest(1, 2), len(c.digest(0, 2))
    (True, False, 64)
    """

    def __init__(self, trace: Trace, salt: bytes = b"") -> None:
        self._parts = [_part(name, get(trace), trace) for name, get in COLUMNS]
        self._prefix = MAGIC + salt

    def digest(self, start: int, stop: int) -> str:
        """Return the commitment to rows start..stop-1 as 64 hexadecimal digits."""
        return _digest(self._prefix, self._parts, start, stop)


def commitment(trace: Trace, salt: bytes = b"") -> str:
    """Return the commitment to all rows; one column at a time is in memory.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> t = lab.samples.adversarial()
    >>> commitment(t, b"salt") == Committer(t, b"salt").digest(0, len(t))
    True
    """
    return _digest(MAGIC + salt, (_part(name, get(trace), trace) for name, get in COLUMNS), 0, len(trace))


def _digest(prefix: bytes, parts: Iterable[_Part], start: int, stop: int) -> str:
    h = hashlib.sha256(prefix)
    rows = stop - start
    count = struct.pack("<Q", rows)
    ones, zeros = np.packbits(np.ones(rows, np.bool_), bitorder="little").tobytes(), bytes((rows + 7) // 8)
    for p in parts:
        nulls = (ones if p.nulls else zeros) if p.mask is None else np.packbits(p.mask[start:stop], bitorder="little").tobytes()
        h.update(p.header + count + nulls)
        if p.lengths is None or p.pointers is None:
            h.update(p.values[start * p.width : stop * p.width])
        else:
            h.update(p.lengths[start * 8 : stop * 8])
            h.update(p.values[int(p.pointers[start]) * p.width : int(p.pointers[stop]) * p.width])
    return h.hexdigest()


@dataclass(frozen=True)
class Locator:
    """Sums (mod 2^64) of row hashes: over all rows, and per bit of the row index over the rows with that bit set."""

    total: int
    bits: tuple[int, ...]

    def to_json(self) -> list[str]:
        """Return the sums as hexadecimal text."""
        return [f"{x:016x}" for x in (self.total, *self.bits)]

    @classmethod
    def from_json(cls, values: Sequence[str]) -> Locator:
        """Read what `to_json` writes."""
        numbers = [int(v, 16) for v in values]
        return cls(numbers[0], tuple(numbers[1:]))


def _row_hashes(trace: Trace, salt: bytes) -> npt.NDArray[np.uint64]:
    from commcanary_lab.canary.hash_kernels import mix_ragged, mix_values

    h = np.full(len(trace), _text_hash(b"locator" + salt), np.uint64)
    for name, get in COLUMNS:
        value = get(trace)
        if name == "group":
            continue  # hashed with the members
        if name == "members":
            table = [_text_hash(repr((g.name, g.members)).encode()) for g in trace.groups]
            mix_values(h, np.array(table or [0], np.uint64)[trace.group])
        elif isinstance(value, Coded):
            table = [*(_text_hash(text.encode()) for text in value.names), 0]
            mix_values(h, np.array(table, np.uint64)[value.codes])
        elif isinstance(value, Ragged):
            mix_ragged(h, np.ascontiguousarray(value.values.astype(np.int64, copy=False)), np.ascontiguousarray(value.pointers))
        elif isinstance(value, Column):
            if not value.none_known:
                mix_values(h, np.ascontiguousarray(value.filled(0)).view(np.uint64))
                mix_values(h, value.mask.astype(np.uint64))
        elif value is not None:
            mix_values(h, np.asarray(value).astype(np.int64).view(np.uint64))
    mix_values(h, np.asarray(trace.arrival_known).astype(np.uint64))
    return h


def _text_hash(text: bytes) -> int:
    return int.from_bytes(hashlib.sha256(MAGIC + text).digest()[:8], "little")


def locator(trace: Trace, salt: bytes = b"") -> Locator:
    """Return the locator of a trace.

    Examples
    --------
    >>> from commcanary_lab.trace import ProcessGroup
    >>> def trace(sizes):
    ...     n = len(sizes)
    ...     return Trace.build(n, op=Coded.constant(n, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(n, np.int32),
    ...                        size_bytes=np.array(sizes))
    >>> locate(locator(trace([8, 8, 8, 8, 8])), locator(trace([8, 8, 8, 9, 8]))), locate(locator(trace([8])), locator(trace([8])))
    (3, None)
    """
    from commcanary_lab.canary.hash_kernels import sums_by_bit

    *bits, total = sums_by_bit(_row_hashes(trace, salt), max(1, (len(trace) - 1).bit_length())).tolist()
    return Locator(total, tuple(bits))


def locate(expected: Locator, actual: Locator) -> int | None:
    """Return the index of the single row that differs; None if none or several differ."""
    mask = (1 << 64) - 1
    change = (actual.total - expected.total) & mask
    if not change or len(expected.bits) != len(actual.bits):
        return None
    index = 0
    for b, (x, y) in enumerate(zip(expected.bits, actual.bits, strict=True)):
        delta = (y - x) & mask
        if delta == change:
            index |= 1 << b
        elif delta:
            return None
    return index
