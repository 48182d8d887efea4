"""Uploads of several files: one trace from the files of all ranks, refusals with a reason, nothing left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from commcanary_lab.errors import InputError, LimitError, UsageError
from commcanary_lab.workspace import INDEX_FILE, Outcome, Staging, Workspace
from commcanary_lab.workspace import staging as staging_module

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
SOURCES = {"kineto": 200, "inspector": 200, "mpi": 8}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w")


def contents(w: Workspace) -> set[str]:
    return {name for name in os.listdir(w.path) if not name.startswith(INDEX_FILE)}


def upload(w: Workspace, files: dict[str, bytes], **options: bool) -> list[Outcome]:
    staging = w.stage()
    for name, data in files.items():
        staging.begin(name)
        for start in range(0, len(data), 5000):
            staging.write(data[start : start + 5000])
    return staging.commit(**options)


@pytest.mark.parametrize("source", SOURCES)
def test_the_files_of_all_ranks_become_one_trace(workspace: Workspace, source: str) -> None:
    files = {p.name: p.read_bytes() for p in (SAMPLES / "fabric_job" / source).iterdir()}
    (outcome,) = upload(workspace, files)
    assert outcome.kind == "trace"
    assert outcome.note.startswith("8 files, one per rank, became one trace: the folder ")
    assert outcome.trace is not None
    assert outcome.trace.coverage.read == SOURCES[source]
    assert contents(workspace) == {outcome.name}
    assert {p.name: p.read_bytes() for p in (workspace.path / outcome.name).iterdir()} == files
    assert len(workspace.trace(outcome.name)) == len(outcome.trace)
    again = upload(workspace, files)[0]
    assert again.name == f"{outcome.name}-2"  # never into the folder of another upload


def test_separately_when_asked(workspace: Workspace) -> None:
    files = {p.name: p.read_bytes() for p in (SAMPLES / "gloo4_shards").iterdir()}
    outcomes = upload(workspace, files, together=False)
    assert sorted(o.name for o in outcomes) == sorted(files) == sorted(contents(workspace))


def test_what_does_not_merge_is_added_one_by_one_and_says_why(workspace: Workspace) -> None:
    one = (SAMPLES / "gloo4_shards" / "rank-0.jsonl").read_bytes()
    outcomes = upload(workspace, {"a.jsonl": one, "b.jsonl": one})
    notes = [o for o in outcomes if o.note]
    assert len(notes) == 1
    assert "look like ranks of one job and do not make one trace" in notes[0].note
    assert "a.jsonl" in notes[0].note
    assert str(workspace.path) not in notes[0].note
    assert {o.name for o in outcomes if o.name} == {"a.jsonl", "b.jsonl"} == contents(workspace)


def test_a_set_beside_other_files(workspace: Workspace) -> None:
    files = {p.name: p.read_bytes() for p in (SAMPLES / "gloo4_shards").iterdir()}
    files |= {"adversarial.json": (SAMPLES / "adversarial.json").read_bytes(), "noise.bin": b"\0" * 9000}
    outcomes = upload(workspace, files)
    assert {o.name for o in outcomes if o.name} == {"ranks-4", "adversarial.json"} == contents(workspace)
    (refused,) = [o for o in outcomes if o.problem]
    assert refused.files == ("noise.bin",)
    assert refused.problem.startswith("FormatError: noise.bin: ")


def test_limits_and_names(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = Staging(workspace.path, limit_bytes=100)
    staging.begin("a.json")
    staging.write(b"x" * 100)
    with pytest.raises(LimitError, match=r"a\.json: 101 B exceed the upload limit of 100 B"):
        staging.write(b"x")
    assert os.listdir(staging.place) == []  # what was too large is gone at once
    for name in ("../up.json", ".hidden", "/abs"):
        with pytest.raises(UsageError, match="rename the file"):
            staging.begin(name)
    staging.begin("b.json")
    with pytest.raises(UsageError, match="occurs twice"):
        staging.begin("B.json")
    monkeypatch.setattr(staging_module, "MAX_FILES", 1)
    with pytest.raises(LimitError, match="more than 1 files"):
        staging.begin("c.json")
    staging.abandon()
    assert contents(workspace) == set()


def test_an_abandoned_upload_leaves_nothing(workspace: Workspace) -> None:
    staging = workspace.stage()
    staging.begin("a.json")
    staging.write(b"{")
    assert [a.name for a in workspace.list()] == []
    staging.abandon()
    assert contents(workspace) == set()


def test_what_a_killed_upload_left_is_swept_after_an_hour(workspace: Workspace) -> None:
    staging = workspace.stage()
    staging.begin("a.json")
    old = workspace.path / ".upload-old"
    shutil.copytree(staging.place, old)
    for path in (old / "a.json", old):
        os.utime(path, (0, 0))
    Workspace(workspace.path)
    assert contents(workspace) == {staging.place.name}
    staging.abandon()


def test_a_full_or_missing_folder_is_an_error_with_a_remedy(workspace: Workspace) -> None:
    staging = workspace.stage()
    shutil.rmtree(staging.place)
    with pytest.raises(InputError, match="cannot be written"):
        staging.begin("a.json")
    shutil.rmtree(workspace.path)
    with pytest.raises(InputError, match="make the workspace writable"):
        workspace.stage()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_is_overwritten(workspace: Workspace, kind: str) -> None:
    (workspace.path / "adversarial.json").write_bytes(b"mine") if kind == "file" else (workspace.path / "adversarial.json").mkdir()
    data = {"adversarial.json": (SAMPLES / "adversarial.json").read_bytes()}
    (outcome,) = upload(workspace, data)
    assert "exists with other content" in outcome.problem
    (outcome,) = upload(workspace, data, rename=True)
    assert outcome.name == "adversarial-2.json"
