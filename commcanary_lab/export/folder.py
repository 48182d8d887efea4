"""Where an export goes: a folder that it owns file by file, or one file, written atomically and never over somebody else's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from commcanary_lab.canonical import atomic_file, canonical_bytes, write_atomic
from commcanary_lab.errors import InputError, RefusedError

__all__ = ["MANIFEST", "ExportFolder", "claim_file", "write_stream"]

#: Says what an export wrote into a folder. Hidden, so that a folder of rank files holds nothing else for its readers.
MANIFEST = ".commcanary_lab_export.json"

_FORMAT = "commcanary_lab.export.v1"


@dataclass
class ExportFolder:
    """A folder of exported files with a manifest.

    The manifest lists the files before the first of them is written. What it lists is ours: the next export replaces it, and removes what
    it does not write again. Everything else is left alone, and an export that would write over it is refused.

    Parameters
    ----------
    path : Path
        The folder; it is made.
    kind : str
        Kind of the export.
    names : sequence of str
        Files that will be written.

    Raises
    ------
    RefusedError
        If a file of that name exists that no export wrote.
    InputError
        If the folder cannot be made or written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = ExportFolder(Path(folder), "param", ["0.json"])
    ...     size = out.write("0.json", b"[]")
    ...     out.finish({"notes": []})
    ...     print(size, sorted(os.listdir(folder)))
    2 ['.commcanary_lab_export.json', '0.json']
    """

    path: Path
    kind: str
    names: Sequence[str]
    _sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"cannot be made: {e.strerror}", file=str(self.path), remedy="name a directory") from None
        before = _listed(self.path / MANIFEST)
        wanted = set(self.names)
        for name in self.names:
            if name not in before and os.path.lexists(self.path / name):
                raise RefusedError(
                    "exists and was not written by an export", file=str(self.path / name), remedy="remove it or name another directory"
                )
        self._manifest({"complete": False}, wanted | before)
        for name in sorted(before - wanted):
            (self.path / name).unlink(missing_ok=True)

    def write(self, name: str, chunks: bytes | Iterable[bytes]) -> int:
        """Write one of the files; returns its size in bytes."""
        self._sizes[name] = write_atomic(self.path / name, chunks)
        return self._sizes[name]

    def finish(self, about: Mapping[str, Any]) -> None:
        """Write the manifest."""
        self._manifest({"complete": True, **about}, set(self.names))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, in order."""
        return tuple(self.path / name for name in self.names)

    def _manifest(self, about: Mapping[str, Any], names: set[str]) -> None:
        files = {name: self._sizes.get(name) for name in names}
        write_atomic(self.path / MANIFEST, canonical_bytes({**about, "format": _FORMAT, "kind": self.kind, "files": files}))


def _listed(manifest: Path) -> set[str]:
    """Plain file names that a manifest lists; nothing where there is none or it is not readable."""
    try:
        found = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError):
        return set()
    if not isinstance(found, dict) or found.get("format") != _FORMAT or not isinstance(found.get("files"), dict):
        return set()
    return {name for name in found["files"] if isinstance(name, str) and name == os.path.basename(name) and name not in ("", ".", "..")}


def claim_file(path: Path, mark: bytes) -> None:
    """Refuse to write over a file that does not begin like an earlier export.

    Parameters
    ----------
    path : Path
        The file.
    mark : bytes
        How files of this export begin.

    Raises
    ------
    RefusedError
        If the file exists and begins otherwise.
    InputError
        If it cannot be read, or its folder cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            return
        with path.open("rb") as f:
            head = f.read(len(mark))
            if mark.startswith(b"\x1f\x8b") or not head.startswith(b"\x1f\x8b"):
                ours = head == mark
            else:
                import gzip

                f.seek(0)
                with gzip.open(f) as unpacked:
                    ours = unpacked.read(len(mark)) == mark
    except (OSError, EOFError) as e:
        raise InputError(f"cannot be read: {e}", file=str(path), remedy="name another file") from None
    if not ours:
        raise RefusedError("exists and was not written by this export", file=str(path), remedy="remove it or name another file")


def write_stream(target: str | os.PathLike[str] | BinaryIO, mark: bytes, chunks: Iterable[bytes]) -> tuple[Path, ...]:
    """Write one file atomically, or to a stream.

    Parameters
    ----------
    target : path-like or binary stream
        A file whose name may end in ``.gz``, or a stream.
    mark : bytes
        How files of this kind begin: written first, and demanded of a file that is there already.
    chunks : iterable of bytes
        The rest.

    Returns
    -------
    tuple of Path
        The file; empty for a stream.
    """
    if not isinstance(target, str | os.PathLike):
        target.write(mark)
        for chunk in chunks:
            target.write(chunk)
        return ()
    path = Path(target)
    claim_file(path, mark)
    with atomic_file(path) as f:
        if path.suffix == ".gz":
            import gzip

            # no name and no time in the header: the same content gives the same bytes
            with gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=6, mtime=0) as packed:
                write_stream(packed, mark, chunks)  # type: ignore[arg-type]
        else:
            write_stream(f, mark, chunks)
    return (path,)
