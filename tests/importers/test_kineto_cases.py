"""The kineto rows of cases.tsv, one test each: what users reported, and what a correct tool does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commcanary_lab.errors import FormatError
from commcanary_lab.importers import kineto
from commcanary_lab.trace.model import Trace

CASES = Path(__file__).parent.parent / "data" / "cases"


def read(*names: str, **options: object) -> Trace:
    return kineto.read([CASES / n for n in names], **options)  # type: ignore[arg-type]


def only(trace: Trace) -> tuple[str, int, tuple[int, ...]]:
    assert len(trace) == 1
    return trace.op.text(0), int(trace.size_bytes[0]), trace.groups[trace.group[0]].members


def split_row(trace: Trace, event: int = 0) -> tuple[int, int, list[int], list[int]]:
    row = trace.splits.row(event).tolist()
    k = (len(row) - 2) // 2
    return row[0], row[1], row[2 : 2 + k], row[2 + k :]


def test_P01_cut_rank_list_is_completed_from_pg_config() -> None:
    trace = read("P01__rank0.json")
    assert only(trace) == ("all_reduce", 8192, tuple(range(64)))
    assert any("distributedInfo.pg_config" in n for n in trace.notes)
    assert trace.coverage.used == trace.coverage.read == 1


def test_P02_cut_split_list_leaves_the_hidden_part_unknown() -> None:
    trace = read("P02__rank0.json")
    assert only(trace) == ("all_to_all_v", 5120, tuple(range(40)))
    sent_bytes, received_bytes, sent, received = split_row(trace)
    assert (sent_bytes, received_bytes) == (5120, 5120)
    assert sent == received == [128] * 30 + [-1] * 10
    known = sum(v for v in sent if v >= 0)
    assert known == 3840
    assert sent[0] == 128
    assert sent_bytes - known == 1280
    assert any("unknown division" in n for n in trace.notes)


def test_P03_uneven_all_to_all_keeps_both_rows() -> None:
    sent_bytes, received_bytes, sent, received = split_row(read("P03__rank0.json"))
    assert sent == [44, 48, 52, 56]
    assert received == [44, 40, 48, 52]
    assert sum(sent[1:]) == 156
    assert sum(received[1:]) == 140
    assert (sent_bytes, received_bytes) == (200, 184)


def test_P04_uneven_without_splits_is_not_divided() -> None:
    trace = read("P04__rank0.json")
    assert only(trace)[:2] == ("all_to_all_v", 200)
    sent_bytes, received_bytes, sent, received = split_row(trace)
    assert (sent_bytes, received_bytes) == (200, 184)
    assert sent == received == [-1] * 4


def test_P05_kernel_joins_its_record_and_the_unknown_one_is_listed() -> None:
    trace = read("P05__rank0.json")
    assert only(trace) == ("all_reduce", 4096, (0, 1))
    assert trace.duration_max_ns.values.tolist() == [30_000]
    assert [(u.time_ns, u.size_bytes, u.name.split("(")[0]) for u in trace.unsized] == [(40_000, None, "ncclDevKernel_AllGather_RING_LL")]
    assert (trace.coverage.used, trace.coverage.read) == (1, 2)
    assert int(trace.duration_max_ns.values.sum()) + sum(u.time_ns for u in trace.unsized) == 70_000
    assert kineto.time_shares(CASES / "P05__rank0.json").comm_us == 70.0


def test_P06_batched_messages_and_their_one_kernel() -> None:
    trace = read("P06__rank0.json")
    messages = [
        (trace.op.text(i), int(trace.sender.values[i]), int(trace.receiver.values[i]), int(trace.size_bytes[i])) for i in range(len(trace))
    ]
    assert messages == [("point_to_point", 0, 1, 4096), ("point_to_point", 1, 0, 4096)]
    assert trace.unsized == ()
    assert trace.coverage.read == trace.coverage.used == 2
    known = trace.duration_max_ns
    assert int(known.values[known.mask].sum()) == 25_000  # once, not per message
    assert any("batch" in n for n in trace.notes)


def test_P07_old_and_new_kernel_names_are_communication() -> None:
    shares = kineto.time_shares(CASES / "P07__rank0.json")
    assert (shares.comm_us, shares.compute_us, shares.overlap_us, shares.overlap_share) == (20.0, 20.0, 10.0, 0.5)


def test_P08_rank_missing() -> None:
    with pytest.raises(FormatError) as e:
        kineto.read_rank(CASES / "P08__trace.json")
    text = str(e.value)
    assert "distributedInfo.rank" in text
    assert "rank=N" in text
    assert "\n" not in text
    assert "P08__trace.json" in text
    trace = read("P08__trace.json")
    assert only(trace) == ("all_reduce", 1024, (0, 1))
    assert any("taken as rank 0" in w for w in trace.warnings)
    assert kineto.read_rank(CASES / "P08__trace.json", rank=1).records[0].rank == 1
    assert read("P08__trace.json", ranks={"P08__trace.json": 1}).warnings == ()
    with pytest.raises(FormatError, match=r"distributedInfo\.rank is missing"):
        read("P08__trace.json", "P01__rank0.json")


def test_P09_bare_inf_is_repaired_with_its_line() -> None:
    trace = read("P09__trace.json")
    assert only(trace) == ("all_reduce", 32, (0, 1))
    assert any("line 2" in w and "bare inf" in w for w in trace.warnings)
    with pytest.raises(FormatError, match=r"P09__trace\.json: line 2"):
        kineto.read_rank(CASES / "P09__trace.json", salvage=False)


def test_P10_control_character_and_bad_utf8() -> None:
    trace = read("P10__trace.json")
    assert only(trace) == ("all_reduce", 32, (0, 1))
    assert any("not UTF-8" in w and "line 2" in w for w in trace.warnings)
    assert any("control character" in w for w in trace.warnings)


def test_P11_windows_backslashes() -> None:
    trace = read("P11__trace.json")
    assert only(trace) == ("broadcast", 32, (0, 1))
    assert trace.coverage.ranks == (1,)
    assert not trace.root.mask.any()
    assert any("line 2" in w and "backslash" in w for w in trace.warnings)


def test_P12_bare_list_without_collectives() -> None:
    assert kineto.recognise((CASES / "P12__trace.json").read_bytes())
    trace = read("P12__trace.json")
    assert len(trace) == 0
    assert trace.unsized == ()
    assert any("no communication metadata" in n for n in trace.notes)


def test_P13_relative_and_absolute_times() -> None:
    trace = read("P13/rank0_relative.json", "P13/rank1_absolute.json")
    assert only(trace) == ("all_reduce", 64, (0, 1))
    first, second = trace.rank_start_ns.row(0).tolist()
    assert second - first == 5_000
    assert not trace.arrival_known.any()  # two hosts, no calibration: a difference of starts is no skew
    absolute = kineto.read_rank(CASES / "P13/rank1_absolute.json")
    assert absolute.records[0].start_ns == 1711964646001005250
    assert absolute.clock == "unix"
    assert any("250 ns" in n for n in absolute.notes)
    assert kineto.read_rank(CASES / "P13/rank0_relative.json").records[0].start_ns == 1711964646001000250


def test_P14_negative_duration_counts_bytes_but_no_time() -> None:
    trace = read("P14__rank0.json")
    assert trace.size_bytes.tolist() == [64, 64]
    known = trace.duration_max_ns
    assert known.mask.tolist() == [False, True]
    assert int(known.values[1]) == 5_000
    assert any("External id 108" in w and "negative" in w for w in trace.warnings)


def test_P15_waits_are_no_collectives() -> None:
    trace = read("P15__rank0.json")
    assert [(trace.op.text(i), int(trace.size_bytes[i])) for i in range(len(trace))] == [("all_reduce", 4096), ("barrier", 0)]
    assert {trace.groups[g].members for g in trace.group.tolist()} == {tuple(range(8))}
    assert all(g.size == 8 for g in trace.groups)
    assert sum(trace.coverage.skipped.values()) == 2
    assert trace.unsized == ()


def test_P16_ranks_match_by_sequence_not_by_position() -> None:
    trace = read("P16/rank0.json", "P16/rank1.json")
    seen = {int(trace.size_bytes[i]): trace.observers_of(i) for i in range(len(trace))}
    assert seen == {40: (0,), 80: (0, 1), 120: (0, 1)}
    assert trace.warnings == ()
    assert any("1 of 3 events are not reported by every member" in n for n in trace.notes)
