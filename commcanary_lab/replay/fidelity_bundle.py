"""The evidence of the decision-fidelity experiment in one file: its runs share programs, so packed it is a tenth of the size."""

from __future__ import annotations

import atexit
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
from pathlib import Path

from commcanary_lab.errors import FormatError
from commcanary_lab.files import open_regular
from commcanary_lab.replay.evidence import new_directory, seal, verify_seal

__all__ = ["ARCHIVE", "CALIBRATION", "FIDELITY", "LINKS", "bundle_problems", "pack", "unpack", "unpacked"]

ARCHIVE = "evidence.tar.xz"

CALIBRATION, FIDELITY = "calibration", "fidelity"
#: Where the campaign keeps the links.
LINKS = "inputs/01-links.json"

#: Far above what such an archive has; below what would hurt.
_MOST_FILES, _MOST_BYTES = 5000, 256 * 1024 * 1024


def pack(directory: Path, bundle: Path) -> None:
    """Pack both campaigns of a directory into one archive in a sealed directory; the same evidence gives the same bytes.

    Parameters
    ----------
    directory : Path
        With `CALIBRATION` and `FIDELITY`.
    bundle : Path
        New or empty.

    Raises
    ------
    UsageError
        If there is something in it.
    """

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime, entry.mode = 0, 0o444
        return entry

    # alike files beside each other: samples of one rank, markers, programs
    files = [p for part in (CALIBRATION, FIDELITY) for p in (directory / part).rglob("*") if p.is_file()]
    files.sort(key=lambda p: (p.suffix, p.name, p.relative_to(directory).as_posix()))
    with tarfile.open(new_directory(bundle) / ARCHIVE, "w:xz", preset=9) as tar:
        for path in files:
            tar.add(path, path.relative_to(directory).as_posix(), filter=plain)
    seal(bundle)


def unpack(archive: Path, directory: Path) -> None:
    """Unpack an archive into a new directory.

    Raises
    ------
    FormatError
        If it is no such archive, is damaged, or holds anything but plain files in their place.
    """
    place = new_directory(directory)
    total = 0
    try:
        with open_regular(archive) as f, tarfile.open(fileobj=f, mode="r:xz") as tar:
            for count, entry in enumerate(tar):
                total += entry.size
                if count >= _MOST_FILES or total > _MOST_BYTES:
                    raise FormatError("holds more than evidence of this kind has", file=str(archive), remedy="give the recorded archive")
                if not entry.isfile():
                    raise FormatError(f"{entry.name!r} is no plain file", file=str(archive), remedy="give the recorded archive")
                tar.extract(entry, place, filter="data")
                (place / entry.name).chmod(0o444)
    except (tarfile.TarError, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"cannot be unpacked: {error}", file=str(archive), remedy="it is damaged: take a fresh copy") from None


def bundle_problems(path: Path) -> list[str]:
    """Return what differs in a directory of `pack` from what it was; nothing for other paths, whose seals are further inside."""
    return verify_seal(path) if _is_bundle(path) else []


def _is_bundle(path: Path) -> bool:
    return path.is_dir() and not (path / FIDELITY).is_dir()


def unpacked(path: Path) -> Path:
    """Return a directory with the evidence: the path itself, or a temporary directory with what its archive holds.

    Raises
    ------
    FormatError
        If there is neither.
    """
    if path.is_dir() and not _is_bundle(path):
        return path
    archive = path / ARCHIVE if path.is_dir() else path
    if not archive.is_file():
        raise FormatError("does not exist", file=str(archive), remedy="give a directory with both campaigns, or what was packed of them")
    place = Path(tempfile.mkdtemp(prefix="commcanary-fidelity-"))
    atexit.register(_forget, place)
    unpack(archive, place)
    return place


def _forget(place: Path) -> None:
    for folder, _, _ in os.walk(place):
        os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(place, ignore_errors=True)
