"""Verification finds every change of the evidence: of each byte of each file, and of what follows from the samples."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from commcanary_lab.replay.campaign import verify_campaign
from commcanary_lab.replay.sample_file import SampleWriter, read_samples

from .builder import PROBE, Lab, Made, paired, reseal

pytest.importorskip("torch")

CRITERIA = """
[[criteria]]
name = "faster"
metric = "cycle_us"
aggregate = "every_rank"
compare = "difference"
at_least = 100.0
[[rates]]
name = "tokens/s"
per_cycle = { control = 4.0, candidate = 4.0 }
[[audits]]
configurations = ["control"]
counts = { all_gather = 4, all_reduce = 1 }
total = 5
"""


def _cycle(name: str, run: int, rank: int, iteration: int) -> float:
    return (1000 if name == "control" else 800) + 3 * run + rank


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence of a finished campaign; tests work on copies."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "tokens.txt").write_text("an input\n")
    campaign = Lab.at(folder).run(paired(CRITERIA, probe=PROBE, top='inputs = ["tokens.txt"]'), Made(_cycle))
    assert campaign.decision == "pass"
    return campaign.directory


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence of four runs, for tests that go through every file."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "tokens.txt").write_text("an input\n")
    top = 'inputs = ["tokens.txt"]\nconfidence = 0.5'
    return Lab.at(folder).run(paired(CRITERIA, probe=PROBE, repetitions=2, top=top), Made(_cycle)).directory


@pytest.fixture
def copy(evidence: Path, tmp_path: Path) -> Path:
    """A copy of the evidence that may be changed."""
    return Path(shutil.copytree(evidence, tmp_path / "copy"))


def _files(place: Path) -> list[str]:
    return sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file())


def _change(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_untouched_evidence_passes(evidence: Path) -> None:
    check = verify_campaign(evidence)
    assert check.passed, check.differences
    assert (check.runs, check.decision) == (12, "pass")
    assert check.files == len(_files(evidence)) - 1
    assert check.values > 100


def test_everything_is_read_only_and_listed(evidence: Path) -> None:
    files = _files(evidence)
    assert {"manifest.json", "preregistration.toml", "decision.json", "journal.jsonl", "inputs/01-tokens.txt"} < set(files)
    assert all((evidence / f).stat().st_mode & 0o777 == 0o444 for f in files)
    listed = {line.split("  ", 1)[1] for line in (evidence / "SHA256SUMS").read_text().splitlines()}
    assert listed == set(files) - {"SHA256SUMS"}


def test_one_changed_byte_of_any_file_is_found(small: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(small, tmp_path / "copy"))
    for name in _files(place):
        path = place / name
        data = path.read_bytes()
        for at in sorted({0, len(data) // 2, len(data) - 1}) if data else []:
            _change(path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            check = verify_campaign(place)
            assert not check.passed, (name, at)
            assert name == "SHA256SUMS" or f"{name}: changed" in check.differences, (name, at, check.differences)
        _change(path, data + b"x")
        assert not verify_campaign(place).passed, name
        path.write_bytes(data)
    assert verify_campaign(place).passed


def test_one_missing_file_is_found(small: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(small, tmp_path / "copy"))
    for name in _files(place):
        data = (place / name).read_bytes()
        (place / name).unlink()
        check = verify_campaign(place)
        assert not check.passed, name
        if Path(name).name != "SHA256SUMS":
            assert f"{name}: missing" in check.differences
        (place / name).write_bytes(data)
    assert verify_campaign(place).passed


def test_one_added_file_in_any_directory_is_found(small: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(small, tmp_path / "copy"))
    for folder in [place, *(p for p in place.rglob("*") if p.is_dir())]:
        (folder / "extra").write_text("")
        relative = (folder / "extra").relative_to(place).as_posix()
        assert f"{relative}: added" in verify_campaign(place).differences
        (folder / "extra").unlink()
        (folder / "empty").mkdir()
        assert not verify_campaign(place).passed, folder
        (folder / "empty").rmdir()
        os.symlink(place / "programs", folder / "link")
        assert not verify_campaign(place).passed, folder
        (folder / "link").unlink()
    assert verify_campaign(place).passed


class TestHiddenChanges:
    """Changes by somebody who seals the evidence again."""

    def test_a_sample(self, copy: Path) -> None:
        path = copy / "runs/0002-candidate/rank-00001.arrows"
        samples, _ = read_samples(path)
        path.chmod(0o644)
        path.unlink()
        with SampleWriter(path, 1) as writer:
            for row in zip(*(samples[c].tolist() for c in samples), strict=True):
                iteration, event, ready, start, finish, overlap = row
                writer.add(iteration, event, ready, start, finish + (50_000 if event == 1 else 0), overlap)
        reseal(copy)
        first = verify_campaign(copy).first_difference
        assert first is not None
        assert first.startswith("decision.json: decision.runs[1].metrics.")

    def test_the_decision(self, copy: Path) -> None:
        document = json.loads((copy / "decision.json").read_text())
        document["criteria"][2]["value"] += 0.001
        _change(copy / "decision.json", json.dumps(document).encode())
        reseal(copy)
        check = verify_campaign(copy)
        assert check.first_difference is not None
        assert check.first_difference.startswith("decision.json: decision.criteria[2].value: stated ")

    def test_the_boundary(self, copy: Path) -> None:
        path = copy / "preregistration.toml"
        _change(path, path.read_bytes().replace(b"at_least = 100.0", b"at_least = 100.5"))
        reseal(copy)
        assert verify_campaign(copy).first_difference == "manifest.json: preregistration.toml does not have the SHA-256 that is frozen"

    def test_the_order(self, copy: Path) -> None:
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["order"][0], manifest["order"][1] = manifest["order"][1], manifest["order"][0]
        _change(copy / "manifest.json", json.dumps(manifest).encode())
        reseal(copy)
        assert "manifest.json: order: is not the preregistered one" in verify_campaign(copy).differences

    def test_the_identity(self, copy: Path) -> None:
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["torch"] = "9.9"
        _change(copy / "manifest.json", json.dumps(manifest).encode())
        reseal(copy)
        differences = verify_campaign(copy).differences
        assert "manifest.json: configurations.control.identity: does not come out again" in differences
        assert any(d.startswith("decision.json: decision.campaign: ") for d in differences)

    def test_a_setting_of_a_run(self, copy: Path) -> None:
        path = copy / "runs/0001-control/run.json"
        spec = json.loads(path.read_text())
        spec["barrier"] = False
        _change(path, json.dumps(spec).encode())
        reseal(copy)
        assert verify_campaign(copy).first_difference == "runs/0001-control/run.json: is not what was planned"

    def test_a_run_that_is_taken_away(self, copy: Path) -> None:
        last = sorted((copy / "runs").iterdir())[-1]
        shutil.rmtree(last)
        reseal(copy)
        check = verify_campaign(copy)
        assert check.decision == "inconclusive"
        assert check.first_difference is not None and "decision" in check.first_difference

    def test_a_run_that_is_added(self, copy: Path) -> None:
        shutil.copytree(copy / "runs/0001-control", copy / "runs/0013-control")
        reseal(copy)
        assert verify_campaign(copy).first_difference == "runs/0013-control: is no run of the plan, or comes after one that is missing"

    def test_another_program(self, copy: Path) -> None:
        shutil.copyfile(copy / "programs/control.json", copy / "copied")
        _change(copy / "programs/candidate.json", (copy / "copied").read_bytes())
        (copy / "copied").unlink()
        reseal(copy)
        differences = verify_campaign(copy).differences
        assert "manifest.json: programs/candidate.json does not have the SHA-256 that is frozen" in differences
        assert any("is not the program 'candidate'" in d for d in differences)


def test_a_directory_that_is_no_campaign(tmp_path: Path) -> None:
    check = verify_campaign(tmp_path)
    assert not check.passed
    assert any("manifest.json" in d for d in check.differences)
