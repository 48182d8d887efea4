"""The review page without a browser: what an address asks for, what is compared, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("panel")

import commcanary_lab as lab
from apps.page import Selection
from apps.pages.review import build
from apps.policy_panel import policy_from, policy_values
from apps.review_request import review
from apps.session import Session
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import InputError
from commcanary_lab.review import Comparison, MeasuredComparison, Policy, compare
from commcanary_lab.workspace import Workspace
from tests.views.test_views import ring

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    w = Workspace(tmp_path / "w")
    shutil.copy(SAMPLES / "gloo4.json", w.path)
    shutil.copy(SAMPLES / "adversarial.json", w.path)
    trace = lab.samples.adversarial()
    for name in ("high_bandwidth", "baseline", "low_latency"):
        w.add(f"adv.{name}.report.json", canonical_bytes(lab.simulate(trace, name).to_json()))
    w.add("other.report.json", canonical_bytes(lab.simulate(lab.samples.tp8_decode()).to_json()))
    return w


def asked(trace: str | None = "adversarial.json", **options: str | tuple[str, ...]) -> Selection:
    return Selection(trace, options={k: (v,) if isinstance(v, str) else v for k, v in options.items()})


def shown(data: Any, workspace: Workspace) -> str:
    import panel as pn

    built = build(data, Session(workspace))
    return " ".join(str(p.object) for part in built.main for p in part.select(pn.pane.HTML) if p.visible)


def test_without_choices_it_compares_the_baseline_with_the_same_work(workspace: Workspace) -> None:
    found = review(workspace, asked())
    assert found.request.names == ("adv.baseline.report.json", "adv.high_bandwidth.report.json")
    assert isinstance(found.result, Comparison)
    assert found.result.verdict == "fail"
    assert "In CI: <code>commcanary-lab compare adv.baseline.report.json adv.high_bandwidth.report.json</code> exits 1." in shown(
        found, workspace
    )


def test_the_address_decides(workspace: Workspace) -> None:
    options = {
        "baseline": "adv.high_bandwidth.report.json",
        "candidate": "adv.low_latency.report.json",
        "policy": ("p99_threshold_pct=3.5",),
    }
    found = review(workspace, asked(**options))
    assert found.request.policy == Policy(p99_threshold_pct=3.5)
    direct = compare(workspace.report(options["baseline"]), workspace.report(options["candidate"]), Policy(p99_threshold_pct=3.5))  # type: ignore[arg-type]
    assert isinstance(found.result, Comparison)
    assert found.result.to_json() == direct.to_json()
    assert "--policy policy.toml" in shown(found, workspace)


def test_policies_in_addresses() -> None:
    policy = Policy(p99_threshold_pct=1e-7, measured_seed=12, measured_confidence=0.9)
    assert policy_from(policy_values(policy)) == policy
    with pytest.raises(InputError, match="the address: unknown threshold"):
        policy_from(("speed=1",))


def test_incompatible_reports_are_refused_with_what_to_do_here(workspace: Workspace) -> None:
    found = review(workspace, asked(candidate="other.report.json"))
    assert found.result is None
    text = shown(found, workspace)
    assert "adv.baseline.report.json and other.report.json cannot be compared" in text
    assert "the reports are incompatible in events: 100 against 2015; simulate both alike, or allow it at the left" in text
    allowed = review(workspace, asked(candidate="other.report.json", allow="1"))
    assert isinstance(allowed.result, Comparison)
    assert allowed.result.allow_incompatible
    assert "--allow-incompatible" in shown(allowed, workspace)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidate": "absent<b>.json"}, "the workspace has no file named &#x27;absent&lt;b&gt;.json&#x27;"),
        ({"candidate": "gloo4.json"}, "is no report"),
        ({"policy": ("p99_threshold_pct=-1",)}, "expected a number from 0"),
        ({"policy": ("p99_threshold_pct=many",)}, "not TOML"),
        ({"compare": "simulated", "candidate_backend": "warp"}, "unknown backend"),
        ({"compare": "measured", "candidate": "adversarial.json"}, "no measured latency"),
        ({"comparison": "gloo4.json"}, "is no comparison"),
    ],
)
def test_what_cannot_be_compared_says_why(workspace: Workspace, options: dict[str, Any], words: str) -> None:
    found = review(workspace, asked(**options))
    assert found.result is None
    assert words in shown(found, workspace)


def test_measured_traces_are_those_with_latencies(workspace: Workspace) -> None:
    found = review(workspace, asked(compare="measured"))
    assert found.artifacts == ("gloo4.json",)
    assert found.result is None
    assert "There are no two measured traces to compare yet" in shown(found, workspace)
    shutil.copytree(SAMPLES / "gloo4_shards", workspace.path / "gloo4_shards")
    found = review(workspace, asked(compare="measured"))
    assert isinstance(found.result, MeasuredComparison)
    assert found.request.names == ("gloo4.json", "gloo4_shards")


def test_two_configurations_are_simulated_like_reports(workspace: Workspace) -> None:
    found = review(workspace, asked(compare="simulated"))
    trace = lab.samples.adversarial()
    direct = compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))
    assert isinstance(found.result, Comparison)
    assert found.result.deltas == direct.deltas
    assert found.result.base.exposed_us is not None
    assert found.result.base.source == {"trace": "adversarial.json"}
    assert "Keep both reports" in str(build(found, Session(workspace)).main)
    assert "nothing was measured" in shown(found, workspace)


def test_an_unknown_field_needs_an_assumption(workspace: Workspace) -> None:
    lab.write(ring(2, events=5), workspace.path / "bare.json")
    options = {"compare": "simulated", "baseline": "bare.json", "candidate": "bare.json"}
    found = review(workspace, asked(**options))
    assert found.result is None
    assert found.unknown
    assert "switch on the assumption at the left" in shown(found, workspace)
    assert review(workspace, asked(**options, assume="0")).result is not None


def test_a_saved_comparison_brings_its_inputs_and_policy_and_is_recomputed(workspace: Workspace) -> None:
    base, candidate = (workspace.report(f"adv.{n}.report.json") for n in ("low_latency", "baseline"))
    document = compare(base, candidate, Policy(p99_threshold_pct=33)).to_json()
    workspace.add("saved.json", canonical_bytes(document))
    found = review(workspace, asked(comparison="saved.json", candidate="other.report.json"))
    assert found.request.names == ("adv.low_latency.report.json", "adv.baseline.report.json")
    assert found.request.policy.p99_threshold_pct == 33
    assert found.saved is not None
    assert found.saved.check is not None
    assert found.saved.check.passed
    assert "values come out as stated" in shown(found, workspace)
    workspace.add("forged.json", canonical_bytes({**document, "deltas": {**document["deltas"], "p99_pct": 0.5}}))
    forged = shown(review(workspace, asked(comparison="forged.json")), workspace)
    assert "1 of" in forged
    assert "deltas.p99_pct: stated 0.5" in forged
    (workspace.path / "adv.low_latency.report.json").unlink()
    alone = review(workspace, asked(comparison="saved.json"))
    assert alone.result is None
    assert "Not recomputed" in shown(alone, workspace)
    assert "as the file states it" in shown(alone, workspace)


def test_an_empty_workspace_says_what_to_do(tmp_path: Path) -> None:
    w = Workspace(tmp_path / "empty")
    for mode, words in (
        ("reports", "choose Simulated at the left"),
        ("measured", "Record the job"),
        ("simulated", "Drop a trace or a canary"),
    ):
        assert words in shown(review(w, asked(None, compare=mode)), w)


def test_opening_from_the_list(workspace: Workspace) -> None:
    session = Session(workspace)
    session.options = {"baseline": ("adv.low_latency.report.json",), "compare": ("measured",), "metric": ("p99_us",)}
    session.open("adv.low_latency.report.json")
    assert session.page == "review"
    assert session.options == {"candidate": ("adv.low_latency.report.json",), "metric": ("p99_us",)}
    ledger = canonical_bytes(lab.reduce(lab.samples.adversarial(), budget=20).ledger())
    workspace.add("l.json", ledger)
    session.open("l.json")
    assert (session.page, session.options["ledger"]) == ("minimise", ("l.json",))
