"""The index: a cache that survives restarts, other processes, damage and kill -9, and whose loss loses nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commcanary_lab.workspace import INDEX_FILE, Workspace
from commcanary_lab.workspace import folder as folder_module

ROOT = Path(__file__).parents[2]


def v1(events: int = 2) -> bytes:
    rows = [{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1.0 + i} for i in range(events)]
    return json.dumps({"format": "commcanary.trace.v1", "events": rows}).encode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for i in range(5):
        (tmp_path / f"t{i}.json").write_bytes(v1(i + 1))
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "ranks").mkdir()
    for i in range(3):
        shutil.copy(ROOT / "data" / "samples" / "gloo4_shards" / f"rank-{i}.jsonl", tmp_path / "ranks")
    return tmp_path


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that the recogniser was called for."""
    names: list[str] = []
    real = folder_module.recognise

    def counting(path: Path) -> object:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(folder_module, "recognise", counting)
    return names


def test_a_restart_opens_nothing_again(place: Path, looked: list[str]) -> None:
    first = Workspace(place).list()
    assert sorted(looked) == sorted(a.name for a in first) == ["notes.txt", "ranks", "t0.json", "t1.json", "t2.json", "t3.json", "t4.json"]
    looked.clear()
    assert Workspace(place).list() == first
    assert looked == []
    (place / "t2.json").write_bytes(v1(9))
    (place / "ranks" / "rank-1.jsonl").write_bytes(b"")
    (place / "new.json").write_bytes(v1(3))
    (place / "t0.json").unlink()
    assert {a.name for a in Workspace(place).list()} == {"notes.txt", "ranks", "t1.json", "t2.json", "t3.json", "t4.json", "new.json"}
    assert sorted(looked) == ["new.json", "ranks", "t2.json"]


def test_a_file_replaced_by_one_of_the_same_size_and_date_is_looked_at_again(place: Path, looked: list[str]) -> None:
    Workspace(place).list()
    before = (place / "t1.json").stat()
    other = b"x" * before.st_size
    (place / "t1.json").write_bytes(other)
    os.utime(place / "t1.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    looked.clear()
    assert Workspace(place).get("t1.json").kind == "other"
    assert looked == ["t1.json"]


def test_a_deleted_index_loses_nothing(place: Path, looked: list[str]) -> None:
    w = Workspace(place)
    first = w.list()
    (place / INDEX_FILE).unlink()
    assert Workspace(place).list() == first
    assert w.list() == first  # the one that has the removed file open
    (place / "late.json").write_bytes(v1())
    assert w.get("late.json").kind == "trace"
    w.list()
    looked.clear()
    assert len(Workspace(place).list()) == len(first) + 1


def _truncated(path: Path) -> None:
    with path.open("r+b") as f:
        f.truncate(path.stat().st_size // 2)


def _overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for i in range(200, len(data), 7):
        data[i] ^= 0x5A
    path.write_bytes(bytes(data))


def _old(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE kinds RENAME COLUMN mark TO stamp")
    db.execute("PRAGMA user_version = 0")
    db.close()


def _wrong_columns(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TABLE kinds")
    db.execute("CREATE TABLE kinds (name INTEGER)")
    db.close()


def _foreign(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE customers (name TEXT)")
    db.execute("INSERT INTO customers VALUES ('x')")
    db.commit()
    db.close()


def _wrong_values(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("UPDATE kinds SET kind = 'virus', summary = x'ff00'")
    db.commit()
    db.close()


DAMAGE = {
    "empty": lambda p: p.write_bytes(b""),
    "garbage": lambda p: p.write_bytes(b"not a database" * 1000),
    "truncated": _truncated,
    "overwritten": _overwritten,
    "old": _old,
    "wrong columns": _wrong_columns,
    "foreign": _foreign,
    "wrong values": _wrong_values,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_or_foreign_index_is_built_anew(place: Path, looked: list[str], damage: object) -> None:
    first = Workspace(place).list()
    damage(place / INDEX_FILE)  # type: ignore[operator]
    w = Workspace(place)
    assert w.list() == first
    w.index.close()
    looked.clear()
    assert Workspace(place).list() == first
    assert looked == []  # it was built anew, and holds
    db = sqlite3.connect(place / INDEX_FILE)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_damage_while_it_is_open_is_no_error(place: Path) -> None:
    w = Workspace(place)
    first = w.list()
    (place / INDEX_FILE).write_bytes(b"garbage" * 5000)
    for i in range(80):  # more than one batch
        (place / f"more{i}.json").write_bytes(v1())
    assert len(w.list()) == len(first) + 80
    assert w.fact("t1.json", "x", lambda: b"value") == b"value"
    assert w.list() == w.list()


@pytest.mark.parametrize("other", ["link", "folder", "pipe"])
def test_what_is_no_file_is_left_alone(place: Path, tmp_path_factory: pytest.TempPathFactory, other: str) -> None:
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_bytes(b"precious")
    index = place / INDEX_FILE
    if other == "link":
        index.symlink_to(outside)
    elif other == "folder":
        index.mkdir()
    else:
        os.mkfifo(index)
    w = Workspace(place)
    assert len(w.list()) == 7
    assert not w.index.writable
    assert outside.read_bytes() == b"precious"
    assert index.is_symlink() or not index.is_file()


def test_a_read_only_folder_is_listed_from_memory_and_from_the_index_it_has(place: Path) -> None:
    """In a process without privileges: root may write anywhere."""
    program = (
        "import os, shutil, sys, tempfile\n"
        "from pathlib import Path\n"
        "from commcanary_lab.workspace import Workspace, folder\n"
        "looked = []; real = folder.recognise\n"
        "folder.recognise = lambda p: looked.append(p.name) or real(p)\n"
        "warm = Path(tempfile.mkdtemp(), 'w'); shutil.copytree(sys.argv[1], warm); Workspace(warm).list(); looked.clear()\n"
        "os.getuid() == 0 and os.setuid(65534)\n"
        "w = Workspace(Path(sys.argv[1])); w.list(); w.list()\n"
        "print(len(w.list()), len(looked), w.index.writable, w.fact('t1.json', 'x', lambda: b'v'))\n"
    )

    def run() -> str:
        parts = [sys.executable, "-c", program, str(place)]
        done = subprocess.run(parts, capture_output=True, text=True, cwd="/", timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)})
        if "Permission" in done.stderr and "commcanary_lab" not in done.stderr:
            pytest.skip(f"another user cannot start python here: {done.stderr[-200:]}")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for above in [place, *place.parents]:
        if above.stat().st_mode & 0o005 != 0o005 and above.is_relative_to(Path("/tmp")):
            above.chmod(above.stat().st_mode | 0o055)
    place.chmod(0o555)
    try:
        assert run() == "7 7 False b'v'"
        assert not (place / INDEX_FILE).exists()
        place.chmod(0o755)
        Workspace(place).list()
        place.chmod(0o555)
        assert run() == "7 0 False b'v'"
    finally:
        place.chmod(0o755)


def test_a_locked_index_makes_nobody_wait(place: Path) -> None:
    Workspace(place).list()
    db = sqlite3.connect(place / INDEX_FILE, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    w = Workspace(place)
    (place / "late.json").write_bytes(v1())
    assert len(w.list()) == 8
    assert len(w.list()) == 8
    assert time.monotonic() - began < 3
    db.execute("ROLLBACK")
    db.close()
    w.index._not_before = 0.0
    w.index.flush()
    (place / "later.json").write_bytes(v1())
    w.list()
    again = Workspace(place)
    assert {"late.json", "later.json"} <= set(again.index._kinds)


_WRITER = """
import sys
from pathlib import Path
from commcanary_lab.workspace import Workspace
place = Path(sys.argv[1])
print("ready", flush=True)
n = 0
while True:
    w = Workspace(place)
    for a in w.list():
        w.fact(a.name, f"fact {n % 3}", lambda: b"v" * 500)
    w.index.keep(f"gone{n}", "m", "trace", "s" * 200)
    w.index.close()
    n += 1
"""


@pytest.mark.parametrize("kills", [6])
def test_kill_9_at_any_time(place: Path, kills: int) -> None:
    """Two processes write all the time, and are killed; a third always finds an index that is whole, or builds one."""
    expected = [(a.name, a.kind, a.summary) for a in Workspace(place).list()]
    chance = random.Random(5)
    for _ in range(kills):
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(place)], stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.3))
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        w = Workspace(place)
        assert [(a.name, a.kind, a.summary) for a in w.list()] == expected
        assert w.fact("t1.json", "fact 0", lambda: b"v" * 500) == b"v" * 500
        w.index.close()
        db = sqlite3.connect(place / INDEX_FILE)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()


def test_two_processes_see_what_the_other_found(place: Path, looked: list[str]) -> None:
    a, b = Workspace(place), Workspace(place)
    a.list()
    assert len(looked) == 7
    b.list()
    assert len(looked) == 7  # b asked the file for what it had not known when it was opened
    assert a.fact("t1.json", "length", lambda: b"1") == b"1"
    assert b.known_fact("t1.json", "length") is None or b.known_fact("t1.json", "length") == b"1"
    a.index.flush()
    assert b.known_fact("t1.json", "length") == b"1"
    (place / "t1.json").write_bytes(v1(7))
    assert b.known_fact("t1.json", "length") is None
