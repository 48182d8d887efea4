"""Provenance on the screen: a graph whose nodes open artifacts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param
from panel.custom import JSComponent

from commcanary_lab.errors import LabError
from commcanary_lab.units import format_bytes
from commcanary_lab.views.markup import html, message, title_html
from commcanary_lab.views.provenance_graph import GRAPH_CSS, graph_html
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace.provenance import Node, Provenance
from commcanary_lab.workspace.provenance_search import find_provenance

from .jobs import Job
from .session import Session

__all__ = ["ProvenancePanel"]

#: Up to so many artifacts the whole graph is shown at first; of more, what has to do with the open trace.
_WHOLE = 40


class GraphPane(JSComponent):
    """The drawing, and the clicks on its nodes."""

    html = param.String("")
    _esm = Path(__file__).with_name("assets") / "provenance.js"

    def __init__(self, clicked: Callable[[Any], None], **params: Any) -> None:
        self.clicked = clicked
        super().__init__(stylesheets=[GRAPH_CSS], **params)

    def _handle_msg(self, data: Any) -> None:
        self.clicked(data)


class ProvenancePanel:
    """The graph of the workspace, found in the background; `filtered` is told a kind when a folded node is clicked."""

    def __init__(self, session: Session, filtered: Callable[[str], None]) -> None:
        self.session = session
        self._filtered = filtered
        self._graph: Provenance | None = None
        self._job: Job | None = None
        self._whole: bool | None = None
        self._filling = False
        self._title = html("")
        self._pane = GraphPane(self._clicked, sizing_mode="stretch_width", margin=0)
        self._range = pmui.RadioButtonGroup(
            options=["This family", "Everything"], size="small", variant="outlined", margin=0, visible=False,
            description="Which part of the graph is drawn", width=220, sx={"& .MuiToggleButton-root": {"whiteSpace": "nowrap"}},
        )  # fmt: skip
        self._range.param.watch(self._chosen, "value")
        self._large = pmui.Button(label="", variant="text", size="small", margin=(4, 0, 0, -8), visible=False)
        self._large.on_click(lambda _: self.find(large=True))
        head = pn.Row(self._title, self._range, sizing_mode="stretch_width", margin=0)
        self.view = paper(head, self._pane, self._large)
        self._say("Looking at what was made from what …")
        session.param.watch(lambda *_: self._draw(), ["trace", "canary", "dark"])

    def find(self, *, large: bool = False) -> None:
        """Look again, in the background; nothing moves unless something is found that is new."""
        if self._job is not None:
            self._job.cancel()
        stopped = {"yes": False}
        workspace = self.session.workspace
        self._job = self.session.jobs.start(
            lambda: find_provenance(workspace, large=large, cancelled=lambda: stopped["yes"]),
            self._found,
            lambda text: self._say(message("The graph cannot be drawn", text, "err")),
            slow=True,
            stop=lambda: stopped.update(yes=True),
        )

    def _found(self, graph: Provenance) -> None:
        self._graph = graph
        large = [n for n, why in graph.unread if why.startswith("large")]
        size = sum(a.size_bytes for a in self.session.workspace.list() if a.name in large)
        self._large.label = f"Open {len(large)} large artifact{'s' if len(large) != 1 else ''} too ({format_bytes(size)})"
        self._large.visible = bool(large)
        self._draw()

    def _chosen(self, event: Any) -> None:
        if not self._filling:
            self._whole = event.new == "Everything"
            self._draw()

    def _draw(self) -> None:
        graph = self._graph
        if graph is None:
            return
        here = tuple(n for n in (self.session.trace, self.session.canary) if n)
        family = graph.family(self.session.trace) if self.session.trace else Provenance()
        whole = self._whole if self._whole is not None else len(graph.nodes) <= _WHOLE or not family.nodes
        choice = "Everything" if whole or not family.nodes else "This family"
        self._range.visible = bool(family.nodes) and len(family.nodes) < len(graph.nodes)
        self._filling = True  # what the program sets is not a choice of the user
        try:
            self._range.value = choice
        finally:
            self._filling = False
        shown = graph if choice == "Everything" else family
        self._title.object = f'<div class="cl">{title_html("Provenance", _subtitle(graph, shown, self.session.trace))}</div>'
        drawn = graph_html(shown, self._address, here=here)
        if not shown.edges:
            drawn = '<p class="muted">Nothing here was made from anything else here, by its SHA-256 values.</p>' + drawn
        if self._pane.html != drawn:
            self._pane.html = drawn

    def _say(self, text: str) -> None:
        self._title.object = f'<div class="cl">{title_html("Provenance", "What was made from what, by SHA-256 of content.")}</div>'
        self._pane.html = f'<div class="muted" role="status">{text}</div>'

    def _address(self, node: Node) -> str:
        graph = self._graph
        sources = [e.parent for e in graph.parents.get(node.name, ())] if graph is not None else []
        return self.session.address(node.name, node.kind, [s for s in sources if not s.startswith("/")])

    def _clicked(self, data: Any) -> None:
        match data:
            case {"open": str(name)}:
                try:
                    self.session.open(name, show=True)
                except LabError as e:  # it was removed a moment ago
                    self._say(message(f"{name} cannot be opened", str(e), "err"))
            case {"kind": str(kind)}:
                self._filtered(kind)


def _subtitle(graph: Provenance, shown: Provenance, trace: str | None) -> str:
    part = "" if len(shown.nodes) == len(graph.nodes) else f"What has to do with {trace}. "
    missing = sum(n.missing for n in shown.nodes)
    lost = f" {missing:,} source{'s are' if missing != 1 else ' is'} not in this workspace." if missing else ""
    damaged = sum(not why.startswith("large") for _, why in graph.unread)
    unread = f" {damaged:,} could not be looked at." if damaged else ""
    return f"{part}What was made from what, by SHA-256 of content, never by name.{lost}{unread} A click opens an artifact."
