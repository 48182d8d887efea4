"""A comparison finds its inputs by content, whatever they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

import commcanary_lab as lab
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.review import compare
from commcanary_lab.review.comparison_file import parse_comparison
from commcanary_lab.workspace import Workspace
from commcanary_lab.workspace.inputs import inputs_of, measured_traces


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w")


def test_reports_are_found_under_any_name(workspace: Workspace) -> None:
    trace = lab.samples.adversarial()
    a, b, c = (lab.simulate(trace, name) for name in ("baseline", "high_bandwidth", "congested"))
    for name, report in (("zebra", a), ("yak", b)):
        workspace.add(f"{name}.json", canonical_bytes(report.to_json()))
    (workspace.path / "broken.json").write_text('{"format": "commcanary_lab.report.v1"}')
    assert inputs_of(workspace, parse_comparison(compare(a, b).to_json())) == ("zebra.json", "yak.json")
    assert inputs_of(workspace, parse_comparison(compare(b, a).to_json())) == ("yak.json", "zebra.json")
    assert inputs_of(workspace, parse_comparison(compare(a, c).to_json())) is None


def test_measured_traces_are_found_by_their_latencies(workspace: Workspace) -> None:
    gloo = lab.samples.gloo4()
    half = gloo.filter(op="all_reduce")
    for name, trace in (("whole", gloo), ("half", half), ("none", lab.samples.adversarial())):
        lab.write(trace, workspace.path / f"{name}.json")
    assert measured_traces(workspace) == ["half.json", "whole.json"]
    stated = parse_comparison(compare(half, gloo).to_json())
    assert inputs_of(workspace, stated) == ("half.json", "whole.json")
    (workspace.path / "half.json").unlink()
    assert inputs_of(workspace, stated) is None
