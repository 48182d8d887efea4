"""The recorder's memory: nothing is lost or doubled between threads, and it stays bounded; a full disk tears one line at most."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from commcanary_lab.capture.journal import Journal, Row
from commcanary_lab.capture.rows import OpRow, PendingRow
from commcanary_lab.importers.shards import read_rank


def test_threads_lose_and_double_nothing() -> None:
    written: list[Row] = []
    journal = Journal(written.extend, max_rows=64)
    stop = threading.Event()

    def work() -> None:
        kept: list[OpRow] = []
        for i in range(3000):
            row = OpRow(next(journal.numbers), 0, "all_reduce", i)
            journal.begin(row)
            kept.append(row)
            if i % 7:  # some stay open for a while and are marked pending
                journal.finish(kept.pop())
            if len(kept) > 50:
                for late in kept:
                    journal.finish(late)
                kept.clear()
        for late in kept:
            journal.finish(late)

    def flush() -> None:
        while not stop.is_set():
            journal.flush()

    flusher = threading.Thread(target=flush)
    workers = [threading.Thread(target=work) for _ in range(4)]
    flusher.start()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    stop.set()
    flusher.join()
    journal.flush()
    done = [r.n for r in written if isinstance(r, OpRow)]
    assert sorted(done) == list(range(12_000))
    assert journal.operations == 12_000
    assert journal.unfinished == 0
    pending = [r.n for r in written if isinstance(r, PendingRow)]
    assert len(pending) == len(set(pending))


def test_operations_that_never_finish_do_not_fill_memory() -> None:
    written: list[Row] = []
    journal = Journal(written.extend, max_rows=64)
    for i in range(1000):
        journal.begin(OpRow(next(journal.numbers), 0, "send", i))
        assert journal.buffered <= 64
    journal.flush()
    assert journal.unfinished == len(written) == 1000
    assert journal.operations == 0


def test_a_problem_is_counted_and_bounded() -> None:
    journal = Journal(lambda rows: None, max_rows=1)
    for i in range(200):
        journal.problem(f"kind {i}")
        journal.problem("kind 0")
    assert journal.problems["kind 0"] == 201
    assert len(journal.problems) == 64


def test_a_full_disk_tears_the_last_line_only(tmp_path: Path) -> None:
    code = f"""
import resource
from commcanary_lab.capture.rows import EndRow, FORMAT, GroupRow, HeaderRow, OpRow
from commcanary_lab.capture.shard import ShardFile
shard = ShardFile({str(tmp_path)!r}, HeaderRow(FORMAT, 0, 1, "h", "b", "monotonic@h/b", 1, 0, 0, {{}}, 0))
shard.write([GroupRow(0, "g", [0], "0", "gloo")])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for n in range(50):
        shard.write([OpRow(n, 0, "all_reduce", n, seq=n, size_bytes=4, finish_ns=n + 5)])
    raise SystemExit("nothing failed")
except OSError:
    pass
shard.close(EndRow(50, 0, 0, None, {{}}, {{}}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    capture = read_rank(tmp_path / "rank-0.jsonl")
    assert [r.sequence for r in capture.records] == list(range(len(capture.records)))
    assert 3 < len(capture.records) < 20
    assert any("cut short" in w for w in capture.warnings)
