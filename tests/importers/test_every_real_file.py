"""Every public file of the reference data opens as what it is, or is refused for the right reason; its answers hold.

A file that no row of the table names fails. Sums of matrices are written as the sums they are, so that they can be checked by hand.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commcanary_lab.errors import FormatError, LabError, RefusedError
from commcanary_lab.importers import kineto, nccl_log
from commcanary_lab.importers.kineto_read import read_document
from commcanary_lab.importers.open import open_trace, recognise_file
from commcanary_lab.traffic import build_matrix

REAL = Path(__file__).parents[3] / "shared" / "data" / "real"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="public files (../shared/data/real) are not here")
FILES = sorted(p.relative_to(REAL).as_posix() for p in REAL.rglob("*") if p.is_file()) if REAL.is_dir() else []


@dataclass(frozen=True)
class Opens:
    """A trace: its format, the sum of M, and bytes whose destination nobody says; or why there is no M."""

    format: str
    sum_bytes: float | None = None
    unattributed: int = 0
    no_matrix: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Refused:
    """No trace, and why."""

    error: type[LabError]
    why: str


TABLE_OF_A_BENCHMARK = Refused(RefusedError, "an nccl-tests table is a benchmark of one collective, not a trace of a job")
AVERAGES = Refused(RefusedError, "averages per size class: no counts, no peers, so that neither a trace nor a traffic matrix can be made")
NOT_A_TRACE = Refused(FormatError, "is a JSON object without a known format")
ONE_NPU = Opens("chakra_et", no_matrix="1 collective, 1.00 MiB in all.*over all NPUs, and this is the file of one")
NO_METADATA = Opens("kineto", no_matrix="no communication metadata", note="no NCCL metadata in the trace")
SET_UP_ONLY = Opens("nccl_log", 0, note="the log has no operations: record with NCCL_DEBUG=INFO")
NO_SET_UP = r"members unknown: no set-up line.*NCCL_DEBUG_SUBSYS=INIT,COLL"

MIB, GIB = 1 << 20, 1 << 30
#: What one rank sends in a ring all-reduce of 2 and of 8 ranks, per byte of B.
REDUCE_2, REDUCE_8 = 2 * 1 / 2, 2 * 7 / 8
SWEEP = 4 * 25_920_000 + 2 * 3 / 4 * 208  # a rank's neighbours, both ways, and its part of the all-reduces
DDP = 3 * REDUCE_2 * 4 * (2_049_000 + 7_875_584 + 6_563_840 + 6_637_568 + 2_431_040)

#: Pattern -> what becomes of the file; the first that fits.
TABLE: dict[str, Opens | Refused] = {
    "*/PROVENANCE.tsv": Refused(FormatError, "no known format recognises it"),
    "*/EXPECTED.json": NOT_A_TRACE,
    "chakra_et/*.tar.gz": Refused(FormatError, "the file is a tar archive; extract it first"),
    "chakra_et/astrasim_*_4npus_1MB/*.et": ONE_NPU,
    "chakra_et/chakra_pytorch_et_1.0.2-chakra.0.0.4.json": Opens("pytorch_et", 10 * 4),  # ten all-gathers of 8 B, one rank of two
    "commcanary/commcanary.trace.v1.schema.json": NOT_A_TRACE,
    "commcanary/*.json": Opens("commcanary.trace.v1"),
    "flight_recorder/torch2.10_hang_rank0.pkl": Opens("flight_recorder", no_matrix="no dtype in the dump, its size is unknown"),
    "flight_recorder/tutorial_v2.5_rank0.*": Opens("flight_recorder", REDUCE_2 * 3 * 4 * 4),
    "kineto/dsv3_train_ep64_rank0_deepep.json.gz": Opens("kineto", no_matrix="communication kernel outside NCCL", note="no NCCL metadata"),
    "kineto/hta_ddp2_rank0_*": Opens("kineto", DDP, 3 * (4 * 53_120 + 8 * 53)),  # broadcasts without a root
    "kineto/hta_mi250_rocm62_no_comms.json.gz": Opens("kineto", 0, note="no communication metadata in the trace"),
    "kineto/hta_ns_ts_world1_rank0.json.gz": Opens("kineto", 0),  # a world of one sends nothing
    "kineto/tracelens_b200_*": Opens("kineto", 7 / 8 * 8 * 25_136 * 2),
    "kineto/tracelens_mi300_*": Opens("kineto"),
    "kineto/tracelens_vllm_decode_cudagraph.json.gz": Opens("kineto", 0, note="no communication metadata in the trace"),
    "kineto/hta_*": NO_METADATA,
    "kineto/param_dlrm_world8/*": NO_METADATA,
    "mpi_traces/liballprof_bcast_4/*": Opens("mpi_text", 5 * 12),  # alone, each file says that it is rank 0, the root
    "mpi_traces/liballprof_sweep3d_2x2/*-3.txt": Opens("mpi_text", SWEEP),  # the end of the broadcasts' chain
    "mpi_traces/liballprof_sweep3d_2x2/*": Opens("mpi_text", SWEEP + 116),
    "nccl_debug_logs/init_*": SET_UP_ONLY,
    "nccl_debug_logs/nccl1238_*": Opens("nccl_log", 0),
    "nccl_debug_logs/nccl1593_*": Opens("nccl_log", 14_155_776),
    "nccl_debug_logs/nccl203_*": Opens("nccl_log", 4 * (2 * (64 + 237_184 + 386_560) + 8192)),  # the last is seen on one of two ranks
    "nccl_debug_logs/pixloc29_*": Opens("nccl_log", 3584 + 64 + 2 * 4 + 520 + 256),
    "nccl_debug_logs/rccl_frontier_*": Opens("nccl_log", 4095 / 4096 * GIB),
    "nccl_debug_logs/rccl_rocm7_*": Opens("nccl_log", 2 * 8),
    "nccl_debug_logs/rccl_usage_doc_*": Opens("nccl_log", REDUCE_8 * (536_870_912 + 8 + 72)),
    "nccl_debug_logs/torchtitan1369_tp2.log": Opens("nccl_log", 5 * 8_388_608 + 2 * 4),
    "nccl_debug_logs/nccl147_*": Opens("nccl_log", no_matrix="6 collectives.*no set-up line.*process unknown: the line is torn"),
    "nccl_debug_logs/*.log": Opens("nccl_log", no_matrix=NO_SET_UP),
    "nccl_inspector/*.prom": AVERAGES,
    "nccl_inspector/accl_*": Opens("nccl_inspector", REDUCE_8 * 4_194_304),
    "nccl_inspector/datadog_*": Opens("nccl_inspector", 2 * 2 / 3 * 2_360_832),
    "nccl_inspector/exporter_*": Opens("nccl_inspector", 31 / 32 * 32 * 65_536),
    "nccl_inspector/readme_nonverbose_*": Opens("nccl_inspector", REDUCE_8 * 17_179_869_184),
    "nccl_inspector/readme_verbose_*": Opens("nccl_inspector", 7 / 8 * 8 * 2_147_483_648),
    "nccl_inspector/v4.1_dump_stats_*": Opens("nccl_inspector", MIB),
    "nccl_inspector/v4.1_events_tree_*": Opens("nccl_inspector", 7 / 8 * 8 * 2_147_483_648),
    "nccl_inspector/v4.2_*": Opens("nccl_inspector", REDUCE_8 * 17_179_869_184),
    "nccl_tests/all_reduce_perf_with_nccl_info_interleaved.txt": SET_UP_ONLY,  # no row of its table is complete
    "nccl_tests/*": TABLE_OF_A_BENCHMARK,
    "nsys/*.sqlite": Opens("nsys_sqlite", no_matrix="62 collectives.*size unknown: NCCL's NVTX payloads were not exported"),
    "param_comms/param_docstring_*": Opens("param_basic", 2 * 15 / 16 * 4 * MIB, 4 * 10_357_149),
    # rank 8 of 16: what it sends and what it receives, without the 98,304 B that it keeps for itself in both
    "param_comms/torch_ucc_*": Opens("param_basic", 4 * 379_904 + 4 * 393_216 - 2 * 98_304),
    "pytorch_et/param_dlrm_world8/*": Opens("pytorch_et"),
    "pytorch_et/param_linear_*": Opens("pytorch_et", 0, note="no collective in the trace"),
    "pytorch_et/param_resnet_2gpu_*": Opens("pytorch_et", DDP),
    "pytorch_et/param_resnet_*": Opens("pytorch_et", 0),  # one GPU
}


def row_of(name: str) -> Opens | Refused:
    """The table's answer; a file without one fails the test."""
    found = next((row for pattern, row in TABLE.items() if fnmatchcase(name, pattern)), None)
    assert found is not None, f"no row of the table says what {name} is"
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_file_opens_or_is_refused_with_the_right_reason(name: str) -> None:
    expected, path = row_of(name), REAL / name
    if isinstance(expected, Refused):
        with pytest.raises(expected.error, match=expected.why) as refused:
            open_trace(path)
        assert path.name in str(refused.value)
        return
    assert recognise_file(path).name == expected.format
    trace = open_trace(path)
    coverage = trace.coverage
    assert trace.source_format == expected.format
    assert coverage.read == coverage.used + sum(coverage.skipped.values())
    if expected.note is not None:
        assert any(expected.note in n for n in trace.notes), trace.notes
    if expected.no_matrix is not None:
        assert len(trace) == 0
        with pytest.raises(RefusedError, match="of none does the source say who sends what to whom") as why:
            build_matrix(trace)
        assert re.search(expected.no_matrix, str(why.value))
        return
    matrix = build_matrix(trace)
    assert matrix.records == trace.record_count
    if expected.sum_bytes is not None:
        assert matrix.sum_bytes == pytest.approx(expected.sum_bytes, rel=1e-12, abs=0)
        assert matrix.unattributed_bytes == expected.unattributed


def test_every_row_of_the_table_is_used() -> None:
    assert FILES
    first = Counter(next(p for p in TABLE if fnmatchcase(name, p)) for name in FILES)
    assert [pattern for pattern in TABLE if not first[pattern]] == []


def test_every_file_has_its_provenance() -> None:
    listed = set()
    for table in REAL.glob("*/PROVENANCE.tsv"):
        head, *rows = table.read_text().splitlines()
        assert head.split("\t")[0] == "file"
        listed |= {f"{table.parent.name}/{row.split(chr(9))[0]}" for row in rows}
    assert listed == {name for name in FILES if Path(name).name not in ("PROVENANCE.tsv", "EXPECTED.json")}


# -- answers of the files' EXPECTED.json that no other test reads -----------------------------------------------------


def expected_of(folder: str) -> Any:
    return json.loads((REAL / folder / "EXPECTED.json").read_text())


KINETO: dict[str, dict[str, Any]] = expected_of("kineto") if REAL.is_dir() else {}


@pytest.mark.parametrize("name", sorted(KINETO))
def test_profiles_count_what_was_counted_independently(name: str) -> None:
    """Events, groups, time origin, kernels by name; what the records amount to is in test_kineto_real."""
    expected, path = KINETO[name], REAL / "kineto" / name
    document = read_document(path)
    assert (len(document.events), document.base_ns) == (expected["events"], expected["baseTimeNanoseconds"])
    assert document.distributed_info.get("pg_count") == expected["pg_count"]
    capture = kineto.read_rank(path, rank=0 if expected["rank"] is None else None)
    kernels = [e for e in document.events if e.cat == "kernel" and re.match(r"nccl", str(e.name), re.IGNORECASE)]
    assert len(kernels) == expected["nccl_kernels"]
    assert Counter(re.sub(r"\(.*", "", str(e.name)) for e in kernels) == expected["kernel_names"]
    described = sum(b"Collective name" in bytes(e.args) for e in kernels)
    assert described == expected["nccl_kernels_with_metadata"]
    records = sum(e.name == "record_param_comms" for e in document.events)
    assert records == expected["record_param_comms"]
    # every one of these rows is counted once: used, or skipped with its reason
    assert capture.coverage.read >= max(len(kernels), len(capture.records))
    assert len(capture.records) + sum(capture.coverage.skipped.values()) == capture.coverage.read


def test_dlrm_matrix_of_uneven_all_to_alls_from_eight_execution_traces() -> None:
    expected, folder = expected_of("pytorch_et"), REAL / "pytorch_et" / "param_dlrm_world8"
    per_rank = [expected["ops_per_rank"][str(r)] for r in range(8)]
    want = np.array(expected["all_to_allv_bytes_M_sender_receiver"], float)
    # what the expected matrix says is what the split lists of each sender add up to, and receivers agree
    width = {"float": 4, "int": 4, "long int": 8}
    sent = [[sum(o["in_split"][j] * width[o["dtype"]] for o in ops if o["op"] == "all_to_allv") for j in range(8)] for ops in per_rank]
    assert np.array_equal(sent, want)
    assert expected["pairwise_consistent_in_split_i_j_equals_out_split_j_i"] is True
    trace = open_trace(folder)
    uneven = [i for i in range(len(trace)) if trace.op.text(i) == "all_to_all_v"]
    for n, i in enumerate(uneven):
        lists = trace.splits.row(i).reshape(8, 18)
        for r, ops in enumerate(per_rank):
            o = [x for x in ops if x["op"] == "all_to_allv"][n]
            assert lists[r, 2:10].tolist() == [v * width[o["dtype"]] for v in o["in_split"]]
            assert lists[r, 10:].tolist() == [v * width[o["dtype"]] for v in o["out_split"]]
    m = build_matrix(trace)
    moved = want.copy()
    np.fill_diagonal(moved, 0)  # what a rank keeps for itself does not travel
    assert np.array_equal(m.by("op")["all_to_all_v"].dense(), moved)
    assert (m.unattributed_bytes, m.unattributed_received_bytes) == (0, 0)
    # the rest: one even all-to-all of 24 long integers, three all-reduces
    reduced = [4 * 394_241, 4 * 112, 4 * 226_960]
    assert m.sum_bytes == pytest.approx(moved.sum() + 7 * 24 * 8 + 2 * 7 * sum(reduced))
    assert m.records == 8 * len(per_rank[0]) == trace.coverage.used


@pytest.mark.parametrize("rank", range(8))
def test_dlrm_rank_for_rank(rank: int) -> None:
    """Every operation of every rank with its operation, type and size."""
    wanted = expected_of("pytorch_et")["ops_per_rank"][str(rank)]
    trace = open_trace(REAL / "pytorch_et" / "param_dlrm_world8" / f"dlrm_eg_{rank}.json.gz")
    names = {"all_to_allv": "all_to_all_v", "allreduce": "all_reduce", "all_to_all": "all_to_all"}
    types = {"float": ("float32", 4), "int": ("int32", 4), "long int": ("int64", 8)}
    assert trace.coverage.ranks == (rank,)
    assert [trace.op.text(i) for i in range(len(trace))] == [names[o["op"]] for o in wanted]
    assert [trace.dtype.text(i) for i in range(len(trace))] == [types[o["dtype"]][0] for o in wanted]
    for i, o in enumerate(wanted):
        elements = np.prod(np.array(o["in_shape"]).ravel())
        received = sum(o["out_split"]) or elements
        assert int(trace.size_bytes[i]) == max(elements, received) * types[o["dtype"]][1]


def test_sweep3d_sends_are_receives() -> None:
    expected = expected_of("mpi_traces")
    assert expected["sends_equal_recvs"] is True and len(expected["send_bytes"]) == 8
    assert set(expected["send_bytes"].values()) == set(expected["recv_posted_bytes"].values()) == {25_920_000}
    folder = REAL / "mpi_traces" / "liballprof_sweep3d_2x2"
    m = build_matrix(open_trace(folder)).by("op")["point_to_point"]
    assert {f"{x.src}->{x.dst}": x.size_bytes for x in m.links()} == expected["send_bytes"] == expected["recv_posted_bytes"]
    for rank in range(4):  # one file gives its row and its column: sends that only receivers wrote are not lost
        alone = build_matrix(open_trace(folder / f"pmpi-trace-rank-{rank}.txt")).by("op")["point_to_point"]
        assert {(x.src, x.dst): x.size_bytes for x in alone.links()} == {
            (x.src, x.dst): x.size_bytes for x in m.links() if rank in (x.src, x.dst)
        }
        calls = expected["calls_per_rank"][str(rank)]
        text = (folder / f"pmpi-trace-rank-{rank}.txt").read_text()
        assert Counter(re.findall(r"^(MPI_\w+):", text, re.MULTILINE)) == calls


# -- answers of PROVENANCE.tsv that no other test asserts -------------------------------------------------------------


def test_peers_tell_the_rank_in_each_communicator() -> None:
    """nccl584: the process sends to 1 in one communicator of two and to 0 in the other; the [1] of its prefix is a device, not its rank."""
    found = nccl_log.read_log([REAL / "nccl_debug_logs" / "nccl584_sendrecv_recvbuff_nil.log"])
    peers = {found.lines.instances[i].pointer: ranks for i, ranks in found.lines.peers().items()}
    assert peers == {"0x7f5128002e10": {1}, "0x7f516c002e10": {0}}
    assert {i.device for i in found.lines.instances} == {1}


def test_ray_shows_two_operations_from_two_ranks_each() -> None:
    found = nccl_log.read_log([REAL / "nccl_debug_logs" / "nccl1193_ray_prefix_128rank.log"]).lines
    assert Counter(found.rows_op_count) == {0x139D: 2, 0x139E: 2}
    assert {found.instances[i].nranks for i in found.rows_instance} == {128}


def test_ranks_of_one_operation_differ_in_size() -> None:
    """nccl147: opCount 0 of one rank is 25,503,912 elements and 53 of the others."""
    found = nccl_log.read_log([REAL / "nccl_debug_logs" / "nccl147_torn_lines_8rank.log"]).lines
    assert len(found.rows_call) == 6
    counts = {found.calls[c].elements for c, n in zip(found.rows_call, found.rows_op_count, strict=True) if n == 0}
    assert {25_503_912, 53} <= counts


def test_one_pointer_on_two_hosts_and_in_four_processes() -> None:
    """init_2.4: one pointer value is two ranks on two hosts; RCCL 2.21: four processes of one host share another."""
    old = nccl_log.read_log([REAL / "nccl_debug_logs" / "init_2.4_nccl-tests29.log"]).lines.instances
    twice = [i for i in old if i.pointer == "0x7f7e7c001ca0"]
    assert len({i.process.host for i in twice}) == len({i.rank for i in twice}) == 2
    rccl = nccl_log.read_log([REAL / "nccl_debug_logs" / "init_rccl2.21_same_pointer_nccl1468.log"])
    assert {i.pointer for i in rccl.lines.instances} == {"0x530000380400"}
    assert len({i.process.pid for i in rccl.lines.instances}) == len(rccl.lines.instances) == 4
    (one,) = rccl.communicators.table
    assert one.nranks == 6


def test_a_start_without_completion_is_membership_all_the_same() -> None:
    found = nccl_log.read_log([REAL / "nccl_debug_logs" / "init_2.18_nccl1029_worker_prefix.log"])
    assert not any(i.complete for i in found.lines.instances)
    assert {c.nranks for c in found.communicators.table} == {16}


def test_members_beyond_thirty_are_in_the_table_of_groups() -> None:
    """hta_gloo_world300: lists of 300 ranks, complete."""
    with gzip.open(REAL / "kineto" / "hta_gloo_world300_rank34.json.gz") as f:
        config = json.load(f)["distributedInfo"]["pg_config"]
    groups = kineto.GroupDirectory({"pg_config": config}, 34, 300)
    assert groups.warnings == []
    assert max(len(groups.stated(str(c["pg_name"])) or ()) for c in config) == 300
