"""Minimise: what ddmin keeps and what behaviour search keeps, and why the first is a trap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.minimize import Contrast, Reduction, Search
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_bytes
from commcanary_lab.views.baseline_table import methods
from commcanary_lab.views.contrast_panel import contrast
from commcanary_lab.views.ddmin_scrubber import DdminScrubber
from commcanary_lab.views.import_coverage import notes_html
from commcanary_lab.views.markup import Figure, coverage_text, html, message, percent
from commcanary_lab.views.pareto_chart import pareto
from commcanary_lab.views.plot_frame import error_text
from commcanary_lab.views.search_scatter import search
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Workspace

from ..backend_choice import BackendControls, Protocol, Refresh, protocol
from ..deferred import Deferred, Progress, deferred
from ..gradual import Gradual
from ..minimisers import SEARCH, Asked, Comparison
from ..page import GAP, Built, PageSpec, Selection, head
from ..session import Session

__all__ = ["PAGE", "answer"]

#: Up to so many events both minimisers take a second or two, and start without being asked.
_AT_ONCE_EVENTS = 2_000
_BUDGET, _MOST_CALLS = 256, 20_000
#: Both sides, and the distributions.
_FIRST_CARDS = 2

_TABS = {"contrast": "Contrast", "ddmin": "ddmin", "search": "Search", "frontier": "Frontier", "methods": "All methods"}


@dataclass(frozen=True)
class Data:
    """What is asked of the open trace, the comparison where it is there already, or why there can be none."""

    asked: Asked
    comparison: Comparison | None
    why_not: str = ""


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Say what is asked, with the comparison where it was made before: it can take seconds, and nobody is to look at an empty page."""
    name = str(selection.trace)
    trace = workspace.trace(name)
    asked = Asked(workspace, name, trace, protocol(workspace, selection, trace), _budget(selection))
    if why_not := _why_not(trace, asked.protocol):
        return Data(asked, None, why_not)
    return Data(asked, asked.comparison(Progress()) if asked.known else None)


def _budget(selection: Selection) -> int:
    text = selection.option("budget", "")
    return int(text) if text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_CALLS else _BUDGET


def _why_not(trace: Trace, asked: Protocol) -> str:
    if not len(trace):
        return "The trace has no event with a known size and members, so there is nothing to minimise."
    if len(asked.chosen) < 2:
        return "One backend ranks nothing. Choose at least two at the left."
    return asked.why_not


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    return _Page(data, session).built


class _Page:
    """The page; its controls stay while its content follows them."""

    def __init__(self, data: Data, session: Session) -> None:
        self.session, self.data = session, data
        self.top = html("")
        self.body = pn.Column(sizing_mode="stretch_width", margin=0)
        self._refresh = Refresh(session, gather, self.show, self._fail)
        backends = BackendControls(session, data.asked.protocol, self._refresh)
        budget = pmui.IntInput(
            label=f"Oracle calls of ddmin (1 to {_MOST_CALLS:,})", value=data.asked.budget, start=1, end=_MOST_CALLS, size="small",
            variant="outlined", sizing_mode="stretch_width", margin=(6, 0, 0, 0),
        )  # fmt: skip
        budget.param.watch(self._budgeted, "value")
        self.show(data)
        notes = notes_html(data.asked.trace.notes, ())
        self.built = Built([self.top, self.body, *([paper(html(notes))] if notes else [])], [*backends.view, budget])

    def _budgeted(self, event: Any) -> None:
        if event.new is not None and 1 <= event.new <= _MOST_CALLS:
            self.session.choose("budget", *((str(event.new),) if event.new != _BUDGET else ()))
            self._refresh()

    def show(self, data: Data) -> None:
        """Show what there is, in place."""
        self.data = data
        if data.comparison is not None:
            self.body[:] = [self._compared(data.asked, data.comparison)]
            return
        self._head("<b>ddmin and behaviour search are not compared yet</b> for this trace.", [])
        if data.why_not:
            self.body[:] = [html(message("Nothing to compare", data.why_not, "warn"))]
            return
        asked = data.asked
        part = deferred(
            self.session, f"minimised {asked.key}", f"ddmin against behaviour search, {len(asked.trace):,} events",
            f"Above {_AT_ONCE_EVENTS:,} events this takes a while: ddmin asks up to {asked.budget:,} times whether a part still ranks the "
            "backends alike, and the search compiles and simulates a canary for each timing budget. It runs in the background.",
            "Compare them", asked.comparison, lambda both: self._compared(asked, both),
        )  # fmt: skip
        self.body[:] = [part.view]
        if len(asked.trace) <= _AT_ONCE_EVENTS:
            part.start()

    def _fail(self, text: str) -> None:
        self._head("<b>ddmin and behaviour search are not compared</b>.", [])
        self.body[:] = [html(message("Nothing to compare", text, "err"))]

    def _head(self, text: str, figures: list[Figure]) -> None:
        asked = self.data.asked
        crumb = f"{asked.name} · {asked.trace.source_format} · {coverage_text(asked.trace.coverage)}"
        given = figures or [
            Figure("Events", f"{len(asked.trace):,}", coverage_text(asked.trace.coverage)),
            Figure("Source", format_bytes(canonical_size(asked.trace)), "normalised trace, canonical JSON, counted"),
            Figure("Backends", f"{len(asked.protocol.chosen):,}", "model; their rankings are what ddmin keeps"),
        ]
        self.top.object = head(crumb, text, given).object

    def _compared(self, asked: Asked, both: Comparison) -> Any:
        if asked.key == self.data.asked.key:  # else the controls have changed since this was started
            self._tell(asked, both)
        return _Tabs(self.session, asked, both).view

    def _tell(self, asked: Asked, both: Comparison) -> None:
        text = answer(both.reduction, both.search, both.contrast, assumed=bool(asked.protocol.assume))
        self._head(text, _figures(both, asked.protocol.origin))


class _Tabs:
    """The sub-tabs; each is made when it is opened first."""

    def __init__(self, session: Session, asked: Asked, both: Comparison) -> None:
        self.session, self.asked, self.both = session, asked, both
        given = session.selection.option("view", "contrast")
        active = list(_TABS).index(given) if given in _TABS else 0
        # a tab that was opened stays: hiding it costs nothing, and drawing figures anew while they are drawn upsets the browser
        self._parts = {name: pn.Column(sizing_mode="stretch_width", margin=(16, 0, 0, 0), visible=False) for name in _TABS}
        self.tabs = pmui.TabMenu(
            items=[{"label": title} for title in _TABS.values()], active=active, margin=0, sizing_mode="stretch_width",
            sx={"borderBottom": "1px solid var(--mui-palette-divider)"},
        )  # fmt: skip
        self._open(active)
        self.tabs.param.watch(self._changed, "active")
        self.view = pn.Column(self.tabs, *self._parts.values(), sizing_mode="stretch_width", margin=0)

    def _changed(self, event: Any) -> None:
        if event.new is None or not 0 <= event.new < len(_TABS):
            return
        name = list(_TABS)[event.new]
        self.session.choose("view", *((name,) if name != "contrast" else ()))
        self._open(event.new)

    def _open(self, number: int) -> None:
        opened = list(_TABS)[number]
        for name, part in self._parts.items():
            part.visible = name == opened
        if not len(self._parts[opened]):
            self._parts[opened][:] = [getattr(self, f"_{opened}")()]

    def _contrast(self) -> Any:
        cards = Gradual(GAP, sizing_mode="stretch_width", margin=0)
        cards.show(contrast(self.both.contrast).objects, _FIRST_CARDS)
        return cards.view

    def _ddmin(self) -> Any:
        text = self.session.selection.option("step", "")
        step = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
        return DdminScrubber(self.both.reduction, step, lambda n: self.session.choose("step", str(n))).view

    def _search(self) -> Any:
        return search(self.both.search)

    def _frontier(self) -> Any:
        return self._later(
            "frontier", "Frontier of bytes against behaviour", "Every candidate of the search is simulated, not only the smallest ones.",
            self.asked.frontier, pareto,
        )  # fmt: skip

    def _methods(self) -> Any:
        return self._later(
            "methods", "All methods on this trace", "Each baseline keeps as many events as ddmin and as the search's canary has records.",
            lambda progress: self.asked.methods(self.both, progress), methods,
        )  # fmt: skip

    def _later(self, what: str, title: str, text: str, work: Any, show: Any) -> Any:
        part: Deferred = deferred(self.session, f"{what} {self.asked.key}", title, text, "Compute it", work, show)
        part.start()
        return part.view


def answer(reduction: Reduction, found: Search, result: Contrast, *, assumed: bool = False) -> str:
    """Return one sentence on what both minimisers keep and lose."""
    kept, total = reduction.decisions_kept, reduction.decisions_total
    rankings = f"all {total} rankings" if kept == total else f"{kept} of {total} rankings"
    lost = len(result.lost(result.a.label))
    tail = result.tail_total
    if not tail:
        loss = "there is no tail to compare"
    elif not lost:
        loss = "loses <b>nothing of the tail</b>"
    else:
        loss = f"loses <b>{'all' if lost == tail else percent(lost / tail)} of the tail</b>"
    short = " when its budget ends" if reduction.stopped == "budget" else ""
    first = f"<b>ddmin</b> keeps {reduction.events_after:,} of {reduction.events_before:,} events{short} and {rankings}, and {loss}"
    if result.a.verification.passed and not lost:
        first += "; behaviour verification has nothing against it"
    return f"{first}; <b>{SEARCH}</b> {_search_words(found)}{', on assumed values' if assumed else ''}."


def _search_words(found: Search) -> str:
    if found.canary is None or found.verification is None:
        return "found no canary"
    size = found.canary.size_bytes
    words = f"{size:,} B" if size < 10_000 else format_bytes(size)
    failed = len(found.verification.failures)
    checks = len(found.verification.checks)
    if not failed:
        return f"keeps <b>every check</b> in <b>{words}</b>"
    return f"fails {failed:,} of {checks:,} checks in <b>{words}</b>"


def _figures(both: Comparison, origin: str) -> list[Figure]:
    r, s, c = both.reduction, both.search, both.contrast
    lost, kept = len(c.lost(c.a.label)), len(c.lost(c.b.label))
    total = c.tail_total
    size = canonical_size(r.source)
    out = [
        Figure(
            "ddmin keeps",
            f"{r.events_after:,} event{'s' * (r.events_after != 1)}",
            f"of {r.events_before:,}; {r.oracle_calls:,} oracle calls",
        ),
        Figure(
            "ddmin loses",
            percent(lost / total).replace("\u00a0", " ") if total else "no tail",
            f"{lost:,} of {total:,} tail events, {origin}",
        ),
        Figure(
            "ddmin, worst check",
            _multiple(c.a.worst_error),
            f"{len(c.a.verification.failures):,} of {len(c.a.verification.checks):,} fail, {origin}",
        ),
    ]
    if s.canary is not None:
        share = f"of {format_bytes(size)}, canonical JSON"
        out.append(Figure("Search keeps all in", format_bytes(s.canary.size_bytes), share))
    lost_words = f"{kept:,} of {total:,} tail events lost, {origin}"
    out.append(Figure("Search, worst check", _multiple(c.b.worst_error), lost_words))
    return out


def _multiple(error: float) -> str:
    return "exact" if error == 0 else error_text(error).replace("\u00a0", " ")


PAGE = PageSpec("minimise", "Minimise", "trace", gather, build)
