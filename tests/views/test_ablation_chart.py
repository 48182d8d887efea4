"""The figures of an ablation."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from pathlib import Path

import pytest

from commcanary_lab import views
from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.ablation import AblationTable, ablate
from commcanary_lab.simulate.backend import ABLATIONS, DEFAULT_BACKENDS, Backend
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.model import Trace
from commcanary_lab.views.ablation_bars import SignedLog, backend_colors, flips_of, wants_log
from commcanary_lab.views.ablation_chart import AblationView, ablation_csv, flips_csv, metrics_of, telling_metric

pytest.importorskip("panel")

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture(scope="module")
def gloo() -> Trace:
    return read_json(SAMPLES / "gloo4.json")


@pytest.fixture(scope="module")
def result(gloo: Trace) -> AblationTable:
    return ablate(gloo)


def text_of(view: object) -> str:
    import panel as pn

    return " ".join(str(p.object) for p in view.select(pn.pane.HTML))  # type: ignore[attr-defined]


def test_the_figure_says_origin_coverage_and_what_an_ablation_is(gloo: Trace, result: AblationTable) -> None:
    view = views.ablation(result, coverage=gloo.coverage)
    assert view.get_root() is not None
    text = text_of(view)
    assert 'class="b model"' in text
    assert "all 528 source records" in text
    assert "cost model commcanary-v4" in text
    assert "simulator control, not a physical intervention" in text
    assert "the trace has no observed exposed latency" in text


def test_every_mechanism_and_backend_has_one_slot_with_its_change(result: AblationTable) -> None:
    view = AblationView(result, metric="mean_us", log=False)
    slots = view._bars._slots.data
    assert len(slots["top"]) == len(ABLATIONS) * len(DEFAULT_BACKENDS)
    for k, (mechanism, backend) in enumerate((a, b) for a in ABLATIONS for b in result.backends):
        delta = result.value(mechanism, backend, "mean_us").delta
        assert slots["top"][k] == (delta or 0.0)
        assert (slots["hatch_high"][k] > slots["hatch_low"][k]) == (delta is None)
        assert slots["backend"][k] == backend
    labels = view._bars.figure.xaxis[0].major_label_overrides
    assert labels[len(ABLATIONS) - 1].splitlines()[1] == "not applicable"
    flips = len(result.flips("arrival_skew"))
    assert labels[0].splitlines()[:2] == ["arrival skew", f"{flips} of {result.decisions_total} flip"]


def test_what_cannot_act_on_one_backend_is_hatched_there_only(gloo: Trace) -> None:
    result = ablate(gloo, (Backend("a"), Backend("b", compute_pressure=0.0)))
    view = AblationView(result, metric="mean_us")
    slots = view._bars._slots.data
    at = 2 * ABLATIONS.index("pressure")
    assert [slots["hatch_high"][k] > slots["hatch_low"][k] for k in (at, at + 1)] == [False, True]
    assert slots["says"][at + 1] == "Not applicable: the compute pressure of the backend is 0"
    assert "pressure</b> on b: the compute pressure of the backend is 0" in str(view._foot.object)


def test_marks_stand_at_the_backends_whose_decisions_flip(result: AblationTable) -> None:
    metric = telling_metric(result)
    expected = {(a, n) for a in ABLATIONS for f in result.flips(a) if f.metric == metric for n in (f.left, f.right)}
    marks = AblationView(result, metric=metric)._bars._marks.data
    width = 0.84 / len(result.backends)
    found = set()
    for x in marks["x"]:
        k = round(x)
        found.add((ABLATIONS[k], result.backends[round((x - k + 0.42) / width - 0.5)]))
    assert expected
    assert found == expected
    count, total, names = flips_of(result, "arrival_skew", metric)
    assert (count, total) == (sum(f.metric == metric for f in result.flips("arrival_skew")), 10)
    assert names == {n for a, n in expected if a == "arrival_skew"}


def test_show_exchanges_metric_and_result_in_place(gloo: Trace, result: AblationTable) -> None:
    view = AblationView(result)
    figure, table = view._bars.figure, view._table
    view.show(metric="median_us")
    assert "Exposed latency (median)" in str(view._title.object)
    view.show(ablate(gloo, DEFAULT_BACKENDS[:2]))
    assert (view._bars.figure, view._table) == (figure, table)
    assert len(table.value) == 2 * len(ABLATIONS)
    assert set(table.value["backend"]) == {"baseline", "low_latency"}
    with pytest.raises(UsageError, match="no metric 'p42'"):
        view.show(metric="p42")


def test_every_metric_draws_on_both_axes(result: AblationTable) -> None:
    view = AblationView(result)
    for metric in metrics_of(result):
        for log in (True, False, None):
            view.show(metric=metric, log=log)
            ticks = view._bars.figure.yaxis[0].ticker.ticks
            assert 0.0 in ticks
            span = view._bars.figure.y_range
            assert span.start < span.end
            assert all(span.start <= t <= span.end for t in ticks)


def test_the_axis_is_logarithmic_where_changes_differ_much(result: AblationTable) -> None:
    sizes = [abs(r.delta) for r in result.rows if r.metric == "p99_us" and r.delta]
    assert max(sizes) / min(sizes) > 50
    assert wants_log(result, "p99_us")
    axis = SignedLog(0.1)
    values = [axis(v) for v in (-1000.0, -1.0, 0.0, 0.5, 2e4)]
    assert values == sorted(values)
    assert SignedLog(0.0).ticks(-3.0, 9.0)[-1] <= 9.0


def test_ticks_keep_their_distance() -> None:
    for low, high, unit in ((-61.0, 118_000.0, 0.1), (0.0, 5.0, 0.0), (-40_000.0, 0.2, 0.01), (0.0, 0.0, 1.0)):
        axis = SignedLog(unit)
        places = [axis(t) for t in axis.ticks(low, high)]
        least = 0.07 * (axis(high) - axis(low))
        assert all(b - a >= least for a, b in pairwise(places))


def test_downloads_hold_everything(result: AblationTable) -> None:
    rows = list(csv.DictReader(io.StringIO(ablation_csv(result))))
    assert len(rows) == len(result.rows)
    assert {r["reason"] for r in rows if r["status"] == "not_applicable"} == {"the trace has no observed exposed latency"}
    flips = list(csv.DictReader(io.StringIO(flips_csv(result))))
    assert [(f["ablation"], f["left"], f["after"]) for f in flips] == [(f.ablation, f.left, f.after) for f in result.flipped_decisions]


def test_text_of_backends_is_escaped(gloo: Trace) -> None:
    view = views.ablation(ablate(gloo, (Backend("<img src=x>"), Backend("b", compute_pressure=0.0))))
    assert "<img" not in text_of(view)
    assert "&lt;img src=x&gt;" in text_of(view)


def test_assumptions_are_stamped() -> None:
    trace = read_json(SAMPLES / "adversarial.json")
    from dataclasses import replace

    import numpy as np

    from commcanary_lab.trace.columns import Column

    silent = replace(trace, overlap_ns=Column(np.zeros(len(trace), np.int64), np.zeros(len(trace), np.bool_)))
    view = views.ablation(ablate(silent, assume={"overlap_us": 0.0}))
    assert "assumed: overlap_us = 0" in text_of(view)
    assert 'class="b model"' not in text_of(view)


def test_a_backend_keeps_its_colour() -> None:
    assert backend_colors(["congested"])["congested"] == backend_colors([b.label for b in DEFAULT_BACKENDS])["congested"]
    many = backend_colors([b.label for b in DEFAULT_BACKENDS] + [f"c{i}" for i in range(7)])
    assert len(set(many.values())) == 12
