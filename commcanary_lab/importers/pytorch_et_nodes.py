"""Nodes of PyTorch execution traces, schema 1.0.1 to 1.1.x: the arguments of ``record_param_comms`` and the table of process groups.

The inputs are positional and have grown over time: tensors, sequence number, group, rank, operation, splits, then perhaps global rank start
and stride, and the group's size. The operation's name is the anchor, and the input types tell which one is the name. Newer schemas repeat
most of it as attributes; where both say something, the attributes are used for counts and the inputs for what attributes leave out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from commcanary_lab.importers.comm_events import base_name
from commcanary_lab.importers.json_source import shown
from commcanary_lab.importers.kineto_args import CommArgs, IntList, Unreadable, parse_int_list
from commcanary_lab.importers.kineto_size import dtype_width

__all__ = ["COMMS", "GROUPS", "Call", "Node", "call_of", "parent_of"]

COMMS = "record_param_comms"
GROUPS = "## process_group:init ##"

_MAX = 1 << 62
#: What the position before the operation holds: the root of rooted operations, the peer of messages, otherwise the own rank.
_ROOTED = frozenset({"broadcast", "_broadcast_oop", "broadcast_coalesced", "reduce", "_reduce_oop", "gather", "scatter"})
_SENDS, _RECEIVES = frozenset({"send", "isend"}), frozenset({"recv", "irecv"})
_C_TYPES = {
    "long int": "int64", "signed char": "int8", "unsigned char": "uint8", "short int": "int16", "unsigned int": "uint32",
    "long unsigned int": "uint64", "short unsigned int": "uint16", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "c10::complex<c10::half>": "complex32",
}  # fmt: skip
_INT_ATTRS = ("in_msg_nelems", "out_msg_nelems", "global_rank_start", "global_rank_stride", "pg_size", "group_size", "dst_rank", "src_rank")

_NOTHING = CommArgs("", "", None, None, None, None, None, None, None, None, None, None, None, None, None, None)


class Node(msgspec.Struct, gc=False):  # type: ignore[call-arg]
    """One node; what is not needed is skipped while decoding, and arguments stay text until they are."""

    id: Any = None
    name: Any = None
    parent: Any = None
    ctrl_deps: Any = None
    inputs: msgspec.Raw = msgspec.Raw()
    input_types: msgspec.Raw = msgspec.Raw()
    outputs: msgspec.Raw = msgspec.Raw()
    output_types: msgspec.Raw = msgspec.Raw()
    attrs: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True)
class Call:
    """One ``record_param_comms`` node.

    Parameters
    ----------
    node : object
        The node's id, for messages.
    name : str
        The operation, as the source writes it.
    args : CommArgs or Unreadable
        Its arguments; the group's name is None where the trace has only a backend's address.
    backend : int, optional
        That address.
    group_rank : int, optional
        The own rank in the group.
    group_root, group_peer : int, optional
        Root of a rooted operation, other end of a message: ranks in the group.
    """

    node: object
    name: str
    args: CommArgs | Unreadable
    backend: int | None = None
    group_rank: int | None = None
    group_root: int | None = None
    group_peer: int | None = None


class _Bad(Exception):
    """A field that cannot be used."""


def parent_of(node: Node) -> object:
    """Return the id of the node around this one."""
    return node.ctrl_deps if node.ctrl_deps is not None else node.parent


def call_of(node: Node) -> Call:
    """Return what a ``record_param_comms`` node says."""
    values, types = _sides(node.inputs, node.input_types)
    outputs, _ = _sides(node.outputs, node.output_types)
    attrs = _attributes(node.attrs)
    at = _anchor(values, types)
    stated = attrs.get("collective_name")
    name = stated if isinstance(stated, str) and stated else values[at] if at is not None else ""
    if not name:
        return Call(node.id, COMMS, Unreadable("no operation name among its inputs and attributes"))
    call = Call(node.id, name[:256], Unreadable(""))
    try:
        if at is not None:
            call = _from_inputs(call, values, types, outputs, at)
        return _with_attributes(call, attrs, at is not None)
    except _Bad as e:
        return replace(call, args=Unreadable(str(e)))


def _sides(raw: msgspec.Raw, raw_types: msgspec.Raw) -> tuple[list[Any], list[Any]]:
    """Values and types: two lists in schema 1.0.1, one object since."""
    found, types = _decoded(raw), _decoded(raw_types)
    if isinstance(found, dict):
        types = found.get("types")
        found = found.get("values")
    return (found if isinstance(found, list) else []), (types if isinstance(types, list) else [])


def _decoded(raw: msgspec.Raw) -> Any:
    if not memoryview(raw).nbytes:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _attributes(raw: msgspec.Raw) -> dict[str, Any]:
    found = _decoded(raw)
    if not isinstance(found, list):
        return {}
    return {str(a["name"]): a.get("value") for a in found if isinstance(a, dict) and isinstance(a.get("name"), str)}


def _anchor(values: list[Any], types: list[Any]) -> int | None:
    """Where the operation's name stands: the first plain text among the inputs."""
    for i, value in enumerate(values):
        if isinstance(value, str) and value and (i >= len(types) or types[i] == "String"):
            return i
    return None


def _from_inputs(call: Call, values: list[Any], types: list[Any], outputs: list[Any], at: int) -> Call:
    if at < 3:
        raise _Bad(f"{at} inputs before the operation's name, not sequence number, group and rank")
    kind = base_name(call.name)
    sequence, group, own = values[at - 3], values[at - 2], values[at - 1]
    if isinstance(sequence, list) and sequence:
        sequence = sequence[0]  # [number, is it a message]
    tensors = _tensors(values[: at - 3])
    written = _tensors(outputs)
    rest = values[at + 1 :]
    in_splits, out_splits = (_splits(rest[i], f"split list {i + 1}") if i < len(rest) else None for i in (0, 1))
    if in_splits is None and out_splits is None and kind in ("all_to_all", "alltoall") and len(tensors) > 1:
        in_splits, out_splits = (IntList(tuple(t[0] for t in side)) for side in (tensors, written))
    # start, stride and size; older schemas have the size alone, the oldest none
    start, stride, size = (None, None, *rest[2:3]) if len(rest) == 3 else (*rest[2:5], None, None, None)[:3]
    name, description = group if isinstance(group, list) and len(group) == 2 else (None, None)
    args = CommArgs(
        name=call.name,
        dtype=_dtype(types[: at - 3], tensors),
        in_elements=sum(t[0] for t in tensors) if tensors else None,
        out_elements=sum(t[0] for t in written) if written else None,
        group_size=_count("group size", size),
        group_name=name if isinstance(name, str) and name else None,
        group_description=description if isinstance(description, str) and description else None,
        group_ranks=None,
        rank_start=_known("global rank start", start),
        rank_stride=_known("global rank stride", stride),
        in_splits=in_splits,
        out_splits=out_splits,
        sequence=_known("sequence number", sequence),
        source=None,
        destination=None,
        in_rows=None,
    )
    backend = group if type(group) is int and group != 0 else None
    own = _known("rank", own)
    if kind in _ROOTED:
        return replace(call, args=args, backend=backend, group_root=own)
    if kind in _SENDS | _RECEIVES:
        return replace(call, args=args, backend=backend, group_peer=own)
    return replace(call, args=args, backend=backend, group_rank=own)


def _with_attributes(call: Call, attrs: dict[str, Any], has_inputs: bool) -> Call:
    """Add what the attributes say."""
    if "collective_name" not in attrs:
        return call
    numbers = {key: _known(key, attrs.get(key)) for key in _INT_ATTRS}
    args = call.args if isinstance(call.args, CommArgs) else replace(_NOTHING, name=call.name)
    size = numbers["pg_size"] if numbers["pg_size"] is not None else numbers["group_size"]
    for key in ("in_split_size", "out_split_size"):
        value = attrs.get(key)
        splits = parse_int_list(value) if isinstance(value, str) else _splits(value, key)
        if splits is None and value not in (None, ""):
            raise _Bad(f"{key} is {shown(value)}")
        own = args.in_splits if key == "in_split_size" else args.out_splits
        if splits is not None and (splits.values or splits.cut) and (own is None or own.cut):
            args = replace(args, in_splits=splits) if key == "in_split_size" else replace(args, out_splits=splits)
    source, destination = numbers["src_rank"], numbers["dst_rank"]
    args = replace(
        args,
        name=call.name,
        dtype=_text("dtype", attrs.get("dtype")) or args.dtype,
        in_elements=_first(numbers["in_msg_nelems"], args.in_elements),
        out_elements=_first(numbers["out_msg_nelems"], args.out_elements),
        group_size=_first(size, args.group_size),
        group_name=_text("pg_name", attrs.get("pg_name")) or args.group_name,
        group_description=_text("pg_desc", attrs.get("pg_desc")) or args.group_description,
        rank_start=_first(numbers["global_rank_start"], args.rank_start),
        rank_stride=_first(numbers["global_rank_stride"], args.rank_stride),
        source=source if base_name(call.name) in _RECEIVES else None,
        destination=destination if base_name(call.name) in _SENDS else None,
    )
    return replace(call, args=args)


def _tensors(values: list[Any]) -> list[tuple[int, int]]:
    """Elements and bytes per element of the tensors in nested lists; a tensor is [id, storage, offset, elements, width, device]."""
    out: list[tuple[int, int]] = []
    stack = list(reversed(values))
    while stack:
        value = stack.pop()
        if not isinstance(value, list):
            continue
        if len(value) in (5, 6) and all(type(v) is int for v in value[:5]):
            if not (0 <= value[3] < _MAX and 0 <= value[4] < 1 << 16):
                raise _Bad(f"a tensor of {shown(value[3])} elements of {shown(value[4])} bytes")
            out.append((value[3], value[4]))
        else:
            stack.extend(reversed(value))
    return out


def _dtype(types: list[Any], tensors: list[tuple[int, int]]) -> str:
    """Element type of the tensors, as the types of the inputs say it: ``GenericList[Tensor(long int)]``."""
    names = set()
    for text in types:
        if isinstance(text, str):
            names |= {part.partition(")")[0] for part in text.split("Tensor(")[1:]}
    if not names:
        return ""
    if len(names) > 1:
        raise _Bad(f"tensors of several types: {shown(', '.join(sorted(names)))}")
    (name,) = names
    dtype = _C_TYPES.get(name.strip().lower(), name.strip())
    _, width = dtype_width(dtype)
    wrong = next((w for _, w in tensors if width is not None and w not in (width, 0)), None)
    if wrong is not None:
        raise _Bad(f"elements of {wrong} bytes and of type {name}")
    return dtype


def _splits(value: Any, what: str) -> IntList | None:
    """A split list; None where it is empty or missing."""
    if isinstance(value, str):
        parsed = parse_int_list(value) if value.strip() else IntList(())
        if parsed is None:
            raise _Bad(f"{what} is {shown(value)}")
        return parsed if parsed.values or parsed.cut else None
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(type(v) is int and 0 <= v < _MAX for v in value):
        raise _Bad(f"{what} is {shown(value)}")
    return IntList(tuple(value))


def _known(what: str, value: Any) -> int | None:
    """A number that is not negative; None where it is missing or -1."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and len(value) < 21:
        try:
            value = int(value)
        except ValueError:
            raise _Bad(f"{what} is {shown(value)}") from None
    if type(value) is not int or value >= _MAX:
        raise _Bad(f"{what} is {shown(value)}")
    return value if value >= 0 else None


def _count(what: str, value: Any) -> int | None:
    return _known(what, value) or None


def _text(what: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _Bad(f"{what} is {shown(value)}")
    return str(value)


def _first(a: int | None, b: int | None) -> int | None:
    return b if a is None else a
