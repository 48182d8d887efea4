"""The trash of a workspace: what was deleted, when, and under which name, until it is put back or removed for good."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.workspace.artifact import KINDS, Artifact
from commcanary_lab.workspace.evidence import CONTAINERS

__all__ = ["TRASH", "Trashed", "purge", "restore", "throw_away", "trashed"]

#: Inside the workspace; hidden folders are no artifacts.
TRASH = ".trash"

_ENTRY = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_STATED = "entry.json"
#: What is thrown away lies in a folder of its own, so that no name can collide with the statement beside it.
_CONTENT = "content"


class _Stated(msgspec.Struct):
    name: str
    kind: str
    size_bytes: int
    summary: str
    deleted: str


@dataclass(frozen=True)
class Trashed:
    """One artifact in the trash.

    Parameters
    ----------
    entry : str
        Identifies it; begins with the date.
    name : str
        Its name in the workspace.
    kind, size_bytes, summary
        As in `Artifact`.
    deleted : str
        When, in UTC: ``2026-11-30 12:15:30Z``.
    """

    entry: str
    name: str
    kind: str
    size_bytes: int
    summary: str
    deleted: str


def throw_away(folder: Path, artifact: Artifact) -> Trashed:
    """Move an artifact of a workspace into its trash. A link is moved, not what it leads to.

    Parameters
    ----------
    folder : Path
        The workspace.
    artifact : Artifact
        From its listing.

    Returns
    -------
    Trashed

    Raises
    ------
    InputError
        If it cannot be moved; it is then where it was.
    """
    now = time.gmtime()
    stated = _Stated(artifact.name, artifact.kind, artifact.size_bytes, artifact.summary, time.strftime("%Y-%m-%d %H:%M:%SZ", now))
    entry = f"{time.strftime('%Y%m%dT%H%M%SZ', now)}-{secrets.token_hex(4)}"
    try:
        _trash(folder).mkdir(exist_ok=True)
        place = _trash(folder) / entry
        (place / _CONTENT).mkdir(parents=True)
        write_atomic(place / _STATED, msgspec.json.encode(stated))
        try:  # the statement first: a process killed in between leaves an entry without content, which counts for nothing
            os.rename(folder / artifact.name, place / _CONTENT / _last(artifact.name))
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
            raise
    except OSError as e:
        raise InputError(f"cannot be moved to the trash: {e.strerror}", file=artifact.name, remedy="make the workspace writable") from None
    return _as_trashed(entry, stated)


def trashed(folder: Path) -> tuple[Trashed, ...]:
    """Return what is in the trash of a workspace, the latest first."""
    found = []
    try:
        names = sorted(os.listdir(_trash(folder)), reverse=True)
    except (OSError, UsageError):
        return ()
    for name in names:
        if _ENTRY.fullmatch(name) and (stated := _read(folder, name)) is not None:
            found.append(_as_trashed(name, stated))
    return tuple(found)


def restore(folder: Path, entry: str) -> str:
    """Put an artifact back under its own name; return the name.

    Raises
    ------
    UsageError
        If there is no such entry, or another file has the name now: nothing is overwritten.
    InputError
        If it cannot be moved.
    """
    stated = _must(folder, entry)
    source, target = _trash(folder) / entry / _CONTENT / _last(stated.name), folder / stated.name
    try:
        if target.parent != folder:
            target.parent.mkdir(exist_ok=True)
            if not target.parent.resolve().is_relative_to(folder.resolve()):
                raise UsageError(f"{target.parent.name!r} leads out of the workspace", remedy="remove that link first")
        _move(source, target)
    except FileExistsError:
        raise UsageError(f"{stated.name!r} exists: nothing is overwritten", remedy="rename or delete that file, then restore") from None
    except OSError as e:
        raise InputError(f"cannot be restored: {e.strerror}", file=stated.name, remedy="make the workspace writable") from None
    shutil.rmtree(_trash(folder) / entry, ignore_errors=True)
    return stated.name


def purge(folder: Path, entry: str) -> None:
    """Remove an artifact of the trash for good.

    Raises
    ------
    UsageError
        If there is no such entry.
    InputError
        If it cannot be removed.
    """
    stated = _must(folder, entry)
    try:
        shutil.rmtree(_trash(folder) / entry)
    except OSError as e:
        raise InputError(f"cannot be removed: {e.strerror}", file=stated.name, remedy="make the workspace writable") from None


def _move(source: Path, target: Path) -> None:
    """Move without ever replacing what is there: `rename` alone would replace a file that appeared a moment ago."""
    if stat.S_ISREG(os.lstat(source).st_mode):
        try:
            os.link(source, target)
        except FileExistsError:
            if not (target.is_file() and not target.is_symlink() and target.samefile(source)):  # linked already, then killed
                raise
        except OSError:  # a file system without links
            if os.path.lexists(target):
                raise FileExistsError from None
            os.rename(source, target)
            return
        os.unlink(source)
    else:
        if os.path.lexists(target):
            raise FileExistsError
        os.rename(source, target)  # a folder: at worst replaces an empty one


def _trash(folder: Path) -> Path:
    place = folder / TRASH
    if place.is_symlink():
        raise UsageError(f"{TRASH} is a link; what is deleted must stay in the workspace", remedy="remove the link")
    return place


def _must(folder: Path, entry: str) -> _Stated:
    stated = _read(folder, entry) if _ENTRY.fullmatch(entry) else None
    if stated is None:
        raise UsageError(f"the trash has no entry {entry!r}", remedy="it may have been restored already; look at the list")
    return stated


def _read(folder: Path, entry: str) -> _Stated | None:
    """What an entry states, checked: the folder is anybody's to write into."""
    try:
        place = _trash(folder) / entry
        if place.is_symlink() or (place / _CONTENT).is_symlink():
            return None
        stated = msgspec.json.decode((place / _STATED).read_bytes(), type=_Stated)
        os.lstat(place / _CONTENT / _last(stated.name))
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
        return None
    above, _, last = stated.name.rpartition("/")
    plain = last and not last.startswith(".") and "\\" not in stated.name and not stated.name.startswith("/")
    return stated if plain and above in ("", *CONTAINERS) and stated.kind in KINDS else None


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _as_trashed(entry: str, stated: _Stated) -> Trashed:
    return Trashed(entry, stated.name, stated.kind, stated.size_bytes, stated.summary, stated.deleted)
