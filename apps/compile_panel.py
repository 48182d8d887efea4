"""Compile the open trace, in the background, into a new file of the workspace."""

from __future__ import annotations

from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.errors import LabError
from commcanary_lab.views.markup import html, message
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact

from .jobs import Job
from .session import Session, sidebar_label

__all__ = ["CompilePanel"]


class CompilePanel:
    """Controls for the side, and a progress card for the main area. A cancelled compile writes nothing."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._job: Job | None = None
        wide = {"sizing_mode": "stretch_width", "size": "small"}
        self._mode = pmui.RadioButtonGroup(
            label="", options={"Lossless": "lossless", "Bounded": "records"}, value="lossless", margin=(0, 0, 12, 0), **wide
        )
        self._records = pmui.IntInput(
            label="Intervals per step, at most",
            value=8,
            start=1,
            end=1_000_000,
            variant="outlined",
            margin=(0, 0, 12, 0),
            visible=False,
            **wide,
        )
        self._button = pmui.Button(
            label="Compile this trace", variant="contained", margin=0, disabled=session.trace is None, disable_elevation=True, **wide
        )
        self._cancel = pmui.Button(label="Cancel", variant="text", margin=0, size="small")
        self._mode.param.watch(lambda e: setattr(self._records, "visible", e.new == "records"), "value")
        self._button.on_click(self._start)
        session.visitor.limit(self._button)
        self._cancel.on_click(self._stop)
        self.view = pn.Column(
            sidebar_label("Timing of the new canary"), self._mode, self._records, self._button, sizing_mode="stretch_width", margin=0
        )
        self._note = html("")
        self._bar = pmui.LinearProgress(variant="indeterminate", active=True, sizing_mode="stretch_width", margin=(4, 0, 4, 0))
        head = pn.Row(self._note, self._cancel, sizing_mode="stretch_width", margin=0)
        self.progress = paper(head, self._bar, visible=False)

    def _start(self, _: Any) -> None:
        name = self.session.trace
        if name is None or self._job is not None:
            return
        try:
            self.session.visitor.require("compiling into the workspace")
        except LabError as e:
            self._failed(str(e))
            return
        records = int(self._records.value) if self._mode.value == "records" else None
        workspace = self.session.workspace
        self._button.disabled = True
        words = f"at most {records:,} intervals per step" if records else "lossless"
        self._tell(f"Compiling {name}", words, running=True)
        self._job = self.session.jobs.start(
            lambda: compile_trace(workspace.trace(name), records=records).canonical,
            lambda data: self._write(name, records, data),
            self._failed,
            long=True,
        )

    def _write(self, name: str, records: int | None, data: bytes) -> None:
        """Only here, in the session, and only if nobody cancelled, is a file written."""
        target = f"{name.split('.')[0]}.{f'records-{records}' if records else 'lossless'}.canary.json"
        self._job = self.session.jobs.start(lambda: self.session.workspace.add(target, data, rename=True), self._done, self._failed)

    def _done(self, artifact: Artifact) -> None:
        self._reset()
        if self.session.canary == artifact.name:
            self.session.param.trigger("canary")
        else:
            self.session.canary = artifact.name
        self.session.changed()

    def _failed(self, text: str) -> None:
        self._reset()
        self._tell("Not compiled", text, running=False)

    def _stop(self, _: Any) -> None:
        if self._job is not None:
            self._job.cancel()
        self._reset()

    def _reset(self) -> None:
        self._job = None
        self._button.disabled = self.session.trace is None or not self.session.visitor.operates
        self.progress.visible = False

    def _tell(self, title: str, text: str, *, running: bool) -> None:
        self._note.object = f'<div class="cl">{message(title, text, "" if running else "err")}</div>'
        self._bar.visible = self._cancel.visible = running
        self.progress.visible = True
