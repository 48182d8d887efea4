"""Import MPI traces in the text form of liballprof (PMPI): one file per process, every call with its times.

Messages are counted once though both ends write them; a receive has the size of its send, not of its buffer. Collectives convert to B as
everywhere. A job whose MPI layer only starts it and holds barriers gives records without bytes.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers._text import read_source
from commcanary_lab.importers.mpi_comms import memberships
from commcanary_lab.importers.mpi_lines import RankFile, parse
from commcanary_lab.importers.mpi_messages import level, match
from commcanary_lab.importers.mpi_records import RankReader
from commcanary_lab.importers.rank_files import asked_rank
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import Trace

__all__ = ["FORMAT", "read", "recognise"]

FORMAT = "mpi_text"

_HEADER = re.compile(rb"\A\s*# (?:collprof [\d.]+ output file|htor's PMPI Tracer)")
_FIRST = re.compile(rb"\A(?:\s*#[^\n]*\n|\s*\n)*\s*MPI_[A-Z]\w*:(?:-|\d+(?:\.\d+)?):")
_NUMBER = re.compile(r"(\d{1,9})(?!.*\d)")


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is such a trace.

    Examples
    --------
    >>> recognise(b"# collprof 0.9 output file\\n"), recognise(b"MPI_Init:-:1:2:3.0\\n"), recognise(b"MPI_Init failed\\n")
    (True, True, False)
    """
    return _HEADER.match(head) is not None or _FIRST.match(head) is not None


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the traces of a job, one file per process, and merge them.

    Parameters
    ----------
    paths : sequence of path-like
        The files, any order.
    ranks : mapping of str to int, optional
        Rank of each file that does not say its own, by its path as given or its file name.
    clock_offsets_ns, align_ends
        Clock calibration, see `trace.merge.merge_captures`.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in time order.

    Raises
    ------
    FormatError
        If a line is malformed, or a file does not say its rank.
    MergeError
        If the files contradict each other, or show different windows of the job.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one trace")
    limits.check_files(len(paths), str(paths[0]))
    files = [_load(path, limits) for path in paths]
    limits.check_events(sum(len(f.calls) for f in files), "the files together")
    by_rank, size, warnings = _ranks(files, paths, ranks or {})
    limits.check_members(size * len(files), "the files together")
    groups = memberships({rank: f.calls for rank, f in by_rank.items()}, size)
    empty = _empty_peers(files)
    readers = {rank: RankReader(rank, f, groups[rank], empty) for rank, f in sorted(by_rank.items())}
    for reader in readers.values():
        reader.read()
    messages = {rank: reader.messages for rank, reader in readers.items()}
    guessed, dropped = match(messages)
    leveled = level(messages)
    captures = [reader.capture(size) for reader in readers.values()]
    notes = _notes(guessed, dropped, leveled, any(m.posted for own in messages.values() for m in own if not m.dropped), files)
    trace = merge_captures(captures, source_format=FORMAT, clock_offsets_ns=clock_offsets_ns, align_ends=align_ends)
    return replace(trace.with_notes(*notes), warnings=(*trace.warnings, *warnings))


def _load(path: str | os.PathLike[str], limits: Limits) -> RankFile:
    source = read_source(path, limits)
    if b"\0" in source.data[:4096]:
        raise FormatError("not text", file=str(path), remedy="give the trace that liballprof wrote")
    text = source.data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    out = parse(text.rpartition("\n")[0] + "\n" if source.cut and "\n" in text else text, str(path))
    if not out.lines or not (out.calls or out.finalized or "MPI_" in text):
        raise FormatError("no MPI call in it", file=str(path), remedy="give the trace that liballprof wrote")
    out.warnings += source.warnings
    if not out.finalized:
        out.warnings.append(f"{Path(path).name}: no MPI_Finalize: the process ended early, or the file is cut")
    if out.rounded:
        out.warnings.append(f"{Path(path).name}: {out.rounded} times are not whole nanoseconds and were rounded by less than one")
    return out


def _ranks(
    files: Sequence[RankFile], paths: Sequence[str | os.PathLike[str]], given: Mapping[str, int]
) -> tuple[dict[int, RankFile], int, list[str]]:
    """Global rank of each file, and the size of the job."""
    stated = []
    for f in files:
        comms = [c.comm for c in f.calls if c.comm is not None]
        widest = max((c.size for c in comms), default=0)
        stated.append(next(((c.rank, c.size) for c in comms if c.size == widest), None))
    size = max((s[1] for s in stated if s is not None), default=0)
    claims: list[int | None] = []
    for path, s in zip(paths, stated, strict=True):
        asked = asked_rank(path, given)
        claims.append(asked if asked is not None else s[0] if s is not None and s[1] == size else None)
    warnings: list[str] = []
    if len(set(claims)) < len(claims) or None in claims:
        claims = list(_from_names(files, claims, size, bool(given), warnings))
    known = [c for c in claims if c is not None]
    return dict(zip(known, files, strict=True)), max(size, max(known) + 1), warnings


def _from_names(files: Sequence[RankFile], claims: Sequence[int | None], size: int, given: bool, warnings: list[str]) -> list[int]:
    """Ranks from the names of the files, where these are 0, 1, ... and the content is no help; a refusal otherwise."""
    numbers = [int(m.group(1)) if (m := _NUMBER.search(Path(f.file).stem)) is not None else -1 for f in files]
    if not given and sorted(numbers) == list(range(len(files))) and len(files) == (size or len(files)):
        says = "none of the files says its rank" if set(claims) == {None} else "the files do not say distinct ranks"
        warnings.append(f"{says}: taken from the numbers in their names")
        return numbers
    at = next(i for i, c in enumerate(claims) if c is None or claims.index(c) < i)
    first = files[claims.index(claims[at])].file
    what = "does not say its rank" if claims[at] is None else f"says that it is rank {claims[at]}, as {first} does"
    raise FormatError(what, file=files[at].file, remedy=f"give the rank by hand: ranks={{{Path(files[at].file).name!r}: N}}")


def _empty_peers(files: Sequence[RankFile]) -> frozenset[int]:
    """What stands for "no process" as a peer: any negative destination. A negative source that is none of these is "any source"."""
    return frozenset(n for f in files for c in f.calls if (n := c.numbers.get("dest", 0)) < 0)


def _notes(guessed: int, dropped: int, leveled: bool, posted: bool, files: Sequence[RankFile]) -> list[str]:
    out = []
    if guessed:
        out.append(f"{guessed} receives from any source were matched to sends by time; who sends what does not depend on it")
    if dropped:
        out.append(f"{dropped} receives from any source or of any tag match no send of the files and are not counted")
    if leveled:
        out.append("some messages were timed at one end only (the other end did not wait for them alone): their time is left out")
    if posted:
        out.append("some sends are in files that are not here: the size of their receives is that of the buffer, which may be larger")
    differences = Counter(f.clock_difference_s for f in files if f.clock_difference_s)
    if differences:
        out.append("the tracer measured clock differences between processes; they are not applied (give them as clock offsets)")
    return out
