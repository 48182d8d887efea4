"""Traffic and fabric: who sends how much to whom, and which network that needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.traffic import TrafficMatrix, build_matrix
from commcanary_lab.units import format_bytes, format_count
from commcanary_lab.views.fabric_panel import FabricPanel
from commcanary_lab.views.heatmap import TrafficView
from commcanary_lab.views.import_coverage import notes_html
from commcanary_lab.views.markup import Figure, html, percent, title_html
from commcanary_lab.views.theme import fill, paper
from commcanary_lab.workspace import Workspace

from ..page import GAP, Built, PageSpec, Selection, empty, head
from ..session import Session, sidebar_label

__all__ = ["PAGE"]


@dataclass(frozen=True)
class Data:
    """The matrix of the open trace."""

    name: str
    matrix: TrafficMatrix


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Attribute the traffic of the open trace."""
    name = str(selection.trace)
    trace = workspace.trace(name)

    def matrix() -> TrafficMatrix:
        m = build_matrix(trace)
        _ = m.cells, m.sum_bytes  # computed here, not while a page is drawn
        return m

    return Data(name, workspace.derived(name, "matrix", matrix))


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    m = data.matrix
    top = head(f"{data.name} · {m.source}", answer(m, None), _figures(m))
    if not len(m.cells):
        return Built([top, empty("No bytes between ranks", "No event of this trace moves bytes whose sender and receiver are known.")])
    sizes = node_sizes(m.n)
    per_node = pmui.Select(
        label="GPUs per node",
        options={"not grouped": 0, **{str(k): k for k in sizes}},
        value=_chosen_size(session, sizes, 8 if 8 in sizes and m.n > 8 else 0),
        size="small",
        variant="outlined",
        sizing_mode="stretch_width",
        margin=(0, 0, 14, 0),
    )
    scale = pmui.RadioButtonGroup(
        label="", options={"Logarithmic": True, "Linear": False}, value=spread(m) > 20, size="small", sizing_mode="stretch_width", margin=0
    )
    view = TrafficView(m, log=scale.value, gpus_per_node=per_node.value or None)

    fabric = pn.Column(_fabric(m, per_node.value), sizing_mode="stretch_width", margin=0)

    def regroup(event: Any) -> None:
        view.update(gpus_per_node=event.new or None)
        top.object = head(f"{data.name} · {m.source}", answer(m, event.new or None), _figures(m, event.new or None)).object
        fabric.objects = [_fabric(m, event.new)]
        session.choose("gpus_per_node", str(event.new))

    scale.param.watch(lambda e: view.update(log=e.new), "value")
    per_node.param.watch(regroup, "value")
    if per_node.value:
        top.object = head(f"{data.name} · {m.source}", answer(m, per_node.value), _figures(m, per_node.value)).object
    view.heatmap_card.margin = (0, GAP, 0, 0)
    fill(view.heatmap_card)
    fill(view.links_card, flex="1 1 0px", **{"min-width": "0"})
    pair = pn.Row(view.heatmap_card, view.links_card, sizing_mode="stretch_width", margin=0, styles={"align-items": "stretch"})
    notes = notes_html(m.notes, ())
    cards = [top, pair, fabric, view.bars_card, *([paper(html(notes))] if notes else [])]
    return Built(cards, [per_node, sidebar_label("Colour scale"), scale])


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


PAGE = PageSpec("traffic", "Traffic & Fabric", "trace", gather, build)
