"""Read the shards that `capture.Recorder` writes: one JSON-lines file per rank (``commcanary_lab.shard.v1``)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from commcanary_lab.errors import FormatError, MergeError
from commcanary_lab.importers.shard_lines import FORMAT, Op, Pending, Shard, load, recognise
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.ops import ALL_TO_ALL_V, OPS, REDUCTION_OPS, canonical_dtype, canonical_reduction
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["FORMAT", "read", "read_rank", "recognise"]

#: (sender, receiver, tag, group name, members, number): one message, the same on both of its ends.
_Message: TypeAlias = tuple[int, int, int, str, tuple[int, ...], int]


def read_rank(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> RankCapture:
    """Read one rank's shard.

    Operations without a finish, failed ones and messages of a rank to itself are skipped and counted with their reason. A torn
    last line (the process was killed while writing) is a warning.

    Parameters
    ----------
    path : path-like
        The shard.
    limits : Limits
        Refuse larger files and more operations than these.

    Returns
    -------
    RankCapture

    Raises
    ------
    FormatError
        If the file is not a shard, or a line is malformed; names file and line.
    LimitError
        If a limit is exceeded.
    """
    return _capture(load(path, limits), {})


def read(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the shards of one job and merge them.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        Shards, or directories that hold ``rank-*.jsonl``.
    clock_offsets_ns : mapping of int to int, optional
        Nanoseconds to add to each rank's clock. Ranks of one host need none.
    align_ends : bool
        Estimate the offsets from matched ends.
    limits : Limits
        Refuse more than these.

    Returns
    -------
    Trace

    Raises
    ------
    FormatError
        If a file is not a shard or is malformed, or no shard is given.
    MergeError
        If the shards contradict each other.
    LimitError
        If a limit is exceeded.
    """
    files = _files(paths)
    limits.check_files(len(files), str(files[0]))
    shards = [load(path, limits) for path in files]
    limits.check_events(sum(len(s.ops) for s in shards), "the shards together")
    _same_job(shards)
    finished = {s.header.rank: _finished_messages(s) for s in shards}
    captures = _agree_on_exchanges([_capture(s, finished) for s in shards])
    trace = merge_captures(captures, source_format=FORMAT, clock_offsets_ns=clock_offsets_ns, align_ends=align_ends)
    missing = sorted(set(range(shards[0].header.world_size)) - {s.header.rank for s in shards})
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        warning = f"{len(missing)} of {shards[0].header.world_size} ranks have no shard here: {shown}"
        trace = replace(trace, warnings=(*trace.warnings, warning))
    return trace


def _files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files: list[Path] = []
    for item in map(Path, given):
        found = sorted(item.glob("rank-*.jsonl")) if item.is_dir() else [item]
        if not found:
            raise FormatError("the directory holds no rank-*.jsonl", file=str(item), remedy="name the directory that the recorder wrote to")
        files += found
    if not files:
        raise FormatError("no shard was given", remedy="name at least one shard or directory")
    return files


def _same_job(shards: list[Shard]) -> None:
    """Two jobs' shards in one call would merge into nonsense wherever their groups happen to agree."""
    first = shards[0]
    for s in shards[1:]:
        if s.header.world_size != first.header.world_size:
            raise MergeError(
                f"{first.file} is of a job of {first.header.world_size} ranks, this one of {s.header.world_size}",
                file=s.file,
                remedy="merge shards of one job only",
            )


# -- meaning ----------------------------------------------------------------------------------------------------------


def _capture(shard: Shard, finished: Mapping[int, frozenset[_Message]]) -> RankCapture:
    skipped: Counter[str] = Counter()
    unsized: list[UnsizedRow] = []
    records: list[Record] = []
    members = {i: tuple(sorted(g.ranks)) for i, g in shard.groups.items()}
    numbers: Counter[tuple[object, ...]] = Counter()
    for row in shard.ops:
        message = _message(row, shard, members, numbers)
        reason = _reason(row, shard, message, finished)
        if reason is not None:
            skipped[reason] += 1
        elif isinstance(row, Op) and row.size_bytes is None:
            skipped["size not readable"] += 1
            time_ns = 0 if row.device else (row.finish_ns or row.arrival_ns) - row.arrival_ns
            unsized.append(UnsizedRow(row.op, time_ns, "size not readable", shard.header.rank, row.arrival_ns))
        elif isinstance(row, Op):
            records.append(_record(row, shard, members[row.group]))
    used = [r for r in shard.ops if isinstance(r, Op)]
    return RankCapture(
        rank=shard.header.rank,
        records=records,
        file=shard.file,
        world_size=shard.header.world_size,
        # on a device the clock shows when the host issued the operation, which is no arrival at the collective
        clock=shard.header.clock if all(r.device is None for r in used) else f"issue:{shard.header.clock}",
        coverage=ImportCoverage(
            read=len(shard.ops),
            used=len(records),
            skipped=dict(sorted(skipped.items())),
            ranks=(shard.header.rank,),
            files=(os.path.basename(shard.file),),
        ),
        unsized=tuple(unsized),
        notes=_notes(shard, used),
        warnings=(*shard.warnings, *_outside(shard)),
    )


def _message(
    row: Op | Pending, shard: Shard, members: Mapping[int, tuple[int, ...]], numbers: Counter[tuple[object, ...]]
) -> _Message | None:
    """Identify a message by its number in its direction, which both ends count alike."""
    if row.sender is None or row.receiver is None:
        return None
    group = shard.groups[row.group]
    tag = 0 if group.backend == "nccl" else row.tag or 0  # NCCL has no tags
    key = (row.sender, row.receiver, tag, group.name, members[row.group])
    end = (*key, row.op)
    numbers[end] += 1
    return (*key, numbers[end] - 1)


def _finished_messages(shard: Shard) -> frozenset[_Message]:
    """The messages that this rank saw to their end."""
    members = {i: tuple(sorted(g.ranks)) for i, g in shard.groups.items()}
    numbers: Counter[tuple[object, ...]] = Counter()
    out = set()
    for row in shard.ops:
        message = _message(row, shard, members, numbers)
        if message is not None and isinstance(row, Op) and row.finish_ns is not None and row.error is None:
            out.add(message)
    return frozenset(out)


def _reason(row: Op | Pending, shard: Shard, message: _Message | None, finished: Mapping[int, frozenset[_Message]]) -> str | None:
    """Why a row does not become a record; None if it does."""
    if isinstance(row, Pending) or row.finish_ns is None:
        return "never waited for" if shard.end is not None else "unfinished when the process ended"
    if row.error is not None:
        return f"failed: {row.error}"
    if message is not None:
        other = message[1] if row.op == "send" else message[0]
        if message not in finished.get(other, {message}):
            return "the other end of the message did not finish"
    if row.op in ("send", "recv") and message is None:
        return "receive from any source whose sender is not known"
    if message is not None and row.sender == row.receiver:
        return "message of a rank to itself"
    return None


def _record(row: Op, shard: Shard, members: tuple[int, ...]) -> Record:
    group = shard.groups[row.group]
    is_message = row.op in ("send", "recv")
    op = "point_to_point" if is_message else row.op
    on_host = row.device is None
    assert row.size_bytes is not None  # checked by the caller
    assert row.finish_ns is not None
    if row.finish_ns < row.arrival_ns:
        what = f"operation {row.n} finishes {row.arrival_ns - row.finish_ns} ns before it arrives"
        raise FormatError(what, file=shard.file, field="finish_ns", remedy="the shard was changed; record again")
    reduction = canonical_reduction(row.reduction.replace("_", "")) if row.reduction is not None and op in REDUCTION_OPS else None
    record = Record(
        rank=shard.header.rank,
        op=op,
        size_bytes=row.size_bytes,
        members=members,
        group=group.name,
        custom_op=op not in OPS and op != ALL_TO_ALL_V,
        dtype=None if row.dtype is None else canonical_dtype(row.dtype),
        reduction=reduction,
        phase=row.phase,
        root=row.root,
        sender=row.sender,
        receiver=row.receiver,
        tag=str(row.tag) if row.tag and group.backend != "nccl" else None,
        sequence=None if is_message else row.seq,
        start_ns=row.arrival_ns,
        duration_ns=row.finish_ns - row.arrival_ns if on_host else None,
        overlap_ns=_overlap_ns(row) if on_host else None,
    )
    if row.op != ALL_TO_ALL_V:
        return record
    order = sorted(range(len(group.ranks)), key=group.ranks.__getitem__)
    sent, received = _in_order(row.sent_splits, order, shard, row), _in_order(row.received_splits, order, shard, row)
    return replace(record, sent_splits=sent, received_splits=received, sent_bytes=sum(sent), received_bytes=sum(received))


def _in_order(splits: list[int] | None, order: list[int], shard: Shard, row: Op) -> tuple[int, ...]:
    if splits is None or len(splits) != len(order):
        raise FormatError(
            f"operation {row.n} has {len(splits or ())} splits in a group of {len(order)}",
            file=shard.file,
            field="splits",
            remedy="record again",
        )
    return tuple(splits[i] for i in order)


def _overlap_ns(row: Op) -> int:
    """Time in which the host was free between issuing and waiting; none when the call itself waited."""
    if row.is_async is False or row.wait_ns is None or row.issued_ns is None:
        return 0
    return max(0, row.wait_ns - row.issued_ns)


def _agree_on_exchanges(captures: list[RankCapture]) -> list[RankCapture]:
    """An all-to-all that is uneven on one rank is uneven: ranks whose own row happens to be even state it as splits."""
    uneven = {(r.members, r.group, r.sequence) for c in captures for r in c.records if r.op == ALL_TO_ALL_V}
    if not uneven:
        return captures
    out = []
    for c in captures:
        records = [_as_splits(r) if r.op == "all_to_all" and (r.members, r.group, r.sequence) in uneven else r for r in c.records]
        out.append(replace(c, records=records))
    return out


def _as_splits(record: Record) -> Record:
    k = len(record.members)
    row = (record.size_bytes // k,) * k
    total = record.size_bytes
    return replace(record, op=ALL_TO_ALL_V, sent_splits=row, received_splits=row, sent_bytes=total, received_bytes=total)


def _notes(shard: Shard, ops: list[Op]) -> tuple[str, ...]:
    h = shard.header
    backends = sorted({g.backend for g in shard.groups.values()})
    version = h.versions.get("torch", "of unknown version")
    notes = [*h.notes, f"recorded in the job: torch {version}, backend {', '.join(backends) or 'unknown'}, world size {h.world_size}"]
    if any(r.device is not None for r in ops):
        notes.append("operations on a device: times are when the host issued them; their duration, skew and overlap are unknown")
    if any(r.device is None and _overlap_ns(r) for r in ops):
        notes.append("asynchronous operations: overlap is the host time between issue and wait; the measured time ends with the wait")
    return tuple(notes)


def _outside(shard: Shard) -> list[str]:
    """Warnings from the last line: what ran without passing the recorder."""
    if shard.end is None:
        return []
    name = os.path.basename(shard.file)
    out = [
        f"{name}: {n} collectives of group {group} ran outside the recorder (issued in C++, such as gradient buckets or functional "
        "collectives) and are missing here"
        for group, n in sorted(shard.end.outside.items())
    ]
    return out + [f"{name}: {n} x {what}" for what, n in sorted(shard.end.problems.items())]
