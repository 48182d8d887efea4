"""What a notebook shows for each result: as HTML of its own, and as a figure. Text from files never becomes markup."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab import views
from commcanary_lab._shown import Shown
from commcanary_lab.review.history import history
from commcanary_lab.simulate import DEFAULT_BACKENDS
from commcanary_lab.trace import Coded, Column, ImportCoverage, ProcessGroup, Ragged, Trace, UnsizedRow
from commcanary_lab.traffic import Placement, compare_sources, infer_layout, search_placement
from commcanary_lab.views.result_figure import FIGURES

NASTY = "<img src=x onerror=alert(1)>\"'&</td></table></script><script>alert(2)</script>"
BACKENDS = tuple(replace(b, label=f"{NASTY}{i}") for i, b in enumerate(DEFAULT_BACKENDS[:2]))

#: Elements and attributes that a result may write; everything else came in from a name.
ELEMENTS = frozenset(
    ["div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre", "details", "summary", "span", "i", "code", "small"]
)
ATTRIBUTES = frozenset(["style", "class", "title", "role", "aria-label", "aria-hidden", "tabindex", "scope", "open", "data-testid"])


@cache
def hostile() -> Trace:
    """48 events of four ranks; every name is an attempt."""
    n = 48
    return Trace.build(
        n,
        op=Coded.from_optional(["all_reduce"] * 24 + [NASTY] * 24),
        custom_op=np.repeat([False, True], 24),
        dtype=Coded.constant(n, NASTY),
        phase=Coded.constant(n, NASTY),
        groups=(ProcessGroup(NASTY, (0, 1, 2, 3)), ProcessGroup(NASTY + "2", (0, 2))),
        group=np.array([0, 1] * 24, np.int32),
        size_bytes=np.full(n, 1 << 16),
        gap_ns=Column(np.full(n, 40_000)),
        overlap_ns=Column(np.zeros(n, np.int64)),
        duration_ns=Ragged.from_lengths(np.arange(6 * n // 2) * 50 + 9_000, np.array([4, 2] * 24)),
        arrival_ns=Ragged.from_lengths(np.zeros(6 * n // 2, np.int64), np.array([4, 2] * 24)),
        arrival_known=np.ones(n, np.bool_),
        source_format=NASTY,
        workload={NASTY: NASTY},
        coverage=ImportCoverage(read=9, used=8, skipped={NASTY: 1}, files=(NASTY,)),
        notes=(NASTY,),
        warnings=(NASTY,),
        unsized=(UnsizedRow(NASTY, 5_000, NASTY),),
    )


@cache
def results() -> dict[str, Any]:
    """One result of each kind, made from the hostile trace."""
    t = hostile()
    reduction = lab.reduce(t, backends=BACKENDS)
    found = lab.search(t, range(1, 3), backends=BACKENDS)
    base, other = (lab.simulate(t, b) for b in BACKENDS)
    slow = replace(t, duration_ns=Ragged(t.duration_ns.values * 9, t.duration_ns.pointers))
    m = replace(lab.traffic(t), source=NASTY, notes=(NASTY,))
    canary = lab.compile(t)
    wrong = lab.verify(replace(t, gap_ns=Column(t.gap_ns.values + 1000)), canary, backends=BACKENDS)
    return {
        "Trace": t,
        "Canary": canary,
        "bounded Canary": lab.compile(t, records=1),
        "Report": base,
        "ablated Report": lab.simulate(t, BACKENDS[0], ablate=["pressure"]),
        "Verification": lab.verify(t, canary, backends=BACKENDS),
        "failed Verification": wrong,
        "TrafficMatrix": m,
        "FabricVerdict": lab.fabric(m, gpus_per_node=2),
        "SourceComparison": compare_sources({NASTY: m, "other": lab.traffic(t)}),
        "Comparison": lab.compare(base, other),
        "MeasuredComparison": lab.compare(t, slow),
        "History": history([(NASTY, base), ("next", base), ("last", other)]),
        "Reduction": reduction,
        "Search": found,
        "Contrast": lab.contrast(reduction, found, t, labels=(NASTY, "search"), backends=BACKENDS),
        "Frontier": lab.pareto(t, range(1, 3), backends=BACKENDS),
        "MethodTable": lab.compare_methods(t, records=range(1, 3), backends=BACKENDS, reduction=reduction, found=found),
        "AblationTable": lab.ablate(t, BACKENDS),
        "OperationTable": lab.ops(t),
    }


#: Results without a figure of their own: HTML only.
@cache
def tables() -> dict[str, Any]:
    """The other results that a notebook shows."""
    t, m = hostile(), results()["TrafficMatrix"]
    return {
        "stragglers": lab.stragglers(t),
        "iterations": lab.iterations(t),
        "overlap shares": lab.overlap_shares(t),
        "trace difference": lab.diff(t, replace(t, phase=Coded.constant(len(t), "other"))),
        "traffic difference": m - lab.traffic(t),
        "diagnosis": lab.diagnose(m, gpus_per_node=2),
        "layout": infer_layout(t, gpus_per_node=2),
        "placement": search_placement(m, Placement(2, {1: 2, 2: 1}), evaluations=20),
    }


#: Signs of a legend that the library draws, with what they may say: shapes and their place.
SHAPES = {"svg": {"width", "height", "viewbox"}, "circle": {"cx", "cy", "r"}, "rect": {"x", "y", "width", "height"}, "path": {"d"}}
SHAPE_STYLE = {"fill", "stroke", "stroke-width"}


class _Markup(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"<{tag}>"] if tag not in {*ELEMENTS, *SHAPES} else []
        allowed = {*ATTRIBUTES, *(SHAPES[tag] | SHAPE_STYLE if tag in SHAPES else ())}
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name not in allowed or "url(" in (value or "")]

    def handle_data(self, data: str) -> None:
        self.text += data


def intruders(markup: str) -> tuple[list[str], str]:
    """Elements and attributes that no result writes, and the visible text."""
    parser = _Markup()
    parser.feed(markup)
    parser.close()
    return parser.found, parser.text


KINDS = ("Trace", "Canary", "bounded Canary", "Report", "ablated Report", "Verification", "failed Verification", "TrafficMatrix",
         "FabricVerdict", "SourceComparison", "Comparison", "MeasuredComparison", "History", "Reduction", "Search", "Contrast",
         "Frontier", "MethodTable", "AblationTable", "OperationTable")  # fmt: skip
TABLES = ("stragglers", "iterations", "overlap shares", "trace difference", "traffic difference", "diagnosis", "layout", "placement")

#: Results in which a name from the source is visible as text: the attempt is shown, not swallowed.
NAMES_A_NAME = set(KINDS) - {"Reduction", "Search", "Frontier", "MethodTable"}


def test_the_checker_finds_what_it_should() -> None:
    assert intruders(f"<p>{NASTY}</p>")[0][:3] == ["<img>", "img src=x", "img onerror=alert(1)"]
    assert intruders('<p onclick="x">')[0] == ["p onclick=x"]
    assert intruders('<svg onload="x"><path href="y" d="M0 0"/></svg>')[0] == ["svg onload=x", "path href=y"]
    assert intruders("<b>1 &lt;img&gt;</b>") == ([], "1 <img>")


def test_every_kind_is_tried() -> None:
    assert set(results()) == set(KINDS) and set(tables()) == set(TABLES)
    shown = {f"{type(r).__module__}.{type(r).__qualname__}" for r in results().values()}
    assert all(path.startswith("commcanary_lab.replay.") for path in set(FIGURES) - shown)  # these need real processes: tests of replay


@pytest.mark.parametrize("kind", KINDS + TABLES)
def test_html_of_a_result_escapes_names(kind: str) -> None:
    found, text = intruders({**results(), **tables()}[kind]._repr_html_())
    assert not found
    assert text.strip()
    if kind in NAMES_A_NAME:
        assert "<img src=x onerror=alert(1)>" in text


@pytest.mark.parametrize("kind", KINDS)
def test_figure_of_a_result_escapes_names_and_renders(kind: str) -> None:
    pn = pytest.importorskip("panel")
    view = pn.panel(results()[kind])
    assert view.get_root() is not None
    panes = view.select(pn.pane.HTML)
    assert panes
    for pane in panes:
        assert not intruders(str(pane.object))[0], kind
    for pane in view.select(pn.widgets.Tabulator):  # cells are plain text, or written by a formatter of the library
        formatters = [f for f in pane.formatters.values() if isinstance(f, dict)]
        assert all(f["type"] not in ("html", "textarea", "image", "link") for f in formatters)


@pytest.mark.parametrize("kind", KINDS + TABLES)
def test_nothing_that_the_library_writes_is_fetched(kind: str) -> None:
    """Markup and style sheets name no address; what Panel itself loads is bundled where it is shown."""
    pn = pytest.importorskip("panel")
    result = {**results(), **tables()}[kind]
    written = [result._repr_html_()]
    if kind in KINDS:
        for pane in pn.panel(result).select(pn.viewable.Viewable):
            written += [sheet for sheet in pane.stylesheets if isinstance(sheet, str)]
            written += [pane.object] if isinstance(pane, pn.pane.HTML) else []
    for text in written:
        assert not re.search(r"https?:|url\(|@import|\bsrc=[^x]", text.replace(html.escape(NASTY), ""))


def test_classes_with_a_figure_are_those_that_say_so() -> None:
    for path, name in FIGURES.items():
        module, _, cls = path.rpartition(".")
        found = getattr(import_module(module), cls)
        assert name in views.__all__
        assert callable(found._repr_html_)
        assert issubclass(found, Shown)
    listed = {c for r in results().values() for c in [f"{type(r).__module__}.{type(r).__qualname__}"]}
    assert listed <= set(FIGURES)


def test_results_lay_out_in_panel_without_naming_a_view() -> None:
    pn = pytest.importorskip("panel")
    row = pn.Row(lab.compile(lab.samples.adversarial()), lab.simulate(lab.samples.adversarial()))
    text = " ".join(str(p.object) for p in row.select(pn.pane.HTML))
    assert "Program" in text and "Exposed latency on baseline" in text


def test_figure_of_something_else_is_refused() -> None:
    with pytest.raises(lab.errors.UsageError, match="no figure shows a dict"):  # type: ignore[attr-defined]
        views.figure({})


def test_a_report_says_what_it_is_made_of() -> None:
    report = lab.simulate(lab.samples.tp8_decode(), "congested", ablate=["arrival_skew"], assume={"skew_us": 0.0})
    _, text = intruders(report._repr_html_())
    for said in ("congested", "without arrival_skew", "a simulator control", "model: commcanary-v4", "prefill", "decode", "all_gather"):
        assert said in text
    assert f"{report.metrics['p99_us']:,.4g}"[:5] in text


def test_a_verification_shows_both_values_of_what_failed() -> None:
    check = results()["failed Verification"]
    _, text = intruders(check._repr_html_())
    assert "claim: refused" in text and f"{len(check.failures):,} of {len(check.checks):,} checks failed" in text
    first = check.failures[0]
    assert first.name in text and "gap_ns of record" in text
    good = intruders(results()["Verification"]._repr_html_())[1]
    assert "checks failed" not in good


@pytest.mark.parametrize("empty", [True, False])
def test_an_empty_trace_has_a_figure(empty: bool) -> None:
    pn = pytest.importorskip("panel")
    trace = lab.samples.adversarial().take(slice(0, 0 if empty else 1))
    for result in (trace, lab.compile(trace), lab.simulate(trace), lab.traffic(trace)):
        assert pn.panel(result).get_root() is not None
        assert not intruders(result._repr_html_())[0]


def test_html_needs_no_panel() -> None:
    """`_repr_html_` is the form without the extra: none of them may import a view."""
    makers: list[Callable[..., str]] = [type(r)._repr_html_ for r in {**results(), **tables()}.values()]
    for maker in makers:
        assert "views" not in inspect.getsource(maker)
