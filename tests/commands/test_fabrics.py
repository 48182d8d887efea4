"""Verbs on traffic between nodes: fields, figures, exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.layout import read_layout
from tests.traffic.jobs import MIB, Event, row, trace_of

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
JOB = SAMPLES / "fabric_job"

Result = tuple[int, str, str]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """One world-wide all-reduce on two nodes of four."""
    path = tmp_path / "world.json"
    lab.write(trace_of([Event("all_reduce", tuple(range(8)), 8 * MIB, "world")]), path)
    return path


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    """An uneven exchange inside a node."""
    sent = [90, 10, 10, 10]
    splits = tuple(x for i in range(4) for x in row(120, 4 * sent[i], sent, [sent[i]] * 4))
    path = tmp_path / "experts.json"
    event = Event("all_to_all_v", (0, 1, 2, 3), 360, "EP Group 0", splits=splits)
    lab.write(trace_of([event], custom_op=np.array([True])), path)
    return path


@pytest.mark.parametrize("source", ["kineto", "inspector", "rccl"])
def test_fabric_of_the_job(source: str, document: Any, cli: Any) -> None:
    found = document("fabric", JOB / source, "--layout", JOB / "layout.toml", "--spine", 0.1)
    assert {
        "inter_node_bytes", "on_rail_bytes", "cross_rail_fraction", "fat_tree_congestion", "rail_congestion", "verdict", "by_order",
        "relative_cost",
    } <= set(found)  # fmt: skip
    assert (found["inter_node_bytes"], found["on_rail_bytes"]) == (4096 * MIB, 4096 * MIB)
    assert (found["cross_rail_fraction"], found["rail_congestion"], found["verdict"], found["relative_cost"]) == (0, 0, "viable", 0.1)
    moe = found["moe"]
    assert (moe["cross_rail_fraction"], moe["fat_tree_congestion"], moe["verdict"]) == (0.75, 0.75, "saturates")
    assert moe["rail_congestion"] == pytest.approx(7.5)
    assert set(found["by_order"]) == {"group", "rail_aligned", "hierarchical"}
    code, out, _ = cli("fabric", JOB / source, "--gpus-per-node", 4)
    assert code == 0
    assert out.startswith("viable: ") and "limit: volume-free" in out and "limit: counts no PXN" in out


def test_fabric_that_depends_on_the_order(document: Any, world: Path) -> None:
    found = document("fabric", world, "--gpus-per-node", 4, expect=1)
    assert found["verdict"] == "depends on ring order"
    assert {k: v["cross_rail_fraction"] for k, v in found["by_order"].items()} == {"group": 1.0, "rail_aligned": 0.5, "hierarchical": 0.0}
    stated = document("fabric", world, "--gpus-per-node", 4, "--ring-order", "0,4,1,5,2,6,3,7", expect=1)
    assert (stated["verdict"], stated["by_order"]["stated"]["cross_rail_fraction"]) == ("saturates", 0.5)
    assert document("fabric", world, "--gpus-per-node", 4, "--spine", 1)["verdict"] == "viable"
    assert document("fabric", world, "--gpus-per-node", 4, "--algorithm", "hierarchical")["verdict"] == "viable"


def test_fabric_options(document: Any, cli: Any, world: Path) -> None:
    found = document("fabric", world, "--gpus-per-node", 4, "--pxn", "--link-gb-s", 50, "--step-time-s", 0.01, "--search-placement", 40)
    assert (found["pxn"], found["verdict"], found["utilisation"]["link_gb_s"]) == (True, "viable", 50)
    assert found["placement"]["evaluations"] <= 40
    assert sorted(found["placement"]["slots"].values()) in ([], list(range(8)))
    zero = document("fabric", world, "--gpus-per-node", 4, "--spine", 0, expect=1)
    assert zero["rail_congestion"] is None  # infinite
    code, out, _ = cli("fabric", world, "--gpus-per-node", 4, "--pxn", "--link-gb-s", 50, "--step-time-s", 0.01, "--search-placement", 40)
    assert code == 0 and "PXN moves" in out and "utilisation at 50 GB/s" in out and "seed 7" in out


def test_diagnose(document: Any, cli: Any, experts: Path, world: Path) -> None:
    found = document("diagnose", experts, "--gpus-per-node", 4)
    assert (found["verdict"], found["groups"][0]["hottest_rank"], found["cross_rail_fraction"]) == ("routing problem", 0, 0)
    assert found["imbalance"] == pytest.approx(90 / 30)
    assert document("diagnose", experts, "--gpus-per-node", 4, "--max-imbalance", 4)["verdict"] == "neither"
    assert document("diagnose", experts, "--gpus-per-node", 2)["verdict"] == "both"
    nothing = document("diagnose", world, "--gpus-per-node", 8)
    assert (nothing["verdict"], nothing["imbalance"], nothing["groups"]) == ("neither", None, [])
    code, out, _ = cli("diagnose", experts, "--gpus-per-node", 2)
    assert code == 0
    assert out.splitlines()[0] == "both" and "largest over mean column 3.000" in out and "cross-rail fraction" in out


def test_layout_infer(document: Any, cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "layout.toml"
    found = document("layout", "infer", JOB / "rccl", "--gpus-per-node", 4, "-o", out)
    assert [(g["kind"], g["confidence"], g["size"]) for g in found["groups"]] == [("tp", "likely", 4), ("dp", "likely", 2)]
    assert read_layout(out) == read_layout(JOB / "layout.toml")
    # the inferred file serves the next command
    assert document("fabric", JOB / "kineto", "--layout", out)["verdict"] == "viable"
    code, text, _ = cli("layout", "infer", JOB / "kineto")
    assert code == 0 and "tp, stated: 2 groups of 4" in text and "tp = 4" in text
    code, text, _ = cli("layout", "infer", JOB / "kineto", "-o", "-")
    assert code == 0 and text.startswith("# Inferred from a trace")
    (tmp_path / "again.toml").write_text(text)
    assert read_layout(tmp_path / "again.toml").dp == 2


def test_export_nccl_tests(document: Any, cli: Any, tmp_path: Path) -> None:
    canary = tmp_path / "c.canary.json"
    assert cli("compile", SAMPLES / "gloo4.json", "-o", canary)[0] == 0
    found = document("export", "nccl-tests", canary, "-o", tmp_path / "out")
    assert (found["entries"], found["skipped"], found["ranks"]) == (12, [], 4)
    m = lab.traffic(lab.samples.gloo4())
    rounded = np.rint(m.dense())
    assert np.array_equal(np.loadtxt(tmp_path / "out" / "alltoallv.txt"), rounded)
    fractions = np.loadtxt(tmp_path / "out" / "alltoallv.csv", delimiter=",")
    assert fractions.max() == 1
    assert np.array_equal(np.rint(fractions * found["size_bytes"]), rounded)
    about = json.loads((tmp_path / "out" / "alltoallv.json").read_text())
    assert (about["ranks"], about["size_bytes"], about["source"]) == ([0, 1, 2, 3], rounded.max(), "commcanary_lab.canary.v1")
    assert cli("export", "nccl-tests", canary, "-o", tmp_path / "out")[1].count("wrote ") == 3


def test_export_says_what_it_leaves_out(document: Any, cli: Any, tmp_path: Path, world: Path) -> None:
    lost = tmp_path / "lost.json"
    lab.write(trace_of([Event("all_reduce", (0, 1), 8), Event("broadcast", (0, 1), 16)]), lost)
    code, _, err = cli("export", "nccl-tests", lost, "-o", tmp_path / "a")
    assert code == 3 and "cannot say: 32 B unattributed" in err and "--skip-unsupported" in err
    assert not (tmp_path / "a").exists()
    found = document("export", "nccl-tests", lost, "-o", tmp_path / "a", "--skip-unsupported")
    assert found["skipped"] == [{"reason": "unattributed: their destination is unknown", "bytes": 32}]
    nvls = ("--algorithm", "nvls", "--gpus-per-node", 4)
    assert cli("export", "nccl-tests", world, "-o", tmp_path / "b", *nvls)[0] == 3
    left = document("export", "nccl-tests", world, "-o", tmp_path / "b", *nvls, "--skip-unsupported")
    assert (left["entries"], left["skipped"][0]["bytes"]) == (8, 8 * 10 * MIB)
    assert (
        cli("export", "nccl-tests", world, "-o", tmp_path / "c", "--algorithm", "nvls", "--gpus-per-node", 8, "--skip-unsupported")[0] == 3
    )
    code, _, err = cli("export", "nccl-tests", world, "-o", world / "x")
    assert code == 3 and "cannot be made" in err


@pytest.mark.parametrize(("arguments", "expected", "message"), [
    (["fabric", SAMPLES / "adversarial.json"], 2, "give --gpus-per-node, or --layout"),
    (["fabric", SAMPLES / "nothing.json", "--gpus-per-node", 4], 3, "nothing.json"),
    (["fabric", SAMPLES / "adversarial.json", "--gpus-per-node", 0], 2, "0 GPUs per node"),
    (["fabric", SAMPLES / "adversarial.json", "--gpus-per-node", 4, "--spine", 2], 2, "2.0 is not a fraction"),
    (["fabric", SAMPLES / "adversarial.json", "--gpus-per-node", 4, "--ring-order", "x"], 2, "is not a list of ranks"),
    (["fabric", SAMPLES / "adversarial.json", "--gpus-per-node", 4, "--algorithm", "x"], 2, "no attribution algorithm 'x'"),
    (["fabric", SAMPLES / "adversarial.json", "--gpus-per-node", 4, "--link-gb-s", 3], 2, "give both"),
    (["fabric", SAMPLES / "adversarial.json", "--layout", SAMPLES / "adversarial.json"], 3, "not TOML"),
    (["fabric", JOB / "kineto", "--layout", JOB / "layout.toml", "--gpus-per-node", 8], 2, "the layout says 4"),
    (["diagnose", SAMPLES / "adversarial.json"], 2, "give --gpus-per-node"),
    (["diagnose", SAMPLES / "adversarial.json", "--gpus-per-node", 4, "--max-imbalance", 0], 2, "is no imbalance"),
    (["layout", "infer", SAMPLES / "nothing.json"], 3, "nothing.json"),
    (["layout", "infer", JOB / "kineto", "-o", "-", "--json"], 2, "both want standard output"),
    (["layout", "infer", JOB / "kineto" / "rank0.json", "-o", JOB / "kineto" / "rank0.json"], 2, "is the input"),
    (["export", "nonsense", SAMPLES / "adversarial.json", "-o", "x"], 2, "there is no export 'nonsense'"),
    (["export", "nccl-tests", SAMPLES / "nothing.json", "-o", "x"], 3, "nothing.json"),
    (["export", "nccl-tests", JOB / "mpi", "-o", "x"], 3, "no traffic between ranks"),
])  # fmt: skip
def test_refusals(arguments: list[object], expected: int, message: str, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*arguments)
    assert (code, out) == (expected, ""), err
    assert message in err
    assert not list(tmp_path.iterdir())
