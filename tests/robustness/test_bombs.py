"""Small files that would become large: refused in bounded memory, measured in a process of its own."""

from __future__ import annotations

import gzip
import io
import lzma
import multiprocessing
import os
import resource
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commcanary_lab.errors import LabError
from tests.robustness.readers import READERS, Reader
from tests.robustness.samples import sample

MIB = 1 << 20
#: How much a refusal may take beyond what the process had before.
MOST_BYTES = 1300 * MIB

BY_NAME = {r.name: r for r in READERS}


def _gzip(before: bytes, size: int) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0) as f:
        f.write(before)
        for _ in range(size // (16 * MIB)):
            f.write(b" " * (16 * MIB))
    return out.getvalue()


def _npz(names: tuple[str, ...], size: int) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<i8", "fortran_order": False, "shape": (size // 8,)})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name in names:
            with z.open(f"{name}.npy", "w", force_zip64=True) as f:
                f.write(head.getvalue())
                for _ in range(size // (16 * MIB)):
                    f.write(b"\0" * (16 * MIB))
    return out.getvalue()


def _archive(size: int) -> bytes:
    """A tar whose member claims to be larger than evidence is."""
    head = tarfile.TarInfo("fidelity/large")
    head.size = size
    packer = lzma.LZMACompressor(preset=0)
    parts = [packer.compress(head.tobuf())]
    parts += [packer.compress(b"\0" * (16 * MIB)), packer.flush()]
    return b"".join(parts)


def _bomb(kind: str) -> tuple[str, bytes]:
    """Name of the reader, and the file."""
    name, _, what = kind.partition(": ")
    if what == "gzip":
        return name, _gzip(sample(name)[:-2], 320 * MIB)
    if what == "gzip in members":
        return name, _gzip(sample(name)[:-2], 64 * MIB) * 20
    if what == "arrays":
        return name, _npz(("arrival_ns",), 1088 * MIB)
    return name, _archive(512 * MIB)


BOMBS = (
    "trace_v1: gzip",
    "kineto: gzip in members",
    "inspector: gzip in members",
    "nccl_log: gzip in members",
    "flight_recorder: gzip in members",
    "chakra_json: gzip in members",
    "mpi_text: gzip in members",
    pytest.param("sweep_raw: arrays", marks=pytest.mark.slow),  # making it takes longer than refusing it
    "bundle: archive",
)


def _measured(read: Callable[[Path], Any], path: Path, answer: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read(path)
        said = "read"
    except LabError as e:
        said = f"{type(e).__name__}: {e}"
    except MemoryError:
        said = "out of memory"
    answer.send((said, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024))


def _refusal(reader: Reader, path: Path) -> tuple[str, int]:
    """What reading a file ends with, and the bytes that it took."""
    here, there = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(target=_measured, args=(reader.read, path, there))
    child.start()
    assert here.poll(60), "not done after a minute"
    said, used = here.recv()
    child.join()
    return said, used


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs(kind: str, tmp_path: Path) -> None:
    name, data = _bomb(kind)
    assert len(data) < 24 * MIB
    reader: Reader = BY_NAME[name]
    path = tmp_path / f"{name}{reader.suffix}"
    path.write_bytes(data)
    said, used = _refusal(reader, path)
    assert said.startswith(("LimitError", "FormatError")), said
    assert str(path) in said
    assert used < MOST_BYTES, f"{used / MIB:.0f} MiB"


def test_an_expansion_that_is_allowed_is_read(tmp_path: Path) -> None:
    """Blank space inside a small file, far below the bound."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(sample("trace_v1") + b" " * (8 * MIB)))
    assert os.path.getsize(path) < 64 << 10
    assert len(BY_NAME["trace_v1"].read(path)) == 4


def test_a_million_groups(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    with path.open("w") as f:
        f.write('{"format": "commcanary.trace.v1", "events": [')
        f.write(",".join(f'{{"op":"all_reduce","bytes":8,"ranks":[{i % 999},999],"group":"g{i}","gap_us":1}}' for i in range(1_000_000)))
        f.write("]}")
    said, used = _refusal(BY_NAME["trace_v1"], path)
    assert said.startswith("LimitError"), said
    assert str(path) in said
    assert "COMMCANARY_LAB_MAX_GROUPS" in said
    assert used < MOST_BYTES, f"{used / MIB:.0f} MiB"
