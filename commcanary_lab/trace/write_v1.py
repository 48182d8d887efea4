"""Write ``commcanary.trace.v1`` JSON, canonically."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes, write_atomic
from commcanary_lab.trace.columns import Coded, Column
from commcanary_lab.trace.lab_v1 import lab_section
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.ops import DTYPE_BYTES, REDUCTION_OPS, REDUCTIONS
from commcanary_lab.trace.schema_v1 import FORMAT

__all__ = ["document_head", "event_objects", "split_dtype", "split_reduction", "write_json"]

_BLOCK = 4096


def write_json(trace: Trace, path: str | os.PathLike[str]) -> int:
    """Write a trace as canonical JSON, atomically.

    Parameters
    ----------
    trace : Trace
        The trace; everything it holds is written, so that reading gives an equal trace.
    path : path-like
        The file.

    Returns
    -------
    int
        Bytes written.
    """
    return write_atomic(path, _chunks(trace))


def _chunks(trace: Trace) -> Iterator[bytes]:
    head = document_head(trace)
    yield b'{"events":['
    for start in range(0, len(trace), _BLOCK):
        block = canonical_bytes(list(event_objects(trace.take(slice(start, start + _BLOCK)))))
        yield (b"," if start else b"") + block[1:-1]
    rest = canonical_bytes({k: v for k, v in head.items() if k != "events"})
    yield b"]," + rest[1:] + b"\n"


def document_head(trace: Trace) -> dict[str, Any]:
    """Return everything of the document but its events."""
    system = dict(trace.system)
    lab = lab_section(trace)
    if lab:
        system["commcanary_lab"] = lab
    head: dict[str, Any] = {"format": FORMAT}
    if trace.workload:
        head["workload"] = dict(trace.workload)
    if system:
        head["system"] = system
    return head


def event_objects(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield the events as JSON objects, in order.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, ProcessGroup
    >>> t = Trace.build(1, op=Coded.constant(1, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(1, np.int32),
    ...                 size_bytes=np.array([8]), overlap_ns=Column(np.array([2500])))
    >>> import json
    >>> print(json.dumps(next(event_objects(t))))
    {"op": "all_reduce", "bytes": 8, "ranks": [0, 1], "group": "tp", "compute_overlap_us": 2.5}
    """
    dtype, lab_dtype = split_dtype(trace)
    reduction, lab_reduction = split_reduction(trace)
    texts = {
        name: None if (column.codes < 0).all() else column.to_list()
        for name, column in (
            ("phase", trace.phase),
            ("dtype", dtype),
            ("lab_dtype", lab_dtype),
            ("reduction_op", reduction),
            ("lab_reduction_op", lab_reduction),
            ("tag", trace.tag),
            ("channel", trace.channel),
        )
    }
    numbers = {
        name: _optional(column)
        for name, column in (
            ("root_rank", trace.root),
            ("sender_rank", trace.sender),
            ("receiver_rank", trace.receiver),
            ("message_sequence", trace.message_sequence),
            ("concurrent_groups", trace.concurrent_groups),
            ("compute_pressure", trace.pressure),
        )
    }
    times = {
        name: _optional_us(column)
        for name, column in (
            ("start_us", trace.start_ns),
            ("gap_us", trace.gap_ns),
            ("compute_before_us", trace.compute_before_ns),
            ("compute_overlap_us", trace.overlap_ns),
            ("observed_exposed_us", trace.observed_exposed_ns),
        )
    }
    columns = {k: v for k, v in {**texts, **numbers, **times}.items() if v is not None}
    ops, codes, sizes = trace.op.to_list(), trace.group.tolist(), trace.size_bytes.tolist()
    overlap_known, arrival_known = trace.overlap_ns.mask.tolist(), np.asarray(trace.arrival_known).tolist()
    for i, op in enumerate(ops):
        group = trace.groups[codes[i]]
        event: dict[str, Any] = {"op": op, "bytes": max(1, sizes[i]), "ranks": list(group.members)}
        if group.name is not None:
            event["group"] = group.name
        if trace.ids is not None and (name := trace.id(i)):
            event["id"] = name
        for field, values in columns.items():
            if values[i] is not None:
                event[field] = values[i]
        if trace.custom_op[i]:
            event["custom_op"] = True
        if sizes[i] == 0:
            event["lab_bytes"] = 0
        if not overlap_known[i]:
            event["compute_overlap_unknown"] = True
        if not arrival_known[i]:
            event["arrival_skew_unknown"] = True
        _ragged_fields(trace, i, event)
        yield event


def split_dtype(trace: Trace) -> tuple[Coded, Coded]:
    """Return dtypes that the format knows, and those beyond it, which travel in ``lab_dtype``."""
    return _split(trace.dtype, DTYPE_BYTES.keys(), np.bool_(True))


def split_reduction(trace: Trace) -> tuple[Coded, Coded]:
    """Return reductions that the format knows on operations that reduce, and all others, which travel in ``lab_reduction_op``."""
    reduces = np.array([*(name in REDUCTION_OPS for name in trace.op.names), False], np.bool_)
    return _split(trace.reduction, REDUCTIONS, reduces[trace.op.codes])


def _split(column: Coded, vocabulary: Collection[str], where: npt.NDArray[np.bool_] | np.bool_) -> tuple[Coded, Coded]:
    known = np.array([*(name in vocabulary for name in column.names), False], np.bool_)[column.codes] & where
    if not (~known & (column.codes >= 0)).any():
        return column, Coded.constant(len(column), None)
    inside, beyond = (Coded(np.where(keep, column.codes, -1), column.names) for keep in (known, ~known))
    return inside, beyond


def _optional(column: Column) -> list[Any] | None:
    if column.none_known:
        return None
    return [v if k else None for v, k in zip(column.values.tolist(), column.mask.tolist(), strict=True)]


def _optional_us(column: Column) -> list[Any] | None:
    if column.none_known:
        return None
    return [v if k else None for v, k in zip((column.values / 1000.0).tolist(), column.mask.tolist(), strict=True)]


def _ragged_fields(trace: Trace, i: int, event: dict[str, Any]) -> None:
    arrival = trace.arrival_ns.row(i)
    members = trace.groups[trace.group[i]].members
    if len(arrival) == len(members):
        event["rank_arrival_us"] = dict(zip(map(str, members), (arrival / 1000.0).tolist(), strict=True))
    elif len(arrival) == 1:
        event["arrival_skew_us"] = float(arrival[0] / 1000.0)
    if trace.observers[i] >= 0:
        event["lab_observers"] = list(trace.observers_of(i))
    if len(row := trace.splits.row(i)):
        event["lab_splits"] = row.tolist()
    for name, ragged in (("lab_duration_us", trace.duration_ns), ("lab_rank_start_us", trace.rank_start_ns)):
        if len(row := ragged.row(i)):
            event[name] = [None if x < 0 else x / 1000.0 for x in row.tolist()]
