"""The trash: what is deleted can be put back, nothing is overwritten, nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from commcanary_lab.errors import LabError, UsageError
from commcanary_lab.workspace import Workspace

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def v1(events: int = 2) -> bytes:
    rows = [{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1.0 + i} for i in range(events)]
    return json.dumps({"format": "commcanary.trace.v1", "events": rows}).encode()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    w = Workspace(tmp_path / "w")
    w.add("t.json", v1())
    shutil.copytree(SAMPLES / "gloo4_shards", w.path / "shards")
    place = w.path / "campaigns" / "c"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text('{"format": "commcanary.manifest.v1", "name": "c"}')
    return w


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".comm")}


@pytest.mark.parametrize("name", ["t.json", "shards", "campaigns/c"])
def test_delete_and_restore(workspace: Workspace, name: str) -> None:
    before, artifact = files(workspace.path), workspace.get(name)
    gone = workspace.trash(name)
    assert (gone.name, gone.kind, gone.size_bytes) == (name, artifact.kind, artifact.size_bytes)
    assert name not in [a.name for a in workspace.list()]
    assert [t.entry for t in workspace.trashed()] == [gone.entry]
    assert gone.deleted.startswith("20") and gone.deleted.endswith("Z")
    assert workspace.restore(gone.entry).kind == artifact.kind
    assert files(workspace.path) == before
    assert workspace.trashed() == ()


def test_restore_never_overwrites(workspace: Workspace) -> None:
    gone = [workspace.trash("t.json"), workspace.trash("shards")]
    workspace.add("t.json", v1(5))
    (workspace.path / "shards").write_bytes(v1(6))
    for t in gone:
        with pytest.raises(UsageError, match="nothing is overwritten"):
            workspace.restore(t.entry)
    assert len(workspace.trace("t.json")) == 5
    assert len(workspace.trace("shards")) == 6
    assert {t.entry for t in workspace.trashed()} == {t.entry for t in gone}
    workspace.trash("shards")
    assert workspace.restore(gone[1].entry).name == "shards"


def test_the_same_name_can_be_deleted_twice(workspace: Workspace) -> None:
    first = workspace.trash("t.json")
    workspace.add("t.json", v1(5))
    second = workspace.trash("t.json")
    assert workspace.restore(second.entry).name == "t.json"
    assert len(workspace.trace("t.json")) == 5
    workspace.purge(first.entry)
    assert workspace.trashed() == ()
    with pytest.raises(UsageError, match="has no entry"):
        workspace.restore(first.entry)


@pytest.mark.parametrize(
    "name",
    ["../precious.json", "/etc/passwd", "/tmp", "//tmp", "link.json", "folder-link", ".trash", ".", "..", "", "campaigns",
     "campaigns/../../precious.json", "campaigns/..", "t.json/..", "a\0b", "linked/precious.json", ".commcanary-index.sqlite3"],
)  # fmt: skip
def test_nothing_outside_is_touched(workspace: Workspace, name: str) -> None:
    outside = workspace.path.parent
    (outside / "precious.json").write_bytes(v1(9))
    (workspace.path / "link.json").symlink_to(outside / "precious.json")
    (workspace.path / "folder-link").symlink_to(outside)
    before = files(outside)
    with pytest.raises(UsageError, match="no file named"):
        workspace.trash(name)
    assert files(outside) == before


def test_a_container_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "c"
    outside.mkdir(parents=True)
    (outside / "manifest.json").write_text('{"format": "commcanary.manifest.v1", "name": "c"}')
    w = Workspace(tmp_path / "w")
    (w.path / "campaigns").symlink_to(outside.parent)
    assert [a for a in w.list() if a.kind != "other"] == []
    with pytest.raises(UsageError):
        w.trash("campaigns/c")
    assert (outside / "manifest.json").exists()


def test_a_link_inside_is_deleted_as_a_link(workspace: Workspace) -> None:
    (workspace.path / "alias.json").symlink_to(workspace.path / "t.json")
    gone = workspace.trash("alias.json")
    assert (workspace.path / "t.json").exists()
    workspace.restore(gone.entry)
    assert (workspace.path / "alias.json").is_symlink()


def forge(workspace: Workspace, **stated: object) -> str:
    entry = "20200101T000000Z-0123abcd"
    place = workspace.path / ".trash" / entry
    (place / "content").mkdir(parents=True)
    name = str(stated.get("name", "x.json")).rpartition("/")[2]
    if name and "\0" not in name and name not in (".", ".."):
        (place / "content" / name).write_bytes(v1())
    document = {"name": "x.json", "kind": "trace", "size_bytes": 1, "summary": "", "deleted": "then", **stated}
    (place / "entry.json").write_bytes(msgspec.json.encode(document))
    return entry


@pytest.mark.parametrize(
    "name",
    [
        "../up.json",
        "/up.json",
        "//up.json",
        "/replays/up.json",
        "a/b.json",
        "replays/../../up.json",
        ".hidden.json",
        "..",
        "",
        "a\\b.json",
        "a\0b",
    ],
)
def test_forged_entries_cannot_write_elsewhere(workspace: Workspace, name: str) -> None:
    entry = forge(workspace, name=name)
    before = files(workspace.path.parent)
    assert workspace.trashed() == ()
    with pytest.raises(UsageError, match="has no entry"):
        workspace.restore(entry)
    assert files(workspace.path.parent) == before


@pytest.mark.parametrize("entry", ["../w", "..", ".", "", "20200101T000000Z-0123abcd/../..", "x"])
def test_entries_are_no_paths(workspace: Workspace, entry: str) -> None:
    for action in (workspace.restore, workspace.purge):
        with pytest.raises(UsageError, match="has no entry"):
            action(entry)
    assert (workspace.path / "t.json").exists()


def test_a_trash_that_is_a_link_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (workspace.path / ".trash").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match="is a link"):
        workspace.trash("t.json")
    assert (workspace.path / "t.json").exists()
    assert workspace.trashed() == ()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_what_is_not_complete_counts_for_nothing(workspace: Workspace) -> None:
    """A process killed between its steps leaves an entry without content, or a restored file whose entry is still there."""
    empty = workspace.path / ".trash" / "20200101T000000Z-00000000" / "content"
    empty.mkdir(parents=True)
    (empty.parent / "entry.json").write_text('{"name": "x", "kind": "trace", "size_bytes": 1, "summary": "", "deleted": ""}')
    (workspace.path / ".trash" / "20200101T000000Z-00000001").mkdir()
    (workspace.path / ".trash" / "notes").write_text("")
    assert workspace.trashed() == ()
    gone = workspace.trash("t.json")
    os.link(workspace.path / ".trash" / gone.entry / "content" / "t.json", workspace.path / "t.json")
    assert workspace.restore(gone.entry).name == "t.json"
    assert workspace.trashed() == ()


def test_the_container_is_made_again(workspace: Workspace) -> None:
    gone = workspace.trash("campaigns/c")
    (workspace.path / "campaigns").rmdir()
    assert workspace.restore(gone.entry).name == "campaigns/c"
