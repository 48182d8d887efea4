"""Merge per-rank captures into one trace, failing closed wherever a value would have to be invented."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from commcanary_lab.errors import MergeError, Problem
from commcanary_lab.trace.clocks import Clocks, calibrate
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.model import ImportCoverage, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.trace.order import order_by_ranks
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.trace.timing import check_timing, in_time_order

__all__ = ["merge_captures"]

_MESSAGES = frozenset({"send", "recv", "point_to_point"})


class _Key(NamedTuple):
    """What identifies a logical event across ranks."""

    communicator: tuple[int, ...]
    group: str | None
    #: Sender, receiver and tag of a message; None for a collective.
    message: tuple[int, int, str | None] | None
    #: Sequence number, or None where ranks are matched by position.
    sequence: int | None
    position: int

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks that take part: both ends of a message, the whole communicator otherwise."""
        return self.communicator if self.message is None else tuple(sorted({*self.message[:2]}))

    @property
    def label(self) -> str:
        where = f"group {self.group or 'unnamed'}, "
        if self.message is not None:
            return f"{where}message {self.position} from rank {self.message[0]} to rank {self.message[1]}"
        return where + (f"operation {self.position}" if self.sequence is None else f"sequence number {self.sequence}")


def merge_captures(
    captures: Sequence[RankCapture], *, source_format: str, clock_offsets_ns: Mapping[int, int] | None = None, align_ends: bool = False
) -> Trace:
    """Merge what each rank's source says into one trace of logical events.

    Ranks are matched by (group, sequence number); without sequence numbers by order inside the group, and then only where
    every rank shows the same number of operations.

    Parameters
    ----------
    captures : sequence of RankCapture
        One per rank, any order.
    source_format : str
        Name of the source format, kept in the trace.
    clock_offsets_ns : mapping of int to int, optional
        Nanoseconds to add to each rank's clock: an explicit calibration, so that arrival skew is known.
    align_ends : bool
        Estimate the offsets from matched collective ends (the median difference to the lowest rank) and take the result as the
        calibration. An explicit choice, recorded in the notes.

    Returns
    -------
    Trace
        Events in time order. Arrival skew is known only under one host's clock or an explicit calibration, and only for events that
        every member reported.

    Raises
    ------
    MergeError
        On two files for one rank, two contributions of one rank to one event, contradicting metadata of one event, partially
        measured latency, or unequal counts without sequence numbers.
    """
    by_rank = _one_file_per_rank(captures)
    sequences = {rank: _keys(c) for rank, c in by_rank.items()}
    _check_counts(sequences)
    events: dict[_Key, list[Record]] = defaultdict(list)
    for rank, keys in sequences.items():
        for key, record in zip(keys, by_rank[rank].records, strict=True):
            events[key].append(record)
    _check_metadata(events, by_rank)
    clocks = calibrate(by_rank, events.items(), clock_offsets_ns, align_ends)
    notes = [*(note for c in by_rank.values() for note in c.notes), *clocks.notes]
    if all(r.start_ns is None for records in events.values() for r in records):
        events, order_notes = _ordered(events, sequences)
        notes += order_notes
    if len(by_rank) > 1 and (partial := sum(len(records) < len(key.members) for key, records in events.items())):
        notes.append(f"{partial} of {len(events)} events are not reported by every member; their arrival skew is unknown")
    about = dict(
        notes=tuple(dict.fromkeys(notes)),
        warnings=tuple(dict.fromkeys(w for c in by_rank.values() for w in c.warnings)),
        coverage=_coverage(by_rank.values()),
        unsized=tuple(row for c in by_rank.values() for row in c.unsized),
        source_format=source_format,
        system=_system(by_rank.values()),
    )
    trace = in_time_order(_assemble(events, clocks, about))
    check_timing(trace)
    return trace


def _system(captures: Iterable[RankCapture]) -> dict[str, object]:
    sizes = {c.world_size for c in captures if c.world_size is not None}
    if len(sizes) > 1:
        raise MergeError(f"the files disagree on the world size: {sorted(sizes)}", remedy="merge files of one job only")
    return {"world_size": sizes.pop()} if sizes else {}


def _coverage(captures: Iterable[RankCapture]) -> ImportCoverage:
    parts = [c.coverage for c in captures]
    while len(parts) > 1:  # pairwise, so that the cost does not grow with the square of the number of ranks
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) - len(parts) % 2 :]
    return parts[0] if parts else ImportCoverage()


def _one_file_per_rank(captures: Sequence[RankCapture]) -> dict[int, RankCapture]:
    by_rank: dict[int, RankCapture] = {}
    for c in captures:
        if c.rank in by_rank:
            raise MergeError(
                f"{by_rank[c.rank].file} and {c.file} both claim rank {c.rank}",
                file=c.file,
                remedy="keep one file per rank, or name the ranks of the files explicitly",
            )
        by_rank[c.rank] = c
    return dict(sorted(by_rank.items()))


def _keys(capture: RankCapture) -> list[_Key]:
    """Identity of each record of a capture, in its order."""
    counts: dict[object, int] = defaultdict(int)
    keys = []
    for r in capture.records:
        message = None if r.sender is None or r.receiver is None else (r.sender, r.receiver, r.tag)
        sequence = r.sequence if message is None else None  # sources count messages per rank, not per direction
        position = 0
        if sequence is None:
            # both ends count the messages of one direction and tag in the same order
            kind = (r.members, r.group, message)
            position = counts[kind]
            counts[kind] += 1
        keys.append(_Key(r.members, r.group, message, sequence, position))
    return keys


def _check_counts(sequences: Mapping[int, Sequence[_Key]]) -> None:
    """Ranks that are matched by position must show the same number of operations."""
    by_order: dict[_Key, dict[int, int]] = defaultdict(dict)
    for rank, keys in sequences.items():
        for key in keys:
            if key.sequence is None:
                counts = by_order[key._replace(position=0)]
                counts[rank] = counts.get(rank, 0) + 1
    problems = []
    for kind, counts in by_order.items():
        seen = {r: counts.get(r, 0) for r in kind.members if r in sequences}
        if len(set(seen.values())) > 1:
            listed = ", ".join(f"rank {r}: {n}" for r, n in seen.items())
            what = "operation" if kind.message is None else f"message (rank {kind.message[0]} to rank {kind.message[1]})"
            problems.append(
                Problem(
                    f"group {kind.group or 'unnamed'} has no sequence numbers and unequal {what} counts ({listed})",
                    remedy="record with sequence numbers, or cut the files to the same window",
                )
            )
    if problems:
        raise MergeError(problems)


def _check_metadata(events: Mapping[_Key, list[Record]], by_rank: Mapping[int, RankCapture]) -> None:
    problems: list[Problem] = []
    for key, records in events.items():
        seen: set[int] = set()
        for r in records:
            file, k = by_rank[r.rank].file, len(r.members)
            if r.rank in seen:
                problems.append(Problem(f"{key.label}: rank {r.rank} contributes twice", file=file, remedy="remove the duplicate record"))
            if r.rank not in key.members:
                problems.append(Problem(f"{key.label}: rank {r.rank} is not a member", file=file, remedy="check the ranks of the files"))
            if any(s is not None and len(s) not in (0, k) for s in (r.sent_splits, r.received_splits)):
                problems.append(Problem(f"{key.label}: splits are not one per member ({k})", file=file, remedy="record again"))
            seen.add(r.rank)
        if len(records) > 1:
            problems += _conflicts(key, records, by_rank)
    if problems:
        raise MergeError(problems)


def _conflicts(key: _Key, records: Sequence[Record], by_rank: Mapping[int, RankCapture]) -> list[Problem]:
    first, problems = records[0], []
    for name in ("op", "dtype", "reduction", "root", "custom_op", "size_bytes"):
        if name == "size_bytes" and first.op == ALL_TO_ALL_V:
            continue  # each rank knows only its own row
        # what a rank does not know contradicts nothing
        stated = [(r.rank, getattr(r, name)) for r in records if getattr(r, name) is not None]
        if name == "op" and key.message is not None and all(op in _MESSAGES for _, op in stated):
            continue
        for rank, value in stated[1:]:
            if value != stated[0][1]:
                problems.append(
                    Problem(
                        f"{key.label}: rank {stated[0][0]} says {name} {stated[0][1]}, rank {rank} says {value}",
                        file=by_rank[rank].file,
                        remedy="the files belong to different runs, or the job was out of step",
                    )
                )
                break
    lacking = [r.rank for r in records if r.duration_ns is None]
    if 0 < len(lacking) < len(records):
        problems.append(
            Problem(
                f"{key.label}: measured on some ranks and not on rank {lacking[0]}",
                file=by_rank[lacking[0]].file,
                remedy="a latency over a part of the ranks would be wrong; re-record, or leave that rank's file out",
            )
        )
    return problems


def _ordered(events: dict[_Key, list[Record]], sequences: Mapping[int, Sequence[_Key]]) -> tuple[dict[_Key, list[Record]], list[str]]:
    """Order events without times so that every rank's own order holds."""
    order, forced = order_by_ranks(list(sequences.values()))
    note = f"the ranks contradict each other about the order of {forced} of {len(events)} events; the lowest rank's order is kept"
    return {key: events[key] for key in order}, [note] if forced else []


@dataclass
class _Rows:
    """What the reporting ranks say, per event."""

    starts: list[int | None] = field(default_factory=list)
    arrivals: list[list[int]] = field(default_factory=list)
    arrival_known: list[bool] = field(default_factory=list)
    durations: list[list[int]] = field(default_factory=list)
    rank_starts: list[list[tuple[int, int | None]]] = field(default_factory=list)
    overlaps: list[int | None] = field(default_factory=list)
    splits: list[list[int]] = field(default_factory=list)

    def add(self, records: Sequence[Record], k: int, clocks: Clocks) -> None:
        """Add an event of `k` members."""
        timed = [r.start_ns + clocks.offset_ns[r.rank] for r in records if r.start_ns is not None]
        known = len(timed) == k and (k == 1 or clocks.comparable(r.rank for r in records))
        start = None if not timed else min(timed) if known else timed[0]
        self.starts.append(start)
        self.arrival_known.append(known)
        self.arrivals.append([t - start for t in timed] if known and start is not None else [])
        self.rank_starts.append([] if known or not timed else [(r.rank, r.start_ns) for r in records])
        measured = any(r.duration_ns is not None for r in records)
        self.durations.append([-1 if r.duration_ns is None else r.duration_ns for r in records] if measured else [])
        hidden = [r.overlap_ns for r in records if r.overlap_ns is not None]
        # the rank that hides least decides: the others wait for it
        self.overlaps.append(min(hidden) if len(hidden) == len(records) else None)
        self.splits.append([x for r in records for x in _split_row(r)] if records[0].op == ALL_TO_ALL_V else [])

    def relative_starts(self, clocks: Clocks) -> tuple[Column, Ragged]:
        """Starts from the first one on, and each rank's own starts, -1 where unknown; each clock starts at 0."""
        known = [s for s in self.starts if s is not None]
        own: dict[str, int] = {}
        for rank, start in (pair for row in self.rank_starts for pair in row):
            if start is not None:
                name = clocks.domain[rank]
                own[name] = min(start, own.get(name, start))
        origin = min([*known, *own.values()] if clocks.shared else known, default=0)
        if clocks.shared:  # one clock, one origin
            own = dict.fromkeys(own, origin)
        rows = [[-1 if start is None else start - own[clocks.domain[rank]] for rank, start in row] for row in self.rank_starts]
        return Column.from_optional([None if s is None else s - origin for s in self.starts]), Ragged.from_rows(rows)


def _assemble(events: Mapping[_Key, list[Record]], clocks: Clocks, about: dict[str, Any]) -> Trace:
    n = len(events)
    groups = GroupTable()
    rank_sets: dict[tuple[int, ...], int] = {}
    group = np.zeros(n, np.int32)
    observers = np.full(n, -1, np.int32)
    rows = _Rows()
    for i, (key, records) in enumerate(events.items()):
        records.sort(key=lambda r: r.rank)
        group[i] = groups.code(key.group or None, key.members)
        if len(records) < len(key.members):
            observers[i] = rank_sets.setdefault(tuple(r.rank for r in records), len(rank_sets))
        rows.add(records, len(key.members), clocks)
    ops = [_op(key, records[0]) for key, records in events.items()]
    stated = {name: [_stated(records, name) for records in events.values()] for name in _STATED}
    start_ns, rank_start_ns = rows.relative_starts(clocks)
    return Trace.build(
        n,
        op=Coded.from_optional(ops),
        phase=Coded.from_optional(stated["phase"]),
        dtype=Coded.from_optional(stated["dtype"]),
        reduction=Coded.from_optional(stated["reduction"]),
        tag=Coded.from_optional(stated["tag"]),
        custom_op=np.array([records[0].custom_op or records[0].op == ALL_TO_ALL_V for records in events.values()], np.bool_),
        group=group,
        groups=groups.groups,
        size_bytes=np.array([max(r.size_bytes for r in records) for records in events.values()], np.int64),
        root=Column.from_optional(stated["root"]),
        sender=Column.from_optional(stated["sender"]),
        receiver=Column.from_optional(stated["receiver"]),
        start_ns=start_ns,
        overlap_ns=Column.from_optional(rows.overlaps),
        arrival_ns=Ragged.from_rows(rows.arrivals),
        arrival_known=np.array(rows.arrival_known, np.bool_),
        observers=observers,
        rank_sets=tuple(rank_sets),
        duration_ns=Ragged.from_rows(rows.durations),
        rank_start_ns=rank_start_ns,
        splits=Ragged.from_rows(rows.splits),
        **about,
    )


_STATED = ("phase", "dtype", "reduction", "tag", "root", "sender", "receiver")


def _op(key: _Key, first: Record) -> str:
    """A message whose two ends are known is one event, whichever end wrote it."""
    return "point_to_point" if key.message is not None and first.op in _MESSAGES else first.op


def _stated(records: Sequence[Record], name: str) -> Any:
    """What the lowest rank that knows it says, None if no rank does; an empty text says nothing."""
    return next((value for r in records if (value := getattr(r, name)) not in (None, "")), None)


def _split_row(r: Record) -> list[int]:
    k = len(r.members)
    unknown = (-1,) * k
    sent, received = r.sent_splits or unknown, r.received_splits or unknown
    totals = [-1 if t is None else t for t in (r.sent_bytes, r.received_bytes)]
    return [*totals, *sent, *received]
