"""Join what describes the same collective: CPU record, annotation, kernel. Each collective is counted once.

A kernel belongs to the CPU record

1. that has its ``External id`` (before 2023 that id only repeated the kernel's own correlation number, and then says nothing);
2. inside which its launch lies (the runtime call with the kernel's correlation number, on the record's thread);
3. that has the same metadata, in order.

A kernel that was launched outside every record, after several messages or coalesced collectives that have none of their own, ran that
whole batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from commcanary_lab.importers.kineto_args import CommArgs
from commcanary_lab.importers.kineto_scan import Kernel, Mark, kernel_operation
from commcanary_lab.trace.ops import canonical_op

__all__ = ["Linked", "link"]

#: How many enclosing spans a launch may lie in.
_DEPTH = 16

#: Operation -> operations that it may be made of (torch: a barrier is an all-reduce, an uneven all-gather is broadcasts).
_MADE_OF = {"barrier": {"all_reduce"}, "all_gather": {"broadcast"}, "reduce_scatter": {"reduce", "_reduce_oop"}}

#: Kernel operation -> operations that it can run.
_RUNS = {
    "sendrecv": {"point_to_point", "send", "recv", "all_to_all", "all_to_all_v", "gather", "scatter"},
    "allreduce": {"all_reduce"}, "allgather": {"all_gather"}, "reducescatter": {"reduce_scatter"}, "broadcast": {"broadcast"},
    "alltoall": {"all_to_all", "all_to_all_v"}, "reduce": {"reduce"}, "gather": {"gather"}, "scatter": {"scatter"},
}  # fmt: skip


@dataclass(frozen=True)
class Linked:
    """The outcome.

    Parameters
    ----------
    marks : list of Mark
        Records that stand for a collective, and annotations that stand alone, with their kernels.
    loose : list of Kernel
        Kernels without any CPU record: with their own metadata, or of unknown meaning.
    waits : int
        Records that are no collective: waits and set-up.
    inner : int
        Records inside another record, whose implementation they are (an all-reduce inside a barrier).
    batches : int
        Kernels that ran several messages or coalesced collectives; each is kept on one of them.
    """

    marks: list[Mark]
    loose: list[Kernel]
    waits: int
    inner: int
    batches: int


def link(
    records: list[Mark], annotations: list[Mark], kernels: list[Kernel], launched: Mapping[int, tuple[str, int]] | None, rank: int
) -> Linked:
    """Join records, annotations and kernels of one rank.

    Parameters
    ----------
    records, annotations : list of Mark
        By CPU start. Their ``kernels`` are filled.
    kernels : list of Kernel
        Communication kernels by start.
    launched : mapping or None
        Correlation number -> (thread, time) of the launch; None where the file has no launches at all.
    rank : int
        Global rank of the file.
    """
    launches = launched or {}
    collectives = [r for r in records if r.is_collective]
    outer = _outermost(collectives)
    top = [r for r in collectives if outer[r.index] is r]
    alone = _attach(annotations, top)
    records_on, notes_on = _Threads(collectives), _Threads(alone)
    record_ids: dict[int | None, Mark] = {r.external_id: r for r in collectives if r.external_id is not None}
    note_ids: dict[int | None, Mark] = {a.external_id: a for a in alone if a.external_id is not None}
    rest: list[Kernel] = []
    for kernel in kernels:
        launch = launches.get(kernel.correlation) if kernel.correlation is not None else None
        by_id = kernel.external_id is not None and (kernel.external_id != kernel.correlation or launched is None)
        mark = record_ids.get(kernel.external_id) if by_id else None
        mark = mark or records_on.at(launch)
        if mark is not None:
            outer[mark.index].kernels.append(kernel)
            continue
        mark = (note_ids.get(kernel.external_id) if by_id else None) or notes_on.at(launch)
        if mark is not None and "coalesced" not in mark.name:
            mark.kernels.append(kernel)
        else:
            rest.append(kernel)
    rest = _by_metadata(rest, top)
    rest, batches = _batches(rest, top, launched, rank)
    standing = _standing_alone(alone, top)
    empty = [r for r in top if r.args is None and not r.kernels and r.annotation is None]
    marks = [r for r in top if r.args is not None or r.kernels or r.annotation is not None] + standing
    marks.sort(key=lambda m: (m.start_ns, m.index))
    return Linked(marks, rest, len(records) - len(collectives) + len(empty), len(collectives) - len(top), batches)


class _Threads:
    """Finds the innermost span of a thread at a time."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._marks: dict[str, list[Mark]] = defaultdict(list)
        for mark in marks:
            self._marks[mark.thread].append(mark)
        self._starts = {thread: [m.start_ns for m in spans] for thread, spans in self._marks.items()}

    def at(self, launch: tuple[str, int] | None) -> Mark | None:
        if launch is None or launch[0] not in self._marks:
            return None
        thread, time = launch
        spans = self._marks[thread]
        last = bisect_right(self._starts[thread], time) - 1
        for i in range(last, max(-1, last - _DEPTH), -1):
            if spans[i].end_ns >= time:
                return spans[i]
        return None


def _outermost(records: list[Mark]) -> dict[int, Mark]:
    """Map each record to the record around it on its thread that it implements, itself if there is none."""
    out: dict[int, Mark] = {}
    around: dict[str, Mark] = {}
    for r in sorted(records, key=lambda m: (m.start_ns, -m.end_ns, m.index)):
        top = around.get(r.thread)
        if (
            top is not None
            and r.duration_ns is not None
            and r.start_ns < top.end_ns
            and r.end_ns <= top.end_ns
            and (r.start_ns, r.end_ns) != (top.start_ns, top.end_ns)
            and _implements(r, top)
        ):
            out[r.index] = top
        else:
            out[r.index] = r
            if top is None or r.end_ns >= top.end_ns:
                around[r.thread] = r
    return out


def _implements(inner: Mark, outer: Mark) -> bool:
    if not (isinstance(inner.args, CommArgs) and isinstance(outer.args, CommArgs)):
        return inner.args is None and outer.args is None
    return inner.args.group_name == outer.args.group_name and _operation(inner) in _MADE_OF.get(_operation(outer), ())


def _attach(annotations: list[Mark], records: list[Mark]) -> list[Mark]:
    """Give each record the annotation inside it; return the annotations outside all records."""
    on = _Threads(records)
    alone = []
    for note in annotations:
        record = on.at((note.thread, note.start_ns))
        if record is not None and note.end_ns <= record.end_ns:
            record.annotation = record.annotation or note.name
        else:
            alone.append(note)
    return alone


def _by_metadata(kernels: list[Kernel], records: list[Mark]) -> list[Kernel]:
    """Join kernels that carry metadata to records that carry the same and have no kernel, in order."""
    waiting: dict[object, deque[Mark]] = defaultdict(deque)
    for r in records:
        if isinstance(r.args, CommArgs) and not r.kernels:
            waiting[_signature(r.args)].append(r)
    rest = []
    for k in kernels:
        queue = waiting.get(_signature(k.args)) if isinstance(k.args, CommArgs) else None
        if queue and queue[0].start_ns <= k.start_ns:
            queue.popleft().kernels.append(k)
        else:
            rest.append(k)
    return rest


def _signature(args: CommArgs) -> tuple[object, ...]:
    return (args.name, args.dtype, args.in_elements, args.out_elements, args.group_size, args.group_name)


def _batches(
    kernels: list[Kernel], records: list[Mark], launched: Mapping[int, tuple[str, int]] | None, rank: int
) -> tuple[list[Kernel], int]:
    """Give kernels without a record of their own to the messages or coalesced collectives that they ran."""
    launches = launched or {}
    pending = [r for r in records if isinstance(r.args, CommArgs) and not r.kernels and r.args.group_size != 1]
    rest: list[Kernel] = []
    batches = 0
    previous: dict[str, int] = {}
    for k in sorted(kernels, key=lambda k: (launches.get(k.correlation or -1, ("", k.start_ns))[1], k.index)):
        launch = launches.get(k.correlation) if k.correlation is not None else None
        ran = [] if k.args is not None else _ran_by(k, launch, pending, previous, launched is None)
        if launch is not None:
            previous[launch[0]] = launch[1]
        if not ran:
            rest.append(k)
            continue
        done = {r.index for r in ran}
        pending = [r for r in pending if r.index not in done]
        if len(ran) > 1:
            batches += 1
            for r in ran:
                r.shares_kernel = k
        _carrier(ran, rank).kernels.append(k)
    rest.sort(key=lambda k: (k.start_ns, k.index))
    return rest, batches


def _ran_by(
    kernel: Kernel, launch: tuple[str, int] | None, pending: list[Mark], previous: Mapping[str, int], no_launches: bool
) -> list[Mark]:
    """Records without a kernel that this kernel ran, as far as the file can tell."""
    operation = kernel_operation(kernel.name)
    can_run = _RUNS.get(operation) if operation is not None else None
    if launch is not None:
        thread, time = launch
        since = previous.get(thread, -1)
        return [r for r in pending if r.thread == thread and since < r.start_ns <= time and (can_run is None or _operation(r) in can_run)]
    if no_launches and operation == "sendrecv":  # without launches, only the kernel of messages can be told from others
        return [r for r in pending if r.start_ns <= kernel.start_ns and _operation(r) in ("send", "recv")]
    return []


def _operation(mark: Mark) -> str:
    assert isinstance(mark.args, CommArgs)
    return canonical_op(mark.args.name) or mark.args.name.strip().lower()


def _carrier(ran: list[Mark], rank: int) -> Mark:
    """The one of a batch on which the kernel's time is kept: the message with the lowest ends, the same on both sides of an exchange."""

    def ends(mark: Mark) -> tuple[int, int, int]:
        args = mark.args
        assert isinstance(args, CommArgs)
        source, destination = (rank, args.destination) if _operation(mark) == "send" else (args.source, rank)
        return (-1 if source is None else source, -1 if destination is None else destination, mark.index)

    return min(ran, key=ends) if all(_operation(r) in ("send", "recv") for r in ran) else ran[0]


def _standing_alone(alone: list[Mark], records: list[Mark]) -> list[Mark]:
    """Annotations outside all records that stand for a collective of their own.

    With a kernel they do. Without one they do only where no record of the file can be the same collective, and a span around records
    (``nccl:coalesced``) never does.
    """
    described = {_operation(r) for r in records if isinstance(r.args, CommArgs)}
    out = []
    for note in alone:
        operation = canonical_op(note.name) or note.name.rsplit(":", 1)[-1]
        if note.kernels or (operation != "coalesced" and operation not in described):
            out.append(note)
    return out
