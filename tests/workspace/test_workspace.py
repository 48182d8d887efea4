"""The workspace folder: listing, opening, adding."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.errors import FormatError, InputError, LabError, LimitError, UsageError
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.workspace import INDEX_FILE, ResultCache, Workspace
from commcanary_lab.workspace.upload import numbered, safe_name

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def v1(events: int = 2, **more: object) -> bytes:
    """A small valid trace."""
    rows = [{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1.0 + i} for i in range(events)]
    return json.dumps({"format": "commcanary.trace.v1", "events": rows, **more}).encode()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w")


def contents(w: Workspace) -> set[str]:
    """Everything but the index."""
    return {name for name in os.listdir(w.path) if not name.startswith(INDEX_FILE)}


def test_kinds_are_recognised_by_content(workspace: Workspace) -> None:
    trace = read_json(SAMPLES / "adversarial.json")
    (workspace.path / "a.txt").write_bytes(v1())
    (workspace.path / "b.bin").write_bytes(gzip.compress(v1()))
    (workspace.path / "c.json").write_bytes(compile_trace(trace).canonical)
    (workspace.path / "d.json").write_bytes(compile_trace(read_json(SAMPLES / "gloo4.json"), records=2).canonical)
    (workspace.path / "e.json").write_bytes(b'{"schemaVersion": 1, "traceEvents": []}')
    (workspace.path / "f.json").write_bytes(b'{"format": "something.else"}')
    (workspace.path / "g.csv").write_bytes(b"a,b\n")
    (workspace.path / "h.json").write_bytes(b"")
    (workspace.path / "folder").mkdir()
    shutil.copytree(SAMPLES / "gloo4_shards", workspace.path / "shards")
    kinds = {a.name: a.kind for a in workspace.list()}
    assert kinds == {"a.txt": "trace", "b.bin": "trace", "c.json": "canary", "d.json": "canary", "e.json": "trace", "f.json": "other",
                     "g.csv": "other", "h.json": "other", "folder": "other", "shards": "trace"}  # fmt: skip
    assert {workspace.get(n).summary for n in ("c.json", "d.json")} == {"lossless canary", "bounded canary"}
    assert [a.name for a in workspace.list("canary")] == ["c.json", "d.json"]
    assert len(workspace.trace("shards")) == len(read_json(SAMPLES / "gloo4.json"))
    assert workspace.canary("c.json").event_count == 100


def test_a_trace_that_mentions_a_canary_format_stays_a_trace(workspace: Workspace) -> None:
    (workspace.path / "t.json").write_bytes(v1(workload={"format": "commcanary_lab.canary.v1"}))
    assert workspace.get("t.json").kind == "trace"


def test_the_cache_follows_the_file(workspace: Workspace) -> None:
    path = workspace.path / "t.json"
    path.write_bytes(v1(2))
    first = workspace.trace("t.json")
    assert workspace.trace("t.json") is first
    assert workspace.derived("t.json", "n", lambda: len(first)) == 2
    path.write_bytes(v1(3))
    assert len(workspace.trace("t.json")) == 3
    assert workspace.derived("t.json", "n", lambda: len(workspace.trace("t.json"))) == 3


def test_the_cache_is_bounded_and_does_not_keep_errors() -> None:
    cache = ResultCache(max_bytes=100_000)
    for i in range(30):
        cache.get(i, lambda: np.zeros(1000))
    assert cache.used_bytes <= 100_000
    kept = cache.keys()
    assert 29 in kept
    assert 0 not in kept
    assert cache.get("large", lambda: np.zeros(100_000)).size == 100_000
    assert cache.keys()[-1] != "large"
    with pytest.raises(InputError):
        cache.get("bad", _fail)
    assert cache.get("bad", lambda: 5) == 5


def _fail() -> int:
    raise InputError("no")


def test_upload_is_validated_and_visible(workspace: Workspace) -> None:
    artifact = workspace.add("new.json", v1())
    assert (artifact.name, artifact.kind) == ("new.json", "trace")
    assert contents(workspace) == {"new.json"}
    assert workspace.add("new.json", v1()) == artifact  # the same content again is no conflict


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("bad.json", b'{"format": "commcanary.trace.v1", "events": [{"op": "all_reduce", "bytes": -4, "ranks": 2}]}', LabError),
        ("bad.json", b"{", FormatError),
        ("bad.json", b"", FormatError),
        ("bad.json", b'{"format": "commcanary_lab.canary.v1"}', LabError),
        ("notes.txt", b"hello", FormatError),
        ("../up.json", v1(), UsageError),
        ("/etc/up.json", v1(), UsageError),
        ("a\\up.json", v1(), UsageError),
        (".hidden.json", v1(), UsageError),
        ("..", v1(), UsageError),
        ("", v1(), UsageError),
        ("con.json", v1(), UsageError),
        ("a\u202ejson", v1(), UsageError),
        ("a\nb.json", v1(), UsageError),
        ("<img src=x>.json", v1(), UsageError),
        ("x" * 200 + ".json", v1(), UsageError),
    ],
)
def test_a_refused_upload_leaves_nothing(workspace: Workspace, name: str, data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        workspace.add(name, data)
    assert contents(workspace) == set()
    assert ".upload-" not in str(caught.value)
    assert str(workspace.path) not in str(caught.value)


def test_a_refused_upload_names_the_file_and_the_place(workspace: Workspace) -> None:
    with pytest.raises(InputError, match=r"^bad\.json: event 0: bytes"):
        workspace.add(
            "bad.json", b'{"format": "commcanary.trace.v1", "events": [{"op": "all_reduce", "bytes": -4, "ranks": 2, "gap_us": 1}]}'
        )


def test_nothing_is_overwritten(workspace: Workspace) -> None:
    workspace.add("t.json", v1(2))
    with pytest.raises(UsageError, match="exists with other content"):
        workspace.add("t.json", v1(3))
    assert len(workspace.trace("t.json")) == 2
    assert workspace.add("t.json", v1(3), rename=True).name == "t-2.json"
    assert contents(workspace) == {"t.json", "t-2.json"}


def test_size_limit(workspace: Workspace) -> None:
    with pytest.raises(LimitError, match="copy the file into the workspace folder"):
        workspace.add("t.json", v1(), limit_bytes=10)
    assert contents(workspace) == set()


def test_links_out_of_the_folder_are_no_artifacts(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(v1())
    (workspace.path / "link.json").symlink_to(tmp_path / "secret.json")
    (workspace.path / "broken.json").symlink_to(tmp_path / "absent.json")
    assert workspace.list() == []
    for name in ("link.json", "../secret.json", "/etc/passwd", "absent.json", ""):
        with pytest.raises(UsageError, match="no file named"):
            workspace.trace(name)


def test_wrong_kind(workspace: Workspace) -> None:
    workspace.add("t.json", v1())
    with pytest.raises(UsageError, match="is no canary"):
        workspace.canary("t.json")


def test_names() -> None:
    assert safe_name(" e\u0301tude.json ") == "étude.json"
    assert numbered("a", 3) == "a-3"
