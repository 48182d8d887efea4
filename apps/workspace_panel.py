"""The workspace on the screen: its artifacts, and the upload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import panel_material_ui as pmui

from commcanary_lab.errors import LabError
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.markup import html, message, title_html
from commcanary_lab.views.tables import TableColumn, table
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact
from commcanary_lab.workspace.artifact import KINDS
from commcanary_lab.workspace.upload import MAX_UPLOAD_BYTES, check_size, safe_name

from .session import Session

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["WorkspacePanel", "counted"]

_DROP_SX = {
    "height": "92px",
    "border": "1.5px dashed var(--mui-palette-divider)",
    "borderRadius": "10px",
    "color": "var(--mui-palette-text-secondary)",
    "fontWeight": 400,
    "justifyContent": "center",
    "&:hover": {"borderColor": "var(--mui-palette-primary-main)", "background": "transparent"},
}


class WorkspacePanel:
    """The list of artifacts (a click opens one) and a place to drop new ones."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._artifacts = session.workspace.list()
        self._table = self._make_table()
        self._upload = pmui.FileInput(
            label=f"Drop files here, or click to choose. Up to {format_bytes(MAX_UPLOAD_BYTES)} each.",
            multiple=True,
            variant="text",
            sizing_mode="stretch_width",
            margin=(10, 0, 0, 0),
            max_file_size=MAX_UPLOAD_BYTES,
            sx=_DROP_SX,
            uploaded_label="Drop more files here, or click to choose.",
        )
        self._outcome = html("", margin=(10, 0, 0, 0), visible=False)
        self._upload.param.watch(self._uploaded, "value")
        self._title = html("")
        self.view = paper(self._title, self._table, self._upload, self._outcome)
        self.refresh()

    def refresh(self) -> None:
        """Show what is in the folder now; nothing else on the page moves."""
        self._artifacts = self.session.workspace.list()
        frame = self._frame()
        if not frame.equals(self._table.value):
            self._table.value = frame
        text = counted([a.kind for a in self._artifacts])
        title = title_html("Workspace", f"{self.session.workspace.path}: {text}. A click opens an artifact.")
        self._title.object = f'<div class="cl">{title}</div>'

    def _frame(self) -> pd.DataFrame:
        import pandas as pd

        opened = {self.session.trace, self.session.canary}
        rows = [
            {"name": a.name, "kind": a.kind, "summary": a.summary, "size": float(a.size_bytes), "open": "open" if a.name in opened else ""}
            for a in self._artifacts
        ]
        return pd.DataFrame(rows, columns=["name", "kind", "summary", "size", "open"])

    def _make_table(self) -> Any:
        columns = {
            "name": TableColumn("Name", None, 220, grow=3),
            "kind": TableColumn("Kind", None, 80),
            "summary": TableColumn("Content", None, 180, grow=2),
            "size": TableColumn("Size", fmt.bytes_cell(), 90, right=True),
            "open": TableColumn("", None, 60, right=True),
        }
        out = table(self._frame(), columns, page_size=25, empty="Empty. Drop a file below.", pagination="local")
        out.on_click(self._clicked)
        return out

    def _clicked(self, event: Any) -> None:
        if event.row is not None and event.row < len(self._artifacts):
            artifact = self._artifacts[event.row]
            if artifact.kind != "other":
                self.session.open(artifact.name)

    # -- upload -------------------------------------------------------------------------------------------------------

    def _uploaded(self, event: Any) -> None:
        if not event.new:
            return
        names, contents = self._upload.filename, event.new
        pairs = list(zip(names, contents, strict=True)) if isinstance(names, list) else [(names, contents)]
        self._tell(message("Checking " + ", ".join(str(n) for n, _ in pairs), "Each file is opened before it is added."))
        self.session.jobs.start(
            lambda: [self._add(str(n), c) for n, c in pairs], self._added, lambda text: self._report([("", text, None)]), long=True
        )

    def _add(self, name: str, content: bytes) -> tuple[str, str, Artifact | None]:
        """Runs in a worker."""
        try:
            check_size(safe_name(name), len(content))
            return name, "", self.session.workspace.add(name, content)
        except LabError as e:
            return name, f"{type(e).__name__}: {e}", None

    def _added(self, outcomes: list[tuple[str, str, Artifact | None]]) -> None:
        added = [a for _, _, a in outcomes if a is not None]
        self._report([o for o in outcomes if o[2] is None])
        self._upload.clear()
        if added:
            self.session.open(added[-1].name)
            self.session.changed()

    def _report(self, failed: list[tuple[str, str, Artifact | None]]) -> None:
        self._tell("".join(message(f"{name or 'The upload'} was not added", text, "err") for name, text, _ in failed))

    def _tell(self, content: str) -> None:
        """One pane whose text changes: exchanging children while the browser still builds the last ones can lose the new ones."""
        self._outcome.object = f'<div class="cl">{content}</div>'
        self._outcome.visible = bool(content)


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
            many = f"{kind[:-1]}ies" if kind.endswith("ry") else f"{kind}s"
            parts.append(f"{n:,} {kind if n == 1 else many}")
    return ", ".join(parts)
