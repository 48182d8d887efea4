"""What kind of artifact a file is, by its content, so that a folder can be listed without opening what is in it."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from commcanary_lab.canary.document import FORMAT as CANARY
from commcanary_lab.errors import LabError
from commcanary_lab.importers.open import recognise_file

__all__ = ["Recognised", "recognise"]

#: Files of a folder that are looked at before it counts as unknown.
_MAX_PROBED = 16

_KINDS = {"lossless": "lossless canary", "bounded_approximate": "bounded canary"}


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
    except OSError as e:
        return Recognised("other", f"cannot be read: {e.strerror}")


def _folder(path: Path) -> Recognised:
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    for probe in files[:_MAX_PROBED]:
        found = _file(probe)
        if found.kind == "trace":
            return Recognised("trace", f"{found.summary}, {len(files)} file{'s' if len(files) != 1 else ''}")
    return Recognised("other", "a folder without traces" if files else "an empty folder")


def _file(path: Path) -> Recognised:
    if timing := _canary_timing(path):
        return Recognised("canary", timing)
    try:
        return Recognised("trace", recognise_file(path).about)
    except LabError as e:
        return Recognised("other", e.problems[0].what)


class _Stated(msgspec.Struct):
    """What a canary says at its top level; the formats of sources that it mentions stand deeper."""

    format: Any = None
    timing: Any = None


def _canary_timing(path: Path) -> str:
    """Return what kind of canary a file is, empty if it is none. Only files that hold the words are decoded."""
    with path.open("rb") as f:
        if not f.read(4).lstrip(b"\xef\xbb\xbf \n").startswith(b"{"):
            return ""
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(CANARY.encode()) < 0:
                return ""
            try:
                stated = msgspec.json.decode(memoryview(data), type=_Stated)
            except (msgspec.DecodeError, RecursionError):
                return ""
    return _KINDS.get(stated.timing, "canary") if stated.format == CANARY else ""
