"""Raw samples on disk: whole, cut short, and not samples at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.replay.evidence import new_directory, seal, verify_seal
from commcanary_lab.replay.sample_file import COLUMNS, SampleWriter, read_samples, sample_path


def _write(path: Path, n: int, *, close: bool = True) -> None:
    writer = SampleWriter(path, 3)
    for i in range(n):
        writer.add(i // 100, i % 100, i, i + 1, i + 2, 0)
    if close:
        writer.close()
    else:
        writer.flush()
        writer._file.close()


def test_round_trip(tmp_path: Path) -> None:
    path = sample_path(tmp_path, 3)
    _write(path, 5000)
    columns, whole = read_samples(path)
    assert whole
    assert tuple(columns) == COLUMNS
    assert columns["finish_ns"].tolist() == list(range(2, 5002))
    import pyarrow as pa

    with pa.ipc.open_stream(path) as stream:  # anybody can read it
        assert stream.schema.metadata[b"rank"] == b"3"
        assert stream.read_all().num_rows == 5000


def test_never_overwrites(tmp_path: Path) -> None:
    _write(tmp_path / "a.arrows", 1)
    with pytest.raises(FileExistsError):
        SampleWriter(tmp_path / "a.arrows", 0)


def test_a_stream_that_was_cut_short_keeps_what_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "cut.arrows"
    _write(path, 5000, close=False)
    columns, whole = read_samples(path)
    assert not whole
    assert len(columns["event"]) == 5000
    data = path.read_bytes()
    lengths = set()
    for size in range(len(data), 300, -997):
        path.write_bytes(data[:size])
        try:
            columns, whole = read_samples(path)
        except FormatError:
            continue
        assert not whole
        n = len(columns["event"])
        assert np.array_equal(columns["ready_ns"], np.arange(n))
        lengths.add(n)
    assert {0, 2048, 4096} <= lengths


@pytest.mark.parametrize("data", [b"", b"hello", b"\xff\xff\xff\xff" + b"\0" * 40])
def test_no_samples(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.arrows"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"x\.arrows"):
        read_samples(path)


def test_evidence_is_new(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(UsageError, match="never overwritten"):
        new_directory(tmp_path)
    with pytest.raises(UsageError, match="never overwritten"):
        new_directory(tmp_path / "a")
    assert new_directory(tmp_path / "b" / "c").is_dir()


def test_a_seal_sees_every_change(tmp_path: Path) -> None:
    place = tmp_path / "e"
    (place / "runs").mkdir(parents=True)
    for name in ("a", "b", "runs/c"):
        (place / name).write_bytes(name.encode() * 10)
    seal(place)
    assert verify_seal(place) == []
    assert all((place / n).stat().st_mode & 0o777 == 0o444 for n in ("a", "b", "runs/c", "SHA256SUMS"))
    for name in ("a", "b", "runs/c"):
        path = place / name
        data = path.read_bytes()
        path.chmod(0o644)
        for changed in (bytes([data[0] ^ 1]) + data[1:], data[:-1], data + b"\n"):
            path.write_bytes(changed)
            assert verify_seal(place) == [f"{name}: changed"]
        path.unlink()
        assert verify_seal(place) == [f"{name}: missing"]
        path.symlink_to("/dev/null")
        assert verify_seal(place) == [f"{name}: changed"]
        path.unlink()
        path.write_bytes(data)
        assert verify_seal(place) == []
    (place / "runs" / "d").write_text("")
    assert verify_seal(place) == ["runs/d: added"]
    sums = place / "SHA256SUMS"
    sums.chmod(0o644)
    sums.write_text("nonsense\n")
    assert any("damaged" in p for p in verify_seal(place))
    sums.unlink()
    assert "cannot be read" in verify_seal(place)[0]
