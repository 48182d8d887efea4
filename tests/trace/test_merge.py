"""Merging per-rank captures: what is matched, and what is refused because a value would have to be invented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import MergeError, TimingError
from commcanary_lab.trace import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.invariants import check_trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.trace.write_v1 import write_json

HOST = "monotonic@host"


def record(rank: int, start: int | None = 0, duration: int | None = 10, **change: Any) -> Record:
    fields: dict[str, Any] = {"op": "all_reduce", "size_bytes": 64, "members": (0, 1), "group": "dp", "dtype": "float32", "sequence": 0}
    return Record(rank=rank, start_ns=start, duration_ns=duration, **{**fields, **change})


def capture(rank: int, *records: Record, clock: str = HOST, **about: Any) -> RankCapture:
    coverage = ImportCoverage(len(records), len(records), {}, (rank,), (f"rank{rank}.json",))
    return RankCapture(rank, list(records), f"rank{rank}.json", clock, **{"coverage": coverage, **about})


def merge(*captures: RankCapture, **options: Any) -> Trace:
    return merge_captures(captures, source_format="test", **options)


def message(rank: int, sender: int, receiver: int, **change: Any) -> Record:
    return record(rank, **{"op": "point_to_point", "sender": sender, "receiver": receiver, "sequence": None, "reduction": None, **change})


def refused(*captures: RankCapture, **options: Any) -> list[str]:
    with pytest.raises(MergeError) as e:
        merge(*captures, **options)
    return [str(p) for p in e.value.problems]


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_two_ranks_make_one_event() -> None:
    t = merge(capture(0, record(0, 100, 50)), capture(1, record(1, 130, 20)))
    assert (len(t), t.record_count, t.ranks, t.source_format) == (1, 2, (0, 1), "test")
    assert t.arrival_ns.row(0).tolist() == [0, 30]
    assert t.duration_ns.row(0).tolist() == [50, 20]
    assert (t.observers[0], t.start_ns.values.tolist(), t.groups[0].name) == (-1, [0], "dp")
    assert t.coverage == ImportCoverage(2, 2, {}, (0, 1), ("rank0.json", "rank1.json"))


def test_one_rank_of_two() -> None:
    t = merge(capture(0, record(0, 100)))
    assert t.observers_of(0) == (0,)
    assert t.unknown_fields["skew_us"] == 1
    assert t.rank_start_ns.row(0).tolist() == [0]


def test_a_group_of_one_rank_has_no_skew_whatever_its_clock() -> None:
    t = merge(capture(3, record(3, members=(3,)), clock="unix"))
    assert t.skew_ns.mask.tolist() == [True]


def test_sequence_numbers_match_where_a_capture_starts_late() -> None:
    rank0 = capture(0, *(record(0, i * 100, sequence=i, size_bytes=8 + i) for i in range(3)))
    rank1 = capture(1, *(record(1, i * 100, sequence=i, size_bytes=8 + i) for i in range(1, 3)))
    t = merge(rank0, rank1)
    assert [t.observers_of(i) for i in range(3)] == [(0,), (0, 1), (0, 1)]
    assert "1 of 3 events are not reported by every member; their arrival skew is unknown" in t.notes
    assert t.arrival_known.tolist() == [False, True, True]


def test_the_rank_that_hides_least_decides_about_overlap() -> None:
    t = merge(capture(0, record(0, overlap_ns=9)), capture(1, record(1, overlap_ns=4)))
    assert t.overlap_ns.values.tolist() == [4]
    t = merge(capture(0, record(0, overlap_ns=9)), capture(1, record(1)))
    assert not t.overlap_ns.mask.any()


def test_uneven_exchange_keeps_each_rank_s_row() -> None:
    rows = [record(r, op="all_to_all_v", size_bytes=b, sent_splits=s, received_splits=v, sent_bytes=sum(s), received_bytes=sum(v))
            for r, b, s, v in ((0, 7, (4, 3), (4, 1)), (1, 9, (1, 8), (3, 8)))]  # fmt: skip
    t = merge(capture(0, rows[0]), capture(1, rows[1]))
    assert (t.size_bytes.tolist(), t.custom_op.tolist()) == ([9], [True])
    assert t.splits.row(0).tolist() == [7, 5, 4, 3, 4, 1, 9, 11, 1, 8, 3, 8]


def test_unknown_splits_are_marked_not_divided() -> None:
    t = merge(capture(0, record(0, op="all_to_all_v", sent_bytes=200)))
    assert t.splits.row(0).tolist() == [200, -1, -1, -1, -1, -1]


def test_what_one_rank_does_not_know_contradicts_nothing() -> None:
    t = merge(capture(0, record(0, op="broadcast", root=None, dtype=None)), capture(1, record(1, op="broadcast", root=1, dtype="int8")))
    assert (t.root.values.tolist(), t.dtype.to_list()) == ([1], ["int8"])


def test_unsized_rows_warnings_notes_and_world_size_are_kept() -> None:
    row = UnsizedRow("ncclKernel", 40, "no metadata", 0)
    t = merge(capture(0, record(0), unsized=(row,), notes=("n",), warnings=("w",), world_size=4),
              capture(1, record(1), notes=("n",), world_size=4))  # fmt: skip
    assert (t.unsized, t.warnings, t.system) == ((row,), ("w",), {"world_size": 4})
    assert t.notes.count("n") == 1


# -- messages ---------------------------------------------------------------------------------------------------------


def test_both_ends_of_a_message_are_one_event() -> None:
    t = merge(capture(0, message(0, 0, 1, op="send")), capture(1, message(1, 0, 1, op="recv")))
    assert (t.op.to_list(), t.sender.values.tolist(), t.receiver.values.tolist(), t.record_count) == (["point_to_point"], [0], [1], 2)


def test_a_message_in_a_larger_group_concerns_its_two_ends() -> None:
    t = merge(capture(2, message(2, 5, 2, members=(0, 2, 5))), capture(5, message(5, 5, 2, members=(0, 2, 5))))
    assert (t.groups[0].members, t.groups[0].name, t.observers.tolist()) == ((2, 5), "dp", [-1])


def test_one_end_only() -> None:
    t = merge(capture(0, message(0, 0, 1, op="send")))
    assert (t.op.to_list(), t.groups[0].members, t.observers_of(0)) == (["point_to_point"], (0, 1), (0,))


def test_tags_and_directions_are_counted_apart() -> None:
    rank0 = [message(0, 0, 1, tag="a", size_bytes=1), message(0, 0, 1, tag="b", size_bytes=2), message(0, 1, 0, size_bytes=3)]
    rank1 = [message(1, 1, 0, size_bytes=3), message(1, 0, 1, tag="b", size_bytes=2), message(1, 0, 1, tag="a", size_bytes=1)]
    t = merge(capture(0, *rank0), capture(1, *rank1))
    assert sorted(zip(t.size_bytes.tolist(), t.tag.to_list(), strict=True), key=str) == [(1, "a"), (2, "b"), (3, None)]
    assert t.record_count == 6


def test_a_message_to_oneself_is_a_group_of_one() -> None:
    t = merge(capture(1, message(1, 1, 1, members=(0, 1))))
    assert (t.groups[0].members, t.observers.tolist(), t.skew_ns.mask.tolist()) == ((1,), [-1], [True])


def test_unequal_message_counts_are_refused() -> None:
    (what,) = refused(capture(0, message(0, 0, 1), message(0, 0, 1)), capture(1, message(1, 0, 1)))
    assert what == (
        "group dp has no sequence numbers and unequal message (rank 0 to rank 1) counts (rank 0: 2, rank 1: 1); "
        "record with sequence numbers, or cut the files to the same window"
    )


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_two_files_for_one_rank() -> None:
    (what,) = refused(capture(0, record(0)), replace(capture(0, record(0)), file="other.json"))
    assert what == (
        "other.json: rank0.json and other.json both claim rank 0; keep one file per rank, or name the ranks of the files explicitly"
    )


def test_a_rank_that_contributes_twice() -> None:
    assert refused(capture(0, record(0), record(0)), capture(1, record(1))) == [
        "rank0.json: group dp, sequence number 0: rank 0 contributes twice; remove the duplicate record"
    ]


def test_a_rank_that_is_not_a_member() -> None:
    assert refused(capture(4, record(4))) == [
        "rank4.json: group dp, sequence number 0: rank 4 is not a member; check the ranks of the files"
    ]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("op", "all_gather", "op all_reduce"), ("dtype", "int8", "dtype float32"), ("reduction", "max", "reduction sum"),
     ("root", 1, "root 0"), ("size_bytes", 65, "size_bytes 64"), ("custom_op", True, "custom_op False")],
)  # fmt: skip
def test_conflicting_metadata(name: str, value: Any, said: str) -> None:
    base = {"reduction": "sum", "root": 0}
    assert refused(capture(0, record(0, **base)), capture(1, record(1, **{**base, name: value}))) == [
        f"rank1.json: group dp, sequence number 0: rank 0 says {said}, rank 1 says {value}; "
        "the files belong to different runs, or the job was out of step"
    ]


def test_every_conflict_is_listed() -> None:
    wrong = [record(1, i, sequence=i, size_bytes=1, dtype="int8") for i in range(15)]
    with pytest.raises(MergeError) as e:
        merge(capture(0, *(record(0, i, sequence=i) for i in range(15))), capture(1, *wrong))
    assert len(e.value.problems) == 30
    assert str(e.value).splitlines()[-1] == "... and 10 more"


def test_partially_measured_latency() -> None:
    assert refused(capture(0, record(0)), capture(1, record(1, duration=None))) == [
        "rank1.json: group dp, sequence number 0: measured on some ranks and not on rank 1; "
        "a latency over a part of the ranks would be wrong; re-record, or leave that rank's file out"
    ]


def test_unequal_counts_without_sequence_numbers() -> None:
    rank0 = capture(0, record(0, 0, sequence=None), record(0, 5, sequence=None))
    assert refused(rank0, capture(1, record(1, sequence=None)), capture(2)) == [
        "group dp has no sequence numbers and unequal operation counts (rank 0: 2, rank 1: 1); "
        "record with sequence numbers, or cut the files to the same window"
    ]
    assert len(merge(rank0)) == 2  # alone there is nothing to match
    assert refused(rank0, capture(1)) != []


def test_splits_of_the_wrong_length() -> None:
    (what,) = refused(capture(0, record(0, op="all_to_all_v", sent_splits=(1, 2, 3))))
    assert "splits are not one per member (2)" in what


def test_world_sizes_that_differ() -> None:
    assert refused(capture(0, record(0), world_size=2), capture(1, record(1), world_size=4)) == [
        "the files disagree on the world size: [2, 4]; merge files of one job only"
    ]


def test_starts_on_some_events_only() -> None:
    with pytest.raises(TimingError, match="some events have start_us"):
        merge(capture(0, record(0, sequence=0), record(0, None, sequence=1)))


# -- clocks -----------------------------------------------------------------------------------------------------------


def two_hosts(**options: Any) -> Trace:
    """Rank 1's clock is 10**18 ns ahead; it enters 30 ns later and both leave at the same time."""
    rank0 = [record(0, 100 + 1000 * i, 50, sequence=i) for i in range(4)]
    rank1 = [record(1, 10**18 + 130 + 1000 * i, 20, sequence=i) for i in range(4)]
    return merge(capture(0, *rank0, clock="monotonic@a"), capture(1, *rank1, clock="monotonic@b"), **options)


def test_different_hosts_order_events_but_skew_is_unknown() -> None:
    t = two_hosts()
    assert not t.arrival_known.any()
    assert t.start_ns.values.tolist() == [0, 1000, 2000, 3000]
    assert "ranks have different clocks: aligned at matched ends only to order the events; arrival skew between them is unknown" in t.notes
    assert t.rank_start_ns.row(1).tolist() == [1000, 1000]  # each from the rank's own first start


def test_given_offsets_calibrate() -> None:
    t = two_hosts(clock_offsets_ns={0: 0, 1: -(10**18)})
    assert t.skew_ns.values.tolist() == [30] * 4
    assert "clocks of the ranks calibrated by given offsets" in t.notes


def test_aligned_ends_calibrate_exactly_across_epochs() -> None:
    t = two_hosts(align_ends=True)
    assert t.skew_ns.values.tolist() == [30] * 4  # float64 would be off by up to 64 ns at 10**18
    assert any(note.startswith("clocks of the ranks aligned at the ends of matched collectives") for note in t.notes)


def test_one_shared_clock_that_is_not_a_host_s_monotonic_clock() -> None:
    t = merge(capture(0, record(0, 100), clock="unix"), capture(1, record(1, 70), clock="unix"))
    assert not t.arrival_known.any()
    assert any("--clock-offsets or --align-ends would make it known" in note for note in t.notes)
    assert t.rank_start_ns.row(0).tolist() == [30, 0]  # rank 1 was first; no start is negative
    assert merge(capture(0, record(0), clock="unix")).notes == ()


def test_alignment_goes_through_common_ranks() -> None:
    """Ranks 0 and 2 share nothing; both share a group with rank 1."""
    ab = [record(r, s, 10, members=(0, 1), group="ab") for r, s in ((0, 100), (1, 5100))]
    bc = [record(r, s, 10, members=(1, 2), group="bc") for r, s in ((1, 5200), (2, 90_200))]
    t = merge(capture(0, ab[0], clock="a"), capture(1, ab[1], bc[0], clock="b"), capture(2, bc[1], clock="c"))
    assert t.start_ns.values.tolist() == [0, 100]
    assert not any("sets of ranks" in note for note in t.notes)


def test_ranks_that_share_nothing_are_named() -> None:
    captures = [capture(r, record(r, 10**17 * r, members=(r,)), clock=f"host {r}") for r in range(3)]
    t = merge(*captures)
    assert t.start_ns.values.tolist() == [0, 0, 0]
    assert "3 sets of ranks share neither a collective nor a clock: each starts at 0, their relative order is not known" in t.notes


def test_ranks_of_one_host_have_skew_although_other_hosts_are_not_calibrated() -> None:
    def rank(r: int, late: int, host: int) -> RankCapture:
        start = 10**17 * host + late
        node = record(r, start, 10, members=(2 * host, 2 * host + 1), group="tp")
        world = record(r, start + 100, 10, members=(0, 1, 2, 3), group="world", sequence=1)
        return capture(r, node, world, clock=f"monotonic@{host}")

    t = merge(rank(0, 0, 0), rank(1, 7, 0), rank(2, 3, 1), rank(3, 0, 1))
    known = {t.groups[g].members: (int(skew) if ok else None)
             for g, skew, ok in zip(t.group.tolist(), t.skew_ns.values.tolist(), t.skew_ns.mask.tolist(), strict=True)}  # fmt: skip
    assert known == {(0, 1): 7, (2, 3): 3, (0, 1, 2, 3): None}


def test_ranks_on_one_clock_keep_its_relation_where_no_event_connects_them() -> None:
    pair = [record(r, s, 10) for r, s in ((0, 100), (1, 140))]
    alone = capture(2, record(2, 500, members=(2,)), clock="unix")
    t = merge(capture(0, pair[0], clock="unix"), capture(1, pair[1], clock="unix"), alone, align_ends=True)
    assert t.start_ns.values.tolist() == [0, 400]
    assert t.skew_ns.values.tolist() == [0, 0]
    assert not any("sets of ranks" in note for note in t.notes)


def test_calibration_options_that_cannot_work() -> None:
    pair = capture(0, record(0)), capture(1, record(1))
    assert refused(*pair, clock_offsets_ns={0: 0}) == ["no clock offset for rank 1; give one offset per rank"]
    assert refused(*pair, clock_offsets_ns={0: 0, 1: 0}, align_ends=True) == [
        "clock offsets and end alignment exclude each other; give one of the two"
    ]
    unmeasured = capture(0, record(0, duration=None)), capture(1, record(1, duration=None))
    assert refused(*unmeasured, align_ends=True) == [
        "no two ranks share a collective whose end was measured on both; give the clock offsets instead"
    ]


# -- order ------------------------------------------------------------------------------------------------------------


def test_untimed_events_keep_every_rank_s_order() -> None:
    def untimed(rank: int, *groups: str) -> RankCapture:
        members = {"ab": (0, 1), "bc": (1, 2), "b": (1,)}
        return capture(rank, *(record(rank, None, None, group=g, members=members[g]) for g in groups))

    t = merge(untimed(0, "ab"), untimed(1, "bc", "b", "ab"), untimed(2, "bc"))
    assert [t.groups[g].name for g in t.group.tolist()] == ["bc", "b", "ab"]


def test_ranks_that_contradict_each_other_about_order_are_noted() -> None:
    records = [[record(r, None, None, group=g) for g in order] for r, order in ((0, "xy"), (1, "yx"))]
    t = merge(capture(0, *records[0]), capture(1, *records[1]))
    assert [t.groups[g].name for g in t.group.tolist()] == ["x", "y"]
    assert "the ranks contradict each other about the order of 1 of 2 events; the lowest rank's order is kept" in t.notes


@st.composite
def jobs(draw: st.DrawFn) -> Sequence[RankCapture]:
    """A small job: a sequence of collectives over groups of three ranks, each with times or without."""
    timed = draw(st.booleans())
    groups = st.sampled_from([("dp", (0, 1, 2)), ("tp", (0, 1)), ("pp", (1, 2)), (None, (2,))])
    events = draw(st.lists(st.tuples(groups, st.integers(0, 500), st.sampled_from([8, 64])), min_size=1, max_size=8))
    rows: dict[int, list[Record]] = {0: [], 1: [], 2: []}
    clock = [0, 0, 0]
    for i, ((name, members), late, size) in enumerate(events):
        for rank in members:
            clock[rank] += 1000 + (late if rank == members[0] else 0)
            start = clock[rank] if timed else None
            rows[rank].append(record(rank, start, 5 if timed else None, group=name, members=members, size_bytes=size, sequence=i))
    return [capture(rank, *records) for rank, records in rows.items()]


@given(jobs(), st.randoms(use_true_random=False))
def test_merge_order_does_not_matter(captures: Sequence[RankCapture], random: Any) -> None:
    shuffled = list(captures)
    random.shuffle(shuffled)
    assert merge(*captures).first_difference(merge(*shuffled)) is None


@given(captures=jobs(), clocks=st.sampled_from([HOST, "unix", "apart"]))
def test_what_was_merged_can_be_written_and_read(captures: Sequence[RankCapture], clocks: str, folder: Path) -> None:
    apart = [replace(c, clock=f"host {c.rank}", records=[_late(r, 10**18 * c.rank) for r in c.records]) for c in captures]
    t = merge(*(apart if clocks == "apart" else [replace(c, clock=clocks) for c in captures]))
    check_trace(t)
    write_json(t, folder / "t.json")
    assert read_json(folder / "t.json").first_difference(t) is None


def _late(r: Record, by: int) -> Record:
    return r if r.start_ns is None else replace(r, start_ns=r.start_ns + by)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("merged")


@given(jobs())
def test_every_record_is_in_the_trace_once(captures: Sequence[RankCapture]) -> None:
    t = merge(*captures)
    assert t.record_count == sum(len(c.records) for c in captures)
    assert int((t.size_bytes * t.observer_counts).sum()) == sum(r.size_bytes for c in captures for r in c.records)


@given(jobs())
def test_each_rank_s_order_holds_without_times(captures: Sequence[RankCapture]) -> None:
    untimed = [replace(c, records=[replace(r, start_ns=None, duration_ns=None) for r in c.records]) for c in captures]
    t = merge(*untimed)
    for c in untimed:
        mine = [i for i in range(len(t)) if c.rank in t.observers_of(i)]
        assert [(t.groups[t.group[i]].name, int(t.size_bytes[i])) for i in mine] == [(r.group, r.size_bytes) for r in c.records]
