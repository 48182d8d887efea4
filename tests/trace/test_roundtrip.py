"""Both interchange forms give back exactly the trace that was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from commcanary_lab.trace import Trace
from commcanary_lab.trace.invariants import check_trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.parquet import read_parquet, write_parquet
from commcanary_lab.trace.write_v1 import write_json
from tests.strategies import traces


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roundtrip")


@given(traces())
def test_every_generated_trace_is_valid(trace: Trace) -> None:
    check_trace(trace)


@given(trace=traces())
def test_json(trace: Trace, folder: Path) -> None:
    path = folder / "t.json"
    assert write_json(trace, path) == path.stat().st_size
    back = read_json(path, check=True)
    assert back.first_difference(trace) is None


@given(trace=traces())
def test_parquet(trace: Trace, folder: Path) -> None:
    path = folder / "t.parquet"
    assert write_parquet(trace, path) == path.stat().st_size
    back = read_parquet(path)
    assert back.first_difference(trace) is None


@given(trace=traces(min_events=1))
def test_one_form_through_the_other(trace: Trace, folder: Path) -> None:
    write_parquet(trace, folder / "a.parquet")
    write_json(read_parquet(folder / "a.parquet"), folder / "a.json")
    assert read_json(folder / "a.json").equals(trace)


@given(trace=traces(min_events=2))
def test_any_selection_of_events_can_be_written_and_read(trace: Trace, folder: Path) -> None:
    some = trace.take(np.arange(0, len(trace), 2))
    write_json(some, folder / "s.json")
    assert read_json(folder / "s.json").first_difference(some) is None
