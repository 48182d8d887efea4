"""Baselines, the method table and contrast."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize import KINDS, baseline, compare_methods, contrast, reduce, search
from commcanary_lab.simulate import Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from commcanary_lab.trace.signatures import signature_codes
from commcanary_lab.traffic import build_matrix
from commcanary_lab.verify.derived import derived_from, verify_derived
from tests.golden_traces import golden_trace
from tests.minimize.sources import attributable


@settings(max_examples=30)
@given(attributable(min_events=1, unknown=False), st.sampled_from(KINDS), st.integers(1, 30), st.integers(0, 3))
def test_baselines_keep_so_many_distinct_events(trace: Trace, kind: str, events: int, seed: int) -> None:
    found = baseline(trace, kind, events=events, seed=seed)
    assert len(found.kept) == len(found.trace) == min(events, len(trace))
    assert (np.diff(found.kept) > 0).all()
    assert baseline(trace, kind, events=events, seed=seed).kept.tolist() == found.kept.tolist()
    stated = derived_from(found.trace)
    assert stated is not None
    assert (stated.method, stated.kept.tolist()) == (kind, found.kept.tolist())
    check = verify_derived(trace, compile_trace(found.trace, derived_from=found.trace.extra["derived_from"]))
    assert check.coverage == "partial_source"
    if kind != "isolated":
        assert (check.commitments, check.bounds) == ("recomputed", "recomputed")
    if events >= len(trace) and kind != "isolated":
        assert check.claim == "partial"


def test_what_each_baseline_keeps() -> None:
    trace = golden_trace("irr100")
    codes, first = signature_codes(trace)
    counts = np.bincount(codes)
    frequent = codes[baseline(trace, "frequency", events=3).kept]
    assert sorted(counts[frequent].tolist()) == sorted(sorted(counts.tolist())[-3:])
    stratified = codes[baseline(trace, "stratified", events=50).kept]
    assert (np.abs(np.bincount(stratified, minlength=len(first)) - counts / 2) <= 1).all()
    assert baseline(trace, "random", events=9, seed=1).kept.tolist() != baseline(trace, "random", events=9, seed=2).kept.tolist()
    alone = baseline(trace, "isolated", events=5).trace
    samples = simulate_prepared(prepare(alone), Backend()).samples
    assert (samples.wait_us == 0).all()
    assert (samples.hidden_us == 0).all()
    assert (samples.skew_us == 0).all()
    assert "isolated" in alone.notes[-1]
    with pytest.raises(UsageError, match="no baseline"):
        baseline(trace, "best", events=1)
    with pytest.raises(UsageError, match="at least one"):
        baseline(trace, "random", events=0)


def test_clusters_spread_over_what_differs() -> None:
    trace = golden_trace("irr100")
    ops = {trace.op.text(i) for i in baseline(trace, "cluster", events=25).kept.tolist()}
    assert ops == {trace.op.text(i) for i in range(len(trace))}


def test_the_method_table() -> None:
    trace = golden_trace("irr100")
    table = compare_methods(trace, records=range(2, 4), events=[2, 7])
    assert [(r.method, r.events) for r in table.rows] == [("search", 100), ("ddmin", 2), *((k, 2) for k in KINDS), *((k, 7) for k in KINDS)]
    by_method = {r.method: r for r in table.rows}
    best, trap = by_method["search"], by_method["ddmin"]
    assert (best.claim, best.tail_recall) == ("verified", 1.0)
    assert best.worst_error <= 1
    assert (trap.ranking, trap.behavior, trap.claim, trap.decisions_kept) == ("pass", "fail", "refused", 40)
    assert trap.worst_error > 1
    assert all(r.worst_error > 1 for r in table.rows[1:])
    assert all(r.coverage == "partial_source" for r in table.rows[1:])
    assert len(table.to_json()["rows"]) == len(table.sides) == 12
    side = table.sides[1]
    assert contrast(side.canary, table.sides[0].canary, trace).a.verification.claim == "refused"


def test_contrast_shows_the_tail_that_ddmin_lost() -> None:
    trace = golden_trace("adv100")
    found = contrast(reduce(trace), search(trace, range(2, 4)), trace, labels=("ddmin", "search"))
    rows = {r.name: r for r in found.rows}
    assert (rows["events"].source, rows["events"].a, rows["events"].b) == (100, 1, 100)
    assert (rows["behavior"].a, rows["behavior"].b, rows["ranking"].a) == ("fail", "pass", "pass")
    assert rows["sum of M (bytes)"].source == build_matrix(trace).sum_bytes == rows["sum of M (bytes)"].b
    assert rows["ranking decisions kept"].a == 40
    report = simulate_prepared(prepare(trace), Backend("baseline"))
    assert rows["baseline: exposed p99 (us)"].source == report.metrics["p99_us"] == rows["baseline: exposed p99 (us)"].b
    assert not found.lost("search")
    lost = [e for e in found.lost("ddmin") if (e.backend, e.quantile) == ("baseline", 0.99)]
    assert [e.index for e in lost] == np.flatnonzero(report.samples.exposed_us >= np.quantile(report.samples.exposed_us, 0.99)).tolist()
    assert not any(e.kept for e in lost)
    assert found.matrices[1].is_zero
    kept = list(csv.DictReader(io.StringIO(found.kept_csv())))
    assert [(r["result"], r["index"]) for r in kept[:2]] == [("ddmin", "0"), ("search", "0")]
    assert len(kept) == 101
    document = found.to_json()
    assert document["programs"]["a"] == ["all_reduce 1.00 KiB tp[2] (decode)"]
    assert document["matrix_difference"]["b"]["links"] == 0
    assert document["lost_tail_events"][0]["label"] == "ddmin"


def test_contrast_takes_every_kind_of_result() -> None:
    trace = golden_trace("irr100")
    part = baseline(trace, "random", events=10)
    same = contrast(part, part.trace, trace)
    assert [r.a for r in same.rows] == [r.b for r in same.rows]
    assert same.a.kept.tolist() == part.kept.tolist()
    ranged = contrast(compile_trace(trace, events=(10, 60)), compile_trace(trace), trace, labels=("x", "x"))
    assert ranged.a.kept.tolist() == list(range(10, 60))
    assert (ranged.a.label, ranged.b.label) == ("x (1)", "x (2)")
    assert all(not 10 <= e.index < 60 or e.kept for e in ranged.lost("x (1)"))
    with pytest.raises(UsageError, match="lacks"):
        contrast(compile_trace(lab.samples.tp8_decode()), part, trace)
    blind = replace(trace, arrival_known=np.zeros(100, np.bool_))
    assumed = {"skew_us": 1.0}
    unsure = contrast(compile_trace(blind), reduce(blind, assume=assumed), blind, assume=assumed)
    assert unsure.a.verification.claim == "unverified"
