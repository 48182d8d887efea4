"""Ranking: which configuration is better, and whether the canary decides like its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import LabError, RefusedError
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import Assumptions, prepare
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_us
from commcanary_lab.verify.model import Verification
from commcanary_lab.verify.run import verify_canary
from commcanary_lab.views.import_coverage import notes_html
from commcanary_lab.views.markup import Figure, html, message
from commcanary_lab.views.ranked_pairs import METRIC_WORDS, RankedPair, ranked_pairs, telling_metric
from commcanary_lab.views.ranking_matrix import RankingView
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Workspace

from ..backend_choice import BackendControls, Protocol, Refresh, protocol
from ..page import Built, PageSpec, Selection, head
from ..session import Session

__all__ = ["PAGE"]

_DEFAULT_METRIC = "p99_us"


@dataclass(frozen=True)
class Data:
    """The decisions of the open trace and of the open canary, or why there are none."""

    name: str
    trace: Trace
    canary: str | None
    protocol: Protocol
    pairs: tuple[RankedPair, ...]
    hint: str = ""
    why_not: str = ""

    @property
    def both(self) -> bool:
        """Whether there is a canary's side."""
        return any(p.canary is not None for p in self.pairs)


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Simulate the trace and the canary on the chosen backends."""
    name = str(selection.trace)
    trace = workspace.trace(name)
    asked = protocol(workspace, selection, trace)
    why_not = asked.why_not or ("" if len(asked.chosen) > 1 else "There is nothing to rank. Choose at least two backends at the left.")
    if why_not:
        return Data(name, trace, selection.canary, asked, (), "", why_not)
    if selection.canary is not None:
        try:
            canary = workspace.canary(selection.canary)
            hint = _other_source(name, trace, canary)
            if not hint:
                pairs, hint = _both(workspace, name, trace, canary, asked)
                return Data(name, trace, selection.canary, asked, pairs, hint)
        except LabError as e:
            hint = str(e)
    else:
        hint = "No canary is open, so this is the source alone. Choose one at the left, or compile this trace on the Canary page."
    alone = workspace.derived(name, f"ranked {asked.key}", lambda: ranked_pairs(_reports(trace, asked.chosen, asked.assume)))
    return Data(name, trace, selection.canary, asked, alone, hint)


def _other_source(name: str, trace: Trace, canary: Canary) -> str:
    """Say why the canary cannot be held against the trace; empty if it can."""
    if canary.source.derived_from is not None or len(trace) == canary.source.events:
        return ""
    return (
        f"{name} has {len(trace):,} events, the source of the open canary had {canary.source.events:,}: this is the source alone. "
        "Open the trace that the canary was compiled from."
    )


def _both(workspace: Workspace, name: str, trace: Trace, canary: Canary, asked: Protocol) -> tuple[tuple[RankedPair, ...], str]:
    """The decisions of both sides, as a verification compares them, and what must be said of them."""

    def verify() -> Verification:
        return verify_canary(trace, canary, backends=asked.chosen, assume=asked.assume)

    try:
        check = workspace.derived(name, f"verify {canary.identity} {asked.key}", verify)
    except RefusedError:  # without the owner's salt the commitments say nothing; the decisions can be compared all the same
        part = trace.take(slice(canary.source.start, canary.source.stop))
        ours, theirs = (_reports(t, asked.chosen, asked.assume) for t in (part, canary.trace))
        return ranked_pairs(ours, theirs), "The canary is salted: whether it was compiled from this trace is not checked here."
    hint = ""
    if check.commitments == "mismatch":
        hint = "The canary's commitments do not match this trace: it was compiled from another one."
    elif check.coverage == "partial_source":
        hint = f"The canary stands for {canary.event_count:,} of the source's {len(trace):,} events."
    return ranked_pairs(check), hint


def _reports(trace: Trace, backends: Sequence[Backend], assume: Assumptions) -> list[Report]:
    prepared = prepare(trace, assume)
    return [simulate_prepared(prepared, b) for b in backends]


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    return _Page(data, session).built


class _Page:
    """The page; its controls stay while its content follows them."""

    def __init__(self, data: Data, session: Session) -> None:
        self.session, self.data = session, data
        self.view: RankingView | None = None
        self._filling = False
        self.top, self.hint = html(""), html("", visible=False)
        self.cards = pn.Column(sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})
        self.metric = pmui.Select(
            label="Metric", options={f"exposed latency, {w}": m for m, w in METRIC_WORDS.items()}, value=self._asked(data),
            size="small", variant="outlined", sizing_mode="stretch_width", margin=0,
        )  # fmt: skip
        backends = BackendControls(session, data.protocol, Refresh(session, gather, self.show, self.fail))
        self.show(data)
        self.metric.param.watch(self._metric, "value")
        notes = notes_html(data.trace.notes, ())
        main = [self.top, self.hint, self.cards, *([paper(html(notes))] if notes else [])]
        self.built = Built(main, [*backends.view, self.metric])

    def _asked(self, data: Data) -> str:
        """The metric of the address, or the one that says most."""
        asked = self.session.selection.option("metric", "")
        return asked if asked in METRIC_WORDS else telling_metric(data.pairs, _DEFAULT_METRIC)

    def show(self, data: Data) -> None:
        """Show a result in place."""
        self.data = data
        if not data.pairs:
            self.fail(data.why_not)
            return
        metric = self._asked(data)
        if self.view is None or self.view.both != data.both:
            self.view = RankingView(data.pairs, metric=metric, coverage=data.trace.coverage, origin=data.protocol.origin)
            self.cards[:] = [self.view.matrix_card, self.view.order_card, self.view.pairs_card]
        else:
            self.view.show(data.pairs, metric, origin=data.protocol.origin)
        self._filling = True  # what the program sets is not a choice of the user
        try:
            self.metric.value = metric
        finally:
            self._filling = False
        self._top(metric)
        self._say(data.hint, "")
        self.cards.visible = True

    def fail(self, text: str) -> None:
        """Say why there is nothing to see."""
        self.top.object = head(_crumb(self.data), "<b>Nothing is ranked</b> yet.", _figures(self.data, (), _DEFAULT_METRIC)).object
        self._say(text, "warn")
        self.cards.visible = False

    def _say(self, text: str, kind: str) -> None:
        title = "Nothing to show" if kind else "About the canary"
        self.hint.object = f'<div class="cl">{message(title, text, kind)}</div>' if text else ""
        self.hint.visible = bool(text)

    def _top(self, metric: str) -> None:
        self.top.object = head(_crumb(self.data), answer(self.data.pairs, metric), _figures(self.data, self.data.pairs, metric)).object

    def _metric(self, event: Any) -> None:
        if not self._filling and event.new and self.view is not None:
            self.session.choose("metric", event.new)
            self.view.show(metric=event.new)
            self._top(event.new)


def _crumb(data: Data) -> str:
    return f"{data.name} · {data.trace.source_format}" + (f" · {data.canary}" if data.both else "")


def answer(pairs: Sequence[RankedPair], metric: str) -> str:
    """Return one sentence: does the canary decide like its source, and which backend is best."""
    best = _best(pairs, metric)
    second = f"Under {METRIC_WORDS[metric]}, {best[0]}." if best is not None else ""
    if all(p.canary is None for p in pairs):
        return f"{_upper(best[0])} under {METRIC_WORDS[metric]} in the source." if best is not None else "Nothing is ranked."
    by_pair: dict[tuple[str, str], list[RankedPair]] = {}
    for p in pairs:
        by_pair.setdefault((p.left, p.right), []).append(p)
    alike = [all(p.agrees for p in own) for own in by_pair.values()]
    text = f"The canary decides <b>{sum(alike):,} of {len(alike):,} pairs like its source</b>"
    if all(alike):
        return f"{text}, under every metric. {second}"
    different = [p for p in pairs if p.agrees is False]
    named = "; ".join(f"{escape(p.left)} or {escape(p.right)} under {METRIC_WORDS[p.metric]}" for p in different[:2])
    more = f" and {len(different) - 2:,} more" if len(different) > 2 else ""
    return f"{text}; it differs on {named}{more}. {second}"


def _upper(text: str) -> str:
    return text if text.startswith("<b>") else text[:1].upper() + text[1:]


def _best(pairs: Sequence[RankedPair], metric: str) -> tuple[str, str, float | None] | None:
    """The fastest backend of the source: words, names, latency; several where they tie."""
    own = [p for p in pairs if p.metric == metric]
    names = list(dict.fromkeys(n for p in own for n in (p.left, p.right)))
    beaten = {p.right if p.source == "left" else p.left for p in own if p.source != "tie"}
    best = [n for n in names if n not in beaten]
    if not best:
        return None
    values = {n: v for p in own for n, v in zip((p.left, p.right), p.values("source"), strict=True)}
    value = values[best[0]]
    amount = f" ({format_us(value)})" if value is not None else ""
    if len(best) == 1:
        return f"<b>{escape(best[0])}</b> is fastest{amount}", best[0], value
    listed = " and ".join([", ".join(best[:-1]), best[-1]])
    return f"<b>{escape(listed)}</b> tie for the fastest{amount}", listed, value


def _figures(data: Data, pairs: Sequence[RankedPair], metric: str) -> list[Figure]:
    origin, chosen = data.protocol.origin, len(data.protocol.chosen)
    count = chosen * (chosen - 1) // 2
    backends = Figure("Backends", f"{chosen:,}", f"{count:,} pair{'s' * (count != 1)} x {len(METRIC_WORDS)} metrics")
    if not pairs:
        return [backends, Figure("Events", f"{len(data.trace):,}", f"{data.trace.origin} trace")]
    out = []
    if data.both:
        alike = sum(p.agrees is True for p in pairs)
        out.append(Figure("Decided alike", f"{alike:,} of {len(pairs):,}", f"{origin}, canary against source"))
    best = _best(pairs, metric)
    if best is not None and best[2] is not None:
        out.append(Figure(f"Fastest, {METRIC_WORDS[metric]}", format_us(best[2]), f"{best[1]}, {origin}"))
    out.append(Figure("Ties", f"{sum(p.source == 'tie' for p in pairs):,}", f"of {len(pairs):,} decisions of the source"))
    closest = _closest(pairs)
    if closest is not None:
        out.append(Figure("Closest decision", closest[0], closest[1]))
    return [*out, backends]


def _closest(pairs: Sequence[RankedPair]) -> tuple[str, str] | None:
    """The decision of the source with the smallest difference that is no tie: the first to flip when something changes."""
    decided = []
    for p in pairs:
        a, b = p.values("source")
        if p.source != "tie" and a is not None and b is not None:
            decided.append((abs(a - b), p))
    if not decided:
        return None
    difference, pair = min(decided, key=lambda item: item[0])
    return format_us(difference), f"{pair.left} or {pair.right}, {METRIC_WORDS[pair.metric]}"


PAGE = PageSpec("ranking", "Ranking", "trace", gather, build)
