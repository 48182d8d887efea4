"""The verb traffic: parts of M, M against other sources and predictions, switches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
JOB = SAMPLES / "fabric_job"
MIB = 1 << 20
SHAPE = "hidden_size=4096,layers=6,sequence_length=8192,parameters=1073741824,gradient_dtype=bfloat16"

Result = tuple[int, str, str]


@pytest.fixture
def document(cli: Any) -> Any:
    def call(*arguments: object, expect: int = 0) -> dict[str, Any]:
        code, out, err = cli("traffic", *arguments, "--json")
        assert code == expect, err
        found: dict[str, Any] = json.loads(out)
        return found

    return call


def test_the_four_sources(document: Any) -> None:
    found = {name: document(JOB / name) for name in ("inspector", "rccl", "kineto", "mpi")}
    for name, records, payload, total in (
        *((n, 200, 16384, 22528) for n in ("inspector", "rccl", "kineto")),
        ("mpi", 8, 0, 0),
    ):
        d = found[name]
        assert (d["records"], d["payload_bytes"], d["matrix_sum_bytes"]) == (records, payload * MIB, total * MIB)
    assert found["inspector"]["links"] == found["rccl"]["links"] == found["kineto"]["links"]


def test_parts_of_the_matrix(document: Any) -> None:
    tp = document(JOB / "inspector", "--group", "TP Group 0", "--group", "TP Group 1")
    assert (tp["records"], tp["matrix_sum_bytes"]) == (192, 18432 * MIB)
    assert document(SAMPLES / "tp8_decode.json", "--op", "all_gather", "--phase", "prefill")["records"] == 8
    early, late = (document(JOB / "kineto", "--window", w) for w in ("0:0.02", "0.02:60"))
    assert early["records"] + late["records"] == 200
    assert early["matrix_sum_bytes"] + late["matrix_sum_bytes"] == 22528 * MIB
    assert any("events that start from 0 s to 0.02 s" in n for n in early["notes"])


def test_source_against_source_and_canary(document: Any, cli: Any, tmp_path: Path) -> None:
    same = document(JOB / "rccl", "--against", JOB / "inspector")["difference"]
    assert (same["equal"], same["first"], same["links"], same["with"]) == (True, None, [], "nccl_inspector")
    assert "against kineto: equal cell by cell" in cli("traffic", JOB / "rccl", "--against", JOB / "kineto")[1]
    canary = tmp_path / "half.canary.json"
    assert cli("compile", SAMPLES / "adversarial.json", "-o", canary, "--events", "0:50")[0] == 0
    half = document(SAMPLES / "adversarial.json", "--against", canary)["difference"]
    assert (half["equal"], half["added_bytes"], half["removed_bytes"]) == (False, 102400, 0)
    assert half["first"] == "0 -> 1: 102400 bytes against 51200 bytes"
    out = cli("traffic", SAMPLES / "adversarial.json", "--against", canary)[1]
    assert "2 links differ, 100 KiB more and 0 B less" in out


def test_predicted_against_observed(document: Any) -> None:
    layout = ("--layout", JOB / "layout.toml")
    assert document(JOB / "inspector", *layout, "--predict", SHAPE)["difference"]["equal"] is True
    more = document(JOB / "inspector", *layout, "--predict", SHAPE + ",micro_batches=2")["difference"]
    assert (more["equal"], more["removed_bytes"]) == (False, 18432 * MIB)


def test_switches(document: Any, cli: Any) -> None:
    found = document(JOB / "kineto", "--algorithm", "all_reduce=nvls", "--gpus-per-node", 4)
    # inside nodes everything passes switches; between them blocks travel on rails
    assert found["matrix_sum_bytes"] == 4096 * MIB
    assert len(found["switch_links"]) == 16
    assert {min(x["src"], x["dst"]) for x in found["switch_links"]} == {-1, -2}
    out = cli("traffic", JOB / "kineto", "--algorithm", "nvls", "--layout", JOB / "layout.toml")[1]
    assert "through switches, beside M: 15.0 GiB from ranks, 15.0 GiB to ranks" in out and "switch of node 1" in out


@pytest.mark.parametrize(("arguments", "expected", "message"), [
    (["--window", "x"], 2, "is not LO:HI"),
    (["--window", "5:5"], 2, "is empty"),
    (["--op", "nonsense"], 2, "there is no op 'nonsense'"),
    (["--algorithm", "nvls"], 2, "needs to know which ranks share a node"),
    (["--predict", SHAPE], 2, "a prediction needs the layout"),
    (["--predict", "layers=x", "--layout", JOB / "layout.toml"], 2, "layers = 'x' is no int"),
    (["--predict", SHAPE + ",experts=2,top_k=3", "--layout", JOB / "layout.toml"], 3, "top_k"),
    (["--predict", SHAPE, "--against", JOB / "rccl"], 2, "exclude each other"),
    (["--against", "nothing.json"], 3, "nothing.json"),
])  # fmt: skip
def test_refusals(arguments: list[object], expected: int, message: str, cli: Any) -> None:
    code, out, err = cli("traffic", JOB / "kineto", *arguments)
    assert (code, out) == (expected, ""), err
    assert message in err


def test_a_log_has_no_windows(cli: Any) -> None:
    code, _, err = cli("traffic", JOB / "rccl", "--window", "0:1")
    assert code == 3 and "the source has no times" in err
