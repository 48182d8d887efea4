"""Turn linked marks and kernels of one rank into records, unsized rows and their coverage."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from commcanary_lab.importers.kineto_args import CommArgs, Unreadable
from commcanary_lab.importers.kineto_group import GroupDirectory, Members, group_label
from commcanary_lab.importers.kineto_link import Linked
from commcanary_lab.importers.kineto_overlap import ComputeOverlap, busy_ns
from commcanary_lab.importers.kineto_scan import Kernel, Mark, is_nccl
from commcanary_lab.importers.kineto_size import Size, dtype_width, measure
from commcanary_lab.trace.model import UnsizedRow
from commcanary_lab.trace.records import Record

__all__ = ["NO_METADATA", "RankEvents", "events_of"]

WAIT = "wait or set-up record: no communication of its own"
INNER = "implements the collective around it"
NO_METADATA = "no communication metadata"
NO_METADATA_KERNEL = "kernel without metadata or CPU record"
NOT_NCCL = "communication kernel outside NCCL: the trace has no metadata for it"
UNREADABLE = "metadata not readable"

#: Repeated sequence numbers (coalesced collectives share one) are told apart above this bit.
_REPEAT_SHIFT = 40


@dataclass
class RankEvents:
    """What one rank's file amounts to.

    Parameters
    ----------
    records : list of Record
        By CPU start.
    unsized : list of UnsizedRow
        By start.
    read : int
        Records of the source that describe communication.
    skipped : dict
        Of those, the ones that became no event, by reason.
    origins : set of str
        Where the members of groups came from.
    notes : list of str
        What a reader of the result must know.
    """

    records: list[Record] = field(default_factory=list)
    unsized: list[UnsizedRow] = field(default_factory=list)
    read: int = 0
    skipped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    origins: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    custom: set[str] = field(default_factory=set)
    timed_by_cpu: int = 0
    without_time: int = 0


@dataclass(frozen=True)
class _Timed:
    start_ns: int
    duration_ns: int | None
    overlap_ns: int | None


@dataclass(frozen=True)
class _Refusal:
    reason: str
    kind: str
    size_bytes: int | None


def events_of(
    linked: Linked, groups: GroupDirectory, rank: int, overlap: ComputeOverlap | None, has_device: bool, max_text: int
) -> RankEvents:
    """Convert what was linked.

    Parameters
    ----------
    linked : Linked
        Marks with their kernels, loose kernels, counts.
    groups : GroupDirectory
        Finds members.
    rank : int
        Global rank of the file.
    overlap : ComputeOverlap, optional
        None where the compute timeline is incomplete; then overlap stays unknown.
    has_device : bool
        The file holds device kernels. Then the time of a CPU record (the enqueueing) is not taken for the collective's time.
    max_text : int
        Longest name that is kept.
    """
    out = RankEvents()
    for reason, count in ((WAIT, linked.waits), (INNER, linked.inner)):
        if count:
            out.read += count
            out.skipped[reason] += count
    own = [m.kernels for m in linked.marks] + [[k] for k in linked.loose]
    overlaps = [None] * len(own) if overlap is None else overlap.of(own)
    for mark, overlap_ns in zip(linked.marks, overlaps, strict=False):
        _convert(_meaning(mark), _name(mark)[:max_text], _time_of(mark, overlap_ns, has_device, out), groups, rank, out)
    for kernel, overlap_ns in zip(linked.loose, overlaps[len(linked.marks) :], strict=True):
        timed = _Timed(kernel.start_ns, kernel.duration_ns, overlap_ns)
        _convert(kernel.args, kernel.name[:max_text], timed, groups, rank, out, kernel)
    out.records = _distinct_sequences(out.records)
    out.unsized.sort(key=lambda u: (u.start_ns or 0, u.name))
    _notes(out, linked)
    return out


def _meaning(mark: Mark) -> CommArgs | Unreadable | None:
    """What the CPU record says; what its kernel says where the record says nothing."""
    if isinstance(mark.args, CommArgs):
        return mark.args
    return next((k.args for k in mark.kernels if isinstance(k.args, CommArgs)), mark.args)


def _name(mark: Mark) -> str:
    """The operation as the source writes it; a kernel says more than an unnamed record."""
    if isinstance(mark.args, CommArgs):
        return mark.args.name
    if not mark.is_record:
        return mark.name
    return mark.annotation or (mark.kernels[0].name if mark.kernels else mark.name)


def _time_of(mark: Mark, overlap_ns: int | None, has_device: bool, out: RankEvents) -> _Timed:
    if mark.kernels:
        return _Timed(min(k.start_ns for k in mark.kernels), busy_ns(mark.kernels), overlap_ns)
    if mark.shares_kernel is not None:
        return _Timed(mark.shares_kernel.start_ns, None, None)
    if has_device:
        out.without_time += 1
        return _Timed(mark.start_ns, None, None)
    out.timed_by_cpu += 1
    return _Timed(mark.start_ns, mark.duration_ns, None)


def _convert(
    args: CommArgs | Unreadable | None,
    name: str,
    timed: _Timed,
    groups: GroupDirectory,
    rank: int,
    out: RankEvents,
    kernel: Kernel | None = None,
) -> None:
    """Add one collective to `out`, as a record or as an unsized row."""
    out.read += 1
    record = _described(args, timed, groups, rank, out)
    if isinstance(record, Record):
        out.records.append(record)
        return
    if isinstance(record, _Refusal):
        reason, kind, size_bytes = record.reason, record.kind, record.size_bytes
    else:
        reason = NO_METADATA if kernel is None else NO_METADATA_KERNEL if is_nccl(kernel.name) else NOT_NCCL
        kind, size_bytes = reason, None
    out.skipped[kind] += 1
    out.unsized.append(UnsizedRow(name, timed.duration_ns or 0, reason, rank, timed.start_ns, size_bytes))


def _described(
    args: CommArgs | Unreadable | None, timed: _Timed, groups: GroupDirectory, rank: int, out: RankEvents
) -> Record | _Refusal | None:
    """The record that the metadata describe, or why they describe none; None without metadata."""
    if args is None:
        return None
    if isinstance(args, Unreadable):
        return _Refusal(f"{UNREADABLE}: {args.why}", UNREADABLE, None)
    members = groups.members(args)
    if isinstance(members, str):
        return _Refusal(members, "members unknown", _row_total(args))
    size = measure(args, len(members.in_order))
    if isinstance(size, str):
        return _Refusal(size, size.partition(":")[0], _row_total(args))
    ends = _ends(args, size, members, rank)
    if isinstance(ends, str):
        return _Refusal(ends, "peer unknown", _row_total(args))
    out.origins.add(members.origin)
    out.notes += size.notes
    if size.custom and size.op != "barrier":
        out.custom.add(size.op)
    return _record(args, size, members, ends, rank, timed)


def _row_total(args: CommArgs) -> int | None:
    """Bytes that this rank gives, where they are known: they stay visible as unattributed."""
    _, width = dtype_width(args.dtype)
    if width is None or args.in_elements is None or args.name.strip().lower() in ("recv", "irecv"):
        return None
    total = args.in_elements * width
    return total if total < 1 << 62 else None


def _ends(args: CommArgs, size: Size, members: Members, rank: int) -> tuple[int, int] | str | None:
    """Sender and receiver of a message: this rank is one of them, the other must be stated."""
    if size.op != "point_to_point":
        return None
    sends = args.name.strip().lower().rsplit(":", 1)[-1] in ("send", "isend")
    own, peer = (args.source, args.destination) if sends else (args.destination, args.source)
    if peer is None:
        return f"peer unknown: the event has no {'Dst Rank' if sends else 'Src Rank'}"
    if own is not None and own != rank:
        return f"peer unknown: {args.name} of rank {own} in the trace of rank {rank}"
    if peer not in members.in_order:
        return f"peer unknown: rank {peer} is not in the group"
    return (rank, peer) if sends else (peer, rank)


def _record(args: CommArgs, size: Size, members: Members, ends: tuple[int, int] | None, rank: int, timed: _Timed) -> Record:
    return Record(
        rank=rank,
        op=size.op,
        size_bytes=size.size_bytes,
        members=members.ascending,
        group=group_label(args),
        custom_op=size.custom,
        dtype=None if size.op == "barrier" else dtype_width(args.dtype)[0],
        sender=None if ends is None else ends[0],
        receiver=None if ends is None else ends[1],
        sequence=args.sequence,
        start_ns=timed.start_ns,
        duration_ns=timed.duration_ns,
        overlap_ns=timed.overlap_ns,
        sent_splits=_by_rank(size.sent_splits, members),
        received_splits=_by_rank(size.received_splits, members),
        sent_bytes=size.sent_bytes,
        received_bytes=size.received_bytes,
    )


def _by_rank(splits: tuple[int, ...] | None, members: Members) -> tuple[int, ...] | None:
    """Splits in ascending order of global ranks; the source has them in the group's order."""
    if splits is None:
        return None
    return tuple(v for _, v in sorted(zip(members.in_order, splits, strict=True)))


def _distinct_sequences(records: list[Record]) -> list[Record]:
    """Tell apart the collectives that share a sequence number: torch counts a coalesced call once."""
    seen: dict[tuple[object, ...], int] = defaultdict(int)
    out = []
    for r in records:
        if r.sequence is not None and r.sender is None:
            key = (r.members, r.group, r.sequence)
            repeat = seen[key]
            seen[key] += 1
            if repeat:
                r = replace(r, sequence=r.sequence + (repeat << _REPEAT_SHIFT))
        out.append(r)
    return out


def _notes(out: RankEvents, linked: Linked) -> None:
    notes = list(dict.fromkeys(out.notes))
    if out.origins:
        notes.insert(0, f"group members come from: {'; '.join(sorted(out.origins))}")
    if out.custom:
        notes.append(f"operations outside the vocabulary, kept as custom operations: {', '.join(sorted(out.custom))}")
    if out.timed_by_cpu and out.records:
        notes.append("times are those of CPU records: the trace has no device kernels")
    if out.without_time:
        notes.append("some collectives have no device kernel in the trace: their start is the CPU's, their time is unknown")
    if linked.batches:
        notes.append(
            "messages or collectives that one kernel ran as a batch share its time: it is kept on one of them, "
            "the others have none of their own"
        )
    out.notes = notes
