"""Turn linked marks and kernels of one rank into records, unsized rows and their coverage."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from commcanary_lab.importers.comm_events import Refusal, Timed, describe, distinct_sequences
from commcanary_lab.importers.kineto_args import CommArgs, Unreadable
from commcanary_lab.importers.kineto_group import GroupDirectory
from commcanary_lab.importers.kineto_link import Linked
from commcanary_lab.importers.kineto_overlap import ComputeOverlap, busy_ns
from commcanary_lab.importers.kineto_scan import Kernel, Mark, is_nccl
from commcanary_lab.trace.model import UnsizedRow
from commcanary_lab.trace.records import Record

__all__ = ["NO_METADATA", "RankEvents", "events_of"]

WAIT = "wait or set-up record: no communication of its own"
INNER = "implements the collective around it"
NO_METADATA = "no communication metadata"
NO_METADATA_KERNEL = "kernel without metadata or CPU record"
NOT_NCCL = "communication kernel outside NCCL: the trace has no metadata for it"


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
        timed = Timed(kernel.start_ns, kernel.duration_ns, overlap_ns)
        _convert(kernel.args, kernel.name[:max_text], timed, groups, rank, out, kernel)
    out.records = distinct_sequences(out.records)
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


def _time_of(mark: Mark, overlap_ns: int | None, has_device: bool, out: RankEvents) -> Timed:
    if mark.kernels:
        return Timed(min(k.start_ns for k in mark.kernels), busy_ns(mark.kernels), overlap_ns)
    if mark.shares_kernel is not None:
        return Timed(mark.shares_kernel.start_ns, None, None)
    if has_device:
        out.without_time += 1
        return Timed(mark.start_ns, None, None)
    out.timed_by_cpu += 1
    return Timed(mark.start_ns, mark.duration_ns, None)


def _convert(
    args: CommArgs | Unreadable | None,
    name: str,
    timed: Timed,
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
    if isinstance(record, Refusal):
        reason, kind, size_bytes = record.reason, record.kind, record.size_bytes
    else:
        reason = NO_METADATA if kernel is None else NO_METADATA_KERNEL if is_nccl(kernel.name) else NOT_NCCL
        kind, size_bytes = reason, None
    out.skipped[kind] += 1
    out.unsized.append(UnsizedRow(name, timed.duration_ns or 0, reason, rank, timed.start_ns, size_bytes))


def _described(
    args: CommArgs | Unreadable | None, timed: Timed, groups: GroupDirectory, rank: int, out: RankEvents
) -> Record | Refusal | None:
    """The record that the metadata describe, or why they describe none; None without metadata."""
    if args is None:
        return None
    found = describe(args, groups, rank, timed)
    if isinstance(found, Refusal):
        return found
    out.origins.add(found.origin)
    out.notes += found.notes
    if found.record.custom_op and found.record.op != "barrier":
        out.custom.add(found.record.op)
    return found.record


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
