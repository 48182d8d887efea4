"""Ablation: which preserved mechanism decides, shown by removing each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.simulate.ablation import AblationRow, AblationTable, ablate
from commcanary_lab.simulate.backend import ABLATIONS
from commcanary_lab.trace.model import Trace
from commcanary_lab.views.ablation_chart import AblationView, metrics_of, telling_metric
from commcanary_lab.views.ablation_words import MECHANISM_WORDS, metric_phrase, metric_words, signed, unit_of
from commcanary_lab.views.import_coverage import notes_html
from commcanary_lab.views.markup import Figure, html, message
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Workspace

from ..backend_choice import BackendControls, Protocol, Refresh, protocol
from ..page import Built, PageSpec, Selection, head
from ..session import Session, sidebar_label

__all__ = ["PAGE"]

_DEFAULT_METRIC = "p99_us"


@dataclass(frozen=True)
class Data:
    """The ablation of the open trace, or why there is none."""

    name: str
    trace: Trace
    protocol: Protocol
    result: AblationTable | None
    why_not: str = ""


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Remove every mechanism in turn on the chosen backends."""
    name = str(selection.trace)
    trace = workspace.trace(name)
    asked = protocol(workspace, selection, trace)
    if asked.why_not:
        return Data(name, trace, asked, None, asked.why_not)
    if not asked.chosen:
        return Data(name, trace, asked, None, "No backend is chosen. Choose at least one at the left, two to see which rankings flip.")
    result = workspace.derived(name, f"ablation {asked.key}", lambda: ablate(trace, asked.chosen, assume=asked.assume))
    return Data(name, trace, asked, result)


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    return _Page(data, session).built


class _Page:
    """The page; its controls stay while its content follows them."""

    def __init__(self, data: Data, session: Session) -> None:
        self.session, self.data = session, data
        self.view: AblationView | None = None
        self.top, self.hint = html(""), html("", visible=False)
        self.cards = pn.Column(sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})
        self._filling = False
        wide = {"size": "small", "sizing_mode": "stretch_width"}
        self.metric = pmui.Select(label="Metric", options={}, variant="outlined", margin=(0, 0, 12, 0), **wide)
        self.scale = pmui.RadioButtonGroup(label="", options={"Logarithmic": True, "Linear": False}, value=True, margin=0, **wide)
        refresh = Refresh(session, gather, self.show, self.fail)
        backends = BackendControls(session, data.protocol, refresh)
        self.show(data)
        self.metric.param.watch(self._metric, "value")
        self.scale.param.watch(self._scale, "value")
        controls = [*backends.view, self.metric, sidebar_label("Axis of changes"), self.scale]
        notes = notes_html(data.trace.notes, ())
        self.built = Built([self.top, self.hint, self.cards, *([paper(html(notes))] if notes else [])], controls)

    def show(self, data: Data) -> None:
        """Show a result in place."""
        self.data = data
        if data.result is None:
            self.fail(data.why_not)
            return
        metrics = metrics_of(data.result)
        asked = self.session.selection.option("metric", "")
        metric = asked if asked in metrics else telling_metric(data.result, _DEFAULT_METRIC)
        log = {"log": True, "linear": False}.get(self.session.selection.option("axis", ""))
        if self.view is None:
            self.view = AblationView(data.result, metric=metric, log=log, coverage=data.trace.coverage)
            self.cards[:] = [self.view.chart_card, self.view.table_card, self.view.flips_card]
        else:
            self.view.show(data.result, metric, log=log)
        self._fill({metric_words(m): m for m in metrics}, metric)
        self._top()
        self.hint.visible, self.cards.visible = False, True

    def fail(self, text: str) -> None:
        """Say why there is nothing to see."""
        self.top.object = head(
            _crumb(self.data), "<b>No ablation</b> of this trace yet.", _figures(self.data, None, _DEFAULT_METRIC)
        ).object
        self.hint.object = f'<div class="cl">{message("Nothing to show", text, "warn")}</div>'
        self.hint.visible, self.cards.visible = True, False

    def _top(self) -> None:
        assert self.view is not None
        result, metric = self.view.result, self.view.metric
        self.top.object = head(_crumb(self.data), answer(result, metric), _figures(self.data, result, metric)).object

    def _fill(self, metrics: dict[str, str], metric: str) -> None:
        """Set the controls; what the program sets is not a choice of the user."""
        assert self.view is not None
        self._filling = True
        try:
            self.metric.param.update(options=metrics, value=metric)
            self.scale.value = self.view.log
        finally:
            self._filling = False

    def _metric(self, event: Any) -> None:
        if not self._filling and event.new and self.view is not None:
            self.session.choose("metric", event.new)
            self.show(self.data)

    def _scale(self, event: Any) -> None:
        if not self._filling and self.view is not None:
            self.session.choose("axis", "log" if event.new else "linear")
            self.view.show(log=event.new)


def _crumb(data: Data) -> str:
    return f"{data.name} · {data.trace.source_format} · simulator control, not a physical intervention"


def answer(result: AblationTable, metric: str) -> str:
    """Return one sentence: which mechanism flips decisions, and what changes most."""
    flips = Counter({a: len(result.flips(a)) for a in result.applicable})
    worst = _largest(result, metric)
    change = ""
    if worst is not None:
        by = f"<b>{signed(worst.delta, unit_of(metric))}</b> on {escape(worst.backend)}"
        change = f"The {metric_phrase(metric)} changes most without {_words(worst.ablation)}: {by}."
    if not result.decisions_total:
        return f"One backend ranks nothing. {change}"
    acting = len(result.applicable)
    if not acting:
        return "<b>No mechanism</b> that an ablation could remove acts in this trace."
    if not sum(flips.values()):
        none = f"none of {result.decisions_total:,} decisions flips without any one of {acting}"
        return f"<b>No ranking rests on one mechanism</b>: {none}. {change}"
    (first, many), *rest = [(a, n) for a, n in flips.most_common() if n]
    others = f", {_listed([f'{n:,} without {_words(a)}' for a, n in rest])}" if rest else ", and none without another mechanism"
    verb = "flips" if many == 1 else "flip"
    return f"<b>{many:,} of {result.decisions_total:,} decisions {verb} without {_words(first)}</b>{others}. {change}"


def _words(mechanism: str) -> str:
    return MECHANISM_WORDS.get(mechanism, mechanism)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _largest(result: AblationTable, metric: str) -> AblationRow | None:
    rows = [r for r in result.rows if r.metric == metric and r.delta]
    return max(rows, key=lambda r: abs(r.delta or 0.0), default=None)


def _figures(data: Data, result: AblationTable | None, metric: str) -> list[Figure]:
    events = Figure("Events", f"{len(data.trace):,}", f"{data.trace.origin} trace, simulated")
    backends = len(data.protocol.chosen)
    pairs = backends * (backends - 1) // 2
    chosen = Figure("Backends", f"{backends:,}", f"{pairs:,} pair{'s' * (pairs != 1)} x 4 metrics: {4 * pairs:,} decisions")
    if result is None:
        return [events, chosen, Figure("Decisions that flip", "unknown", "nothing simulated")]
    worst, origin = _largest(result, metric), data.protocol.origin
    label = f"Largest change, {metric_words(metric).split(', ')[-1]}"
    change = (
        Figure(label, signed(worst.delta, unit_of(metric)), f"without {_words(worst.ablation)}, on {worst.backend}")
        if worst is not None
        else Figure(label, "0", "nothing changes it")
    )
    total = result.decisions_total * len(result.applicable)
    return [
        Figure("Decisions that flip", f"{len(result.flipped_decisions):,} of {total:,}", f"{origin}, one mechanism removed at a time"),
        Figure("Mechanisms that act", f"{len(result.applicable)} of {len(ABLATIONS)}", "the others are not applicable"),
        change,
        chosen,
        events,
    ]


PAGE = PageSpec("ablation", "Ablation", "trace", gather, build)
