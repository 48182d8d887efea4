"""The verbs compare and verify-comparison: figures, exit codes, and that nobody ever sees a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import commcanary_lab as lab
from commcanary_lab.cli import run
from tests.golden_traces import golden_trace
from tests.review.test_measured import measured

SOURCE = Path(__file__).parents[2] / "data" / "samples" / "adversarial.json"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        out = capsys.readouterr()
        assert "Traceback" not in out.out + out.err
        assert "internal" not in out.err
        return code, out.out, out.err

    return call


@pytest.fixture
def reports(tmp_path: Path, cli: Any) -> dict[str, Path]:
    out = {}
    for name in ("baseline", "congested", "high_bandwidth", "seed=8"):
        out[name] = tmp_path / f"{name}.json"
        assert cli("simulate", SOURCE, "--backend", name, "-o", out[name])[0] == 0
    return out


def test_verdicts_and_exit_codes(reports: dict[str, Path], cli: Any) -> None:
    code, out, _ = cli("compare", reports["baseline"], reports["high_bandwidth"])
    assert code == 1
    assert out.startswith("fail: p99 +18.3 %, p95 +19.9 %, median +19.6 %, decode p99 +18.3 %\n")
    code, out, _ = cli("compare", reports["baseline"], reports["congested"])
    assert code == 0
    assert out.startswith("pass: ")
    code, out, _ = cli("compare", reports["baseline"], reports["high_bandwidth"], "--json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (1, "fail")
    assert document["deltas"]["p99_pct"] == 18.35
    assert len(document["reasons"]) == 5


@pytest.mark.golden
def test_a_higher_latency_floor_on_the_llama_trace(tmp_path: Path, cli: Any) -> None:
    path, a, b = (tmp_path / n for n in ("llama.json", "a.json", "b.json"))
    lab.write(golden_trace("llama10"), path)
    assert cli("simulate", path, "-o", a)[0] == 0
    assert cli("simulate", path, "--backend", "latency_floor_us=12", "-o", b)[0] == 0
    code, out, _ = cli("compare", a, b)
    assert code == 1
    assert out.splitlines()[0] == "fail: p99 +40.4 %, p95 +36.1 %, median +32.0 %, decode p99 +41.5 %, prefill p99 +16.8 %"


def test_policy_and_page(reports: dict[str, Path], cli: Any, tmp_path: Path) -> None:
    policy, page = tmp_path / "policy.toml", tmp_path / "page.html"
    policy.write_text("[policy]\np99_threshold_pct = 30\np95_threshold_pct = 30\nmedian_threshold_pct = 30\nbreakdown_threshold_pct = 30\n")
    code, out, _ = cli("compare", reports["baseline"], reports["high_bandwidth"], "--policy", policy, "--html", page)
    assert code == 0
    assert out.startswith("warn: ")
    text = page.read_text()
    assert "<script" not in text
    assert "high_bandwidth.json" in text
    policy.write_text("p99 = 3\n")
    code, _, err = cli("compare", reports["baseline"], reports["congested"], "--policy", policy)
    assert code == 3
    assert "unknown threshold 'p99'" in err


def test_incompatible_reports(reports: dict[str, Path], cli: Any, tmp_path: Path) -> None:
    code, out, err = cli("compare", reports["baseline"], reports["seed=8"])
    assert (code, out) == (3, "")
    assert "incompatible in seed: 7 against 8" in err
    saved = tmp_path / "c.json"
    code, out, _ = cli("compare", reports["baseline"], reports["seed=8"], "--allow-incompatible", "-o", saved)
    assert out.startswith(("warn", "fail"))
    assert json.loads(saved.read_text())["compatibility"]["differences"] == [{"what": "seed", "baseline": "7", "candidate": "8"}]
    assert cli("verify-comparison", saved, reports["baseline"], reports["seed=8"])[0] == 0


def test_wrong_inputs(reports: dict[str, Path], cli: Any, tmp_path: Path) -> None:
    assert cli("compare", reports["baseline"], SOURCE)[0] == 2
    assert cli("compare", SOURCE, SOURCE)[0] == 3  # traces without measured latency
    assert cli("compare", reports["baseline"], tmp_path / "none.json")[0] == 3
    assert cli("compare", reports["baseline"])[0] == 2
    canary = tmp_path / "a.canary.json"
    assert cli("compile", SOURCE, "-o", canary)[0] == 0
    code, _, err = cli("compare", canary, canary)
    assert code == 3
    assert "simulate it" in err
    broken = tmp_path / "broken.json"
    broken.write_text(reports["baseline"].read_text().replace('"p99_us"', '"p98_us"', 1))
    code, _, err = cli("compare", broken, reports["congested"])
    assert code == 3
    assert "broken.json" in err


def test_verify_comparison(reports: dict[str, Path], cli: Any, tmp_path: Path) -> None:
    saved = tmp_path / "c.json"
    code, out, _ = cli("compare", reports["baseline"], reports["high_bandwidth"], "--json")
    saved.write_text(out)  # the printed document can be verified too
    code, out, _ = cli("verify-comparison", saved, reports["baseline"], reports["high_bandwidth"], "--json")
    assert (code, json.loads(out)["status"]) == (0, "recomputed")
    document = json.loads(saved.read_text())
    document["verdict"] = "pass"
    saved.write_text(json.dumps(document))
    code, out, _ = cli("verify-comparison", saved, reports["baseline"], reports["high_bandwidth"], "--json")
    assert code == 1
    assert json.loads(out)["first_difference"] == {"path": "verdict", "stated": "pass", "recomputed": "fail"}
    for text in ("[]", "{}", "nonsense", '{"format": "commcanary_lab.comparison.v1"}'):
        saved.write_text(text)
        assert cli("verify-comparison", saved, reports["baseline"], reports["congested"])[0] == 3


def test_measured_traces(cli: Any, tmp_path: Path) -> None:
    a, b, saved, page = (tmp_path / n for n in ("a.json", "b.parquet", "c.json", "p.html"))
    lab.write(measured(seed=1, n=400), a)
    lab.write(measured((1, 1.4, 1, 1), seed=2, n=400), b)
    code, out, _ = cli("compare", a, b, "-o", saved, "--html", page)
    assert code == 1
    assert out.startswith("fail: median 1 regressed")
    assert "all_gather" in page.read_text()
    assert json.loads(saved.read_text())["kind"] == "measured"
    assert cli("verify-comparison", saved, a, b)[0] == 0
    assert cli("verify-comparison", saved, a, a)[0] == 1
    assert cli("compare", a, a)[0] == 0
