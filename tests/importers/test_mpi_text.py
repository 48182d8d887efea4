"""MPI traces of liballprof: public traces, messages counted once, communicators, and damage."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import FormatError, LabError, LimitError, MergeError
from commcanary_lab.importers import mpi_text
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.limits import Limits
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import build_matrix

TRACES = Path(__file__).parents[3] / "shared" / "data" / "real" / "mpi_traces"

public = pytest.mark.skipif(not TRACES.is_dir(), reason="public traces (../shared/data/real/mpi_traces) are not here")

T0 = 1237666046950000
WORLD, DOUBLE, BYTE = "0,{rank},{size}", "11,8,8", "13,1,1"

Job = Callable[..., Trace]


class Process:
    """Writes the trace of one process as the tracer does."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.at = rank, size, T0 + 1000 * rank
        self.lines = [f"# collprof 0.9 output file\n# host: n{rank}\n# Init clockdiff: 0.000000\n", f"MPI_Init:-:1:2:{self.at}.000000"]

    def call(self, name: str, arguments: str, *, comm: str | None = WORLD, after: str = "", lasts: int = 5) -> Process:
        world = "" if comm is None else comm.format(rank=self.rank, size=self.size)
        fields = ":".join(x for x in (arguments, world, after) if x)
        self.lines.append(f"MPI_{name}:{self.at}.000000:{fields}:{self.at + lasts}.000000")
        self.at += 10
        return self

    def text(self) -> str:
        return "\n".join([*self.lines, f"# Finalize clockdiff: 0.000000\nMPI_Finalize:{self.at}.000000:-", ""])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Write one file per rank and open them."""

    def read(write: Callable[[Process], object] | Mapping[int, Callable[[Process], object]], size: int = 2, **options: object) -> Trace:
        by_rank = dict(write) if isinstance(write, Mapping) else dict.fromkeys(range(size), write)
        paths = []
        for rank, own in by_rank.items():
            process = Process(rank, size)
            own(process)
            paths.append(tmp_path / f"trace-{rank}.txt")
            paths[-1].write_text(process.text())
        return open_trace(paths, **options)  # type: ignore[arg-type]

    return read


def links(trace: Trace) -> dict[tuple[int, int], float]:
    return {(x.src, x.dst): x.size_bytes for x in build_matrix(trace).links()}


def events(trace: Trace) -> list[tuple[str, int]]:
    return [(trace.op.text(i) or "", int(trace.size_bytes[i])) for i in range(len(trace))]


# -- public traces ----------------------------------------------------------------------------------------------------


@public
def test_sweep3d_moves_25920000_bytes_on_each_of_8_edges() -> None:
    expected = json.loads((TRACES / "EXPECTED.json").read_text())
    trace = open_trace(TRACES / "liballprof_sweep3d_2x2")
    matrix = build_matrix(trace)
    sent = {f"{x.src}->{x.dst}": x.size_bytes for x in matrix.by("op")["point_to_point"].links()}
    assert sent == expected["send_bytes"]
    assert set(sent.values()) == {25920000.0} and len(sent) == 8
    calls = expected["calls_per_rank"].values()
    assert trace.coverage.read == trace.coverage.used == sum(
        n for c in calls for name, n in c.items() if name in ("MPI_Send", "MPI_Recv", "MPI_Bcast", "MPI_Barrier", "MPI_Allreduce")
    )  # fmt: skip
    by_op = {op: int(trace.size_bytes[[trace.op.text(i) == op for i in range(len(trace))]].sum()) for op in ("all_reduce", "broadcast")}
    assert by_op == {"all_reduce": expected["collective_bytes_per_rank"]["Allreduce rank0"],
                     "broadcast": expected["collective_bytes_per_rank"]["Bcast rank0"]}  # fmt: skip
    assert trace.start_ns.all_known and trace.duration_max_ns.mask.all()
    assert trace.warnings == ()


@public
def test_bcast_whose_files_all_say_rank_0() -> None:
    trace = open_trace(TRACES / "liballprof_bcast_4")
    assert events(trace) == [("broadcast", 12)] * 5
    assert set(trace.root.values.tolist()) == {0}
    assert trace.groups[0].members == (0, 1, 2, 3)
    assert trace.warnings == ("the files do not say distinct ranks: taken from the numbers in their names",)
    with pytest.raises(FormatError, match=r"says that it is rank 0, as .*trace_bcast-0\.dat does; give the rank by hand"):
        open_trace(sorted((TRACES / "liballprof_bcast_4").iterdir())[:2])


@public
@pytest.mark.parametrize("path", sorted(TRACES.glob("*/*")) if TRACES.is_dir() else [], ids=lambda p: p.name)
def test_every_public_file_is_recognised(path: Path) -> None:
    assert recognise_file(path).name == "mpi_text"
    assert len(open_trace(path, ranks={path.name: 0} if "bcast" in path.name else None)) > 0


# -- what counts ------------------------------------------------------------------------------------------------------


def test_a_job_whose_mpi_layer_moves_nothing(job: Job) -> None:
    trace = job(lambda p: p.call("Comm_rank", "", after="99").call("Barrier", ""), size=8)
    matrix = build_matrix(trace)
    assert (matrix.records, matrix.payload_bytes, matrix.sum_bytes) == (8, 0, 0.0)
    assert events(trace) == [("barrier", 0)]


def test_times_are_exact(job: Job) -> None:
    trace = job(lambda p: p.call("Bcast", f"99:4:{DOUBLE}:0", lasts=7).call("Bcast", f"99:4:{DOUBLE}:1"))
    assert trace.start_ns.values.tolist() == [0, 10_000]
    assert trace.duration_ns.row(0).tolist() == [7000, 7000]
    assert trace.root.values.tolist() == [0, 1]
    assert trace.rank_start_ns.row(0).tolist() == [0, 1_000_000]  # a millisecond apart on clocks that nothing calibrates
    assert not trace.arrival_known.any()


def ping(p: Process) -> None:
    if p.rank == 0:
        p.call("Send", f"99:10:{DOUBLE}:1:7")
    else:
        p.call("Recv", f"99:10:{DOUBLE}:0:7", after="55")


def test_a_message_counts_once(job: Job) -> None:
    trace = job(ping)
    assert events(trace) == [("point_to_point", 80)]
    assert links(trace) == {(0, 1): 80.0}
    assert trace.observers_of(0) == (0, 1)
    assert trace.tag.text(0) == "7"


@pytest.mark.parametrize("kind", ["Bsend", "Ssend", "Rsend", "Isend", "Ibsend", "Issend", "Irsend"])
def test_every_kind_of_send(kind: str, job: Job) -> None:
    after = "70" if kind.startswith("I") else ""
    trace = job({0: lambda p: p.call(kind, f"99:10:{DOUBLE}:1:7", after=after), 1: ping})
    assert links(trace) == {(0, 1): 80.0}


def test_a_receive_has_the_size_of_its_send(job: Job) -> None:
    trace = job({0: ping, 1: lambda p: p.call("Recv", f"99:1000:{BYTE}:0:7", after="55")})
    assert links(trace) == {(0, 1): 80.0}
    assert trace.dtype.text(0) == "float64"


def test_the_receive_alone_says_its_buffer_only(job: Job) -> None:
    trace = job({1: ping})
    assert links(trace) == {(0, 1): 80.0}
    assert any("the size of their receives is that of the buffer" in n for n in trace.notes)


def test_any_source_and_any_tag_are_matched_to_sends(job: Job) -> None:
    def send(p: Process) -> None:
        p.call("Send", f"99:{p.rank}:{DOUBLE}:0:{p.rank}")

    def receive(p: Process) -> None:
        p.call("Recv", f"99:9:{DOUBLE}:-2:-1", after="5").call("Recv", f"99:9:{DOUBLE}:-2:1", after="5").call(
            "Recv", f"99:9:{DOUBLE}:3:-1", after="5"
        )

    trace = job({0: receive, 1: send, 2: send, 3: send}, size=4)
    assert links(trace) == {(1, 0): 8.0, (2, 0): 16.0, (3, 0): 24.0}
    assert trace.coverage.used == 6


def test_no_process_as_a_peer_moves_nothing(job: Job) -> None:
    trace = job(lambda p: p.call("Sendrecv", f"9:4:{DOUBLE}:-1:0:8:4:{DOUBLE}:-1:0", after="5"))
    assert len(trace) == 0
    assert trace.coverage.skipped == {"message to or from no process": 4}


def test_a_receive_from_anywhere_that_never_came(job: Job) -> None:
    trace = job({0: ping, 1: lambda p: (ping(p), p.call("Irecv", f"9:4:{DOUBLE}:-2:0", after="70"))})
    assert links(trace) == {(0, 1): 80.0}
    assert trace.coverage.skipped == {"receive that matches no send": 1}


@pytest.mark.parametrize("replace", [False, True])
def test_sendrecv_is_two_messages(replace: bool, job: Job) -> None:
    def shift(p: Process) -> None:
        to, of = (p.rank + 1) % 3, (p.rank - 1) % 3
        if replace:
            p.call("Sendrecv_replace", f"9:4:{DOUBLE}:{to}:0:{of}:0", after="5")
        else:
            p.call("Sendrecv", f"9:4:{DOUBLE}:{to}:0:8:4:{DOUBLE}:{of}:0", after="5")

    trace = job(shift, size=3)
    assert links(trace) == {(0, 1): 32.0, (1, 2): 32.0, (2, 0): 32.0}
    assert not trace.duration_max_ns.mask.any()


def test_a_message_to_itself_does_not_travel(job: Job) -> None:
    trace = job(lambda p: p.call("Send", f"9:4:{DOUBLE}:{p.rank}:0").call("Recv", f"9:4:{DOUBLE}:{p.rank}:0", after="5"))
    assert trace.coverage.skipped == {"message of a rank to itself": 4}


@pytest.mark.parametrize("stride", [4, 8])
def test_waits_end_non_blocking_messages(stride: int, job: Job) -> None:
    def one(p: Process) -> None:
        kind = "Isend" if p.rank == 0 else "Irecv"
        for i in range(2):
            p.call(kind, f"9:4:{DOUBLE}:{1 - p.rank}:{i}", after=str(1000 + stride * i))
        p.call("Waitall", "2:1000:77", comm=None, lasts=100)

    trace = job(one)
    assert links(trace) == {(0, 1): 64.0}
    assert [trace.duration_ns.row(i).tolist() for i in range(2)] == [[120_000, 120_000], [110_000, 110_000]]
    assert trace.overlap_ns.values.tolist() == [15_000, 5_000]


def test_wait_for_one_and_time_at_one_end_only(job: Job) -> None:
    def send(p: Process) -> None:
        p.call("Isend", f"9:4:{DOUBLE}:1:0", after="1000").call("Wait", "1000:77", comm=None, lasts=50)

    both = job({0: send, 1: lambda p: p.call("Recv", f"9:4:{DOUBLE}:0:0", after="5")})
    assert both.duration_ns.row(0).tolist() == [60_000, 5000]
    one = job(
        {0: lambda p: p.call("Isend", f"9:4:{DOUBLE}:1:0", after="1000"), 1: lambda p: p.call("Recv", f"9:4:{DOUBLE}:0:0", after="5")}
    )
    assert not one.duration_max_ns.mask.any()
    assert any("timed at one end only" in n for n in one.notes)


def test_persistent_requests(job: Job) -> None:
    def run(p: Process) -> None:
        p.call("Send_init" if p.rank == 0 else "Recv_init", f"9:4:{DOUBLE}:{1 - p.rank}:0", after="1000")
        for _ in range(3):
            p.call("Start", "1000", comm=None).call("Wait", "1000:77", comm=None)

    trace = job(run)
    assert links(trace) == {(0, 1): 96.0}
    assert len(trace) == 3


COLLECTIVES = {
    "Bcast": (f"9:10:{DOUBLE}:1", "broadcast", 80),
    "Reduce": (f"9:9:10:{DOUBLE}:3:1", "reduce", 80),
    "Allreduce": (f"9:9:10:{DOUBLE}:3", "all_reduce", 80),
    "Scan": (f"9:9:10:{DOUBLE}:3", "scan", 80),
    "Allgather": (f"9:10:{DOUBLE}:9:10:{DOUBLE}", "all_gather", 160),
    "Allgatherv": (f"9:10:{DOUBLE}:9:7:10,30:7:0,10:{DOUBLE}", "all_gather", 320),
    "Gather": (f"9:10:{DOUBLE}:9:10:{DOUBLE}:0", "gather", 160),
    "Gatherv": (f"9:10:{DOUBLE}:9:7:10,30:7:0,10:{DOUBLE}:0", "gather", 320),
    "Scatter": (f"9:10:{DOUBLE}:9:10:{DOUBLE}:0", "scatter", 160),
    "Scatterv": (f"9:7:10,30:7:0,10:{DOUBLE}:9:10:{DOUBLE}:0", "scatter", 320),
    "Alltoall": (f"9:10:{DOUBLE}:9:10:{DOUBLE}", "all_to_all", 160),
    "Reduce_scatter": (f"9:9:7:10,10:{DOUBLE}:3", "reduce_scatter", 160),
    "Reduce_scatter_block": (f"9:9:10:{DOUBLE}:3", "reduce_scatter", 160),
    "Barrier": ("", "barrier", 0),
}


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("blocking", [True, False])
def test_collectives(name: str, blocking: bool, job: Job) -> None:
    arguments, op, size = COLLECTIVES[name]
    trace = job(lambda p: p.call(name if blocking else f"I{name.lower()}", arguments, after="" if blocking else "1000"))
    assert events(trace) == [(op, size)]
    assert trace.duration_max_ns.mask.tolist() == [blocking]
    assert trace.reduction.text(0) == ("sum" if op in ("all_reduce", "reduce_scatter") else None)


def test_alltoallv_has_splits(job: Job) -> None:
    counts = {0: ("1,2", "1,4"), 1: ("4,3", "2,3")}
    trace = job(lambda p: p.call("Alltoallv", f"9:7:{counts[p.rank][0]}:7:0,0:{DOUBLE}:8:7:{counts[p.rank][1]}:7:0,0:{DOUBLE}"))
    assert links(trace) == {(0, 1): 16.0, (1, 0): 32.0}


def test_counts_that_the_tracer_left_out(job: Job) -> None:
    trace = job(lambda p: p.call("Alltoallv", f"9:7:7:{DOUBLE}:8:7:7:{DOUBLE}"))
    assert len(trace) == 0
    assert trace.coverage.skipped == {"size missing: the counts of the ranks are not in the trace": 2}
    assert {u.time_ns for u in trace.unsized} == {5000}


def test_one_sided_communication_is_counted_not_read(job: Job) -> None:
    trace = job(lambda p: p.call("Put", "1:2:3", comm=None).call("Barrier", "").call("Get_count", "1", comm=None))
    assert trace.coverage.skipped == {"one-sided communication": 2}
    assert trace.coverage.used == 2


# -- communicators ----------------------------------------------------------------------------------------------------


def test_split_communicators(job: Job) -> None:
    def run(p: Process) -> None:
        p.call("Barrier", "")
        p.lines.append(f"MPI_Comm_split:{p.at}.0:0,{p.rank},4:{p.rank % 2}:{-p.rank}:99:{p.at + 1}.0")
        p.at += 10
        own = f"77,{1 - p.rank // 2},2"  # the key turns the order around
        p.call("Bcast", f"9:10:{DOUBLE}:0", comm=own)
        if p.rank in (0, 2):
            p.call("Send" if p.rank == 2 else "Recv", f"9:1:{DOUBLE}:{p.rank // 2}:0", comm=own, after="" if p.rank == 2 else "5")

    trace = job(run, size=4)
    roots = {trace.groups[trace.group[i]].members: int(trace.root.values[i]) for i in range(len(trace)) if trace.op.text(i) == "broadcast"}
    assert roots == {(0, 2): 2, (1, 3): 3}
    (message,) = [i for i in range(len(trace)) if trace.sender.mask[i]]
    assert (int(trace.sender.values[message]), int(trace.receiver.values[message])) == (2, 0)


def test_duplicate_and_grid_of_all_ranks(job: Job) -> None:
    def run(p: Process) -> None:
        p.call("Barrier", "")
        p.lines.append(f"MPI_Comm_dup:{p.at}.0:0,{p.rank},2:99:{p.at + 1}.0")
        p.at += 10
        p.call("Bcast", f"9:1:{DOUBLE}:0", comm=f"5,{p.rank},2")
        p.call("Bcast", f"9:1:{DOUBLE}:0", comm=f"6,{1 - p.rank},2")  # made by a call that the trace does not explain

    trace = job(run)
    assert [(trace.groups[trace.group[i]].name, int(trace.root.values[i])) for i in (1, 2)] == [("world #2", 0), ("world #3", 1)]


def test_unknown_communicators_stay_unattributed(job: Job) -> None:
    trace = job(lambda p: p.call("Barrier", "").call("Bcast", f"9:4:{DOUBLE}:0", comm=f"5,{p.rank % 2},2"), size=4)
    assert events(trace) == [("barrier", 0)]
    assert {u.reason for u in trace.unsized} == {
        "members unknown: nothing in the files says which ranks its communicator has (handle 5, 2 ranks)"}  # fmt: skip
    assert build_matrix(trace).unattributed_bytes == 4 * 32


# -- recognition and damage -------------------------------------------------------------------------------------------


def test_recognised_by_content() -> None:
    for good in ("# htor's PMPI Tracer 0.9 Output File\n", "\n# x\nMPI_Init:-:1:2:3\n", "MPI_Send:3.0:"):
        assert mpi_text.recognise(good.encode())
    for other in ("", "MPI_Init\n", "# collprof", "x\nMPI_Init:-:1:2:3\n", '{"MPI_Init": 1}', "MPI_ERR_COMM: invalid communicator"):
        assert not mpi_text.recognise(other.encode())


GOOD = Process(0, 2).call("Send", f"99:10:{DOUBLE}:1:7").call("Alltoallv", f"9:7:1,2:7:0,1:{DOUBLE}:8:7:1,2:7:0,1:{DOUBLE}").text()
SEND = next(line for line in GOOD.splitlines() if "Send" in line)
START = ":".join(SEND.split(":")[:2])
LINE = GOOD.splitlines().index(SEND) + 1


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "the file is empty"),
    "blank": ("\n\n", "no MPI call in it"),
    "comments only": ("# collprof 0.9 output file\n", "no MPI call in it"),
    "binary": (b"\0" * 100, "not text"),
    "zip": (b"PK\x03\x04" + bytes(40), "zip"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd"),
    "another log": ("hello\n" + GOOD, "line 1: not a line of a PMPI trace"),
    "application output inside": (changed(SEND, f"step 1\n{SEND}"), f"line {LINE}: not a line"),
    "a number for a call": (changed("MPI_Send:", "17:"), f"line {LINE}: not a line"),
    "a call without arguments": (changed(SEND, "MPI_Send"), f"line {LINE}: not a line"),
    "start is a word": (changed(START, "MPI_Send:" + "soon"), f"line {LINE}: time: 'soon'"),
    "start is negative": (changed(START, "MPI_Send:" + "-5.0"), f"line {LINE}: time"),
    "start is missing": (changed(START, "MPI_Send:"), f"line {LINE}"),
    "start is a dash": (changed(START, "MPI_Send:" + "-"), f"line {LINE}: time"),
    "start beyond the range": (changed(START, "MPI_Send:" + "9" * 18), f"line {LINE}: time"),
    "start of 40 digits": (changed(START, "MPI_Send:" + "9" * 40), f"line {LINE}: time"),
    "start with exponent": (changed(START, "MPI_Send:" + "1e9"), f"line {LINE}: time"),
    "start with hexadecimal digits": (changed(START, "MPI_Send:" + "0x10"), f"line {LINE}: time"),
    "end is a word": (changed(SEND.split(":")[-1], "later"), f"line {LINE}: time: 'later'"),
    "end before start": (changed(SEND.split(":")[-1], "5.000000"), f"line {LINE}: MPI_Send ends before it starts"),
    "an argument too few": (changed(":99:10:", ":10:"), f"line {LINE}: MPI_Send has 5 arguments, not 6"),
    "an argument too many": (changed(":99:10:", ":99:98:10:"), f"line {LINE}: MPI_Send has 7 arguments, not 6"),
    "count is a word": (changed(":99:10:", ":99:ten:"), f"line {LINE}: count: 'ten'"),
    "count is negative": (changed(":99:10:", ":99:-10:"), f"line {LINE}: count: -10"),
    "count is a fraction": (changed(":99:10:", ":99:1.5:"), f"line {LINE}: count"),
    "count is absurd": (changed(":99:10:", f":99:{1 << 50}:"), f"line {LINE}: count"),
    "count of 40 digits": (changed(":99:10:", f":99:{'9' * 40}:"), f"line {LINE}: count"),
    "count is empty": (changed(":99:10:", ":99::"), f"line {LINE}: count"),
    "datatype of two numbers": (changed(DOUBLE, "11,8"), f"line {LINE}: type"),
    "datatype of four numbers": (changed(DOUBLE, "11,8,8,8"), f"line {LINE}: type"),
    "datatype is a name": (changed(DOUBLE, "MPI_DOUBLE"), f"line {LINE}: type"),
    "size of the datatype is negative": (changed(DOUBLE, "11,-8,8"), f"line {LINE}: type"),
    "size of the datatype is absurd": (changed(DOUBLE, f"11,{1 << 40},8"), f"line {LINE}: type"),
    "peer is a word": (changed(":1:7:0,0,2", ":one:7:0,0,2"), f"line {LINE}: dest"),
    "tag is a word": (changed(":1:7:0,0,2", ":1:seven:0,0,2"), f"line {LINE}: tag"),
    "communicator of two numbers": (changed("0,0,2", "0,0"), f"line {LINE}: comm"),
    "communicator is a name": (changed("0,0,2", "MPI_COMM_WORLD"), f"line {LINE}: comm"),
    "rank outside of the communicator": (changed("0,0,2", "0,2,2"), f"line {LINE}: comm: rank 2 of 2"),
    "rank is negative": (changed("0,0,2", "0,-1,2"), f"line {LINE}: comm: rank -1 of 2"),
    "communicator without ranks": (changed("0,0,2", "0,0,0"), f"line {LINE}: comm"),
    "communicator of a billion ranks": (changed("0,0,2", "0,0,1000000000"), f"line {LINE}: comm"),
    "counts of another number of ranks": (changed("7:1,2:", "7:1,2,3:"), "scounts: 3 values for 2 ranks"),
    "counts with a word": (changed("7:1,2:", "7:1,x:"), "scounts: 'x'"),
    "counts that are negative": (changed("7:1,2:", "7:1,-2:"), "scounts: a count is not"),
    "displacements with a word": (changed("7:0,1:", "7:0,x:"), "sdispls: 'x'"),
    "no rank anywhere": ("MPI_Init:-:1:2:3.0\nMPI_Finalize:4.0:-\n", "does not say its rank"),
}


@pytest.mark.parametrize("kind", sorted(MALFORMED))
def test_malformed(kind: str, tmp_path: Path) -> None:
    content, where = MALFORMED[kind]
    path = tmp_path / "trace.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FormatError) as e:
        mpi_text.read([path])
    assert e.value.exit_code == 3
    assert "trace.txt" in str(e.value)
    assert where in str(e.value)


def test_a_cut_last_line_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    for data in (GOOD[: GOOD.index("MPI_Alltoallv") + 40].encode(), gzip.compress(GOOD.encode(), 0)[:-60]):
        path.write_bytes(data)
        trace = mpi_text.read([path])
        assert events(trace)[0] == ("point_to_point", 80)
        assert any("no MPI_Finalize" in w for w in trace.warnings)
        assert any("cut short" in w or "ends early" in w for w in trace.warnings)


def test_ranks_that_show_different_windows_are_refused(job: Job) -> None:
    with pytest.raises(MergeError, match="unequal operation counts"):
        job({0: lambda p: p.call("Barrier", "").call("Barrier", ""), 1: lambda p: p.call("Barrier", "")})
    with pytest.raises(MergeError, match="unequal message"):
        job({0: ping, 1: lambda p: p.call("Barrier", "").call("Recv", f"9:1:{DOUBLE}:0:8", after="5")})


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(FormatError, match=r"b\.txt: says that it is rank 0, as .*a\.txt does"):
        open_trace(tmp_path)


def test_limits(job: Job) -> None:
    with pytest.raises(LimitError, match="events"):
        job(ping, limits=Limits(max_events=1))
    with pytest.raises(LimitError, match="group members"):
        job(ping, limits=Limits(max_members=1))


@given(st.data())
def test_any_damage_is_a_typed_error_or_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(GOOD.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[at : at + data.draw(st.integers(1, 60))]
    else:
        raw[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    path = tmp_path_factory.mktemp("damaged") / "trace-0.txt"
    path.write_bytes(bytes(raw or b"x"))
    try:
        trace = mpi_text.read([path])
    except LabError as e:
        assert e.exit_code == 3  # noqa: PT017 (either outcome is right)
    else:
        assert trace.coverage.read == trace.coverage.used + sum(trace.coverage.skipped.values())
