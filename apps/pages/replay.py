"""Replay: what the canary's program costs on real process groups, measured, and whether the data come out right."""

from __future__ import annotations

import uuid
from html import escape
from typing import Any
from weakref import WeakKeyDictionary

import panel as pn

from commcanary_lab.errors import LabError
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.markup import Figure, html, message, title_html
from commcanary_lab.views.replay_view import ReplayView
from commcanary_lab.views.replay_words import answer, figures
from commcanary_lab.views.tables import TableColumn, table
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact

from ..backend_choice import Refresh
from ..page import Built, PageSpec, head
from ..replay_controls import ReplayControls
from ..replay_jobs import jobs_of
from ..replay_queue import LOG_CSS, QueuePanel, log_html
from ..replay_request import Asked, Shown, asked, stem_of
from ..replay_settings import Settings, can_replay
from ..session import Session

__all__ = ["PAGE"]

_POLL_MS = 400
#: The folder is looked at every so many polls.
_LIST_POLLS = 8

#: The page that a visitor sees now; only that one polls.
_CURRENT: WeakKeyDictionary[Session, _Page] = WeakKeyDictionary()
#: Who asked for a replay, for the bound per visitor.
_OWNERS: WeakKeyDictionary[Session, str] = WeakKeyDictionary()


def build(data: Asked, session: Session) -> Built:
    """Make the page."""
    page = _CURRENT[session] = _Page(data, session)
    return page.built


class _Page:
    """The page; what runs and what came out move in place."""

    def __init__(self, data: Asked, session: Session) -> None:
        self.session, self.data = session, data
        self.jobs = jobs_of(session.workspace.path)
        self.top, self.hint = html(""), html("", visible=False)
        self.queue = QueuePanel(self.jobs)
        self.cards = pn.Column(sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})
        self._log = html("", visible=False, stylesheets=[LOG_CSS])
        self._refresh = Refresh(session, asked, self.show, self._fail)
        self._active = False
        self._polls = 0
        self._view: ReplayView | None = None
        self._of: Any = None
        self.list = _Earlier(session, data.replays, self._open)
        self.controls = ReplayControls(session, data, self._run, self._anew, self._refresh)
        self.show(data)
        main = [self.top, self.hint, self.queue.view, self.cards, self._log, self.list.view]
        self.built = Built(main, self.controls.view)
        self._timer = pn.state.add_periodic_callback(self._poll, period=_POLL_MS)

    # -- what is shown ------------------------------------------------------------------------------------------------

    def show(self, data: Asked) -> None:
        """Show what the address names, in place."""
        self.data = data
        shown = data.shown
        self._active = shown is not None and shown.active
        self.list.show(data.replays, shown.name if shown is not None else "")
        self._top()
        result = shown.result if shown is not None else None
        problem = shown.problem if shown is not None else ""
        if not can_replay():
            problem = problem or "Replaying needs torch. Install commcanary-lab[replay] where the workbench runs."
        self.hint.object = f'<div class="cl">{message("Not shown" if shown else "Nothing can be replayed here", problem, "err")}</div>'
        self.hint.visible = bool(problem)
        log = shown.log if shown is not None else ""
        self._log.object = f'<div class="cl">{_folded(log, bool(problem))}</div>'
        self._log.visible = bool(log) and not self._active
        if result is None:
            self._view, self._of = None, None
            self.cards[:] = []
        elif self._view is not None and self._of is result and shown is not None:
            self._view.compare(shown.model, shown.why_no_model)
        elif shown is not None:
            self._view, self._of = ReplayView(result, shown.model, shown.why_no_model, list(shown.problems)), result
            self.cards[:] = self._view.cards
        self.cards.visible = result is not None

    def _top(self) -> None:
        shown = self.data.shown
        if shown is None:
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
        source = self.session.workspace.path / r.name
        owner = _OWNERS.setdefault(self.session, uuid.uuid4().hex)
        device = "GPU" if chosen.ran_by(devices) == "nccl" else "CPU"
        try:
            job = self.jobs.submit(
                stem_of(r.name), chosen.title(r.name, devices), device, owner, lambda place: chosen.command(source, place, devices)
            )
        except LabError as error:
            self._fail(str(error))
            return
        self._open(job.name)

    def _open(self, name: str) -> None:
        self.session.choose("replay", name)
        self.queue.refresh()
        self._refresh()

    def _anew(self) -> None:
        self.session.choose("replay")
        self.session.param.trigger("page")

    def _poll(self) -> None:
        if _CURRENT.get(self.session) is not self or self.session.page != "replay":
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
            self.list.look()


class _Earlier:
    """The list of replays in the workspace; a click opens one."""

    def __init__(self, session: Session, replays: tuple[Artifact, ...], opened: Any) -> None:
        self.session, self._opened = session, opened
        self._replays, self._shown = replays, ""
        self._title = html("")
        self._frame_shown: Any = None
        self._table = pn.Column(sizing_mode="stretch_width", margin=0)
        self.view = paper(self._title, self._table)
        self.show(replays, "")

    def look(self) -> None:
        """Follow the folder."""
        found = tuple(sorted(self.session.workspace.list("replay"), key=lambda a: (-a.stamp[0], a.name)))
        if found != self._replays:
            self.show(found, self._shown)

    def show(self, replays: tuple[Artifact, ...], shown: str) -> None:
        """Show a list."""
        self._replays, self._shown = replays, shown
        n = len(replays)
        text = (
            f"{n:,} in this workspace, the newest first. A click opens one"
            if n
            else "None yet. What is run here appears in this list; so does what the command line writes into the folder replays"
        )
        self._title.object = f'<div class="cl">{title_html("Replays", text)}</div>'
        frame = self._frame()
        if self._frame_shown is None or not frame.equals(self._frame_shown):
            self._frame_shown = frame
            self._table[:] = [self._make(frame)] if n else []  # a new one: a table whose data are exchanged hears no more clicks

    def _frame(self) -> Any:
        import pandas as pd

        rows = [
            {
                "name": (name := a.name.removeprefix("replays/")), "summary": a.summary, "size": float(a.size_bytes),
                "open": "shown" if name == self._shown else "",
            }
            for a in self._replays
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["name", "summary", "size", "open"])

    def _make(self, frame: Any) -> Any:
        columns = {
            "name": TableColumn("Name", None, 240, grow=3),
            "summary": TableColumn("Content", None, 240, grow=3),
            "size": TableColumn("Size", fmt.bytes_cell(), 80, right=True),
            "open": TableColumn("", None, 60, right=True),
        }
        out = table(frame, columns, page_size=8)
        out.on_click(lambda e: self._clicked(e.row))
        return out

    def _clicked(self, row: int | None) -> None:
        if row is not None and row < len(self._replays):
            self._opened(self._replays[row].name.removeprefix("replays/"))


def _crumb_and(crumb: str, text: str) -> str:
    return f'<div class="crumb">{escape(crumb)}</div><p class="answer" data-testid="answer">{text}</p>'


def _folded(log: str, unfolded: bool) -> str:
    opened = " open" if unfolded else ""
    return f'<details{opened} class="fold"><summary>Log</summary>{log_html(log)}</details>' if log else ""


PAGE = PageSpec("replay", "Replay", "", asked, build, quick=False)
