"""The size of a trace as canonical ``commcanary.trace.v1`` JSON, counted and never materialised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.write_v1 import document_head, split_dtype, split_reduction

__all__ = ["canonical_size"]

_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)

#: Below it a time in microseconds has at most 15 significant digits, so that its shortest float text is the decimal itself.
_EXACT_NS = 10**15

#: Bytes after the decimal point of ``ns / 1000`` by ``ns % 1000``.
_FRACTION = np.array([len(repr(ns / 1000.0)) - 2 for ns in range(1000)], np.int64)


def _escaped_lengths() -> npt.NDArray[np.int64]:
    """ASCII-escaped JSON bytes for each byte of UTF-8 text: a character is counted at its first byte."""
    table = np.zeros(256, np.int64)
    table[:128] = [len(canonical_bytes(chr(c))) - 2 for c in range(128)]
    table[0xC2:0xF0] = 6  # one \\uXXXX
    table[0xF0:0xF5] = 12  # a surrogate pair
    return table


_ESCAPED = _escaped_lengths()


def canonical_size(trace: Trace) -> int:
    """Count the bytes of a trace as canonical JSON (sorted keys, no white space, no line end).

    Parameters
    ----------
    trace : Trace
        The trace.

    Returns
    -------
    int
        The length of ``canonical_bytes({"events": [...], "format": ..., "workload": ..., "system": ...})``.

    Examples
    --------
    >>> from commcanary_lab.trace import ProcessGroup
    >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32),
    ...                 size_bytes=np.array([8, 8]), overlap_ns=Column(np.array([2500, 0])))
    >>> from commcanary_lab.trace.write_v1 import event_objects
    >>> canonical_size(t) == len(canonical_bytes({"events": list(event_objects(t)), **document_head(t)}))
    True
    """
    n = len(trace)
    fields = [*_texts(trace), *_numbers(trace), *_times(trace), *_flags(trace), *_members(trace), *_reports(trace)]
    # per event: two braces, and one comma less than fields; between events a comma; the list's own brackets
    events = sum(fields) + n + max(0, n - 1)
    head = len(canonical_bytes({**document_head(trace), "events": []}))
    return head + events


def _field(name: str, count: int, values: int) -> int:
    """Bytes of a field on `count` events whose values take `values` bytes: quotes, colon and a comma."""
    return count * (len(name) + 4) + values


def _texts(trace: Trace) -> Iterable[int]:
    dtype, lab_dtype = split_dtype(trace)
    reduction, lab_reduction = split_reduction(trace)
    columns: dict[str, Coded] = {
        "op": trace.op, "phase": trace.phase, "tag": trace.tag, "channel": trace.channel,
        "dtype": dtype, "lab_dtype": lab_dtype, "reduction_op": reduction, "lab_reduction_op": lab_reduction,
    }  # fmt: skip
    for name, column in columns.items():
        lengths = np.array([*(len(canonical_bytes(text)) for text in column.names), 0], np.int64)
        counts = np.bincount(column.codes + 1, minlength=len(column.names) + 1)[1:]
        yield _field(name, int(counts.sum()), int(counts @ lengths[:-1]))
    if trace.ids is not None:
        with_id = int(np.count_nonzero(trace.ids.lengths))
        yield _field("id", with_id, int(_ESCAPED[trace.ids.values].sum()) + 2 * with_id)


def _numbers(trace: Trace) -> Iterable[int]:
    n = len(trace)
    yield _field("bytes", n, _digits(np.maximum(trace.size_bytes, 1)))
    for name, column in (
        ("root_rank", trace.root),
        ("sender_rank", trace.sender),
        ("receiver_rank", trace.receiver),
        ("message_sequence", trace.message_sequence),
        ("concurrent_groups", trace.concurrent_groups),
    ):
        if column.known_count:
            yield _field(name, column.known_count, _digits(_known(column)))
    if trace.pressure.known_count:
        # by bits, because 0.0 and -0.0 are equal and differ in text
        bits, counts = np.unique(_known(trace.pressure).astype(np.float64).view(np.int64), return_counts=True)
        lengths = [len(canonical_bytes(x)) for x in bits.view(np.float64).tolist()]
        yield _field("compute_pressure", trace.pressure.known_count, int(np.dot(lengths, counts)))


def _times(trace: Trace) -> Iterable[int]:
    for name, column in (
        ("start_us", trace.start_ns),
        ("gap_us", trace.gap_ns),
        ("compute_before_us", trace.compute_before_ns),
        ("compute_overlap_us", trace.overlap_ns),
        ("observed_exposed_us", trace.observed_exposed_ns),
    ):
        if column.known_count:
            yield _field(name, column.known_count, _microseconds(_known(column)))


def _flags(trace: Trace) -> Iterable[int]:
    for name, rows, text in (
        ("custom_op", trace.custom_op, "true"),
        ("lab_bytes", trace.size_bytes == 0, "0"),
        ("compute_overlap_unknown", ~trace.overlap_ns.mask, "true"),
        ("arrival_skew_unknown", ~trace.arrival_known, "true"),
    ):
        count = int(np.count_nonzero(rows))
        yield _field(name, count, count * len(text))


def _members(trace: Trace) -> Iterable[int]:
    """Groups, and arrivals by member."""
    counts = np.bincount(trace.group, minlength=len(trace.groups)).tolist()
    lengths, k = trace.arrival_ns.lengths, trace.group_sizes
    mapped = (lengths > 0) & (lengths == k)
    alone = (lengths == 1) & ~mapped
    maps = np.bincount(trace.group[mapped], minlength=len(trace.groups)).tolist()
    for group, count, with_map in zip(trace.groups, counts, maps, strict=True):
        if not count:
            continue
        digits = sum(len(str(m)) for m in group.members)
        yield _field("ranks", count, count * (digits + group.size + 1))
        if group.name is not None:
            yield _field("group", count, count * len(canonical_bytes(group.name)))
        # "rank":value, with a comma less and two braces
        yield _field("rank_arrival_us", with_map, with_map * (digits + 4 * group.size + 1))
    yield _field("arrival_skew_us", int(np.count_nonzero(alone)), 0)
    written = mapped | alone
    values = trace.arrival_ns.values if written.all() else trace.arrival_ns.take(np.flatnonzero(written)).values
    yield _microseconds(values)


def _reports(trace: Trace) -> Iterable[int]:
    if trace.rank_sets:
        counts = np.bincount(trace.observers + 1, minlength=len(trace.rank_sets) + 1)[1:].tolist()
        sizes = [len(canonical_bytes(list(ranks))) for ranks in trace.rank_sets]
        yield _field("lab_observers", sum(counts), sum(c * s for c, s in zip(counts, sizes, strict=True)))
    if not trace.splits.is_empty:
        values = trace.splits.values
        yield _list_field("lab_splits", trace.splits, _digits(np.abs(values)) + int(np.count_nonzero(values < 0)))
    for name, rows in (("lab_duration_us", trace.duration_ns), ("lab_rank_start_us", trace.rank_start_ns)):
        if not rows.is_empty:
            known = rows.values >= 0
            nulls = len(known) - int(np.count_nonzero(known))
            yield _list_field(name, rows, _microseconds(rows.values[known]) + 4 * nulls)


def _list_field(name: str, rows: Ragged, values: int) -> int:
    """Bytes of a list per event: its values, a comma less than values, and brackets."""
    count = int(np.count_nonzero(rows.lengths))
    return _field(name, count, values + len(rows.values) + count)


def _known(column: Column) -> npt.NDArray[Any]:
    return column.values if column.all_known else column.values[column.mask]


def _digits(values: npt.NDArray[Any]) -> int:
    """Decimal digits of non-negative integers, together."""
    if not len(values):
        return 0
    largest, total = int(values.max()), len(values)
    for power in _POWERS.tolist():
        if largest < power:
            break
        total += int(np.count_nonzero(values >= power))
    return total


def _microseconds(time_ns: npt.NDArray[Any]) -> int:
    """Bytes of times as JSON floats in microseconds, together."""
    if not len(time_ns):
        return 0
    if int(time_ns.min()) < 0 or int(time_ns.max()) >= _EXACT_NS:
        plain = (time_ns >= 0) & (time_ns < _EXACT_NS)
        return _microseconds(time_ns[plain]) + sum(len(repr(t / 1000.0)) for t in time_ns[~plain].tolist())
    whole = time_ns // 1000
    return _digits(whole) + len(time_ns) + int(_FRACTION[time_ns - whole * 1000].sum())
