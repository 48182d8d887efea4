"""A file decoded in batches gives the trace that it gives as a whole, wherever the borders of the batches fall."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.importers import kineto, kineto_read
from commcanary_lab.importers.kineto_batches import decode_batches

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "samples" / "fabric_job" / "kineto"
REAL = ROOT.parent / "shared" / "data" / "real" / "kineto"
FILES = sorted(
    [*SAMPLE.glob("rank0.json"), *(REAL.rglob("*.json") if REAL.is_dir() else ()), *(REAL.rglob("*.json.gz") if REAL.is_dir() else ())]
)
LIST = msgspec.json.Decoder(list[dict[str, Any]])

value = st.recursive(
    st.one_of(st.integers(), st.text(alphabet='"\\{},[]: \nab'), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(alphabet='{},"b', max_size=3), inner, max_size=3)),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text(alphabet='}{,"a', max_size=3), value, max_size=3), max_size=12), st.integers(1, 60), st.booleans())
def test_borders_inside_of_strings_and_objects_are_noticed(events: list[dict[str, Any]], batch: int, spaced: bool) -> None:
    text = json.dumps(events, indent=1 if spaced else None, separators=None if spaced else (",", ":")).encode()
    found = decode_batches(memoryview(text), LIST, lambda e: e, {}, batch)
    assert found is None or found == events  # None: no border within so many tries
    if all("}" not in json.dumps(e)[1:-1] for e in events):
        assert found == events


def told(path: Path) -> object:
    """What an import gives: the trace, or the refusal."""
    try:
        return kineto.read([path])
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
@pytest.mark.parametrize("batch", [1, 50_000])
def test_real_files_in_batches(path: Path, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stat().st_size > (400_000 if batch == 1 else 3_000_000):
        pytest.skip("takes long; smaller files cut everywhere show the same")
    whole = told(path)
    monkeypatch.setattr(kineto_read, "_LARGE_BYTES", 0)
    monkeypatch.setattr(kineto_read, "_BATCH_BYTES", batch)
    cut = told(path)
    assert cut == whole if isinstance(whole, tuple) else cut.equals(whole)  # type: ignore[attr-defined]


def test_what_no_import_needs_is_not_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = json.loads((SAMPLE / "rank0.json").read_text())
    needed = len(document["traceEvents"])
    document["traceEvents"] += [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}] * 500
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    monkeypatch.setattr(kineto_read, "_LARGE_BYTES", 0)
    monkeypatch.setattr(kineto_read, "_BATCH_BYTES", 4096)
    events = kineto_read.read_document(path).events
    assert len(events) == needed + 500
    assert len({id(e) for e in events[needed:]}) == 1


def test_an_event_that_is_none_is_left_out_as_in_a_small_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = json.loads((SAMPLE / "rank0.json").read_text())
    document["traceEvents"].insert(3, 7)
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document))
    whole = kineto_read.read_document(path)
    monkeypatch.setattr(kineto_read, "_LARGE_BYTES", 0)
    monkeypatch.setattr(kineto_read, "_BATCH_BYTES", 100)
    assert kineto_read.read_document(path).warnings == whole.warnings
    assert "3 (" in " ".join(whole.warnings)
