"""Traffic and fabric: who sends how much to whom, and which network that needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.trace import Trace
from commcanary_lab.trace.timing import clock_ns, timing_mode
from commcanary_lab.traffic import TrafficMatrix, build_matrix
from commcanary_lab.traffic.windows import in_window
from commcanary_lab.units import format_bytes, format_count, format_ns
from commcanary_lab.views.fabric_panel import FabricPanel
from commcanary_lab.views.heatmap import TrafficView
from commcanary_lab.views.import_coverage import notes_html
from commcanary_lab.views.markup import Figure, html, percent, title_html
from commcanary_lab.views.theme import fill, paper
from commcanary_lab.workspace import Workspace

from ..page import GAP, Built, PageSpec, Selection, empty, head
from ..session import Session, sidebar_label
from .traffic_against import Against, AgainstCard, gather_against, matrix_of

__all__ = ["PAGE"]


@dataclass(frozen=True)
class Data:
    """The open trace and its matrix."""

    name: str
    trace: Trace
    matrix: TrafficMatrix
    length_ns: int | None
    against: Against


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Attribute the traffic of the open trace."""
    name = str(selection.trace)
    trace = workspace.trace(name)
    m = matrix_of(workspace, name)
    timed = len(trace) > 1 and timing_mode(trace) != "none"
    length_ns = int(clock_ns(trace)[-1]) if timed else None
    return Data(name, trace, m, length_ns, gather_against(workspace, selection, name, m))


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    m = data.matrix
    against = AgainstCard(data.against, session)
    notes = notes_html(m.notes, ())
    last = [against.invitation, *([paper(html(notes))] if notes else [])]
    if not len(m.cells):
        top = head(f"{data.name} · {m.source}", answer(m, None), _figures(m))
        nothing = empty("No bytes between ranks", "No event of this trace moves bytes whose sender and receiver are known.")
        return Built([top, against.view, nothing, *last], against.controls)
    page = _Page(data, session)
    return Built([page.top, against.view, page.pair, page.fabric, page.bars, *last], [*page.controls, *against.controls])


class _Page:
    """The parts that follow the controls: the matrix of the chosen time, and what is said about it."""

    def __init__(self, data: Data, session: Session) -> None:
        self.data = data
        self.session = session
        self.matrix = data.matrix
        sizes = node_sizes(self.matrix.n)
        wide = {"size": "small", "sizing_mode": "stretch_width"}
        self.per_node = pmui.Select(
            label="GPUs per node",
            options={"not grouped": 0, **{str(k): k for k in sizes}},
            value=_chosen_size(session, sizes, 8 if 8 in sizes and self.matrix.n > 8 else 0),
            variant="outlined",
            margin=(0, 0, 14, 0),
            **wide,
        )
        self.scale = pmui.RadioButtonGroup(
            label="", options={"Logarithmic": True, "Linear": False}, value=spread(self.matrix) > 20, margin=(0, 0, 14, 0), **wide
        )
        self.controls = [self.per_node, sidebar_label("Colour scale"), self.scale]
        if data.length_ns:
            self.time = pmui.IntRangeSlider(label="Starts within, % of the trace", start=0, end=100, value=(0, 100), margin=(0, 10), **wide)
            self.time.param.watch(lambda _: self._at_time(), "value_throttled")
            self.controls += [sidebar_label("Time"), self.time]
        self.top = html("")
        self.pair = pn.Row(sizing_mode="stretch_width", margin=0, styles={"align-items": "stretch"})
        self.bars, self.fabric = (pn.Column(sizing_mode="stretch_width", margin=0) for _ in range(2))
        self._draw()
        self.scale.param.watch(lambda e: self.view.update(log=e.new), "value")
        self.per_node.param.watch(self._regroup, "value")

    def _draw(self) -> None:
        self.view = TrafficView(self.matrix, log=self.scale.value, gpus_per_node=self.per_node.value or None)
        self.view.heatmap_card.margin = (0, GAP, 0, 0)
        fill(self.view.heatmap_card)
        fill(self.view.links_card, flex="1 1 0px", **{"min-width": "0"})
        self.pair.objects = [self.view.heatmap_card, self.view.links_card]
        self.bars.objects = [self.view.bars_card]
        self._describe()

    def _describe(self) -> None:
        m, per_node = self.matrix, self.per_node.value or None
        self.top.object = head(f"{self.data.name} · {m.source}{self._window()}", answer(m, per_node), _figures(m, per_node)).object
        self.fabric.objects = [_fabric(m, per_node or 0)]

    def _regroup(self, event: Any) -> None:
        self.view.update(gpus_per_node=event.new or None)
        self._describe()
        self.session.choose("gpus_per_node", str(event.new))

    def _window(self) -> str:
        if self.matrix is self.data.matrix:
            return ""
        low, high = self._bounds()
        return f" · events that start from {format_ns(low)} to {format_ns(high)}"

    def _bounds(self) -> tuple[int, int]:
        length = self.data.length_ns or 0
        low, high = self.time.value
        return length * low // 100, length * high // 100

    def _at_time(self) -> None:
        low, high = self._bounds()
        whole = tuple(self.time.value) == (0, 100) or low >= high
        self.matrix = self.data.matrix if whole else build_matrix(in_window(self.data.trace, low, high + 1))
        self._draw()


def _chosen_size(session: Session, sizes: list[int], default: int) -> int:
    """Return the node size in the address where it makes sense for this matrix."""
    text = session.selection.option("gpus_per_node", "")
    return int(text) if text.isascii() and text.isdigit() and int(text) in (0, *sizes) else default


def _fabric(m: TrafficMatrix, per_node: int) -> Any:
    """Return the fabric card, or what to do to see it."""
    if per_node:
        return FabricPanel(m, per_node).view
    text = "Which network does this traffic need? Choose the GPUs per node at the left: a trace does not say where its ranks sit."
    return paper(html(title_html("Fabric", text)))


def answer(m: TrafficMatrix, per_node: int | None) -> str:
    """Return one sentence about where the bytes go."""
    if not len(m.cells):
        return "<b>No bytes</b> travel between known ranks."
    top = m.links(top=1)[0]
    busiest = f"the busiest, {top.src} to {top.dst}, carries {format_bytes(top.size_bytes)}"
    text = f"Ranks exchange <b>{format_bytes(m.sum_bytes)}</b> over {len(m.cells):,} links; {busiest}."
    if per_node:
        nodes = m.group_by_node(per_node)
        total = nodes.intra_bytes + nodes.inter_bytes
        if nodes.inter_bytes == 0:
            return f"{text} With {per_node} GPUs per node, <b>nothing leaves a node</b>."
        return f"{text} With {per_node} GPUs per node, <b>{percent(nodes.inter_bytes / total)}</b> of the bytes cross nodes."
    return text


def _figures(m: TrafficMatrix, per_node: int | None = None) -> list[Figure]:
    origin = m.origin if m.origin == "measured" else f"model, ring order {m.ring_order}"
    out = [
        Figure("Matrix sum", format_bytes(m.sum_bytes), origin),
        Figure("Payload", format_bytes(m.payload_bytes), "B summed over records"),
        Figure("Records", format_count(m.records), f"of {format_count(m.events)} events"),
        Figure(
            "Unattributed",
            format_bytes(m.unattributed_bytes),
            "destination unknown" if m.unattributed_bytes else "every byte has a destination",
        ),
    ]
    if per_node:
        nodes = m.group_by_node(per_node)
        out.insert(1, Figure("Between nodes", format_bytes(nodes.inter_bytes), f"{per_node} GPUs per node, assumed"))
    return out


def node_sizes(ranks: int) -> list[int]:
    """Return the node sizes that make sense for a number of ranks.

    Examples
    --------
    >>> node_sizes(8)
    [2, 4]
    """
    return [k for k in (2, 4, 8, 16, 32, 64, 72) if k < ranks]


def spread(m: TrafficMatrix) -> float:
    """Return how many times the largest link exceeds the smallest."""
    values = m.cells.size_bytes
    return float(values.max() / values.min()) if len(values) else 1.0


PAGE = PageSpec("traffic", "Traffic & Fabric", "trace", gather, build, follows=("trace", "canary"))
