"""The wire form of protocol buffers, as much as small messages need: varints, lengths, and a walk over fields.

https://protobuf.dev/programming-guides/encoding/ describes it. Reading never allocates more than the bytes that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

__all__ = [
    "DELIMITED", "FIXED32", "FIXED64", "VARINT", "Damaged", "bytes_field", "delimited", "double_field", "fields", "packed", "read_varint",
    "signed", "varint", "varint_field", "varints_of", "zigzag",
]  # fmt: skip

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5

_MASK = (1 << 64) - 1


class Damaged(ValueError):
    """The bytes are no such message; says where."""


def varint(value: int) -> bytes:
    """Encode a non-negative integer, or a negative one as its 64-bit two's complement.

    Examples
    --------
    >>> varint(300), varint(-1)[-1]
    (b'\\xac\\x02', 1)
    """
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at `at` and the position after it.

    Raises
    ------
    Damaged
        If it runs past `end`, or over ten bytes.
    """
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
        if shift > 63:
            raise Damaged(f"a number of more than ten bytes at byte {at}")
    raise Damaged(f"it ends inside a number at byte {at}")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk over the fields of a message in ``data[at:end]``.

    Yields
    ------
    number, wire type, value or start, end : int
        A varint's value; for the other types the bounds of the content.

    Raises
    ------
    Damaged
        If a field runs past the end, or its type is none of the four in use.

    Examples
    --------
    >>> data = varint_field(1, 150) + bytes_field(2, b"ab")
    >>> [(n, w, v if w == VARINT else data[v:e]) for n, w, v, e in fields(data, 0, len(data))]
    [(1, 0, 150), (2, 2, b'ab')]
    """
    while at < end:
        start = at
        key, at = read_varint(data, at, end)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise Damaged(f"field number {number} at byte {start}")
        if wire == VARINT:
            value, at = read_varint(data, at, end)
            yield number, wire, value, at
            continue
        if wire == DELIMITED:
            length, at = read_varint(data, at, end)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise Damaged(f"wire type {wire} at byte {start}")
        if length > end - at:
            raise Damaged(f"field {number} at byte {start} has {length} bytes, {end - at} are left")
        yield number, wire, at, at + length
        at += length


def varints_of(data: bytes, at: int, end: int) -> list[int]:
    """Return the numbers of a packed repeated field.

    Examples
    --------
    >>> varints_of(packed([1, 300]), 0, 3)
    [1, 300]
    """
    out = []
    while at < end:
        value, at = read_varint(data, at, end)
        out.append(value)
    return out


def signed(value: int, bits: int = 64) -> int:
    """Return a varint's value as a signed integer of two's complement.

    Examples
    --------
    >>> signed(2**64 - 1), signed(5)
    (-1, 5)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def zigzag(value: int) -> int:
    """Return the signed integer that zigzag encoding stands for.

    Examples
    --------
    >>> [zigzag(v) for v in (0, 1, 2, 3)]
    [0, -1, 1, -2]
    """
    return value >> 1 ^ -(value & 1)


def varint_field(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field: text, bytes, or a message."""
    return varint(number << 3 | DELIMITED) + delimited(value)


def double_field(number: int, value: float) -> bytes:
    """Encode a double."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def packed(values: Iterable[int]) -> bytes:
    """Encode the content of a packed repeated field."""
    return b"".join(map(varint, values))


def delimited(value: bytes) -> bytes:
    """Encode bytes with their length before them, as streams of messages have it."""
    return varint(len(value)) + value
