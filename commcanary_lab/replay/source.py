"""The program file of a replay's directory: written when the replay is prepared, read by every rank."""

from __future__ import annotations

import hashlib
from pathlib import Path

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import FormatError
from commcanary_lab.files import open_regular
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.spec import ReplaySpec
from commcanary_lab.trace.model import Trace

__all__ = ["open_program", "open_source", "sha256_of", "write_source"]

_CANARY, _TRACE = "canary.json", "trace.parquet"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_source(source: Canary | Trace, directory: Path) -> tuple[str, str]:
    """Write what is replayed; return the name of the file and its SHA-256."""
    if isinstance(source, Canary):
        from commcanary_lab.canonical import write_atomic

        write_atomic(directory / _CANARY, source.canonical)
        return _CANARY, sha256_of(directory / _CANARY)
    from commcanary_lab.trace.parquet import write_parquet

    write_parquet(source, directory / _TRACE)
    return _TRACE, sha256_of(directory / _TRACE)


def open_source(directory: Path, spec: ReplaySpec) -> Canary | Trace:
    """Read what is replayed.

    Raises
    ------
    FormatError
        If the file is not the one that was written.
    """
    if spec.program not in (_CANARY, _TRACE):
        what = f"names a program {spec.program!r}"
        raise FormatError(what, file=str(directory / "run.json"), field="program", remedy=f"it is {_CANARY} or {_TRACE} in every replay")
    path = directory / spec.program
    if sha256_of(path) != spec.program_sha256:
        what = "the program was changed after the replay was prepared"
        raise FormatError(what, file=str(path), field="program_sha256", remedy="prepare a new replay")
    if spec.program == _CANARY:
        from commcanary_lab.canary.read import read_canary

        return read_canary(path)
    from commcanary_lab.trace.parquet import read_parquet

    return read_parquet(path)


def open_program(directory: Path, spec: ReplaySpec) -> Program:
    """Read what is replayed, as a program for the ranks of the replay."""
    return Program.of(open_source(directory, spec), spec.ranks, skip_unsupported=spec.skip_unsupported)
