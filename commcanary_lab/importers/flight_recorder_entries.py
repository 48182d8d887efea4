"""Entries of a flight recorder dump: what was enqueued, its sizes from tensor shapes, and what became of it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from commcanary_lab.importers.comm_events import base_name
from commcanary_lab.importers.json_source import shown
from commcanary_lab.importers.kineto_args import CommArgs, IntList, Unreadable
from commcanary_lab.importers.kineto_size import dtype_width

__all__ = ["Entry", "entry_of"]

_MAX = 1 << 62
_ENDS = re.compile(r"^(send|recv) (\d{1,9})(->|<-)(\d{1,9})$")


@dataclass(frozen=True)
class Entry:
    """One entry.

    Parameters
    ----------
    name : str
        The operation, as the dump writes it.
    args : CommArgs or Unreadable
        Its metadata.
    state : str
        ``scheduled``, ``started`` or ``completed``.
    completed : bool
        It is over: so its state says; or, in dumps of Gloo, whose states never change, it was retired.
    created_ns : int, optional
        When the host enqueued it.
    duration_ns : int, optional
        How long it ran, where the dump says so.
    ends : (int, int), optional
        Sender and receiver of a message, as ranks in the group.
    is_message : bool
        It is a send or a receive.
    """

    name: str
    args: CommArgs | Unreadable
    state: str = "unknown"
    completed: bool = False
    created_ns: int | None = None
    duration_ns: int | None = None
    ends: tuple[int, int] | None = None
    is_message: bool = False


class _Bad(Exception):
    """A field that cannot be used."""


def entry_of(raw: Any) -> Entry:
    """Return what an entry says; `Entry.args` tells why where it cannot be used.

    Examples
    --------
    >>> e = entry_of({"profiling_name": "nccl:send 0->1", "input_sizes": [[4]], "output_sizes": [[4]], "input_dtypes": ["Float"],
    ...               "output_dtypes": ["Float"], "process_group": ("1", "tp"), "state": "completed", "is_p2p": True})
    >>> e.ends, e.args.in_elements, e.args.group_name, e.completed
    ((0, 1), 4, '1', True)
    """
    if not isinstance(raw, dict):
        return Entry("?", Unreadable(f"the entry is {shown(raw)}"))
    name = raw.get("profiling_name")
    if not isinstance(name, str) or not name:
        return Entry("?", Unreadable(f"profiling_name is {shown(name)}"))
    name = name[:256]
    try:
        return _entry(name, raw)
    except _Bad as e:
        return Entry(name, Unreadable(str(e)))


def _entry(name: str, raw: dict[Any, Any]) -> Entry:
    operation = name.rpartition(":")[2].strip()
    ends = _ends(operation)
    plain = operation if ends is None else operation.split(" ")[0]
    state = raw.get("state")
    if not isinstance(state, str):
        raise _Bad(f"state is {shown(state)}")
    retired = raw.get("retired") is True and name.startswith("gloo:")
    group, description = _group(raw.get("process_group"))
    sent, received = _sizes(raw, "input_sizes"), _sizes(raw, "output_sizes")
    dtype = _dtype(raw, sent, received)
    is_message = raw.get("is_p2p") is True or ends is not None
    in_splits, out_splits = _splits(plain, sent), _splits(plain, received)
    args = CommArgs(
        name=plain,
        dtype=dtype,
        in_elements=None if sent is None else sum(sent),
        out_elements=None if received is None else sum(received),
        group_size=None,
        group_name=group,
        group_description=description,
        group_ranks=None,
        rank_start=None,
        rank_stride=None,
        in_splits=in_splits,
        out_splits=out_splits,
        sequence=_time(raw, "p2p_seq_id" if is_message else "collective_seq_id"),
        source=None,
        destination=None,
        in_rows=None,
        splits_unknown=True,
    )
    return Entry(
        name=name,
        args=args,
        state=state[:40],
        completed=state == "completed" or retired,
        created_ns=_time(raw, "time_created_ns") or None,
        duration_ns=_duration(raw.get("duration_ms")),
        ends=ends,
        is_message=is_message,
    )


def _ends(operation: str) -> tuple[int, int] | None:
    """Sender and receiver from ``send 0->1`` and ``recv 1<-0``."""
    m = _ENDS.match(operation)
    if m is None or (m.group(1) == "send") != (m.group(3) == "->"):
        return None
    own, other = int(m.group(2)), int(m.group(4))
    return (own, other) if m.group(1) == "send" else (other, own)


def _group(value: Any) -> tuple[str | None, str | None]:
    """Name and description: a pair; a list in JSON, a tuple in a pickle."""
    if value is None:
        return None, None
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(v, str | int) and not isinstance(v, bool) for v in value):
        return str(value[0])[:256] or None, str(value[1])[:256] or None
    if isinstance(value, str):
        return value[:256] or None, None
    raise _Bad(f"process_group is {shown(value)}")


def _sizes(raw: dict[Any, Any], key: str) -> list[int] | None:
    """Elements of each tensor, from its shape."""
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise _Bad(f"{key} is {shown(value)}")
    out = []
    for shape in value:
        if not isinstance(shape, (list, tuple)) or len(shape) > 64 or not all(type(d) is int and 0 <= d < _MAX for d in shape):
            raise _Bad(f"{key} has a tensor of shape {shown(shape)}")
        elements = math.prod(shape)
        if elements >= _MAX:
            raise _Bad(f"{key} has a tensor of {shown(elements)} elements")
        out.append(elements)
    return out


def _dtype(raw: dict[Any, Any], sent: list[int] | None, received: list[int] | None) -> str:
    """The one element type of all tensors; empty where the dump has none (versions without ``input_dtypes``)."""
    names: set[str] = set()
    for key, sizes in (("input_dtypes", sent), ("output_dtypes", received)):
        value = raw.get(key)
        if value is None:
            continue
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise _Bad(f"{key} is {shown(value)}")
        if sizes is not None and len(value) != len(sizes):
            raise _Bad(f"{key} has {len(value)} entries for {len(sizes)} tensors")
        names.update(value)
    if len({dtype_width(n)[1] for n in names}) > 1:
        raise _Bad(f"tensors of several types: {shown(', '.join(sorted(names)))}")
    return min(names)[:64] if names else ""


def _splits(operation: str, sizes: list[int] | None) -> IntList | None:
    """One tensor per rank is a split list."""
    if base_name(operation) in ("all_to_all", "alltoall") and sizes is not None and len(sizes) > 1:
        return IntList(tuple(sizes))
    return None


def _time(raw: dict[Any, Any], key: str) -> int | None:
    value = raw.get(key)
    if value is None:
        return None
    if type(value) is not int or not -1 <= value < _MAX:
        raise _Bad(f"{key} is {shown(value)}")
    return value if value >= 0 else None


def _duration(value: Any) -> int | None:
    """Nanoseconds from milliseconds: torch writes a float32 difference of two device events."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value * 1e6) if math.isfinite(value) and 0 < value < 1e9 else None
