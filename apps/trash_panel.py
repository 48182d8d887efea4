"""The trash on the screen: what was deleted can be put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import LabError
from commcanary_lab.units import format_bytes
from commcanary_lab.views.markup import html, message
from commcanary_lab.workspace import Trashed

from .session import Session

__all__ = ["TrashPanel"]

#: Entries with a button; older ones wait until these are gone.
_MAX_SHOWN = 20


class TrashPanel:
    """What was just deleted, with Undo; everything in the trash, with Restore; and a way to empty it."""

    def __init__(self, session: Session, changed: Callable[[], None]) -> None:
        self.session = session
        self._changed = changed
        self._entries: tuple[Trashed, ...] = ()
        self._just: tuple[Trashed, ...] = ()
        self._told = html("", sizing_mode="stretch_width")
        self._undo = pmui.Button(label="Undo", variant="outlined", size="small", margin=(0, 0, 0, 12))
        self._undo.on_click(lambda _: self._restore(self._just))
        self._note = pn.Row(self._told, self._undo, sizing_mode="stretch_width", margin=(10, 0, 0, 0), visible=False)
        self._toggle = pmui.Button(label="", variant="text", size="small", margin=(8, 0, 0, -8), visible=False)
        self._toggle.on_click(lambda _: self._show(not self._list.visible))
        self._list = pn.Column(sizing_mode="stretch_width", margin=(4, 0, 0, 0), visible=False)
        self.view = pn.Column(self._note, self._toggle, self._list, sizing_mode="stretch_width", margin=0)
        self.refresh()

    def delete(self, names: Sequence[str]) -> None:
        """Move artifacts to the trash, and offer to undo that."""
        moved, problems = [], []
        for name in names:
            try:
                moved.append(self.session.workspace.trash(name))
            except LabError as e:
                problems.append(str(e))
        self._just = tuple(moved)
        if moved:
            what = moved[0].name if len(moved) == 1 else f"{len(moved)} artifacts"
            self._tell(f"{what} moved to the trash", "\n".join(problems), undo=True)
        elif problems:
            self._tell("Nothing was deleted", "\n".join(problems), "err")
        self.refresh()
        self._changed()

    def refresh(self) -> None:
        """Show what is in the trash now."""
        entries = self.session.workspace.trashed()
        if entries == self._entries and self._toggle.visible == bool(entries):
            return
        self._entries = entries
        there = {t.entry for t in entries}
        if any(t.entry not in there for t in self._just):
            self._just = ()
            self._note.visible = False
        self._toggle.visible = bool(entries)
        self._show(self._list.visible and bool(entries))

    def _show(self, visible: bool) -> None:
        size = sum(t.size_bytes for t in self._entries)
        self._toggle.label = f"{'Hide' if visible else 'Show'} the trash: {len(self._entries):,}, {format_bytes(size)}"
        if visible:
            self._list[:] = [self._row(t) for t in self._entries[:_MAX_SHOWN]] + [self._foot()]
        self._list.visible = visible

    def _row(self, t: Trashed) -> Any:
        about = f"{t.kind}, {format_bytes(t.size_bytes)}, deleted {t.deleted}"
        text = f"<b>{escape(t.name)}</b> <span class=muted>{escape(about)}</span>"
        button = pmui.Button(label="Restore", variant="text", size="small", margin=0, description=f"Restore {t.name}")
        button.on_click(lambda _: self._restore((t,)))
        self.session.visitor.limit(button)
        return pn.Row(html(text, margin=(6, 0, 0, 0)), button, sizing_mode="stretch_width", margin=0)

    def _foot(self) -> Any:
        more = len(self._entries) - _MAX_SHOWN
        text = f"<span class=muted>{more:,} older ones are not listed.</span>" if more > 0 else ""
        ask = pmui.Button(label="Empty the trash…", variant="text", size="small", margin=0)
        really = pmui.Button(label="Delete for good", variant="outlined", color="error", size="small", margin=(0, 0, 0, 8), visible=False)
        keep = pmui.Button(label="Keep", variant="text", size="small", margin=(0, 0, 0, 4), visible=False)

        def asked(yes: bool) -> None:
            ask.visible, really.visible, keep.visible = not yes, yes, yes

        ask.on_click(lambda _: asked(True))
        keep.on_click(lambda _: asked(False))
        really.on_click(lambda _: self._empty(self._entries))
        self.session.visitor.limit(ask, really)
        return pn.Row(html(text), ask, really, keep, sizing_mode="stretch_width", margin=(4, 0, 0, 0))

    def _restore(self, entries: Sequence[Trashed]) -> None:
        back, problems = [], []
        for t in entries:
            try:
                back.append(self.session.workspace.restore(t.entry).name)
            except LabError as e:
                problems.append(str(e))
        self._just = ()
        if problems:
            self._tell("Not everything was restored" if back else "Nothing was restored", "\n".join(problems), "err")
        else:
            self._tell(f"{back[0] if len(back) == 1 else f'{len(back)} artifacts'} restored")
        self.refresh()
        self._changed()

    def _empty(self, entries: Sequence[Trashed]) -> None:
        problems = []
        for t in entries:
            try:
                self.session.workspace.purge(t.entry)
            except LabError as e:
                problems.append(str(e))
        gone = len(entries) - len(problems)
        self._just = ()  # else the note about it would take this one away
        self._tell(f"{gone:,} artifact{'s' if gone != 1 else ''} deleted for good", "\n".join(problems), "err" if problems else "")
        self.refresh()

    def _tell(self, title: str, text: str = "", kind: str = "", *, undo: bool = False) -> None:
        self._told.object = f'<div class="cl">{message(title, text, kind)}</div>'
        self._undo.visible = undo
        self._note.visible = True
