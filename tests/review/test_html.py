"""The page: one file, no script, nothing from elsewhere, every text escaped, and what it draws is what was computed."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.review import Comparison, MeasuredComparison, Policy, compare, compare_measured, html_report
from commcanary_lab.review.charts import MAX_ROWS, Bar, Pair, Span, cumulative, deltas, nice_ticks, pairs, spans
from commcanary_lab.simulate.report import LatencySummary
from commcanary_lab.simulate.report_file import ReportFile
from tests.golden_traces import golden_trace
from tests.review.test_measured import measured

_VOID = {"meta", "br", "img", "link", "input", "hr"}


class _Checker(HTMLParser):
    """Every tag closes, and nothing runs or loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "embed", "link", "img", "foreignobject", "form")
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href", "xlink:href", "action")
            assert "javascript:" not in (value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def _check(page: str) -> str:
    checker = _Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        for element in ElementTree.fromstring(svg).iter():
            for name in ("x", "x1", "x2", "cx"):
                if name in element.attrib:
                    assert -0.1 <= float(element.attrib[name]) <= 760.1
    return " ".join(" ".join(checker.text).split())


def _reports() -> Comparison:
    trace = golden_trace("irr100")
    return compare(lab.simulate(trace), lab.simulate(trace, "congested"))


def _measured() -> MeasuredComparison:
    return compare_measured(measured(seed=1), measured((1, 1.3, 0.7, 1.08), seed=2))


def test_a_page_of_two_reports() -> None:
    found = _reports()
    page = html_report(found, names=("before.json", "after.json"))
    text = _check(page)
    assert page.count("<svg") == 4  # quantiles, distribution, phases, operations
    assert text.index("Fail") < text.index("p99 +153.7 %") < text.index("Why") < text.index("Policy")
    for reason in found.reasons:
        assert reason in text
    for e in found.evaluations:
        assert f"{e.candidate:,.3f}" in text
    for words in (
        "before.json",
        "after.json",
        "modelled, not measured",
        "commcanary-v4",
        found.base.workload_sha256,
        "22 of 22 values fail",
    ):
        assert words in text
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page


def test_a_page_without_samples_has_no_distribution() -> None:
    trace = golden_trace("irr100")
    a, b = (replace(ReportFile.of(lab.simulate(trace, x)), exposed_us=None) for x in ("baseline", "congested"))
    page = html_report(compare(a, b))
    assert "Distribution" not in _check(page)
    assert page.count("<svg") == 3


def test_a_page_of_two_measured_traces() -> None:
    found = _measured()
    text = _check(html_report(found))
    assert "all_gather 4.00 MiB on tp" in text
    assert "95 % intervals" in text
    for row in found.rows:
        assert row.reason in text


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&amp;<b>", "'\u202e"])
def test_every_text_is_escaped(text: str) -> None:
    trace = golden_trace("adv100")
    a, b = (ReportFile.of(lab.simulate(trace, x)) for x in ("baseline", "high_bandwidth"))
    part = {text: LatencySummary(1, 1.0, 1.0, 1.0, 1.0, 1.0)}
    slow = {text: LatencySummary(1, 9.0, 9.0, 9.0, 9.0, 9.0)}
    evil = [replace(r, by_op=p, by_phase=p, notes=(text,), backend=replace(r.backend, label=text)) for r, p in ((a, part), (b, slow))]
    page = html_report(compare(*evil), names=(text, text))
    assert text in _check(page).replace("\u202e", "\u202e")
    recorded = compare_measured(measured(seed=1, group=text), measured((1, 1.3, 1, 1), seed=2, group=text), Policy(measured_resamples=100))
    _check(html_report(replace(recorded, notes=(text,)), names=(text, text)))


def test_the_verdicts_of_all_kinds() -> None:
    trace = golden_trace("irr100")
    assert "Pass" in _check(html_report(compare(lab.simulate(trace), lab.simulate(trace))))
    warned = compare(lab.simulate(trace), lab.simulate(trace, "seed=8"), Policy(p99_threshold_pct=900), allow_incompatible=True)
    assert "incompatible in seed: 7 against 8" in _check(html_report(warned))
    empty = trace.take(slice(0, 0))
    _check(html_report(compare(lab.simulate(empty), lab.simulate(empty))))
    noisy = compare_measured(measured(seed=1, n=24, spread=2.0), measured(seed=2, n=24, spread=2.0))
    assert "Inconclusive" in _check(html_report(noisy))


def test_charts_stay_inside_their_frame() -> None:
    for chart in (
        pairs([Pair("a", 0.0, 0.0), Pair("b", 1e9, 1e-3, 2e9, "fail")], "us", "t"),
        deltas([Bar("x", -99.0), Bar("y", 4000.0, "fail"), Bar("z", None, "warn")], 15.0, "t"),
        deltas([Bar("x", 0.0)], 0.0, "t"),
        spans([Span(f"{i}", i * 3.0, -900.0 + i, 5000.0, "inconclusive") for i in range(60)], 8.0, "t"),
        spans([Span("far", 900.0, 850.0, 950.0, "regression"), *[Span(f"{i}", 0.1, -1.0, 1.0, "unchanged") for i in range(9)]], 8.0, "t"),
        cumulative(np.array([0.0]), np.array([0.0, 0.0]), "us", "t"),
        cumulative(np.linspace(0, 1e7, 5000), np.array([3.0]), "us", "t"),
    ):
        _check(f"<div>{chart}</div>")
    assert spans([Span(f"{i}", 1.0, 0.0, 2.0, "unchanged") for i in range(60)], 8.0, "t").count('class="dot') == MAX_ROWS


@pytest.mark.parametrize(("low", "high"), [(0.0, 1e-9), (-1.0, 1.0), (0.0, 123456.0), (-5e6, 3.0), (0.1, 0.2)])
def test_ticks_cover_the_range(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= 9
    assert ticks[0] <= low + 1e-6
    assert ticks[-1] >= high - 1e-6
