"""PyTorch execution traces: schema variants, groups and ranks, damage, and the public traces."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commcanary_lab.errors import FormatError, MergeError
from commcanary_lab.importers import pytorch_et
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import build_matrix
from tests.importers.damage import attempt, byte_damage, known, refused, row_refused

CASES = Path(__file__).parent.parent / "data" / "cases"
REAL = Path(__file__).parents[3] / "shared" / "data" / "real"

Json = dict[str, Any]


def node(number: int, values: list[Any], types: list[str], outputs: list[Any] | None = None, attrs: Json | None = None) -> Json:
    listed = [{"name": k, "type": "x", "value": v} for k, v in (attrs or {}).items()]
    return {
        "id": number,
        "name": "record_param_comms",
        "ctrl_deps": 1,
        "inputs": {"values": values, "shapes": [], "types": types},
        "outputs": {"values": outputs or [], "shapes": [], "types": []},
        "attrs": listed,
    }


def tensor(elements: int, width: int = 4) -> list[Any]:
    return [10, 11, 0, elements, width, "cuda:0"]


def comm(
    number: int,
    op: str,
    own: int = 0,
    sent: int = 8,
    got: int | None = None,
    *,
    group: Any = ("0", "default_pg"),
    size: int = 2,
    splits: tuple[list[int], list[int]] = ([], []),
    dtype: str = "float",
    width: int = 4,
    start: int = 0,
    stride: int = 1,
) -> Json:
    tail = [*map(list, splits), start, stride, size]
    values = [tensor(sent, width), number, list(group) if isinstance(group, tuple) else group, own, op, *tail]
    types = [f"Tensor({dtype})", "Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"]
    return node(number, values, types, [tensor(sent if got is None else got, width)])


def groups(*entries: Json) -> Json:
    text = json.dumps(list(entries))
    return {
        "id": 2,
        "name": "## process_group:init ##",
        "ctrl_deps": 1,
        "inputs": {"values": [text], "shapes": [], "types": ["String"]},
        "outputs": {},
        "attrs": [],
    }


def document(*nodes: Json, schema: str = "1.1.0-chakra.0.0.4") -> Json:
    return {"schema": schema, "pid": 1, "time": "t", "start_ts": 0, "nodes": [{"id": 1, "name": "root", "ctrl_deps": 0}, *nodes]}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Trace]:
    def go(*documents: Json, names: Sequence[str] = (), **options: Any) -> Trace:
        paths = []
        for i, d in enumerate(documents):
            paths.append(tmp_path / (names[i] if names else f"et_{chr(97 + i)}.json"))
            paths[-1].write_text(json.dumps(d))
        return pytorch_et.read(paths, **options)

    return go


def ops(trace: Trace) -> list[tuple[str | None, int]]:
    return [(trace.op.text(i), int(trace.size_bytes[i])) for i in range(len(trace))]


def test_P28_empty_rank_list_is_the_default_group() -> None:
    trace = pytorch_et.read([CASES / "P28__rank0_et.json"])
    assert ops(trace) == [("broadcast", 424), ("point_to_point", 512)]
    assert all(g.members == (0, 1) for g in trace.groups)
    assert [(known(trace.sender, 1), known(trace.receiver, 1))] == [(0, 1)]
    assert trace.coverage.skipped == {"wait or set-up record: no communication of its own": 1}
    assert trace.start_ns.none_known
    assert trace.duration_max_ns.none_known


def test_P28_a_send_without_its_peer_is_listed(tmp_path: Path) -> None:
    case = json.loads((CASES / "P28__rank0_et.json").read_text())
    attrs = case["nodes"][2]["attrs"]
    case["nodes"][2]["attrs"] = [a for a in attrs if a["name"] != "dst_rank"]
    assert "peer unknown" in row_refused(pytorch_et.read, tmp_path / "rank0.json", json.dumps(case).encode(), 1)


def test_P28_unknown_names_are_reported(tmp_path: Path) -> None:
    case = json.loads((CASES / "P28__rank0_et.json").read_text())
    case["nodes"][1]["attrs"][0]["value"] = "all_shuffle"
    (tmp_path / "rank0.json").write_text(json.dumps(case))
    trace = pytorch_et.read([tmp_path / "rank0.json"])
    assert trace.op.text(0) == "all_shuffle"
    assert trace.custom_op[0]
    assert any("all_shuffle" in n for n in trace.notes)


def test_sizes_are_B(read: Callable[..., Trace]) -> None:
    trace = read(
        document(
            comm(3, "allreduce", sent=8),
            comm(4, "_allgather_base", sent=8, got=16),
            comm(5, "_reduce_scatter_base", sent=16, got=8),
            comm(6, "all_to_all", sent=16),
            comm(7, "broadcast", own=1, sent=8, dtype="c10::BFloat16", width=2),
            comm(8, "barrier", sent=0),
            comm(9, "reduce", own=1, sent=3, dtype="long int", width=8),
        )
    )
    assert ops(trace) == [
        ("all_reduce", 32),
        ("all_gather", 64),
        ("reduce_scatter", 64),
        ("all_to_all", 64),
        ("broadcast", 16),
        ("barrier", 0),
        ("reduce", 24),
    ]
    assert [known(trace.root, i) for i in (0, 4, 6)] == [None, 1, 1]
    assert [trace.dtype.text(i) for i in (0, 4, 6)] == ["float32", "bfloat16", "int64"]


def test_the_place_before_the_name_is_a_root_or_a_peer_or_the_own_rank(read: Callable[..., Trace]) -> None:
    one = document(comm(3, "allreduce", own=1), comm(4, "broadcast", own=0), comm(5, "send", own=0))
    trace = read(one)
    assert trace.coverage.ranks == (1,)
    assert (known(trace.sender, 2), known(trace.receiver, 2)) == (1, 0)


def test_ranks_in_subgroups_become_global_ranks(read: Callable[..., Trace]) -> None:
    table = groups(
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 8},
        {"pg_name": "5", "pg_desc": "tp", "ranks": [6, 2, 4], "group_size": 3},
    )
    calls = [
        comm(4, "allreduce", own=1, group=("5", "tp"), size=3),
        comm(5, "broadcast", own=2, group=("5", "tp"), size=3),
        comm(6, "recv", own=0, group=("5", "tp"), size=3),
        comm(7, "allreduce", own=2, size=8),
    ]
    calls[0]["inputs"]["values"][7:9] = calls[1]["inputs"]["values"][7:9] = calls[2]["inputs"]["values"][7:9] = [-1, -1]
    trace = read(document(table, *calls))
    assert trace.coverage.ranks == (2,)
    assert [trace.groups[g].members for g in trace.group] == [(2, 4, 6), (2, 4, 6), (2, 6), tuple(range(8))]
    assert known(trace.root, 1) == 4
    assert (known(trace.sender, 2), known(trace.receiver, 2)) == (6, 2)


def test_splits_follow_the_groups_order(read: Callable[..., Trace]) -> None:
    table = groups({"pg_name": "5", "pg_desc": "ep", "ranks": [3, 1], "group_size": 2})
    call = comm(4, "all_to_allv", own=0, sent=30, got=14, group=("5", "ep"), splits=([10, 20], [10, 4]))
    trace = read(document(table, call), ranks={"et_a.json": 3})
    assert trace.splits.row(0).tolist() == [120, 56, 80, 40, 16, 40]


def test_lists_of_tensors_are_splits(read: Callable[..., Trace]) -> None:
    call = comm(4, "all_to_all", own=0)
    call["inputs"]["values"][0] = [tensor(1), tensor(5)]
    call["inputs"]["types"][0] = "GenericList[Tensor(float),Tensor(float)]"
    call["outputs"]["values"] = [[tensor(1), tensor(2)]]
    trace = read(document(call))
    assert ops(trace) == [("all_to_all_v", 24)]
    assert trace.splits.row(0).tolist() == [24, 12, 4, 20, 4, 8]


def test_ranks_merge_by_group_and_sequence_number(read: Callable[..., Trace]) -> None:
    a = document(comm(3, "allreduce"), comm(4, "allreduce", sent=9))
    b = document(comm(4, "allreduce", own=1, sent=9), comm(3, "allreduce", own=1))
    trace = read(a, b)
    assert ops(trace) == [("all_reduce", 32), ("all_reduce", 36)] or ops(trace) == [("all_reduce", 36), ("all_reduce", 32)]
    assert trace.record_count == 4
    assert any("contradict each other about the order" in n for n in trace.notes)


def test_a_coalesced_call_shares_its_number(read: Callable[..., Trace]) -> None:
    one = [document(comm(3, "allreduce", own=r), comm(3, "allreduce", own=r, sent=9)) for r in (0, 1)]
    assert len(read(*one)) == 2


def test_records_inside_another_are_counted_once(read: Callable[..., Trace]) -> None:
    inner = comm(5, "allreduce")
    inner["ctrl_deps"] = 4
    between = {"id": 4, "name": "c10d::allreduce_", "ctrl_deps": 3}
    trace = read(document(comm(3, "allreduce"), between, inner))
    assert len(trace) == 1
    assert trace.coverage.skipped == {"implements the collective around it": 1}


def test_parents_that_go_in_a_circle_end(read: Callable[..., Trace]) -> None:
    a, b = {"id": 8, "name": "x", "ctrl_deps": 9}, {"id": 9, "name": "y", "ctrl_deps": 8}
    one = comm(3, "allreduce")
    one["ctrl_deps"] = 8
    assert len(read(document(a, b, one, comm(4, "allreduce")))) == 2


def test_groups_known_by_their_backend_only(read: Callable[..., Trace]) -> None:
    table = groups({"pg_name": "0", "backend_id": 82149104, "ranks": [], "group_size": 2})
    call = comm(4, "all_gather", sent=1, got=2, group=82149104)
    call["inputs"]["values"][7:] = [2]
    trace = read(document(table, call))
    assert trace.groups[0].members == (0, 1)
    assert trace.groups[0].name == "0"


def test_one_unnamed_group_has_the_size_that_its_calls_imply(read: Callable[..., Trace]) -> None:
    calls = [comm(4, "_allgather_base", sent=1, got=4, group=99), comm(5, "allreduce", group=99)]
    for c in calls:
        del c["inputs"]["values"][7:]
    trace = read(document(*calls, schema="1.0.1"))
    assert {g.members for g in trace.groups} == {(0, 1, 2, 3)}
    assert any("only group" in n for n in trace.notes)


def test_two_unnamed_groups_have_unknown_members(read: Callable[..., Trace]) -> None:
    calls = [comm(4, "allreduce", group=98), comm(5, "allreduce", group=99)]
    for c in calls:
        del c["inputs"]["values"][7:]
    trace = read(document(*calls, schema="1.0.1"), names=["rank0.json"])
    assert len(trace) == 0
    assert [u.reason for u in trace.unsized] == ["members unknown"] * 2
    assert [u.size_bytes for u in trace.unsized] == [32, 32]


def test_ranks_from_names_and_by_hand(read: Callable[..., Trace]) -> None:
    silent = document(groups({"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 3}), comm(4, "broadcast", own=0, size=3))
    assert read(silent, names=["job_rank2.json"]).coverage.ranks == (2,)
    assert read(silent, ranks={"et_a.json": 1}).coverage.ranks == (1,)
    assert any("taken as rank 0" in w for w in read(silent).warnings)
    with pytest.raises(FormatError, match=r"et_a.json: the file does not say which rank wrote it; give the rank by hand"):
        read(silent, silent)
    with pytest.raises(MergeError, match="both claim rank 0"):
        read(document(comm(3, "allreduce")), document(comm(3, "allreduce")))


def test_what_ranks_say_must_agree(read: Callable[..., Trace]) -> None:
    with pytest.raises(MergeError, match="rank 0 says size_bytes 32, rank 1 says 36"):
        read(document(comm(3, "allreduce")), document(comm(3, "allreduce", own=1, sent=9)))


# -- damage -----------------------------------------------------------------------------------------------------------

GOOD = document(groups({"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}), comm(3, "allreduce"), comm(4, "allreduce"))


def _change(position: int, key: str, value: Any) -> Callable[[Json], None]:
    def go(d: Json) -> None:
        d["nodes"][3]["inputs"][key][position] = value

    return go


def _attrs(**attrs: Any) -> Callable[[Json], None]:
    def go(d: Json) -> None:
        base = {"collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 8, "out_msg_nelems": 8, "pg_size": 2, "pg_name": "0"}
        d["nodes"][3]["attrs"] = [{"name": k, "value": v} for k, v in (base | attrs).items()]

    return go


ROWS: dict[str, tuple[Callable[[Json], None], str]] = {
    "negative tensor": (_change(0, "values", tensor(-1)), "a tensor of -1 elements"),
    "huge tensor": (_change(0, "values", tensor(1 << 62)), "not readable|out of range"),
    "wide elements": (_change(0, "values", tensor(8, 1 << 20)), "a tensor of 8 elements"),
    "width against type": (_change(0, "values", tensor(8, 8)), "elements of 8 bytes and of type float"),
    "two types": (_change(0, "types", "GenericList[Tensor(float),Tensor(int)]"), "several types"),
    "unknown type": (_change(0, "types", "Tensor(quint4x2)"), "dtype unknown"),
    "no type": (_change(0, "types", 5), "dtype unknown"),
    "no tensor": (_change(0, "values", None), "size missing"),
    "sequence number is a text": (_change(1, "values", "x"), "sequence number"),
    "rank is a list": (_change(3, "values", [1]), "rank"),
    "rank is a fraction": (_change(3, "values", 1.5), "rank"),
    "group is an object": (_change(2, "values", {"a": 1}), ""),
    "split list of texts": (_change(5, "values", ["a"]), "split list"),
    "negative split": (_change(5, "values", [-4, 12]), "split list"),
    "split list is an object": (_change(6, "values", {"a": 1}), "split list"),
    "group size is a text": (_change(9, "values", "many"), "group size"),
    "group size against its ranks": (_change(9, "values", 3), "members unknown"),
    "start is a list": (_change(7, "values", []), "global rank start"),
    "gather that does not grow": (_change(4, "values", "_allgather_base"), "sizes contradict"),
    "root outside the group": (lambda d: d["nodes"][3]["inputs"]["values"].__setitem__(slice(3, 5), [7, "broadcast"]), "root 7"),
    "peer outside the group": (lambda d: d["nodes"][3]["inputs"]["values"].__setitem__(slice(3, 5), [7, "send"]), "peer unknown"),
    "attribute dtype is a list": (_attrs(dtype=["Float"]), "dtype"),
    "attribute count is negative text": (_attrs(in_msg_nelems="8 elements"), "in_msg_nelems"),
    "attribute count is huge": (_attrs(in_msg_nelems=1 << 63), "in_msg_nelems"),
    "attribute splits are a word": (_attrs(in_split_size="even"), "in_split_size"),
    "attribute splits are a number": (_attrs(out_split_size=7), "out_split_size"),
    "attribute group is a list": (_attrs(pg_name=[0]), "pg_name"),
    "attribute group is unknown": (_attrs(pg_name="77", global_rank_start=None), "members unknown|"),
    "name only": (lambda d: d["nodes"][3].update(inputs={"values": ["allreduce"], "types": ["String"]}), "0 inputs before"),
    "no name": (lambda d: d["nodes"][3].update(inputs={"values": [1, 2], "types": ["Int", "Int"]}), "no operation name"),
    "inputs are a text": (lambda d: d["nodes"][3].update(inputs="x"), "no operation name"),
    "inputs are missing": (lambda d: d["nodes"][3].pop("inputs"), "no operation name"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_bad_row_is_refused_and_the_rest_is_read(kind: str, tmp_path: Path) -> None:
    change, reason = ROWS[kind]
    d = copy.deepcopy(GOOD)
    change(d)
    if kind in ("group is an object", "attribute group is unknown"):  # the start and stride still say who is in it
        out = attempt(pytorch_et.read, tmp_path / "rank0.json", json.dumps(d).encode())
        assert isinstance(out, Trace)
        assert len(out) == 2
        return
    found = row_refused(pytorch_et.read, tmp_path / "rank0.json", json.dumps(d).encode(), 1)
    assert any(part in found for part in reason.split("|"))


FILES: dict[str, bytes] = {
    "list": b"[]",
    "number": b"7",
    "null": b"null",
    "no nodes": b'{"schema": "1.0.1"}',
    "nodes are null": b'{"schema": "1.0.1", "nodes": null}',
    "nodes are an object": b'{"nodes": {}}',
    "nodes are numbers": b'{"nodes": [1, 2]}',
    "nodes are texts": b'{"nodes": ["a"]}',
    "unclosed": b'{"nodes": [',
    "two documents": b'{"nodes": []}{"nodes": []}',
    "key without value": b'{"nodes"}',
    "deep": b'{"nodes": ' + b"[" * 200_000,
    "deep closed": b'{"nodes": [{"id": 1, "inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
    "duplicate comma": b'{"nodes": [,,]}',
    "lone quote": b'{"nodes": ["}',
}


@pytest.mark.parametrize("kind", [*FILES, *byte_damage(b"x" * 40)])
def test_a_file_that_is_no_trace_is_refused(kind: str, tmp_path: Path) -> None:
    data = FILES.get(kind) or byte_damage(json.dumps(GOOD).encode())[kind]
    if kind == "gzip with a wrong sum":  # what came out is whole; the damage is said
        out = attempt(pytorch_et.read, tmp_path / "rank0.json", data)
        assert isinstance(out, Trace)
        assert any("damaged" in w for w in out.warnings)
        return
    refused(pytorch_et.read, tmp_path / "rank0.json", data)


def test_there_are_enough_kinds() -> None:
    assert len(ROWS) + len(FILES) + len(byte_damage(b"x" * 40)) >= 40


@pytest.mark.parametrize("text", ["", "x", "[1]", '[{"pg_name": "0"}]', '[{"pg_name": "0", "ranks": [0, 0], "group_size": 2}]', "[" * 5000])
def test_an_unusable_table_of_groups_is_not_used(text: str, read: Callable[..., Trace]) -> None:
    table = groups()
    table["inputs"]["values"] = [text]
    trace = read(document(table, comm(3, "allreduce")))
    assert len(trace) == 1  # start, stride and size still say who is in it
    assert trace.warnings


def test_deeply_nested_values_are_bounded(tmp_path: Path) -> None:
    text = json.dumps(GOOD).replace("[10, 11, 0, 8, 4", "[" * 400 + "]" * 400 + ", [10, 11, 0, 8, 4", 1)
    out = attempt(pytorch_et.read, tmp_path / "rank0.json", text.encode())
    assert isinstance(out, Trace)


# -- public traces ----------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not (REAL / "pytorch_et").is_dir(), reason="public traces (../shared/data/real/pytorch_et) are not here")


@real
def test_dlrm_splits_make_the_stated_matrix() -> None:
    folder = REAL / "pytorch_et"
    expected = json.loads((folder / "EXPECTED.json").read_text())
    trace = open_trace(folder / "param_dlrm_world8")
    assert trace.source_format == "pytorch_et"
    assert trace.coverage.ranks == tuple(range(8))
    want = [(o["op"], o["dtype"]) for o in expected["ops_per_rank"]["0"]]
    names = {"all_to_allv": "all_to_all_v", "allreduce": "all_reduce", "all_to_all": "all_to_all"}
    types = {"float": "float32", "int": "int32", "long int": "int64"}
    assert [(trace.op.text(i), trace.dtype.text(i)) for i in range(len(trace))] == [(names[o], types[t]) for o, t in want]
    assert trace.record_count == sum(len(v) for v in expected["ops_per_rank"].values())
    matrix = build_matrix(trace.filter(op="all_to_all_v")).dense()
    want_matrix = np.array(expected["all_to_allv_bytes_M_sender_receiver"], float)
    off = ~np.eye(8, dtype=bool)
    assert (matrix[off] == want_matrix[off]).all()
    # what M leaves out is what a rank keeps for itself
    sent = [
        sum(int(trace.splits.row(i)[r * 18 + 2 + r]) for i in range(len(trace)) if trace.op.text(i) == "all_to_all_v") for r in range(8)
    ]
    assert sent == np.diag(want_matrix).astype(int).tolist()


@real
@pytest.mark.parametrize(
    ("name", "events", "waits", "rank", "members"),
    [
        ("param_linear_et_no_comms.json.gz", 0, 0, 0, ()),
        ("param_resnet_1gpu_et_1.0.3-chakra.0.0.4.json.gz", 21, 6, 0, (0,)),
        ("param_resnet_2gpu_rank1_et_1.1.0-chakra.0.0.4.json.gz", 21, 6, 1, (0, 1)),
        ("param_resnet_et_old.json.gz", 21, 6, 0, (0,)),
    ],
)
def test_public_traces(name: str, events: int, waits: int, rank: int, members: tuple[int, ...]) -> None:
    path = REAL / "pytorch_et" / name
    assert recognise_file(path).name == "pytorch_et"
    trace = open_trace(path)
    assert len(trace) == trace.coverage.used == events
    assert trace.coverage.read - events == waits
    assert trace.coverage.ranks == (rank,)
    assert {g.members for g in trace.groups} == ({members} if members else set())
    assert not trace.unsized
    if name.startswith("param_resnet_2gpu"):
        assert ops(trace)[:3] == [("broadcast", 212480), ("broadcast", 424), ("all_reduce", 8196000)]
        assert known(trace.root, 0) == 0


@real
def test_chakra_marked_trace_with_backend_addresses() -> None:
    path = REAL / "chakra_et" / "chakra_pytorch_et_1.0.2-chakra.0.0.4.json"
    trace = open_trace(path)
    assert trace.source_format == "pytorch_et"
    assert ops(trace) == [("all_gather", 8)] * 10
    assert trace.groups[0].members == (0, 1)
    assert trace.coverage.read == 20
