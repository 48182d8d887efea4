"""Evidence in a workspace: directories that a replay or a campaign leaves. What they are and how they ended, without opening them."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from commcanary_lab.errors import LabError
from commcanary_lab.files import read_file

__all__ = ["CONTAINERS", "MARKS", "evidence_stamp", "recognise_evidence"]

#: Folders of a workspace whose folders are artifacts of their own.
CONTAINERS = ("replays", "campaigns")

#: The file that makes a directory evidence, and its kind. Written out, because a listing must not wait for the package that writes them.
MARKS = {"run.json": "replay", "manifest.json": "campaign"}
_FORMATS = {"replay": "commcanary.replay.", "campaign": "commcanary.manifest."}

#: Files that are written once: a change of any of them is a change of state. What a running replay rewrites all the time is left out.
_STATES = (*MARKS, "result.json", "decision.json", "stop.json", "SHA256SUMS")
_SEAL = "SHA256SUMS"


class _Stated(msgspec.Struct):
    format: Any = None
    ranks: Any = None
    source_ranks: Any = None
    backend: Any = None
    iterations: Any = None
    probe: Any = None
    name: Any = None
    status: Any = None
    seconds: Any = None
    decision: Any = None


def evidence_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a stamp of a directory of evidence from the few files that say its state; None for any other directory.

    Latest modification (nanoseconds), size and number of files, as in `Artifact.stamp`. The size is that of all files once the directory
    is sealed, and of what is written once until then.
    """
    latest, size, count = 0, 0, 0
    marked = sealed = False
    for name in _STATES:
        try:
            info = os.stat(path / name)
        except OSError:
            continue
        marked = marked or (name in MARKS and _is_evidence(path / name, info.st_mtime_ns, info.st_size))
        sealed = sealed or name == _SEAL
        latest, size, count = max(latest, info.st_mtime_ns), size + info.st_size, count + 1
    if not marked:
        return None
    return (latest, _size_when(path, latest, size), count) if sealed else (latest, size, count)


@lru_cache(4096)
def _is_evidence(mark: Path, modified_ns: int, size_bytes: int) -> bool:
    """Read a mark once; other programs write files of these names, too."""
    stated = _read(mark)
    return stated is not None and isinstance(stated.format, str) and stated.format.startswith(_FORMATS[MARKS[mark.name]])


@lru_cache(4096)
def _size_when(path: Path, modified_ns: int, size_bytes: int) -> int:
    """Add up a sealed directory once; campaigns have thousands of files, and a listing is made every few seconds."""
    return _size(path)


def _size(path: Path) -> int:
    total = 0
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
            elif entry.is_dir(follow_symlinks=False):
                total += _size(Path(entry.path))
    return total


def recognise_evidence(path: Path) -> tuple[str, str] | None:
    """Return kind and summary of a directory of evidence; None for any other directory.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> recognise_evidence(place)
    >>> _ = (place / "run.json").write_text('{"format": "commcanary.replay.v1", "ranks": 2, "source_ranks": 4, "backend": "gloo"}')
    >>> recognise_evidence(place)
    ('replay', 'replay on 2 of 4 ranks, gloo: not finished')
    >>> _ = (place / "result.json").write_text('{"status": "done"}')
    >>> recognise_evidence(place)
    ('replay', 'replay on 2 of 4 ranks, gloo: done')
    """
    for mark, kind in MARKS.items():
        stated = _read(path / mark)
        if stated is not None and isinstance(stated.format, str) and stated.format.startswith(_FORMATS[kind]):
            return kind, _replay(path, stated) if kind == "replay" else _campaign(path, stated)
    return None


def _read(path: Path) -> _Stated | None:
    try:
        return msgspec.json.decode(read_file(path), type=_Stated)
    except (LabError, UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return None


def _replay(path: Path, stated: _Stated) -> str:
    ended = _read(path / "result.json")
    state = str(ended.status) if ended is not None else "not finished"
    some = "" if stated.ranks == stated.source_ranks else f"{stated.ranks} of "
    probed = ", data checked" if stated.probe is not None else ""
    return f"replay on {some}{stated.source_ranks} ranks, {stated.backend}{probed}: {state}"


def _campaign(path: Path, stated: _Stated) -> str:
    decided = _read(path / "decision.json")
    return f"campaign {stated.name or path.name}: {str(decided.decision) if decided is not None else 'not decided'}"
