"""Ten million events, and a profiler trace of a gigabyte: whole processes, once each, with their peak memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from commcanary_lab.trace.parquet import write_parquet
from tests.bench import gen_kineto
from tests.bench.gen_large import large_trace
from tests.bench.test_peer import run

EVENTS = 10_000_000
#: Seconds and megabytes that each may take.
LIMITS = {"open": (15, 8000), "simulate": (15, 8000), "compile": (15, 8000), "traffic": (15, 8000)}
KINETO_MB = 1000
KINETO_LIMITS = (60, 3000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.parquet"
    write_parquet(large_trace(EVENTS), path)
    return path


def measured(benchmark: BenchmarkFixture, name: str, command: list[str], folder: Path, limits: tuple[float, float]) -> None:
    """Run a command once, and keep its times and its peak."""
    used: list[tuple[float, float, float]] = []

    def work() -> None:
        begin = time.perf_counter()
        cpu, peak = run(command, folder)
        used.append((time.perf_counter() - begin, cpu, peak))

    benchmark.group = f"large: {name}"
    benchmark.pedantic(work, rounds=1, iterations=1)
    wall, cpu, peak = used[0]
    benchmark.extra_info |= {"events": EVENTS, "wall_s": wall, "cpu_s": cpu, "peak_mb": peak, "limits": list(limits)}
    assert peak < limits[1]
    assert wall < 5 * limits[0]  # loose: the machine may be busy


@pytest.mark.parametrize("verb", LIMITS)
def test_ten_million_events(benchmark: BenchmarkFixture, large: Path, tmp_path: Path, verb: str) -> None:
    more = ["-o", str(tmp_path / "canary.json")] if verb == "compile" else []
    measured(benchmark, f"`{verb}` of 10 million events (Parquet)", [verb, str(large), *more], tmp_path, LIMITS[verb])
    if verb == "compile":  # what was written can be read
        run(["simulate", str(tmp_path / "canary.json")], tmp_path)


def test_a_profiler_trace_of_a_gigabyte(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    gen_kineto.write(path, KINETO_MB)
    measured(benchmark, "`open` of a profiler trace of 1 GB", ["open", str(path)], tmp_path, KINETO_LIMITS)
