"""The verb export."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import commcanary_lab as lab
from tests.export.programs import operations

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture
def canary(cli: Any, tmp_path: Path) -> Path:
    path = tmp_path / "c.canary"
    assert cli("compile", SAMPLES / "gloo4.json", "--lossless", "-o", path)[0] == 0
    return path


@pytest.mark.parametrize("kind", ["param", "param-et", "chakra"])
def test_rank_files(kind: str, canary: Path, document: Any, cli: Any, tmp_path: Path) -> None:
    options = ["--skip-unsupported"] if kind == "chakra" else []
    found = document("export", kind, canary, "-o", tmp_path / "out", *options)
    assert found["ranks"] == len(found["files"]) == 4
    assert (found["entries"], sum(s["events"] for s in found["skipped"])) == ((512, 4) if kind == "chakra" else (528, 0))
    back = operations(lab.open(tmp_path / "out"), dtypes=kind != "chakra")
    want = operations(lab.samples.gloo4(), dtypes=kind != "chakra")
    assert back == {r: [c for c in calls if not (kind == "chakra" and c[0] == "all_to_all_v")] for r, calls in want.items()}
    code, text, _ = cli("export", kind, canary, "-o", tmp_path / "out", *options)
    assert code == 0
    assert text.count("wrote ") == 4


@pytest.mark.parametrize(("kind", "name"), [("perfetto", "timeline.json"), ("events-csv", "events.csv")])
def test_one_file(kind: str, name: str, canary: Path, document: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = document("export", kind, canary, "-o", tmp_path / "out")
    assert found["files"] == [str(tmp_path / "out" / name)]
    named = tmp_path / ("x" + Path(name).suffix)
    assert document("export", kind, canary, "-o", named)["files"] == [str(named)]
    from commcanary_lab.cli import run

    out = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as m:
        m.setattr("sys.stdout", out)
        assert run(["export", kind, str(canary), "-o", "-"]) == 0
    assert out.buffer.getvalue() == named.read_bytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("arguments", "expected", "message"), [
    (["nonsense", "-o", "x"], 2, "there is: param, param-et, chakra, nccl-tests, perfetto, events-csv"),
    (["param", "-o", "-"], 2, "writes several files"),
    (["perfetto", "-o", "-", "--json"], 2, "both want standard output"),
    (["events-csv", "-o", "x.csv", "--skip-unsupported"], 2, "takes no --skip-unsupported"),
    (["param", "-o", "x", "--assume", "dtype"], 2, "is not FIELD=VALUE"),
    (["param", "-o", "x", "--assume", "dtype=int8"], 2, "cannot be assumed as 'int8'"),
    (["perfetto", "-o", "x", "--times", "measured"], 3, "no times were measured"),
    (["perfetto", "-o", "x", "--backend", "nonsense"], 2, "nonsense"),
    (["chakra", "-o", "x"], 3, "event 235: a Chakra trace cannot say this all_to_all_v"),
])  # fmt: skip
def test_refusals(
    arguments: list[str], expected: int, message: str, canary: Path, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, *options = arguments
    code, _, err = cli("export", kind, canary, *options)
    assert code == expected
    assert message in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.canary"]


def test_the_input_is_not_overwritten(cli: Any, canary: Path) -> None:
    before = canary.read_bytes()
    named = canary.with_suffix(".json")
    named.write_bytes(before)
    code, _, err = cli("export", "perfetto", named, "-o", named)
    assert code == 2
    assert "is the input" in err
    assert named.read_bytes() == before
