"""Flight recorder dumps: JSON and pickle, states, groups, hostile pickles, damage, and the public dumps."""

from __future__ import annotations

import copy
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.errors import FormatError, MergeError
from commcanary_lab.importers import flight_recorder
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.importers.safe_pickle import load_plain
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import build_matrix
from tests.importers.damage import attempt, byte_damage, known, refused, row_refused

CASES = Path(__file__).parent.parent / "data" / "cases"
REAL = Path(__file__).parents[3] / "shared" / "data" / "real" / "flight_recorder"

Json = dict[str, Any]


def entry(name: str = "nccl:all_reduce", seq: int = 1, sent: Any = ([3, 4],), got: Any = ([3, 4],), **more: Any) -> Json:
    return {
        "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
        "profiling_name": name, "time_created_ns": 1_700_000_000_000_000_000 + seq, "input_sizes": list(map(list, sent)),
        "output_sizes": list(map(list, got)), "input_dtypes": ["Float"] * len(sent), "output_dtypes": ["Float"] * len(got),
        "state": "completed", "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": True,
        "timeout_ms": 600000, "is_p2p": False,
    } | more  # fmt: skip


def dump(*entries: Any, ranks: str = "[0, 1]", **groups: str) -> Json:
    table = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}} | {
        k: {"name": k, "desc": "x", "ranks": v} for k, v in groups.items()
    }
    return {"version": "2.5", "pg_config": table, "pg_status": {}, "entries": list(entries)}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Trace]:
    def go(*dumps: Json, as_pickle: bool = False, **options: Any) -> Trace:
        paths = [tmp_path / f"nccl_trace_rank_{i}" for i in range(len(dumps))]
        for path, d in zip(paths, dumps, strict=True):
            path.write_bytes(pickle.dumps(d, 2) if as_pickle else json.dumps(d).encode())
        return flight_recorder.read(paths, **options)

    return go


def ops(trace: Trace) -> list[tuple[str | None, int]]:
    return [(trace.op.text(i), int(trace.size_bytes[i])) for i in range(len(trace))]


def test_P29_ranks_from_names_and_states_that_differ() -> None:
    trace = open_trace(CASES / "P29")
    assert trace.source_format == "flight_recorder"
    assert trace.coverage.ranks == (0, 1)
    assert ops(trace) == [("all_reduce", 48)]
    assert trace.groups[0].members == (0, 1)
    assert trace.duration_max_ns.none_known
    assert not trace.arrival_known[0]
    assert trace.warnings == (
        "nccl_trace_rank_hostb_1: entry 0: nccl:all_reduce: not completed on rank 1 (scheduled), completed on 1 other rank",
    )


def test_json_and_pickle_say_the_same(read: Callable[..., Trace]) -> None:
    dumps = [dump(entry(), entry(seq=2, sent=([5],), got=([5],))) for _ in (0, 1)]
    assert read(*dumps).equals(read(*dumps, as_pickle=True))


def test_sizes_are_B(read: Callable[..., Trace]) -> None:
    trace = read(
        dump(
            entry(seq=1),
            entry("nccl:_all_gather_base", 2, ([8],), ([16],)),
            entry("nccl:all_gather", 3, ([8],), ([8], [8])),
            entry("nccl:reduce_scatter", 4, ([8], [8]), ([8],)),
            entry("nccl:broadcast", 5),
            entry("nccl:barrier", 6, (), ()),
            entry("nccl:all_to_all", 7, ([1], [5]), ([1], [2])),
            entry("nccl:all_to_all", 8, ([6],), ([6],)),
            entry("nccl:coalesced", 9),
        )
    )
    assert ops(trace) == [
        ("all_reduce", 48), ("all_gather", 64), ("all_gather", 64), ("reduce_scatter", 64), ("broadcast", 48), ("barrier", 0),
        ("all_to_all_v", 24), ("all_to_all_v", 24),
    ]  # fmt: skip
    assert trace.splits.row(6).tolist() == [24, 12, 4, 20, 4, 8]
    assert trace.splits.row(7).tolist() == [24, 24, -1, -1, -1, -1]  # one tensor, even or not: nobody wrote it down
    assert any("does not write split sizes" in n for n in trace.notes)
    assert known(trace.root, 4) is None


def test_messages_are_between_global_ranks(read: Callable[..., Trace]) -> None:
    send = entry("nccl:send 0->1", is_p2p=True, process_group=("7", "pp"), p2p_seq_id=1)
    recv = entry("nccl:recv 1<-0", is_p2p=True, process_group=("7", "pp"), p2p_seq_id=1)
    paths = dump(send, ranks="[0, 1, 2, 3, 4, 5]", **{"7": "[1, 5]"}), dump(recv, ranks="[0, 1, 2, 3, 4, 5]", **{"7": "[1, 5]"})
    trace = read(*paths, ranks={"nccl_trace_rank_0": 1, "nccl_trace_rank_1": 5})
    assert ops(trace) == [("point_to_point", 48)]
    assert (known(trace.sender, 0), known(trace.receiver, 0)) == (1, 5)
    assert build_matrix(trace).sum_bytes == 48


def test_what_nobody_completed_is_no_event(read: Callable[..., Trace]) -> None:
    trace = read(*[dump(entry(), entry(seq=2, state="started", retired=False)) for _ in (0, 1)])
    assert ops(trace) == [("all_reduce", 48)]
    assert [u.reason for u in trace.unsized] == ["not completed: started"] * 2
    assert len(trace.warnings) == 2


def test_gloo_never_changes_states(read: Callable[..., Trace]) -> None:
    done = entry("gloo:all_reduce", state="scheduled", retired=True, time_discovered_started_ns=0, time_discovered_completed_ns=0)
    pending = entry("gloo:all_reduce", 2, state="scheduled", retired=False)
    assert ops(read(dump(done, pending))) == [("all_reduce", 48)]
    assert ops(read(dump(entry(state="scheduled", retired=True)))) == []  # NCCL retires what failed, too


def test_gloo_writes_no_ranks_and_a_gather_shows_the_size(read: Callable[..., Trace]) -> None:
    d = dump(
        entry("gloo:all_gather", 1, ([4],), ([3, 4],)),
        entry("gloo:all_reduce", 2),
        entry("gloo:all_reduce", 1, process_group=("1", "undefined")),
    )
    d["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    trace = read(d)
    assert [g.members for g in trace.groups] == [(0, 1, 2)]
    assert [u.reason for u in trace.unsized] == ["members unknown"]


def test_durations_only_where_written_and_whole(read: Callable[..., Trace]) -> None:
    both = [dump(entry(duration_ms=0.25), entry(seq=2, duration_ms=0.5)) for _ in (0, 1)]
    assert read(*both).duration_max_ns.values.tolist() == [250_000, 500_000]
    del both[1]["entries"][1]["duration_ms"]
    assert read(*both).duration_max_ns.mask.tolist() == [True, False]
    seen = [dump(entry(time_discovered_started_ns=5, time_discovered_completed_ns=905)) for _ in (0, 1)]
    assert read(*seen).duration_max_ns.none_known  # a watchdog looks now and then: no measurement


def test_ranks_must_be_known_and_distinct(tmp_path: Path) -> None:
    for name in ("a", "b", "x_3", "y_3"):
        (tmp_path / name).write_text(json.dumps(dump(entry(), ranks="[0, 1, 2, 3]")))
    with pytest.raises(FormatError, match="a: neither the dump nor its name says which rank wrote it"):
        flight_recorder.read([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(MergeError, match="both claim rank 3"):
        flight_recorder.read([tmp_path / "x_3", tmp_path / "y_3"])
    assert flight_recorder.read([tmp_path / "a"], ranks={"a": 2}).coverage.ranks == (2,)
    (tmp_path / "nccl_trace_rank_10-0-0-7_2").write_text(json.dumps(dump(entry(), ranks="[0, 1, 2, 3]")))
    assert flight_recorder.read([tmp_path / "nccl_trace_rank_10-0-0-7_2"]).coverage.ranks == (2,)


# -- hostile pickles --------------------------------------------------------------------------------------------------


class _Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def _nested_tuples(depth: int) -> bytes:
    """A tuple of two of a tuple of two ...: small in the file, 2**depth to hash or to print."""
    return b"\x80\x02" + b"K\x00" + b"".join(b"q%c" % (i % 250) + b"h%c" % (i % 250) + b"\x86" for i in range(depth))


def _header(body: bytes) -> bytes:
    return b"\x80\x02}(X\x07\x00\x00\x00versionX\x03\x00\x00\x002.5X\x07\x00\x00\x00entries" + body + b"u."


HOSTILE: dict[str, bytes] = {
    "os.system": pickle.dumps({"version": "2.5", "entries": [_Call(os.system, "touch /tmp/owned")]}, 2),
    "os.system, protocol 4": pickle.dumps({"version": "2.5", "entries": [_Call(os.system, "touch /tmp/owned")]}, 4),
    "os.system, protocol 0": pickle.dumps({"version": "2.5", "entries": [_Call(os.system, "touch /tmp/owned")]}, 0),
    "eval": pickle.dumps({"version": "2.5", "entries": [_Call(eval, "1/0")]}, 2),
    "builtins.list": pickle.dumps({"version": "2.5", "entries": [_Call(list, (1, 2))]}, 2),
    "bytearray": pickle.dumps({"version": "2.5", "entries": bytearray(b"x")}, 5),
    "a class of its own": pickle.dumps({"version": "2.5", "entries": Path("x")}, 2),
    "an exception": pickle.dumps({"version": "2.5", "entries": ValueError("x")}, 2),
    "a complex number": pickle.dumps({"version": "2.5", "entries": 1j}, 2),
    "a set": pickle.dumps({"version": "2.5", "entries": {1}}, 4),
    "a frozen set": pickle.dumps({"version": "2.5", "entries": frozenset({1})}, 4),
    "INST": b"(dpversion\n" + b"(S'touch /tmp/owned'\nios\nsystem\n.",
    "OBJ": _header(b"(cos\nsystem\nX\x01\x00\x00\x00xo"),
    "NEWOBJ": _header(b"cbuiltins\nobject\n)\x81"),
    "extension 1": _header(b"\x82\x01"),
    "extension 4": _header(b"\x84\x01\x00\x00\x00"),
    "persistent id": _header(b"Pabc\n"),
    "binary persistent id": _header(b"K\x01Q"),
    "BUILD": _header(b"}}b"),
    "out-of-band buffer": _header(b"\x97"),
    "text of 2 GiB": _header(b"X\xff\xff\xff\x7fabc"),
    "text of 2**62 bytes": _header(b"\x8d" + struct.pack("<Q", 1 << 62) + b"abc"),
    "bytes of 4 GiB": _header(b"B\xff\xff\xff\xffabc"),
    "number of 2 GiB": _header(b"\x8b\xff\xff\xff\x7fabc"),
    "number of a negative length": _header(b"\x8b\xff\xff\xff\xffabc"),
    "number of 255 bytes": _header(b"\x8a\xff" + b"\x7f" * 255),
    "number of 10,000 digits": _header(b"L" + b"9" * 10_000 + b"L\n"),
    "memo entry that is not there": _header(b"h\x07"),
    "memo entry of a negative number": _header(b"g-1\n"),
    "memo of nothing": b"\x80\x02q\x00.",
    "tuples that double": _header(_nested_tuples(100)[2:]),
    "tuples that double as a key": _header(b"}(" + _nested_tuples(40)[2:] + b"K\x01u"),
    "list as a key": _header(b"}(]K\x01u"),
    "list that holds itself": _header(b"]q\x00h\x00a"),
    "50,000 lists in lists": _header(b"]" * 50_000 + b"a" * 49_999),
    "50,000 marks": _header(b"(" * 50_000),
    "APPENDS without a mark": b"\x80\x02]K\x01e.",
    "APPEND to a dictionary": _header(b"}K\x01a"),
    "SETITEM into a list": _header(b"]K\x01K\x02s"),
    "key without a value": b"\x80\x02}(K\x01u.",
    "TUPLE3 of one": b"\x80\x02K\x01\x87.",
    "nothing at the end": b"\x80\x02.",
    "no end": _header(b"]")[:-1],
    "unknown instruction": _header(b"\xff"),
    "protocol 200": b"\x80\xc8}.",
    "a value that is no dictionary": pickle.dumps([1], 2),
    "a dictionary of something else": pickle.dumps({"a": 1}, 2),
    "entries is a text": pickle.dumps({"version": "2.5", "entries": "x"}, 2),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pickles_are_refused(kind: str, tmp_path: Path) -> None:
    owned = Path("/tmp/owned")
    before = owned.exists()
    limit = sys.getrecursionlimit()
    message = refused(flight_recorder.read, tmp_path / "nccl_trace_rank_0", HOSTILE[kind])
    assert owned.exists() == before
    assert sys.getrecursionlimit() == limit
    if kind.startswith("os.system"):
        assert "nothing is looked up" in message


def test_strings_are_shared_through_the_memo() -> None:
    value = {"a": ["x" * 100] * 1000, "t": (1, 2.5, None, True, False, "\u00e9", -(1 << 40), 1 << 70)}
    for protocol in range(6):
        assert load_plain(pickle.dumps(value, protocol), file="x", what="a dump") == value
    assert load_plain(pickle.dumps([b"b", b"c" * 300], 3), file="x", what="a dump") == [b"b", b"c" * 300]


def test_what_doubles_is_never_walked_or_printed(tmp_path: Path) -> None:
    out = attempt(flight_recorder.read, tmp_path / "nccl_trace_rank_0", _header(b"]" + _nested_tuples(50)[2:] + b"a"))
    assert isinstance(out, Trace)
    assert out.unsized[0].reason.startswith("metadata not readable: the entry is ((")


# -- damage -----------------------------------------------------------------------------------------------------------

GOOD = dump(entry(seq=1), entry(seq=2), entry(seq=3))

ROWS: dict[str, tuple[Any, str]] = {
    "entry is a number": (7, "the entry is 7"),
    "entry is null": (None, "the entry is None"),
    "entry is a text": ("x", "the entry is 'x'"),
    "no name": (entry(profiling_name=None), "profiling_name is None"),
    "name is a number": (entry(profiling_name=4), "profiling_name is 4"),
    "name is empty": (entry(profiling_name=""), "profiling_name is ''"),
    "no state": (entry(state=None), "state is None"),
    "state is a number": (entry(state=3), "state is 3"),
    "scheduled": (entry(seq=2, state="scheduled"), "not completed: scheduled"),
    "started": (entry(seq=2, state="started"), "not completed: started"),
    "no group": (entry(seq=2, process_group=None), "members unknown"),
    "group is a number": (entry(seq=2, process_group=5), "process_group is 5"),
    "group of three": (entry(seq=2, process_group=["0", "a", "b"]), "process_group is"),
    "group of lists": (entry(seq=2, process_group=[["0"], "a"]), "process_group is"),
    "unknown group": (entry(seq=2, process_group=["9", "a"]), "members unknown"),
    "no sizes": (entry(seq=2, input_sizes=None, input_dtypes=None), "size missing"),
    "no output sizes": (entry(seq=2, output_sizes=None, output_dtypes=None), "size missing"),
    "sizes are a number": (entry(seq=2, input_sizes=7), "input_sizes is 7"),
    "shape is a number": (entry(seq=2, input_sizes=[12]), "a tensor of shape 12"),
    "shape of texts": (entry(seq=2, input_sizes=[["3", 4]]), "a tensor of shape"),
    "negative dimension": (entry(seq=2, input_sizes=[[-3, 4]]), "a tensor of shape [-3, 4]"),
    "fraction of a dimension": (entry(seq=2, input_sizes=[[3.5, 4]]), "a tensor of shape"),
    "dimension of 2**63": (entry(seq=2, input_sizes=[[1 << 63]]), "a tensor of"),
    "product of 2**63": (entry(seq=2, input_sizes=[[1 << 31, 1 << 32]]), "a tensor of"),
    "thousand dimensions": (entry(seq=2, input_sizes=[[1] * 1000]), "a tensor of shape"),
    "bytes out of range": (entry(seq=2, sent=([1 << 61],), got=([1 << 61],)), "size out of range"),
    "no dtypes": (entry(seq=2, input_dtypes=None, output_dtypes=None), "dtype unknown: none given"),
    "dtype unknown": (entry(seq=2, input_dtypes=["q"], output_dtypes=["q"]), "dtype unknown: q"),
    "dtypes are a text": (entry(seq=2, input_dtypes="Float"), "input_dtypes is 'Float'"),
    "dtypes of numbers": (entry(seq=2, input_dtypes=[4]), "input_dtypes is [4]"),
    "more dtypes than tensors": (entry(seq=2, input_dtypes=["Float", "Float"]), "input_dtypes has 2 entries for 1 tensors"),
    "two dtypes": (entry(seq=2, input_dtypes=["Half"]), "tensors of several types"),
    "all_reduce that grows": (entry(seq=2, got=([13],)), "sizes contradict"),
    "gather that does not grow": (entry("nccl:_all_gather_base", 2), "sizes contradict"),
    "scatter that does not shrink": (entry("nccl:_reduce_scatter_base", 2), "sizes contradict"),
    "send without ends": (entry("nccl:send", 2, is_p2p=True), "peer unknown"),
    "send with an arrow back": (entry("nccl:send 0<-1", 2, is_p2p=True), ""),
    "send to nobody": (entry("nccl:send 0->7", 2, is_p2p=True), "peer unknown"),
    "send of another rank": (entry("nccl:send 1->0", 2, is_p2p=True), "peer unknown"),
    "sequence is a text": (entry(seq=2, collective_seq_id="2"), "collective_seq_id is '2'"),
    "sequence is negative": (entry(seq=2, collective_seq_id=-7), "collective_seq_id is -7"),
    "creation is a text": (entry(seq=2, time_created_ns="now"), "time_created_ns is 'now'"),
    "creation is huge": (entry(seq=2, time_created_ns=1 << 63), "time_created_ns is"),
}


@pytest.mark.parametrize("as_pickle", [False, True])
@pytest.mark.parametrize("kind", ROWS)
def test_a_bad_row_is_refused_and_the_rest_is_read(kind: str, as_pickle: bool, tmp_path: Path) -> None:
    row, reason = ROWS[kind]
    d = copy.deepcopy(GOOD)
    d["entries"][1] = row
    data = pickle.dumps(d, 2) if as_pickle else json.dumps(d).encode()
    if kind == "send with an arrow back":  # kept under the name that it has
        out = attempt(flight_recorder.read, tmp_path / "nccl_trace_rank_0", data)
        assert isinstance(out, Trace)
        assert any("kept as custom operations: send 0<-1" in n for n in out.notes)
        return
    out = attempt(flight_recorder.read, tmp_path / "nccl_trace_rank_0", data)
    assert isinstance(out, Trace), out
    assert len(out) == 2
    assert len(out.unsized) == 1
    assert reason in out.unsized[0].reason
    assert out.warnings


FILES: dict[str, bytes] = {
    "list": b"[]", "number": b"7", "something else": b'{"version": "2.5"}', "entries is a text": b'{"entries": "x"}',
    "entries is an object": b'{"entries": {}}', "unclosed": b'{"entries": [', "deep": b'{"entries": ' + b"[" * 200_000,
    "lone quote": b'{"entries": ["}', "two documents": b'{"entries": []}{"entries": []}',
}  # fmt: skip


@pytest.mark.parametrize("as_pickle", [False, True])
@pytest.mark.parametrize("kind", [*FILES, *byte_damage(b"x" * 40)])
def test_a_file_that_is_no_dump_is_refused(kind: str, as_pickle: bool, tmp_path: Path) -> None:
    good = pickle.dumps(GOOD, 2) if as_pickle else json.dumps(GOOD).encode()
    data = FILES.get(kind) or byte_damage(good)[kind]
    if kind == "gzip with a wrong sum":
        out = attempt(flight_recorder.read, tmp_path / "nccl_trace_rank_0", data)
        assert isinstance(out, Trace)
        assert any("damaged" in w for w in out.warnings)
        return
    refused(flight_recorder.read, tmp_path / "nccl_trace_rank_0", data)


@pytest.mark.parametrize("position", range(0, 900, 30))
def test_any_changed_byte_of_a_pickle_ends_well(position: int, tmp_path: Path) -> None:
    data = bytearray(pickle.dumps(GOOD, 2))
    for value in (0x00, 0x28, 0x52, 0x63, 0x8B, 0xFF):
        data[position % len(data)] = value
        attempt(flight_recorder.read, tmp_path / "nccl_trace_rank_0", bytes(data))


@pytest.mark.parametrize(
    "table", [None, [], "x", {"0": None}, {"0": {"ranks": "0,1"}}, {"0": {"ranks": [0, 0]}}, {"0": {"ranks": [-1, 0]}}]
)
def test_an_unusable_table_of_groups_leaves_members_unknown(table: Any, read: Callable[..., Trace]) -> None:
    trace = read(dump(entry()) | {"pg_config": table})
    assert len(trace) == 0
    assert trace.unsized[0].reason == "members unknown"
    assert trace.unsized[0].size_bytes == 48


def test_one_bad_row_keeps_its_place_in_the_count(tmp_path: Path) -> None:
    d = copy.deepcopy(GOOD)
    d["entries"][1]["input_sizes"] = 7
    assert "input_sizes is 7" in row_refused(flight_recorder.read, tmp_path / "nccl_trace_rank_0", json.dumps(d).encode(), 2)


# -- public dumps -----------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not REAL.is_dir(), reason="public dumps (../shared/data/real/flight_recorder) are not here")


@real
@pytest.mark.parametrize("name", ["tutorial_v2.5_rank0.json", "tutorial_v2.5_rank0.pkl"])
def test_tutorial_dumps(name: str) -> None:
    assert recognise_file(REAL / name).name == "flight_recorder"
    trace = open_trace(REAL / name)
    assert ops(trace) == [("all_reduce", 48)]
    assert trace.groups[0].members == (0, 1)
    assert trace.coverage.ranks == (0,)
    assert trace.duration_max_ns.none_known
    assert not trace.warnings


@real
def test_a_dump_without_dtypes_has_no_bytes() -> None:
    trace = open_trace(REAL / "torch2.10_hang_rank0.pkl")
    assert len(trace) == 0
    (row,) = trace.unsized
    assert row.size_bytes is None
    assert row.reason == "not completed: scheduled; no dtype in the dump, its size is unknown"
