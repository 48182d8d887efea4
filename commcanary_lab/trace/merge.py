"""Merge per-rank captures into one trace, failing closed wherever a value would have to be invented."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from commcanary_lab.errors import MergeError, Problem
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.model import ImportCoverage, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.trace.timing import in_time_order

__all__ = ["merge_captures"]

#: (members, group name, kind of match, position): one logical event.
_Key = tuple[tuple[int, ...], str | None, str, int]

_SAME_HOST = "monotonic@"


@dataclass(frozen=True)
class _Clocks:
    """Offset to add to each rank's clock, and what differences of the result mean."""

    offset_ns: Mapping[int, int]
    calibrated: bool
    note: str | None


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
    if clock_offsets_ns is not None and align_ends:
        raise MergeError("clock offsets and end alignment exclude each other", remedy="give one of the two")
    by_rank = _one_file_per_rank(captures)
    events = _match(list(by_rank.values()))
    _check_metadata(events, by_rank)
    clocks = _clocks(by_rank, events, clock_offsets_ns, align_ends)
    notes = [note for c in by_rank.values() for note in c.notes]
    if clocks.note:
        notes.append(clocks.note)
    if any(len(records) < len(key[0]) for key, records in events.items()) and len(by_rank) > 1:
        partial = sum(len(records) < _expected(key, records) for key, records in events.items())
        if partial:
            notes.append(f"{partial} of {len(events)} events are not reported by every member; their arrival skew is unknown")
    coverage = sum((c.coverage for c in by_rank.values()), ImportCoverage())
    return in_time_order(
        _assemble(
            events,
            clocks,
            dict(
                notes=tuple(dict.fromkeys(notes)),
                warnings=tuple(dict.fromkeys(w for c in by_rank.values() for w in c.warnings)),
                coverage=coverage,
                unsized=tuple(row for c in by_rank.values() for row in c.unsized),
                source_format=source_format,
                system=_system(by_rank.values()),
            ),
        )
    )


def _system(captures: Iterable[RankCapture]) -> dict[str, object]:
    sizes = {c.world_size for c in captures if c.world_size is not None}
    if len(sizes) > 1:
        raise MergeError(f"the files disagree on the world size: {sorted(sizes)}", remedy="merge files of one job only")
    return {"world_size": sizes.pop()} if sizes else {}


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


def _expected(key: _Key, records: Sequence[Record]) -> int:
    """How many ranks take part in an event: both ends of a message, all members otherwise."""
    return 2 if key[2] == "p2p" else len(key[0])


def _match(captures: Sequence[RankCapture]) -> dict[_Key, list[Record]]:
    events: dict[_Key, list[Record]] = defaultdict(list)
    by_order: dict[tuple[tuple[int, ...], str | None], dict[int, int]] = defaultdict(dict)
    for c in captures:
        counts: dict[tuple[object, ...], int] = defaultdict(int)
        for r in c.records:
            where = (r.members, r.group)
            if r.sender is not None and r.receiver is not None:
                # both ends count the messages of one direction in the same order
                kind = (*where, r.sender, r.receiver, r.tag)
                key: _Key = ((r.sender, r.receiver, *r.members), r.group, "p2p", counts[kind])
                counts[kind] += 1
            elif r.sequence is not None:
                key = (*where, "sequence", r.sequence)
            else:
                key = (*where, "order", counts[where])
                counts[where] += 1
                by_order[where][c.rank] = counts[where]
            events[key].append(r)
    _check_counts(by_order, captures)
    return events


def _check_counts(by_order: Mapping[tuple[tuple[int, ...], str | None], Mapping[int, int]], captures: Sequence[RankCapture]) -> None:
    present = {c.rank for c in captures}
    problems = []
    for (members, group), counts in by_order.items():
        seen = {r: counts.get(r, 0) for r in members if r in present}
        if len(set(seen.values())) > 1:
            listed = ", ".join(f"rank {r}: {n}" for r, n in seen.items())
            problems.append(
                Problem(
                    f"group {group or 'unnamed'} has no sequence numbers and unequal operation counts ({listed})",
                    remedy="record with sequence numbers, or cut the files to the same window",
                )
            )
    if problems:
        raise MergeError(problems)


def _check_metadata(events: Mapping[_Key, list[Record]], by_rank: Mapping[int, RankCapture]) -> None:
    problems: list[Problem] = []
    for key, records in events.items():
        what = f"group {key[1] or 'unnamed'}, {'message' if key[2] == 'p2p' else 'operation'} {key[3]}"
        seen: set[int] = set()
        for r in records:
            if r.rank in seen:
                problems.append(
                    Problem(f"{what}: rank {r.rank} contributes twice", file=by_rank[r.rank].file, remedy="remove the duplicate record")
                )
            seen.add(r.rank)
        if len(records) > 1:
            problems += _conflicts(what, records, by_rank)
    if problems:
        raise MergeError(problems)


def _conflicts(what: str, records: Sequence[Record], by_rank: Mapping[int, RankCapture]) -> list[Problem]:
    first, problems = records[0], []
    for name in ("op", "dtype", "reduction", "root", "custom_op", "size_bytes"):
        if name == "size_bytes" and first.op == ALL_TO_ALL_V:
            continue  # each rank knows only its own row
        for r in records[1:]:
            a, b = getattr(first, name), getattr(r, name)
            if a != b:
                problems.append(
                    Problem(
                        f"{what}: rank {first.rank} says {name} {a}, rank {r.rank} says {b}",
                        file=by_rank[r.rank].file,
                        remedy="the files belong to different runs, or the job was out of step",
                    )
                )
                break
    measured = {r.duration_ns is not None for r in records}
    if len(measured) > 1:
        lacking = next(r.rank for r in records if r.duration_ns is None)
        problems.append(
            Problem(
                f"{what}: measured on some ranks and not on rank {lacking}",
                file=by_rank[lacking].file,
                remedy="a latency over a part of the ranks would be wrong; re-record, or leave that rank's file out",
            )
        )
    return problems


def _clocks(
    by_rank: Mapping[int, RankCapture], events: Mapping[_Key, list[Record]], offsets: Mapping[int, int] | None, align_ends: bool
) -> _Clocks:
    if offsets is not None:
        missing = sorted(set(by_rank) - set(offsets))
        if missing:
            raise MergeError(f"no clock offset for rank {missing[0]}", remedy="give one offset per rank")
        return _Clocks(dict(offsets), True, "clocks of the ranks calibrated by given offsets")
    domains = {c.clock for c in by_rank.values()}
    if align_ends:
        return _Clocks(
            _aligned_offsets(by_rank, events),
            True,
            "clocks of the ranks aligned at the ends of matched collectives (median): arrival skew is an estimate",
        )
    if len(domains) == 1:
        same_host = next(iter(domains)).startswith(_SAME_HOST)
        note = (
            None
            if same_host or len(by_rank) == 1
            else ("clocks of the ranks are not calibrated: arrival skew is unknown (--clock-offsets or --align-ends would make it known)")
        )
        return _Clocks(dict.fromkeys(by_rank, 0), same_host, note)
    return _Clocks(
        _aligned_offsets(by_rank, events),
        False,
        "ranks have different clocks: aligned at matched ends only to order the events; arrival skew is unknown",
    )


def _aligned_offsets(by_rank: Mapping[int, RankCapture], events: Mapping[_Key, list[Record]]) -> dict[int, int]:
    """Offsets that make the ends of shared events agree in the median, breadth first from the lowest rank."""
    ends: dict[int, dict[_Key, int]] = {r: {} for r in by_rank}
    for key, records in events.items():
        for r in records:
            if r.start_ns is not None:
                ends[r.rank][key] = r.start_ns + (r.duration_ns or 0)
    offsets: dict[int, int] = {}
    for root in by_rank:
        if root in offsets:
            continue
        offsets[root] = 0
        queue = [root]
        for reached in queue:
            for other in by_rank:
                if other not in offsets and (shared := ends[reached].keys() & ends[other].keys()):
                    offsets[other] = offsets[reached] + int(median(ends[reached][k] - ends[other][k] for k in shared))
                    queue.append(other)
    return offsets


def _assemble(events: Mapping[_Key, list[Record]], clocks: _Clocks, about: dict[str, object]) -> Trace:
    n = len(events)
    groups = GroupTable()
    rank_sets: dict[tuple[int, ...], int] = {}
    group = np.zeros(n, np.int32)
    observers = np.full(n, -1, np.int32)
    arrival_known = np.zeros(n, np.bool_)
    starts: list[int | None] = []
    overlaps: list[int | None] = []
    sizes: list[int] = []
    arrivals: list[list[int]] = []
    durations: list[list[int]] = []
    rank_starts: list[list[int]] = []
    splits: list[list[int]] = []
    firsts: list[Record] = []
    for i, records in enumerate(events.values()):
        records.sort(key=lambda r: r.rank)
        first = records[0]
        firsts.append(first)
        members = first.members
        if first.sender is not None and first.receiver is not None and first.sender != first.receiver:
            members = tuple(sorted((first.sender, first.receiver)))  # a message concerns its two ends only
        group[i] = groups.code(first.group, members)
        complete = len(records) == len(members)
        if not complete:
            observers[i] = rank_sets.setdefault(tuple(r.rank for r in records), len(rank_sets))
        times = [None if r.start_ns is None else r.start_ns + clocks.offset_ns[r.rank] for r in records]
        timed = [t for t in times if t is not None]
        known = bool(timed) and complete and len(timed) == len(members) and (clocks.calibrated or len(members) == 1)
        arrival_known[i] = known
        start = min(timed) if known else (timed[0] if timed else None)
        starts.append(start)
        arrivals.append([t - start for t in timed] if known and start is not None else [])
        rank_starts.append([] if known or not timed else [-1 if r.start_ns is None else r.start_ns for r in records])
        durations.append(
            [] if all(r.duration_ns is None for r in records) else [-1 if r.duration_ns is None else r.duration_ns for r in records]
        )
        overlap = [r.overlap_ns for r in records]
        # the rank that hides least decides: the others wait for it
        overlaps.append(None if None in overlap else min(overlap))  # type: ignore[type-var]
        sizes.append(max(r.size_bytes for r in records))
        splits.append([x for r in records for x in _split_row(r)] if first.op == ALL_TO_ALL_V else [])
    origin = min((s for s in starts if s is not None), default=0)
    return Trace.build(
        n,
        op=Coded.from_optional([r.op for r in firsts]),
        phase=Coded.from_optional([r.phase for r in firsts]),
        dtype=Coded.from_optional([r.dtype for r in firsts]),
        reduction=Coded.from_optional([r.reduction for r in firsts]),
        tag=Coded.from_optional([r.tag for r in firsts]),
        custom_op=np.array([r.custom_op or r.op == ALL_TO_ALL_V for r in firsts], np.bool_),
        group=group,
        groups=groups.groups,
        size_bytes=np.array(sizes, np.int64),
        root=Column.from_optional([r.root for r in firsts]),
        sender=Column.from_optional([r.sender for r in firsts]),
        receiver=Column.from_optional([r.receiver for r in firsts]),
        start_ns=Column.from_optional([None if s is None else s - origin for s in starts]),
        overlap_ns=Column.from_optional(overlaps),
        arrival_ns=Ragged.from_rows(arrivals),
        arrival_known=arrival_known,
        observers=observers,
        rank_sets=tuple(rank_sets),
        duration_ns=Ragged.from_rows(durations),
        rank_start_ns=Ragged.from_rows([[x if x < 0 else x - origin for x in row] for row in rank_starts]),
        splits=Ragged.from_rows(splits),
        **about,
    )


def _split_row(r: Record) -> list[int]:
    k = len(r.members)
    unknown = (-1,) * k
    sent, received = r.sent_splits or unknown, r.received_splits or unknown
    totals = [-1 if t is None else t for t in (r.sent_bytes, r.received_bytes)]
    return [*totals, *sent, *received]
