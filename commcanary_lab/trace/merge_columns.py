"""Merge the records of all ranks as `merge.merge_captures` does, on columns: no Python object per record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import MAX_LISTED, MergeError, Problem
from commcanary_lab.trace.clocks import Clocks, calibrate
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.merge_times import Times, event_times
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.numbering import first_rows, number_rows, positions
from commcanary_lab.trace.order import order_rows
from commcanary_lab.trace.record_columns import RecordColumns
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.trace.timing import check_timing, in_time_order

__all__ = ["Origin", "merge_columns"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Origin:
    """What is known of the source besides its records.

    Parameters
    ----------
    source_format : str
        Name of the source format, kept in the trace.
    files : mapping of int to str
        File of each rank, for messages; its keys are the ranks that the source covers.
    clock : str
        Name of the clock domain of all ranks, as in `records.RankCapture`.
    """

    source_format: str
    files: Mapping[int, str]
    clock: str
    coverage: ImportCoverage = field(default_factory=ImportCoverage)
    unsized: tuple[UnsizedRow, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def merge_columns(
    records: RecordColumns,
    origin: Origin,
    *,
    lossy: bool = False,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
) -> Trace:
    """Merge records into one trace of logical events.

    Collectives are matched by communicator and sequence number, messages by their order within communicator, sender and receiver.

    Parameters
    ----------
    records : RecordColumns
        Records of all ranks.
    origin : Origin
        Where they come from.
    lossy : bool
        The source is known to lose records and times. Messages are then matched by their order among those of one size; an event that
        some of its ranks measured and others did not has no measured time; starts that not every event has are left out. Each of these
        is said in a note. Otherwise they are refused. Such sources write communicator by communicator, so that between communicators
        the order of a rank's records only guides the order of events.
    clock_offsets_ns, align_ends
        As in `merge.merge_captures`.

    Returns
    -------
    Trace
        The same as `merge.merge_captures` makes of the same records.

    Raises
    ------
    MergeError
        As `merge.merge_captures` does.

    Examples
    --------
    >>> from commcanary_lab.trace.groups import ProcessGroup
    >>> zero, no = np.zeros(2, np.int64), np.full(2, -1)
    >>> r = RecordColumns(np.array([0, 1]), zero, zero, np.array([8, 8]), zero + 5, no, no, no, no, (ProcessGroup("tp", (0, 1)),),
    ...                   ("all_reduce",))
    >>> merge_columns(r, Origin("example", {0: "a", 1: "b"}, "unix"))
    Trace(1 events, 2 ranks, 1 groups, 0 unsized, from example)
    """
    records = records.by_rank()
    notes: list[str] = []
    event, count = _match(records, origin, lossy)
    start_ns = _starts(records, event, count, notes) if lossy else records.start_ns
    place, forced = _first_seen(event, count), 0
    if not np.any(start_ns >= 0):
        place, forced = order_rows(records.rank, event, count, records.communicator if lossy else None)
    event = place[event] if count else event
    table = _Events.of(records, event, count)
    _check(table, origin)
    duration_ns = _durations(table, origin, lossy, notes)
    clocks = _clocks(records, event, start_ns, origin, clock_offsets_ns, align_ends)
    notes = [*origin.notes, *notes, *clocks.notes]
    if forced:
        notes.append(f"the ranks contradict each other about the order of {forced} of {count} events; the lowest rank's order is kept")
    if len(origin.files) > 1 and (partial := int(np.count_nonzero(table.sizes < table.members))):
        notes.append(f"{partial} of {count} events are not reported by every member; their arrival skew is unknown")
    times = event_times(records.rank[table.rows], start_ns[table.rows], table.pointers, table.members, clocks)
    trace = in_time_order(_assemble(table, times, duration_ns, origin, tuple(dict.fromkeys(notes))))
    check_timing(trace)
    return trace


def _match(r: RecordColumns, origin: Origin, lossy: bool) -> tuple[IntArray, int]:
    """Event of each row."""
    message = r.message
    first, second = (r.op if r.sequence_per_op else np.zeros(len(r), np.int64)), r.sequence
    nth, size = np.zeros(len(r), np.int64), np.zeros(len(r), np.int64)
    if message.any():
        first, second = np.where(message, r.sender, first), np.where(message, r.receiver, second)
        at = np.flatnonzero(message)
        if lossy:
            size[at] = r.size_bytes[at]
        else:
            _check_counts(r, at, origin)
        nth[at] = positions(number_rows(r.rank[at], r.communicator[at], first[at], second[at], size[at])[0])
    return number_rows(r.communicator, message.astype(np.int64), first, second, nth, size)


def _first_seen(event: IntArray, count: int) -> IntArray:
    """Place of each event by its first row."""
    place = np.empty(count, np.int64)
    place[np.argsort(first_rows(event, count))] = np.arange(count)
    return place


@dataclass(frozen=True, eq=False)
class _Events:
    """Rows by event, the ranks of an event ascending."""

    records: RecordColumns
    rows: IntArray
    pointers: IntArray
    sizes: IntArray
    first: IntArray
    #: Size of each event's group.
    members: IntArray

    @classmethod
    def of(cls, records: RecordColumns, event: IntArray, count: int) -> _Events:
        rows = np.argsort(event, kind="stable")
        sizes = np.bincount(event, minlength=count)
        pointers = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first = rows[pointers[:-1]]
        k = np.array([g.size for g in records.communicators], np.int64)
        members = np.where(records.message[first], 2, k[records.communicator[first]]) if count else np.zeros(0, np.int64)
        return cls(records, rows, pointers, sizes, first, members)

    @property
    def event(self) -> IntArray:
        """Event of each row in `rows`."""
        return np.repeat(np.arange(len(self.first)), self.sizes)

    def label(self, event: int) -> str:
        r, row = self.records, int(self.first[event])
        where = f"group {r.communicators[r.communicator[row]].name or 'unnamed'}, "
        if r.sender[row] >= 0:
            return f"{where}message from rank {r.sender[row]} to rank {r.receiver[row]}"
        return f"{where}{r.ops[r.op[row]] + ' ' if r.sequence_per_op else ''}sequence number {r.sequence[row]}"


# -- what is refused --------------------------------------------------------------------------------------------------


def _check_counts(r: RecordColumns, at: IntArray, origin: Origin) -> None:
    """Both ends of a direction must show the same number of messages."""
    key, count = number_rows(r.communicator[at], r.sender[at], r.receiver[at])
    by_sender = r.rank[at] == r.sender[at]
    sent, received = (np.bincount(key[m], minlength=count) for m in (by_sender, ~by_sender))
    one = at[first_rows(key, count)]
    covered = np.array(sorted(origin.files), np.int64)
    both = np.isin(r.sender[one], covered) & np.isin(r.receiver[one], covered) & (r.sender[one] != r.receiver[one])
    problems = []
    for i in np.flatnonzero(both & (sent != received)).tolist():
        name, src, dst = r.communicators[r.communicator[one[i]]].name or "unnamed", r.sender[one[i]], r.receiver[one[i]]
        problems.append(
            Problem(
                f"group {name} has no sequence numbers and unequal message (rank {src} to rank {dst}) counts "
                f"(rank {src}: {sent[i]}, rank {dst}: {received[i]})",
                remedy="record with sequence numbers, or cut the files to the same window",
            )
        )
    if problems:
        raise MergeError(problems)


def _check(t: _Events, origin: Origin) -> None:
    r, event = t.records, t.event
    rank, first = r.rank[t.rows], t.first[event]
    problems = [
        Problem(f"{t.label(int(event[i]))}: rank {rank[i]} contributes twice", file=origin.files.get(int(rank[i])),
                remedy="remove the duplicate record; two runs, or a file and its copy, must not be opened together")
        for i in _some((event[1:] == event[:-1]) & (rank[1:] == rank[:-1]), 1)
    ]  # fmt: skip
    for name, values in (("op", r.op), ("size_bytes", r.size_bytes)):
        for i in _some(values[t.rows] != values[first], 0):
            one, other = values[first[i]], values[t.rows[i]]
            said = (r.ops[one], r.ops[other]) if name == "op" else (int(one), int(other))
            problems.append(
                Problem(
                    f"{t.label(int(event[i]))}: rank {r.rank[first[i]]} says {name} {said[0]}, rank {rank[i]} says {said[1]}",
                    file=origin.files.get(int(rank[i])),
                    remedy="the files belong to different runs, or the job was out of step",
                )
            )
    if problems:
        raise MergeError(problems)


def _some(mask: BoolArray, shift: int) -> list[int]:
    return [int(i) + shift for i in np.flatnonzero(mask)[: MAX_LISTED + 1]]


def _durations(t: _Events, origin: Origin, lossy: bool, notes: list[str]) -> Ragged:
    """Measured times of the reporting ranks of each event, nothing where none measured."""
    duration = t.records.duration_ns[t.rows]
    known = np.add.reduceat(duration >= 0, t.pointers[:-1]) if len(t.first) else t.sizes
    partial = (known > 0) & (known < t.sizes)
    if partial.any() and not lossy:
        lacking = np.flatnonzero((duration < 0) & partial[t.event])
        _, one = np.unique(t.event[lacking], return_index=True)
        ranks = [(int(t.event[i]), int(t.records.rank[t.rows[i]])) for i in lacking[one[: MAX_LISTED + 1]]]
        remedy = "a latency over a part of the ranks would be wrong; re-record, or leave that rank's file out"
        raise MergeError(
            [
                Problem(f"{t.label(e)}: measured on some ranks and not on rank {rank}", file=origin.files.get(rank), remedy=remedy)
                for e, rank in ranks
            ]
        )
    if partial.any():
        notes.append(f"{int(partial.sum())} of {len(partial)} events are measured on a part of their ranks: their time is unknown")
    measured = (known > 0) & ~partial
    return Ragged.from_lengths(duration[np.repeat(measured, t.sizes)], np.where(measured, t.sizes, 0))


# -- times ------------------------------------------------------------------------------------------------------------


def _starts(r: RecordColumns, event: IntArray, count: int, notes: list[str]) -> IntArray:
    """Start of each row; of none where some events would have one and others not."""
    timed = np.bincount(event[r.start_ns >= 0], minlength=count) > 0
    if timed.all() or not timed.any():
        return r.start_ns
    notes.append(f"{int(np.count_nonzero(~timed))} of {count} events have no start: starts are left out, the order is that of the ranks")
    return np.full(len(r), -1, np.int64)


def _clocks(
    r: RecordColumns, event: IntArray, start_ns: IntArray, origin: Origin, offsets_ns: Mapping[int, int] | None, align_ends: bool
) -> Clocks:
    timed = {rank: [Record(rank, "", 0, (), start_ns=0)] for rank in np.unique(r.rank[start_ns >= 0]).tolist()}  # whether, not when
    captures = {rank: RankCapture(rank, timed.get(rank, []), file, origin.clock) for rank, file in sorted(origin.files.items())}
    return calibrate(captures, _measured(r, event, start_ns) if align_ends else (), offsets_ns, align_ends)


def _measured(r: RecordColumns, event: IntArray, start_ns: IntArray) -> Iterator[tuple[int, Sequence[Record]]]:
    """What end alignment looks at."""
    rows = np.flatnonzero((start_ns >= 0) & (r.duration_ns >= 0))
    columns = (event[rows].tolist(), r.rank[rows].tolist(), start_ns[rows].tolist(), r.duration_ns[rows].tolist())
    for e, rank, start, duration in zip(*columns, strict=True):
        yield e, [Record(rank, "", 0, (), start_ns=start, duration_ns=duration)]


# -- the trace --------------------------------------------------------------------------------------------------------


def _assemble(t: _Events, times: Times, duration_ns: Ragged, origin: Origin, notes: tuple[str, ...]) -> Trace:
    r, first, n = t.records, t.first, len(t.first)
    message = r.message[first]
    sender, receiver = r.sender[first], r.receiver[first]
    group, groups = _groups(r, first, message)
    observers, rank_sets = _observers(t)
    custom = np.array([name in r.custom for name in r.ops], np.bool_)
    return Trace.build(
        n,
        op=Coded(r.op[first].astype(np.int32), r.ops),
        custom_op=custom[r.op[first]] if n else np.zeros(0, np.bool_),
        group=group,
        groups=groups.groups,
        size_bytes=r.size_bytes[first],
        sender=Column(np.where(message, sender, 0), message.copy()) if message.any() else Column.absent(n),
        receiver=Column(np.where(message, receiver, 0), message.copy()) if message.any() else Column.absent(n),
        start_ns=times.start_ns,
        arrival_ns=times.arrival_ns,
        arrival_known=times.arrival_known,
        rank_start_ns=times.rank_start_ns,
        duration_ns=duration_ns,
        observers=observers,
        rank_sets=rank_sets,
        source_format=origin.source_format,
        coverage=origin.coverage,
        unsized=origin.unsized,
        notes=notes,
        warnings=tuple(dict.fromkeys(origin.warnings)),
        system=dict(origin.system),
        extra=dict(origin.extra),
    )


def _groups(r: RecordColumns, first: IntArray, message: BoolArray) -> tuple[npt.NDArray[np.int32], GroupTable]:
    groups = GroupTable()
    key, count = number_rows(r.communicator[first], np.where(message, r.sender[first], -1), np.where(message, r.receiver[first], -1))
    one = first_rows(key, count)
    codes = np.zeros(count, np.int32)
    for code in np.argsort(one, kind="stable").tolist():
        row = int(first[one[code]])
        c = r.communicators[r.communicator[row]]
        ends = {int(r.sender[row]), int(r.receiver[row])}
        codes[code] = groups.code(c.name or None, ends if r.sender[row] >= 0 else c.members)
    return codes[key].astype(np.int32), groups


def _observers(t: _Events) -> tuple[npt.NDArray[np.int32], tuple[tuple[int, ...], ...]]:
    """Which ranks report each event: index into the sets, -1 where all members do."""
    out = np.full(len(t.first), -1, np.int32)
    partial = t.sizes < t.members
    rank = t.records.rank[t.rows]
    sets: dict[tuple[int, ...], int] = {}
    for size in np.unique(t.sizes[partial]).tolist():
        events = np.flatnonzero(partial & (t.sizes == size))
        rows = rank[t.pointers[events][:, None] + np.arange(size)]
        key, count = number_rows(*rows.T)
        codes = [sets.setdefault(tuple(row), len(sets)) for row in rows[first_rows(key, count)].tolist()]
        out[events] = np.array(codes, np.int32)[key]
    return out, tuple(sets)
