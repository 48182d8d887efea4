"""A full disk and a folder that cannot be written: clear words, exit code 3, nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.canonical import atomic_file
from commcanary_lab.errors import InputError
from commcanary_lab.workspace import Workspace
from tests.robustness.samples import ROOT, sample

SAMPLE = ROOT / "data" / "samples" / "adversarial.json"
SHARDS = ROOT / "data" / "samples" / "gloo4_shards"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode(errors='replace').strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def closed(small: Path) -> Path:
    """A file system that cannot be written, whoever asks."""
    (small / "before.txt").write_text("1")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    return small


def fill(place: Path) -> None:
    """Leave no space."""
    handle = os.open(place / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(handle, b"x" * 4096):
            pass
    except OSError:
        pass
    finally:
        os.close(handle)


#: Verbs that write, and their outputs.
WRITERS: dict[str, list[Any]] = {
    "open json": ["open", SAMPLE, "-o", "out.json"],
    "open parquet": ["open", SAMPLE, "-o", "out.parquet"],
    "merge": ["open", SHARDS, "-o", "out.json"],
    "compile": ["compile", SAMPLE, "--records", "3", "-o", "out.json"],
    "simulate": ["simulate", SAMPLE, "--samples", "-o", "out.json"],
    "ledger": ["search", SAMPLE, "--records", "2:3", "--ledger", "out.ledger.json", "-o", "out.json"],
    "reduce": ["reduce", SAMPLE, "-o", "out.json"],
    "traffic csv": ["traffic", SAMPLE, "-o", "out.csv"],
    "traffic npz": ["traffic", SAMPLE, "-o", "out.npz"],
    "traffic parquet": ["traffic", SAMPLE, "-o", "out.parquet"],
    "layout": ["layout", "infer", SHARDS, "-o", "out.toml"],
    "export chakra": ["export", "chakra", SAMPLE, "-o", "out"],
    "export csv": ["export", "events-csv", SAMPLE, "-o", "out.csv"],
    "export perfetto": ["export", "perfetto", SAMPLE, "-o", "out.json.gz"],
    "campaign new": ["campaign", "new", "out.toml"],
}


def arguments(verb: str, place: Path) -> list[Any]:
    return [place / a if isinstance(a, str) and a.startswith("out") else a for a in WRITERS[verb]]


@pytest.mark.parametrize("verb", WRITERS)
def test_full_disk(verb: str, small: Path, cli: Any) -> None:
    fill(small)
    code, out, err = cli(*arguments(verb, small))
    assert code == 3, (code, out, err)
    assert "No space left on device" in err
    assert str(small) in err
    assert "free space" in err
    # what takes no space, such as an empty folder, may be there; nothing under a final name that holds half of anything
    files = [p for p in small.rglob("*") if p.is_file() and p.name != "filler"]
    assert files == [], files


@pytest.mark.parametrize("verb", WRITERS)
def test_folder_that_cannot_be_written(verb: str, closed: Path, cli: Any) -> None:
    code, out, err = cli(*arguments(verb, closed))
    assert code == 3, (code, out, err)
    assert "Read-only file system" in err
    assert str(closed) in err
    assert sorted(p.name for p in closed.iterdir()) == ["before.txt"]


def test_what_was_there_stays_when_the_disk_is_full(small: Path, cli: Any) -> None:
    target = small / "out.json"
    assert cli("compile", SAMPLE, "--records", 3, "-o", target)[0] == 0
    before = target.read_bytes()
    fill(small)
    code, _, err = cli("compile", SAMPLE, "--lossless", "-o", target)
    assert code == 3
    assert "No space left on device" in err
    assert target.read_bytes() == before
    (small / "filler").unlink()
    assert cli("compile", SAMPLE, "--records", 4, "-o", target)[0] == 0
    assert sorted(p.name for p in small.iterdir()) == ["out.json"]


def test_upload_into_a_full_workspace(small: Path) -> None:
    workspace = Workspace(small)
    workspace.add("first.json", sample("trace_v1"))
    workspace.list()
    fill(small)
    with pytest.raises(InputError, match="No space left on device"):
        workspace.add("second.json", SAMPLE.read_bytes())
    assert [a.name for a in Workspace(small).list() if a.name != "filler"] == ["first.json"]
    assert [p.name for p in small.iterdir() if p.name.startswith(".upload")] == []
    assert len(workspace.trace("first.json")) == 4


def test_workspace_that_cannot_be_written_is_still_shown(small: Path) -> None:
    (small / "first.json").write_bytes(sample("trace_v1"))
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    workspace = Workspace(small)
    assert [a.name for a in workspace.list()] == ["first.json"]
    with pytest.raises(InputError, match="Read-only file system"):
        workspace.add("second.json", SAMPLE.read_bytes())


def test_recorder_on_a_full_disk_does_not_stop_the_job(small: Path) -> None:
    fill(small)
    command = [
        sys.executable,
        "-m",
        "commcanary_lab.cli",
        "capture",
        "-o",
        str(small / "shards"),
        "--",
        sys.executable,
        "-c",
        "print('job ran')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr
    assert "job ran" in done.stdout
    assert done.returncode in (3, 4)  # nothing could be recorded, and the command says so
    assert done.stderr.strip()


_AS_NOBODY = """
import os, sys
from commcanary_lab.importers.open import open_trace
from commcanary_lab.canary.read import read_canary
from commcanary_lab.layout.file import read_layout
if os.geteuid() == 0:
    os.seteuid(65534)
for read, path in zip((open_trace, read_canary, read_layout), sys.argv[1:], strict=True):
    try:
        read(path)
    except ValueError as e:
        print(e)
    else:
        print("read", path)
"""


def test_files_without_permission_say_so() -> None:
    """Root may read everything, so somebody else reads."""
    with tempfile.TemporaryDirectory(prefix="robustness-") as folder:
        os.chmod(folder, 0o755)
        paths = []
        for name in ("trace_v1", "canary_lossless", "layout"):
            paths.append(Path(folder) / name)
            paths[-1].write_bytes(sample(name))
            paths[-1].chmod(0)
        done = subprocess.run([sys.executable, "-c", _AS_NOBODY, *map(str, paths)], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), done
    for line, path in zip(lines, paths, strict=True):
        assert line.startswith(f"{path}: cannot be read: Permission denied; check")


def half_written(path: Path) -> None:
    with atomic_file(path) as f:
        f.write(b"half")
        raise RuntimeError("in the middle")


def test_writers_leave_no_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="in the middle"):
        half_written(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
