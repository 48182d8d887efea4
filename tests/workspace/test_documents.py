"""Reports, comparisons and ledgers in a workspace: recognised, described in one line, opened, refused with the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import commcanary_lab as lab
from commcanary_lab.canary.document import FORMAT as CANARY
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import FormatError, InputError, UsageError
from commcanary_lab.minimize.search import LEDGER_FORMAT, search
from commcanary_lab.review import Policy, compare
from commcanary_lab.review.comparison import FORMAT as COMPARISON
from commcanary_lab.review.comparison_file import parse_comparison
from commcanary_lab.simulate.report_file import FORMAT as REPORT
from commcanary_lab.workspace import Workspace, stated
from commcanary_lab.workspace.artifact import KINDS
from commcanary_lab.workspace.ledger_file import parse_ledger


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    """One real document of each kind, as its writer makes it."""
    trace = lab.samples.adversarial()
    base, candidate = lab.simulate(trace), lab.simulate(trace, "high_bandwidth", ablate=["arrival_skew"])
    gloo = lab.samples.gloo4()
    return {
        "base": base.to_json(samples=True),
        "candidate": candidate.to_json(),
        "reports": compare(base, lab.simulate(trace, "high_bandwidth"), Policy(p99_threshold_pct=12)).to_json(),
        "measured": compare(gloo, gloo).to_json(),
        "search": search(trace, range(2, 4)).ledger(),
        "ddmin": lab.reduce(trace, budget=40).ledger(),
    }


@pytest.fixture
def workspace(tmp_path: Path, documents: dict[str, dict[str, Any]]) -> Workspace:
    w = Workspace(tmp_path / "w")
    for name, document in documents.items():
        w.add(f"{name}.json", canonical_bytes(document))
    return w


def test_the_formats_are_those_of_the_writers(documents: dict[str, dict[str, Any]]) -> None:
    assert (stated.CANARY, stated.REPORT, stated.COMPARISON, stated.SEARCH_LEDGER) == (CANARY, REPORT, COMPARISON, LEDGER_FORMAT)
    assert documents["ddmin"]["format"] == stated.DDMIN_LEDGER
    assert all(name.encode().startswith(stated.MARK) for name in stated._DOCUMENTS)


def test_each_has_its_kind_and_says_what_it_is(workspace: Workspace, documents: dict[str, dict[str, Any]]) -> None:
    found = {a.name.removesuffix(".json"): (a.kind, a.summary) for a in workspace.list()}
    assert {kind for kind, _ in found.values()} <= set(KINDS)
    assert found["base"] == ("report", "report: baseline, 100 events, p99 264 us")
    assert found["candidate"][1].startswith("report: high_bandwidth without arrival_skew, 100 events, p99 ")
    assert found["reports"] == ("comparison", "comparison of two reports: fail")
    assert found["measured"] == ("comparison", "comparison of two measured traces: pass")
    search, ddmin = documents["search"], documents["ddmin"]
    passed = f"search ledger: {search['accepted']} of {len(search['candidates'])} candidates pass, the smallest "
    assert found["search"][1].startswith(passed)
    kept = f"{ddmin['events_after']} of 100 events keep {ddmin['decisions_kept']} of {ddmin['decisions_total']} decisions"
    assert found["ddmin"] == ("ledger", f"ddmin ledger: {kept}")


def test_each_opens_typed_and_once(workspace: Workspace) -> None:
    report = workspace.report("base.json")
    assert report.backend.label == "baseline"
    assert report.exposed_us is not None
    assert workspace.report("base.json") is report
    comparison = workspace.comparison("reports.json")
    assert (comparison.kind, comparison.verdict, comparison.policy.p99_threshold_pct) == ("reports", "fail", 12)
    assert comparison.base_sha256 != comparison.candidate_sha256
    assert workspace.comparison("measured.json").kind == "measured"
    assert [workspace.ledger(f"{n}.json").method for n in ("search", "ddmin")] == ["search", "ddmin"]
    assert workspace.ledger("search.json").tried == len(workspace.ledger("search.json").document["candidates"])


def test_the_wrong_kind_is_refused_with_what_it_is(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match=r"'base.json' is no trace: report: baseline.*choose a trace"):
        workspace.trace("base.json")
    with pytest.raises(UsageError, match=r"is no report: comparison of two reports"):
        workspace.report("reports.json")


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("base", {"metrics": {}}, "metrics"),
        ("reports", {"verdict": "splendid"}, "verdict"),
        ("reports", {"thresholds": {"p99_threshold_pct": -1}}, "thresholds"),
        ("reports", {"reasons": [1]}, "reasons"),
        ("reports", {"baseline": {}}, "baseline.sha256"),
        ("measured", {"kind": ["x"]}, "kind"),
        ("search", {"accepted": 99}, "sha256"),
        ("search", {"candidates": "many"}, "candidates"),
        ("ddmin", {"oracle_calls": True}, "oracle_calls"),
        ("ddmin", {"stopped": None}, "stopped"),
    ],
)
def test_a_damaged_document_keeps_its_kind_and_is_refused_with_its_field(
    tmp_path: Path, documents: dict[str, dict[str, Any]], name: str, change: dict[str, Any], field: str
) -> None:
    w = Workspace(tmp_path / "w")
    data = json.dumps({**documents[name], **change}).encode()
    with pytest.raises(InputError) as caught:
        w.add("d.json", data)
    assert str(caught.value).startswith(f"d.json: {field}")
    assert w.list() == []
    (w.path / "d.json").write_bytes(data)
    assert w.get("d.json").kind == {"base": "report", "search": "ledger", "ddmin": "ledger"}.get(name, "comparison")
    assert w.get("d.json").summary


def test_other_documents_are_no_artifacts(tmp_path: Path) -> None:
    w = Workspace(tmp_path / "w")
    (w.path / "v.json").write_text('{"format": "commcanary_lab.verification.v1"}')
    (w.path / "n.json").write_text('{"format": ["commcanary_lab.report.v1"]}')
    assert {a.kind for a in w.list()} == {"other"}


@pytest.mark.parametrize("parse", [parse_comparison, parse_ledger])
@pytest.mark.parametrize("document", [None, [], {}, {"format": 3}, {"format": "commcanary_lab.report.v1"}])
def test_what_is_none_of_them(parse: Any, document: Any) -> None:
    with pytest.raises(FormatError):
        parse(document, file="x.json")
