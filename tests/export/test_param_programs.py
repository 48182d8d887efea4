"""PARAM's own programs replay the exports on real Gloo ranks: what they did, call by call, against the canary.

PARAM skips what it does not know and exits with 0, so its exit code says nothing. Our recorder runs inside its processes and writes down
every call that reaches torch.distributed.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.canary.model import Canary
from commcanary_lab.export import export_param, export_param_et
from commcanary_lab.trace import Coded, Column, ProcessGroup, Trace
from tests.export.programs import operations

pytestmark = [pytest.mark.slow, pytest.mark.gloo]

LAUNCHER = Path(__file__).with_name("param_launcher.py")
ROOT = Path(__file__).parents[2]
BASIC, ET = "param_bench.train.comms.pt.commsTraceReplay", "et_replay.tools.comm_replay"
EXPORTS = {"basic": (export_param, BASIC), "et": (export_param_et, ET)}


@pytest.fixture
def param(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """The Python and the environment in which PARAM's programs run."""
    directory = request.config.getoption("--param-dir")
    if directory is None:
        pytest.skip("needs a checkout of facebookresearch/param: give it with --param-dir")
    checkout = Path(directory).resolve()
    assert (checkout / "et_replay").is_dir(), f"{checkout} is no checkout of PARAM"
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "param_bench").symlink_to(checkout)  # the name under which its modules import each other
    path = os.pathsep.join(map(str, (tmp_path / "path", checkout, ROOT)))
    return request.config.getoption("--param-python") or sys.executable, {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Done:
    """What each rank did: collectives as `programs.operations` has them, barriers by group, messages in order of issue."""

    calls: dict[int, list[tuple[Any, ...]]]
    barriers: dict[int, Counter[tuple[int, ...]]]
    messages: dict[int, list[tuple[Any, ...]]]


def _replay(kind: str, canary: Canary, param: tuple[str, dict[str, str]], folder: Path, options: Sequence[str] = ()) -> Done:
    """Export, let PARAM replay with the recorder in its processes, and return what was called."""
    from commcanary_lab.capture.launcher import launch

    python, env = param
    write, module = EXPORTS[kind]
    done = write(canary, folder / "export")
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(done.ranks), str(LAUNCHER), module,
               "--trace-path", str(folder / "export"), "--trace-type", kind, "--backend", "gloo", "--device", "cpu", "--num-replays", "1",
               *options]  # fmt: skip
    with (folder / "log.txt").open("w") as log:
        trace = launch(command, folder / "shards", timeout=150, env=env, stdout=log, stderr=log).trace
    calls, barriers = {}, {}
    for rank, found in operations(trace).items():
        barriers[rank] = Counter(c[2] for c in found if c[0] == "barrier")
        # an empty all-reduce sets the group of a barrier (docs/export.md)
        collectives = [c for c in found if c[0] not in ("barrier", "point_to_point")]
        calls[rank] = [c for c in collectives if not (c[0] == "all_reduce" and c[3] == 0)]
    messages = {r: _messages(folder / "shards" / f"rank-{r}.jsonl") for r in calls}
    return Done(calls, barriers, messages)


def _messages(shard: Path) -> list[tuple[Any, ...]]:
    """Messages in order of issue; PARAM's execution trace replay never waits for them, so they stay pending in the shard."""
    rows = [json.loads(line) for line in shard.read_text().splitlines()]
    issued = {r["n"]: r for r in rows if r["kind"] in ("op", "pending") and r["op"] in ("send", "recv")}
    return [(r["dtype"], r["size_bytes"], (r["sender"], r["receiver"])) for _, r in sorted(issued.items())]


def _compare(canary: Canary, done: Done) -> tuple[int, int]:
    """Every rank must have done the canary's calls, a whole number of times in a row; returns that number and the calls compared."""
    passes, compared = set(), 0
    for rank, calls in operations(canary.trace).items():
        want = [c for c in calls if c[0] not in ("barrier", "point_to_point")]
        got = done.calls[rank]
        times, rest = divmod(len(got), len(want))
        assert rest == 0, f"rank {rank} made {len(got)} calls of {len(want)}"
        # asynchronous calls of one rank may reach the others in another order: the merged trace keeps the order in each group
        for group in {c[2] for c in want}:
            assert [c for c in got if c[2] == group] == [c for c in want if c[2] == group] * times, f"rank {rank}, group {group}"
        own = Counter(c[2] for c in calls if c[0] == "barrier")
        for group, count in own.items():
            assert done.barriers[rank][group] >= count * times, f"rank {rank}: barriers on {group}"
        sent = [(c[1], c[3], c[5]) for c in calls if c[0] == "point_to_point"]
        assert done.messages[rank] == sent * times, f"rank {rank}: messages"
        passes.add(times)
        compared += len(got) + len(sent) * times
    assert len(passes) == 1
    return passes.pop(), compared


def _everything(ranks: int) -> Trace:
    """Each operation and dtype on all ranks, then messages and subgroups."""
    world, pairs = ProcessGroup("world", tuple(range(ranks))), [ProcessGroup("pair", (i, i + 1)) for i in range(0, ranks, 2)]
    rows: list[dict[str, Any]] = [
        {"op": op, "size": 64 * ranks, "dtype": d}
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
        for d in ("float32", "bfloat16", "float16", "float64", "int32", "int64", "int8", "uint8")
    ]
    rows += [{"op": "broadcast", "size": 64, "dtype": "float32", "root": 0}, {"op": "barrier", "size": 0, "dtype": None}]
    ends = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    rows += [{"op": "point_to_point", "size": 64, "dtype": "float32", "ends": e} for e in ends]
    rows += [{"op": "all_reduce", "size": 128, "dtype": "float32", "group": i + 1} for i in range(len(pairs))]
    rows += [{"op": "barrier", "size": 0, "dtype": None}]
    columns = {
        key: Column.from_optional([r.get("ends", (None, None))[end] for r in rows]) for end, key in enumerate(("sender", "receiver"))
    }
    return Trace.build(
        len(rows), op=Coded.from_optional([r["op"] for r in rows]), groups=(world, *pairs),
        group=np.array([r.get("group", 0) for r in rows], np.int32), size_bytes=np.array([r["size"] for r in rows]),
        dtype=Coded.from_optional([r["dtype"] for r in rows]), custom_op=np.array([r["op"] == "barrier" for r in rows]),
        root=Column.from_optional([r.get("root") for r in rows]), gap_ns=Column(np.full(len(rows), 1000)), **columns,
    )  # fmt: skip


@pytest.mark.parametrize("kind", EXPORTS)
def test_recorded_job_on_four_ranks(kind: str, param: tuple[str, dict[str, str]], tmp_path: Path, record_property: Any) -> None:
    canary = lab.compile(lab.samples.gloo4())
    passes, compared = _compare(canary, _replay(kind, canary, param, tmp_path))
    assert passes >= 1
    assert compared == passes * sum(c[0] != "barrier" for calls in operations(canary.trace).values() for c in calls)
    record_property("compared", compared)
    print(f"{kind}: gloo4 on 4 ranks: {passes} passes, {compared} calls equal")


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", EXPORTS)
def test_every_operation_and_type(kind: str, ranks: int, param: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    canary = lab.compile(_everything(ranks))
    passes, compared = _compare(canary, _replay(kind, canary, param, tmp_path))
    print(f"{kind}: every operation on {ranks} ranks: {passes} passes, {compared} calls equal")


@pytest.mark.parametrize("kind", EXPORTS)
def test_synthetic_sample_on_two_ranks(kind: str, param: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    trace = lab.samples.adversarial()
    canary = lab.compile(Trace.build(len(trace), op=trace.op, groups=trace.groups, group=trace.group, size_bytes=trace.size_bytes,
                                     dtype=Coded.constant(len(trace), "float32"), gap_ns=trace.gap_ns))  # fmt: skip
    passes, compared = _compare(canary, _replay(kind, canary, param, tmp_path))
    print(f"{kind}: adversarial on 2 ranks: {passes} passes, {compared} calls equal")


def test_recorded_job_with_timestamps(param: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """PARAM's basic replay accepts the times and makes the same calls; how exactly it keeps them is not measured here."""
    canary = lab.compile(lab.samples.gloo4())
    done = _replay("basic", canary, param, tmp_path, ["--use-timestamp"])
    passes, compared = _compare(canary, done)
    print(f"basic with timestamps: gloo4 on 4 ranks: {passes} passes, {compared} calls equal")
