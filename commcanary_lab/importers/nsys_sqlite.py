"""Import NVIDIA Nsight Systems reports exported to SQLite: NCCL kernels with their times, and bytes where NCCL's payloads were exported.

Kernels say when communication ran, never how much. Message sizes, communicators and peers are in the payloads of NCCL's NVTX ranges, which
``nsys export`` leaves out unless it is told ``--include-blobs=true``; without them every kernel is an unsized row.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers.comm_events import Refusal, Timed
from commcanary_lab.importers.kineto_scan import is_nccl
from commcanary_lab.importers.nsys_comms import Comms
from commcanary_lab.importers.nsys_db import MAGIC, Database, database
from commcanary_lab.importers.nsys_link import GROUP_END, GROUP_START, Kernel, Range, Timing, link
from commcanary_lab.importers.nsys_payload import Payload, Schemas
from commcanary_lab.importers.rank_rows import RankRows, level_durations
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.records import Record

__all__ = ["FORMAT", "Summary", "read", "recognise", "summary"]

FORMAT = "nsys_sqlite"

EXPORT = "export the report again with `nsys export --type=sqlite --include-blobs=true REPORT.nsys-rep`"
NOT_EXPORTED = "size unknown: NCCL's NVTX payloads were not exported"
NOT_TRACED = "size unknown: NCCL's NVTX ranges were not traced"
KERNEL_ALONE = "kernel without a call: nothing says what it moved"

#: Calls, the operation each is, and by what of the group's size the payload's message size has to be multiplied for B.
_CALLS = {
    "ncclAllReduce": ("all_reduce", False), "ncclBroadcast": ("broadcast", False), "ncclBcast": ("broadcast", False),
    "ncclReduce": ("reduce", False), "ncclAllGather": ("all_gather", True), "ncclReduceScatter": ("reduce_scatter", True),
    "ncclAlltoAll": ("all_to_all", True), "ncclAllToAll": ("all_to_all", True), "ncclGather": ("gather", True),
    "ncclScatter": ("scatter", True), "ncclSend": ("send", False), "ncclRecv": ("recv", False),
}  # fmt: skip
_CUSTOM = frozenset({"reduce", "gather", "scatter"})
_REDUCTIONS = ("sum", "product", "max", "min", "avg")
_MAX = 1 << 62


@dataclass(frozen=True)
class Summary:
    """NCCL in one report.

    Parameters
    ----------
    ranges : tuple of (str, int, int, int)
        NVTX ranges of NCCL: name, count, total nanoseconds, how many have their payload.
    kernels : tuple of (str, int, int, int)
        Kernels: name, count, total nanoseconds, devices.
    """

    ranges: tuple[tuple[str, int, int, int], ...]
    kernels: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class _Report:
    path: str
    name: str
    ranges: list[Range]
    kernels: list[Kernel]
    payloads: int
    unreadable: int


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is an SQLite database; `read` refuses those that nsys did not write.

    Examples
    --------
    >>> recognise(b"SQLite format 3\\0"), recognise(b"SQLite")
    (True, False)
    """
    return head.startswith(MAGIC)


def summary(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> Summary:
    """Return counts and times of NCCL's ranges and kernels.

    Parameters
    ----------
    path : path-like
        The exported report.
    limits : Limits
        Resource limits.
    """
    report = _load(path, limits)
    ranges: dict[str, list[Range]] = defaultdict(list)
    for r in report.ranges:
        ranges[r.name].append(r)
    kernels: dict[str, list[Kernel]] = defaultdict(list)
    for k in report.kernels:
        kernels[k.name].append(k)
    return Summary(
        tuple((n, len(v), sum(r.end_ns - r.start_ns for r in v), sum(r.payload is not None for r in v)) for n, v in sorted(ranges.items())),
        tuple((n, len(v), sum(k.end_ns - k.start_ns for k in v), len({k.device for k in v})) for n, v in sorted(kernels.items())),
    )


def read(paths: Sequence[str | os.PathLike[str]], *, layout: Layout | None = None, limits: Limits = DEFAULT) -> Trace:
    """Read the exported reports of a job.

    Parameters
    ----------
    paths : sequence of path-like
        The files; one holds all the processes that nsys watched.
    layout : Layout, optional
        The groups of the job, where no communicator of the reports has all processes.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events where payloads say what moved; NCCL kernels as unsized rows otherwise.

    Raises
    ------
    FormatError
        If a file is no export of nsys, or is damaged.
    MergeError
        If the files contradict each other.
    RefusedError
        If more than one assignment of communicators to the groups of a layout fits; lists them.
    InputError
        If none fits.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one report")
    limits.check_files(len(paths), str(paths[0]))
    reports = [_load(path, limits) for path in paths]
    limits.check_events(sum(len(r.ranges) + len(r.kernels) for r in reports), "the files together")
    payloads = [(f, r.process, r.payload) for f, report in enumerate(reports) for r in report.ranges if r.payload is not None]
    comms = Comms(payloads, layout)
    rows: dict[int | None, RankRows] = {}
    for f, report in enumerate(reports):
        _convert(f, report, comms, rows)
    names = ", ".join(r.name for r in reports)
    captures = [r.capture(names, "nsys session") for rank, r in sorted((k, v) for k, v in rows.items() if k is not None)]
    captures = [replace(c, coverage=replace(c.coverage, files=())) for c in captures]
    trace = merge_captures(level_durations(captures), source_format=FORMAT)
    return _with_rest(trace, rows.get(None), reports, comms)


def _with_rest(trace: Trace, rest: RankRows | None, reports: Sequence[_Report], comms: Comms) -> Trace:
    """Add what belongs to no known rank, and what was exported at all."""
    extra = None if rest is None else rest.capture("", "")
    coverage = trace.coverage if extra is None else trace.coverage + replace(extra.coverage, ranks=(), files=())
    coverage = ImportCoverage(coverage.read, coverage.used, dict(sorted(coverage.skipped.items())), coverage.ranks,
                              tuple(r.name for r in reports))  # fmt: skip
    unsized = (*trace.unsized, *(() if extra is None else (replace(u, rank=None) for u in extra.unsized)))
    warnings = [*comms.warnings, *(() if extra is None else extra.warnings)]
    for r in reports:
        if r.kernels and not r.payloads:
            what = "no message sizes and communicators" if r.ranges else "no NVTX ranges of NCCL (trace with `-t cuda,nvtx`), so no sizes"
            warnings.append(f"{r.name}: {what} in the export: {len(r.kernels)} NCCL kernels have times but no bytes; {EXPORT}")
        if r.unreadable:
            warnings.append(f"{r.name}: {r.unreadable} NVTX payloads of NCCL are not readable; their calls have no size")
        if not r.kernels and not r.ranges:
            warnings.append(f"{r.name}: no NCCL in the report")
    return replace(trace, coverage=coverage, unsized=unsized, warnings=(*trace.warnings, *warnings))


# -- reading ----------------------------------------------------------------------------------------------------------


def _load(path: str | os.PathLike[str], limits: Limits) -> _Report:
    with database(path, limits) as db:
        has_kernels = db.has("CUPTI_ACTIVITY_KIND_KERNEL", "start", "end", "shortName")
        has_ranges = db.has("NVTX_EVENTS", "start", "end", "text")
        if not db.has("StringIds", "id", "value") or not (has_kernels or has_ranges or db.has("META_DATA_EXPORT")):
            remedy = "give the .sqlite file that `nsys export --type=sqlite` wrote"
            raise FormatError("an SQLite database, but not an export of nsys", file=str(path), remedy=remedy)
        if not (has_kernels or has_ranges):
            remedy = "profile with `nsys profile -t cuda,nvtx` and export again"
            raise FormatError("the report has neither CUDA kernels nor NVTX ranges", file=str(path), remedy=remedy)
        texts = db.texts("%nccl%") | db.texts("%rccl%")
        kernels = _kernels(db, texts, limits) if has_kernels else []
        ranges, payloads, unreadable = _ranges(db, texts, limits) if has_ranges else ([], 0, 0)
    return _Report(str(path), os.path.basename(str(path)), ranges, kernels, payloads, unreadable)


def _kernels(db: Database, texts: dict[int, str], limits: Limits) -> list[Kernel]:
    names = {i: text for i, text in texts.items() if is_nccl(text)}
    found = []
    columns = ("start", "end", "deviceId", "globalPid", "correlationId", "shortName", "demangledName")
    for start, end, device, process, correlation, short, long in db.rows("CUPTI_ACTIVITY_KIND_KERNEL", columns):
        name = names.get(short) if type(short) is int else None  # type: ignore[call-overload]
        name = name or (names.get(long) if type(long) is int else None)  # type: ignore[call-overload]
        if name is None or type(start) is not int or type(end) is not int or not 0 <= start <= end < _MAX:
            continue
        own = process if type(process) is int else None
        found.append((Kernel(name[:256], start, end, device if type(device) is int else -1, own), correlation))
        limits.check_events(len(found), db.path)
    return _launched(db, found)


def _launched(db: Database, found: list[tuple[Kernel, object]]) -> list[Kernel]:
    """Add when and where the host launched each kernel."""
    wanted = {(k.process, c) for k, c in found if type(c) is int}
    launches: dict[tuple[int | None, object], tuple[int, int]] = {}
    if wanted and db.has("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "globalTid", "correlationId"):
        for start, thread, correlation in db.rows("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "globalTid", "correlationId")):
            if type(start) is int and type(thread) is int and (thread & ~0xFFFFFF, correlation) in wanted:
                launches.setdefault((thread & ~0xFFFFFF, correlation), (start, thread))
    out = []
    for k, correlation in found:
        launch = launches.get((k.process, correlation))
        out.append(k if launch is None else replace(k, launch_ns=launch[0], thread=launch[1]))
    return sorted(out, key=lambda k: (k.start_ns, k.device))


def _ranges(db: Database, texts: dict[int, str], limits: Limits) -> tuple[list[Range], int, int]:
    """NCCL's ranges, how many payloads there are, and how many of them are not readable."""
    schemas = Schemas(db)
    ranges: list[Range] = []
    payloads = unreadable = 0
    columns = ("start", "end", "text", "textId", "globalTid", "domainId", "binaryData")
    for start, end, text, text_id, thread, domain, blob in db.rows("NVTX_EVENTS", columns):
        name = texts.get(text_id) if type(text_id) is int else None  # type: ignore[call-overload]
        if name is None and isinstance(text, bytes) and text.startswith(b"nccl"):
            name = text.decode("utf-8", "replace")
        if name is None or not name.startswith("nccl") or not name[4:].isalnum():
            continue
        if type(start) is not int or type(end) is not int or type(thread) is not int or not 0 <= start <= end < _MAX:
            continue
        payload = None
        if blob is not None:
            payloads += 1
            wanted = frozenset({"comm", "size_bytes", "peer"} if name in ("ncclSend", "ncclRecv") else {"comm", "size_bytes"})
            payload = schemas.decode(domain, blob, wanted if name in _CALLS else frozenset({"comm"}))
            unreadable += payload is None and name in _CALLS
        ranges.append(Range(name[:64], start, end, thread, payload))
        limits.check_events(len(ranges), db.path)
    return ranges, payloads, unreadable


# -- meaning ----------------------------------------------------------------------------------------------------------


def _convert(f: int, report: _Report, comms: Comms, rows: dict[int | None, RankRows]) -> None:
    """Add the calls and kernels of one report to the rows of their ranks; None is the rank of those that have no known one."""

    def of(process: int | None) -> RankRows:
        rank = None if process is None else comms.rank(f, process)
        return rows.setdefault(rank, RankRows(-1 if rank is None else rank, report.name))

    timings = link(report.ranges, report.kernels)
    explained: set[int] = set()
    for r, timing in zip(report.ranges, timings, strict=True):
        if r.name not in _CALLS:
            if r.name not in (GROUP_START, GROUP_END):
                of(r.process).skip("call that moves nothing")
            continue
        target = of(r.process)
        if r.payload is None:
            target.skip(f"{r.name}: range without its payload; its kernel is kept, unsized")
            continue
        explained.update(timing.kernels)
        timed = _timed(timing, report.kernels, r)
        found = _record(r, r.payload, comms, f, timed)
        if isinstance(found, Refusal):
            target.refuse(r.name, found, f"at {r.start_ns} ns", timed)
        else:
            target.keep(found)
    reason = KERNEL_ALONE if report.payloads else NOT_EXPORTED if report.ranges else NOT_TRACED
    for i, k in enumerate(report.kernels):
        if i not in explained:
            target = of(k.process)
            target.skipped[reason.partition(":")[0]] += 1
            rank = None if target.rank < 0 else target.rank
            target.unsized.append(UnsizedRow(k.name, k.end_ns - k.start_ns, reason, rank, k.start_ns))


def _timed(timing: Timing, kernels: Sequence[Kernel], r: Range) -> Timed:
    """Time on the device; the host's start where nothing ran."""
    own = [kernels[i] for i in timing.kernels]
    if not own:
        return Timed(r.start_ns)
    start = min(k.start_ns for k in own)
    return Timed(start, None if timing.shared else max(k.end_ns for k in own) - start)


def _record(r: Range, payload: Payload, comms: Comms, f: int, timed: Timed) -> Record | Refusal:
    op, per_rank = _CALLS[r.name]
    size = payload.size_bytes
    if size is None or not 0 <= size < _MAX:
        return Refusal("size out of range", "size out of range")
    found = comms.members(f, r.process, payload.comm)
    sent = None if op == "recv" else size
    if isinstance(found, str):
        return Refusal(found, "members unknown", sent)
    members, rank = found
    total = size * len(members) if per_rank else size
    if total >= _MAX:
        return Refusal("size out of range", "size out of range")
    common = Record(
        rank=rank, op=op, size_bytes=total, members=tuple(sorted(members)), group=f"{payload.comm or 0:#x}", custom_op=op in _CUSTOM,
        start_ns=timed.start_ns, duration_ns=timed.duration_ns,
    )  # fmt: skip
    if op in ("send", "recv"):
        if payload.peer is None or not 0 <= payload.peer < len(members):
            return Refusal(f"peer unknown: {payload.peer} in a group of {len(members)}", "peer unknown", sent)
        ends = (rank, members[payload.peer]) if op == "send" else (members[payload.peer], rank)
        if ends[0] == ends[1]:
            return Refusal("message of a rank to itself", "message of a rank to itself")
        return replace(common, op="point_to_point", sender=ends[0], receiver=ends[1])
    if op in ("all_reduce", "reduce_scatter") and payload.reduction is not None and 0 <= payload.reduction < len(_REDUCTIONS):
        return replace(common, reduction=_REDUCTIONS[payload.reduction])
    if op in ("broadcast", "reduce", "gather", "scatter") and payload.root is not None and 0 <= payload.root < len(members):
        return replace(common, root=members[payload.root])
    return common
