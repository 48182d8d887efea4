"""Replays on real Gloo ranks: counts and bytes, every operation, injected faults, and runs that end badly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab import cli
from commcanary_lab.errors import FormatError, LaunchError, UsageError
from commcanary_lab.replay.launch import batch_script
from commcanary_lab.replay.probe import boundary
from commcanary_lab.replay.result import Replay, read_replay
from commcanary_lab.replay.run import execute, prepare
from commcanary_lab.replay.spec import Fault, ProbeAsked, ReplaySpec
from tests.replay.conftest import workers
from tests.replay.programs import event, everything, gathers, make_trace

pytestmark = pytest.mark.gloo
pytest.importorskip("torch")


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "commcanary_lab.cli", "replay", *arguments, "-o", str(place), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("canary") / "gloo4.canary.json"
    lab.write(lab.compile(lab.samples.gloo4(), records=2), path)
    return path


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_real_canary_runs_as_its_program_says(canary: Path, place: Path, ranks: int) -> None:
    done = run(place, str(canary), "--ranks", str(ranks), "--probe", "--iterations", "3")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    result = read_replay(place)
    assert said["ran_on"].startswith(f"gloo on {ranks} ranks of 1 host")
    assert said["probe"]["status"] == "pass"
    assert said["count_differences"] == []
    for rank in range(ranks):
        assert said["counts"][str(rank)] == result.program.counts(rank)
        assert said["payload_bytes"][str(rank)] == result.program.payload(rank)
    if ranks == 4:
        assert sum(sum(v.values()) for v in said["payload_bytes"].values()) == lab.traffic(lab.samples.gloo4()).payload_bytes
    assert result.latency_ns.shape == (3, result.program.runs)
    assert (result.latency_ns > 0).all()
    assert (result.exposed_ns <= result.latency_ns).all()
    assert result.cycle_ns.shape == (3,)
    assert (result.cycle_ns >= result.latency_ns.max(axis=1)).all()
    assert result.verify() == []
    assert "measured" in result._repr_html_()
    assert all(p.stat().st_mode & 0o222 == 0 for p in place.iterdir())


def test_every_operation_and_type_byte_for_byte(place: Path) -> None:
    result = lab.replay(everything(4), out=place, iterations=1, warmup=0, probe=ProbeAsked(1, 3))
    assert result.probe.status == "pass", result.probe.text
    assert result.probe.boundaries == 3 * sum(sum(result.program.counts(r).values()) for r in range(4))
    assert result.count_differences == ()
    assert "float8_e4m3fn runs as uint8: gloo does not carry it" in result.changes
    assert {r.op for r in result.latencies} == {s.op for s in result.program.steps if s is not None}


def _fault(kind: str, number: int, sample: int, ranks: tuple[int, ...] = (), bit: int = 0) -> ProbeAsked:
    return ProbeAsked(1, 4, "eager", Fault(kind, number, sample, ranks, bit))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        (_fault("stale", 5, 2), (0, 1, 2, 3)), (_fault("swap", 3, 1, (2,)), (2,)), (_fault("flip", 0, 3, (1, 3), bit=1001), (1, 3)),
        (_fault("stale", 5, 0, (0,)), (0,)),
    ],
)  # fmt: skip
def test_a_fault_is_found_where_it_was_made(place: Path, asked: ProbeAsked, ranks: tuple[int, ...]) -> None:
    result = lab.replay(gathers(4, gathers=5, elements=64), out=place, iterations=1, warmup=0, probe=asked)
    fault = asked.fault
    assert fault is not None
    assert result.probe.status == "fail"
    assert (result.probe.event, result.probe.sample, result.probe.ranks) == (fault.event, fault.sample, ranks)
    assert result.probe.boundary == boundary("all_reduce" if fault.event == 5 else "all_gather", fault.event)
    assert result.probe.mismatches == len(ranks)
    if fault.kind == "flip":
        assert result.probe.first is not None
        assert (result.probe.first.byte, result.probe.first.wrong_bytes) == (125, 1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("stale", 9, 0), "no event 9"), (Fault("stale", 0, 7), "in sample 7"), (Fault("swap", 5, 0), "cannot change places"),
        (Fault("flip", 0, 0, (9,)), "rank 9 takes no part"),
    ],
)  # fmt: skip
def test_damage_that_nobody_could_see_is_refused(place: Path, fault: Fault, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        prepare(gathers(4, gathers=5, elements=64), place, probe=ProbeAsked(1, 2, "eager", fault))
    assert not place.exists()


def test_preserved_gaps_and_compute_beside(place: Path) -> None:
    """Ten events a 20 ms, each with 5 ms of compute beside it."""
    events = [event("all_reduce", (0, 1), 4096, overlap_ns=5_000_000) for _ in range(10)]
    result = lab.replay(make_trace(events, gap_us=20_000), out=place, timing="preserve", barrier=False, overlap=True, iterations=2)
    starts = np.sort(result.samples[0]["start_ns"][result.samples[0]["iteration"] == 0])
    assert np.median(np.diff(starts)) > 10_000_000  # late ones make up for it, so a single gap may be shorter
    assert starts[-1] - starts[0] >= 9 * 20_000_000 - 5_000_000
    assert (result.samples[0]["overlap_ns"] > 0).all()
    assert (result.latency_ns >= 5_000_000).all()
    assert np.median(result.exposed_ns) < np.median(result.latency_ns)


def _after(place: Path, rank: int, act: Callable[[int], None]) -> threading.Thread:
    """Act on a rank's process as soon as it has measured something."""

    def wait() -> None:
        started = place / f"rank-{rank:05d}.started"
        samples = place / f"rank-{rank:05d}.arrows"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if started.exists() and samples.exists() and samples.stat().st_size > 2000:
                act(int(started.read_text()))
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


ENDLESS = 10**6


def test_a_killed_rank_ends_the_run_and_is_named(place: Path) -> None:
    spec = prepare(gathers(4, gathers=5, elements=64), place, iterations=ENDLESS)
    killer = _after(place, 2, lambda pid: os.kill(pid, signal.SIGKILL))
    state = execute(place, spec)
    killer.join()
    assert state.status == "failed"
    assert state.failed_rank == 2
    _readable(place, "rank 2")


def test_a_timeout_leaves_nothing_running(place: Path) -> None:
    for limit_s in (8, 30, 120):  # on a busy machine the ranks need longer to start than the first limit
        where = place.with_name(f"{place.name}-{limit_s}")
        spec = prepare(gathers(2, gathers=5, elements=64), where, iterations=ENDLESS, timeout_s=limit_s)
        state = execute(where, spec)
        assert state.status == "timeout"
        assert state.seconds < 4 * limit_s
        if len(read_replay(where).samples[0].get("event", ())):
            break
    _readable(where, "ran out of time")


def test_a_cancelled_run_leaves_nothing_running(place: Path) -> None:
    cancelled = threading.Event()
    waiter = _after(place, 0, lambda _: cancelled.set())
    with pytest.raises(LaunchError, match="was cancelled"):
        lab.replay(gathers(2, gathers=5, elements=64), out=place, iterations=ENDLESS, cancelled=cancelled)
    waiter.join()
    _readable(place, "was cancelled")


def test_sigterm_ends_the_ranks_and_seals_what_there_is(canary: Path, place: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "commcanary_lab.cli",
        "replay",
        str(canary),
        "-o",
        str(place),
        "--ranks",
        "2",
        "--iterations",
        "1000000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _after(place, 0, lambda _: process.terminate()).join()
    assert process.wait(30) != 0
    assert workers(place) == []
    _readable(place, "cancelled")


def _readable(place: Path, words: str) -> None:
    """The evidence of a run that ended badly is sealed, readable, and says what happened."""
    result = read_replay(place)
    assert result.verify() == []
    with pytest.raises(LaunchError, match=words):
        result.raise_if_failed()
    assert len(result.samples[0]["event"]) > 0
    assert list(result.latencies) == [] or result.iterations
    assert workers(place) == []


def test_an_error_of_a_rank_is_told(place: Path) -> None:
    """A program that was changed after it was prepared."""
    spec = prepare(gathers(2, gathers=2, elements=64), place)
    program = place / spec.program
    program.write_bytes(program.read_bytes()[:-1] + b"x")
    state = execute(place, spec)
    assert state.status == "failed"
    assert "the program was changed after the replay was prepared" in state.reason


def test_bookkeeping_is_small(place: Path) -> None:
    """Between an event and the next barrier: the median over 5,000 events, here with a margin for a shared machine."""
    result = lab.replay(gathers(2, gathers=499, elements=8), out=place, iterations=10)
    medians = [float(np.median(result.bookkeeping_ns(r))) / 1000 for r in range(2)]
    print(f"bookkeeping per event, p50: {medians[0]:.1f} and {medians[1]:.1f} us")
    assert max(medians) < 60


@pytest.mark.slow
def test_97_gathers_and_a_reduction_in_128_samples(place: Path) -> None:
    """32 epochs x 4 replays of 97 all-gathers and 1 all-reduce, 1 x 8 x 3072 bfloat16 per rank, on 4 ranks, byte for byte."""
    result = lab.replay(gathers(4), out=place, iterations=1, warmup=0, probe=ProbeAsked(32, 4), timeout_s=900)
    assert result.probe.status == "pass", result.probe.text
    assert result.probe.samples == 128
    assert result.probe.boundaries == 128 * 98 * 4
    print(result.probe.text)


def test_wrong_use(canary: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (("--ranks", "9"), "the program has 4 ranks"), (("--backend", "mpi"), "no backend 'mpi'"), (("--timing", "fast"), "no timing"),
        (("--iterations", "0"), "at least 1"), (("--fault", "stale:0:0"), "add --probe"), (("--probe", "--probe-mode", "graph"), "CUDA"),
        (("--probe", "--fault", "stale"), "KIND:EVENT:SAMPLE"), (("--nodes", "3"), "spread evenly"),
        (("--backend", "nccl"), "a GPU per rank"),
    ):  # fmt: skip
        assert cli.run(["replay", str(canary), *arguments, "-o", str(place)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert words in said.err
        assert not place.exists()
    place.mkdir()
    (place / "mine").write_text("x")
    assert cli.run(["replay", str(canary), "-o", str(place)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert (place / "mine").read_text() == "x"
    with pytest.raises(FormatError):
        read_replay(tmp_path)


def test_a_batch_script_for_slurm(canary: Path, place: Path) -> None:
    done = run(place, str(canary), "--nodes", "2", "--backend", "gloo")
    assert done.returncode == 0, done.stderr
    script = place / "replay.sbatch"
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    text = script.read_text()
    assert "--nnodes 2 --nproc-per-node 2" in text
    assert "#SBATCH --nodes=2" in text
    assert json.loads(done.stdout)["script"] == str(script)
    with pytest.raises(UsageError, match="spread evenly"):
        batch_script(ReplaySpec("canary.json", "0" * 64, 4, 4, "gloo"), 3)
    assert isinstance(read_replay(place), Replay)
