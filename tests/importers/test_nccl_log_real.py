"""Logs that people posted, NCCL 2.3 to 2.30 and RCCL: the answers of PROVENANCE.tsv."""

from __future__ import annotations

from pathlib import Path

import pytest

from commcanary_lab.errors import RefusedError
from commcanary_lab.importers import nccl_log
from commcanary_lab.importers.nccl_log import NcclLog
from commcanary_lab.importers.nccl_log_ops import meaning
from commcanary_lab.importers.open import recognise_file
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import build_matrix

LOGS = Path(__file__).parents[3] / "shared" / "data" / "real" / "nccl_debug_logs"

pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="public logs (../shared/data/real/nccl_debug_logs) are not here")

ALL = sorted(p.name for p in LOGS.glob("*.log")) if LOGS.is_dir() else []


def log(name: str) -> NcclLog:
    return nccl_log.read_log([LOGS / name])


def trace(name: str) -> Trace:
    return nccl_log.read([LOGS / name])


def rows(name: str) -> list[tuple[str, int]]:
    """Operation and bytes of one rank's part, in the order of the log."""
    found = log(name).lines
    return [(found.calls[c].op, meaning(found.calls[c]).part_bytes) for c in found.rows_call]


def events(t: Trace) -> list[tuple[str, int, int]]:
    return [(t.op.text(i) or "", int(t.size_bytes[i]), len(t.observers_of(i))) for i in range(len(t))]


@pytest.mark.parametrize("name", ALL)
def test_every_log_is_recognised_and_accounts_for_its_operations(name: str) -> None:
    assert recognise_file(LOGS / name).name == "nccl_log"
    t = trace(name)
    text = (LOGS / name).read_text()
    assert t.coverage.read == text.count(": opCount ")
    assert t.coverage.read == t.coverage.used + sum(t.coverage.skipped.values())
    assert not t.coverage.skipped or t.unsized or "message of a rank to itself" in t.coverage.skipped
    if len(t) or not t.unsized:
        assert build_matrix(t).coverage == t.coverage
    else:
        with pytest.raises(RefusedError, match=r"of none does the source say who sends what to whom: .*unknown") as e:
            build_matrix(t)
        assert "NCCL_DEBUG_SUBSYS=INIT,COLL" in str(e.value)


def test_2_3_two_threads_of_one_process_are_two_ranks() -> None:
    t = trace("nccl203_tf_2rank_2.3or2.4.log")
    assert events(t) == [("all_reduce", 256, 2), ("all_reduce", 948736, 2), ("all_reduce", 1546240, 2), ("all_reduce", 32768, 1)]
    assert any("inferred" in w for w in t.warnings)


def test_torn_lines() -> None:
    found = log("nccl147_torn_lines_8rank.log")
    pids = [found.lines.instances[i].process.pid for i in found.lines.rows_instance]
    assert pids == [32629, 32625, 32615, 32617, -1, 32617]
    assert any("perhaps learnfair062:32619" in g for g in found.lines.guessed)
    assert {m.dtype for m in map(meaning, found.lines.calls)} == {"int64", "float16"}


def test_send_and_recv_of_one_process_in_two_communicators() -> None:
    assert rows("nccl584_sendrecv_recvbuff_nil.log") == [("Send", 9682944)] * 6 + [("Recv", 9682944)]
    t = trace("nccl584_sendrecv_recvbuff_nil.log")
    assert len(t) == 0  # one process, no set-up lines: nothing says which global ranks these are
    assert [u.size_bytes for u in t.unsized] == [9682944] * 6 + [None]
    with pytest.raises(RefusedError, match=r"7 collectives, 55\.4 MiB in all"):
        build_matrix(t)


def test_send_whose_address_is_printed_as_recvbuff() -> None:
    assert rows("nccl734_send_in_recvbuff_2.14.3.log") == [("Send", 1030144)]
    assert log("nccl734_send_in_recvbuff_2.14.3.log").lines.calls[0].root == 1


def test_all_to_all_v_of_messages_with_a_real_zero_and_itself() -> None:
    t = trace("nccl1593_alltoallv_zero_counts_2.21.5.log")
    found = {(int(t.sender.values[i]), int(t.receiver.values[i])): int(t.size_bytes[i]) for i in range(len(t))}
    assert found == {(1, 0): 14155776, (0, 1): 0}
    assert t.coverage.skipped == {"message of a rank to itself": 2}
    assert build_matrix(t).sum_bytes == 14155776


def test_128_ranks_behind_ray() -> None:
    t = trace("nccl1193_ray_prefix_128rank.log")
    assert any("4 operations on communicators of 128 ranks: 2 logical ones, seen from 3 of 128 ranks" in w for w in t.warnings)
    assert len(t) == 0
    assert all("members unknown" in u.reason for u in t.unsized)


def test_one_rank_three_times() -> None:
    assert events(trace("nccl1238_quoted_nranks1_allreduce.log")) == [("all_reduce", 33554432 * 4, 1)] * 3


def test_index_before_the_operation() -> None:
    found = log("nccl1352_index_before_op.log").lines
    assert found.rows_op_count == [0xE, 0xF, 0x10]
    assert meaning(found.calls[-1]).size_bytes(4) == 32
    assert found.guessed == []


def test_tensor_parallel_pair_that_was_cut() -> None:
    assert events(trace("torchtitan1369_tp2.log")) == [
        ("all_gather", 16777216, 1), ("reduce_scatter", 16777216, 2), ("all_gather", 16777216, 2),
        ("all_reduce", 4, 1), ("all_reduce", 4, 1),
    ]  # fmt: skip
    per_rank = build_matrix(trace("torchtitan1369_tp2.log")).by("op")["reduce_scatter"].links()
    assert {x.size_bytes for x in per_rank} == {8388608.0}


def test_launcher_timestamps_are_no_times_of_operations() -> None:
    assert [b for _, b in rows("deepep330_timestamp_prefix_32rank.log")] == [5, 8, 108, 8, 172, 8192]
    assert all(u.start_ns is None for u in trace("deepep330_timestamp_prefix_32rank.log").unsized)


def test_seven_of_16_ranks_are_one_operation() -> None:
    t = trace("nccl531_allgather_16rank.log")
    assert any("7 operations on communicators of 16 ranks: 1 logical ones, seen from 7 of 16 ranks" in w for w in t.warnings)


def test_opCount_that_stays_0() -> None:
    assert events(trace("pixloc29_repeated_opcount0_mem_alloc.log")) == [
        ("broadcast", 3584, 2), ("broadcast", 64, 2), ("all_reduce", 4, 2), ("all_gather", 520, 2), ("all_reduce", 256, 1),
    ]  # fmt: skip


def test_rccl_desync() -> None:
    (warning,) = [w for w in trace("rccl429_mismatch_allreduce_vs_allgather.log").warnings if "desync" in w]
    assert "opCount 28c" in warning
    assert "h03r3n06:45006 [0] calls AllReduce" in warning
    assert "h03r3n06:45012 [2] calls AllGather" in warning


def test_rccl_globalrank_and_kernel_trace() -> None:
    t = trace("rccl_usage_doc_task_globalrank.log")
    assert [(t.observers_of(i), int(t.size_bytes[i])) for i in range(3)] == [((0,), 536870912), ((2,), 8), ((5,), 72)]
    assert any(n.startswith("3 lines of RCCL's kernel trace") for n in t.notes)
    wide = trace("rccl_frontier_task_globalrank_4096.log")
    assert events(wide) == [("all_gather", 1 << 30, 1)]
    assert wide.dtype.text(0) == "bfloat16"
    assert wide.groups[0].size == 4096


def test_rccl_7_with_acc_field() -> None:
    t = trace("rccl_rocm7_acc_field_2rank.log")
    assert [g.name for g in t.groups] == ["0xcde2ea451c75c2ba"]
    assert events(t) == [("all_reduce", 4, 2)] * 2
    assert {(x.src, x.dst): x.size_bytes for x in build_matrix(t).links()} == {(0, 1): 8.0, (1, 0): 8.0}


HOSTS = {
    "init_2.4_nccl-tests29.log": (32, {"server1": [6], "server2": [9, 15], "server3": [17, 20]}),
    "init_2.10_nccl629.log": (16, {"A03-R28-I49-2-6000166": [2, 4, 5], "A03-R28-I49-3-9000018": [8, 9, 12, 14, 15]}),
    "init_2.18_nccl1029_worker_prefix.log": (16, {"rdma-gpu-train-worker-0": [0, 1, 4, 7]}),
    "init_2.18_nccl1814_64rank.log": (64, {"hostname-test": [32, 34, 35, 36]}),
    "init_2.21_nccl-tests252_2hosts.log": (8, {"kolyoz1": [0, 1], "kolyoz2": [4, 5, 6, 7]}),
    "init_2.22_timings_nccl1357.log": (16, {"qh100-gpu20": [12, 13]}),
    "init_rccl2.21_same_pointer_nccl1468.log": (6, {"nixos": [0, 1, 2, 3]}),
}


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_set_up_lines_map_ranks_to_hosts(name: str) -> None:
    size, hosts = HOSTS[name]
    t = trace(name)
    assert dict(t.system) == {"world_size": size, "hosts": hosts}
    assert "the log has no operations: record with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL" in t.notes


def test_rank_prefix_of_2_30_without_host() -> None:
    found = log("init_2.30_rank_prefix_nccl2241.log")
    (communicator,) = found.communicators.table
    assert (communicator.name, communicator.global_ranks) == ("0x3a2114e6388df547", (0, 1))
    assert [i.complete for i in found.lines.instances] == [False, False]


def test_split_with_number() -> None:
    found = log("init_2.21_commsplit_nccl1605.log")
    (instance,) = found.lines.instances
    assert (instance.comm_id, instance.rank, instance.nranks, instance.color, instance.key) == ("0x5a16c3838ce6f1f8", 0, 2, 1684518034, 0)
    (communicator,) = found.communicators.table
    assert communicator.global_ranks is None  # what was split from something larger is not the job
