"""What the command line does with damaged files: exit code 3, one message, no traceback, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.damage import BYTES, variants
from tests.robustness.readers import READERS
from tests.robustness.samples import sample

BY_NAME = {r.name: r for r in READERS}
KINDS = (
    "empty", "blank", "NUL only", "random bytes", "PNG", "ELF", "HTML page", "another document", "hostile pickle", "first half",
    "lists nested 100,000 deep", "objects nested 100,000 deep", "tables nested 100,000 deep", "number -1 in a line", "gzip of nothing",
)  # fmt: skip

#: Reader -> the verb that reads such a file; F is the file, O an output, V and W whole files.
VERBS: dict[str, list[str]] = {
    "trace_v1": ["open", "F", "-o", "O.json"],
    "trace_parquet": ["compile", "F", "-o", "O.json"],
    "shard": ["open", "F", "-o", "O.parquet"],
    "inspector": ["traffic", "F", "-o", "O.csv"],
    "kineto": ["open", "F", "-o", "O.json"],
    "nccl_log": ["open", "F", "-o", "O.json"],
    "flight_recorder": ["open", "F", "-o", "O.json"],
    "flight_recorder_pickle": ["open", "F", "-o", "O.json"],
    "nsys_sqlite": ["open", "F", "-o", "O.json"],
    "chakra_et": ["open", "F", "-o", "O.json"],
    "canary_lossless": ["simulate", "F", "-o", "O.json"],
    "report": ["compare", "F", "V.report", "-o", "O.json"],
    "comparison": ["verify-comparison", "F", "V.report", "V.report"],
    "search_ledger": ["verify-ledger", "F", "V.canary"],
    "layout": ["traffic", "V.trace", "--layout", "F", "-o", "O.csv"],
    "policy": ["compare", "V.report", "V.report", "--policy", "F", "-o", "O.json"],
    "backends": ["simulate", "V.trace", "--backends", "F", "-o", "O.json"],
    "fabric": ["replay", "V.trace", "--ranks", "2", "--fabric", "F", "-o", "O"],
    "campaign": ["campaign", "run", "F", "-o", "O"],
    "offsets": ["open", "V.shard", "--clock-offsets", "F", "-o", "O.json"],
    "fit": ["levers", "V.trace", "--fit", "F"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, reader in (("V.trace", "trace_v1"), ("V.report", "report"), ("V.canary", "canary_lossless"), ("V.shard", "shard")):
        (tmp_path / name).write_bytes(sample(reader))
    return tmp_path


@pytest.mark.parametrize("name", VERBS)
def test_damaged_files(name: str, folder: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    reader = BY_NAME[name]
    file = Path(f"F{reader.suffix}")
    before = None
    for kind in KINDS:
        for variant in variants(reader, BYTES[kind])[:2]:
            file.write_bytes(variant.data)
            before = before or sorted(os.listdir())
            code, out, err = cli(*(str(file) if a == "F" else a for a in VERBS[name]))
            if code in (0, 1) and kind in ("first half", "number -1 in a line"):  # what is left may be valid
                for left in folder.glob("O*"):
                    left.unlink()
                continue
            assert code == 3, (kind, variant.what, code, out[:300], err[:600])
            assert err.startswith("error: "), (kind, err[:300])
            assert "internal" not in err, (kind, err[:300])
            assert str(file) in err, (kind, err[:300])
            assert sorted(os.listdir()) == before, (kind, sorted(os.listdir()))


@pytest.mark.parametrize("place", ["named pipe", "device", "directory", "nothing"])
@pytest.mark.parametrize("name", sorted(VERBS))
def test_no_files(name: str, place: str, folder: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    file = Path(f"F{BY_NAME[name].suffix}")
    if place == "named pipe":
        os.mkfifo(file)
    elif place == "device":
        file.symlink_to("/dev/zero")
    elif place == "directory":
        file.mkdir()
    before = sorted(os.listdir())
    code, _, err = cli(*(str(file) if a == "F" else a for a in VERBS[name]))
    assert code in (2, 3), (code, err)
    assert "internal" not in err, err
    assert file.name in err, err
    assert sorted(os.listdir()) == before


def test_a_real_process_ends_with_3_and_one_message(folder: Path) -> None:
    (folder / "F.json").write_bytes(b'{"format": "commcanary.trace.v1", "events": [{"op": ' + b"[" * 100_000)
    command = [sys.executable, "-m", "commcanary_lab.cli", "open", "F.json", "-o", "O.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("error: F.json: ")
    assert done.stderr.count("\n") == 1
    assert sorted(os.listdir(folder)) == ["F.json", "V.canary", "V.report", "V.shard", "V.trace"]
