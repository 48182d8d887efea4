"""Import PyTorch profiler (Kineto) traces.

Each collective is counted once: the CPU record ``record_param_comms`` says what it is, the NCCL kernel that it launched says when it ran
and for how long. What the trace does not say is not invented: no reduction operator, no broadcast root, no members beyond what is
stated, no skew between ranks, no overlap where the device timeline is incomplete. A collective without size or members is kept with its
time as an unsized row.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from commcanary_lab.errors import FormatError, Problem, UsageError
from commcanary_lab.importers.kineto_args import Unreadable
from commcanary_lab.importers.kineto_events import NO_METADATA, RankEvents, events_of
from commcanary_lab.importers.kineto_group import GroupDirectory
from commcanary_lab.importers.kineto_link import Linked, link
from commcanary_lab.importers.kineto_overlap import ComputeOverlap, TimeShares, time_shares_of
from commcanary_lab.importers.kineto_read import Document, read_document
from commcanary_lab.importers.kineto_scan import Scan, compute_intervals, launches, scan
from commcanary_lab.importers.kineto_time import TimeReader
from commcanary_lab.importers.layout_members import LaidOut, LayoutGroups
from commcanary_lab.importers.rank_files import asked_rank
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import ImportCoverage, Trace
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["FORMAT", "TimeShares", "read", "read_rank", "recognise", "time_shares"]

FORMAT = "kineto"

SINGLE_RANK = "observational, single rank: no skew, no exposed latency"

_OWN_SCHEMA = re.compile(rb'"schema"\s*:\s*"commcanary')
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_HEADER = re.compile(rb'"(?:distributedInfo|deviceProperties|baseTimeNanoseconds)"\s*:')
#: The first event has a phase and a name or a place, its arguments perhaps before them.
_EVENT_LIST = re.compile(rb'\[\s*\{(?=.{0,8192}?"ph"\s*:\s*"\w")(?=.{0,8192}?"(?:ts|pid|name)"\s*:)', re.DOTALL)
_MAX_WARNED = 20


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of the decompressed file whether it is a Chrome trace as the PyTorch profiler writes it.

    Parameters
    ----------
    head : bytes
        The first 64 KiB or so.

    Examples
    --------
    >>> recognise(b'{"schemaVersion": 1, "traceEvents": ['), recognise(b'[{"name": "aten::mul", "ph": "X"'), recognise(b'[{"comms": "init"')
    (True, True, False)
    >>> recognise(b'{"schema": "commcanary.trace.v1", "events": [')
    False
    """
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head[: len(head) & ~1].decode("utf-16", "replace").encode()
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"["):
        return _EVENT_LIST.match(head) is not None
    if not head.startswith(b"{") or _OWN_SCHEMA.search(head):
        return False
    # a long pg_config can push traceEvents beyond the head
    return _EVENTS.search(head) is not None or (_HEADER.search(head) is not None and b'"schemaVersion"' in head)


def read_rank(
    path: str | os.PathLike[str],
    *,
    rank: int | None = None,
    layout: Layout | None = None,
    salvage: bool = True,
    limits: Limits = DEFAULT,
) -> RankCapture:
    """Read the trace of one rank.

    Parameters
    ----------
    path : path-like
        The file, gzip or not.
    rank : int, optional
        The rank that wrote it, where ``distributedInfo.rank`` does not say so (or says it wrongly).
    layout : Layout, optional
        Members of groups that the trace does not say.
    salvage : bool
        Repair what profilers are known to write wrongly, with a warning each; otherwise refuse such files.
    limits : Limits
        Resource limits.

    Returns
    -------
    RankCapture
        Records and unsized rows. The clock is ``"unix"`` where the times have a known origin.

    Raises
    ------
    FormatError
        If the file is not such a trace, is damaged beyond repair (with the line), or does not say its rank.
    """
    document = read_document(path, salvage=salvage, limits=limits)
    return _capture(document, _rank_of(document, rank), (), _laid(layout), limits)


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the traces of a job, one file per rank, and merge them.

    Parameters
    ----------
    paths : sequence of path-like
        The files, any order.
    ranks : mapping of str to int, optional
        Rank of each file that does not say its own, by its path as given or its file name.
    clock_offsets_ns, align_ends
        Clock calibration, see `trace.merge.merge_captures`.
    layout : Layout, optional
        Members of groups that the traces do not say.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in time order; a single file without a rank is taken as rank 0, with a warning.

    Raises
    ------
    FormatError
        If a file cannot be read, or one of several files does not say its rank.
    MergeError
        If two files claim one rank, or contradict each other.
    InputError
        If the layout contradicts what a trace says.
    RefusedError
        If several groups of the layout fit one of the trace.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one trace")
    limits.check_files(len(paths), str(paths[0]))
    laid = _laid(layout)
    captures = []
    for path in paths:
        document = read_document(path, limits=limits)
        rank = asked_rank(path, ranks)
        if rank is None and len(paths) == 1 and _stated_rank(document) is None:
            captures.append(_taken_as_rank_0(document, laid, limits))
        else:
            captures.append(_capture(document, _rank_of(document, rank), (), laid, limits))
    if len(captures) == 1 and captures[0].world_size != 1:
        captures = [replace(captures[0], notes=(SINGLE_RANK, *captures[0].notes))]
    return merge_captures(_level_messages(captures), source_format=FORMAT, clock_offsets_ns=clock_offsets_ns, align_ends=align_ends)


def time_shares(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> TimeShares:
    """Return how long a rank's devices communicate, compute, and do both at once.

    Communication kernels are known by their names, old and new; annotations over the same span count nothing, and neither do copies.

    Parameters
    ----------
    path : path-like
        The trace of one rank.
    limits : Limits
        Resource limits.
    """
    document = read_document(path, limits=limits)
    times = TimeReader(document.base_ns)
    found = scan(document, times)
    compute, broken = compute_intervals(found, times)
    return time_shares_of(found.kernels, compute, broken)


def _stated_rank(document: Document) -> int | None:
    value = document.distributed_info.get("rank")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _rank_of(document: Document, given: int | None) -> int:
    rank = _stated_rank(document) if given is None else given
    if rank is None:
        stated = document.distributed_info.get("rank")
        what = "distributedInfo.rank is missing" if stated is None else f"distributedInfo.rank is {str(stated)[:40]!r}, not a rank"
        raise FormatError(
            Problem(
                f"{what}: the file does not say which rank wrote it",
                file=document.path,
                remedy=f"give the rank by hand: rank=N for one file, ranks={{{document.name!r}: N}} for several",
            )
        )
    if rank < 0:
        raise UsageError(f"rank {rank} is negative", file=document.path)
    return rank


def _taken_as_rank_0(document: Document, laid: LayoutGroups | None, limits: Limits) -> RankCapture:
    """Read the only file as that of rank 0, unless its groups show that it is another rank's."""
    warning = f"{document.name}: distributedInfo.rank is missing: taken as rank 0 (give the rank of the file if it is another)"
    capture = _capture(document, 0, (warning,), laid, limits)
    if not capture.records and any(row.reason.endswith("rank 0 is not in its own group") for row in capture.unsized):
        raise FormatError(
            Problem(
                "distributedInfo.rank is missing, and the groups in the file do not contain rank 0",
                file=document.path,
                remedy=f"give the rank by hand: rank=N, or ranks={{{document.name!r}: N}}",
            )
        )
    return capture


def _world_size(document: Document, rank: int, warnings: list[str]) -> int | None:
    value = document.distributed_info.get("world_size")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if type(value) is not int or not 0 < value < 1 << 31:
        return None
    if rank >= value:
        warnings.append(f"{document.name}: rank {rank} is outside distributedInfo.world_size {value}; the world size is not used")
        return None
    return value


def _laid(layout: Layout | None) -> LayoutGroups | None:
    return None if layout is None else LayoutGroups(layout)


def _capture(document: Document, rank: int, assumed: tuple[str, ...], laid: LayoutGroups | None, limits: Limits) -> RankCapture:
    warnings = [*document.warnings, *assumed]
    stated = _stated_rank(document)
    if stated is not None and stated != rank:
        warnings.append(f"{document.name}: distributedInfo.rank is {stated}; read as rank {rank}, as asked")
    world_size = _world_size(document, rank, warnings)
    times = TimeReader(document.base_ns)
    found = scan(document, times)
    if laid is not None:
        laid.check_world(world_size, document.path)
    laid_out = None if laid is None else LaidOut(laid, rank, document.path)
    groups = GroupDirectory(document.distributed_info, rank, world_size, laid_out=laid_out)
    linked = link(found.records, found.annotations, found.kernels, launches(found, times) if found.kernels else None, rank)
    limits.check_events(len(linked.marks) + len(linked.loose), document.path)
    overlap, why_not = _overlap(document, found, linked, times)
    events = events_of(linked, groups, rank, overlap, bool(found.kernels or found.compute), limits.max_text_bytes)
    notes = [*events.notes, *_file_notes(document, found, events, why_not)]
    if times.float64_grid:
        notes.append("absolute times went through float64: their resolution is 250 ns")
    warnings += _shortened(
        document.name, [*found.problems, *_unreadable(document, linked), *(f"{document.name}: {w}" for w in groups.warnings)]
    )
    if times.rounded:
        warnings.append(
            f"{document.name}: {times.rounded} times are not whole nanoseconds; rounded, "
            f"largest change {float(times.largest_change_ns):.3g} ns"
        )
    # times without a known origin compare with those of no other file
    known_origin = document.base_ns is not None or not times.relative
    return RankCapture(
        rank=rank,
        records=events.records,
        file=document.path,
        clock="unix" if known_origin else f"profiler of rank {rank}",
        world_size=world_size,
        unsized=tuple(events.unsized),
        notes=tuple(notes),
        warnings=tuple(warnings),
        coverage=ImportCoverage(events.read, len(events.records), dict(sorted(events.skipped.items())), (rank,), (document.name,)),
    )


def _overlap(document: Document, found: Scan, linked: Linked, times: TimeReader) -> tuple[ComputeOverlap | None, str | None]:
    """The compute timeline where a collective needs it, or why overlap stays unknown."""
    described = any(m.kernels and (m.args or any(k.args for k in m.kernels)) for m in linked.marks) or any(k.args for k in linked.loose)
    if not described:
        return None, None
    if document.cut:
        return None, "overlap is unknown: the file ends early"
    compute, broken = compute_intervals(found, times)
    if broken:
        return None, f"overlap is unknown: {broken} compute kernels have no usable time"
    return ComputeOverlap(compute), None


def _unreadable(document: Document, linked: Linked) -> list[str]:
    """Warnings about kernels whose own metadata is needed and cannot be used."""
    found = ((k, k.args) for k in linked.loose)
    return [
        f"{document.name}: event {k.index}: {k.name[:80]}: metadata not readable: {args.why}; its size is unknown"
        for k, args in found
        if isinstance(args, Unreadable)
    ]


def _file_notes(document: Document, found: Scan, events: RankEvents, why_not: str | None) -> list[str]:
    notes = []
    if why_not and events.records:
        notes.append(why_not)
    if not events.records:
        notes.append(
            f"{NO_METADATA} in the trace"
            if not events.unsized
            else "no NCCL metadata in the trace: its collectives and communication kernels cannot be sized"
        )
    return notes


def _shortened(name: str, problems: list[str]) -> list[str]:
    if len(problems) <= _MAX_WARNED:
        return problems
    return [*problems[:_MAX_WARNED], f"{name}: and {len(problems) - _MAX_WARNED} more such problems"]


def _level_messages(captures: list[RankCapture]) -> list[RankCapture]:
    """Drop the time of a message that only one of its ends has.

    The messages of a batch share one kernel, and which of them keeps its time differs between the two ends of a message.
    """
    if len(captures) == 1:
        return captures
    ends: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for c, capture in enumerate(captures):
        counts: dict[tuple[object, ...], int] = defaultdict(int)
        for i, r in enumerate(capture.records):
            if r.sender is not None:
                direction = (r.members, r.group, r.sender, r.receiver, r.tag)
                ends[(*direction, counts[direction])].append((c, i))
                counts[direction] += 1
    untimed: dict[int, set[int]] = defaultdict(set)
    for where in ends.values():
        if len({captures[c].records[i].duration_ns is None for c, i in where}) > 1:
            for c, i in where:
                untimed[c].add(i)
    if not untimed:
        return captures
    note = "some messages were timed at one end only (the other end ran them in a batch): their time is left out"
    return [
        replace(
            capture, notes=(*capture.notes, note), records=[_untimed(r) if i in untimed[c] else r for i, r in enumerate(capture.records)]
        )
        for c, capture in enumerate(captures)
    ]


def _untimed(record: Record) -> Record:
    return replace(record, duration_ns=None, overlap_ns=None)
