"""Ablations: every mechanism x backend x metric, what cannot act, and which rankings flip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.cli import run
from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.simulate import ABLATIONS, DEFAULT_BACKENDS, Backend, prepare
from commcanary_lab.simulate.ablation import AblationTable, ablate
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from commcanary_lab.trace.columns import Column, Ragged
from commcanary_lab.verify.ranking import decisions
from tests.golden_traces import NAMES, golden_figures, golden_trace

METRICS = ("median_us", "p95_us", "p99_us", "mean_us", "max_us", "communication_hidden_pct")


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_published_reports(name: str) -> None:
    table, figures = ablate(golden_trace(name)), golden_figures(name)
    plain = figures["baseline"]["metrics"]
    for ablation in ABLATIONS:
        for metric in METRICS:
            row = table.value(ablation, "baseline", metric)
            published = figures[f"ablate_{ablation}"]["metrics"][metric]
            assert row.unablated == plain[metric]
            if row.status == "not_applicable":
                assert published == plain[metric]  # it could not act, and did not
                assert (row.value, row.delta) == (None, None)
            else:
                assert (row.value, row.delta) == (published, round(published - plain[metric], 3))


@pytest.mark.parametrize("name", ["adv100", "irr100", "lay100"])
def test_flips_are_differences_of_the_ranking_decisions(name: str) -> None:
    prepared = prepare(golden_trace(name))
    table = ablate(prepared)
    before = decisions([simulate_prepared(prepared, b) for b in DEFAULT_BACKENDS])
    assert table.decisions_total == len(before) == 40
    for ablation in ABLATIONS:
        after = decisions([simulate_prepared(prepared, b, ablations=frozenset([ablation])) for b in DEFAULT_BACKENDS])
        flipped = [(a.left, a.right, a.metric, a.outcome, b.outcome) for a, b in zip(before, after, strict=True) if a.outcome != b.outcome]
        assert [(f.left, f.right, f.metric, f.before, f.after) for f in table.flips(ablation)] == flipped


def test_some_ranking_flips() -> None:
    """Two backends whose order rests on the overlap: the table says so."""
    fast, hiding = Backend("fast", overlap_efficiency=0.0), Backend("hiding", latency_floor_us=9.0, overlap_efficiency=0.95)
    table = ablate(golden_trace("irr100"), (fast, hiding))
    flips = table.flips("compute_overlap")
    assert {(f.metric, f.before, f.after) for f in flips} >= {("median_us", "right", "left"), ("mean_us", "right", "left")}
    assert not table.flips("pressure")


def _changed(trace: Trace, **columns: Any) -> Trace:
    return replace(trace, **columns)


def _zeros(n: int) -> Column:
    return Column(np.zeros(n, np.int64))


def _cases() -> dict[str, tuple[Trace, str]]:
    trace = golden_trace("irr100")
    n = len(trace)
    lengths = trace.arrival_ns.lengths
    still = Ragged.from_lengths(np.zeros(int(lengths.sum()), np.int64), lengths)
    order = prepare(trace).canonical_order
    one = trace.rows(order)
    return {
        "arrival_skew": (_changed(trace, arrival_ns=still), "no event has arrival skew"),
        "compute_overlap": (_changed(trace, overlap_ns=_zeros(n)), "no event has overlapping compute"),
        "queue_reset_gaps": (_changed(trace, gap_ns=_zeros(n)), "every gap is 0"),
        "pressure": (_changed(trace, pressure=Column(np.full(n, 0.55))), "0.55 already"),
        "operation_ordering": (one, "already in the order"),
        "observed_exposed_us": (trace, "no observed exposed latency"),
    }


@pytest.mark.parametrize("ablation", sorted(_cases()))
def test_what_cannot_act_is_not_applicable(ablation: str) -> None:
    trace, reason = _cases()[ablation]
    table = ablate(trace)
    own = [m for m in table.mechanisms if m.ablation == ablation]
    assert len(own) == 5
    assert not any(m.applicable for m in own)
    assert all(reason in m.reason for m in own)
    rows = [r for r in table.rows if r.ablation == ablation]
    assert {(r.value, r.delta, r.status) for r in rows} == {(None, None, "not_applicable")}
    assert not table.flips(ablation)
    assert ablation not in table.applicable
    others = {m.ablation for m in table.mechanisms if m.applicable}
    assert len(others) >= 4, "only the one mechanism is gone"


def test_not_applicable_means_that_the_samples_are_the_same() -> None:
    """The converse: where an ablation is applicable, the simulator reads something else."""
    for trace in (golden_trace("adv100"), golden_trace("irr100"), *(t for t, _ in _cases().values())):
        prepared = prepare(trace)
        for m in ablate(prepared, DEFAULT_BACKENDS[:2]).mechanisms:
            backend = next(b for b in DEFAULT_BACKENDS if b.label == m.backend)
            a, b = (simulate_prepared(prepared, backend, ablations=frozenset(x)) for x in ([], [m.ablation]))
            if not m.applicable:
                assert np.array_equal(a.samples.exposed_us, b.samples.exposed_us)
                assert a.metrics == b.metrics


def test_applicability_is_per_backend_and_model() -> None:
    trace = golden_trace("irr100")
    backends = (Backend("plain"), Backend("no_overlap", overlap_efficiency=0.0), Backend("calm", compute_pressure=0.0))
    reasons = {(m.ablation, m.backend): m.reason for m in ablate(trace, backends).mechanisms}
    assert not reasons["compute_overlap", "plain"]
    assert reasons["compute_overlap", "no_overlap"] == "the overlap efficiency of the backend is 0"
    assert reasons["pressure", "calm"] == "the compute pressure of the backend is 0"
    model = {m.ablation: m.reason for m in ablate(trace, backends[:1], model="alpha-beta").mechanisms}
    assert model["rare_tail_windows"] == "the model alpha-beta has no tails"
    assert "do not depend on it" in model["pressure"]
    assert not model["arrival_skew"]


def test_tails_that_no_sample_draws() -> None:
    trace = golden_trace("adv100").take(slice(0, 1))
    found = {seed: ablate(trace, (Backend("b", seed=seed),)) for seed in range(12)}
    reasons = {next(m.reason for m in t.mechanisms if m.ablation == "rare_tail_windows") for t in found.values()}
    assert any(r.startswith("no tail occurs in 1 samples with seed") for r in reasons)


def test_observed_exposure() -> None:
    trace = golden_trace("irr100")
    observed = replace(trace, observed_exposed_ns=Column(np.full(len(trace), 50_000)))
    table = ablate(observed, DEFAULT_BACKENDS[:1])
    gone = table.value("observed_exposed_us", "baseline", "calibration_mape_pct")
    assert (gone.value, gone.delta, gone.status) == (None, None, "changed")
    assert gone.unablated is not None
    assert table.value("observed_exposed_us", "baseline", "p99_us").status == "unchanged"
    without_tails = table.value("rare_tail_windows", "baseline", "calibration_mean_absolute_error_us")
    assert without_tails.delta == round(without_tails.value - without_tails.unablated, 3)  # type: ignore[operator]


def test_an_empty_trace_and_wrong_use() -> None:
    empty = ablate(golden_trace("adv100").take(slice(0, 0)))
    assert {m.reason for m in empty.mechanisms} == {"the trace has no events"}
    assert not empty.flipped_decisions
    with pytest.raises(UsageError):
        ablate(golden_trace("adv100"), ())
    with pytest.raises(UsageError):
        ablate(golden_trace("adv100"), (Backend("x"), Backend("x", seed=8)))
    with pytest.raises(UsageError, match="no row"):
        empty.value("luck", "baseline", "p99_us")
    n = 100
    unknown = replace(golden_trace("adv100"), arrival_ns=Ragged.empty(n), arrival_known=np.zeros(n, np.bool_))
    with pytest.raises(UnknownValueError, match="--assume skew_us=0"):
        ablate(unknown)
    assert ablate(unknown, assume={"skew_us": 3.0}).assumptions == {"skew_us": 3.0}


def test_the_table_shows_itself() -> None:
    table: AblationTable = ablate(golden_trace("irr100"))
    assert len(table.df) == len(table) == len(ABLATIONS) * 5 * 10
    assert repr(table).startswith("AblationTable(6 mechanisms act on 5 backends, 1 not applicable")
    assert "not applicable" in table._repr_html_()
    assert table.to_json()["origin"] == "model"


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(__file__).parents[2] / "data" / "samples" / "adversarial.json"
    assert run(["ablate", str(source), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"backend", "ablation", "metric", "value", "delta"} <= set(found["rows"][0])
    assert found["flipped_decisions"] == []
    assert len(found["rows"]) == 7 * 5 * 10
    own = tmp_path / "b.toml"
    own.write_text("[fast]\nbandwidth_gbps = 400\n[slow]\nlatency_floor_us = 30\noverlap_efficiency = 0\n")
    canary = tmp_path / "a.canary.json"
    assert run(["compile", str(source), "-o", str(canary)]) == 0
    assert run(["ablate", str(canary), "--backends", str(own)]) == 0
    text = capsys.readouterr().out
    assert "not applicable: the overlap efficiency of the backend is 0" in text
    assert "ranking decisions flip" in text
    assert "not a physical intervention" in text
    assert run(["ablate", str(canary), "--model", "guess"]) == 2
    assert run(["ablate", str(tmp_path / "none.json")]) == 3
    assert lab.samples.adversarial().origin == "synthetic"
