"""What kind of artifact a file is, by its content: cheap enough to list a folder without opening anything."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Recognised", "recognise"]

#: Bytes read at a time; patterns that straddle a border are caught by the overlap.
_CHUNK = 4 << 20
_OVERLAP = 256
#: Files of a folder that are looked at before it counts as unknown.
_MAX_PROBED = 16

_FORMAT = re.compile(rb'"format"\s*:\s*"([\w.\-]{1,80})"')
_TIMING = re.compile(rb'"timing"\s*:\s*"(lossless|bounded_approximate)"')
_KINETO = re.compile(rb'"traceEvents"\s*:')
_SHARD = re.compile(rb'"format"\s*:\s*"commcanary_lab\.shard\.v\d+"')

_CANARY = "commcanary_lab.canary.v1"
_TRACE = "commcanary.trace.v1"


@dataclass(frozen=True)
class Recognised:
    """The kind of an artifact and a summary in a few words."""

    kind: str
    summary: str


def recognise(path: Path) -> Recognised:
    """Say what kind of artifact a file or folder is.

    Parameters
    ----------
    path : Path
        A file, or a folder with one file per rank.

    Returns
    -------
    Recognised
        ``trace``, ``canary`` or ``other``; `summary` says why in the last case.
    """
    try:
        return _folder(path) if path.is_dir() else _file(path)
    except (OSError, EOFError, zlib.error) as e:
        return Recognised("other", f"cannot be read: {getattr(e, 'strerror', None) or e}")


def _folder(path: Path) -> Recognised:
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    for probe in files[:_MAX_PROBED]:
        found = _file(probe)
        if found.kind == "trace":
            return Recognised("trace", f"{found.summary}, {len(files)} file{'s' if len(files) != 1 else ''}")
    return Recognised("other", "a folder without traces" if files else "an empty folder")


def _file(path: Path) -> Recognised:
    with path.open("rb") as f:
        head = f.read(16)
    if not head:
        return Recognised("other", "an empty file")
    if head.startswith(b"PAR1"):
        return Recognised("trace", "Parquet trace")
    if not head.startswith(b"\x1f\x8b") and head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        return Recognised("other", "neither JSON nor Parquet")
    return _json(path)


def _json(path: Path) -> Recognised:
    """Canonical files sort their keys, so the format may stand anywhere: the whole file is scanned."""
    formats: set[str] = set()
    timing = None
    with path.open("rb") as f:
        if _SHARD.search(f.readline(512)):
            return Recognised("trace", "recorder shard")
    for chunk in _chunks(path):
        formats.update(m.decode("ascii", "replace") for m in _FORMAT.findall(chunk))
        found = _TIMING.search(chunk)
        timing = found.group(1).decode() if found else timing
        if _KINETO.search(chunk) and not formats:
            return Recognised("trace", "Kineto profile")
    if _CANARY in formats:
        return Recognised("canary", {"lossless": "lossless canary", "bounded_approximate": "bounded canary"}.get(timing or "", "canary"))
    if _TRACE in formats:
        return Recognised("trace", _TRACE)
    return Recognised("other", f"unknown format {sorted(formats)[0]}" if formats else "JSON of an unknown format")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.open(raw) if packed else raw as f:
            tail = b""
            while data := f.read(_CHUNK):
                yield tail + data
                tail = data[-_OVERLAP:]
