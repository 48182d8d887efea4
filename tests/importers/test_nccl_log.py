"""NCCL and RCCL logs: the reference job, membership, rings, matching, and damage."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import FormatError, InputError, LabError, LimitError, RefusedError, UsageError
from commcanary_lab.importers import nccl_log
from commcanary_lab.importers.nccl_log_comms import NO_INIT, NO_WORLD
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.layout import Layout
from commcanary_lab.limits import Limits
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.trace.write_v1 import write_json
from commcanary_lab.traffic import build_matrix
from tests.importers.nccl_lines import MIB, coll, init, job, prefix

Load = Callable[..., Trace]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def read(content: Sequence[str] | str | bytes, **options: object) -> Trace:
        path = tmp_path / "job.log"
        data = (
            content
            if isinstance(content, bytes)
            else content.encode()
            if isinstance(content, str)
            else ("\n".join(content) + "\n").encode()
        )
        path.write_bytes(data)
        return nccl_log.read([path], **options)  # type: ignore[arg-type]

    return read


def links(trace: Trace, **options: object) -> dict[tuple[int, int], float]:
    return {(x.src, x.dst): x.size_bytes for x in build_matrix(trace, **options).links()}  # type: ignore[arg-type]


JOB_LINKS = {
    **{(4 * n + i, 4 * n + (i + 1) % 4): 2304.0 * MIB for n in range(2) for i in range(4)},
    **{(i, i + 4): 512.0 * MIB for i in range(4)},
    **{(i + 4, i): 512.0 * MIB for i in range(4)},
}


# -- the reference job ------------------------------------------------------------------------------------------------


def test_reference_job(load: Load) -> None:
    trace = load(job())
    matrix = build_matrix(trace)
    assert (matrix.records, matrix.payload_bytes, matrix.sum_bytes) == (200, 16384 * MIB, 22528 * MIB)
    assert links(trace) == JOB_LINKS
    assert (matrix.source, matrix.ring_order, matrix.unattributed_bytes) == ("nccl_log", "assumed", 0)
    assert trace.warnings == ()
    assert {g.name: g.members for g in trace.groups if g.size == 4} == {"0xb000": (0, 1, 2, 3), "0xb001": (4, 5, 6, 7)}


def test_one_file_per_rank_in_any_order(tmp_path: Path, load: Load) -> None:
    whole = load(job(steps=2))
    for r in range(8):
        own = [line for line in job(steps=2) if line.startswith(prefix(r))]
        (tmp_path / "ranks").mkdir(exist_ok=True)
        (tmp_path / "ranks" / f"nccl.{9 - r}.log").write_text("\n".join(own))
    several = open_trace(tmp_path / "ranks")
    assert several.equals(whole, ignore=("coverage", "notes", "groups", "group"))
    assert links(several) == links(whole)


@pytest.mark.parametrize(
    "tag", ["(Worker pid=5, ip=10.0.0.1) ", "[1,0]<stdout>:", "> ", "2026-01-02T03:04:05.1Z ", "\x1b[36m(w pid=1)\x1b[0m "]
)
def test_launcher_tags_change_nothing(tag: str, load: Load) -> None:
    assert load([tag + line for line in job()]).equals(load(job()))


def test_packed_utf16_and_windows_line_ends_change_nothing(load: Load) -> None:
    text = "\n".join(job())
    plain = load(text)
    assert load(gzip.compress(text.encode())).equals(plain)
    assert load(text.encode("utf-16")).equals(plain)
    assert load(text.replace("\n", "\r\n")).equals(plain)


def test_application_output_between_lines_changes_nothing(load: Load) -> None:
    noisy = [x for line in job() for x in (line, "step 7: loss 3.1", f"{prefix(0)} Launch mode Parallel", "")]
    assert load(noisy).equals(load(job()))


def test_round_trip_through_json(load: Load, tmp_path: Path) -> None:
    trace = load(job())
    write_json(trace, tmp_path / "t.json")
    assert read_json(tmp_path / "t.json").equals(trace)


# -- members ----------------------------------------------------------------------------------------------------------


def test_without_numbers_the_large_communicator_is_known_and_the_small_ones_are_not(load: Load) -> None:
    trace = load([*job(numbered=False), *(coll(r, "AllReduce", f"0xa{r}", 8, 8) for r in range(8))])
    assert [g.members for g in trace.groups] == [tuple(range(8))]
    assert trace.coverage.used == 8
    assert sum(trace.coverage.skipped.values()) == 200  # two groups of 4, four of 2: which is which is not said
    assert build_matrix(trace).unattributed_bytes == 16384 * MIB
    assert any("inferred, because each of its ranks occurs once" in w for w in trace.warnings)
    assert any("give a layout" in n for n in trace.notes)


def test_without_a_world_communicator_nothing_is_attributed(load: Load) -> None:
    trace = load(job(world=False))
    assert len(trace) == 0
    assert {u.reason.split(" (")[0] for u in trace.unsized} == {"members unknown: no communicator of the log gives the global ranks"}
    with pytest.raises(RefusedError, match=r"200 collectives, 16\.0 GiB in all, and of none does the source say who sends what to whom"):
        build_matrix(trace)


def test_the_log_of_one_rank(load: Load) -> None:
    own = [*(line for line in job() if line.startswith(prefix(5))), coll(5, "AllGather", "0xa5", 8, MIB, datatype=0)]
    trace = load(own)
    assert [(trace.op.text(i), trace.observers_of(i)) for i in range(len(trace))] == [("all_gather", (5,))]
    assert trace.coverage.skipped == {"members unknown: the log does not show all ranks of its communicator": 25}
    assert links(trace) == {(5, 6): 7.0 * MIB}
    assert any("the log shows 1 of them; taken as the whole job" in n for n in trace.notes)


def split_job(order: Sequence[int], *, number: bool, fused: bool) -> list[str]:
    """A world of 4, split by parity with reversed order."""
    lines = []
    for r in order:
        lines.append(init(r, f"0xa{r}", r, 4, "commId 0xaaaa"))
        tail = f"parent 0xa{r} {'splitCount 1 ' if number else ''}color {r % 2} key {-r}"
        line = init(r, f"0xb{r}", 1 - r // 2, 2, tail, "START").replace("ncclCommInitRank comm 0xb", "ncclCommSplit comm 0xb")
        lines.append(line.replace(" - Init START", "- Init START") if fused else line)
    return [*lines, *(coll(r, "Broadcast", f"0xb{r}", 2, 4, root=0) for r in order)]


@pytest.mark.parametrize("number", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_splits_without_a_number_are_joined_by_parent_and_color(number: bool, fused: bool, load: Load) -> None:
    trace = load(split_job([2, 0, 3, 1], number=number, fused=fused))
    found = {trace.groups[trace.group[i]].members: int(trace.root.values[i]) for i in range(len(trace))}
    assert found == {(0, 2): 2, (1, 3): 3}  # the key reversed the order: rank 0 of each half is the larger global rank
    assert trace.warnings == ()


def test_a_pointer_is_reused_after_its_communicator_is_destroyed(load: Load) -> None:
    lines = []
    for r in range(4):
        lines += [init(r, f"0xa{r}", r, 4, "commId 0x1"), init(r, "0xee", r // 2, 2, f"commId 0x2{r % 2}")]
        lines.append(coll(r, "AllReduce", "0xee", 2, 1))
        lines.append(f"{prefix(r)} comm 0xee rank {r // 2} nranks 2 cudaDev {r} busId 1000 - Destroy COMPLETE")
        lines += [init(r, "0xee", r % 2, 2, f"commId 0x3{r // 2}"), coll(r, "AllReduce", "0xee", 2, 2)]
    trace = load(lines)
    found = {(trace.groups[trace.group[i]].members, int(trace.size_bytes[i])) for i in range(len(trace))}
    assert found == {((0, 2), 4), ((1, 3), 4), ((0, 1), 8), ((2, 3), 8)}


def test_equal_pointers_of_different_processes_are_different_ranks(load: Load) -> None:
    lines = [init(r, "0xee", r, 4, "commId 0x1") for r in range(4)] + [coll(r, "AllReduce", "0xee", 4, 6) for r in range(4)]
    trace = load(lines)
    assert [(trace.observers_of(i), int(trace.size_bytes[i])) for i in range(len(trace))] == [((0, 1, 2, 3), 24)]


def test_threads_of_one_process_are_ranks_by_device(load: Load) -> None:
    lines = [init(r, f"0xa{r}", 3 - r, 4, "commId 0x1") for r in range(4)] + [coll(r, "Broadcast", f"0xa{r}", 4, 6) for r in range(4)]
    one = [line.replace(prefix(r), f"node0:77:{90 + r} [{r}] NCCL INFO") for r in range(4) for line in lines if line.startswith(prefix(r))]
    trace = load(one)
    assert [(trace.observers_of(0), int(trace.root.values[0]))] == [((0, 1, 2, 3), 0)]


def test_contradicting_set_up_lines_are_named(load: Load) -> None:
    lines = [init(r, f"0xa{r}", r, 4, "commId 0x1") for r in range(4)]
    lines += [init(r, f"0xb{r}", 0, 2, "commId 0x2") for r in range(2)] + [coll(r, "AllReduce", f"0xb{r}", 2, 4) for r in range(2)]
    trace = load(lines)
    assert len(trace) == 0
    assert any("communicator 0x2 (2 ranks): two handles claim one rank" in w for w in trace.warnings)


def test_ranks_given_for_files(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("x.log", "y.log")]
    for r, path in enumerate(paths):
        path.write_text("\n".join([coll(r, "Send", f"0xa{r}", 2, 10, root=1 - r), coll(r, "Recv", f"0xa{r}", 2, 10, root=1 - r)]))
    trace = open_trace(paths, ranks={"x.log": 1, "y.log": 0})
    assert links(trace) == {(0, 1): 40.0, (1, 0): 40.0}
    with pytest.raises(UsageError, match="given to two files"):
        open_trace(paths, ranks={"x.log": 1, "y.log": 1})
    paths[0].write_text("\n".join(job()))
    with pytest.raises(UsageError, match=r"x\.log: holds 8 processes or devices, not one rank"):
        open_trace(paths[0], ranks={"x.log": 1})


# -- operations -------------------------------------------------------------------------------------------------------


def pair(*lines: str) -> list[str]:
    return [*(init(r, f"0xa{r}", r, 2, "commId 0x1") for r in range(2)), *lines]


@pytest.mark.parametrize(
    ("code", "dtype", "width"),
    [(0, "int8", 1), (1, "uint8", 1), (2, "int32", 4), (3, "uint32", 4), (4, "int64", 8), (5, "uint64", 8), (6, "float16", 2),
     (7, "float32", 4), (8, "float64", 8), (9, "bfloat16", 2), (10, "float8_e4m3fn", 1), (11, "float8_e5m2", 1)],
)  # fmt: skip
def test_datatypes(code: int, dtype: str, width: int, load: Load) -> None:
    trace = load(pair(*(coll(r, "AllReduce", f"0xa{r}", 2, 10, datatype=code) for r in range(2))))
    assert (trace.dtype.text(0), int(trace.size_bytes[0])) == (dtype, 10 * width)


@pytest.mark.parametrize(
    ("name", "op", "size", "custom"),
    [("AllReduce", "all_reduce", 40, False), ("Broadcast", "broadcast", 40, False), ("Reduce", "reduce", 40, True),
     ("AllGather", "all_gather", 80, False), ("ReduceScatter", "reduce_scatter", 80, False), ("AllToAll", "all_to_all", 80, False),
     ("AlltoAll", "all_to_all", 80, False), ("Gather", "gather", 80, True), ("Frobnicate", "Frobnicate", 40, True)],
)  # fmt: skip
def test_operations_and_their_size(name: str, op: str, size: int, custom: bool, load: Load) -> None:
    trace = load(pair(*(coll(r, name, f"0xa{r}", 2, 10, root=1, reduction=2) for r in range(2))))
    assert (trace.op.text(0), int(trace.size_bytes[0]), bool(trace.custom_op[0])) == (op, size, custom)
    assert bool(trace.root.mask[0]) == (op in ("broadcast", "reduce", "gather"))
    assert trace.reduction.text(0) == ("max" if op in ("all_reduce", "reduce_scatter") else None)


def test_operator_of_the_job_is_unknown(load: Load) -> None:
    trace = load(pair(*(coll(r, "AllReduce", f"0xa{r}", 2, 10, reduction=5) for r in range(2))))
    assert trace.reduction.text(0) is None


def test_new_fields_before_the_count(load: Load) -> None:
    lines = [coll(r, "AllReduce", f"0xa{r}", 2, 10).replace(" count", " acc (nil) win 0x7 count") for r in range(2)]
    assert load(pair(*lines)).size_bytes.tolist() == [40]


def test_messages_do_not_shift_the_collectives_between_them(load: Load) -> None:
    world = [init(r, f"0xa{r}", r, 3, "commId 0x1") for r in range(3)]
    lines = [coll(0, "Send", "0xa0", 3, 5, root=1, op_count=0), coll(1, "Recv", "0xa1", 3, 5, root=0, op_count=0)]
    # ranks 0 and 1 counted the message, rank 2 did not: opCount differs, order does not
    lines += [coll(r, "AllReduce", f"0xa{r}", 3, 7, op_count=1 if r < 2 else 0) for r in range(3)]
    trace = load([*world, *lines])
    assert [(trace.op.text(i), trace.observers_of(i)) for i in range(2)] == [("point_to_point", (0, 1)), ("all_reduce", (0, 1, 2))]
    assert trace.warnings == ()


def test_logs_that_begin_at_different_operations_are_matched_by_opCount(load: Load) -> None:
    lines = [coll(r, "AllReduce", f"0xa{r}", 2, 10 + i, op_count=i) for i in range(6) for r in range(2) if not (r == 1 and i < 2)]
    trace = load(pair(*lines))
    assert [len(trace.observers_of(i)) for i in range(6)] == [1, 1, 2, 2, 2, 2]
    assert not any("desync" in w for w in trace.warnings)
    assert any("different numbers of operations" in w for w in trace.warnings)


def test_messages_of_a_cut_log_count_once(load: Load) -> None:
    lines = [coll(0, "Send", "0xa0", 2, 10, root=1)] * 3 + [coll(1, "Recv", "0xa1", 2, 10, root=0)] * 2
    trace = load(pair(*lines))
    assert links(trace) == {(0, 1): 120.0}
    assert any(w.startswith("1 messages are shown by one of their ends only") for w in trace.warnings)


def test_peer_or_root_outside_of_the_communicator(load: Load) -> None:
    trace = load(pair(coll(0, "Send", "0xa0", 2, 10, root=2), coll(0, "Broadcast", "0xa0", 2, 10, root=9)))
    assert trace.coverage.skipped == {"peer outside of the communicator": 1, "root outside of the communicator": 1}
    assert len(trace.unsized) == 2


# -- rings ------------------------------------------------------------------------------------------------------------

ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def ring_job(lines_of: Callable[[int], list[str]], *, start: bool = True) -> list[str]:
    out = []
    for r in range(8):
        thread = prefix(r)
        out += [init(r, f"0xa{r}", r, 8, "commId 0x1", "START")] if start else []
        out += [f"{thread} {line}" for line in lines_of(r)]
        out.append(init(r, f"0xa{r}", r, 8, "commId 0x1"))
    return [*out, *(coll(r, "AllReduce", f"0xa{r}", 8, 2) for r in range(8))]


def triple(order: Sequence[int], r: int, channel: int = 0) -> str:
    i = order.index(r)
    return f"Ring {channel:02d} : {order[i - 1]} -> {r} -> {order[(i + 1) % len(order)]}"


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize(
    "lines_of",
    [lambda r: [triple(ORDER, r, c) for c in range(2)], lambda r: ["Channel 00/02 : " + " ".join(f" {x}" for x in ORDER)] if r == 0 else [],
     lambda r: ["Ring 00 : " + " -> ".join(map(str, ORDER))] if r == 3 else []],
    ids=["one link per rank", "channel line", "whole chain"],
)  # fmt: skip
def test_stated_ring_order(lines_of: Callable[[int], list[str]], start: bool, load: Load) -> None:
    trace = load(ring_job(lines_of, start=start))
    assert trace.extra["ring_order"] == {"0x1": ORDER}
    matrix = build_matrix(trace)
    assert matrix.ring_order == "stated"
    assert {(x.src, x.dst) for x in matrix.links()} == {(a, b) for a, b in zip(ORDER, ORDER[1:] + ORDER[:1], strict=True)}
    assert build_matrix(trace, ring_order=range(8)).value(0, 1) == 14.0  # what the user says comes first


def test_channels_that_differ_state_no_order(load: Load) -> None:
    trace = load(ring_job(lambda r: [triple(ORDER, r, 0), triple(ORDER[::-1], r, 1)]))
    assert "ring_order" not in trace.extra
    assert any("its channels use 2 different rings" in n for n in trace.notes)
    assert build_matrix(trace).ring_order == "assumed"


def test_a_part_of_a_ring_states_no_order(load: Load) -> None:
    trace = load(ring_job(lambda r: [triple(ORDER, r)] if r < 3 else []))
    assert "ring_order" not in trace.extra
    assert any("states a part of its ring only" in n for n in trace.notes)


@pytest.mark.parametrize(
    "line", ["Ring 00 : 0 -> 99 -> 1", "Ring 00 : 0 -> 0 -> 0", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", "Ring 0x : 1"]
)
def test_lines_that_are_no_ring(line: str, load: Load) -> None:
    assert "ring_order" not in load(ring_job(lambda r: [line])).extra


# -- against the general merge ----------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from(["w", "t", "d"]), st.integers(0, 1), st.integers(1, 3)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_agrees_with_the_merge_of_records(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], rng: random.Random
) -> None:
    """Clean logs give the trace that the general merge makes of the same records."""
    groups = {"w": [(0, 1, 2, 3)], "t": [(0, 1), (2, 3)], "d": [(0, 2), (1, 3)]}
    lines: dict[int, list[str]] = {r: [] for r in range(4)}
    records: dict[int, list[Record]] = {r: [] for r in range(4)}
    for kind, members_of in groups.items():
        for g, members in enumerate(members_of):
            for i, r in enumerate(members):
                lines[r].append(init(r, f"0x{ord(kind)}{r}", i, len(members), f"commId 0x{ord(kind)}{g}"))
    for kind, which, count in steps:
        g = which % len(groups[kind])
        members = groups[kind][g]
        for r in members:
            lines[r].append(coll(r, "AllGather", f"0x{ord(kind)}{r}", len(members), count))
            records[r].append(Record(r, "all_gather", 4 * count * len(members), members, group=f"0x{ord(kind)}{g}", dtype="float32"))
    text: list[str] = []
    queues = [list(x) for x in lines.values()]
    while any(queues):
        text.append(rng.choice([q for q in queues if q]).pop(0))
    path = tmp_path_factory.mktemp("logs") / "job.log"
    path.write_text("\n".join(text))
    trace = nccl_log.read([path])
    expected = merge_captures([RankCapture(r, own, "x", "none") for r, own in records.items()], source_format="nccl_log")
    assert trace.equals(expected, ignore=("coverage", "notes", "warnings", "system"))


# -- recognition and damage -------------------------------------------------------------------------------------------


def test_recognised_by_content(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("hello\n" + job()[0])
    assert recognise_file(path).name == "nccl_log"
    for other in ('{"log": "n1:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1"}', "NCCL version 2.21.5", "opCount", "\0NCCL INFO x"):
        assert not nccl_log.recognise(other.encode())


LINE = coll(0, "AllReduce", "0xa0", 2, 10)
OTHER = coll(1, "AllReduce", "0xa1", 2, 10)

#: Damaged operation -> why it is left out.
TORN = {
    "cut in the address": LINE[: LINE.index("recvbuff")],
    "cut in the count": LINE[: LINE.index("datatype")],
    "cut before the communicator": LINE[: LINE.index(" comm")],
    "cut before the stream": LINE[: LINE.index(" stream")],
    "no number of ranks": LINE.replace(" [nranks=2]", ""),
    "number of ranks is a word": LINE.replace("nranks=2", "nranks=two"),
    "count is a word": LINE.replace("count 10", "count many"),
    "count is negative": LINE.replace("count 10", "count -10"),
    "count is a fraction": LINE.replace("count 10", "count 1.5"),
    "count has 30 digits": LINE.replace("count 10", "count " + "9" * 30),
    "datatype is a word": LINE.replace("datatype 7", "datatype float"),
    "datatype is missing": LINE.replace(" datatype 7", ""),
    "root is a word": LINE.replace("root 0", "root x"),
    "operator is missing": LINE.replace(" op 0", ""),
    "communicator is nil": LINE.replace("comm 0xa0", "comm (nil)"),
    "communicator is a word": LINE.replace("comm 0xa0", "comm main"),
    "opCount is no number": LINE.replace("opCount 0", "opCount zz"),
    "opCount has 40 digits": LINE.replace("opCount 0", "opCount " + "f" * 40),
    "the fields in another order": LINE.replace("count 10 datatype 7", "datatype 7 count 10"),
    "another line in the middle": LINE[:90] + OTHER[:60],
    "bytes that are no text": LINE.replace("sendbuff 0x7f00", "sendbuff \udcff\udcfe"),
    "a NUL in the middle": LINE.replace("recvbuff", "recv\0buff"),
    "blanks are doubled": LINE.replace(" count", "  count"),
}


@pytest.mark.parametrize("kind", sorted(TORN))
def test_torn_operations_are_counted_and_named(kind: str, load: Load) -> None:
    damaged = TORN[kind].encode("utf-8", "surrogateescape")
    trace = load("\n".join(pair(LINE, OTHER)).encode() + b"\n" + damaged + b"\n")
    assert trace.size_bytes.tolist() == [40]
    assert trace.coverage.skipped == {"torn line": 1 + (kind == "another line in the middle")}
    assert any(w == "job.log: line 5: an operation is cut and cannot be read" for w in trace.warnings)


#: Readable operations whose size, ranks or members cannot be known -> the reason.
LEFT_OUT = {
    "datatype 12": (LINE.replace("datatype 7", "datatype 12"), "datatype 12 unknown"),
    "datatype 255": (LINE.replace("datatype 7", "datatype 255"), "datatype 255 unknown"),
    "size beyond 2^62": (LINE.replace("count 10", "count 9999999999999999999"), "size out of range"),
    "size beyond 2^62 after scaling": (
        LINE.replace("AllReduce", "AllGather").replace("count 10", f"count {1 << 60}"), "size out of range"),
    "negative root": (LINE.replace("AllReduce", "Broadcast").replace("root 0", "root -1"), "root outside of the communicator"),
    "negative peer": (LINE.replace("AllReduce", "Send").replace("root 0", "root -1"), "peer outside of the communicator"),
    "unknown communicator": (LINE.replace("0xa0", "0xff"), "members unknown"),
    "another number of ranks": (LINE.replace("nranks=2", "nranks=16"), "members unknown"),
    "0 ranks": (LINE.replace("nranks=2", "nranks=0"), "members unknown"),
    "a process without set-up lines": (LINE.replace("node0:1000", "node9:7"), "members unknown"),
    "no process": ("NCCL INFO " + LINE.split("NCCL INFO ")[1].replace("0xa0", "0xcc"), "process unknown"),
    "a clock for a process": (LINE.replace("node0:1000:2000", "12:30:59").replace("0xa0", "0xcc"), "process unknown"),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(LEFT_OUT))
def test_operations_without_size_or_members_stay_with_their_reason(kind: str, load: Load) -> None:
    line, reason = LEFT_OUT[kind]
    trace = load(pair(LINE, OTHER, line))
    assert trace.size_bytes.tolist() == [40]
    assert [u.reason.startswith(reason) for u in trace.unsized] == [True]
    assert trace.coverage.read == 3


GUESSED = {
    "two prefixes": ("node7:9:9 [0] NCCL INFO " + LINE, "taken as one of node0:1000"),
    "no prefix": (LINE.split("NCCL INFO ")[1], "guessed as node0:1000"),
    "glued to the rest of another line": (OTHER[:70] + LINE, "taken as one of node0:1000"),
    "two operations on one line": (LINE + LINE, "taken as one of node0:1000"),
    "text between prefix and operation": (LINE.replace("NCCL INFO ", "NCCL INFO Lau"), ""),
}


@pytest.mark.parametrize("kind", sorted(GUESSED))
def test_torn_lines_go_to_the_process_that_has_the_communicator(kind: str, load: Load) -> None:
    line, said = GUESSED[kind]
    trace = load(pair(OTHER, line))
    assert 0 in trace.observers_of(0)
    assert {trace.groups[g].members for g in trace.group.tolist()} == {(0, 1)}
    assert any(said in w and "line 4" in w for w in trace.warnings) or not said


REFUSED: dict[str, tuple[bytes, type[LabError], str]] = {
    "empty": (b"", FormatError, "the file is empty"),
    "not a log": (b"hello\nworld\n", FormatError, "no line of it is one of NCCL's or RCCL's"),
    "blank lines": (b"\n\n\n", FormatError, "no line of it"),
    "binary": (bytes(range(256)) * 8, FormatError, "no line of it"),
    "JSON": (b'{"a": 1}', FormatError, "no line of it"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(40), FormatError, "zstd"),
    "xz": (b"\xfd7zXZ\x00" + bytes(40), FormatError, "xz"),
    "bzip2": (b"BZh91AY" + bytes(40), FormatError, "bzip2"),
    "a zip file": (b"PK\x03\x04" + bytes(40), FormatError, "zip"),
    "gzip header only": (gzip.compress(b"x" * 99)[:12], FormatError, "ends early"),
    "too many ranks": (init(0, "0xa", 0, 999_999_999, "commId 0x1").encode(), LimitError, "group members"),
    "a line as long as the file": (b"a" * 300_000, FormatError, "no line of it"),
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_refused(kind: str, load: Load) -> None:
    content, error, why = REFUSED[kind]
    with pytest.raises(error, match=why) as e:
        load(content)
    assert e.value.exit_code == 3


def test_set_up_lines_that_cannot_be_read_leave_members_unknown(load: Load) -> None:
    good = init(1, "0xa1", 1, 2, "commId 0x1")
    for bad in (
        init(0, "0xa0", 0, 2, "commId 0x1").replace("rank 0", "rank zero"), init(0, "0xa0", 7, 2, "commId 0x1"),
        init(0, "0xa0", 0, 2, "commId 0x1")[:60], init(0, "0xa0", 1, 2, "commId 0x1"), init(0, "0xa0", 0, 4, "commId 0x1"),
    ):  # fmt: skip
        trace = load([bad, good, LINE, OTHER])
        assert not any(trace.observers_of(i) == (0, 1) for i in range(len(trace)))
        assert trace.unsized


def test_limits(load: Load) -> None:
    with pytest.raises(LimitError, match="events"):
        load(job(), limits=Limits(max_events=10))
    with pytest.raises(LimitError, match="process groups"):
        load(job(), limits=Limits(max_groups=3))


def test_operations_without_any_set_up_line_say_what_to_record(load: Load) -> None:
    trace = load([coll(r, "AllReduce", f"0xb{r}", 16, 8) for r in range(3)])
    assert len(trace) == 0
    assert any("1 logical ones, seen from 3 of 16 ranks" in w for w in trace.warnings)
    assert any("NCCL_DEBUG_SUBSYS=INIT,COLL" in n for n in trace.notes)


@given(st.data())
def test_any_damage_is_an_error_or_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Cutting, doubling and overwriting bytes never ends in a traceback, and every operation is used or counted as skipped."""
    raw = bytearray("\n".join(pair(*[LINE, OTHER] * 3)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        kind = data.draw(st.sampled_from(["cut", "double", "overwrite"]))
        length = data.draw(st.integers(1, 80))
        if kind == "cut":
            del raw[at : at + length]
        elif kind == "double":
            raw[at:at] = raw[at : at + length]
        else:
            raw[at : at + 1] = data.draw(st.binary(min_size=1, max_size=3))
        raw = raw or bytearray(b"x")
    path = tmp_path_factory.mktemp("damaged") / "job.log"
    path.write_bytes(bytes(raw))
    try:
        trace = nccl_log.read([path])
    except FormatError:
        return
    assert trace.coverage.read == trace.coverage.used + sum(trace.coverage.skipped.values())
    if len(trace):
        build_matrix(trace)


# -- layouts ----------------------------------------------------------------------------------------------------------

JOB = Layout(tp=4, dp=2, gpus_per_node=4)


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("world", [True, False])
def test_a_layout_says_what_the_log_does_not(numbered: bool, world: bool, load: Load) -> None:
    # without a communicator of all ranks, the rank in each kind of group still tells a process
    trace = load(job(numbered=numbered, world=world), layout=JOB)
    assert links(trace) == JOB_LINKS
    assert trace.coverage.skipped == {}
    assert {g.name for g in trace.groups if g.size == 4} == ({"0xb000", "0xb001"} if numbered else {"TP Group 0", "TP Group 1"})
    assert (trace.system["world_size"], trace.system["hosts"]["node1"]) == (8, [4, 5, 6, 7])


def test_where_two_assignments_fit_both_are_listed(load: Load) -> None:
    lines = [line for line in job(world=False) if " comm 0xb" in line]  # nothing says which of the two groups of 4 is the first
    with pytest.raises(RefusedError, match=r"communicator 0xb000 .* could be TP Group 0 \(0-3\) or TP Group 1 \(4-7\)") as e:
        load(lines, layout=JOB)
    assert "--layout FILE" in str(e.value)
    by_id = Layout(explicit={"0xb000": (0, 1, 2, 3), "0xb001": (4, 5, 6, 7)}, gpus_per_node=4)
    assert links(load(lines, layout=by_id)) == {pair: size for pair, size in JOB_LINKS.items() if size > 1000 * MIB}


def test_a_layout_of_another_job_is_refused(load: Load) -> None:
    with pytest.raises(InputError, match="layout"):
        load(job(), layout=Layout(tp=2, dp=2))


def test_the_log_of_one_rank_with_a_layout(load: Load) -> None:
    own = [line for line in job() if line.startswith(prefix(5))]
    trace = load(own, layout=JOB)
    assert links(trace) == {(5, 6): 2304.0 * MIB, (5, 1): 512.0 * MIB}


def rccl(lines: list[str], places: dict[str, int]) -> list[str]:
    """The operations of a log as RCCL writes them without set-up lines: each with its rank inside the communicator."""
    out = []
    for line in lines:
        found = re.search(r" comm (0x\w+) \[nranks", line)
        if found is not None and " opCount " in line:
            out.append(f"{line} task 0 globalrank {places[found.group(1)]}")
    return out


def test_an_rccl_log_without_set_up_lines_needs_the_layout(load: Load) -> None:
    """globalrank is a rank inside a communicator: its two places tell each process apart."""
    lines = rccl(job(numbered=False, world=False), {f"0xb{r}": r % 4 for r in range(8)} | {f"0xd{r}": r // 4 for r in range(8)})
    alone = load(lines)
    assert len(alone) == 0 and {u.reason.partition(" (")[0] for u in alone.unsized} <= {NO_WORLD, NO_INIT}
    trace = load(lines, layout=JOB)
    assert links(trace) == JOB_LINKS
    assert trace.record_count == 200
    assert {g.name for g in trace.groups} == {f"TP Group {i}" for i in (0, 1)} | {f"DP Group {i}" for i in range(4)}
    assert "members of communicators: from the layout" in trace.notes


def test_an_rccl_log_that_leaves_a_choice_is_refused_with_the_choices(load: Load) -> None:
    lines = [coll(r, "AllReduce", f"0xb{r}", 4, 1024, tail=f" task 0 globalrank {r % 4}") for r in range(8)]
    with pytest.raises(RefusedError, match=r"could be TP Group 0 \(0-3\) or TP Group 1 \(4-7\)"):
        load(lines, layout=JOB)


def test_a_large_rccl_log_is_laid_out(load: Load) -> None:
    """More processes than assignments that are tried one by one."""
    layout = Layout(tp=8, dp=32)
    lines = [coll(r, "AllReduce", f"0xb{r}", 8, 1024, tail=f" task 0 globalrank {r % 8}") for r in range(256)]
    lines += [coll(r, "AllReduce", f"0xd{r}", 32, 512, tail=f" task 0 globalrank {r // 8}") for r in range(256)]
    trace = load(lines, layout=layout)
    assert {g.members for g in trace.groups} == {g.members for kind in ("tp", "dp") for g in layout.groups(kind)}
    assert trace.record_count == 512 and len(trace) == 32 + 8
