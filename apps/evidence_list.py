"""The replays and the campaigns of a workspace on the screen; a click opens one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import panel as pn

from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.tables import TableColumn, table
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact

from .session import Session

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EvidenceList"]

_NONE = {
    "replay": "None yet. What is run here appears in this list; so does what the command line writes into the folder replays",
    "campaign": "None yet. commcanary-lab campaign run FILE -o campaigns/NAME, written into this workspace, appears here",
}


class EvidenceList:
    """A list that follows the folder.

    Parameters
    ----------
    session : Session
        Whose workspace is looked at.
    kind : str
        ``replay`` or ``campaign``.
    opened : callable
        Called with the short name of the one that was clicked.
    """

    def __init__(self, session: Session, kind: str, opened: Callable[[str], None]) -> None:
        self._session, self._kind, self._opened = session, kind, opened
        self._artifacts: list[Artifact] = []
        self._shown = ""
        self._frame: pd.DataFrame | None = None
        self._title = html("")
        self._table = pn.Column(sizing_mode="stretch_width", margin=0)
        self.view = paper(self._title, self._table)

    def show(self, shown: str | None = None) -> None:
        """Show what there is, and mark the one that is shown; the mark stays where none is given."""
        self._shown = self._shown if shown is None else shown
        self._artifacts = sorted(self._session.workspace.list(self._kind), key=lambda a: (-a.stamp[0], a.name))
        frame, n = self._rows(), len(self._artifacts)
        if self._frame is not None and frame.equals(self._frame):
            return
        self._frame = frame
        text = f"{n:,} in this workspace, the newest first. A click opens one" if n else _NONE[self._kind]
        self._title.object = f'<div class="cl">{title_html(f"{self._kind.capitalize()}s", text)}</div>'
        self._table[:] = [self._make(frame)] if n else []  # a new one: a table whose data are exchanged hears no more clicks

    def _short(self, artifact: Artifact) -> str:
        return artifact.name.removeprefix(f"{self._kind}s/")

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for a in self._artifacts:
            content, _, state = a.summary.rpartition(": ")
            name = self._short(a)
            is_shown = "shown" if name == self._shown else ""
            rows.append({"name": name, "content": content, "state": state, "size": float(a.size_bytes), "open": is_shown})
        return pd.DataFrame(rows, columns=["name", "content", "state", "size", "open"])

    def _make(self, frame: pd.DataFrame) -> Any:
        campaign = self._kind == "campaign"
        columns = {
            "name": TableColumn("Name", None, 240, grow=3),
            "content": TableColumn("Content", None, 220, grow=3),
            "state": TableColumn("Decision" if campaign else "Ended", fmt.status_cell() if campaign else None, 100),
            "size": TableColumn("Size", fmt.bytes_cell(), 80, right=True),
            "open": TableColumn("", None, 60, right=True),
        }
        out = table(frame, columns, page_size=8)
        out.on_click(lambda e: self._clicked(e.row))
        return out

    def _clicked(self, row: int | None) -> None:
        if row is not None and row < len(self._artifacts):
            self._opened(self._short(self._artifacts[row]))
