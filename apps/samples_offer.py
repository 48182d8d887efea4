"""An empty workspace: what to do next, and the samples by one button."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab import samples
from commcanary_lab.errors import LabError
from commcanary_lab.views.markup import html, message

from .page import empty
from .session import Session
from .timers import every

__all__ = ["SamplesOffer"]

_POLL_MS = 150


class SamplesOffer:
    """The empty state of the Overview page."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._said: SimpleQueue[str] = SimpleQueue()
        self._timer: Any = None
        self._add = pmui.Button(label="Add the samples", variant="contained", margin=(0, 8, 0, 0))
        self._tour = pmui.Button(label="Start the tour", variant="outlined", margin=0)
        self._add.on_click(lambda _: self._begin())
        session.visitor.limit(self._add)
        self._tour.on_click(lambda _: session.begin_tour())
        self._told = html("", margin=(12, 0, 0, 0), visible=False)
        offers = [self._add] if _installed() else []
        self.view = pn.Column(
            empty(
                "This workspace has no trace yet",
                "Drop a commcanary.trace.v1 file or a profile into the box below, copy files into the folder, or begin with the samples: "
                "traces, canaries, two reports to compare, and two recorded campaigns. They are small, and can be deleted again.",
            ),
            pn.Row(pn.layout.HSpacer(), *offers, self._tour, pn.layout.HSpacer(), sizing_mode="stretch_width", margin=(-36, 0, 24, 0)),
            self._told,
            sizing_mode="stretch_width",
            margin=0,
        )

    def _begin(self) -> None:
        try:
            self.session.visitor.require("adding the samples")
        except LabError as e:
            self._failed(str(e))
            return
        self._add.disabled = True
        self._tell("Adding the samples")
        folder = self.session.workspace.path
        self.session.jobs.start(lambda: samples.fill(folder, progress=self._said.put), self._done, self._failed, long=True)
        self._timer = every(_POLL_MS, self._poll)

    def _poll(self) -> None:
        latest = ""
        try:
            while True:
                latest = self._said.get_nowait()
        except Empty:
            pass
        if latest:
            self._tell(latest)

    def _done(self, written: int) -> None:
        self._stop()
        self._tell(f"{written:,} files written")
        self.session.changed()
        self.session.begin_tour()

    def _failed(self, text: str) -> None:
        self._stop()
        self._add.disabled = not self.session.visitor.operates
        self._told.visible = True
        self._told.object = f'<div class="cl">{message("The samples were not added", text, "err")}</div>'

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tell(self, text: str) -> None:
        self._told.object = f'<div class="cl" role="status" style="text-align:center"><span class="muted">{text} …</span></div>'
        self._told.visible = True


def _installed() -> bool:
    try:
        samples.directory()
    except LabError:
        return False
    return True
