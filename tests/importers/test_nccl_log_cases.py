"""The NCCL log rows of cases.tsv, one test each: what users reported, and what a correct tool does with it."""

from __future__ import annotations

import math
from pathlib import Path

from commcanary_lab.importers import nccl_log
from commcanary_lab.importers.nccl_log import NcclLog
from commcanary_lab.importers.nccl_log_ops import meaning
from commcanary_lab.importers.open import recognise_file
from commcanary_lab.inspect import ops
from commcanary_lab.traffic import build_matrix

CASES = Path(__file__).parent.parent / "data" / "cases"


def lines(name: str) -> NcclLog:
    return nccl_log.read_log([CASES / name])


def holders(log: NcclLog) -> list[tuple[str, int]]:
    return [tuple(log.lines.instances[i].process) for i in log.lines.rows_instance]


def test_P17_torn_lines_are_kept_and_marked() -> None:
    log = lines("P17__job.log")
    who = holders(log)
    assert len(who) == 3
    assert who[0] == who[2] == ("nodeA", 101)  # the nearest prefix, not the one whose line broke off
    assert who[1][1] == -1  # unknown, not pid 100
    assert log.lines.guessed == [
        "P17__job.log: line 1: a torn line: its operation is taken as one of nodeA:101",
        "P17__job.log: line 2: no host:pid:tid: the process is unknown; perhaps nodeA:100, whose line broke off before",
    ]
    trace = nccl_log.read([CASES / "P17__job.log"])
    assert (trace.coverage.read, len(trace.unsized)) == (3, 3)
    assert {u.size_bytes for u in trace.unsized} == {256, 32}
    assert set(log.lines.guessed) <= set(trace.warnings)


def test_P18_operations_are_matched_by_order_where_opCount_is_always_0() -> None:
    trace = nccl_log.read([CASES / "P18__job.log"])
    assert trace.size_bytes.tolist() == [400, 800, 1200]
    assert [trace.observers_of(i) for i in range(3)] == [(0, 1)] * 3
    assert (trace.groups[0].name, trace.groups[0].members) == ("0xc1", (0, 1))
    assert trace.coverage.used == 6
    assert trace.warnings == ()


def test_P19_direction_comes_from_the_name_and_each_message_counts_once() -> None:
    trace = nccl_log.read([CASES / "P19__job.log"])
    matrix = build_matrix(trace)
    assert {(x.src, x.dst): x.size_bytes for x in matrix.links()} == {(0, 1): 2000.0, (1, 0): 1000.0}
    assert len(trace) == 2
    assert trace.coverage.used == 4
    assert trace.warnings == ()


def test_P20_one_rank_identical_lines_and_quote_marks() -> None:
    trace = nccl_log.read([CASES / "P20__job.log"])
    assert trace.size_bytes.tolist() == [4096, 4096]
    assert trace.groups[0].size == 1
    matrix = build_matrix(trace)
    assert (matrix.records, matrix.sum_bytes) == (2, 0.0)
    (row,) = ops(trace).rows
    assert math.isnan(row.busbw_gb_s)  # no time, and nothing travels: nothing to divide


def test_P21_a_desync_names_rank_and_operation_and_is_not_merged() -> None:
    trace = nccl_log.read([CASES / "P21__job.log"])
    (warning,) = trace.warnings
    assert "desync at opCount ff: ranks 0-1 call AllReduce of 64 elements" in warning
    assert "rank 2 calls AllGather of 4096 elements" in warning
    assert "2 operations" in warning
    found = [(trace.op.text(i), int(trace.size_bytes[i]), trace.observers_of(i)) for i in range(len(trace))]
    assert found == [("all_reduce", 256, (0, 1)), ("all_gather", 12288, (2,)), ("all_reduce", 128, (0, 1)), ("all_gather", 48, (2,))]
    assert lines("P21__job.log").lines.rows_op_count[-1] == 256  # hexadecimal: follows 255


def test_P22_launcher_prefixes() -> None:
    log = lines("P22__job.log")
    assert holders(log) == [("h1", 5), ("h1", 7), ("h2", 9), ("h2", 10), ("pod-0", 12)]
    calls = [log.lines.calls[c] for c in log.lines.rows_call]
    assert [(c.op, meaning(c).part_bytes) for c in calls] == [("AllGather", 8)] * 4 + [("Broadcast", 16)]
    assert recognise_file(CASES / "P22__job.log").name == "nccl_log"
