"""Sign-offs: what they state, when they are stale, what they refuse, and their place in a workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.errors import FormatError, InputError, LabError, UsageError
from commcanary_lab.review import Policy, compare
from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.signoff import (
    FORMAT,
    MAX_NAME,
    MAX_NOTE,
    check_signoff,
    parse_signoff,
    read_signoff,
    sign_off,
    verify_signoff,
)
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.workspace import Workspace, stated

WHEN = "2026-11-30T12:00:00Z"


@pytest.fixture(scope="module")
def reports() -> tuple[ReportFile, ReportFile, ReportFile]:
    trace = lab.samples.adversarial()
    a, b, c = (ReportFile.of(lab.simulate(trace, name)) for name in ("baseline", "high_bandwidth", "congested"))
    return a, b, c


@pytest.fixture(scope="module")
def found(reports: tuple[ReportFile, ReportFile, ReportFile]) -> Comparison:
    return compare(reports[0], reports[1])


def test_it_states_inputs_policy_and_verdict(found: Comparison, reports: tuple[ReportFile, ReportFile, ReportFile]) -> None:
    document = sign_off(found, "reject", names=("a.json", "b.json"), reviewer=" Ada ", note="too\r\nslow\n", written_at=WHEN).to_json()
    assert document["format"] == FORMAT
    assert document["reviewer"] == "Ada"
    assert document["note"] == "too\nslow"
    assert document["baseline"] == {"name": "a.json", "sha256": reports[0].sha256}
    assert document["candidate"] == {"name": "b.json", "sha256": reports[1].sha256}
    assert document["policy_sha256"] == found.to_json()["policy_sha256"]
    assert document["verdict"] == "fail"
    assert parse_signoff(document).to_json() == document


def test_another_input_or_policy_is_noticed(found: Comparison, reports: tuple[ReportFile, ReportFile, ReportFile]) -> None:
    signed = sign_off(found, "approve", written_at=WHEN)
    assert check_signoff(signed, found).passed
    assert verify_signoff(signed, reports[0], reports[1]).passed
    changed = verify_signoff(signed, reports[0], reports[2])
    assert (changed.status, changed.reasons) == ("stale", ("the candidate is another one than the one that was signed",))
    swapped = verify_signoff(signed, reports[1], reports[0])
    assert swapped.status == "stale"
    assert len(swapped.reasons) == 2
    lax = compare(reports[0], reports[1], Policy(p99_threshold_pct=90, p95_threshold_pct=90, median_threshold_pct=90))
    assert check_signoff(signed, lax).status == "other_policy"
    under_its_own = sign_off(lax, "approve", written_at=WHEN)
    assert verify_signoff(under_its_own, reports[0], reports[1]).passed  # recomputed under the policy that it states


def test_a_forged_verdict_or_hash_is_stale(found: Comparison, reports: tuple[ReportFile, ReportFile, ReportFile]) -> None:
    document = sign_off(found, "approve", written_at=WHEN).to_json()
    forged = parse_signoff({**document, "verdict": "pass"})
    assert verify_signoff(forged, reports[0], reports[1]).reasons == ("it states the verdict pass, which is fail now",)
    forged = parse_signoff({**document, "comparison_sha256": "0" * 64})
    assert verify_signoff(forged, reports[0], reports[1]).status == "stale"


def test_incompatible_and_mixed_inputs(reports: tuple[ReportFile, ReportFile, ReportFile]) -> None:
    other = ReportFile.of(lab.simulate(lab.samples.tp8_decode()))
    allowed = sign_off(compare(reports[0], other, allow_incompatible=True), "needs_data", written_at=WHEN)
    assert verify_signoff(allowed, reports[0], other).passed
    signed = sign_off(compare(reports[0], reports[1]), "approve", written_at=WHEN)
    assert "incompatible" in verify_signoff(signed, reports[0], other).reasons[0]
    with pytest.raises(UsageError, match="the other a trace"):
        verify_signoff(signed, reports[0], lab.samples.gloo4())


def test_measured_traces() -> None:
    gloo = lab.samples.gloo4()
    signed = sign_off(compare(gloo, gloo), "approve", written_at=WHEN)
    assert signed.kind == "measured"
    assert verify_signoff(signed, gloo, gloo).passed
    assert verify_signoff(signed, gloo, gloo.take([*range(40)])).status == "stale"


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("format", "commcanary_lab.report.v1", "format"),
        ("decision", "maybe", "the decision is"),
        ("verdict", "great", "verdict"),
        ("kind", "files", "kind"),
        ("written_at", "yesterday", "written_at"),
        ("reviewer", "x" * (MAX_NAME + 1), "121 characters"),
        ("note", "x" * (MAX_NOTE + 1), "4,001 characters"),
        ("note", "a\u202eb", "control characters"),
        ("reviewer", "a\nb", "control characters"),
        ("note", 3, "note"),
        ("baseline", {"name": "a"}, "baseline"),
        ("candidate", {"name": "a", "sha256": "AB"}, "candidate.sha256"),
        ("comparison_sha256", None, "comparison_sha256"),
        ("policy_sha256", "0" * 64, "policy_sha256"),
        ("thresholds", {"p98": 1}, "p98"),
        ("allow_incompatible", 1, "allow_incompatible"),
        ("more", 1, "more"),
    ],
)
def test_what_is_refused(found: Comparison, field: str, value: Any, where: str) -> None:
    document = sign_off(found, "approve", written_at=WHEN).to_json() | {field: value}
    with pytest.raises(FormatError) as error:
        parse_signoff(document, file="x.json")
    assert where in str(error.value)
    assert "x.json" in str(error.value)


@given(reviewer=st.text(max_size=200), note=st.text(max_size=300), decision=st.sampled_from(["approve", "reject", "needs_data", ""]))
def test_every_text_is_kept_or_refused(reviewer: str, note: str, decision: str) -> None:
    trace = lab.samples.adversarial()
    comparison = _pair(trace)
    try:
        signed = sign_off(comparison, decision, reviewer=reviewer, note=note, written_at=WHEN)
    except UsageError:
        return
    again = parse_signoff(json.loads(signed.to_bytes()))
    assert again == signed
    assert again.reviewer == reviewer.strip()
    assert check_signoff(again, comparison).passed


_PAIRS: list[Comparison] = []


def _pair(trace: Any) -> Comparison:
    if not _PAIRS:
        _PAIRS.append(compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth")))
    return _PAIRS[0]


def test_files_in_a_workspace_are_only_added(found: Comparison, tmp_path: Path) -> None:
    w = Workspace(tmp_path / "w")
    notes = ("first", "second", "<b>third</b>")
    added = []
    for note in notes:
        signed = sign_off(found, "approve", names=("a.json", "b.report.json"), note=note, written_at=WHEN)
        added.append(w.add(signed.file_name, signed.to_bytes(), rename=True))
    assert {a.kind for a in added} == {"signoff"}
    assert len({a.name for a in added}) == 3
    assert all(a.name.startswith("b.") and a.name.endswith(".signoff.json") for a in added)
    assert [w.signoff(a.name).note for a in added] == list(notes)
    assert added[0].summary == "sign-off of b.report.json: approved, the verdict was fail"
    assert stated.SIGNOFF == FORMAT
    with pytest.raises(LabError):
        w.add("bad.signoff.json", sign_off(found, "approve", written_at=WHEN).to_bytes().replace(b'"approve"', b'"maybe"'))


def test_a_missing_file_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.signoff\.json"):
        read_signoff(tmp_path / "gone.signoff.json")
