"""The recorder on real Gloo groups: what each rank wrote, and what the merged trace says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from commcanary_lab.errors import UsageError
from commcanary_lab.importers import shards
from commcanary_lab.trace.model import Trace
from tests.capture.conftest import finish, start_ranks

pytestmark = pytest.mark.gloo

RunJob = Callable[[str, int], Path]

#: Of jobs/every_op.py: (op, B, dtype, reduction, root) of each collective in order.
COLLECTIVES = [
    ("all_reduce", 40, "float32", "sum", None),
    ("all_reduce", 24, "int64", "max", None),
    ("all_reduce", 14, "bfloat16", "product", None),
    ("broadcast", 6, "uint8", None, 1),
    ("reduce", 16, "float32", None, 1),
    ("all_gather", 40, "float32", None, None),
    ("all_gather", 48, "float64", None, None),
    ("reduce_scatter", 16, "float32", "sum", None),
    ("reduce_scatter", 32, "float32", "sum", None),
    ("all_to_all", 24, "float32", None, None),
    ("all_to_all", 32, "float32", None, None),
    ("all_to_all_v", 56, "float32", None, None),
    ("all_to_all_v", 28, "float32", None, None),
    ("all_to_all", 16, "float32", None, None),
    ("gather", 24, "float32", None, 1),
    ("scatter", 48, "float32", None, 0),
    ("barrier", 0, None, None, None),
    ("all_reduce", 80, "float32", "sum", None),
    ("all_gather", 16, "int64", None, None),
    ("all_gather", None, "uint8", None, None),  # a pickled object: its size is pickle's affair
    ("all_reduce", 120, "float32", "sum", None),
    ("all_reduce", 124, "float32", "sum", None),
    ("all_reduce", 160, "float32", "sum", None),
    ("all_reduce", 164, "float32", "sum", None),
    ("all_reduce", 72, "float32", "sum", None),
    ("broadcast", 0, "float32", None, 0),
    ("monitored_barrier", 0, None, None, None),
    ("all_reduce", 200, "float32", "sum", None),
    ("all_reduce", 204, "float32", "max", None),
    ("broadcast", 208, "float32", None, 1),
    ("reduce", 212, "float32", None, 0),
    ("all_gather", 40, "float32", None, None),
    ("gather", 40, "float32", None, 0),
    ("reduce_scatter", 32, "float32", "sum", None),
    ("all_to_all", 24, "float32", None, None),
    ("barrier", 0, None, None, None),
    ("all_reduce", 32, "float32", "sum", None),
    ("all_reduce", 36, "float32", "sum", None),
]


def events(trace: Trace, *, messages: bool) -> list[int]:
    return [i for i, op in enumerate(trace.op.to_list()) if (op == "point_to_point") == messages]


def test_every_operation_once_with_exact_sizes(run_job: RunJob) -> None:
    trace = shards.read(run_job("every_op.py", 2))
    found = []
    for i in events(trace, messages=False):
        root = trace.root.filled(-1)[i]
        found.append((trace.op.text(i), int(trace.size_bytes[i]), trace.dtype.text(i), trace.reduction.text(i), None if root < 0 else root))
    expected = [(op, found[n][1] if size is None else size, *rest) for n, (op, size, *rest) in enumerate(COLLECTIVES)]
    assert found == expected
    assert trace.coverage.skipped == {"failed: RuntimeError": 2}  # the fp8 all_reduce, once per rank
    assert trace.coverage.read == trace.coverage.used + 2
    assert trace.notes[0] == "every operation once"
    assert trace.warnings == ()


def test_custom_operations_are_marked(run_job: RunJob) -> None:
    trace = shards.read(run_job("every_op.py", 2))
    custom = {trace.op.text(i) for i in range(len(trace)) if trace.custom_op[i]}
    assert custom == {"reduce", "gather", "scatter", "barrier", "monitored_barrier", "all_to_all_v"}


def test_uneven_exchanges_have_their_splits_in_bytes(run_job: RunJob) -> None:
    trace = shards.read(run_job("every_op.py", 2))
    rows = [trace.splits.row(i).tolist() for i in range(len(trace)) if trace.op.text(i) == "all_to_all_v"]
    # per rank: total sent, total received, sent to 0 and 1, received from 0 and 1
    assert rows[0] == [24, 32, 8, 16, 8, 24, 56, 48, 24, 32, 16, 32]
    # even on rank 0 by coincidence: its row is stated all the same
    assert rows[1] == [16, 16, 8, 8, 8, 8, 28, 28, 8, 20, 8, 20]


def test_messages_have_global_ranks_and_one_event_for_both_ends(run_job: RunJob) -> None:
    trace = shards.read(run_job("every_op.py", 2))
    found = Counter((int(trace.sender.values[i]), int(trace.receiver.values[i]), int(trace.size_bytes[i]), trace.tag.text(i))
                    for i in events(trace, messages=True))
    assert found == Counter([(0, 1, 44, None), (1, 0, 48, None), (0, 1, 52, "4"), (1, 0, 52, "4"), (0, 1, 20, None), (1, 0, 20, None)])
    assert trace.observer_counts.min() == 2  # every event was seen by all its ranks


def test_clock_and_durations(run_job: RunJob) -> None:
    trace = shards.read(run_job("every_op.py", 2))
    assert trace.arrival_known.all()
    assert trace.overlap_ns.all_known
    assert trace.duration_max_ns.all_known
    assert (trace.duration_max_ns.values > 0).all()


def test_groups_phases_and_counts(run_job: RunJob) -> None:
    trace = shards.read(run_job("groups.py", 4))
    counts = Counter((trace.groups[g].name, trace.groups[g].members, trace.op.text(i), trace.phase.text(i))
                     for i, g in enumerate(trace.group.tolist()))
    tp = {(0, 1), (2, 3)}
    names = {name for name, members, _, _ in counts if members in tp}
    assert names == {"tp", "tp.2"}  # the second group of the same name and ranks is told apart
    plain = next(name for name, members, _, _ in counts if members == (1, 3) and name != "dp")
    assert counts == Counter({
        **{("tp", m, "all_reduce", "prefill"): 3 for m in tp},
        **{("tp", m, "all_reduce", "decode"): 5 for m in tp},
        **{("dp", m, "all_reduce", "decode"): 1 for m in [(0, 2), (1, 3)]},
        **{("tp.2", m, "all_reduce", "decode"): 1 for m in tp},
        ("default_pg", (0, 1, 2, 3), "all_to_all_v", "exchange"): 1,
        (plain, (1, 3), "broadcast", None): 1,
        ("default_pg", (0, 1, 2, 3), "barrier", None): 1,
        ("default_pg", (0, 1, 2, 3), "all_reduce", None): 2,
    })
    assert trace.root.values[trace.op.to_list().index("broadcast")] == 3


def test_four_rank_splits(run_job: RunJob) -> None:
    trace = shards.read(run_job("groups.py", 4))
    row = trace.splits.row(trace.op.to_list().index("all_to_all_v")).reshape(4, 10)
    sent = [[0, 1, 2, 3], [1, 0, 5, 2], [2, 5, 0, 1], [3, 2, 1, 0]]
    assert (row[:, 2:6] // 4).tolist() == sent
    assert (row[:, 6:] // 4).T.tolist() == sent
    assert row[:, 0].tolist() == [24, 32, 32, 24]
    assert trace.size_bytes[trace.op.to_list().index("all_to_all_v")] == 32


def test_a_late_rank_is_skew_and_work_under_an_operation_is_overlap(run_job: RunJob) -> None:
    trace = shards.read(run_job("groups.py", 4))
    late = int((trace.size_bytes == 4000).argmax())
    assert trace.skew_ns.values[late] >= 15_000_000
    arrivals = trace.arrival_ns.row(late)
    assert arrivals.argmax() == 2
    assert arrivals[2] - sorted(arrivals)[-2] >= 10_000_000
    assert trace.overlap_ns.values[late] == 0  # the call itself waited
    hidden = int((trace.size_bytes == 4004).argmax())
    assert 25_000_000 <= trace.overlap_ns.values[hidden] <= trace.duration_max_ns.values[hidden]
    assert any("overlap is the host time" in n for n in trace.notes)


def test_what_runs_in_cpp_is_counted_and_what_inherits_passes(run_job: RunJob) -> None:
    folder = run_job("outside.py", 2)  # asserts in the job
    trace = shards.read(folder / "outside")
    assert len(trace) == 1
    assert any("ran outside the recorder" in w for w in trace.warnings)
    assert shards.read(folder / "hooked").size_bytes.tolist() == [256]
    assert len(shards.read(folder / "bounded")) == 200
    assert len(shards.read(folder / "raised")) == 1
    assert not (folder / "second").exists()


def test_a_rank_that_dies_leaves_readable_shards(tmp_path: Path) -> None:
    processes = start_ranks("crash.py", 2, tmp_path)
    path = tmp_path / "shards" / "rank-0.jsonl"
    deadline = time.monotonic() + 60
    while not (path.exists() and b'"kind":"pending","n":20,' in path.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    waiting = shards.read_rank(path)  # rank 0 is inside a collective that rank 1 will never enter
    assert len(waiting.records) == 20
    assert waiting.coverage.skipped == {"unfinished when the process ended": 1}
    (tmp_path / "shards" / "go").touch()  # rank 1 leaves without a word
    (status0, _, stderr), (status1, _, _) = finish(processes)
    assert (status1, status0 != 0) == (7, True), stderr
    dead = shards.read_rank(tmp_path / "shards" / "rank-1.jsonl")
    assert len(dead.records) == 20
    assert dead.coverage.skipped == {}
    assert any("did not close its shard" in w for w in dead.warnings)
    left = shards.read_rank(path)  # its recorder closed on the way out of the error
    assert len(left.records) == 20
    assert left.coverage.skipped == {"failed: RuntimeError": 1}
    assert left.warnings == ()
    trace = shards.read(tmp_path / "shards")
    assert len(trace) == 20
    assert trace.arrival_known.all()


def test_overhead_is_small_and_stated(run_job: RunJob, capsys: pytest.CaptureFixture[str]) -> None:
    from commcanary_lab.capture.overhead import bookkeeping_ns
    from commcanary_lab.importers.shard_lines import load
    from commcanary_lab.limits import DEFAULT

    pytest.importorskip("torch")
    stated = load(run_job("outside.py", 2) / "bounded" / "rank-0.jsonl", DEFAULT)
    assert stated.end is not None
    assert stated.end.overhead_ns is not None
    figures = {"measured here": bookkeeping_ns(), "in the header": stated.header.overhead_ns, "sampled in the run": stated.end.overhead_ns}
    with capsys.disabled():
        print("\nrecorder bookkeeping per operation, ns:", figures)
    assert all(100 < f < 500_000 for f in figures.values())


def test_without_a_group_nothing_is_written(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch.distributed as dist

    from commcanary_lab.capture import Recorder

    method = dist.ProcessGroup.allreduce
    with Recorder(tmp_path / "none") as rec:
        assert dist.ProcessGroup.allreduce is not method
        with pytest.raises(UsageError, match="already active"), Recorder(tmp_path / "inner"):
            pass
    assert dist.ProcessGroup.allreduce is method
    assert rec.summary is not None
    assert rec.summary.path is None
    assert not (tmp_path / "none").exists()
