"""Rankings of backends, and the matrix of a verification."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from commcanary_lab import views
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.model import Verification
from commcanary_lab.verify.run import verify_canary
from commcanary_lab.views.ranked_pairs import METRIC_WORDS, RankedPair, ranked_pairs, ranking_csv, telling_metric
from commcanary_lab.views.ranking_matrix import RankingView, matrices_html, order_html
from commcanary_lab.views.verification_matrix import WHOLE, check_rows

pytest.importorskip("panel")

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture(scope="module")
def gloo() -> Trace:
    return read_json(SAMPLES / "gloo4.json")


@pytest.fixture(scope="module")
def check(gloo: Trace) -> Verification:
    return verify_canary(gloo, compile_trace(gloo, records=2))


def reports(trace: Trace) -> list[Report]:
    prepared = prepare(trace)
    return [simulate_prepared(prepared, b) for b in DEFAULT_BACKENDS]


def text_of(view: object) -> str:
    import panel as pn

    return " ".join(str(p.object) for p in view.select(pn.pane.HTML))  # type: ignore[attr-defined]


def test_a_verification_and_its_reports_give_the_same_pairs(gloo: Trace, check: Verification) -> None:
    pairs = ranked_pairs(check)
    assert pairs == ranked_pairs(reports(gloo), reports(compile_trace(gloo, records=2).trace))
    assert len(pairs) == 40
    assert sum(p.agrees is True for p in pairs) == check.decisions_kept
    assert 0 < check.decisions_kept < 40


def test_without_a_canary_nothing_agrees_or_differs(gloo: Trace) -> None:
    pairs = ranked_pairs(reports(gloo))
    assert {p.agrees for p in pairs} == {None}
    text = matrices_html(pairs, "p99_us", "model", None)
    assert "Canary" not in text
    assert "decided differently" not in text
    assert text.count('class="grid"') == 1


def test_different_backends_are_refused(gloo: Trace) -> None:
    both = reports(gloo)
    with pytest.raises(UsageError, match="different backends"):
        ranked_pairs(both, both[:-1])


def test_both_matrices_mark_what_differs_and_only_that(check: Verification) -> None:
    pairs = ranked_pairs(check)
    metric = telling_metric(pairs)
    different = [p for p in pairs if p.metric == metric and p.agrees is False]
    text = matrices_html(pairs, metric, "model", None)
    assert different
    assert len(re.findall(r'<td class="[^"]*\bdiffers\b', text)) == 4 * len(different)  # both sides, above and below the diagonal
    assert text.count('class="grid"') == 2
    same = next(m for m in METRIC_WORDS if all(p.agrees for p in pairs if p.metric == m))
    assert not re.search(r'<td class="[^"]*\bdiffers\b', matrices_html(pairs, same, "model", None))


def test_a_cell_says_how_the_row_compares_and_all_values_under_the_pointer() -> None:
    pair = RankedPair("a", "b", "p99_us", "left", "right", 80.0, 100.0, 110.0, 100.0)
    text = matrices_html([pair], "p99_us", "model", None)
    cells = re.findall(r"<td[^>]*tabindex[^>]*>([^<]*)<", text)
    assert [c.replace("\u00a0", " ") for c in cells] == ["−20.0 %", "+25.0 %", "+10.0 %", "−9.09 %"]
    for value in ("80.000 us", "100.000 us", "110.000 us", "a is faster", "b is faster"):
        assert value in text


def test_ties_are_shown_as_ties() -> None:
    pairs = [RankedPair("a", "b", "mean_us", "tie", "left", 5.0, 5.0, 4.0, 5.0)]
    text = matrices_html(pairs, "mean_us", "model", None)
    assert len(re.findall(r'<td class="[^"]*\btie\b[^"]*"[^>]*>=', text)) == 2
    assert 'a <span class="muted">5.00 us</span></span> = <span' in order_html(pairs, "model", None)


def test_the_order_is_that_of_the_metric(gloo: Trace) -> None:
    ours = reports(gloo)
    text = order_html(ranked_pairs(ours), "model", gloo.coverage)
    row = re.search(r"p95</span></td><td>(.*?)</td>", text)
    assert row is not None
    named = re.findall(r'nowrap">(\w+) <span', row[1])
    assert named == [r.backend.label for r in sorted(ours, key=lambda r: r.metrics["p95_us"])]


def test_the_figure_renders_with_badges_and_downloads_everything(gloo: Trace, check: Verification) -> None:
    view = views.ranking(check, metric="median_us", coverage=gloo.coverage)
    assert view.get_root() is not None
    text = text_of(view)
    assert 'class="b model"' in text
    assert "all 528 source records" in text
    rows = list(csv.DictReader(io.StringIO(ranking_csv(ranked_pairs(check)))))
    assert len(rows) == 40
    assert {r["agrees"] for r in rows} == {"True", "False"}
    with pytest.raises(UsageError, match="decides no ranking"):
        views.ranking(check, metric="max_us")


def test_differing_decisions_come_first_in_the_table(check: Verification) -> None:
    view = RankingView(ranked_pairs(check))
    outcomes = view._table.value["outcome"].tolist()
    assert outcomes == sorted(outcomes, key=lambda o: o != "differs")
    assert outcomes[0] == "differs"


def test_names_of_backends_are_escaped(gloo: Trace) -> None:
    names = ("<img src=x>", "b")
    prepared = prepare(gloo)
    pairs = ranked_pairs([simulate_prepared(prepared, Backend(n, latency_floor_us=5.0 + i)) for i, n in enumerate(names)])
    for text in (matrices_html(pairs, "p99_us", "model", None), order_html(pairs, "model", None)):
        assert "<img" not in text
        assert "&lt;img" in text


def test_every_check_stands_in_the_matrix(check: Verification) -> None:
    rows = check_rows(check)
    whole = [c for r in rows for c in r.cells.get(WHOLE, ())]
    assert whole == [c for c in check.checks if c.backend is None]
    for backend in check.backends:
        mine = {id(c) for r in rows for c in r.cells.get(backend, ())}
        assert mine == {id(c) for c in check.checks if c.backend is not None and backend in c.backend.split(" / ")}


def test_the_verification_shows_failures_and_what_is_not_applicable(gloo: Trace, check: Verification) -> None:
    text = text_of(views.verification(check, coverage=gloo.coverage))
    assert 'class="b model"' in text
    assert "all 528 source records" in text
    failing = [(r, b) for r in check_rows(check) for b, cells in r.cells.items() if not all(c.passed for c in cells)]
    assert len(re.findall(r'<td class="fail', text)) == len(failing) > 0
    total = len(check_rows(check)) * (1 + len(check.backends))
    assert len(re.findall(r'<td class="(?:fail|pass)', text)) == sum(len(r.cells) for r in check_rows(check))
    assert len(re.findall(r'<td class="none ', text)) == total - sum(len(r.cells) for r in check_rows(check))
    kept = next(c for c in check.checks if c.name == "exposed p99_us")
    assert f"{kept.source:,.6g} → {kept.canary:,.6g}" in text


def test_a_lossless_canary_passes_everywhere(gloo: Trace) -> None:
    text = text_of(views.verification(verify_canary(gloo, compile_trace(gloo))))
    assert not re.search(r'<td class="fail', text)
