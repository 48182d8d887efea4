"""Evidence: a directory whose finished files are read-only and listed with their SHA-256."""

from __future__ import annotations

import os
from pathlib import Path

from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.files import read_file
from commcanary_lab.replay.source import sha256_of

__all__ = ["SUMS", "new_directory", "seal", "verify_seal"]

SUMS = "SHA256SUMS"


def new_directory(path: str | os.PathLike[str]) -> Path:
    """Make a directory for evidence.

    Raises
    ------
    UsageError
        If it holds anything: evidence is never overwritten.
    """
    directory = Path(path)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError("there is something already", file=str(directory), remedy="name a new directory; evidence is never overwritten")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _files(directory: Path) -> list[str]:
    found = []
    for folder, _, names in os.walk(directory):
        found += [str((Path(folder) / n).relative_to(directory)) for n in names]
    return sorted(f for f in found if f != SUMS)


def seal(directory: Path) -> None:
    """List all files of a directory in `SUMS`, as sha256sum does, and make them read-only."""
    names = _files(directory)
    for name in names:
        os.chmod(directory / name, 0o444)
    write_atomic(directory / SUMS, "".join(f"{sha256_of(directory / n)}  {n}\n" for n in names).encode())
    os.chmod(directory / SUMS, 0o444)


def verify_seal(directory: Path) -> list[str]:
    """Return what differs from the list: changed, missing and added files; nothing where all is as it was sealed.

    Examples
    --------
    >>> import tempfile
    >>> d = Path(tempfile.mkdtemp())
    >>> _ = (d / "a").write_text("1"), (d / "b").write_text("2")
    >>> seal(d)
    >>> _ = (d / "a").chmod(0o644), (d / "a").write_text("3"), (d / "c").write_text("4"), (d / "b").unlink()
    >>> verify_seal(d)
    ['a: changed', 'b: missing', 'c: added']
    """
    try:
        # only a line feed ends a line: other ends would be changes that nobody sees
        *lines, rest = read_file(directory / SUMS).decode("utf-8").split("\n")
    except InputError as error:
        return [f"{SUMS}: {error.problems[0].what}"]
    except UnicodeDecodeError as error:
        return [f"{SUMS}: cannot be read: {error}"]
    listed: dict[str, str] = {}
    problems = [f"{SUMS}: the last line is damaged"] if rest else []
    for number, line in enumerate(lines, 1):
        digest, separator, name = line.partition("  ")
        if len(digest) != 64 or not separator or name in listed:
            problems.append(f"{SUMS}: line {number} is damaged")
        listed[name] = digest
    present = set(_files(directory))
    for name in sorted({*listed, *present}):
        if name not in present:
            problems.append(f"{name}: missing")
        elif name not in listed:
            problems.append(f"{name}: added")
        elif (directory / name).is_symlink() or not (directory / name).is_file() or sha256_of(directory / name) != listed[name]:
            problems.append(f"{name}: changed")
    return problems
