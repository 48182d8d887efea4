"""Upload: files arrive in parts in a hidden folder of the workspace, whatever their size takes in memory."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import Any

import param
from panel.custom import JSComponent

from commcanary_lab.errors import LabError
from commcanary_lab.views.markup import CSS
from commcanary_lab.workspace import Outcome, Staging, Workspace
from commcanary_lab.workspace.upload import MAX_FILES, check_size, safe_name

__all__ = ["DropZone", "Receiver"]

#: The browser sends parts of 1 MiB; a little more is tolerated, much more is not one of its messages.
_MAX_PART = 4 << 20

_CSS = (
    CSS
    + """
.dz label { display: flex; flex-direction: column; align-items: center; justify-content: center; gap: 2px; min-height: 76px; padding: 12px;
  border: 1.5px dashed color-mix(in srgb, var(--m) 50%, transparent); border-radius: 10px; color: var(--m); cursor: pointer;
  text-align: center; }
.dz label b { font-weight: 500; color: var(--t); } .dz .hint { font-size: 12.5px; }
.dz label:hover, .dz label.over { border-color: var(--a); } .dz label.over { background: var(--s); }
.dz label:focus-within { outline: 2px solid var(--a); outline-offset: 2px; } .dz label.off { opacity: .55; cursor: default; }
.dz input { position: absolute; width: 1px; height: 1px; opacity: 0; overflow: hidden; clip-path: inset(50%); }
.dz .going { margin-top: 10px; } .dz .row { display: flex; justify-content: space-between; align-items: center; gap: 16px;
  font-size: 12.5px; min-height: 24px; }
.dz .what { overflow-wrap: anywhere; }
.dz button { all: unset; cursor: pointer; color: var(--a); font-size: 12.5px; padding: 2px 6px; border-radius: 4px; }
.dz button:hover { text-decoration: underline; } .dz button:focus-visible { outline: 2px solid var(--a); }
.dz button[hidden], .dz .going[hidden] { display: none; }
.dz .track { height: 6px; border-radius: 3px; background: var(--s); overflow: hidden; margin-top: 4px; }
.dz .track i { display: block; height: 100%; width: 0; background: var(--a); }
"""
)


class DropZone(JSComponent):
    """What the browser shows, and its messages."""

    hint = param.String("", doc="The limits, in words.")
    _esm = Path(__file__).with_name("assets") / "drop_zone.js"

    def __init__(self, received: Callable[[Any], None], **params: Any) -> None:
        self.received = received
        super().__init__(stylesheets=[_CSS], **params)

    def _handle_msg(self, data: Any) -> None:
        self.received(data)


class Receiver:
    """The other end of a `DropZone`: one upload at a time, checked part by part. It trusts nothing that the browser says.

    Parameters
    ----------
    workspace : Workspace
    tell : callable
        Sends a message to the browser.
    arrived : callable
        Called at the end with the upload, None when nothing of it is left, and with what was refused.
    """

    def __init__(
        self, workspace: Workspace, tell: Callable[[dict[str, Any]], None], arrived: Callable[[Staging | None, list[Outcome]], None]
    ) -> None:
        self.workspace = workspace
        self.tell = tell
        self.arrived = arrived
        self._id = ""
        self._names: list[tuple[str, int]] = []
        self._index = 0
        self._offset = 0
        self._open = False
        self._staging: Staging | None = None
        self._refused: list[Outcome] = []

    def received(self, message: Any) -> None:
        """Take a message of the browser; one that makes no sense ends the upload."""
        match message:
            case {"id": str(id_), "begin": list(files)}:
                self._begin(id_[:64], files)
            case {"id": str(id_), **rest} if id_ == self._id and self._staging is not None:
                match rest:
                    case {"file": int(index), "offset": int(offset), "data": str(data)} if (index, offset) == (self._index, self._offset):
                        self._part(data)
                    case {"lost": int()}:
                        self._staging.drop()
                        self._refuse("InputError: the browser could no longer read the file; choose it again")
                        self._next()
                    case _:
                        self.close()

    def close(self) -> None:
        """End an upload that is not complete: nothing of it stays."""
        if self._staging is not None:
            self._staging.abandon()
        self._staging, self._id = None, ""

    def _begin(self, id_: str, files: list[Any]) -> None:
        self.close()
        self._id, self._names, self._refused = id_, [], []
        for file in files[: MAX_FILES + 1]:
            match file:
                case {"name": str(name), "size": int(size)} if size >= 0:
                    self._names.append((name, size))
        try:
            self._staging = self.workspace.stage()
        except LabError as e:
            self._refused = [Outcome(tuple(n for n, _ in self._names), problem=f"{type(e).__name__}: {e}")]
            self._finish()
            return
        self._index = -1
        self._next()

    def _next(self) -> None:
        """Ask for the next file that is worth sending."""
        assert self._staging is not None
        while (self._index + 1) < len(self._names):
            self._index, self._offset = self._index + 1, 0
            name, size = self._names[self._index]
            try:
                check_size(safe_name(name), size)
                self._staging.begin(name)
            except LabError as e:
                self._refused.append(Outcome((name,), problem=f"{type(e).__name__}: {e}"))
                continue
            if size:
                self.tell({"id": self._id, "want": [self._index, 0]})
                return
        self._finish()

    def _part(self, data: str) -> None:
        assert self._staging is not None
        _, size = self._names[self._index]
        try:
            part = base64.b64decode(data, validate=True) if len(data) < _MAX_PART else b""
        except (binascii.Error, ValueError):
            part = b""
        if not part or self._offset + len(part) > size:
            self._staging.drop()
            self._refuse("InputError: the file changed while it was uploaded; upload it again")
            self._next()
            return
        try:
            self._staging.write(part)
        except LabError as e:
            self._refuse(f"{type(e).__name__}: {e}")
            self._next()
            return
        self._offset += len(part)
        if self._offset < size:
            self.tell({"id": self._id, "want": [self._index, self._offset]})
        else:
            self._next()

    def _refuse(self, problem: str) -> None:
        self._refused.append(Outcome((self._names[self._index][0],), problem=problem))

    def _finish(self) -> None:
        staging, self._staging = self._staging, None
        if staging is not None and not staging.names:
            staging.abandon()
            staging = None
        if staging is not None:
            self.tell({"id": self._id, "checking": "Opening the files: each is read before it is added"})
        self.arrived(staging, self._refused)

    def finished(self) -> None:
        """Tell the browser that the files were dealt with."""
        self.tell({"id": self._id, "finished": True})
