"""Review of a series: did it get slower, since when, and what did each entry change?"""

from __future__ import annotations

from html import escape
from typing import Any

import panel as pn

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.review.history import Entry
from commcanary_lab.review.html_history import history_html
from commcanary_lab.review.policy import Policy
from commcanary_lab.views.comparison_view import view_of
from commcanary_lab.views.comparison_words import answer, facts, figures
from commcanary_lab.views.history_view import HistoryView, history_answer, history_facts, history_figures
from commcanary_lab.views.markup import html, key_figures, message

from .backend_choice import Refresh
from .page import empty, head
from .policy_panel import PolicyPanel, policy_values
from .review_parts import in_the_workbench, take_along
from .review_series import SeriesReview, series_review
from .review_signoffs import keep
from .series_controls import SeriesControls, span_control
from .session import Session
from .signoff_panel import SignOffPanel

__all__ = ["SeriesPage"]

_MISSING = (
    "There is no series to review yet",
    "A series is two or more reports of one workload: simulate it after every change (commcanary-lab simulate CANARY --samples "
    "-o 2026-11-30.report.json) and drop the reports on the Overview page. Measured traces of one job make a series, too.",
)


class SeriesPage:
    """The page; policy, entry and sign-offs change in place, another series makes the page anew.

    Parameters
    ----------
    data : SeriesReview
    session : Session
    """

    def __init__(self, data: SeriesReview, session: Session) -> None:
        self.data, self.session = data, session
        self._refresh = Refresh(session, series_review, self.show, self._fail)
        self._policy = PolicyPanel(data.request.of, data.request.policy, self._policy_changed)
        self._controls = SeriesControls(session, data, self._picked)
        self.controls = [*span_control(session, True), *self._controls.view, *self._policy.view]
        self.top, self.hint, self._left_out = html(""), html("", visible=False), html("", visible=bool(data.unreadable))
        self._entry_top = html("")
        self._pair = pn.Column(sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})
        self._command = html("", align="center")
        self._shown: tuple[str, str] | None = None
        self._view: Any = None
        self._series: HistoryView | None = None
        who = session.visitor
        self._signoff = SignOffPanel(self._sign, f"Signing off is for operators. {who.why_not}." if who.why_not else "", who.name)
        self.main: list[Any] = self._first(data)

    def _first(self, data: SeriesReview) -> list[Any]:
        if data.history is None and not data.problem:
            return [empty(*_MISSING), *([self._unreadable(data)] if data.unreadable else [])]
        if data.history is None:
            self._fail(data.problem)
            return [self.hint]
        self._series = HistoryView(data.history, self._picked)
        self.show(data)
        parts = [self.top, self.hint, self._actions(), *self._series.cards, self._entry_top, self._pair, self._signoff.card]
        return [*parts, *([self._unreadable(data)] if data.unreadable else [])]

    @staticmethod
    def _unreadable(data: SeriesReview) -> Any:
        return html(message("Left out, because they cannot be opened", "\n".join(data.unreadable), "warn"))

    def show(self, data: SeriesReview) -> None:
        """Show the same series under another policy, with another entry, or with another sign-off."""
        h = data.history
        if h is None or self._series is None or [e.name for e in h.entries] != [e.name for e in self._series.result.entries]:
            if self._series is not None:
                self.session.param.trigger("page")
            return
        self.data = data
        self.hint.visible = False
        crumb = history_facts(h)
        if data.elsewhere:
            crumb += f" \u00b7 {data.elsewhere} other {'artifact is' if data.elsewhere == 1 else 'artifacts are'} not in it"
        self.top.object = head(crumb, history_answer(h), history_figures(h)).object
        self._series.update(h, data.request.entry, data.marks)
        self._command.object = f'<div class="cl">{_command(data)}</div>'
        self._show_entry(h.entry(str(data.request.entry)))

    def _show_entry(self, e: Entry) -> None:
        self._controls.follow(e.name)
        if e.comparison is None:
            why = e.problem or "The others are compared with it."
            title = f"{e.name} is the baseline" if e.verdict == "baseline" else f"{e.name} cannot be compared"
            self._entry_top.object = f'<div class="cl" data-testid="entry">{message(title, in_the_workbench(why))}</div>'
            self._pair[:], self._shown, self._view = [], None, None
            self._signoff.card.visible = False
            return
        names = (str(e.against), e.name)
        crumb = f"{names[0]} \u2192 {names[1]} \u00b7 {facts(e.comparison)}"
        keys = key_figures(figures(e.comparison))
        self._entry_top.object = (
            f'<div class="cl" data-testid="entry" style="padding-top:10px"><div class="crumb">{escape(crumb)}</div>'
            f'<p class="answer">{answer(e.comparison)}</p><div style="height:16px"></div>{keys}</div>'
        )
        if self._shown == names and self._view is not None:
            self._view.update(e.comparison)
        else:
            self._view = view_of(e.comparison, names)
            self._pair[:] = self._view.cards
        self._shown = names
        self._signoff.card.visible = True
        self._signoff.show(self.data.signed.get(e.name, ()), e.comparison.verdict)

    def _fail(self, text: str) -> None:
        self.hint.object = f'<div class="cl">{message("This series cannot be shown", in_the_workbench(text), "err")}</div>'
        self.hint.visible = True

    # -- what a visitor does ------------------------------------------------------------------------------------------

    def _picked(self, name: str) -> None:
        """Show another entry; what is known of it is shown at once."""
        if self.data.history is None or name == self.data.request.entry:
            return
        self.session.choose("entry", name)
        self._refresh()

    def _policy_changed(self, policy: Policy) -> None:
        self.session.choose("policy", *policy_values(policy))
        if self._series is None:
            self.session.param.trigger("page")
        else:
            self._refresh()

    def _sign(self, decision: str, reviewer: str, note: str) -> None:
        assert self.data.history is not None
        e = self.data.history.entry(str(self.data.request.entry))
        assert e.comparison is not None
        keep(self.session.workspace, (str(e.against), e.name), e.comparison, decision, reviewer, note)
        self._refresh()
        self.session.changed()

    # -- taking it along ----------------------------------------------------------------------------------------------

    def _actions(self) -> Any:
        page = take_along(self._page_file, "series.html", "Report as HTML", 160, strong=True)
        document = take_along(self._document_file, "series.json", "Series as JSON", 160)
        return pn.Row(page, document, self._command, sizing_mode="stretch_width", margin=0, styles={"flex-wrap": "wrap", "gap": "8px 0"})

    def _page_file(self) -> str:
        assert self.data.history is not None
        signed = {name: [(s.signoff, s.check) for s in found] for name, found in self.data.signed.items()}
        return history_html(self.data.history, entry=self.data.request.entry, signoffs=signed)

    def _document_file(self) -> str:
        assert self.data.history is not None
        return canonical_bytes(self.data.history.to_json()).decode() + "\n"


def _command(data: SeriesReview) -> str:
    """The same on the command line, for a CI job."""
    h, asked = data.history, data.request
    assert h is not None
    names = " ".join(e.name for e in h.entries) if len(h.entries) <= 3 else f"{h.entries[0].name} ... {h.newest.name}"
    baseline = "" if asked.baseline == "first" else f" --baseline {asked.baseline}"
    policy = " --policy policy.toml" if asked.policy.changed() else ""
    allow = " --allow-incompatible" if asked.allow else ""
    line = escape(f"commcanary-lab trend {names}{baseline}{policy}{allow}")
    return f'<span class="muted">In CI: <code>{line}</code> exits {0 if h.passed else 1}.</span>'
