"""Comparisons on the screen: the verdict in words, limits where the policy has them, and no markup from files."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
import commcanary_lab.views as views
from commcanary_lab.review import Comparison, MeasuredComparison, Policy, compare, compare_measured
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.views.change_bars import ChangeBars, bar_of
from commcanary_lab.views.comparison_words import MAX_REASONS, answer, facts, figures, reasons_html
from commcanary_lab.views.interval_chart import MAX_ROWS, IntervalChart, row_labels
from tests.review.test_measured import measured
from tests.views.test_views import NASTY, text_of

pytest.importorskip("panel")

from commcanary_lab.views.comparison_view import view_of


def plain(markup: str) -> str:
    """The words of a piece of HTML."""
    return re.sub(r"<[^>]+>", "", markup)


@pytest.fixture(scope="module")
def sides() -> dict[str, ReportFile]:
    trace = lab.samples.tp8_decode()
    return {b: ReportFile.of(lab.simulate(trace, b)) for b in ("baseline", "low_latency", "congested", "overlap_friendly")}


@pytest.fixture(scope="module")
def failed(sides: dict[str, ReportFile]) -> Comparison:
    return compare(sides["baseline"], sides["congested"])


@pytest.fixture(scope="module")
def slower() -> MeasuredComparison:
    return compare_measured(measured(seed=1), measured((1, 1.3, 0.75, 1.085), seed=2))


def test_each_verdict_is_a_plain_sentence(sides: dict[str, ReportFile], failed: Comparison) -> None:
    words = plain(answer(failed))
    assert words.startswith("FailThe candidate is slower than the policy allows: the slowest 1 % of the collectives")
    assert "became 121.5 % slower, 329 us to 728 us; the policy allows 15 %." in words
    assert words.endswith("All of the added 399 us comes from prefill all_reduce.")
    warned = plain(answer(compare(sides["baseline"], sides["overlap_friendly"])))
    assert warned.startswith("WarningThe candidate stays within the policy, but close to it: the typical collective")
    assert "more than 50 % of what the policy allows (8 %)" in warned
    faster = plain(answer(compare(sides["baseline"], sides["low_latency"])))
    assert faster.startswith("PassThe candidate is at least as fast as the baseline: the slowest 1 %")
    same = plain(answer(compare(sides["baseline"], sides["baseline"])))
    assert same.startswith("PassThe candidate is exactly as fast as the baseline")
    names = ("p99_threshold_pct", "p95_threshold_pct", "median_threshold_pct", "breakdown_threshold_pct")
    within = plain(answer(compare(sides["baseline"], sides["congested"], Policy(**dict.fromkeys(names, 1e3)))))
    assert within.startswith("PassThe candidate is not slower than the policy allows")
    assert "The policy allows 1000 %." in within


def test_the_limit_that_decides_is_the_one_that_is_named(sides: dict[str, ReportFile]) -> None:
    """A latency must exceed both its share and its time: where the time is the larger one, the sentence says it."""
    policy = Policy(p99_threshold_pct=1, p99_absolute_threshold_us=100)
    assert "the policy allows 100 us." in plain(answer(compare(sides["baseline"], sides["congested"], policy)))


def test_the_cause_is_that_of_the_leading_value(sides: dict[str, ReportFile]) -> None:
    """Most of the added time may be in another part than what makes the tail longer; that time is only said of reports without samples."""
    a, b = sides["baseline"], sides["congested"]
    part = Policy(p99_threshold_pct=1e3, p95_threshold_pct=1e3, breakdown_threshold_pct=1e3)  # the median leads
    assert plain(answer(compare(a, b, part))).endswith("All of the added 10.3 us comes from decode all_reduce.")
    bare = [replace(r, exposed_us=None) for r in (a, b)]
    words = plain(answer(compare(bare[0], bare[1])))
    assert words.endswith("56\xa0% of the exposed time that was added to all events together is in phase decode.")


def test_hidden_share_and_missing_parts_have_their_sentences(sides: dict[str, ReportFile]) -> None:
    a = sides["baseline"]
    b = replace(a, metrics={**a.metrics, "communication_hidden_pct": 0.0})
    hidden = plain(answer(compare(a, b, Policy(hidden_drop_threshold_points=1))))
    assert f"compute hides {a.metrics['communication_hidden_pct']:.1f} points less of the communication, 0.0 % instead of" in hidden
    gone = replace(a, by_phase={k: v for k, v in a.by_phase.items() if k != "prefill"})
    assert "phase prefill is missing from the candidate" in plain(answer(compare(a, gone)))
    other = replace(a, workload_sha256="0" * 64)
    allowed = plain(answer(compare(a, other, allow_incompatible=True)))
    assert allowed.startswith("WarningThe reports do not describe the same work, which was allowed")


def test_measured_verdicts(slower: MeasuredComparison) -> None:
    words = plain(answer(slower))
    assert words.startswith("Fail1 of 4 operations became slower than the policy allows; the most important is all_gather 4.00 MiB on tp")
    noisy = compare_measured(measured(seed=1, n=48, spread=1.5), measured((1.2,) * 4, seed=2, n=48, spread=1.5))
    assert plain(answer(noisy)).startswith("InconclusiveThese recordings cannot decide it: the medians of 4 of 4 operations")
    good = plain(answer(compare_measured(measured(seed=1), measured((1, 1, 0.75, 1), seed=2))))
    assert good == "PassNo operation became slower than the policy allows, of 4 operations measured in both traces; 1 became faster."
    assert [f.value for f in figures(slower)] == ["1 of 4", "1 of 4", "1 of 4", "1 of 4"]


def test_marks_stand_where_the_policy_decides(failed: Comparison) -> None:
    """On either side of the mark the result differs: the chart says what the evaluation says."""
    e = next(e for e in failed.evaluations if e.key == "p99_pct")
    assert e.baseline is not None
    for floor_us in (0.0, 1.0, 40.0, 80.0):
        limit = bar_of(compare(failed.base, failed.candidate, Policy(p99_absolute_threshold_us=floor_us)).evaluations[2], 0.5).limit
        assert limit is not None
        for off, expected in ((-0.01, False), (0.01, True)):
            metrics = {**failed.base.metrics, "p99_us": round(e.baseline * (1 + (limit + off) / 100), 3)}
            moved = compare(failed.base, replace(failed.base, metrics=metrics), Policy(p99_absolute_threshold_us=floor_us))
            assert (moved.evaluations[2].threshold_result == "fail") == expected


def test_bars_follow_the_policy_in_place(failed: Comparison) -> None:
    view = view_of(failed, ("a", "b"))
    bars = view._bars  # type: ignore[union-attr]
    figure = bars.figure
    assert bars._bars.data["color"][0] == "#c93a32"
    assert bars._limits.data["x"][0] == 15
    loose = compare(failed.base, failed.candidate, Policy(p99_threshold_pct=200))
    view.update(loose)  # type: ignore[arg-type]
    assert bars.figure is figure
    assert bars._limits.data["x"][0] == 200
    assert bars._bars.data["color"][0] == "#d3901a"
    assert list(bars._bars.data["words"]) == ["+121.5 %", "+21.4 %", "+39.0 %", "+2.3 points"]
    low, high = figure.x_range.start, figure.x_range.end
    assert low <= 0 < 200 < high


def test_a_far_limit_does_not_flatten_the_bars(failed: Comparison) -> None:
    bars = [bar_of(e, 0.5) for e in compare(failed.base, failed.candidate, Policy(p99_threshold_pct=1e6)).evaluations[:4]]
    assert ChangeBars(bars).figure.x_range.end < 1000


def test_the_measured_chart_keeps_its_frame_and_marks_what_is_open() -> None:
    found = compare_measured(measured(seed=1, n=48, spread=1.5), measured((1.2, 30, 1, 1), seed=2, n=48, spread=1.5))
    rows = [r for r in found.rows if r.metric == "median"]
    chart = IntervalChart(rows, 8.0)
    end = chart.figure.x_range.end
    assert len(chart._hollow.data["x"]) == sum(r.verdict == "inconclusive" for r in rows) > 0
    for source in (chart._dots, chart._hollow):
        assert all(abs(x) <= end for x in source.data["x"])
    assert all(-end <= x <= end for x in (*chart._lines.data["x0"], *chart._lines.data["x1"]))
    assert (chart._band.left, chart._band.right) == (-8.0, 8.0)
    many = IntervalChart(rows * 20, 8.0)
    assert len(many.labels) == MAX_ROWS


def test_groups_of_one_name_are_told_apart() -> None:
    gloo = lab.samples.gloo4()
    rows = [r for r in compare(gloo, gloo).rows if r.metric == "median"]
    assert len(set(row_labels(rows))) == len(rows)
    assert len({r.label for r in rows}) < len(rows)


def test_the_figures_render_for_notebooks(failed: Comparison, slower: MeasuredComparison) -> None:
    shown = views.comparison(failed, ("old", "new"))
    assert shown.get_root() is not None
    words = text_of(shown)
    for expected in (
        "old → new",
        "Change against the policy",
        "What changed by phase",
        "Distribution of the exposed latency",
        "4 of 13 properties",
    ):
        assert expected in words, expected
    shown = views.comparison(slower)
    assert shown.get_root() is not None
    assert "Change of each operation" in text_of(shown)
    assert "Distribution of all_gather 4.00 MiB on tp" in text_of(shown)  # the regression, though another takes longer
    bare = replace(failed.base, exposed_us=None)
    assert "hold no samples" in text_of(views.comparison(compare(bare, bare)))


def test_the_table_holds_every_value_failures_first(failed: Comparison, slower: MeasuredComparison) -> None:
    view = view_of(failed)
    frame = view._values._table.value  # type: ignore[union-attr]
    assert len(frame) == len(failed.evaluations)
    assert list(frame["result"]) == sorted(frame["result"], key=("fail", "warn", "pass").index)
    table: Any = view_of(slower)._table  # type: ignore[union-attr]
    assert len(table.value) == len(slower.rows)
    assert table.value["verdict"].iloc[0] == "regression"


def test_a_click_shows_the_distribution_of_that_row(slower: MeasuredComparison) -> None:
    from commcanary_lab.views.measured_view import _ordered

    view: Any = view_of(slower)
    last = _ordered(slower)[-1]
    view._curves_at(last)
    assert row_labels(slower.rows)[last] in text_of(view.cards[2])
    before = slower.samples[last][0]
    assert float(max(view._curves._before.data["x"])) == pytest.approx(float(np.max(before)))


def test_text_from_files_is_escaped(failed: Comparison) -> None:
    def named(r: ReportFile) -> ReportFile:
        phases = {NASTY if k == "decode" else k: v for k, v in r.by_phase.items()}
        return replace(r, by_phase=phases, notes=(NASTY,), backend=replace(r.backend, label=NASTY))

    found = compare(named(failed.base), named(failed.candidate))
    text = text_of(views.comparison(found, (NASTY, NASTY)))
    assert "<img" not in text
    assert "&lt;img" in text
    assert "<img" not in answer(found) + reasons_html(found.reasons)
    evil = compare_measured(measured(seed=1, group=NASTY), measured((2, 1, 1, 1), seed=2, group=NASTY))
    assert "<img" not in text_of(views.comparison(evil, (NASTY, NASTY))) + answer(evil) + facts(evil)


def test_long_reasons_are_counted() -> None:
    listed = reasons_html([f"reason {i}" for i in range(MAX_REASONS + 5)])
    assert listed.count("<li") == MAX_REASONS + 1
    assert "5 more" in listed
