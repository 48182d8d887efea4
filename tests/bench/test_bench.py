"""Benchmarks of what a user waits for: load, compile, simulate, verify, search, at 1k, 10k and 100k irregular events.

Run with ``make bench``. Every figure is of a warm process: kernels are compiled, files are in the page cache. Hashing of the noise
identities is included in simulate, verify, search and ddmin, and shown apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.minimize.ddmin import ddmin
from commcanary_lab.minimize.search import search
from commcanary_lab.simulate import DEFAULT_BACKENDS, Backend, prepare
from commcanary_lab.simulate.engine import run
from commcanary_lab.simulate.identity import identity_hashes
from commcanary_lab.simulate.models import get_model
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.traffic import build_matrix
from commcanary_lab.verify.run import verify_canary

COUNTS = (1_000, 10_000, 100_000)
GENERATOR = Path(__file__).parent / "gen_traces.py"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """Generated traces, in the styles of the published figures."""
    folder, out = tmp_path_factory.mktemp("traces"), {}
    for shape, count in [("irregular", n) for n in COUNTS] + [("regular", 100_000)]:
        path = folder / f"{shape}-{count}.json"
        subprocess.run([sys.executable, str(GENERATOR), shape, str(count), str(path)], check=True)
        out[shape, count] = path
    return out


@pytest.fixture(scope="session")
def traces(files: dict[tuple[str, int], Path]) -> dict[tuple[str, int], Trace]:
    return {key: read_json(path) for key, path in files.items()}


def _measure(benchmark: BenchmarkFixture, group: str, count: int, function: Any) -> Any:
    benchmark.group = group
    benchmark.extra_info["events"] = count
    rounds = {1_000: 20, 10_000: 7, 100_000: 5}[count]
    return benchmark.pedantic(function, rounds=rounds, iterations=1, warmup_rounds=1)


@pytest.mark.parametrize("count", COUNTS)
def test_load(benchmark: BenchmarkFixture, files: dict[tuple[str, int], Path], count: int) -> None:
    trace = _measure(benchmark, "load JSON", count, lambda: read_json(files["irregular", count]))
    assert len(trace) == count


@pytest.mark.parametrize("count", COUNTS)
def test_compile(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    def work() -> Any:
        canary = compile_trace(traces["irregular", count])
        return canary, canary.size_bytes  # the canonical file is part of the work

    canary, _ = _measure(benchmark, "compile lossless", count, work)
    benchmark.extra_info["share_of_source"] = canary.size_bytes / canary.source.size_bytes


def test_compile_regular(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace]) -> None:
    _measure(benchmark, "compile lossless, regular", 100_000, lambda: compile_trace(traces["regular", 100_000]).size_bytes)


@pytest.mark.parametrize("count", COUNTS)
def test_compile_bounded(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    _measure(benchmark, "compile, 8 records", count, lambda: compile_trace(traces["irregular", count], records=8).size_bytes)


@pytest.mark.parametrize("count", COUNTS)
def test_simulate(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    """One backend with everything: preparation, identity hashing, queue, report."""
    trace = traces["irregular", count]
    _measure(benchmark, "simulate", count, lambda: simulate_prepared(prepare(trace), Backend()))


@pytest.mark.parametrize("count", COUNTS)
def test_identity_hash(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    trace = traces["irregular", count]
    keys = prepare(trace).keys
    _measure(benchmark, "simulate: identity hash", count, lambda: identity_hashes(trace, *keys))


@pytest.mark.parametrize("count", COUNTS)
def test_queue(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    """Service times and queue of one backend, identities known."""
    prepared, model = prepare(traces["irregular", count]), get_model("commcanary-v4")
    _ = prepared.identity
    _measure(benchmark, "simulate: cost model and queue", count, lambda: run(prepared, Backend(), model))


@pytest.mark.parametrize("count", COUNTS)
def test_five_backends(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    trace = traces["irregular", count]

    def work() -> None:
        prepared = prepare(trace)
        for backend in DEFAULT_BACKENDS:
            simulate_prepared(prepared, backend)

    _measure(benchmark, "simulate, five backends", count, work)


@pytest.mark.parametrize("count", COUNTS)
def test_verify(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    trace = traces["irregular", count]
    canary = compile_trace(trace, records=4)
    found = _measure(benchmark, "verify, bounded canary", count, lambda: verify_canary(trace, canary))
    assert found.commitments == "recomputed"


@pytest.mark.parametrize("count", COUNTS[:2])
def test_search(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    """Every record budget compiled, the smallest judged first, refined, and the result verified."""
    trace = traces["irregular", count]
    found = _measure(benchmark, "search, 2 to 4 records", count, lambda: search(trace, range(2, 5)))
    assert found.passed


@pytest.mark.parametrize("count", COUNTS[:2])
def test_ddmin(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    trace = traces["irregular", count]
    found = _measure(benchmark, "ddmin", count, lambda: ddmin(trace))
    assert (found.stopped, found.decisions_kept) == ("minimal", 40)


@pytest.mark.parametrize("count", COUNTS)
def test_traffic(benchmark: BenchmarkFixture, traces: dict[tuple[str, int], Trace], count: int) -> None:
    _measure(benchmark, "traffic", count, lambda: build_matrix(traces["irregular", count]).sum_bytes)


_PEAK = """
import json, resource, sys
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.simulate import Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
trace = read_json(sys.argv[1])
size = compile_trace(trace).size_bytes
simulate_prepared(prepare(trace), Backend())
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def test_peak_memory(benchmark: BenchmarkFixture, files: dict[tuple[str, int], Path]) -> None:
    """Peak memory of a process that loads, compiles and simulates 100k irregular events (the time is of the whole process, cold)."""
    command = [sys.executable, "-c", _PEAK, str(files["irregular", 100_000])]

    def work() -> float:
        return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

    benchmark.group = "process: load, compile, simulate 100k"
    peak_mb = benchmark.pedantic(work, rounds=1, iterations=1)
    benchmark.extra_info |= {"events": 100_000, "peak_mb": peak_mb}
    assert peak_mb < 600
