"""What every importer has to stand: damaged files end in a typed error or in rows with reasons, in bounded time and memory."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from commcanary_lab.errors import LabError
from commcanary_lab.trace.columns import Column
from commcanary_lab.trace.model import Trace

SECONDS = 10.0
BYTES = 128 << 20

Reader = Callable[[Sequence[Path]], Trace]


def attempt(read: Reader, path: Path, data: bytes) -> Trace | LabError:
    """Write the bytes, read them, and return what came of it; anything but a trace or a typed error is raised, and so is excess."""
    path.write_bytes(data)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        out: Trace | LabError = read([path])
    except LabError as e:
        out = e
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert time.perf_counter() - started < SECONDS
    assert peak < BYTES
    return out


def refused(read: Reader, path: Path, data: bytes) -> str:
    """The message with which a file is refused: typed, exit code 3, naming the file and what to do."""
    out = attempt(read, path, data)
    assert isinstance(out, LabError), f"opened: {out}"
    assert out.exit_code == 3
    assert all(p.file is not None and path.name in p.file and p.what and p.remedy for p in out.problems), out.problems
    assert "Traceback" not in str(out)
    return str(out)


def row_refused(read: Reader, path: Path, data: bytes, kept: int) -> str:
    """The reason for which one row is left out while `kept` others are read; the warning names the row."""
    out = attempt(read, path, data)
    assert isinstance(out, Trace), out
    assert len(out) == kept
    assert len(out.unsized) == 1
    assert out.coverage.read == out.coverage.used + sum(out.coverage.skipped.values())
    assert any(out.unsized[0].reason in w for w in out.warnings), out.warnings
    return out.unsized[0].reason


def byte_damage(data: bytes) -> dict[str, bytes]:
    """Kinds of damage that no text or message survives as a whole."""
    half = len(data) // 2
    packed = gzip.compress(data)
    return {
        "nothing": b"",
        "zeros": b"\0" * 64,
        "first byte only": data[:1],
        "first quarter": data[: len(data) // 4],
        "first half": data[:half],
        "all but the last byte": data[:-1],
        "second half": data[half:],
        "packed with zstd": b"\x28\xb5\x2f\xfd" + data,
        "packed with xz": b"\xfd7zXZ\x00" + data,
        "zip archive": b"PK\x03\x04" + data,
        "cut gzip": packed[: len(packed) // 2],
        "gzip header only": packed[:10],
        "gzip of nothing": gzip.compress(b""),
        "gzip with a wrong sum": packed[:-8] + b"\1\2\3\4" + packed[-4:],
        "something else": b"#!/bin/sh\nexit 0\n",
    }


def known(column: Column, event: int) -> int | None:
    """Value of a column at one event, None where it is unknown."""
    return int(column.values[event]) if column.mask[event] else None
