"""The verbs of the minimisers: figures, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.verify.derived import derived_from

ROOT = Path(__file__).parents[2]
ADVERSARIAL = str(ROOT / "data" / "samples" / "adversarial.json")
#: A profile of one rank: neither skew nor overlap is known.
PROFILE = str(ROOT / "tests" / "data" / "cases" / "P03__rank0.json")


def test_reduce(document: Any, cli: Any, tmp_path: Path) -> None:
    path, ledger = tmp_path / "r.json", tmp_path / "ledger.json"
    found = document("reduce", ADVERSARIAL, "-o", path, "--ledger", ledger)
    assert (found["events_before"], found["events_after"], found["oracle_calls"], found["oracle_evaluations"]) == (100, 1, 6, 6)
    assert (found["decisions_kept"], found["decisions_total"], found["kept"], found["stopped"]) == (40, 40, [0], "minimal")
    stated = derived_from(read_json(path))
    assert stated is not None
    assert stated.kept.tolist() == [0]
    assert len(json.loads(ledger.read_text())["steps"]) == 7
    consistent = {"status": "consistent", "first_difference": None, "method": "ddmin", "entries": 7}
    assert document("verify-ledger", ledger, path) == consistent
    assert document("verify-ledger", ledger, path, "--trace", ADVERSARIAL) == {**consistent, "status": "recomputed"}
    canary = tmp_path / "r.canary.json"
    assert cli("compile", path, "-o", canary)[0] == 0
    assert document("verify-ledger", ledger, canary, "--trace", ADVERSARIAL)["status"] == "recomputed"
    assert "derived_from" in document("verify-ledger", ledger, ADVERSARIAL, expect=1)["first_difference"]
    assert "keep 40 of 40 ranking decisions" in cli("reduce", ADVERSARIAL, "-o", tmp_path / "r.parquet")[1]
    assert document("reduce", ADVERSARIAL, "-o", path, "--budget", 2)["stopped"] == "budget"
    assert cli("reduce", ADVERSARIAL, "-o", path, "--budget", -1)[0] == 2
    assert cli("reduce", ADVERSARIAL)[0] == 2
    assert cli("reduce", tmp_path / "none.json", "-o", path)[0] == 3
    code, _, err = cli("reduce", PROFILE, "-o", path)
    assert (code, "--assume" in err) == (3, True)


def test_search_and_its_ledger(document: Any, cli: Any, tmp_path: Path) -> None:
    path, ledger = tmp_path / "s.canary.json", tmp_path / "ledger.json"
    found = document("search", ADVERSARIAL, "-o", path, "--records", "2:6", "--ledger", ledger)
    assert {"candidates", "accepted", "canary_bytes", "selected", "stopped"} <= set(found)
    assert found["canary_bytes"] == path.stat().st_size <= 2000
    assert (found["claim"], found["stopped"]) == ("verified", "complete")
    assert document("verify", ADVERSARIAL, path)["claim"] == "verified"
    consistent = {"status": "consistent", "first_difference": None, "method": "search", "entries": found["candidates"]}
    assert document("verify-ledger", ledger, path) == consistent
    assert document("verify-ledger", ledger, path, "--trace", ADVERSARIAL)["status"] == "recomputed"
    forged = json.loads(ledger.read_text())
    forged["accepted"] += 1
    ledger.write_text(json.dumps(forged))
    assert document("verify-ledger", ledger, path, expect=1)["first_difference"].startswith("sha256")
    assert "first difference" in cli("verify-ledger", ledger, path)[1]
    ledger.write_text("[1]")
    assert cli("verify-ledger", ledger, path)[0] == 3
    assert cli("verify-ledger", path, path)[0] == 3
    assert cli("verify-ledger", tmp_path / "none", path)[0] == 3
    assert "claim: verified" in cli("search", ADVERSARIAL, "-o", path, "--records", "2:3")[1]
    for wrong in (["--records", "5:2"], ["--records", "0:2"], ["--records", "x"], ["--jobs", "0"], ["--scales", "a"], ["--scales", "-1"]):
        assert cli("search", ADVERSARIAL, "-o", path, *wrong)[0] == 2
    assumed = ["--assume", "skew_us=0,overlap_us=0", "--records", "2:3", "--scales", "", "--refine", "0"]
    assert document("search", PROFILE, "-o", path, *assumed, expect=1)["claim"] == "unverified"


def test_pareto(document: Any, cli: Any, tmp_path: Path) -> None:
    found = document("pareto", ADVERSARIAL, "--records", "1:3", "-o", tmp_path / "p.json")
    assert {"canary_bytes", "worst_error", "records"} <= set(found["points"][0])
    assert found["selected"]["on_frontier"]
    assert json.loads((tmp_path / "p.json").read_text())["points"] == found["points"]
    assert "selected by search" in cli("pareto", ADVERSARIAL, "--records", "1:2")[1]


def test_baseline(document: Any, cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    for kind in ("isolated", "random", "frequency", "cluster", "stratified"):
        assert document("baseline", kind, ADVERSARIAL, "-o", path, "--events", 7, "--seed", 3)["events_after"] == len(read_json(path)) == 7
    assert document("baseline", "random", ADVERSARIAL, "-o", path)["events_after"] == 1  # as many as ddmin
    assert cli("baseline", "best", ADVERSARIAL, "-o", path)[0] == 2


def test_contrast(document: Any, cli: Any, tmp_path: Path) -> None:
    reduced, canary, kept = tmp_path / "r.json", tmp_path / "s.canary.json", tmp_path / "k.csv"
    assert cli("reduce", ADVERSARIAL, "-o", reduced)[0] == 0
    assert cli("search", ADVERSARIAL, "-o", canary, "--records", "2:3")[0] == 0
    found = document("contrast", reduced, canary, "--source", ADVERSARIAL, "--kept", kept)
    rows = {r["name"]: r for r in found["rows"]}
    assert (rows["behavior"]["a"], rows["behavior"]["b"]) == ("fail", "pass")
    assert {e["label"] for e in found["lost_tail_events"]} == {"r.json"}
    assert len(kept.read_text().splitlines()) == 102
    assert "r.json lost" in cli("contrast", reduced, canary, "--source", ADVERSARIAL)[1]
    assert cli("contrast", reduced, canary)[0] == 2
