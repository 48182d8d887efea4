"""A million events take well under a second per question; the bounds leave room for slow machines."""

from __future__ import annotations

import time

import numpy as np
import pytest

from commcanary_lab.inspect import iterations, ops
from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace
from commcanary_lab.traffic import build_matrix


@pytest.mark.slow
def test_a_million_events() -> None:
    n = 1_000_000
    rng = np.random.default_rng(0)
    groups = tuple(ProcessGroup(f"tp{i}", tuple(range(8 * i, 8 * i + 8))) for i in range(64))
    unit = rng.integers(0, 4, 1601)
    trace = Trace.build(n, op=Coded(np.tile(unit, 625)[:n].astype(np.int32), ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
                        group=np.repeat(np.arange(64, dtype=np.int32), n // 64), groups=groups,
                        size_bytes=rng.choice([1 << k for k in range(10, 26)], n), start_ns=Column(np.arange(n) * 1000),
                        duration_ns=Ragged.from_lengths(rng.integers(1, 10**6, n), np.ones(n, np.int64)))
    for question in (build_matrix, ops, iterations):
        start = time.perf_counter()
        question(trace)
        assert time.perf_counter() - start < 5.0, question.__name__
