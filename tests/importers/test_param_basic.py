"""PARAM basic traces: sizes, groups, splits that contradict, damage, and the public entries."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commcanary_lab.errors import FormatError, MergeError
from commcanary_lab.importers import param_basic
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import build_matrix
from tests.importers.damage import attempt, byte_damage, known, refused, row_refused

CASES = Path(__file__).parent.parent / "data" / "cases"
REAL = Path(__file__).parents[3] / "shared" / "data" / "real" / "param_comms"

Json = dict[str, Any]


def op(comms: str, sent: int = 8, got: int | None = None, **more: Any) -> Json:
    return {"comms": comms, "in_msg_size": sent, "out_msg_size": sent if got is None else got, "dtype": "float", "world_size": 2} | more


def init(group: int, *ranks: int) -> Json:
    return {"comms": "init", "pg_id": group, "global_ranks": list(ranks)}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Trace]:
    def go(*files: list[Any], **options: Any) -> Trace:
        paths = [tmp_path / f"{i}.json" for i in range(len(files))]
        for path, entries in zip(paths, files, strict=True):
            path.write_text(json.dumps(entries))
        return param_basic.read(paths, **options)

    return go


def ops(trace: Trace) -> list[tuple[str | None, int]]:
    return [(trace.op.text(i), int(trace.size_bytes[i])) for i in range(len(trace))]


def test_P27_wrong_number_of_splits_is_refused_with_a_message(tmp_path: Path) -> None:
    trace = param_basic.read([CASES / "P27__rank0.json"])
    assert len(trace) == 0
    assert trace.unsized[0].reason == "splits contradict: in_split has 4 entries in a group of 2 ranks"
    assert trace.warnings == (f"P27__rank0.json: entry 0: all_to_allv: {trace.unsized[0].reason}",)
    entries = [op("all_reduce"), *json.loads((CASES / "P27__rank0.json").read_text()), op("broadcast", root=1)]
    assert row_refused(param_basic.read, tmp_path / "rank0.json", json.dumps(entries).encode(), 2) == trace.unsized[0].reason


def test_sizes_are_B_in_bytes(read: Callable[..., Trace]) -> None:
    trace = read(
        [
            op("all_reduce"),
            op("all_gather", 8, 16),
            op("all_gather_base", 8, 16, dtype="half"),
            op("reduce_scatter_base", 16, 8),
            op("all_to_all", 16),
            op("broadcast", root=1),
            op("reduce", root=0),
            {"comms": "barrier", "world_size": 2},
            {"comms": "wait", "req": 3},
            {"compute": "gemm", "mm_dim": 4, "count": 1},
        ]
    )
    assert ops(trace) == [
        ("all_reduce", 32), ("all_gather", 64), ("all_gather", 32), ("reduce_scatter", 64), ("all_to_all", 64), ("broadcast", 32),
        ("reduce", 32), ("barrier", 0),
    ]  # fmt: skip
    assert [known(trace.root, i) for i in (5, 6)] == [1, 0]
    assert trace.coverage.skipped == {"computation": 1, "wait or set-up entry: no communication of its own": 1}
    assert trace.start_ns.none_known


def test_groups_come_from_init_entries(read: Callable[..., Trace]) -> None:
    a = [
        init(0, 0, 1, 2),
        init(3, 2, 0),
        op("all_reduce", pg_id=3),
        op("all_to_allv", 30, 24, pg_id=3, in_split=[10, 20], out_split=[4, 20]),
    ]
    trace = read(a)
    assert [trace.groups[g].members for g in trace.group] == [(0, 2), (0, 2)]
    assert trace.splits.row(1).tolist() == [120, 96, 80, 40, 80, 16]


def test_messages_are_one_event(read: Callable[..., Trace]) -> None:
    send, recv = op("send", src_rank=0, dst_rank=1, use_batch=True), op("recv", src_rank=0, dst_rank=1)
    trace = read([send], [recv])
    assert ops(trace) == [("point_to_point", 32)]
    assert build_matrix(trace).dense()[0, 1] == 32


def test_uneven_without_splits_is_not_spread(read: Callable[..., Trace]) -> None:
    trace = read([op("all_to_allv", 30, 14, in_split=[], out_split=[])])
    assert ops(trace) == [("all_to_all_v", 120)]
    assert build_matrix(trace).sum_bytes == 0
    assert trace.splits.row(0).tolist() == [120, 56, -1, -1, -1, -1]


def test_starts_are_used_where_there_are_any(read: Callable[..., Trace]) -> None:
    trace = read([op("all_reduce", startTime_ns=5), op("broadcast", startTime_ns=17)])
    assert trace.start_ns.values.tolist() == [0, 12]
    assert any("asks a replay to keep" in n for n in trace.notes)
    assert read([op("all_reduce", startTime_ns=0), op("broadcast", startTime_ns=0)]).start_ns.none_known


def test_ranks_must_agree(read: Callable[..., Trace]) -> None:
    with pytest.raises(MergeError, match="unequal operation counts"):
        read([op("all_reduce")], [op("all_reduce"), op("all_reduce")])
    with pytest.raises(MergeError, match="says op all_reduce, rank 1 says broadcast"):
        read([op("all_reduce")], [op("broadcast")])


def test_ranks_of_several_files_must_be_known(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps([op("all_reduce")]))
    with pytest.raises(FormatError, match=r"a.json: neither the file nor its name says which rank wrote it; give the rank by hand"):
        param_basic.read([tmp_path / "a.json", tmp_path / "b.json"])
    assert len(param_basic.read([tmp_path / "a.json", tmp_path / "b.json"], ranks={"a.json": 0, "b.json": 1})) == 1


GOOD = [init(0, 0, 1), op("all_reduce"), op("all_to_allv", 8, 8, in_split=[4, 4], out_split=[4, 4]), op("send", src_rank=0, dst_rank=1)]

ROWS: dict[str, tuple[int, Any, str]] = {
    "entry is a number": (1, 7, "the entry is 7"),
    "entry is null": (1, None, "the entry is None"),
    "entry is a list": (1, [1], "the entry is [1]"),
    "no comms": (1, {"in_msg_size": 4}, "comms is None"),
    "comms is a number": (1, {"comms": 4}, "comms is 4"),
    "comms is empty": (1, {"comms": ""}, "comms is ''"),
    "no sizes": (1, {"comms": "all_reduce", "world_size": 2, "dtype": "float"}, "size missing"),
    "no dtype": (1, op("all_reduce", dtype=None), "dtype unknown: none given"),
    "dtype unknown": (1, op("all_reduce", dtype="fp3"), "dtype unknown: fp3"),
    "dtype is a number": (1, op("all_reduce", dtype=3), "dtype is 3"),
    "size negative": (1, op("all_reduce", -8, 8), "in_msg_size is -8"),
    "size a text": (1, op("all_reduce", in_msg_size="8"), "in_msg_size is '8'"),
    "size a fraction": (1, op("all_reduce", in_msg_size=8.5), "in_msg_size is 8.5"),
    "size a list": (1, op("all_reduce", in_msg_size=[8]), "in_msg_size is [8]"),
    "size huge": (1, op("all_reduce", 1 << 70), "in_msg_size is"),
    "size out of range in bytes": (1, op("all_reduce", 1 << 61), "size out of range"),
    "all_reduce that grows": (1, op("all_reduce", 8, 9), "sizes contradict"),
    "gather that shrinks": (1, op("all_gather", 16, 8), "sizes contradict"),
    "scatter that grows": (1, op("reduce_scatter", 8, 16), "sizes contradict"),
    "no world size": (1, op("all_reduce", world_size=None), "members unknown"),
    "world size zero": (1, op("all_reduce", world_size=0), "members unknown"),
    "world size negative": (1, op("all_reduce", world_size=-3), "world_size is -3"),
    "world size a text": (1, op("all_reduce", world_size="two"), "world_size is 'two'"),
    "world size huge": (1, op("all_reduce", world_size=1 << 40), "members unknown"),
    "unknown group": (1, op("all_reduce", pg_id=9), "members unknown"),
    "group is a list": (1, op("all_reduce", pg_id=[0]), "pg_id is [0]"),
    "group against world size": (1, op("all_reduce", pg_id=0, world_size=5), "members unknown"),
    "three splits": (2, op("all_to_allv", 12, 8, in_split=[4, 4, 4], out_split=[4, 4]), "in_split has 3 entries"),
    "one split": (2, op("all_to_allv", 8, 8, in_split=[4, 4], out_split=[8]), "out_split has 1 entries"),
    "splits too small": (2, op("all_to_allv", 9, 8, in_split=[4, 4], out_split=[4, 4]), "in_split adds up to 8 elements of 9"),
    "splits too large": (2, op("all_to_allv", 8, 7, in_split=[4, 4], out_split=[4, 4]), "out_split adds up to 8 elements of 7"),
    "negative split": (2, op("all_to_allv", 8, 8, in_split=[-4, 12]), "in_split is [-4, 12]"),
    "split is a text": (2, op("all_to_allv", 8, 8, in_split="4,4"), "in_split is '4,4'"),
    "split of texts": (2, op("all_to_allv", 8, 8, out_split=["4", "4"]), "out_split is"),
    "send without peer": (3, op("send", src_rank=0), "peer unknown"),
    "send to nobody": (3, op("send", src_rank=0, dst_rank=7), "peer unknown"),
    "send of another rank": (3, op("send", src_rank=1, dst_rank=0), "send of rank 1 in the file of rank 0"),
    "peer is a text": (3, op("send", src_rank=0, dst_rank="one"), "dst_rank is 'one'"),
    "root outside": (1, op("broadcast", root=5), "root"),
    "root negative": (1, op("broadcast", root=-5), "root is -5"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_bad_row_is_refused_and_the_rest_is_read(kind: str, tmp_path: Path) -> None:
    position, entry, reason = ROWS[kind]
    entries = copy.deepcopy(GOOD)
    entries[position] = entry
    assert reason in row_refused(param_basic.read, tmp_path / "rank0.json", json.dumps(entries).encode(), 2)


FILES = {
    "object": b"{}", "number": b"7", "no entry with comms": b'[{"a": 1}]', "unclosed": b'[{"comms": "wait"}', "deep": b"[" * 200_000,
    "two lists": b"[][]", "lone quote": b'["]', "missing comma": b'[{"comms" "wait"}]',
}  # fmt: skip


@pytest.mark.parametrize("kind", [*FILES, *byte_damage(b"x" * 40)])
def test_a_file_that_is_no_trace_is_refused(kind: str, tmp_path: Path) -> None:
    data = FILES.get(kind) or byte_damage(json.dumps(GOOD).encode())[kind]
    if kind == "gzip with a wrong sum":
        out = attempt(param_basic.read, tmp_path / "rank0.json", data)
        assert isinstance(out, Trace)
        assert any("damaged" in w for w in out.warnings)
        return
    refused(param_basic.read, tmp_path / "rank0.json", data)


def test_there_are_enough_kinds() -> None:
    assert len(ROWS) >= 40


real = pytest.mark.skipif(not REAL.is_dir(), reason="public traces (../shared/data/real/param_comms) are not here")


@real
def test_public_uneven_exchange() -> None:
    path = REAL / "torch_ucc_real_entry_alltoall_base.json"
    assert recognise_file(path).name == "param_basic"
    trace = open_trace(path)
    assert ops(trace) == [("all_to_all_v", 393216 * 4)]
    entry = json.loads(path.read_text())[0]
    row = trace.splits.row(0)
    assert row[:2].tolist() == [379904 * 4, 393216 * 4]
    assert row[2:18].tolist() == [4 * v for v in entry["in_split"]]
    # the entry does not say its rank; its splits fit ranks 8 to 12, which give themselves what they get from themselves
    assert trace.coverage.ranks == (8,)
    assert any("taken as rank 8 (its splits fit rank 8, 9, 10, 11, 12)" in w for w in trace.warnings)
    others = [r for r in range(16) if r != 8]
    assert np.array_equal(build_matrix(trace).dense()[8, others], [4 * entry["in_split"][r] for r in others])


@real
def test_a_rank_that_the_splits_contradict_is_refused() -> None:
    trace = open_trace(REAL / "torch_ucc_real_entry_alltoall_base.json", ranks={"torch_ucc_real_entry_alltoall_base.json": 0})
    assert len(trace) == 0
    assert trace.unsized[0].reason == "splits contradict: rank 0 keeps 86016 bytes for itself and gets 98304 from itself"


@real
def test_documented_format_is_not_spread() -> None:
    trace = open_trace(REAL / "param_docstring_basic_format.json")
    assert ops(trace) == [("all_to_all_v", 23093760 * 4), ("all_reduce", 4 << 20)]
    assert build_matrix(trace.filter(op="all_to_all_v")).sum_bytes == 0
    assert trace.groups[0].members == tuple(range(16))
