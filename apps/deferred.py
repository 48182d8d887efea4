"""A part of a page that takes time: computed in the background when asked for, with progress and a way to stop it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import LabError
from commcanary_lab.views.markup import html, message
from commcanary_lab.views.theme import paper

from .jobs import Job
from .page import empty
from .session import Session
from .timers import every

__all__ = ["Cancelled", "Deferred", "Progress", "deferred"]

_POLL_MS = 150


class Cancelled(LabError, RuntimeError):
    """The work was stopped; nothing of it is kept."""


class Progress:
    """What a worker says of its work, and whether it should stop. Written by the worker, read by the session."""

    def __init__(self) -> None:
        self.cancelled = Event()
        self.text = "Waiting for its turn"
        self.fraction: float | None = None

    def tell(self, text: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done, and how much of it is done where that is known."""
        self.text, self.fraction = text, min(1.0, done / total) if total else None

    def check(self) -> None:
        """Raise when the work should stop, so that nothing incomplete is kept.

        Raises
        ------
        Cancelled
        """
        if self.cancelled.is_set():
            raise Cancelled("cancelled")


class Deferred:
    """An invitation with a button, then progress, then the result in its place.

    Parameters
    ----------
    session : Session
        Whose worker computes.
    title, text, button : str
        The invitation.
    work : callable
        Runs in a worker; is given a `Progress`.
    show : callable
        Makes the content from the result; runs in the session.
    """

    def __init__(
        self, session: Session, title: str, text: str, button: str, work: Callable[[Progress], Any], show: Callable[[Any], Any]
    ) -> None:
        self.session, self.work, self.show = session, work, show
        self._title = title
        self._job: Job | None = None
        self._progress = Progress()
        self._timer: Any = None
        self._start = pmui.Button(label=button, variant="contained", disable_elevation=True, margin=(-28, 0, 40, 0), align="center")
        self._stop = pmui.Button(label="Cancel", variant="text", margin=0, size="small")
        self._start.on_click(lambda _: self.start())
        self._stop.on_click(lambda _: self.cancel())
        self._invitation = pn.Column(empty(title, text), self._start, sizing_mode="stretch_width", margin=0)
        self._note = html("")
        self._error = html("", visible=False, margin=(0, 0, 12, 0))
        self._bar = pmui.LinearProgress(variant="indeterminate", active=True, sizing_mode="stretch_width", margin=(4, 0, 4, 0))
        row = pn.Row(self._note, self._stop, sizing_mode="stretch_width", margin=0)
        self._running = paper(row, self._bar, visible=False)
        self._content = pn.Column(sizing_mode="stretch_width", margin=0, visible=False)
        self.view = pn.Column(self._error, self._invitation, self._running, self._content, sizing_mode="stretch_width", margin=0)

    @property
    def running(self) -> bool:
        """True from the start until the result, an error or a cancel."""
        return self._job is not None

    def start(self) -> None:
        """Start, unless it runs."""
        if self._job is not None:
            return
        progress = self._progress = Progress()
        self._state(running=True)
        self._tick()
        self._job = self.session.jobs.start(lambda: self.work(progress), self._done, self._failed, long=True, stop=progress.cancelled.set)
        self._timer = every(_POLL_MS, self._tick)

    def cancel(self) -> None:
        """Stop; the worker gives up at its next step, and nothing is kept."""
        self._progress.cancelled.set()
        if self._job is not None:
            self._job.cancel()
        self._end()
        self._state()

    def _tick(self) -> None:
        fraction = self._progress.fraction
        self._note.object = f'<div class="cl">{message(self._title, self._progress.text)}</div>'
        if fraction is None:
            self._bar.param.update(variant="indeterminate")
        else:
            self._bar.param.update(variant="determinate", value=int(100 * fraction))

    def _end(self) -> None:
        self._job = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _done(self, result: Any) -> None:
        self._end()
        self._content[:] = [self.show(result)]
        self._state(done=True)

    def _failed(self, text: str) -> None:
        self._end()
        self._state(error=text)

    def _state(self, *, running: bool = False, done: bool = False, error: str = "") -> None:
        self._error.object = f'<div class="cl">{message("This was not computed", error, "err")}</div>'
        self._error.visible, self._running.visible, self._content.visible = bool(error), running, done
        self._invitation.visible = not running and not done


def deferred(
    session: Session, key: str, title: str, text: str, button: str, work: Callable[[Progress], Any], show: Callable[[Any], Any]
) -> Deferred:
    """Return the part `key` of a session: the one that is running, or a new one; parameters as in `Deferred`."""
    known: dict[str, Deferred] = session.kept.setdefault("deferred", {})  # a page that is opened again finds the work that it started
    found = known.get(key)
    if found is not None and found.running:
        found.show = show
        return found
    part = known[key] = Deferred(session, title, text, button, work, show)
    return part
