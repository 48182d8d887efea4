"""The workspace on the screen: its artifacts, what was deleted, and where new ones are dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.tables import TableColumn, table
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact
from commcanary_lab.workspace.artifact import KINDS

from .provenance_panel import ProvenancePanel
from .session import Session
from .trash_panel import TrashPanel
from .upload_panel import UploadPanel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["WorkspacePanel", "counted"]

_COLUMNS = ["name", "kind", "summary", "size", "changed", "open"]


class WorkspacePanel:
    """The list of artifacts (a click opens one), provenance, upload and trash of one visitor."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._artifacts = session.workspace.list()
        self._filling = False
        self._kind = pmui.RadioButtonGroup(
            options={"All": ""}, value="", size="small", variant="outlined", margin=0, description="Which kinds the list shows",
            sx={"& .MuiToggleButton-root": {"whiteSpace": "nowrap"}},
        )  # fmt: skip
        self._kind.param.watch(lambda _: self._filtered(), "value")
        self._text = pmui.TextInput(label="Filter by name", size="small", variant="outlined", width=200, margin=(0, 0, 0, 12))
        self._text.param.watch(lambda _: self.refresh(), "value_input")
        self._table = self._make_table()
        self._table.param.watch(lambda _: self._selected(), "selection")
        self._delete = pmui.Button(label="Delete", variant="outlined", size="small", disabled=True, margin=0)
        self._delete.on_click(lambda _: self._remove())
        session.visitor.limit(self._delete)
        self._title = html("")
        self.trash = TrashPanel(session, session.changed)
        self.upload = UploadPanel(session)
        self.provenance = ProvenancePanel(session, self.show_kind)
        bar = pn.Row(self._kind, self._text, pn.layout.HSpacer(), self._delete, sizing_mode="stretch_width", margin=(14, 0, 6, 0))
        self._listed = pn.Column(bar, self._table, sizing_mode="stretch_width", margin=0, visible=bool(self._artifacts))
        self.view = paper(self._title, self.upload.view, self._listed, self.trash.view)
        self.refresh()
        self.provenance.find()

    def refresh(self) -> None:
        """Show what is in the folder now; nothing else on the page moves."""
        artifacts = self.session.workspace.list()
        if artifacts != self._artifacts:
            self._artifacts = artifacts
            self.provenance.find()
        self._fill_kinds()
        self._listed.visible = bool(artifacts)
        frame = self._frame()
        if not frame.equals(self._table.value):
            kept = set(self._names())
            self._table.value = frame
            self._table.selection = [i for i, name in enumerate(frame["name"]) if name in kept]
        text = counted([a.kind for a in self._artifacts])
        title = title_html("Workspace", f"{self.session.workspace.path}: {text}. A click opens an artifact.")
        if self._title.object != f'<div class="cl">{title}</div>':
            self._title.object = f'<div class="cl">{title}</div>'
        self.trash.refresh()

    @property
    def has_artifacts(self) -> bool:
        """Whether there is anything that a graph could show."""
        return any(a.kind != "other" for a in self._artifacts)

    def show_kind(self, kind: str) -> None:
        """Filter the list by a kind."""
        if kind in self._kind.options.values():
            self._kind.value = kind

    def _fill_kinds(self) -> None:
        counts = Counter(a.kind for a in self._artifacts)
        options = {f"All {len(self._artifacts):,}": ""}
        options |= {f"{_many(kind, counts[kind])} {counts[kind]:,}".capitalize(): kind for kind in KINDS if counts[kind]}
        if self._kind.options != options:
            self._filling = True
            try:
                value = self._kind.value if self._kind.value in options.values() else ""
                self._kind.param.update(options=options, value=value)
            finally:
                self._filling = False

    def _filtered(self) -> None:
        if not self._filling:
            self.refresh()

    def _shown(self) -> list[Artifact]:
        words = (self._text.value_input or "").casefold().split()
        kind = self._kind.value
        return [a for a in self._artifacts if (not kind or a.kind == kind) and all(w in a.name.casefold() for w in words)]

    def _frame(self) -> pd.DataFrame:
        import pandas as pd

        opened = {self.session.trace, self.session.canary}
        rows = [
            (a.name, a.kind, a.summary, float(a.size_bytes), _date(a.stamp[0]), "open" if a.name in opened else "") for a in self._shown()
        ]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def _make_table(self) -> Any:
        columns = {
            "name": TableColumn("Name"),
            "kind": TableColumn("Kind"),
            "summary": TableColumn("Content"),
            "size": TableColumn("Size", fmt.bytes_cell(), right=True),
            "changed": TableColumn("Changed (UTC)", right=True),
            "open": TableColumn("", right=True),
        }
        # settings per column are counted from the first one by Panel, and that one has the boxes: widths are said in its own words
        settings = {
            "columnDefaults": {"resizable": True, "headerSortTristate": False, "vertAlign": "middle"},
            "placeholder": "No artifact of this kind and name.",
        }
        widths = {"kind": 100, "size": 90, "changed": 150, "open": 64}
        out = table(self._frame(), columns, page_size=15, pagination="local", selectable="checkbox", configuration=settings, widths=widths)
        out.on_click(self._clicked)
        return out

    def _clicked(self, event: Any) -> None:
        if event.column == "_selection" or event.row is None or event.row >= len(self._table.value):
            return
        name = self._table.value["name"].iloc[event.row]
        if any(a.name == name and a.kind != "other" for a in self._artifacts):
            self.session.open(name, show=True)

    # -- deleting -----------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        frame = self._table.value
        return [frame["name"].iloc[i] for i in self._table.selection if i < len(frame)]

    def _selected(self) -> None:
        n = len(self._names())
        self._delete.param.update(disabled=not n or not self.session.visitor.operates, label=f"Delete {n}" if n else "Delete")

    def _remove(self) -> None:
        names = self._names()
        self._table.selection = []
        self.upload.clear()
        self.trash.delete(names)
        gone = {n: None for n in names if not any(a.name == n for a in self.session.workspace.list())}
        opened = {k: None for k in ("trace", "canary") if getattr(self.session, k) in gone}
        if opened:
            self.session.param.update(**opened)


def _date(modified_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(modified_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M") if modified_ns else ""


def _many(kind: str, n: int) -> str:
    if kind == "other":
        return "not recognised"
    return kind if n == 1 else f"{kind[:-1]}ies" if kind.endswith("ry") else f"{kind}s"


def counted(kinds: Sequence[str]) -> str:
    """Return how many artifacts of each kind there are; traces and canaries are named even where there are none.

    Examples
    --------
    >>> counted(["trace", "report", "report", "other"])
    '1 trace, 0 canaries, 2 reports, 1 not recognised'
    """
    counts = Counter(kinds)
    parts = []
    for kind in KINDS:
        n = counts[kind]
        if kind == "other":
            parts += [f"{n:,} not recognised"] if n else []
        elif n or kind in ("trace", "canary"):
            parts.append(f"{n:,} {_many(kind, n)}")
    return ", ".join(parts)
