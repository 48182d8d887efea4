"""What kind of artifact a file is, by its content, so that a folder can be listed without opening what is in it."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import msgspec

from commcanary_lab.errors import LabError
from commcanary_lab.files import open_regular
from commcanary_lab.importers.open import recognise_file
from commcanary_lab.workspace.evidence import recognise_evidence
from commcanary_lab.workspace.stated import MARK, Stated, described

__all__ = ["Recognised", "recognise"]

#: Files of a folder that are looked at before it counts as unknown.
_MAX_PROBED = 16


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
        A file, a folder with one file per rank, or a directory of evidence.

    Returns
    -------
    Recognised
        One of `KINDS`; `summary` says what it is, and for ``other`` why it cannot be opened.
    """
    try:
        return _folder(path) if path.is_dir() else _file(path)
    except OSError as e:
        return Recognised("other", f"cannot be read: {e.strerror}")


def _folder(path: Path) -> Recognised:
    if (evidence := recognise_evidence(path)) is not None:
        return Recognised(*evidence)
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    for probe in files[:_MAX_PROBED]:
        found = _file(probe)
        if found.kind == "trace":
            return Recognised("trace", f"{found.summary}, {len(files)} file{'s' if len(files) != 1 else ''}")
    return Recognised("other", "a folder without traces" if files else "an empty folder")


def _file(path: Path) -> Recognised:
    try:
        if (stated := _stated(path)) is not None and (found := described(stated)) is not None:
            return Recognised(*found)
        return Recognised("trace", recognise_file(path).about)
    except LabError as e:
        return Recognised("other", e.problems[0].what)


def _stated(path: Path) -> Stated | None:
    """Return what a document of this package says at its top level. Only files that hold the mark are decoded."""
    with open_regular(path) as f:
        if not f.read(4).lstrip(b"\xef\xbb\xbf \n").startswith(b"{"):
            return None
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(MARK) < 0:
                return None
            try:
                return msgspec.json.decode(memoryview(data), type=Stated)
            except (msgspec.DecodeError, RecursionError):
                return None
