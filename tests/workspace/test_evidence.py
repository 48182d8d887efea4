"""Directories of evidence in a workspace: recognised, named, sized, and cheap to list."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import commcanary_lab as lab
from commcanary_lab.replay.evidence import seal
from commcanary_lab.replay.run import prepare
from commcanary_lab.replay.spec import RunState, write_document
from commcanary_lab.workspace import Workspace

pytest.importorskip("torch")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def prepared(workspace: Workspace, name: str) -> Path:
    """A real replay that has not run."""
    place = workspace.path / name
    prepare(lab.samples.gloo4(), place, ranks=2, backend="gloo")
    return place


def finish(place: Path, status: str = "done") -> None:
    write_document(place / "result.json", RunState(status=status, seconds=1.0))  # type: ignore[arg-type]
    seal(place)


def test_replays_are_artifacts_of_their_own(workspace: Workspace) -> None:
    first = prepared(workspace, "replays/one")
    prepared(workspace, "alone")
    (workspace.path / "replays" / ".jobs").mkdir()
    assert [(a.name, a.kind, a.summary) for a in workspace.list()] == [
        ("alone", "replay", "replay on 2 of 4 ranks, gloo: not finished"),
        ("replays/one", "replay", "replay on 2 of 4 ranks, gloo: not finished"),
    ]
    finish(first)
    found = workspace.get("replays/one")
    assert found.summary.endswith("gloo: done")
    assert found.size_bytes == sum(p.stat().st_size for p in first.iterdir())
    assert workspace.replay("replays/one").spec.ranks == 2


def test_a_running_replay_does_not_change_the_listing(workspace: Workspace) -> None:
    place = prepared(workspace, "replays/one")
    before = workspace.list()
    (place / "progress.json").write_text("{}")
    (place / "log.txt").write_text("a line\n")
    assert workspace.list() == before
    finish(place, "cancelled")
    assert workspace.get("replays/one").summary.endswith("cancelled")


def test_a_changed_file_is_read_anew(workspace: Workspace) -> None:
    place = prepared(workspace, "replays/one")
    finish(place)
    first = workspace.replay("replays/one")
    assert workspace.replay("replays/one") is first
    assert first.verify() == []
    (place / "extra").write_text("x")
    assert workspace.replay("replays/one") is not first
    assert workspace.replay("replays/one").verify() == ["extra: added"]


def test_campaigns_say_their_decision(workspace: Workspace) -> None:
    place = workspace.path / "campaigns" / "links"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(json.dumps({"format": "commcanary.manifest.v1", "name": "slow links"}))
    assert [(a.name, a.kind, a.summary) for a in workspace.list()] == [("campaigns/links", "campaign", "campaign slow links: not decided")]
    (place / "decision.json").write_text(json.dumps({"decision": "inconclusive"}))
    assert workspace.get("campaigns/links").summary == "campaign slow links: inconclusive"


def test_other_files_of_these_names_make_no_evidence(workspace: Workspace) -> None:
    place = workspace.path / "profile"
    place.mkdir()
    (place / "manifest.json").write_text('{"format": "somebody.else"}')
    assert workspace.get("profile").kind == "other"
    lab.write(lab.samples.gloo4(), place / "rank0.json")
    assert workspace.get("profile").kind == "trace"


@pytest.mark.parametrize("name", ["replays/../up", "replays/.jobs", "other/one", "replays/", "replays/one/run.json", "../replays/one"])
def test_no_other_names_lead_into_folders(workspace: Workspace, name: str) -> None:
    prepared(workspace, "replays/one")
    os.makedirs(workspace.path / "other" / "one", exist_ok=True)
    with pytest.raises(lab.errors.UsageError):
        workspace.get(name)
