"""The merge on columns makes the trace that the merge of records makes, and refuses what it refuses."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import MergeError
from commcanary_lab.trace.groups import ProcessGroup
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.merge_columns import Origin, merge_columns
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import first_rows, number_rows, positions
from commcanary_lab.trace.order import order_by_ranks, order_rows
from commcanary_lab.trace.record_columns import RecordColumns
from commcanary_lab.trace.records import RankCapture, Record

GROUPS = (ProcessGroup("tp", (0, 1)), ProcessGroup("dp", (0, 2, 3)), ProcessGroup(None, (0, 1, 2, 3)), ProcessGroup("one", (2,)))
OPS = ("all_reduce", "all_gather", "point_to_point")


def captures(seed: int, faults: bool) -> list[RankCapture]:
    """Records of four ranks: collectives in four groups, messages, with or without times, some of them lost."""
    rng = random.Random(seed)
    timed, measured = rng.random() < 0.6, rng.random() < 0.6
    loss = rng.choice([0.0, 0.0, 0.3])
    clock = rng.choice(["unix", "monotonic@host"])
    rows: dict[int, list[Record]] = {rank: [] for rank in rng.sample(range(4), rng.randint(1, 4))}
    numbers: Counter[int] = Counter()
    for step in range(rng.randint(1, 12)):
        g = rng.randrange(len(GROUPS))
        group, base = GROUPS[g], 10_000 * step + rng.randrange(50)
        duration = rng.randrange(100) if measured else None
        if rng.random() < 0.3 and group.size > 1:
            src, dst = rng.sample(group.members, 2)
            for rank, op in ((src, "send"), (dst, "recv")):
                if rank in rows:
                    start = base + rng.randrange(40) if timed else None
                    rows[rank].append(Record(rank, op, 64 + src, group.members, group.name, sender=src, receiver=dst, start_ns=start,
                                             duration_ns=duration))  # fmt: skip
            continue
        numbers[g] += 1
        op, size = rng.choice(OPS[:2]), 8 * rng.randint(0, 3)
        for rank in group.members:
            if rank in rows and rng.random() >= loss:
                start = base + rng.randrange(40) if timed else None
                rows[rank].append(Record(rank, op, size, group.members, group.name, sequence=numbers[g], start_ns=start,
                                         duration_ns=duration))  # fmt: skip
    if rng.random() < 0.3:  # some rank's order contradicts the others'
        rng.shuffle(rows[rng.choice(list(rows))])
    if faults:
        _break(rng, [r for r in rows.values() if r])
    return [RankCapture(rank, records, f"rank{rank}", clock) for rank, records in rows.items()]


def _break(rng: random.Random, filled: list[list[Record]]) -> None:
    if not filled:
        return
    records = rng.choice(filled)
    i = rng.randrange(len(records))
    what = rng.choice(["twice", "size", "time", "lost"])
    if what == "twice":
        records.append(records[i])
    elif what == "size":
        records[i] = replace(records[i], size_bytes=records[i].size_bytes + 8)
    elif what == "time":
        records[i] = replace(records[i], duration_ns=None if records[i].duration_ns is not None else 5)
    else:
        del records[i]


def columns(found: list[RankCapture]) -> tuple[RecordColumns, Origin]:
    rows = [r for c in found for r in c.records]
    group = [next(i for i, g in enumerate(GROUPS) if g.members == r.members) for r in rows]
    op = [OPS.index("point_to_point" if r.sender is not None else r.op) for r in rows]

    def ints(items: list[int | None]) -> np.ndarray:
        return np.array([-1 if x is None else x for x in items], np.int64)

    return (
        RecordColumns(
            ints([r.rank for r in rows]), ints(group), ints(op), ints([r.size_bytes for r in rows]), ints([r.sequence for r in rows]),
            ints([r.sender for r in rows]), ints([r.receiver for r in rows]), ints([r.start_ns for r in rows]),
            ints([r.duration_ns for r in rows]), GROUPS, OPS,
        ),
        Origin("test", {c.rank: c.file for c in found}, found[0].clock),
    )  # fmt: skip


def outcome(make: object, *args: object, **options: object) -> Trace | str:
    try:
        return make(*args, **options)  # type: ignore[operator,no-any-return]
    except MergeError as e:
        return type(e).__name__


@pytest.mark.parametrize("faults", [False, True], ids=["sound", "broken"])
@given(seed=st.integers(0, 1 << 30), how=st.sampled_from(["plain", "offsets", "align"]))
def test_both_merges_agree(faults: bool, seed: int, how: str) -> None:
    found = captures(seed, faults)
    options: dict[str, object] = {}
    if how == "offsets":
        options = {"clock_offsets_ns": {c.rank: 7 * c.rank for c in found}}
    elif how == "align":
        options = {"align_ends": True}
    one = outcome(merge_captures, found, source_format="test", **options)
    two = outcome(merge_columns, *columns(found), **options)
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
    else:
        assert one.first_difference(two) is None


def test_the_broken_captures_are_refused_often() -> None:
    """Otherwise the test above would compare nothing."""
    refused = [isinstance(outcome(merge_columns, *columns(captures(seed, True))), str) for seed in range(200)]
    assert 40 < sum(refused) < 180


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: replace(r, size_bytes=8), "group tp, sequence number 1: rank 0 says size_bytes 64, rank 1 says 8"),
        (lambda r: replace(r, op="all_gather"), "group tp, sequence number 1: rank 0 says op all_reduce, rank 1 says all_gather"),
        (lambda r: replace(r, duration_ns=None), "group tp, sequence number 1: measured on some ranks and not on rank 1"),
    ],
    ids=["size", "op", "time"],
)
def test_messages_are_those_of_the_other_merge(change: object, message: str) -> None:
    rows = [Record(rank, "all_reduce", 64, (0, 1), "tp", sequence=1, duration_ns=5) for rank in (0, 1)]
    found = [RankCapture(0, [rows[0]], "a", "unix"), RankCapture(1, [change(rows[1])], "b", "unix")]  # type: ignore[operator]
    for merge in (lambda: merge_captures(found, source_format="test"), lambda: merge_columns(*columns(found))):
        with pytest.raises(MergeError) as e:
            merge()
        assert message in str(e.value)
        assert "b: " in str(e.value)


def lossy(rows: list[Record], **options: object) -> Trace:
    found = [RankCapture(rank, [r for r in rows if r.rank == rank], f"rank{rank}", "unix") for rank in sorted({r.rank for r in rows})]
    return merge_columns(*columns(found), lossy=True, **options)  # type: ignore[arg-type]


def test_lossy_messages_pair_by_size() -> None:
    def message(rank: int, size: int) -> Record:
        return Record(rank, "send" if rank == 0 else "recv", size, (0, 1), "tp", sender=0, receiver=1)

    trace = lossy([message(0, 8), message(0, 16), message(0, 8), message(1, 16), message(1, 32)])
    seen = sorted((int(s), trace.observers_of(i)) for i, s in enumerate(trace.size_bytes))
    assert seen == [(8, (0,)), (8, (0,)), (16, (0, 1)), (32, (1,))]


def test_lossy_times() -> None:
    def record(rank: int, sequence: int, start: int | None, duration: int | None) -> Record:
        return Record(rank, "all_reduce", 8, (0, 1), "tp", sequence=sequence, start_ns=start, duration_ns=duration)

    trace = lossy([record(0, 1, 5, 3), record(1, 1, 6, None), record(0, 2, None, 4), record(1, 2, None, 5)])
    assert trace.duration_max_ns.mask.tolist() == [False, True]
    assert trace.start_ns.none_known
    assert any("1 of 2 events are measured on a part of their ranks" in n for n in trace.notes)
    assert any("1 of 2 events have no start" in n for n in trace.notes)


@given(st.lists(st.lists(st.integers(0, 9), unique=True, max_size=9), min_size=1, max_size=5))
def test_order_on_arrays_is_the_order_of_sequences(sequences: list[list[int]]) -> None:
    used = sorted({e for s in sequences for e in s})
    renamed = [[used.index(e) for e in s] for s in sequences]
    order, forced = order_by_ranks(renamed)
    rank = np.array([r for r, s in enumerate(renamed) for _ in s], np.int64)
    event = np.array([e for s in renamed for e in s], np.int64)
    place, also_forced = order_rows(rank, event, len(used))
    assert np.argsort(place).tolist() == order
    assert also_forced == forced


@given(st.lists(st.lists(st.integers(0, 11), unique=True, max_size=9), min_size=1, max_size=4))
def test_order_within_lanes(sequences: list[list[int]]) -> None:
    """Lanes (event modulo 3, ascending in every rank) keep their order, whatever the ranks say about different lanes."""
    used = sorted({e for s in sequences for e in s})
    lanes = [[sorted(e for e in s if e % 3 == lane) for lane in range(3)] for s in sequences]
    mixed = [[lanes[r][e % 3].pop(0) for e in s] for r, s in enumerate(sequences)]
    rank = np.array([r for r, s in enumerate(mixed) for _ in s], np.int64)
    event = np.array([e for s in mixed for e in s], np.int64)
    place, forced = order_rows(rank, np.searchsorted(used, event), len(used), event % 3)
    assert forced == 0
    order = [used[i] for i in np.argsort(place).tolist()]
    assert sorted(order) == used
    for row in mixed:
        for lane in range(3):
            own = [e for e in row if e % 3 == lane]
            assert [e for e in order if e in own] == own


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-3, 3), st.integers(0, 1 << 40)), max_size=30))
def test_numbering(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int64).reshape(-1, 3)
    codes, count = number_rows(*table.T)
    distinct = sorted(set(rows))
    assert [distinct[c] for c in codes.tolist()] == rows
    assert count == len(distinct)
    assert first_rows(codes, count).tolist() == [rows.index(d) for d in distinct]
    assert positions(codes).tolist() == [rows[:i].count(r) for i, r in enumerate(rows)]
