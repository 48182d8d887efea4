"""Chakra traces: the wire form, collectives and messages, groups, damage, and the public traces."""

from __future__ import annotations

import contextlib
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import FormatError, LabError, MergeError
from commcanary_lab.importers import chakra_et
from commcanary_lab.importers.chakra_schema import (
    CommType,
    Metadata,
    Node,
    NodeType,
    Value,
    decode_node,
    encode_node,
    encode_trace,
    messages,
)
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.importers.protobuf_wire import Damaged, bytes_field, delimited, read_varint, signed, varint, varint_field
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import build_matrix
from tests.importers.damage import attempt, byte_damage, known, refused, row_refused

REAL = Path(__file__).parents[3] / "shared" / "data" / "real" / "chakra_et"

HEAD = Metadata("0.0.4")


def coll(number: int, kind: int, size: int | None = 1 << 20, **more: Value) -> Node:
    attributes: dict[str, Value] = {"is_cpu_op": False, "comm_type": kind} | ({} if size is None else {"comm_size": size}) | more
    return Node(number, f"n{number}", NodeType.COMM_COLL, attributes=attributes)


def message(number: int, sends: bool, source: int, destination: int, size: int = 64, **more: Value) -> Node:
    kind = NodeType.COMM_SEND if sends else NodeType.COMM_RECV
    return Node(number, f"n{number}", kind, attributes={"comm_src": source, "comm_dst": destination, "comm_size": size} | more)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Trace]:
    def go(*files: list[Node], **options: Any) -> Trace:
        paths = [tmp_path / f"t.{i}.et" for i in range(len(files))]
        for path, nodes in zip(paths, files, strict=True):
            path.write_bytes(encode_trace(HEAD, nodes))
        return chakra_et.read(paths, **options)

    return go


def ops(trace: Trace) -> list[tuple[str | None, int]]:
    return [(trace.op.text(i), int(trace.size_bytes[i])) for i in range(len(trace))]


# -- wire form --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**64 - 1))
def test_varints_round_trip(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0, len(data)) == (value, len(data))
    assert signed(value) == struct.unpack("<q", struct.pack("<Q", value))[0]


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5).map(tuple),
    st.lists(st.booleans(), min_size=1, max_size=5).map(tuple),
)


@given(
    number=st.integers(0, 2**64 - 1),
    name=st.text(max_size=20),
    kind=st.integers(0, 7),
    deps=st.lists(st.integers(0, 2**64 - 1), max_size=4),
    start=st.integers(0, 2**63),
    inputs=st.text(max_size=20),
    attributes=st.dictionaries(st.text(min_size=1, max_size=9), VALUES, max_size=4),
)
def test_nodes_round_trip(**parts: Any) -> None:
    node = Node(
        parts["number"], parts["name"], parts["kind"], tuple(parts["deps"]), (), parts["start"], 0, parts["inputs"], parts["attributes"]
    )
    data = encode_node(node)
    assert decode_node(data, 0, len(data)) == node


def attribute(name: str, field: bytes) -> bytes:
    return bytes_field(10, bytes_field(1, name.encode()) + field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (varint_field(7, 2**64 - 5), -5),
        (varint_field(9, 2**64 - 5), -5),
        (varint_field(11, 5), 5),
        (varint_field(13, 2**63), 2**63),
        (varint_field(15, 9), -5),
        (varint_field(17, 9), -5),
        (varint_field(27, 1), True),
        (bytes_field(29, b"x"), "x"),
        (bytes([19 << 3 & 0x7F | 0x85, 19 >> 4]) + struct.pack("<I", 5), 5),
        (bytes([21 << 3 & 0x7F | 0x81, 21 >> 4]) + struct.pack("<Q", 5), 5),
        (bytes([23 << 3 & 0x7F | 0x85, 23 >> 4]) + struct.pack("<i", -5), -5),
        (bytes([25 << 3 & 0x7F | 0x81, 25 >> 4]) + struct.pack("<q", -5), -5),
        (b"\x19" + struct.pack("<d", 2.5), 2.5),
        (b"\x2d" + struct.pack("<f", 2.5), 2.5),
        (bytes_field(12, varint_field(1, 3) + varint_field(1, 4)), (3, 4)),
        (bytes_field(28, bytes_field(1, b"\1\0")), (True, False)),
    ],
)
def test_every_kind_of_value(field: bytes, value: Value) -> None:
    data = varint_field(1, 1) + attribute("a", field)
    assert decode_node(data, 0, len(data)).attributes == {"a": value}


def test_dependencies_packed_or_not() -> None:
    data = varint_field(4, 7) + varint_field(4, 300) + bytes_field(5, varint(1) + varint(2))
    node = decode_node(data, 0, len(data))
    assert (node.control_deps, node.data_deps) == ((7, 300), (1, 2))


def test_unknown_fields_are_skipped() -> None:
    data = varint_field(1, 3) + varint_field(77, 5) + bytes_field(78, b"abc") + varint_field(3, 7)
    assert decode_node(data, 0, len(data)) == Node(3, "", 7)


@pytest.mark.parametrize(
    "head", [b"", b"\n\n\n", b"{}", b"n1:77:77 NCCL INFO " * 200, b"\x80\x02}", b"0.0.4\n" * 300, b"\x07\x0a\x050.0.4" + b"\x02\x0b\x0c"]
)
def test_other_content_is_not_recognised(head: bytes) -> None:
    assert not chakra_et.recognise(head)


def test_a_first_node_beyond_the_head_is_recognised() -> None:
    data = encode_trace(HEAD, [Node(1, "x", 7, inputs="y" * 100_000)])
    assert chakra_et.recognise(data[: 64 << 10])


# -- meaning ----------------------------------------------------------------------------------------------------------


def test_sizes_are_B(read: Callable[..., Trace]) -> None:
    kinds = [CommType.ALL_REDUCE, CommType.ALL_GATHER, CommType.REDUCE_SCATTER, CommType.ALL_TO_ALL, CommType.BROADCAST, CommType.REDUCE]
    trace = read(*[[coll(i, k, 64) for i, k in enumerate(kinds)] + [coll(9, CommType.BARRIER, None)] for _ in range(4)])
    assert ops(trace) == [
        ("all_reduce", 64),
        ("all_gather", 256),
        ("reduce_scatter", 64),
        ("all_to_all", 64),
        ("broadcast", 64),
        ("reduce", 64),
        ("barrier", 0),
    ]
    assert {g.members for g in trace.groups} == {(0, 1, 2, 3)}
    assert trace.record_count == 28
    assert trace.start_ns.none_known
    assert any("one per file" in n for n in trace.notes)


def test_messages_are_one_event(read: Callable[..., Trace]) -> None:
    trace = read(
        [message(1, True, 0, 1), message(2, True, 0, 1, 32, comm_tag=5)], [message(1, False, 0, 1), message(2, False, 0, 1, 32, comm_tag=5)]
    )
    assert ops(trace) == [("point_to_point", 64), ("point_to_point", 32)]
    assert [(known(trace.sender, i), known(trace.receiver, i), trace.tag.text(i)) for i in (0, 1)] == [(0, 1, None), (0, 1, "5")]
    assert build_matrix(trace).dense().tolist() == [[0, 96], [0, 0]]


def test_times_where_all_ranks_have_them(read: Callable[..., Trace]) -> None:
    timed = Node(1, "x", NodeType.COMM_COLL, (), (), 100, 7, "", {"comm_type": 0, "comm_size": 8})
    later = Node(2, "x", NodeType.COMM_COLL, (), (), 200, 9, "", {"comm_type": 0, "comm_size": 8})
    assert read([timed, later], [timed, later]).duration_max_ns.values.tolist() == [7000, 9000]
    assert read([timed, later], [timed, later]).start_ns.values.tolist() == [0, 100_000]
    untimed = Node(2, "x", NodeType.COMM_COLL, (), (), 200, 0, "", {"comm_type": 0, "comm_size": 8})
    assert read([timed, later], [timed, untimed]).duration_max_ns.mask.tolist() == [True, False]


def test_groups(read: Callable[..., Trace]) -> None:
    text = str([json.dumps([{"pg_name": "3", "ranks": [2, 0]}, {"pg_name": "0", "ranks": [], "group_size": 3}])])
    table = Node(1, "## process_group:init ##", NodeType.METADATA, inputs=text)
    trace = read([table, coll(2, 0, pg_name="3"), coll(3, 0, pg_name="0"), coll(4, 0, comm_group=(0, 2)), coll(5, 0, pg_name="[0, 1]")])
    assert [trace.groups[g].members for g in trace.group] == [(0, 2), (0, 1, 2), (0, 2), (0, 1)]


def test_one_file_does_not_know_the_whole_system(read: Callable[..., Trace]) -> None:
    trace = read([coll(1, 0, 64)])
    assert [(u.reason.partition(":")[0], u.size_bytes) for u in trace.unsized] == [("members unknown", 64)]


def test_a_gap_between_the_files_leaves_members_unknown(tmp_path: Path) -> None:
    paths = [tmp_path / f"t.{i}.et" for i in (0, 2)]
    for path in paths:
        path.write_bytes(encode_trace(HEAD, [coll(1, 0)]))
    trace = chakra_et.read(paths)
    assert len(trace) == 0
    assert all("without a gap" in u.reason for u in trace.unsized)


def test_host_nodes_beside_their_device_nodes(read: Callable[..., Trace]) -> None:
    host = Node(1, "c10d::allreduce_", NodeType.COMM_COLL, attributes={"is_cpu_op": True})
    trace = read([host, coll(2, 0)], [host, coll(2, 0)])
    assert len(trace) == 1
    assert trace.coverage.skipped == {"dispatches on the host what a device node runs": 2}
    assert len(read([host]).unsized) == 1  # alone it is all that is known


def test_files_must_agree(read: Callable[..., Trace], tmp_path: Path) -> None:
    with pytest.raises(MergeError, match="says size_bytes"):
        read([coll(1, 0, 8)], [coll(1, 0, 16)])
    for name in ("a.et", "b.et"):
        (tmp_path / name).write_bytes(encode_trace(HEAD, [coll(1, 0)]))
    with pytest.raises(FormatError, match=r"a.et: neither the trace nor its name says which NPU it is of"):
        chakra_et.read([tmp_path / "a.et", tmp_path / "b.et"])


def test_feeder_json(tmp_path: Path) -> None:
    nodes = [
        {"Id": 1, "Name": "ar", "NodeType": 7, "comm_type": 0, "comm_size": 64, "runtime": 5, "is_cpu_op": False},
        {"Id": 2, "Name": "s", "NodeType": 5, "comm_src": 0, "comm_dst": 3, "comm_size": 8, "runtime": 5},
        {"Id": 3, "Name": "gemm", "NodeType": 4, "runtime": 5},
    ]
    (tmp_path / "t.0.json").write_text(json.dumps({"workload_graph": nodes, "ngpus": 4}))
    trace = open_trace(tmp_path / "t.0.json")
    assert trace.source_format == "chakra_et"
    assert ops(trace) == [("all_reduce", 64), ("point_to_point", 8)]
    assert trace.groups[0].members == (0, 1, 2, 3)
    assert trace.duration_max_ns.values.tolist() == [5000, 5000]


# -- damage -----------------------------------------------------------------------------------------------------------

ROWS: dict[str, tuple[Node, str]] = {
    "no comm_type": (Node(1, "x", 7, attributes={"comm_size": 8}), "operation unknown: comm_type is missing"),
    "unknown comm_type": (coll(1, 10), "operation unknown: comm_type is 10"),
    "negative comm_type": (coll(1, -1), "operation unknown"),
    "comm_type is a text": (Node(1, "x", 7, attributes={"comm_type": "ALL_REDUCE", "comm_size": 8}), "operation unknown"),
    "comm_type is true": (Node(1, "x", 7, attributes={"comm_type": True, "comm_size": 8}), "operation unknown"),
    "no comm_size": (coll(1, 0, None), "size missing"),
    "negative comm_size": (coll(1, 0, -8), "comm_size is -8"),
    "comm_size is a text": (coll(1, 0, None, comm_size="8"), "comm_size is '8'"),
    "comm_size is a fraction": (coll(1, 0, None, comm_size=8.5), "comm_size is 8.5"),
    "comm_size is a list": (coll(1, 0, None, comm_size=(8,)), "comm_size is (8,)"),
    "comm_size is true": (coll(1, 0, None, comm_size=True), "comm_size is True"),
    "comm_size is huge": (coll(1, 0, (1 << 63) - 1), "comm_size is"),
    "gather out of range": (coll(1, 2, (1 << 62) - 1, comm_group=(0, 1)), "size out of range"),
    "unknown group": (coll(1, 0, pg_name="tp"), "members unknown: the file does not say who is in group tp"),
    "unknown group by number": (coll(1, 0, pg_name=7), "members unknown: the file does not say who is in group 7"),
    "group without the NPU": (coll(1, 0, comm_group=(1, 2)), "members unknown: NPU 0 is not in its own group"),
    "some dimensions": (coll(1, 0, involved_dim=(True, False)), "members unknown: the collective is over some dimensions"),
    "send without size": (Node(1, "x", 5, attributes={"comm_dst": 1}), "size missing"),
    "send without peer": (Node(1, "x", 5, attributes={"comm_size": 8}), "peer unknown: comm_dst is None"),
    "receive without peer": (Node(1, "x", 6, attributes={"comm_size": 8}), "peer unknown: comm_src is None"),
    "send to a negative NPU": (message(1, True, 0, -2), "peer unknown: comm_dst is -2"),
    "send of another NPU": (message(1, True, 1, 0), "peer unknown: a message from 1 to 0 in the trace of NPU 0"),
    "receive of another NPU": (message(1, False, 0, 1), "peer unknown"),
    "send to itself": (message(1, True, 0, 0), "message of an NPU to itself"),
    "peer is a text": (Node(1, "x", 5, attributes={"comm_dst": "1", "comm_size": 8}), "peer unknown: comm_dst is '1'"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_bad_node_is_refused_and_the_rest_is_read(kind: str, tmp_path: Path) -> None:
    node, reason = ROWS[kind]
    data = encode_trace(HEAD, [message(8, True, 0, 1), node, message(9, True, 0, 1)])
    assert reason in row_refused(chakra_et.read, tmp_path / "t.0.et", data, 2)


GOOD = encode_trace(HEAD, [message(i, True, 0, 1) for i in range(8)])
_META = delimited(bytes_field(1, b"0.0.4"))

FILES: dict[str, bytes] = {
    "length beyond the end": _META + varint(1 << 40) + b"abc",
    "length of eleven bytes": _META + b"\xff" * 10 + b"\x01",
    "length cut": _META + b"\x80",
    "metadata with other fields": delimited(varint_field(3, 5)) + delimited(varint_field(1, 1)),
    "metadata is a number": delimited(varint_field(1, 5)),
    "metadata cut": b"\x07\x0a\x05" + b"0.0",
    "node with a group": _META + delimited(b"\x0b\x0c"),
    "node of wire type 6": _META + delimited(b"\x0e"),
    "node of wire type 7": _META + delimited(b"\x0f"),
    "field number 0": _META + delimited(b"\x00\x01"),
    "field number of 2**40": _META + delimited(varint(1 << 43) + b"\x01"),
    "name beyond the node": _META + delimited(b"\x12\x7fabc"),
    "name of 2**60 bytes": _META + delimited(b"\x12" + varint(1 << 60)),
    "name is a number": _META + delimited(varint_field(2, 5)),
    "id is a text": _META + delimited(bytes_field(1, b"x")),
    "type is a text": _META + delimited(bytes_field(3, b"x")),
    "attribute is a number": _META + delimited(varint_field(10, 5)),
    "attribute beyond its end": _META + delimited(bytes_field(10, b"\x0a\x7fa")),
    "attribute list cut": _META + delimited(bytes_field(10, bytes_field(1, b"a") + bytes_field(10, b"\x0a\x05\x80"))),
    "attribute number cut": _META + delimited(bytes_field(10, bytes_field(1, b"a") + b"\x48\x80")),
    "attribute number of 11 bytes": _META + delimited(bytes_field(10, b"\x48" + b"\x80" * 10 + b"\x01")),
    "double cut": _META + delimited(bytes_field(10, b"\x19\x00")),
    "dependencies cut": _META + delimited(bytes_field(4, b"\x80")),
    "inputs cut": _META + delimited(bytes_field(8, b"\x0a\x7f")),
    "feeder without a graph": b'{"ngpus": 8}',
    "feeder graph is a text": b'{"workload_graph": "x"}',
    "feeder nodes are numbers": b'{"workload_graph": [1]}',
    "feeder unclosed": b'{"workload_graph": [',
    "feeder deep": b'{"workload_graph": ' + b"[" * 200_000,
}


@pytest.mark.parametrize("kind", [*FILES, *byte_damage(b"x" * 40)])
def test_a_file_that_is_no_trace_is_refused(kind: str, tmp_path: Path) -> None:
    data = FILES.get(kind) or byte_damage(GOOD)[kind]
    if kind == "gzip with a wrong sum":
        out = attempt(chakra_et.read, tmp_path / "t.0.et", data)
        assert isinstance(out, Trace)
        assert any("damaged" in w for w in out.warnings)
        return
    if kind == "zeros":  # messages of no bytes: nothing is said, nothing is wrong
        out = attempt(chakra_et.read, tmp_path / "t.0.et", data)
        assert isinstance(out, Trace)
        assert out.coverage.read == 0
        return
    refused(chakra_et.read, tmp_path / "t.0.et", data)


@pytest.mark.parametrize("position", range(len(GOOD) // 4))
def test_any_changed_byte_ends_well(position: int, tmp_path: Path) -> None:
    for value in (0x00, 0x7F, 0x80, 0xFF):
        data = bytearray(GOOD)
        data[position * 4] = value
        attempt(chakra_et.read, tmp_path / "t.0.et", bytes(data))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_node_or_damaged(data: bytes) -> None:
    with contextlib.suppress(Damaged):
        assert isinstance(decode_node(data, 0, len(data)), Node)


@pytest.mark.parametrize("text", ["", "[{", "[{]}]", "[{}]", '[{"pg_name": "3", "ranks": "all"}]', "[{" * 5000 + "}]"])
def test_an_unusable_table_of_groups_is_not_used(text: str, read: Callable[..., Trace]) -> None:
    trace = read([Node(1, "## process_group:init ##", NodeType.METADATA, inputs=text), coll(2, 0, pg_name="3")])
    assert trace.unsized[0].reason.startswith("members unknown")


def test_archives_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.0.et").write_bytes(GOOD)
    for mode in ("w", "w:gz"):
        with tarfile.open(tmp_path / "t.tar", mode) as tar:  # type: ignore[call-overload]
            tar.add(tmp_path / "t.0.et", "t.0.et")
        for read in (open_trace, lambda p: chakra_et.read([p])):
            with pytest.raises(FormatError, match="the file is a tar archive; extract it first"):
                read(tmp_path / "t.tar")


# -- public traces ----------------------------------------------------------------------------------------------------

real = pytest.mark.skipif(not REAL.is_dir(), reason="public traces (../shared/data/real/chakra_et) are not here")


@real
@pytest.mark.parametrize(
    ("name", "size", "total"),
    [
        ("all_reduce", 1 << 20, 6 << 20),
        ("all_gather", 4 << 20, 12 << 20),
        ("reduce_scatter", 1 << 20, 3 << 20),
        ("all_to_all", 1 << 20, 3 << 20),
    ],
)
def test_public_microbenchmarks(name: str, size: int, total: int) -> None:
    trace = open_trace(REAL / f"astrasim_{name}_4npus_1MB")
    assert trace.source_format == "chakra_et"
    assert ops(trace) == [(name, size)]  # comm_size is 1 MiB: what one NPU puts in
    assert trace.record_count == 4
    assert build_matrix(trace).sum_bytes == pytest.approx(total, rel=1e-12)
    for path in (REAL / f"astrasim_{name}_4npus_1MB").iterdir():
        bounds = list(messages(path.read_bytes()))
        assert decode_node(path.read_bytes(), *bounds[1]).attributes["comm_size"] == 1 << 20


@real
@pytest.mark.parametrize("name", ["chakra_feeder_tests_trace.tar.gz", "chakra_json_trace.tar.gz"])
def test_public_archives(name: str, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="tar archive; extract it first"):
        open_trace(REAL / name)
    with tarfile.open(REAL / name) as tar:
        tar.extractall(tmp_path, filter="data")
    for path in sorted(p for p in tmp_path.rglob("*") if p.is_file()):
        assert recognise_file(path).name == "chakra_et"
        trace = open_trace(path)
        assert len(trace) == 0
        if path.suffix == ".et":  # sizes are there, the system is not
            assert [u.size_bytes for u in trace.unsized] == [212480, 424, 8196000, 31502336, 26255360, 26550272, 9724160]
            assert [u.time_ns for u in trace.unsized] == [28000, 5000, 5572000, 9093000, 8512000, 8178000, 5327000]
            assert trace.coverage.skipped["dispatches on the host what a device node runs"] == 14
        else:
            assert all(u.reason == "operation unknown: comm_type is missing" for u in trace.unsized)
