"""Payloads that NCCL attaches to its NVTX ranges: communicator, message size, peer, root, group size and rank.

An export holds each payload as bytes, with the layout in two tables of schemas. Before the payload stands a header of 32 bytes: domain,
schema, and both sizes; exports without it hold the bare payload, which only its size and the range's name tell apart.
"""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass

from commcanary_lab.importers.nsys_db import Database

__all__ = ["Payload", "Schemas"]

_HEADER = struct.Struct("<IIIIQQ")
_FIELDS = {
    "nccl communicator id": "comm", "message size [bytes]": "size_bytes", "message size": "size_bytes", "peer rank": "peer", "peer": "peer",
    "root": "root", "no. of ranks": "ranks", "number of ranks": "ranks", "rank": "rank", "reduction operation": "reduction",
}  # fmt: skip
#: NVTX entry types by width and sign: int, 32- and 64-bit integers, size; enumerations of the source are 32 bits.
_TYPES = {5: "<i", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
_FIRST_OWN_TYPE = 1 << 24
_MAX_PAYLOAD = 1 << 16


@dataclass(frozen=True)
class Payload:
    """Values of one range; None where its schema has no such field."""

    comm: int | None = None
    size_bytes: int | None = None
    peer: int | None = None
    root: int | None = None
    ranks: int | None = None
    rank: int | None = None
    reduction: int | None = None


@dataclass(frozen=True)
class _Schema:
    size: int
    fields: tuple[tuple[str, str, int], ...]


class Schemas:
    """Layouts of the payloads of one export.

    Parameters
    ----------
    db : Database
        The export.
    """

    def __init__(self, db: Database) -> None:
        self._by_id: dict[tuple[int, int], _Schema] = {}
        entries: dict[tuple[int, int], dict[int, tuple[str, str, int]]] = {}
        if not (
            db.has("NVTX_PAYLOAD_SCHEMAS", "domainId", "schemaId", "payloadSize") and db.has("NVTX_PAYLOAD_SCHEMA_ENTRIES", "schemaId")
        ):
            return
        for domain, schema, index, kind, name, offset in db.rows(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES", ("domainId", "schemaId", "idx", "type", "name", "offset")
        ):
            if type(domain) is int and type(schema) is int and type(index) is int and type(kind) is int and isinstance(name, bytes):
                known = _FIELDS.get(name.decode("utf-8", "replace").strip().lower())
                form = _TYPES.get(kind, "<I" if kind >= _FIRST_OWN_TYPE else "")
                at = 0 if offset is None else offset
                if known and form and type(at) is int and at >= 0:
                    entries.setdefault((domain, schema), {})[index] = (known, form, at)
        for domain, schema, size in db.rows("NVTX_PAYLOAD_SCHEMAS", ("domainId", "schemaId", "payloadSize")):
            if type(domain) is int and type(schema) is int and type(size) is int and 0 < size <= _MAX_PAYLOAD:
                found = tuple(entries.get((domain, schema), {}).values())
                if found and all(at + struct.calcsize(form) <= size for _, form, at in found):
                    self._by_id[(domain, schema)] = _Schema(size, found)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def decode(self, domain: object, blob: object, wanted: frozenset[str]) -> Payload | None:
        """Return the values of a payload, or None where they cannot be read.

        Parameters
        ----------
        domain : object
            The range's domain.
        blob : object
            The bytes, or their hexadecimal digits.
        wanted : frozenset of str
            Fields that the range must have; a bare payload is only read with the one schema that has them.
        """
        data = _bytes(blob)
        if data is None or type(domain) is not int:
            return None
        if len(data) >= _HEADER.size:
            _, _, schema_id, _, size, _ = _HEADER.unpack_from(data)
            schema = self._by_id.get((domain, schema_id))
            if schema is not None and size == schema.size and len(data) >= _HEADER.size + size:
                return self._values(schema, data, _HEADER.size, wanted)
        fitting = {s for (d, _), s in self._by_id.items() if d == domain and s.size == len(data) and wanted <= {n for n, _, _ in s.fields}}
        # the same size and fields may be laid out in one way only
        return self._values(fitting.pop(), data, 0, wanted) if len(fitting) == 1 else None

    @staticmethod
    def _values(schema: _Schema, data: bytes, start: int, wanted: frozenset[str]) -> Payload | None:
        values = {name: int(struct.unpack_from(form, data, start + at)[0]) for name, form, at in schema.fields}
        return Payload(**values) if wanted <= values.keys() else None


def _bytes(blob: object) -> bytes | None:
    """The bytes; exporters that write text write hexadecimal digits."""
    if not isinstance(blob, bytes) or not blob or len(blob) > 2 * _MAX_PAYLOAD + 1024:
        return None
    text = blob.removeprefix(b"0x")
    if len(text) % 2 == 0 and len(text) >= 16 and all(c in b"0123456789abcdefABCDEF" for c in text):
        return binascii.unhexlify(text)
    return blob
