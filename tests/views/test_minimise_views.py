"""The views of minimised results: what they say is what the results are, and text from files cannot become markup."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import commcanary_lab as lab
import commcanary_lab.views as views
from commcanary_lab.minimize import Contrast, Reduction, Search
from commcanary_lab.trace import Coded, ProcessGroup, Trace
from commcanary_lab.traffic import build_matrix
from commcanary_lab.verify.behavior import tail_events
from commcanary_lab.views.baseline_table import methods_csv, methods_frame, methods_text
from commcanary_lab.views.contrast_panel import ContrastPanel
from commcanary_lab.views.ddmin_scrubber import DdminScrubber, decision_table, kept_share, ledger_csv, step_text
from commcanary_lab.views.difference_map import blocks, difference_text
from commcanary_lab.views.latency_curves import LatencyCurves, quantile_rows, slower_share
from commcanary_lab.views.lost_events import lost_csv, lost_frame, lost_text
from commcanary_lab.views.pareto_chart import LIMITS, all_points, frontier_frame, pareto_figure
from commcanary_lab.views.plot_frame import error_height
from commcanary_lab.views.search_scatter import candidate_frame, search_figure

pn = pytest.importorskip("panel")

NASTY = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return lab.samples.gloo4()


@pytest.fixture(scope="module")
def reduction(trace: Trace) -> Reduction:
    return lab.reduce(trace)


@pytest.fixture(scope="module")
def found(trace: Trace) -> Search:
    return lab.search(trace, range(2, 10))


@pytest.fixture(scope="module")
def both(trace: Trace, reduction: Reduction, found: Search) -> Contrast:
    return lab.contrast(reduction, found, trace, labels=("ddmin", "search"))


def text_of(view: object) -> str:
    return " ".join(str(p.object) for p in view.select(pn.pane.HTML))  # type: ignore[attr-defined]


def glyphs(figure: object, kind: str) -> list[object]:
    return [r for r in figure.renderers if type(r.glyph).__name__ == kind]  # type: ignore[attr-defined]


def test_every_view_renders_with_origin_and_coverage(trace: Trace, reduction: Reduction, found: Search, both: Contrast) -> None:
    table = lab.compare_methods(trace, reduction=reduction, found=found)
    shown = [
        views.contrast(both),
        views.ddmin(reduction),
        views.search(found),
        views.pareto(lab.pareto(trace, range(2, 6))),
        views.methods(table),
    ]
    for view in shown:
        assert view.get_root() is not None
        assert 'class="b model"' in text_of(view)
        assert "all 528 source records" in text_of(view)


# -- contrast ---------------------------------------------------------------------------------------------------------


def test_both_sides_say_their_statuses(both: Contrast) -> None:
    text = text_of(views.contrast(both))
    for side in (both.a, both.b):
        assert f"Claim: {side.verification.claim}." in text
        assert text.count("<span>ranking</span>") == 2
    assert both.a.verification.behavior == "fail"
    assert "chip bad" in text


@pytest.mark.parametrize("values", [[3.0, 1.0, 1.0, 2.0], [5.0], list(np.random.default_rng(3).exponential(100, 5000))])
def test_the_curve_is_the_share_of_events_that_are_at_least_as_slow(values: list[float]) -> None:
    sample = np.array(values)
    x, share = slower_share(sample)
    assert (np.diff(x) > 0).all()
    assert len(x) <= 1501
    for value, part in zip(x.tolist()[::7], share.tolist()[::7], strict=True):
        assert part == pytest.approx(float(np.mean(sample >= value)))
    assert x[-1] == sample.max()  # the tail is never thinned away
    assert share[0] == 1.0


def test_all_backends_share_the_axes_and_each_has_its_own_curve(both: Contrast) -> None:
    curves = LatencyCurves(both)
    axes = curves.figure.x_range.start, curves.figure.x_range.end
    drawn = {}
    for i, backend in enumerate(curves.backends):
        curves.show(backend)
        assert (curves.figure.x_range.start, curves.figure.x_range.end) == axes
        x = np.asarray(curves._sources["source"].data["x"])
        assert x.max() == pytest.approx(both.reports[i].samples.exposed_us.max())
        assert axes[0] <= x.min() <= x.max() <= axes[1]
        drawn[backend] = x.tolist()
    assert len({str(v) for v in drawn.values()}) == len(drawn)


def test_the_quantiles_say_how_far_each_result_is_off(both: Contrast) -> None:
    text = quantile_rows(both, 0)
    d = both.distributions[0]
    assert d.a_us != d.source_us == d.b_us
    assert text.count("(equal)") >= 4
    off = 100 * (d.a_us[3] / d.source_us[3] - 1)
    assert f"{abs(off):,.3g} %" in text


def test_lost_events_are_those_of_the_backend_and_every_row_names_its_tails(both: Contrast) -> None:
    for report in both.reports:
        backend = report.backend.label
        frame = lost_frame(both, backend)
        expected = {(e.label, e.index) for e in both.lost_tail_events if e.backend == backend}
        assert set(zip(frame["result"], frame["event"], strict=True)) == expected
        assert frame["tail"].isin(["p95", "p99", "p95, p99"]).all()
        assert len(np.unique(report.samples.event[tail_events(report, 0.95)])) == both.tail_sizes[backend]
        assert f"{both.tail_sizes[backend]:,} events" in lost_text(both, backend)
    rows = list(csv.DictReader(io.StringIO(lost_csv(both))))
    assert len(rows) == len(both.lost_tail_events) > 0
    assert {r["backend"] for r in rows} <= {r.backend.label for r in both.reports}


def test_a_backend_changes_curves_and_lost_events_together(both: Contrast) -> None:
    view = ContrastPanel(both)
    before = view.curves.table.object
    view.backend.value = "congested"
    assert view.curves.table.object != before
    assert "on congested" in str(view._lost_title.object)
    assert len(view._lost.value) == len(lost_frame(both, "congested"))


def test_the_difference_is_signed_and_large_ones_are_added_up(both: Contrast) -> None:
    difference = both.matrices[0]
    cells, width = blocks(difference)
    assert width == 1
    assert np.nansum(cells) == pytest.approx(difference.sum_bytes)
    assert (np.nan_to_num(cells) == difference.dense()).all()
    halves, width = blocks(difference, 2)
    assert (halves.shape, width) == ((2, 2), 2)
    assert np.nansum(halves) == pytest.approx(difference.sum_bytes)
    assert "missing" in difference_text(difference)
    assert both.matrices[1].is_zero
    assert "equal" in difference_text(both.matrices[1])
    assert "more than in the source" in difference_text(build_matrix(both.a.canary.trace) - build_matrix(both.source))


# -- ddmin ------------------------------------------------------------------------------------------------------------


def test_the_slider_shows_each_step(reduction: Reduction) -> None:
    told: list[int] = []
    view = DdminScrubber(reduction, on_step=told.append)
    assert view.step == max(i for i, s in enumerate(reduction.steps) if s.accepted)
    assert told == []
    last = len(reduction.steps) - 1
    for number in (0, 1, last // 2, last):
        view.slider.value = number
        step = reduction.steps[number]
        assert view._at.data["at"] == [number]
        assert f"{step.events:,} event" in str(view.text.object)
        assert str(view._decisions.object).count("✕ flips") == int((~step.held).sum())
        shown = sum(b - a for a, b in zip(view._strip.data["left"], view._strip.data["right"], strict=True))
        assert shown == pytest.approx(step.events)  # 252 events have a place each
    view.slider.value = 0
    view._jump(1)
    assert view.step == view.accepted[1]
    assert told == [view.accepted[1]]
    assert DdminScrubber(reduction, 3).step == 3
    assert DdminScrubber(reduction, 10**6).step == view.accepted[-1]


def test_a_step_in_words(reduction: Reduction) -> None:
    rejected = next(i for i, s in enumerate(reduction.steps) if not s.accepted)
    accepted = max(i for i, s in enumerate(reduction.steps) if s.accepted)
    assert "rejected" in step_text(reduction, rejected)
    assert "tail" not in step_text(reduction, rejected)  # it is not computed for rejected subsets
    assert "All 40 decisions hold" in step_text(reduction, accepted)
    assert "sets the 40 ranking decisions" in step_text(reduction, 0)
    broken = replace(reduction.steps[rejected], p50_error=np.nan, p99_error=np.nan)
    unknown = replace(reduction, steps=(*reduction.steps[:rejected], broken))
    assert "cannot be simulated" in step_text(unknown, rejected)
    assert DdminScrubber(unknown, rejected).step == rejected


def test_the_strip_of_a_long_trace_has_few_pieces(reduction: Reduction) -> None:
    step = replace(reduction.steps[0], kept=np.arange(0, 100_000, 2))
    left, _right, share = kept_share(step, 100_000)
    assert len(left) <= 400
    assert min(share) == max(share) == pytest.approx(0.5)
    whole = replace(step, kept=np.arange(1001))
    assert kept_share(whole, 1001) == ([0.0], [1001.0], [1.0])


def test_the_smallest_reductions_are_drawn(reduction: Reduction) -> None:
    one = lab.reduce(lab.samples.adversarial().take(slice(0, 1)))
    view = DdminScrubber(one)
    assert view.slider.disabled
    assert view.view.get_root() is not None


def test_the_ledger_csv_has_every_step(reduction: Reduction) -> None:
    rows = list(csv.DictReader(io.StringIO(ledger_csv(reduction))))
    assert len(rows) == len(reduction.steps)
    assert [int(r["events"]) for r in rows] == [s.events for s in reduction.steps]
    assert all((r["tail_recall"] == "") == (r["accepted"] == "False") for r in rows)


def test_decision_labels_are_escaped(reduction: Reduction) -> None:
    named = replace(reduction, decisions=tuple(f"{NASTY} / b: {label}" for label in reduction.decisions))
    assert "<img" not in decision_table(named, named.steps[0])


# -- search, frontier, methods ----------------------------------------------------------------------------------------


def test_the_scatter_has_every_distinct_candidate_once(found: Search) -> None:
    distinct = {c.sha256: c for c in found.candidates if c.status != "duplicate"}
    figure = search_figure(list(distinct.values()), {})
    drawn = glyphs(figure, "Scatter")
    assert sum(len(r.data_source.data["x"]) for r in drawn) == len(distinct)  # type: ignore[attr-defined]
    chosen = next(r for r in drawn if r.glyph.marker == "diamond")  # type: ignore[attr-defined]
    assert found.selected is not None
    assert chosen.data_source.data["x"] == [found.selected.size_bytes]  # type: ignore[attr-defined]
    for r in drawn:
        for y, error in zip(r.data_source.data["y"], r.data_source.data["error"], strict=True):  # type: ignore[attr-defined]
            assert (y < 0) == (error == "not simulated")
    frame = candidate_frame(found)
    assert len(frame) == len(found.candidates)
    assert frame["status"][0] == "selected"
    assert (frame["reason"] != "").all()
    assert json.loads(json.dumps(found.ledger()))["selected"] == found.selected.index


def test_the_frontier_falls_and_marks_what_the_search_chose(trace: Trace) -> None:
    result = lab.pareto(trace, range(2, 10))
    frame = frontier_frame(result)
    assert (np.diff(frame["canary_bytes"]) > 0).all()
    assert (np.diff(frame["worst_error"]) < 0).all()
    assert (frame["outcome"] == "chosen by the search").sum() == 1
    assert len(all_points(result)) == result.evaluated
    figure = pareto_figure(result)
    stairs = glyphs(figure, "Step")[0].data_source.data  # type: ignore[attr-defined]
    assert list(stairs["y"][:-1]) == [error_height(p.worst_error) for p in result.points]
    text = text_of(views.pareto(result))
    assert all(limit in text for limit in LIMITS)


def test_the_table_of_methods_has_every_status_in_words(trace: Trace, reduction: Reduction, found: Search) -> None:
    table = lab.compare_methods(trace, reduction=reduction, found=found)
    frame = methods_frame(table)
    assert list(frame["method"][:2]) == ["search", "ddmin"]
    for row, method in zip(frame.itertuples(), table.rows, strict=True):
        assert row.ranking == f"{method.ranking}, {method.decisions_kept}/{method.decisions_total}"
        assert (row.behavior, row.claim, row.error) == (method.behavior, method.claim, method.worst_error)
    assert frame["coverage"].isin(["full", "partial"]).all()
    refused = sum(r.claim == "refused" for r in table.rows)
    assert methods_text(table).endswith(f"{refused} of {len(table.rows)} rows are refused")
    assert len(list(csv.DictReader(io.StringIO(methods_csv(table))))) == len(table.rows)


def test_text_from_files_is_escaped() -> None:
    source = lab.samples.adversarial()
    n = len(source)
    named = replace(
        source,
        op=Coded.constant(n, NASTY),
        custom_op=np.ones(n, np.bool_),
        phase=Coded.constant(n, NASTY),
        groups=tuple(ProcessGroup(NASTY, g.members) for g in source.groups),
    )
    reduction, found = lab.reduce(named), lab.search(named, range(2, 4))
    result = lab.contrast(reduction, found, named, labels=(NASTY, "search"))
    for view in (views.contrast(result), views.ddmin(reduction), views.search(found)):
        assert "<img" not in text_of(view)
    assert "&lt;img" in text_of(views.contrast(result))
