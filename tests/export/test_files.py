"""Where exports go: atomically, never over what is not theirs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import commcanary_lab as lab
from commcanary_lab.errors import RefusedError, UnknownValueError, UsageError
from commcanary_lab.export import export_events_csv, export_param, export_param_et, export_perfetto
from commcanary_lab.export.folder import MANIFEST
from commcanary_lab.trace import Trace
from tests.strategies import traces


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text("mine")
    with pytest.raises(RefusedError, match=r"3\.json: exists and was not written by an export"):
        export_param(lab.samples.tp8_decode(), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["3.json"]
    assert (tmp_path / "3.json").read_text() == "mine"


def test_an_export_replaces_itself_and_removes_what_it_no_longer_writes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    export_param(lab.samples.tp8_decode(), tmp_path)
    export_param_et(lab.samples.gloo4(), tmp_path)
    names = {MANIFEST, "notes.txt", *(f"rank-{r}.json" for r in range(4))}
    assert {p.name for p in tmp_path.iterdir()} == names
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert manifest["complete"] is True
    assert manifest["files"] == {f"rank-{r}.json": (tmp_path / f"rank-{r}.json").stat().st_size for r in range(4)}
    assert [g["ranks"] for g in manifest["groups"]][:2] == [[0, 1, 2, 3], [0, 1]]


def test_an_interrupted_export_owns_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from commcanary_lab.export import folder

    real = folder.write_atomic

    def full(path: Path, chunks: bytes) -> int:
        if Path(path).name == "2.json":
            raise OSError(28, "No space left on device")
        return real(path, chunks)

    with monkeypatch.context() as m:
        m.setattr(folder, "write_atomic", full)
        with pytest.raises(OSError, match="No space"):
            export_param(lab.samples.tp8_decode(), tmp_path)
    assert json.loads((tmp_path / MANIFEST).read_text())["complete"] is False
    assert len(export_param(lab.samples.tp8_decode(), tmp_path).files) == 8


def test_a_manifest_that_names_other_folders_owns_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("mine")
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"format": "commcanary_lab.export.v1", "files": {"../outside.json": 1, "..": 1}}))
    export_param(lab.samples.tp8_decode(), folder)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("write", [export_events_csv, export_perfetto])
def test_single_files(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    trace, out = lab.samples.tp8_decode(), io.BytesIO()
    assert write(trace, out).files == ()
    for name in ("a", "a.gz"):
        for _ in range(2):  # the second time over its own file
            assert write(trace, tmp_path / name).files == (tmp_path / name,)
        data = (tmp_path / name).read_bytes()
        assert (gzip.decompress(data) if name.endswith("gz") else data) == out.getvalue()
    (tmp_path / "b").write_text("mine")
    with pytest.raises(RefusedError, match="was not written by this export"):
        write(trace, tmp_path / "b")
    assert (tmp_path / "b").read_text() == "mine"


@given(trace=traces(min_events=1))
def test_event_table_holds_every_value(trace: Trace) -> None:
    out = io.BytesIO()
    export_events_csv(trace, out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue().decode("utf-8"), newline="")))
    assert len(rows) == len(trace)
    for i, row in enumerate(rows):
        assert row["op"] == trace.op.text(i)
        assert row["phase"] == (trace.phase.text(i) or "")
        assert int(row["size_bytes"]) == trace.size_bytes[i]
        assert row["group_ranks"] == ";".join(map(str, trace.groups[trace.group[i]].members))
        for name, column in (("skew_us", trace.skew_ns), ("overlap_us", trace.overlap_ns), ("compute_before_us", trace.compute_before_ns),
                             ("observed_exposed_us", trace.observed_exposed_ns), ("duration_us", trace.duration_max_ns)):  # fmt: skip
            assert row[name] == (f"{column.values[i] // 1000}.{column.values[i] % 1000:03d}" if column.mask[i] else ""), name
        assert row["splits_bytes"] == ";".join(map(str, trace.splits.row(i).tolist()))
        assert row["reporting_ranks"] == ";".join(map(str, trace.observers_of(i)))
        for name, column in (("root_rank", trace.root), ("sender_rank", trace.sender), ("receiver_rank", trace.receiver)):
            assert row[name] == (str(column.values[i]) if column.mask[i] else "")


def _timeline(source: object, **options: object) -> dict:  # type: ignore[type-arg]
    out = io.BytesIO()
    export_perfetto(source, out, **options)  # type: ignore[arg-type]
    return json.loads(out.getvalue())  # type: ignore[no-any-return]


def test_simulated_timeline_has_the_simulators_times() -> None:
    canary = lab.compile(lab.samples.tp8_decode())
    timeline = _timeline(canary)
    slices = [e for e in timeline["traceEvents"] if e["ph"] == "X"]
    samples = lab.simulate(canary).samples
    assert timeline["otherData"]["origin"] == "simulated"
    assert len(slices) == 8 * len(canary)
    for rank in range(8):
        mine = [e for e in slices if e["pid"] == rank]
        assert [e["args"]["event"] for e in mine] == list(range(len(canary)))
        assert np.allclose([e["ts"] for e in mine], samples.start_us, atol=5.1e-4, rtol=0)
        assert np.allclose([e["dur"] for e in mine], samples.service_us, atol=1.1e-3, rtol=0)
    assert {e["cat"] for e in slices} == {"simulated"}
    exposed = [e["args"]["exposed_us"] for e in timeline["traceEvents"] if e["ph"] == "C" and e["name"] == "exposed_us"]
    assert np.allclose(exposed, samples.exposed_us, atol=5.1e-4, rtol=0)


def test_measured_timeline_has_each_ranks_measured_times() -> None:
    trace = lab.samples.gloo4()
    timeline = _timeline(trace)
    slices = [e for e in timeline["traceEvents"] if e["ph"] == "X"]
    assert timeline["otherData"]["origin"] == "measured"
    assert sum(map(len, (trace.observers_of(i) for i in range(len(trace))))) == len(slices) == 528
    for e in slices:
        i = e["args"]["event"]
        at = trace.observers_of(i).index(e["pid"])
        assert round(e["dur"] * 1000) == trace.duration_ns.row(i)[at]
        member = trace.groups[trace.group[i]].members.index(e["pid"])
        offset = trace.arrival_ns.row(i)[member] if len(trace.arrival_ns.row(i)) > 1 else 0
        assert round(e["ts"] * 1000) == trace.start_ns.values[i] - trace.start_ns.values[0] + offset
    names = {(e["pid"], e["args"]["name"]) for e in timeline["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {*((r, f"rank {r} (measured)") for r in range(4)), (4, "per event (measured)")}


@pytest.mark.parametrize("source", [lab.samples.gloo4(), lab.compile(lab.samples.gloo4())], ids=["measured", "simulated"])
def test_slices_of_a_thread_never_overlap(source: object) -> None:
    """The format nests what overlaps on one thread, which would draw two calls as one inside the other."""
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    named = set()
    for e in _timeline(source)["traceEvents"]:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] == "M" and e["name"] == "thread_name":
            named.add((e["pid"], e["tid"]))
    assert set(threads) == named
    for spans in threads.values():
        spans.sort()
        assert all(b[0] >= a[1] - 1e-6 for a, b in pairwise(spans))


def test_timeline_refuses_what_is_not_known() -> None:
    with pytest.raises(RefusedError, match="no times were measured"):
        _timeline(lab.compile(lab.samples.gloo4()), times="measured")
    with pytest.raises(UsageError):
        _timeline(lab.samples.gloo4(), times="guessed")
    from dataclasses import replace

    trace = lab.samples.adversarial()
    blind = replace(trace, arrival_known=np.zeros(len(trace), np.bool_))
    with pytest.raises(UnknownValueError, match="--assume skew_us=0"):
        _timeline(blind)
    out = io.BytesIO()
    assert export_perfetto(blind, out, assume={"skew_us": 0.0}).assumptions == {"skew_us": "0"}


def test_a_long_program_is_expanded_in_passes(tmp_path: Path) -> None:
    """The files are many times larger than what is in memory at once."""
    trace = lab.samples.tp8_decode()
    index = np.tile(np.arange(len(trace)), 100)
    from dataclasses import replace

    from commcanary_lab.trace import Column

    long = replace(trace.rows(index), gap_ns=Column(np.full(len(index), 1000)), start_ns=Column.absent(len(index)))
    canary = lab.compile(long)
    tracemalloc.start()
    done = export_param(canary, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = sum(f.stat().st_size for f in done.files)
    assert done.entries == 8 * len(index)
    assert peak < size / 2
