"""The bundled samples are what their scripts make, and say what they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from commcanary_lab.importers import shards
from commcanary_lab.trace.json_v1 import read_json

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
SAMPLES = DATA / "samples"
GOLDEN = ROOT.parent / "shared" / "data" / "golden"


@pytest.mark.parametrize(("script", "sample"), [("make_adversarial.py", "adversarial.json"), ("make_tp8_decode.py", "tp8_decode.json")])
def test_synthetic_samples_come_out_byte_for_byte(script: str, sample: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-I", "-S", str(DATA / script), str(tmp_path / "out.json")], check=True)  # standard library only
    assert (tmp_path / "out.json").read_bytes() == (SAMPLES / sample).read_bytes()


def test_the_adversarial_events_are_the_published_ones() -> None:
    golden = GOLDEN / "adv100" / "trace.json"
    if not golden.exists():
        pytest.skip("../shared/data/golden/adv100 is absent")
    assert json.loads((SAMPLES / "adversarial.json").read_bytes())["events"] == json.loads(golden.read_bytes())["events"]


def test_samples_are_small() -> None:
    """A clone stays small; the recorded campaign is packed and takes a quarter of it."""
    assert sum(p.stat().st_size for p in SAMPLES.rglob("*") if p.is_file()) < 1_500_000


def test_the_decode_sample_has_its_structure() -> None:
    trace = read_json(SAMPLES / "tp8_decode.json", check=True)
    assert trace.warnings == ()
    assert trace.unknown_fields == {}
    counts = Counter(zip(trace.phase.to_list(), trace.op.to_list(), trace.size_bytes.tolist(), strict=True))
    assert counts == {
        ("prefill", "all_reduce", 1 << 20): 64, ("prefill", "all_gather", 1_026_048): 1,
        ("decode", "all_reduce", 32 << 10): 30 * 64, ("decode", "all_gather", 1_026_048): 30,
    }  # fmt: skip
    skew_us = trace.skew_ns.values / 1000
    late = int((skew_us > 30).sum())
    assert 10 <= late <= 40  # rare tail windows, and a median that knows nothing of them
    assert 2 < sorted(skew_us)[len(skew_us) // 2] < 5


def test_the_measured_sample_is_its_shards_merged() -> None:
    trace, merged = read_json(SAMPLES / "gloo4.json", check=True), shards.read(SAMPLES / "gloo4_shards")
    assert trace.first_difference(merged, ignore=("workload",)) is None
    assert trace.workload["origin"] == "measured: data/record_gloo_job.py"
    assert trace.workload["notes"].startswith("Measured on 20")
    assert any(n.startswith("recorded on 20") for n in trace.notes)
    assert trace.warnings == ()
    assert trace.coverage.read == trace.coverage.used == trace.record_count == 528
    assert trace.unknown_fields == {}


def test_the_measured_sample_has_the_jobs_structure() -> None:
    trace = shards.read(SAMPLES / "gloo4_shards")
    groups = [(trace.groups[g].name, trace.groups[g].size) for g in trace.group.tolist()]
    counts = Counter(zip(trace.phase.to_list(), trace.op.to_list(), groups, strict=True))
    assert counts == {
        ("setup", "broadcast", ("default_pg", 4)): 1, ("setup", "barrier", ("default_pg", 4)): 1,
        ("prefill", "all_reduce", ("tp", 2)): 64, ("handoff", "point_to_point", ("default_pg", 2)): 8,
        ("decode", "all_reduce", ("tp", 2)): 128, ("decode", "all_gather", ("tp", 2)): 32,
        ("exchange", "all_to_all", ("default_pg", 4)): 4, ("exchange", "all_to_all_v", ("default_pg", 4)): 4,
        ("gradients", "all_reduce", ("dp", 2)): 8, ("report", "reduce", ("default_pg", 4)): 1, ("report", "barrier", ("default_pg", 4)): 1,
    }  # fmt: skip
    for i in range(len(trace)):
        if trace.op.text(i) == "all_to_all_v":  # what one rank sends is what the other receives
            row = trace.splits.row(i).reshape(4, 10)
            assert (row[:, 2:6] == row[:, 6:].T).all()
            assert (row[:, 2:6].sum(axis=1) == row[:, 0]).all()


def test_no_sample_names_a_machine() -> None:
    for path in (SAMPLES / "gloo4_shards").iterdir():
        header = json.loads(path.read_bytes().split(b"\n")[0])
        assert header["host"] == "sample-host"
        assert b"/home/" not in path.read_bytes()
