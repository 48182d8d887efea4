"""The verbs new, show and verify, and how run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commcanary_lab.replay.campaign.read import read_preregistration
from commcanary_lab.replay.spec import RunState

from .builder import PROBE, Lab, Made, paired

CRITERION = '[[criteria]]\nname = "faster"\nmetric = "fleet_cycle_us"\ncompare = "difference"\nat_least = 1.0\n'


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    pytest.importorskip("torch")
    return Lab.at(tmp_path)


def faster(name: str, run: int, rank: int, iteration: int) -> float:
    return 1000 if name == "control" else 900


def test_new_writes_what_run_reads(tmp_path: Path, cli: Any) -> None:
    file = tmp_path / "fused.toml"
    assert cli("campaign", "new", file, "--control", "a.json", "--ranks", "4")[0] == 0
    asked = read_preregistration(file)
    assert (asked.name, asked.programs["control"], asked.configurations[1].ranks) == ("fused", "a.json", 4)
    code, _, err = cli("campaign", "new", file)
    assert (code, "is not overwritten" in err) == (2, True)
    code, out, _ = cli("campaign", "new", "-")
    assert (code, out.splitlines()[3]) == (0, 'format = "commcanary.campaign.v1"')


def test_show_and_verify(lab: Lab, cli: Any, document: Any) -> None:
    text = CRITERION + '[[rates]]\nname = "tokens/s"\nper_cycle = { control = 4.0, candidate = 4.0 }\n'
    place = lab.run(paired(text, probe=PROBE), Made(faster)).directory
    shown = document("campaign", "show", place)
    assert (shown["decision"], shown["evidence"], shown["agreement"]) == ("pass", str(place), [])
    assert [c["name"] for c in shown["criteria"]] == ["probe: control", "probe: candidate", "faster"]
    code, out, _ = cli("campaign", "show", place)
    assert code == 0
    assert "paired: pass" in out and "tokens/s: 4,000.00 -> 4,444.44 per second (+11.11 %)" in out
    code, out, _ = cli("campaign", "verify", place)
    assert (code, "files as sealed, 12 runs, " in out) == (0, True)
    (place / "extra").write_text("")
    found = document("campaign", "verify", place, expect=1)
    assert (found["status"], found["first_difference"]) == ("mismatch", "extra: added")
    assert "mismatch: 1 differences; the first is extra: added" in cli("campaign", "verify", place)[1]


def test_exit_codes(lab: Lab, cli: Any, document: Any) -> None:
    failed = lab.run(paired(CRITERION, probe=PROBE), Made(wrong={("control", 0): (4, 2, (0, 1))})).directory
    shown = document("campaign", "show", failed, expect=1)
    assert (shown["decision"], shown["failure_boundary"], shown["failure_ranks"]) == ("fail", "all_reduce #5", [0, 1])
    assert "failure boundary: all_reduce #5, sample 2, ranks 0, 1, run 1" in cli("campaign", "show", failed)[1]
    code, _, err = cli("campaign", "run", lab.folder / "campaign.toml", "-o", lab.folder / "evidence/b")
    assert (code, "failed before and is unchanged" in err, str(failed) in err) == (3, True, True)
    crashed = Made(status={("control", 0): RunState(status="failed", seconds=1, reason="rank 1: gone")})
    broken = lab.run(paired(CRITERION), crashed, out="evidence/c").directory
    assert document("campaign", "show", broken, expect=4)["stopped"]["reason"] == "run 1 (control): rank 1: gone"
    code, _, err = cli("campaign", "run", lab.write("name = 3\n", "bad.toml"), "-o", lab.folder / "evidence/d")
    assert (code, "name: is 3" in err, "question: is missing" in err) == (3, True, True)
    assert cli("campaign", "show", lab.folder)[0] == 3
    assert cli("campaign", "verify", lab.folder / "absent")[0] == 3
    code, _, err = cli("campaign", "run", lab.write(paired(CRITERION)), "-o", broken)
    assert (code, "evidence is never overwritten" in err) == (2, True)
