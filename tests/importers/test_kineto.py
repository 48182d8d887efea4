"""Linking, membership, sizes, times and overlap of the Kineto importer, on small traces built here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.errors import FormatError, MergeError, UsageError
from commcanary_lab.importers import kineto
from commcanary_lab.importers.kineto_args import IntList, parse_int_list
from commcanary_lab.importers.kineto_overlap import busy
from commcanary_lab.importers.kineto_time import BadTimeError, TimeReader
from commcanary_lab.trace.records import RankCapture, Record

META: dict[str, Any] = {
    "Collective name": "allreduce",
    "dtype": "Float",
    "In msg nelems": 8,
    "Out msg nelems": 8,
    "Group size": 2,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
}
Event = dict[str, Any]
Import = Callable[..., RankCapture]


def meta(**changes: Any) -> Event:
    return {**META, **{k.replace("_", " "): v for k, v in changes.items()}}


def cpu(ts: float, dur: float = 2.0, *, ext: int | None = None, tid: int = 1, **changes: Any) -> Event:
    args = meta(**changes) | ({} if ext is None else {"External id": ext})
    return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def bare(ts: float, dur: float = 2.0, tid: int = 1) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def note(name: str, ts: float, dur: float = 1.0, tid: int = 1) -> Event:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def launch(ts: float, corr: int, tid: int = 1, name: str = "cudaLaunchKernelExC") -> Event:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 0.5, "args": {"correlation": corr}}


def kernel(
    ts: float,
    dur: float,
    corr: int = 0,
    *,
    name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    ext: int | None = None,
    stream: int = 20,
    device: int = 0,
    args: Event | None = None,
) -> Event:
    own = {"device": device, "stream": stream, "correlation": corr} | ({} if ext is None else {"External id": ext}) | (args or {})
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": own}


@pytest.fixture
def load(tmp_path: Path) -> Import:
    def load(*events: Event, rank: int = 0, world: int | None = 2, info: Event | None = None, **top: Any) -> RankCapture:
        path = tmp_path / "t.json"
        document = {
            "distributedInfo": {"rank": rank, **({} if world is None else {"world_size": world}), **(info or {})},
            "traceEvents": list(events),
            **top,
        }
        path.write_text(json.dumps(document))
        return kineto.read_rank(path)

    return load


def one(capture: RankCapture) -> Record:
    assert len(capture.records) == 1
    assert capture.unsized == ()
    return capture.records[0]


# -- linking ----------------------------------------------------------------------------------------------------------


def test_kernel_by_external_id(load: Import) -> None:
    r = one(load(cpu(1, ext=7), kernel(50, 3, 900, ext=7)))
    assert (r.start_ns, r.duration_ns) == (50_000, 3_000)


def test_kernel_by_its_launch(load: Import) -> None:
    """Before 2023 the kernel's External id is only its correlation number, even where a record happens to have that number."""
    capture = load(cpu(1, ext=900), cpu(10, ext=8), launch(11, 900), kernel(50, 3, 900, ext=900))
    assert [(r.start_ns, r.duration_ns) for r in capture.records] == [(1_000, None), (50_000, 3_000)]


def test_launch_on_another_thread_links_nothing(load: Import) -> None:
    capture = load(cpu(1), launch(2, 5, tid=9), kernel(50, 3, 5))
    assert [r.duration_ns for r in capture.records] == [None]
    assert [(u.time_ns, u.reason) for u in capture.unsized] == [(3_000, "kernel without metadata or CPU record")]


def test_kernel_by_its_own_metadata(load: Import) -> None:
    capture = load(
        cpu(1),
        cpu(5, In_msg_nelems=4, Out_msg_nelems=4),
        kernel(50, 3, args=meta(In_msg_nelems=4, Out_msg_nelems=4)),
        kernel(60, 4, args=meta()),
    )
    assert [(r.size_bytes, r.duration_ns) for r in capture.records] == [(32, 4_000), (16, 3_000)]


def test_kernel_metadata_counts_where_the_cpu_record_is_missing(load: Import) -> None:
    r = one(load(kernel(50, 3, args=meta())))
    assert (r.op, r.size_bytes, r.start_ns, r.duration_ns) == ("all_reduce", 32, 50_000, 3_000)


def test_kernel_metadata_that_cannot_be_read(load: Import) -> None:
    capture = load(kernel(50, 3, args=meta(In_msg_nelems="many")))
    assert [u.reason for u in capture.unsized] == ["metadata not readable: In msg nelems is 'many'"]
    assert any("event 0" in w and "In msg nelems" in w for w in capture.warnings)
    linked = load(cpu(1, ext=7), kernel(50, 3, 900, ext=7, args=meta(In_msg_nelems="many")))
    assert one(linked).duration_ns == 3_000
    assert linked.warnings == ()


def test_kernel_metadata_fills_a_record_without_any(load: Import) -> None:
    r = one(load(bare(1), launch(2, 5), kernel(50, 3, 5, args=meta())))
    assert (r.size_bytes, r.duration_ns) == (32, 3_000)


def test_annotations_do_not_count_again(load: Import) -> None:
    gpu = {**note("nccl:all_reduce", 50, 3), "cat": "gpu_user_annotation", "pid": 0, "tid": 20}
    r = one(load(cpu(1), note("nccl:all_reduce", 1.5), launch(2, 5), kernel(50, 3, 5), gpu))
    assert r.duration_ns == 3_000


def test_record_without_metadata_takes_its_name_from_the_annotation(load: Import) -> None:
    capture = load(bare(1), note("nccl:_all_gather_base", 1.5), launch(2, 5), kernel(50, 3, 5), bare(20))
    assert [(u.name, u.time_ns, u.start_ns) for u in capture.unsized] == [("nccl:_all_gather_base", 3_000, 50_000)]
    assert capture.coverage.read == 2
    assert capture.coverage.used == 0


def test_annotation_without_a_record(load: Import) -> None:
    capture = load(note("nccl:all_to_all", 1), launch(1.5, 5), kernel(50, 3, 5))
    assert [(u.name, u.time_ns) for u in capture.unsized] == [("nccl:all_to_all", 3_000)]
    without = load(note("gloo:all_reduce", 1, 4.5))
    assert [(u.name, u.time_ns) for u in without.unsized] == [("gloo:all_reduce", 4_500)]


def test_gloo_annotation_beside_a_record_of_the_same_operation(load: Import) -> None:
    assert one(load(cpu(1), note("gloo:all_reduce", 2, 9, tid=77))).size_bytes == 32


def test_barrier_and_the_all_reduce_inside_it(load: Import) -> None:
    barrier = cpu(1, 10, ext=1, Collective_name="barrier", dtype="Byte", In_msg_nelems=0, Out_msg_nelems=0, Seq=4)
    inner = cpu(2, 3, ext=2, In_msg_nelems=1, Out_msg_nelems=1, Seq=5)
    capture = load(barrier, inner, kernel(50, 3, 900, ext=2))
    r = one(capture)
    assert (r.op, r.custom_op, r.size_bytes, r.dtype, r.duration_ns) == ("barrier", True, 0, None, 3_000)
    assert capture.coverage.skipped == {"implements the collective around it": 1}


def test_overlapping_records_of_one_operation_stay_two(load: Import) -> None:
    assert len(load(cpu(1, 10), cpu(2, 3)).records) == 2


def test_coalesced_collectives_share_one_kernel_and_one_sequence_number(load: Import) -> None:
    capture = load(cpu(1, Seq=3), cpu(4, Seq=3), cpu(7, Seq=3), note("nccl:coalesced", 9), launch(9.5, 5), kernel(50, 3, 5), cpu(20, Seq=4))
    assert [r.duration_ns for r in capture.records] == [3_000, None, None, None]
    assert [r.start_ns for r in capture.records] == [50_000, 50_000, 50_000, 20_000]
    assert capture.unsized == ()
    assert len({r.sequence for r in capture.records}) == 4
    assert [r.sequence for r in capture.records][0::3] == [3, 4]


def test_one_message_outside_its_record_gets_the_kernel(load: Import) -> None:
    r = one(load(cpu(1, Collective_name="send", Dst_Rank=1), launch(5, 5), kernel(50, 3, 5, name="ncclDevKernel_SendRecv(x)")))
    assert (r.sender, r.receiver, r.duration_ns) == (0, 1, 3_000)


def test_batches_of_messages_by_launch(load: Import) -> None:
    def message(ts: float, name: str) -> Event:
        return cpu(ts, 1, Collective_name=name, **({"Dst_Rank": 1} if name == "send" else {"Src_Rank": 1}))

    name = "ncclDevKernel_SendRecv(x)"
    capture = load(
        message(1, "send"),
        message(3, "recv"),
        launch(5, 5),
        message(11, "send"),
        message(13, "recv"),
        launch(15, 6),
        kernel(50, 3, 5, name=name),
        kernel(60, 4, 6, name=name),
    )
    assert [(r.sender, r.receiver, r.start_ns, r.duration_ns) for r in capture.records] == [
        (0, 1, 50_000, 3_000),
        (1, 0, 50_000, None),
        (0, 1, 60_000, 4_000),
        (1, 0, 60_000, None),
    ]
    assert capture.unsized == ()
    assert capture.coverage.read == 4


def test_a_kernel_of_another_operation_does_not_run_the_batch(load: Import) -> None:
    capture = load(cpu(1, Collective_name="send", Dst_Rank=1), launch(5, 5), kernel(50, 3, 5))
    assert [r.duration_ns for r in capture.records] == [None]
    assert [u.time_ns for u in capture.unsized] == [3_000]


def test_kernels_of_a_cuda_graph_are_not_taken_for_recorded_collectives(load: Import) -> None:
    capture = load(cpu(1), launch(5, 5, name="cudaGraphLaunch"), kernel(50, 3, 5), kernel(60, 3, 5))
    assert [r.duration_ns for r in capture.records] == [None]
    assert len(capture.unsized) == 2


def test_several_kernels_of_one_collective(load: Import) -> None:
    r = one(load(cpu(1, ext=7), kernel(50, 3, 1, ext=7), kernel(60, 4, 2, ext=7), kernel(61, 2, 3, ext=7)))
    assert (r.start_ns, r.duration_ns) == (50_000, 7_000)


def test_setup_records_are_no_collectives(load: Import) -> None:
    capture = load(cpu(1, Collective_name="init", Group_size=2), cpu(4, Collective_name="wait", Group_size=1, Process_Group_Ranks="[]"))
    assert capture.records == []
    assert capture.unsized == ()
    assert capture.coverage.read == 2


# -- members ----------------------------------------------------------------------------------------------------------

CUT = "[0, 1, ...]"


@pytest.mark.parametrize(
    ("config", "label"),
    [
        ([{"pg_name": "0", "ranks": [0, 1, 2, 3]}], "list of objects"),
        ([{"uid": 0, "pg_size": 4, "ranks": [0, 1, 2, 3]}], "uid"),
        ({"0": {"ranks": [0, 1, 2, 3]}}, "object by name"),
        ({"0": [0, 1, 2, 3]}, "lists by name"),
        (json.dumps([{"pg_name": "0", "ranks": [0, 1, 2, 3]}]), "JSON text"),
        ([json.dumps({"pg_name": "0", "ranks": "[0, 1, 2, 3]"})], "texts in a list"),
        ([{"pg_name": "0", "pg_size": 4, "ranks": []}], "empty list for the whole world"),
    ],
)
def test_pg_config_in_its_shapes(config: Any, label: str, load: Import) -> None:
    capture = load(cpu(1, Group_size=4, Process_Group_Ranks=CUT), world=4, info={"pg_config": config})
    assert one(capture).members == (0, 1, 2, 3), label
    assert any("distributedInfo.pg_config" in n for n in capture.notes)


def test_older_process_group_id(load: Import) -> None:
    args = meta(Group_size=4, Process_Group_Ranks=CUT, Process_Group_ID=5)
    del args["Process Group Name"]
    event = {**cpu(1), "args": args}
    assert one(load(event, world=4, info={"pg_config": [{"uid": 5, "ranks": [0, 1, 2, 3]}]})).members == (0, 1, 2, 3)


def test_start_and_stride(load: Import) -> None:
    event = cpu(1, Group_size=4, Process_Group_Ranks="[0, 2, ..., 6]", Global_rank_start=0, Global_rank_stride=2)
    capture = load(event, world=8)
    assert one(capture).members == (0, 2, 4, 6)
    assert any("start and stride" in n for n in capture.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"Global_rank_start": 0, "Global_rank_stride": 3},
        {"Global_rank_start": -1, "Global_rank_stride": -1},
        {},
        {"Process_Group_Ranks": "[0, 2, ..., 7]", "Global_rank_start": 0, "Global_rank_stride": 2},
    ],
)
def test_start_and_stride_that_contradict_or_are_missing(changes: Event, load: Import) -> None:
    capture = load(cpu(1, **{"Group_size": 4, "Process_Group_Ranks": "[0, 2, ...]", **changes}), world=16)
    assert capture.records == []
    (row,) = capture.unsized
    assert row.reason.startswith("members unknown")
    assert row.size_bytes == 32
    assert capture.coverage.skipped == {"members unknown": 1}


def test_pg_config_that_contradicts_the_event(load: Import) -> None:
    capture = load(
        cpu(1, Group_size=4, Process_Group_Ranks="[0, 9, ...]"), world=16, info={"pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}]}
    )
    assert capture.records == []
    assert "contradicts" in capture.unsized[0].reason


def test_two_lists_for_one_group(load: Import) -> None:
    info = {"pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "0", "ranks": [0, 1, 2, 4]}]}
    capture = load(cpu(1, Group_size=4, Process_Group_Ranks=CUT), world=8, info=info)
    assert capture.records == []
    assert any("two different rank lists" in w for w in capture.warnings)


def test_a_group_of_one_is_the_rank_itself(load: Import) -> None:
    assert one(load(cpu(1, Group_size=1, Process_Group_Ranks="[]"), rank=3, world=8)).members == (3,)


def test_the_whole_world_is_not_guessed_from_its_size(load: Import) -> None:
    capture = load(cpu(1, Group_size=64, Process_Group_Ranks=CUT), world=64)
    assert capture.records == []
    assert capture.unsized[0].reason == "members unknown"


def test_group_names(load: Import) -> None:
    names = [
        one(load(cpu(1, **c))).group
        for c in (
            {},
            {"Process_Group_Description": "undefined"},
            {"Process_Group_Description": "TP", "Process_Group_Name": "7"},
            {"Process_Group_Name": None, "Process_Group_Description": "TP"},
            {"Process_Group_Name": None},
        )
    ]
    assert names == ["0", "0", "7:TP", "TP", None]


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sent", "received", "op", "size"),
    [
        ("allreduce_coalesced", 8, 8, "all_reduce", 32),
        ("_allgather_base", 4, 8, "all_gather", 32),
        ("all_gather_into_tensor_coalesced", 4, 8, "all_gather", 32),
        ("_reduce_scatter_base", 8, 4, "reduce_scatter", 32),
        ("reduce_scatter_tensor_coalesced", 8, 4, "reduce_scatter", 32),
        ("_broadcast_oop", 8, 8, "broadcast", 32),
        ("all_to_all", 8, 8, "all_to_all", 32),
    ],
)
def test_size_is_that_of_nccl_tests(name: str, sent: int, received: int, op: str, size: int, load: Import) -> None:
    r = one(load(cpu(1, Collective_name=name, In_msg_nelems=sent, Out_msg_nelems=received)))
    assert (r.op, r.size_bytes, r.custom_op, r.dtype) == (op, size, False, "float32")
    assert r.reduction is None
    assert r.root is None


@pytest.mark.parametrize(("name", "sent", "received", "size"), [("gather", 8, 16, 64), ("reduce", 8, 8, 32), ("my_fused_op", 8, 8, 32)])
def test_unmapped_names_are_kept_and_listed(name: str, sent: int, received: int, size: int, load: Import) -> None:
    capture = load(cpu(1, Collective_name=name, In_msg_nelems=sent, Out_msg_nelems=received))
    r = one(capture)
    assert (r.op, r.custom_op, r.size_bytes) == (name, True, size)
    assert any("custom operations" in n and name in n for n in capture.notes)


def test_width_of_types_outside_the_vocabulary(load: Import) -> None:
    r = one(load(cpu(1, dtype="UInt16")))
    assert (r.dtype, r.size_bytes) == (None, 16)


def a2a(
    load: Import, sent: int, received: int, splits_in: str, splits_out: str, k: int = 2, ranks: str = "[0, 1]", **more: Any
) -> RankCapture:
    return load(
        cpu(
            1,
            Collective_name="all_to_allv",
            In_msg_nelems=sent,
            Out_msg_nelems=received,
            In_split_size=splits_in,
            Out_split_size=splits_out,
            Group_size=k,
            Process_Group_Ranks=ranks,
            **more,
        ),
        world=None,
    )


def test_splits_count_rows(load: Import) -> None:
    """A mixture-of-experts dispatch: 3 and 5 tokens of 1024 elements each."""
    capture = a2a(load, 8 * 1024, 4 * 1024, "[3, 5]", "[3, 1]")
    r = one(capture)
    assert r.sent_splits == (3 * 4096, 5 * 4096)
    assert r.received_splits == (3 * 4096, 4096)
    assert (r.sent_bytes, r.received_bytes, r.size_bytes) == (32768, 16384, 32768)
    assert any("rows" in n for n in capture.notes)


def test_splits_follow_the_order_of_global_ranks(load: Import) -> None:
    r = one(a2a(load, 8, 8, "[5, 3]", "[1, 7]", ranks="[1, 0]"))
    assert r.members == (0, 1)
    assert r.sent_splits == (12, 20)
    assert r.received_splits == (28, 4)


def test_splits_that_contradict_the_message(load: Import) -> None:
    for bad in ("[3, 6]", "[0, 0]", "[1, 2, 5]"):
        r = one(a2a(load, 8, 8, bad, "[4, 4]"))
        assert r.sent_splits is None
        assert r.received_splits == (16, 16)
        assert r.sent_bytes == 32


def test_one_split_list_left_out_means_equal_parts(load: Import) -> None:
    capture = a2a(load, 8, 8, "[]", "[3, 5]")
    assert one(capture).sent_splits == (16, 16)
    assert any("equal parts" in n for n in capture.notes)


def test_cut_splits_of_unknown_unit_are_not_used(load: Import) -> None:
    ranks = str(list(range(40)))
    shown = "[" + ", ".join(["2"] * 30) + ", ...]"
    r = one(a2a(load, 80 * 4096, 80 * 4096, shown, shown, 40, ranks))
    assert r.sent_splits is None
    assert r.sent_bytes == 80 * 4096 * 4
    with_shape = one(a2a(load, 80 * 4096, 80 * 4096, shown, shown, 40, ranks, Input_Dims=[[80, 4096], []]))
    assert with_shape.sent_splits == (2 * 4096 * 4,) * 30 + (-1,) * 10
    assert with_shape.received_splits is None


def test_cut_splits_with_the_last_entry(load: Import) -> None:
    r = one(a2a(load, 20, 20, "[4, 4, ..., 6]", "[5, 5, 5, 5]", 4, "[0, 1, 2, 3]"))
    assert r.sent_splits == (16, 16, -1, 24)
    assert r.received_splits == (20, 20, 20, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[0, 1, 2]", IntList((0, 1, 2))),
        ("[0, ...]", IntList((0,), True)),
        ("[0, ..., 9]", IntList((0,), True, 9)),
        ("[]", IntList(())),
        ("[...]", IntList((), True)),
        ("0, 1", None),
        ("[0, x]", None),
        ("[0, ..., 8, 9]", None),
        ("[0,, 1]", None),
    ],
)
def test_printed_lists(text: str, expected: IntList | None) -> None:
    assert parse_int_list(text) == expected


# -- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        (b"0", 0),
        (b"1.5", 1500),
        (b"4458676524648.797", 4458676524648797),
        (b"1e3", 1_000_000),
        (b'"12.25"', 12250),
        (b"-3.5", -3500),
        (b"1712195495519689.047", 1712195495519689047),
        (b"0e999999999", 0),
        (b"1e-999999", 0),
    ],
)
def test_exact_nanoseconds(text: bytes, ns: int) -> None:
    assert TimeReader(None).start_ns(text) == ns


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"NaN", b"Infinity", b"1e400", b"9" * 25, b"\xff"])
def test_what_is_no_time(text: bytes) -> None:
    with pytest.raises(BadTimeError):
        TimeReader(None).span_ns(text)


def test_fractions_of_a_nanosecond_are_rounded_and_reported(load: Import) -> None:
    capture = load(cpu(1.00049), cpu(2.5, 1.25))
    assert [r.start_ns for r in capture.records] == [1000, 2500]
    assert any("not whole nanoseconds" in w and "0.49 ns" in w for w in capture.warnings)


def test_absolute_times_with_a_base(load: Import) -> None:
    """Some versions write a base and absolute times all the same."""
    capture = load(cpu(1711964646001005.25), baseTimeNanoseconds=1711964646000000000)
    assert one(capture).start_ns == 1711964646001005250
    assert capture.clock == "unix"


def test_times_without_an_origin_have_their_own_clock(load: Import) -> None:
    assert load(cpu(10), rank=1).clock != "unix"
    assert load(cpu(10), rank=1, baseTimeNanoseconds=10**18).clock == "unix"


def test_cpu_time_stands_in_only_where_there_is_no_device(load: Import) -> None:
    alone = load(cpu(1, 2))
    assert one(alone).duration_ns == 2_000
    assert any("CPU records" in n for n in alone.notes)
    beside = load(cpu(1, 2), kernel(3, 4, name="gemm"))
    assert one(beside).duration_ns is None
    assert any("no device kernel" in n for n in beside.notes)


# -- overlap ----------------------------------------------------------------------------------------------------------


def test_overlap_is_compute_on_other_streams_of_the_device(load: Import) -> None:
    capture = load(
        cpu(1, ext=7),
        kernel(50, 10, 1, ext=7),
        kernel(45, 8, 2, name="gemm", stream=7),
        kernel(51, 4, 3, name="gemm", stream=8),
        kernel(58, 1, 4, name="gemm", stream=20),
        kernel(50, 10, 5, name="gemm", stream=7, device=1),
        {**kernel(50, 10, 6, name="Memcpy DtoH", stream=9), "cat": "gpu_memcpy"},
    )
    assert one(capture).overlap_ns == 5_000  # 50..53 and 51..55


def test_overlap_without_compute_is_zero_not_unknown(load: Import) -> None:
    assert one(load(cpu(1, ext=7), kernel(50, 10, 1, ext=7))).overlap_ns == 0


def test_overlap_is_unknown_without_a_kernel_or_a_whole_timeline(load: Import) -> None:
    assert one(load(cpu(1, 2))).overlap_ns is None
    broken = load(cpu(1, ext=7), kernel(50, 10, 1, ext=7), kernel(51, -4, 3, name="gemm", stream=8))
    assert one(broken).overlap_ns is None
    assert any("overlap is unknown" in n for n in broken.notes)


def test_overlap_is_unknown_in_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    whole = json.dumps(
        {"distributedInfo": {"rank": 0}, "traceEvents": [cpu(1, ext=7), kernel(50, 10, 1, ext=7), kernel(51, 4, 3, name="gemm")]}
    )
    path.write_text(whole[:-40])
    capture = kineto.read_rank(path)
    assert one(capture).duration_ns == 10_000
    assert capture.records[0].overlap_ns is None


def test_union_of_intervals_against_a_slow_reference() -> None:
    import random

    rng = random.Random(3)
    for _ in range(50):
        a, b = ([(s, s + rng.randint(0, 30)) for s in (rng.randint(0, 100) for _ in range(rng.randint(0, 12)))] for _ in range(2))
        cover_a, cover_b = ({t for s, e in x for t in range(s, e)} for x in (a, b))
        assert busy(a).total_ns == len(cover_a)
        assert busy(a).overlap_ns(busy(b)) == busy(b).overlap_ns(busy(a)) == len(cover_a & cover_b)


def test_time_shares_add_devices_and_leave_out_what_has_no_duration(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = [
        kernel(0, 10),
        kernel(5, 10, stream=21),
        kernel(5, 5, name="gemm", stream=7),
        kernel(0, 4, device=1),
        kernel(0, -1, name="gemm"),
        note("nccl:all_reduce", 0, 50),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    shares = kineto.time_shares(path)
    assert (shares.comm_us, shares.compute_us, shares.overlap_us, shares.left_out) == (19.0, 5.0, 5.0, 1)
    path.write_text(json.dumps({"traceEvents": []}))
    assert kineto.time_shares(path).overlap_share is None


# -- files and ranks --------------------------------------------------------------------------------------------------


def write(tmp_path: Path, rank: int, *events: Event, world: int = 2, **top: Any) -> Path:
    path = tmp_path / f"rank{rank}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": list(events), **top}))
    return path


def test_two_ranks_merge_without_inventing_skew(tmp_path: Path) -> None:
    base = {"baseTimeNanoseconds": 1700000000000000000}
    files = [write(tmp_path, r, cpu(10.0 + r, ext=7, Seq=1), kernel(50.0 + r, 3, 900, ext=7), **base) for r in (0, 1)]
    trace = kineto.read(files)
    assert len(trace) == 1
    assert trace.duration_ns.row(0).tolist() == [3000, 3000]
    assert not trace.arrival_known[0]
    assert not any("single rank" in n for n in trace.notes)
    calibrated = kineto.read(files, clock_offsets_ns={0: 0, 1: 0})
    assert calibrated.arrival_ns.row(0).tolist() == [0, 1000]


def test_a_message_timed_at_one_end_only(tmp_path: Path) -> None:
    """Rank 0 exchanges two messages one by one, rank 1 in a batch, whose kernel's time is kept on one of them."""
    name = "ncclDevKernel_SendRecv(x)"
    zero = write(
        tmp_path,
        0,
        cpu(1, Collective_name="recv", Src_Rank=1),
        launch(4, 5),
        cpu(6, Collective_name="send", Dst_Rank=1),
        launch(9, 6),
        kernel(50, 3, 5, name=name),
        kernel(60, 4, 6, name=name),
    )
    one_ = write(
        tmp_path,
        1,
        cpu(1, 1, Collective_name="send", Dst_Rank=0),
        cpu(3, 1, Collective_name="recv", Src_Rank=0),
        launch(5, 5),
        kernel(50, 7, 5, name=name),
    )
    trace = kineto.read([zero, one_])
    times = {int(trace.sender.values[i]): trace.duration_ns.row(i).tolist() for i in range(len(trace))}
    assert times == {0: [4000, 7000], 1: []}
    assert any("timed at one end only" in n for n in trace.notes)


def test_both_ends_of_an_exchange_keep_the_time_on_the_same_message(tmp_path: Path) -> None:
    name = "ncclDevKernel_SendRecv(x)"
    files = [
        write(
            tmp_path,
            r,
            cpu(1, 1, Collective_name="send", Dst_Rank=1 - r),
            cpu(3, 1, Collective_name="recv", Src_Rank=1 - r),
            launch(5, 5),
            kernel(50, 3 + r, 5, name=name),
        )
        for r in (0, 1)
    ]
    trace = kineto.read(files)
    assert {int(trace.sender.values[i]): trace.duration_ns.row(i).tolist() for i in range(len(trace))} == {0: [3000, 4000], 1: []}


def test_partly_measured_collectives_are_refused(tmp_path: Path) -> None:
    files = [write(tmp_path, 0, cpu(1, 2, Seq=1)), write(tmp_path, 1, cpu(1, -2, Seq=1))]
    with pytest.raises(MergeError, match="measured on some ranks"):
        kineto.read(files)


def test_unequal_counts_without_sequence_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MergeError, match="no sequence numbers"):
        kineto.read([write(tmp_path, 0, cpu(1), cpu(5)), write(tmp_path, 1, cpu(1))])


def test_ranks_given_by_hand(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for path in files:
        path.write_text(json.dumps({"traceEvents": [cpu(1, Seq=1)]}))
    with pytest.raises(FormatError, match=r"a\.json.*ranks=\{'a\.json': N\}"):
        kineto.read(files)
    trace = kineto.read(files, ranks={"a.json": 1, str(files[1]): 0})
    assert len(trace) == 1
    assert trace.observers_of(0) == (0, 1)
    with pytest.raises(MergeError, match="both claim rank 0"):
        kineto.read(files, ranks={"a.json": 0, "b.json": 0})


def test_a_given_rank_beats_the_stated_one_with_a_warning(tmp_path: Path) -> None:
    capture = kineto.read_rank(write(tmp_path, 0, cpu(1)), rank=1)
    assert capture.rank == 1
    assert any("as asked" in w for w in capture.warnings)


def test_rank_zero_is_not_assumed_against_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [cpu(1, Process_Group_Ranks="[4, 5]")]}))
    with pytest.raises(FormatError, match="do not contain rank 0"):
        kineto.read([path])
    assert len(kineto.read([path], ranks={"t.json": 4})) == 1


def test_nothing_to_read() -> None:
    with pytest.raises(UsageError):
        kineto.read([])


@pytest.mark.parametrize(
    ("head", "claimed"),
    [
        (b'{"schemaVersion": 1, "distributedInfo": {"rank": 0, "pg_config": [' + b" " * 500, True),
        (b'\xef\xbb\xbf{"traceEvents": [', True),
        ('{"traceEvents": ['.encode("utf-16"), True),
        (b'[{"args": {"a": 1}, "ph": "X", "ts": 1', True),
        (b'[\n{"ph":"M","pid":1', True),
        (b"", False),
        (b"[", False),
        (b"[]", False),
        (b"[1, 2]", False),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [', False),
        (b'{"schema": "commcanary.trace.v1", "traceEvents": []}', False),
        (b'{"entries": [], "pg_config": {}}', False),
        (b"\x80\x02}q", False),
        (b"NCCL INFO", False),
    ],
)
def test_recognised_by_content(head: bytes, claimed: bool) -> None:
    assert kineto.recognise(head) is claimed
