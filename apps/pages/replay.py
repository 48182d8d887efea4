"""Replay: what the canary's program costs on real process groups, measured, and whether the data come out right."""

from __future__ import annotations

import uuid
from html import escape
from typing import Any

from commcanary_lab.errors import LabError
from commcanary_lab.views import campaign_view
from commcanary_lab.views.campaign_view import campaign_cards
from commcanary_lab.views.markup import Figure, html, message
from commcanary_lab.views.replay_view import ReplayView
from commcanary_lab.views.replay_words import answer, figures

from ..backend_choice import Refresh
from ..evidence_list import EvidenceList
from ..gradual import Gradual
from ..page import GAP, Built, PageSpec, head
from ..replay_controls import ReplayControls
from ..replay_jobs import jobs_of
from ..replay_queue import LOG_CSS, QueuePanel, log_html
from ..replay_request import Asked, Shown, ShownCampaign, asked, stem_of
from ..replay_settings import Settings, can_replay
from ..session import Session
from ..timers import every

__all__ = ["PAGE"]

_POLL_MS = 400
#: The folder is looked at every so many polls.
_LIST_POLLS = 8

#: What a session keeps: the page that the visitor sees now, because only that one polls; and who asks, for the bound per visitor.
_CURRENT, _OWNER = "replay page", "replay owner"


def build(data: Asked, session: Session) -> Built:
    """Make the page."""
    page = session.kept[_CURRENT] = _Page(data, session)
    return page.built


class _Page:
    """The page; what runs and what came out move in place."""

    def __init__(self, data: Asked, session: Session) -> None:
        self.session, self.data = session, data
        self.jobs = jobs_of(session.workspace.path)
        self.top, self.hint = html(""), html("", visible=False)
        self.queue = QueuePanel(self.jobs)
        self.cards = Gradual(GAP, sizing_mode="stretch_width", margin=0)
        self._log = html("", visible=False, stylesheets=[LOG_CSS])
        self._refresh = Refresh(session, asked, self.show, self._fail)
        self._active = False
        self._polls = 0
        self._view: ReplayView | None = None
        self._of: Any = None
        self.replays = EvidenceList(session, "replay", self._open)
        self.campaigns = EvidenceList(session, "campaign", self._open_campaign)
        self.controls = ReplayControls(session, data, self._run, self._anew, self._refresh)
        self.show(data)
        main = [self.top, self.hint, self.queue.view, self.cards.view, self._log, self.replays.view, self.campaigns.view]
        self.built = Built(main, self.controls.view)
        self._timer = every(_POLL_MS, self._poll)

    # -- what is shown ------------------------------------------------------------------------------------------------

    def show(self, data: Asked) -> None:
        """Show what the address names, in place."""
        self.data = data
        shown, campaign = data.shown, data.campaign
        self._active = shown is not None and shown.active
        self.replays.show(shown.name if shown is not None else "")
        self.campaigns.show(campaign.name if campaign is not None else "")
        self._top()
        problem = (shown.problem if shown is not None else "") or (campaign.problem if campaign is not None else "")
        if not can_replay():
            problem = problem or "Replaying needs torch. Install commcanary-lab[replay] where the workbench runs."
        title = "Not shown" if shown is not None or campaign is not None else "Nothing can be replayed here"
        self.hint.object = f'<div class="cl">{message(title, problem, "err")}</div>'
        self.hint.visible = bool(problem)
        log = shown.log if shown is not None else ""
        self._log.object = f'<div class="cl">{_folded(log, bool(problem))}</div>'
        self._log.visible = bool(log) and not self._active
        self._cards(shown, campaign)

    def _cards(self, shown: Shown | None, campaign: ShownCampaign | None) -> None:
        """Exchange the cards only where another result is shown."""
        result = shown.result if shown is not None else campaign.result if campaign is not None else None
        self.cards.view.visible = result is not None
        if shown is not None and shown.result is not None:
            if self._view is not None and self._of is shown.result:
                self._view.compare(shown.model, shown.why_no_model)
                return
            self._view = ReplayView(shown.result, shown.model, shown.why_no_model, list(shown.problems))
            self.cards.show(self._view.cards)
        else:
            self._view = None
            if campaign is not None and campaign.result is not None:
                self.cards.show(campaign_cards(campaign.result, list(campaign.problems), campaign.rows), 2)
            else:
                self.cards.show([])
        self._of = result

    def _top(self) -> None:
        shown, campaign = self.data.shown, self.data.campaign
        if campaign is not None:
            c = campaign.result
            if c is None:
                self._head(campaign.name, f"<b>The campaign {escape(campaign.name)} is not shown</b>.", [])
            else:
                ran = "; ".join(dict.fromkeys(r.ran_on.partition(",")[0] for r in c.runs))
                self._head(f"{campaign.name} · {ran}", campaign_view.answer(c), campaign_view.figures(c))
        elif shown is None:
            self._head("Replay", self._nothing(), [])
        elif shown.result is not None:
            self._head(f"{shown.name} · {shown.result.ran_on}", answer(shown.result, shown.model), figures(shown.result, shown.model))
        else:
            self._head(shown.name, self._running(shown), [])

    def _head(self, crumb: str, text: str, given: list[Figure]) -> None:
        made = head(crumb, text, given) if given else html(_crumb_and(crumb, text))
        if self.top.object != made.object:
            self.top.object = made.object

    def _nothing(self) -> str:
        r = self.data.runnable
        if r is None:
            return "<b>Nothing is open</b>. Choose a canary or a trace at the left, and run it on real processes."
        if r.why_not:
            return f"<b>{escape(r.name)} cannot be replayed</b>; the reason stands at the left."
        return (
            f"<b>{escape(r.name)} was not replayed yet</b>. <b>Run</b> at the left executes its {r.events:,} events on up to "
            f"{r.size:,} real processes and measures each of them."
        )

    def _running(self, shown: Shown) -> str:
        if not shown.active:
            return f"<b>There is no result</b> of {escape(shown.name)}."
        job = self.jobs.job(shown.name)
        if job is None or job.state == "ended":
            return f"<b>{escape(shown.name)} has ended</b>; its result is being opened."
        what = escape(job.title.partition(",")[0])
        if job.state == "queued":
            n = self.jobs.place(job)
            return f"<b>{what} waits</b> for {n:,} other replay{'s' * (n != 1)} on the {job.device}."
        if job.state == "ending":
            return f"<b>{what} was cancelled</b>; its ranks are being ended."
        now = self.jobs.progress(job.name)
        count = f", {now.done:,} of {now.total:,}" if now.total > 1 else ""
        return f"<b>{what} is running</b>: {escape(now.phase)}{count}."

    def _fail(self, text: str) -> None:
        self.hint.object = f'<div class="cl">{message("This did not work", text, "err")}</div>'
        self.hint.visible = True

    # -- what happens -------------------------------------------------------------------------------------------------

    def _run(self, chosen: Settings) -> None:
        r, devices = self.data.runnable, self.data.devices
        if r is None or r.why_not:
            return
        chosen = chosen.for_program(r.size)
        owner = self.session.kept.setdefault(_OWNER, uuid.uuid4().hex)
        device = "GPU" if chosen.ran_by(devices) == "nccl" else "CPU"
        try:
            self.session.visitor.require("a replay")
            source = self.session.workspace.place(r.name)
            job = self.jobs.submit(
                stem_of(r.name), chosen.title(r.name, devices), device, owner,
                lambda place: chosen.command(source, place, devices), chosen.ranks,
            )  # fmt: skip
        except LabError as error:
            self._fail(str(error))
            return
        self._open(job.name)

    def _open(self, name: str) -> None:
        self.session.choose("campaign")
        self.session.choose("replay", name)
        self.queue.refresh()
        self._refresh()

    def _open_campaign(self, name: str) -> None:
        self.session.choose("replay")
        self.session.choose("campaign", name)
        self._refresh()

    def _anew(self) -> None:
        self.session.choose("replay")
        self.session.param.trigger("page")

    def _poll(self) -> None:
        if self.session.kept.get(_CURRENT) is not self or self.session.page != "replay":
            self._timer.stop()
            return
        self.queue.refresh()
        shown = self.data.shown
        if self._active and shown is not None:
            self._top()
            job = self.jobs.job(shown.name)
            if job is None or job.state == "ended":
                self._active = False
                self._refresh()
        self._polls += 1
        if self._polls % _LIST_POLLS == 0:
            self.replays.show()
            self.campaigns.show()


def _crumb_and(crumb: str, text: str) -> str:
    return f'<div class="crumb">{escape(crumb)}</div><h1 class="answer" data-testid="answer">{text}</h1>'


def _folded(log: str, unfolded: bool) -> str:
    opened = " open" if unfolded else ""
    return f'<details{opened} class="fold"><summary>Log</summary>{log_html(log)}</details>' if log else ""


PAGE = PageSpec("replay", "Replay", "", asked, build, first=4)
