"""The counted size is the size."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.trace import Trace
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import ProcessGroup
from commcanary_lab.trace.json_v1 import read_json_bytes
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.trace.write_v1 import document_head, event_objects, write_json
from tests.bench.gen_traces import build
from tests.golden_traces import NAMES, golden_trace
from tests.strategies import traces


def materialised(trace: Trace) -> int:
    return len(canonical_bytes({"events": list(event_objects(trace)), **document_head(trace)}))


@given(traces())
def test_equals_the_materialised_document(trace: Trace) -> None:
    assert canonical_size(trace) == materialised(trace)


@pytest.mark.parametrize("name", NAMES)
def test_golden_traces(name: str) -> None:
    trace = golden_trace(name)
    assert canonical_size(trace) == materialised(trace)


def test_the_file_is_one_line_end_longer(tmp_path) -> None:
    trace = golden_trace("adv100")
    assert write_json(trace, tmp_path / "t.json") == canonical_size(trace) + 1


@pytest.mark.parametrize("time_ns", [0, 1, 10, 999, 1000, 10**6 - 1, 10**15 - 1, 10**15, 10**15 + 1, 123456789012345678])
def test_text_of_times_at_the_limits(time_ns: int) -> None:
    trace = Trace.build(1, op=Coded.constant(1, "send"), groups=(ProcessGroup(None, (0, 1)),), group=np.zeros(1, np.int32),
                        size_bytes=np.array([8]), gap_ns=Column(np.array([time_ns])),
                        arrival_ns=Ragged.from_rows([[time_ns, 0]]))  # fmt: skip
    assert canonical_size(trace) == materialised(trace)


def test_counts_100k_events_without_writing_them() -> None:
    trace = read_json_bytes(canonical_bytes(build("irregular", 20_000)))
    large = trace.take(np.tile(np.arange(len(trace)), 5))
    canonical_size(trace)  # warm
    best = min(_seconds(large) for _ in range(5))
    assert best < 2.0  # 0.05 s on an idle machine; writing them takes longer than the bound


def _seconds(trace: Trace) -> float:
    begin = time.perf_counter()
    canonical_size(trace)
    return time.perf_counter() - begin
