"""Review: may this change be rolled out? Two reports, two recordings or two configurations against a policy."""

from __future__ import annotations

from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import LabError
from commcanary_lab.review.html import html_report
from commcanary_lab.review.policy import Policy
from commcanary_lab.views.comparison_view import view_of
from commcanary_lab.views.comparison_words import VERDICT_WORDS, answer, facts, figures, reasons_html, verdict_html
from commcanary_lab.views.markup import chip, html, message, title_html
from commcanary_lab.workspace import Workspace

from ..backend_choice import Refresh
from ..gradual import Gradual
from ..page import GAP, Built, PageSpec, Selection, empty, head
from ..policy_panel import PolicyPanel, policy_values
from ..review_controls import ReviewControls
from ..review_parts import in_the_workbench, take_along
from ..review_request import Review, Saved, review
from ..review_series import SeriesReview, series_review
from ..review_signoffs import keep
from ..series_page import SeriesPage
from ..session import Session
from ..signoff_panel import SignOffPanel

__all__ = ["PAGE"]

_MISSING = {
    "reports": (
        "There are no two reports to compare yet",
        "Write one report before the change and one after it (commcanary-lab simulate TRACE --samples -o before.report.json) and drop "
        "both on the Overview page. To compare two configurations right now, choose Simulated at the left.",
    ),
    "measured": (
        "There are no two measured traces to compare yet",
        "Record the job before the change and after it (commcanary-lab capture, or a profiler) and drop both recordings on the "
        "Overview page.",
    ),
    "simulated": ("There is no trace to simulate yet", "Drop a trace or a canary on the Overview page, and come back."),
}


def gather(workspace: Workspace, selection: Selection) -> Review | SeriesReview:
    """Compare what the address asks for: a pair, or a series."""
    return series_review(workspace, selection) if selection.option("compare", "") == "series" else review(workspace, selection)


def build(data: Review | SeriesReview, session: Session) -> Built:
    """Make the page."""
    page = SeriesPage(data, session) if isinstance(data, SeriesReview) else _Page(data, session)
    return Built(page.main, page.controls)


class _Page:
    """The page; the verdict follows the policy in place, another pair makes the page anew."""

    def __init__(self, data: Review, session: Session) -> None:
        self.session, self.data = session, data
        self.top, self.saved, self.hint = html(""), html("", visible=data.saved is not None), html("", visible=False)
        self.cards = Gradual(GAP, sizing_mode="stretch_width", margin=0)
        self.actions = self._actions()
        refused = "" if data.request.mode != "simulated" else "Keep both reports first: a decision is about files that others can open."
        who = session.visitor
        self._signoff = SignOffPanel(self._sign, f"Signing off is for operators. {who.why_not}." if who.why_not else refused, who.name)
        self._refresh = Refresh(session, review, self.show, self._fail)
        self._view: Any = None
        self._policy = PolicyPanel(data.request.kind, data.request.policy, self._policy_changed)
        self.controls = [*ReviewControls(session, data).view, *self._policy.view]
        self.main: list[Any] = self._first(data)

    def _first(self, data: Review) -> list[Any]:
        if data.result is None and not data.problem and data.saved is None:
            return [empty(*_MISSING[data.request.mode])]
        self.show(data)
        return [self.saved, self.top, self.hint, self.actions, self.cards.view, self._signoff.card]

    def show(self, data: Review) -> None:
        """Show a result; the same pair under another policy moves in place."""
        self.data = data
        self.saved.object = "" if data.saved is None else f'<div class="cl">{_saved_html(data.saved)}</div>'
        self._visible(data.result is not None)
        self.hint.visible = bool(data.problem)
        if data.result is None:
            self._fail(data.problem)
            return
        crumb = f"{data.request.names[0]} → {data.request.names[1]} · {facts(data.result)}"
        self.top.object = head(crumb, answer(data.result), figures(data.result)).object
        self._command.object = f'<div class="cl">{_command(data)}</div>'
        if self._view is None:
            self._view = view_of(data.result, data.request.names)
            self.cards.show(self._view.cards, 1)
        else:
            self._view.update(data.result)
        self._signoff.show(data.signed, data.result.verdict)

    def _visible(self, shown: bool) -> None:
        self.top.visible = self.actions.visible = self.cards.view.visible = self._signoff.card.visible = shown

    def _fail(self, text: str) -> None:
        if text:
            title = f"{self.data.request.names[0]} and {self.data.request.names[1]} cannot be compared"
            self.hint.object = f'<div class="cl">{message(title, in_the_workbench(text), "err")}</div>'
        self.hint.visible = bool(text)
        self._visible(False)

    def _policy_changed(self, policy: Policy) -> None:
        """Keep it in the address; a saved comparison has its own policy, so from here on it is a new one."""
        if self.data.saved is not None:
            self._adopt()
        self.session.choose("policy", *policy_values(policy))
        if self._view is None:
            self.session.param.trigger("page")
        else:
            self._refresh()

    def _adopt(self) -> None:
        """Go on from a saved comparison: what it compared becomes the choice."""
        asked = self.data.request
        for name, value in (("compare", asked.mode), ("baseline", asked.baseline), ("candidate", asked.candidate)):
            self.session.choose(name, *((value,) if value else ()))
        self.session.choose("allow", *(("1",) if asked.allow else ()))
        self.session.choose("comparison")

    # -- taking it along ----------------------------------------------------------------------------------------------

    def _actions(self) -> Any:
        style: dict[str, Any] = {"size": "small", "margin": (0, 8, 0, 0), "align": "center"}
        page = take_along(self._page_file, "review.html", "Report as HTML", 160, strong=True)
        document = take_along(self._document_file, "comparison.json", "Comparison as JSON", 190)
        parts = [page, document]
        if self.data.request.mode == "simulated":
            keep = pmui.Button(label="Keep both reports", variant="outlined", width=150, **style)
            keep.on_click(self._keep)
            self.session.visitor.limit(keep)
            parts.append(keep)
        self._command = html("", align="center")
        return pn.Row(*parts, self._command, sizing_mode="stretch_width", margin=0, styles={"flex-wrap": "wrap", "gap": "8px 0"})

    def _page_file(self) -> str:
        assert self.data.result is not None
        signed = [(s.signoff, s.check) for s in self.data.signed]
        return html_report(self.data.result, names=self.data.request.names, signoffs=signed)

    def _document_file(self) -> str:
        assert self.data.result is not None
        return canonical_bytes(self.data.result.to_json()).decode() + "\n"

    def _sign(self, decision: str, reviewer: str, note: str) -> None:
        """Write a decision as a file, and show it."""
        assert self.data.result is not None
        keep(self.session.workspace, self.data.request.names, self.data.result, decision, reviewer, note)
        self._refresh()
        self.session.changed()

    def _keep(self, _: Any) -> None:
        """Write what was simulated as reports, and go on with these files."""
        asked, reports = self.data.request, self.data.reports
        if reports is None:
            return
        names = [
            f"{str(n).split('.')[0]}.{r.backend.label}.report.json" for n, r in zip((asked.baseline, asked.candidate), reports, strict=True)
        ]
        try:
            added = [self.session.workspace.add(n, r.canonical + b"\n", rename=True) for n, r in zip(names, reports, strict=True)]
        except LabError as e:
            self._fail(str(e))
            return
        for option, value in (("compare", "reports"), ("baseline", added[0].name), ("candidate", added[1].name)):
            self.session.choose(option, value)
        self.session.changed()
        self.session.param.trigger("page")


def _command(data: Review) -> str:
    """The same on the command line, for a CI job."""
    asked = data.request
    if asked.mode == "simulated" or data.result is None:
        return '<span class="muted">Simulated now: the model&rsquo;s answer, nothing was measured.</span>'
    policy = " --policy policy.toml" if asked.policy.changed() else ""
    allow = " --allow-incompatible" if asked.allow else ""
    code = 0 if data.result.passed else 1
    line = escape(f"commcanary-lab compare {asked.baseline} {asked.candidate}{policy}{allow}")
    return f'<span class="muted">In CI: <code>{line}</code> exits {code}.</span>'


def _saved_html(saved: Saved) -> str:
    """What a saved comparison says, and whether that can be believed."""
    verdict = chip("verdict", VERDICT_WORDS[saved.stated.verdict].lower(), "bad" if saved.stated.verdict == "fail" else "")
    head = title_html(f"Saved comparison {saved.name}", "Recomputed from its inputs and the policy that it states")
    if saved.check is None:
        text = (
            "Its baseline and its candidate are not in this workspace (they are looked for by content, whatever their names are). "
            "Upload both to see the charts and to recompute it. Until then this is only what the file says."
        )
        stated = f'<p style="margin-top:10px">{verdict_html(saved.stated.verdict)}<b>as the file states it</b></p>'
        stated += reasons_html(saved.stated.reasons)
        return f'{head}<div style="height:10px"></div>{message("Not recomputed", text, "warn")}{stated}'
    if saved.check.passed:
        state = chip("recomputed", f"all {saved.check.leaves:,} values come out as stated", "ok")
    else:
        state = chip("mismatch", f"{saved.check.differences:,} of {saved.check.leaves:,} values differ", "bad")
        state += f'<p style="margin-top:8px">The first: <code>{escape(str(saved.check.first_difference))}</code></p>'
    return f'{head}<div class="chips" style="margin-top:10px">{verdict}{state}</div>'


PAGE = PageSpec("review", "Review", "", gather, build, follows=("report", "comparison"), first=5)
