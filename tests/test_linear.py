"""What a trace costs grows like its number of events: the exponent of CPU time over events, from ten thousand to a million."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.simulate import Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.traffic import build_matrix
from tests.bench.gen_large import large_trace

COUNTS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
LARGEST = 1.15


@pytest.fixture(scope="module")
def traces() -> dict[int, Trace]:
    return {n: large_trace(n) for n in COUNTS}


def exponent(work: Callable[[int], object]) -> float:
    """Return the slope of log CPU time over log events; the least of some rounds, because other processes only add."""
    work(COUNTS[0])  # compiles kernels
    seconds = []
    for n in COUNTS:
        rounds = []
        for _ in range(7 if n <= 100_000 else 3):
            begin = time.process_time()
            work(n)
            rounds.append(time.process_time() - begin)
        seconds.append(min(rounds))
    return float(np.polyfit([math.log(n) for n in COUNTS], [math.log(s) for s in seconds], 1)[0])


@pytest.mark.slow
def test_loading_grows_linearly(traces: dict[int, Trace], tmp_path: Path) -> None:
    for n, trace in traces.items():
        lab.write(trace, tmp_path / f"{n}.json")
    assert exponent(lambda n: read_json(tmp_path / f"{n}.json")) < LARGEST


@pytest.mark.slow
def test_compiling_grows_linearly(traces: dict[int, Trace]) -> None:
    assert exponent(lambda n: compile_trace(replace(traces[n])).size_bytes) < LARGEST


@pytest.mark.slow
def test_simulating_grows_linearly(traces: dict[int, Trace]) -> None:
    assert exponent(lambda n: simulate_prepared(prepare(replace(traces[n])), Backend())) < LARGEST


@pytest.mark.slow
def test_traffic_grows_linearly(traces: dict[int, Trace]) -> None:
    assert exponent(lambda n: build_matrix(replace(traces[n])).sum_bytes) < LARGEST


def test_the_fit_finds_what_is_not_linear() -> None:
    found = exponent(lambda n: sum(1 for _ in range(int((n / 1000) ** 1.5))))
    assert found > LARGEST
