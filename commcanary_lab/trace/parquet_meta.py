"""The metadata of a Parquet trace: process groups, rank sets, and everything else that is not per event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import FormatError
from commcanary_lab.trace.groups import ProcessGroup
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow

__all__ = ["DIGEST_KEY", "METADATA_KEY", "PARQUET_FORMAT", "decode_metadata", "encode_metadata"]

#: Keys of the file's metadata: the content, and its SHA-256 (pages have their own checksums).
METADATA_KEY = b"commcanary_lab"
DIGEST_KEY = b"commcanary_lab.sha256"

PARQUET_FORMAT = "commcanary_lab.trace.parquet.v1"


class _Metadata(msgspec.Struct):
    format: str
    groups: list[tuple[str | None, tuple[int, ...]]]
    rank_sets: list[tuple[int, ...]]
    workload: dict[str, Any]
    system: dict[str, Any]
    extra: dict[str, Any]
    notes: list[str]
    warnings: list[str]
    coverage: ImportCoverage
    unsized: list[UnsizedRow]
    source_format: str


def encode_metadata(trace: Trace) -> dict[bytes, bytes]:
    """Encode what is not per event, as canonical JSON with its digest.

    Raises
    ------
    InputError
        If workload, system or extra hold something that JSON cannot say.
    """
    metadata = _Metadata(
        PARQUET_FORMAT,
        [(g.name, g.members) for g in trace.groups],
        list(trace.rank_sets),
        dict(trace.workload),
        dict(trace.system),
        dict(trace.extra),
        list(trace.notes),
        list(trace.warnings),
        trace.coverage,
        list(trace.unsized),
        trace.source_format,
    )
    data = canonical_bytes(msgspec.to_builtins(metadata))
    return {METADATA_KEY: data, DIGEST_KEY: sha256_hex(data).encode()}


def decode_metadata(metadata: Mapping[bytes, bytes], file: str) -> dict[str, Any]:
    """Decode to the fields of a `Trace`.

    Raises
    ------
    FormatError
        If the metadata is missing, damaged, or of another version.
    """
    data = metadata.get(METADATA_KEY)
    if data is None:
        raise FormatError(
            f"the metadata {METADATA_KEY.decode()!r} is missing: another program wrote this Parquet file",
            file=file,
            remedy="open the original source, or a Parquet file that `open -o` wrote",
        )
    if metadata.get(DIGEST_KEY) != sha256_hex(data).encode():
        raise FormatError("the metadata is damaged: its digest differs", file=file, field=METADATA_KEY.decode(),
                          remedy="copy the file again, or write it again")  # fmt: skip
    try:
        m = msgspec.json.decode(data, type=_Metadata)
    except msgspec.DecodeError as e:
        raise FormatError(f"the metadata is damaged: {e}", file=file, field=METADATA_KEY.decode(), remedy="write the trace again") from None
    if m.format != PARQUET_FORMAT:
        raise FormatError(f"format is {m.format!r}", file=file, field="format", remedy=f"expected {PARQUET_FORMAT!r}")
    if any(not members or list(members) != sorted(set(members)) or members[0] < 0 for _, members in m.groups):
        raise FormatError("a process group has no members, or not in ascending order", file=file, field="groups",
                          remedy="write the trace again")  # fmt: skip
    return {
        "groups": tuple(ProcessGroup(name, members) for name, members in m.groups),
        "rank_sets": tuple(m.rank_sets),
        "workload": m.workload,
        "system": m.system,
        "extra": m.extra,
        "notes": tuple(m.notes),
        "warnings": tuple(m.warnings),
        "coverage": m.coverage,
        "unsized": tuple(m.unsized),
        "source_format": m.source_format,
    }
