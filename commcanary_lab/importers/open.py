"""Open a trace of any known format, recognised by content: one file, several, or a directory with one file per rank."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commcanary_lab._collector import collector_paused
from commcanary_lab.errors import FormatError, InputError, Problem, UsageError, naming
from commcanary_lab.importers import FORMATS, Format, format_named, known_formats
from commcanary_lab.importers._text import PACKERS, peek, read_source, refuse_archive
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.invariants import check_imported
from commcanary_lab.trace.model import Trace

__all__ = ["open_trace", "recognise_file"]

_Path = str | os.PathLike[str]

_SHOWN = 10


def open_trace(
    paths: _Path | Sequence[_Path],
    *,
    format: str | None = None,
    ranks: Mapping[str, int] | None = None,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
    layout: Layout | None = None,
    round_ns: bool = False,
    check: bool = False,
    limits: Limits = DEFAULT,
) -> Trace:
    """Open a trace.

    Parameters
    ----------
    paths : path-like or sequence of path-like
        A file, several files that are the ranks of one job, or directories of them (searched in depth; hidden files are left out).
    format : str, optional
        Name of the format (`importers.FORMATS`); recognised by content by default.
    ranks : mapping of str to int, optional
        Rank of each file that does not say its own, by path or file name.
    clock_offsets_ns : mapping of int to int, optional
        Nanoseconds to add to each rank's clock, so that arrival skew is known.
    align_ends : bool
        Estimate these offsets from matched collective ends; recorded in the notes.
    layout : Layout, optional
        Which global ranks form which communicator, where a source does not say it; refused where the source says something else. Formats
        that always say it do not look at it.
    round_ns : bool
        JSON traces: accept times that are not whole nanoseconds; the largest change is recorded in the notes.
    check : bool
        JSON traces: run the complete checker in any case.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in time order.

    Raises
    ------
    FormatError
        If a file is of no known format, or the files are of different formats.
    InputError
        If a path does not exist or cannot be read, or the content is invalid.
    UsageError
        If an option does not apply to the format.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as f:
    ...     _ = f.write('{"events": [{"op": "broadcast", "bytes": 8, "ranks": 2, "root_rank": 0}], "format": "commcanary.trace.v1"}')
    ...     f.flush()
    ...     open_trace(f.name)
    Trace(1 events, 2 ranks, 1 groups, 0 unsized, from commcanary.trace.v1)
    """
    files = _files([paths] if isinstance(paths, (str, os.PathLike)) else list(paths), limits)
    chosen = format_named(format) if format is not None else _common_format(files, limits)
    if len(files) > 1 and not chosen.per_rank:
        raise FormatError(
            f"these are {len(files)} complete traces ({_listed(files)}), not the ranks of one job",
            remedy="open one at a time; `diff A B` and `compare A B` put two side by side",
        )
    given: dict[str, Any] = {"ranks": ranks, "clock_offsets_ns": clock_offsets_ns, "align_ends": align_ends or None}
    for name, value in given.items():
        if value is not None and name not in chosen.options:
            raise UsageError(f"{name} does not apply to {chosen.name}", file=str(files[0]), remedy=f"it applies to: {_takers(name)}")
    groups = layout if layout is not None and layout.kinds else None  # GPUs per node alone say nothing about members
    every = {**given, "layout": groups, "round_ns": round_ns, "check": check}
    options = {name: value for name, value in every.items() if name in chosen.options}
    if "align_ends" in options:
        options["align_ends"] = align_ends
    # contradictions between records are found where nobody knows any more which file they came from
    with collector_paused(), naming(str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"):
        trace = chosen.read(files, **options, limits=limits)
        if chosen.per_rank:  # complete traces are checked field by field
            check_imported(trace)
        return trace



def _takers(option: str) -> str:
    return ", ".join(f.name for f in FORMATS if option in f.options)


def _files(paths: Sequence[_Path], limits: Limits) -> list[Path]:
    if not paths:
        raise UsageError("no path is given", remedy="give a file, several files, or a directory")
    files: list[Path] = []
    for path in map(Path, paths):
        try:
            files += _walk(path) if path.is_dir() else [_file(path)]
        except OSError as e:
            raise InputError(f"cannot be read: {e.strerror}", file=str(e.filename or path), remedy="check its permissions") from None
        limits.check_files(len(files), str(path))
    return files


def _file(path: Path) -> Path:
    if not path.exists():
        raise InputError("does not exist", file=str(path), remedy="check the path")
    if not path.is_file():
        raise InputError("is neither a file nor a directory", file=str(path), remedy="write its content to a file")
    return path


def _walk(directory: Path) -> list[Path]:
    """Files of a directory and its subdirectories, in name order, without hidden ones."""

    def fail(error: OSError) -> None:
        raise error

    files: list[Path] = []
    for folder, subfolders, names in os.walk(directory, onerror=fail):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        found = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        files += [path for path in found if path.is_file()]
    if not files:
        raise InputError("the directory has no files", file=str(directory), remedy="give the directory that holds the ranks' files")
    return files


def recognise_file(path: _Path, limits: Limits = DEFAULT) -> Format:
    """Recognise the format of one file by its content.

    Parameters
    ----------
    path : path-like
        The file; gzip is looked into.
    limits : Limits
        Resource limits, for files whose beginning does not tell.

    Raises
    ------
    FormatError
        If no format recognises it; the message lists the known formats.
    """
    head = peek(path)
    refuse_archive(head, str(path))
    for candidate in FORMATS:
        if candidate.recognise(head):
            return candidate
    name, remedy = str(path), f"known formats: {known_formats()}"
    if not head:
        raise FormatError("the file is empty", file=name, remedy="record it again, or leave it out")
    if head.startswith(tuple(PACKERS)):
        read_source(path, limits)  # says which packer it is
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        raise FormatError("no known format recognises it", file=name, remedy=remedy)
    from commcanary_lab.importers.v1 import FORMAT, stated_format

    try:
        stated = stated_format(path, limits)
    except FormatError as e:
        why = e.problems[0]
        raise FormatError(f"no known format recognises it ({why.what})", file=name, line=why.line, remedy=remedy) from None
    if stated == FORMAT:
        return format_named(FORMAT)
    what = "is a JSON object without a known format" if stated is None else f"its format is {stated!r}, which is not a trace"
    raise FormatError(what, file=name, remedy=remedy)


def _common_format(files: Sequence[Path], limits: Limits) -> Format:
    """The one format of all files."""
    found: dict[str, list[Path]] = {}
    problems: list[Problem] = []
    for path in files:
        try:
            found.setdefault(recognise_file(path, limits).name, []).append(path)
        except FormatError as e:
            problems += e.problems
    if problems:
        raise FormatError(problems)
    if len(found) > 1:
        kinds = "; ".join(f"{name}: {_listed(paths)}" for name, paths in found.items())
        raise FormatError(f"the files are of different formats ({kinds})", remedy="open the files of one format at a time")
    (name,) = found
    return format_named(name)


def _listed(paths: Iterable[Path]) -> str:
    names = [p.name for p in paths]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
