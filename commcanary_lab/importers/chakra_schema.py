"""The messages of a Chakra execution trace: a global metadata message, then one message per node, each with its length before it.

The part of MLCommons Chakra's schema that communication needs, for reading and for writing. A node has a type, dependencies, a time, and
attributes; collectives carry ``comm_type`` and ``comm_size``, messages ``comm_src``, ``comm_dst``, ``comm_tag`` and ``comm_size``.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from commcanary_lab.importers.protobuf_wire import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    Damaged,
    bytes_field,
    delimited,
    double_field,
    fields,
    packed,
    read_varint,
    signed,
    varint_field,
    varints_of,
    zigzag,
)

__all__ = ["CommType", "Metadata", "Node", "NodeType", "Value", "decode_metadata", "decode_node", "encode_metadata", "encode_node",
           "encode_trace", "messages"]  # fmt: skip

#: What an attribute can hold here.
Value = bool | int | float | str | tuple[int, ...] | tuple[bool, ...]


class NodeType(enum.IntEnum):
    """Kinds of nodes."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CommType(enum.IntEnum):
    """Kinds of collectives."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True)
class Metadata:
    """The first message: version and attributes."""

    version: str = ""
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Node:
    """One node.

    Parameters
    ----------
    id : int
    name : str
    type : int
        A `NodeType`, or a number that this schema does not know.
    control_deps, data_deps : tuple of int
        Ids of the nodes before it.
    start_us, duration_us : int
        Microseconds; 0 stands for "not stated".
    inputs : str
        Values of the inputs as text, where a converter kept them.
    attributes : dict
        By name.
    """

    id: int
    name: str
    type: int
    control_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    inputs: str = ""
    attributes: dict[str, Value] = field(default_factory=dict)


def messages(data: bytes) -> Iterator[tuple[int, int]]:
    """Walk over a stream of messages with their lengths before them; yields the bounds of each.

    Raises
    ------
    Damaged
        If the last one is cut.

    Examples
    --------
    >>> list(messages(delimited(b"abc") + delimited(b"")))
    [(1, 4), (5, 5)]
    """
    at = 0
    while at < len(data):
        start = at
        length, at = read_varint(data, at, len(data))
        if length > len(data) - at:
            raise Damaged(f"the message at byte {start} has {length} bytes, {len(data) - at} are left")
        yield at, at + length
        at += length


# -- reading ----------------------------------------------------------------------------------------------------------


def decode_metadata(data: bytes, at: int, end: int) -> Metadata:
    """Decode the first message.

    Examples
    --------
    >>> raw = encode_metadata(Metadata("0.0.4", {"pid": 7}))
    >>> decode_metadata(raw, 0, len(raw))
    Metadata(version='0.0.4', attributes={'pid': 7})
    """
    version, attributes = "", {}
    for number, wire, value, stop in fields(data, at, end):
        if number == 1 and wire == DELIMITED:
            version = _text(data, value, stop)
        elif number == 2 and wire == DELIMITED:
            name, content = _attribute(data, value, stop)
            if name and content is not None:
                attributes[name] = content
        else:
            raise Damaged(f"field {number} in the metadata message, which has only version and attributes")
    return Metadata(version, attributes)


def decode_node(data: bytes, at: int, end: int) -> Node:
    """Decode the message of a node; fields that are not needed are skipped.

    Examples
    --------
    >>> node = Node(3, "a2a", NodeType.COMM_COLL, (1, 2), attributes={"comm_type": 6, "comm_size": 1 << 20, "involved_dim": (True, False)})
    >>> raw = encode_node(node)
    >>> decode_node(raw, 0, len(raw)) == node
    True
    """
    numbers = dict.fromkeys((1, 3, 6, 7), 0)
    name = inputs = ""
    deps: dict[int, list[int]] = {4: [], 5: []}
    attributes: dict[str, Value] = {}
    for number, wire, value, stop in fields(data, at, end):
        if number in numbers:
            if wire != VARINT:
                raise Damaged(f"field {number} of a node is no number")
            numbers[number] = value
        elif number in deps:
            deps[number] += [value] if wire == VARINT else varints_of(data, value, stop) if wire == DELIMITED else []
        elif wire != DELIMITED:
            if number in (2, 8, 10):
                raise Damaged(f"field {number} of a node is a number")
        elif number == 2:
            name = _text(data, value, stop)
        elif number == 8:
            inputs = next((_text(data, v, e) for n, w, v, e in fields(data, value, stop) if n == 1 and w == DELIMITED), "")
        elif number == 10:
            key, content = _attribute(data, value, stop)
            if key and content is not None:
                attributes[key] = content
    return Node(numbers[1], name, numbers[3], tuple(deps[4]), tuple(deps[5]), numbers[6], numbers[7], inputs, attributes)


#: Numbers of an attribute's value fields: how to read a number, or the numbers of a list.
_SIGNED32, _SIGNED64, _UNSIGNED = (7, 8), (9, 10), (11, 12, 13, 14)
_ZIGZAG, _FIXED, _BOOL, _TEXT, _DOUBLE, _FLOAT = (15, 16, 17, 18), (19, 20, 21, 22, 23, 24, 25, 26), (27, 28), 29, 3, 5
_FIXED_FORM = {19: "<I", 20: "<I", 21: "<Q", 22: "<Q", 23: "<i", 24: "<i", 25: "<q", 26: "<q"}


def _attribute(data: bytes, at: int, end: int) -> tuple[str, Value | None]:
    name = ""
    content: Value | None = None
    for number, wire, value, stop in fields(data, at, end):
        if number == 1 and wire == DELIMITED:
            name = _text(data, value, stop)
        elif number == _TEXT and wire == DELIMITED:
            content = _text(data, value, stop)
        elif number == _DOUBLE and wire == FIXED64:
            content = float(struct.unpack_from("<d", data, value)[0])
        elif number == _FLOAT and wire == FIXED32:
            content = float(struct.unpack_from("<f", data, value)[0])
        elif wire == VARINT:
            content = _number(number, value)
        elif wire in (FIXED32, FIXED64) and number in _FIXED_FORM and struct.calcsize(_FIXED_FORM[number]) == stop - value:
            content = int(struct.unpack_from(_FIXED_FORM[number], data, value)[0])
        elif wire == DELIMITED and number in (8, 10, 12, 14, 16, 18, 28):
            content = _list(number, data, value, stop)
    return name, content


def _number(number: int, value: int) -> Value | None:
    if number in _SIGNED32:
        return signed(value, 32)
    if number in _SIGNED64:
        return signed(value)
    if number in _UNSIGNED:
        return value
    if number in _ZIGZAG:
        return zigzag(value)
    return value != 0 if number in _BOOL else None


def _list(number: int, data: bytes, at: int, end: int) -> Value | None:
    """A list of numbers: a message whose field 1 repeats, packed or not."""
    raw: list[int] = []
    for n, wire, value, stop in fields(data, at, end):
        if n == 1:
            raw += [value] if wire == VARINT else varints_of(data, value, stop) if wire == DELIMITED else []
    if number in _BOOL:
        return tuple(v != 0 for v in raw)
    read = [_number(number, v) for v in raw]
    return tuple(int(v) for v in read if isinstance(v, int))


def _text(data: bytes, at: int, end: int) -> str:
    return data[at:end].decode("utf-8", "replace")


# -- writing ----------------------------------------------------------------------------------------------------------


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode the first message, without its length."""
    out = [bytes_field(1, metadata.version.encode())] if metadata.version else []
    return b"".join([*out, *(bytes_field(2, _encode_attribute(k, v)) for k, v in metadata.attributes.items())])


def encode_node(node: Node) -> bytes:
    """Encode the message of a node, without its length.

    Attributes become int64 (numbers), bool, double, text, or lists of int64 or bool.
    """
    out = [varint_field(1, node.id)] if node.id else []
    if node.name:
        out.append(bytes_field(2, node.name.encode()))
    out.append(varint_field(3, node.type))
    for number, deps in ((4, node.control_deps), (5, node.data_deps)):
        if deps:
            out.append(bytes_field(number, packed(deps)))
    out += [varint_field(number, value) for number, value in ((6, node.start_us), (7, node.duration_us)) if value]
    if node.inputs:
        out.append(bytes_field(8, bytes_field(1, node.inputs.encode())))
    return b"".join([*out, *(bytes_field(10, _encode_attribute(k, v)) for k, v in node.attributes.items())])


def encode_trace(metadata: Metadata, nodes: Iterable[Node]) -> bytes:
    """Encode a whole trace: every message with its length before it.

    Examples
    --------
    >>> data = encode_trace(Metadata("0.0.4"), [Node(1, "sync", NodeType.COMM_COLL)])
    >>> [decode_node(data, *bounds).name for bounds in list(messages(data))[1:]]
    ['sync']
    """
    return b"".join([delimited(encode_metadata(metadata)), *(delimited(encode_node(n)) for n in nodes)])


def _encode_attribute(name: str, value: Value) -> bytes:
    head = bytes_field(1, name.encode())
    if isinstance(value, bool):
        return head + varint_field(27, value)
    if isinstance(value, int):
        return head + varint_field(9, value)
    if isinstance(value, float):
        return head + double_field(3, value)
    if isinstance(value, str):
        return head + bytes_field(29, value.encode())
    number = 28 if value and all(isinstance(v, bool) for v in value) else 10
    return head + bytes_field(number, bytes_field(1, packed(value)))
