"""Reports: read strictly, recomputed bit for bit, and every forged value found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.canonical import canonical_bytes, loads_strict
from commcanary_lab.cli import run
from commcanary_lab.errors import FormatError, LabError
from commcanary_lab.simulate import ABLATIONS, DEFAULT_BACKENDS, Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.simulate.report_file import ReportFile, parse_report, read_report
from commcanary_lab.simulate.workload import workload_sha256
from commcanary_lab.trace import Trace
from commcanary_lab.trace.columns import Column, Ragged
from commcanary_lab.verify.documents import check_document
from commcanary_lab.verify.reports import verify_report
from tests.golden_traces import golden_trace
from tests.mutations import leaves


def _document(trace: Trace, backend: Backend | None = None, **options: Any) -> dict[str, Any]:
    samples = options.pop("samples", False)
    report = simulate_prepared(prepare(trace, options.pop("assume", None)), backend or Backend(), **options)
    return loads_strict(canonical_bytes(report.to_json(samples=samples)))


@pytest.mark.parametrize("backend", [*DEFAULT_BACKENDS, Backend("three", iterations=3, seed=11)], ids=lambda b: b.label)
@pytest.mark.parametrize("model", ["commcanary-v4", "alpha-beta"])
def test_a_report_comes_out_as_stated(backend: Backend, model: str) -> None:
    trace = golden_trace("irr100")
    canary = lab.compile(trace)
    document = _document(trace, backend, model=model, samples=True)
    for source in (trace, canary):
        check = verify_report(document, source)
        assert check.passed, check
        assert check.leaves == sum(value not in ([], {}) for _, _, value in leaves(document))
    assert not verify_report(document, lab.compile(trace, events=(0, 50))).passed


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_ablated_reports_too(ablation: str) -> None:
    trace = golden_trace("irr100")
    document = _document(trace, ablations=frozenset([ablation]))
    assert verify_report(document, trace).passed
    document["protocol"]["ablations"] = []
    document["protocol"]["ablation_label"] = None
    check = verify_report(document, trace)  # what is left is a true report exactly where the ablation changed nothing
    assert check.passed is (document == _document(trace))
    assert check.passed is (ablation == "observed_exposed_us")  # this trace has no such signal


def test_the_first_difference_names_both_values(tmp_path: Path) -> None:
    trace = golden_trace("adv100")
    document = _document(trace)
    document["by_op"][0]["p99_us"] += 1
    check = verify_report(document, trace)
    assert str(check.first_difference) == "by_op[0].p99_us: stated 264.601, recomputed 263.601"
    assert (check.status, check.differences) == ("mismatch", 1)
    another = verify_report(_document(trace), golden_trace("irr100"))
    assert another.status == "mismatch"
    shorter = verify_report(_document(trace), trace.take(slice(0, 99)))
    assert shorter.status == "mismatch"


def test_an_assumption_that_was_removed_is_found() -> None:
    trace = golden_trace("adv100")
    unknown = replace(trace, arrival_ns=Ragged.empty(100), arrival_known=np.zeros(100, np.bool_))
    document = _document(unknown, assume={"skew_us": 0.0})
    assert verify_report(document, unknown).passed
    document["assumptions"] = []
    check = verify_report(document, unknown)
    assert check.first_difference is not None
    assert check.first_difference.path == "assumptions"


def test_a_trace_and_its_exact_canary_are_one_workload() -> None:
    for name in ("adv100", "irr100", "lay100"):
        trace = golden_trace(name)
        assert workload_sha256(prepare(trace)) == workload_sha256(prepare(lab.compile(trace).trace))
        assert workload_sha256(prepare(trace)) != workload_sha256(prepare(trace.take(slice(0, 99))))


@pytest.mark.parametrize("column", ["size_bytes", "overlap_ns", "pressure", "gap_ns", "observed_exposed_ns", "phase"])
def test_the_workload_covers_every_column_that_is_read(column: str) -> None:
    trace = golden_trace("irr100")
    old = getattr(trace, column)
    if column == "size_bytes":
        values = old.copy()
        values[7] += 1
        new: Any = values
    elif column == "phase":
        new = type(old).from_optional([*old.to_list()[:-1], "other"])
    else:
        values = np.array(old.filled(0))
        values[-1] += 1
        new = Column(values, old.mask.copy() | (np.arange(100) == 99))
    changed = replace(trace, **{column: new})
    assert workload_sha256(prepare(changed)) != workload_sha256(prepare(trace))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d.pop("metrics"), "metrics"),
        (lambda d: d.update(extra=1), "extra"),
        (lambda d: d["backend"].update(seed=1.5), "backend"),
        (lambda d: d["backend"].update(bandwidth_gbps=-1), "backend"),
        (lambda d: d["metrics"].update(p99_us="fast"), "metrics.p99_us"),
        (lambda d: d["metrics"].update(p99_us=True), "metrics.p99_us"),
        (lambda d: d["protocol"].update(ablations=["pressure", "arrival_skew"]), "protocol.ablations"),
        (lambda d: d["by_op"].append(dict(d["by_op"][0])), "by_op[1]"),
        (lambda d: d["workload"].update(sha256="ab"), "workload.sha256"),
        (lambda d: d.update(assumptions=[{"field": "gap_us", "value": 0}]), "assumptions[0].field"),
        (lambda d: d.update(notes=[1]), "notes[0]"),
        (lambda d: d.update(format="commcanary.trace.v1"), "format"),
        (lambda d: d["protocol"].update(model="guess"), "guess"),
        (lambda d: d["protocol"].update(ablations=["luck"]), "luck"),
    ],
)
def test_an_invalid_report_is_refused_by_field(change: Any, field: str) -> None:
    document = _document(golden_trace("adv100"))
    change(document)
    with pytest.raises(FormatError) as caught:
        parse_report(document, file="r.json")
    assert "r.json" in str(caught.value)
    assert field in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": NaN}', "\xff", "[" * 5000])
def test_anything_else_is_refused_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(LabError, match=r"r\.json"):
        read_report(path)


def test_documents_are_compared_by_bits() -> None:
    assert check_document({"a": 0.0}, {"a": -0.0}).status == "mismatch"
    assert check_document({"a": 1}, {"a": True}).status == "mismatch"
    assert check_document({"a": []}, {"a": [1]}).first_difference is not None
    assert check_document({"a": "(absent)"}, {}).status == "mismatch"
    assert check_document([1, {"b": None}], [1, {"b": None}]).passed


def test_file_form_of_a_report(tmp_path: Path) -> None:
    trace = golden_trace("adv100")
    report = lab.simulate(trace)
    ours = ReportFile.of(report)
    assert ReportFile.of(ours) is ours
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report.to_json(samples=True), indent=2))
    read = read_report(path)
    assert read.metrics == dict(report.metrics)
    assert read.exposed_us is not None
    assert np.allclose(read.exposed_us, report.samples.exposed_us, atol=1e-3)
    assert (read.workload_sha256, read.samples_sha256) == (ours.workload_sha256, ours.samples_sha256)


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(__file__).parents[2] / "data" / "samples" / "adversarial.json"
    canary, report = tmp_path / "a.canary.json", tmp_path / "r.json"
    assert run(["compile", str(source), "-o", str(canary), "--records", "4"]) == 0
    assert run(["simulate", str(canary), "-o", str(report), "--samples", "--ablate", "pressure"]) == 0
    capsys.readouterr()
    assert run(["verify-report", str(report), str(canary), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["first_difference"]) == ("recomputed", None)
    assert run(["verify-report", str(report), str(source), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "mismatch"
    document = json.loads(report.read_text())
    document["samples"][41]["queue_wait_us"] += 0.001
    report.write_text(json.dumps(document))
    assert run(["verify-report", str(report), str(canary)]) == 1
    assert "samples[41].queue_wait_us" in capsys.readouterr().out
    assert run(["verify-report", str(tmp_path / "none.json"), str(canary)]) == 3
    assert run(["verify-report", str(canary), str(canary)]) == 3
    assert "Traceback" not in capsys.readouterr().err
