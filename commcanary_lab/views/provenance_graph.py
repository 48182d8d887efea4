"""The provenance graph as HTML: real links over drawn edges, so that keyboard and screen reader get all of it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from commcanary_lab.views.markup import CSS
from commcanary_lab.views.provenance_layout import FOLDED, Layout, Placed, condensed, connected, layout
from commcanary_lab.workspace.provenance import Node, Provenance

__all__ = ["GRAPH_CSS", "KIND_COLORS", "edges_html", "graph_html"]

#: One colour per kind; the kind is also written into every node.
KIND_COLORS = {
    "trace": "#4477aa",
    "canary": "#d3ae2c",
    "report": "#2f9e62",
    "ledger": "#8d63b3",
    "comparison": "#b0478f",
    "replay": "#2a9d8f",
    "campaign": "#dd8a2b",
}
_HEIGHT, _GAP = 46, 10

GRAPH_CSS = (
    CSS
    + """
.cl .scroll { overflow: auto; max-height: 560px; padding: 4px 2px; margin: 0 -2px; }
.cl .scroll:focus-visible { outline: 2px solid var(--a); outline-offset: 2px; border-radius: 6px; }
.cl .pg { position: relative; }
.cl .pg svg { position: absolute; inset: 0; pointer-events: none; overflow: visible; }
.cl .pg path { fill: none; stroke: var(--m); stroke-opacity: .45; stroke-width: 1.4; }
.cl .pg path.lost { stroke-dasharray: 4 4; }
.cl .pg path.on { stroke: var(--a); stroke-opacity: 1; stroke-width: 2; }
.cl .pn { position: absolute; display: block; height: 46px; padding: 4px 10px 4px 13px; border: 1px solid var(--d); border-radius: 8px;
  background: var(--p); color: var(--t); text-decoration: none; overflow: hidden; line-height: 1.35; }
.cl .pn::before { content: ''; position: absolute; left: 0; top: 0; bottom: 0; width: 4px; background: var(--k, var(--d)); }
.cl .pn b, .cl .pn span { display: block; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.cl .pn b { font-weight: 500; font-size: 13px; } .cl .pn span { font-size: 11.5px; color: var(--m); }
.cl a.pn:hover { border-color: var(--m); } .cl a.pn:focus-visible, .cl .lone a:focus-visible { outline: 2px solid var(--a);
  outline-offset: 1px; }
.cl .pn.here { border-color: var(--a); box-shadow: inset 0 0 0 1px var(--a); }
.cl .pn.lost { border: 1px dashed color-mix(in srgb, var(--m) 55%, transparent); background: transparent; }
.cl .pn.lost::before { background: none; }
.cl .pn.lost b { color: var(--m); font-weight: 400; }
.cl .says { min-height: 20px; font-size: 12.5px; color: var(--m); margin-top: 8px; overflow-wrap: anywhere; }
.cl .lone { font-size: 12.5px; color: var(--m); margin-top: 6px; } .cl .lone a { color: var(--a); text-decoration: none; }
.cl .lone a:hover { text-decoration: underline; }
.cl details { margin-top: 8px; font-size: 12.5px; } .cl summary { cursor: pointer; color: var(--m); width: fit-content; }
.cl summary:focus-visible { outline: 2px solid var(--a); outline-offset: 2px; border-radius: 3px; }
"""
)


def graph_html(graph: Provenance, href: Callable[[Node], str], *, here: tuple[str, ...] = (), fold: bool = True) -> str:
    """Return the drawing of a graph.

    Parameters
    ----------
    graph : Provenance
        What is drawn: all of it, or a family.
    href : callable
        The address that opens a node.
    here : tuple of str
        Nodes that are open now.
    fold : bool
        One node stands for many alike.

    Returns
    -------
    str
        HTML that needs `GRAPH_CSS`. Every node has its name in ``data-open``, a folded one its kind in ``data-kind``.
    """
    whole, alone = connected(graph)
    drawn = condensed(whole, here) if fold else whole
    out = []
    if drawn.nodes:
        places = layout(drawn)
        wide, between = (214, 52) if places.columns > 3 else (264, 76)
        width = places.columns * (wide + between) - between
        height = places.rows * (_HEIGHT + _GAP) - _GAP
        nodes = "".join(_node(p, drawn, href, here, wide, between) for p in places.placed)
        out.append(
            '<div class="scroll" tabindex="0" role="group" aria-label="Provenance graph">'
            f'<div class="pg" style="width:{width}px;height:{height:.0f}px">'
            f"{_paths(places, drawn, wide, between, width, height)}{nodes}</div>"
            '</div><div class="says" aria-live="polite">Point at an artifact, or reach it with Tab, to read how its links are known.</div>'
        )
    if alone:
        out.append(_alone(alone, href))
    if drawn.edges:
        out.append(f"<details><summary>All {len(whole.edges):,} links, and how each is known</summary>{edges_html(whole)}</details>")
    return "".join(out)


def edges_html(graph: Provenance, most: int = 200) -> str:
    """Return the edges as a table."""
    from commcanary_lab.views.markup import rows_html

    summary = {n.name: n.summary if n.missing else n.name for n in graph.nodes}
    rows = [(summary[e.child], e.role, summary[e.parent], e.known) for e in graph.edges[:most]]
    if len(graph.edges) > most:
        rows.append((f"{len(graph.edges) - most:,} more", "", "", ""))
    return rows_html(["Artifact", "How", "From", "Known by"], rows)


def _node(p: Placed, graph: Provenance, href: Callable[[Node], str], here: tuple[str, ...], wide: int, between: int) -> str:
    node = p.node
    at = f"left:{p.column * (wide + between)}px;top:{p.row * (_HEIGHT + _GAP):.1f}px;width:{wide}px"
    at += f";--k:{KIND_COLORS.get(node.kind, 'var(--d)')}"
    says = escape(_says(node, graph), quote=True)
    if node.missing and not node.name.startswith(FOLDED):
        what, _, rest = node.summary.partition(", ")
        return f'<div class="pn lost" style="{at}" title="{says}"><b>{escape(what)}</b><span>{escape(rest)}</span></div>'
    if node.name.startswith(FOLDED):
        return (
            f'<a class="pn" href="#" data-kind="{escape(node.kind)}" data-node="{escape(node.name, quote=True)}" data-says="{says}" '
            f'style="{at}"><b>{escape(node.summary)}</b><span>in the list</span></a>'
        )
    state = ' here" aria-current="true' if node.name in here else ""
    label = escape(f"{node.kind} {node.name}, {node.summary}. {_says(node, graph)}", quote=True)
    name = escape(node.name, quote=True)
    return (
        f'<a class="pn{state}" href="{escape(href(node), quote=True)}" data-open="{name}" data-node="{name}" data-says="{says}" '
        f'aria-label="{label}" title="{name}" style="{at}"><b>{escape(_short(node.name))}</b>'
        f"<span>{escape(_second(node))}</span></a>"
    )


def _second(node: Node) -> str:
    return node.summary if node.summary.startswith(node.kind) or node.kind in node.summary else f"{node.kind}: {node.summary}"


def _short(name: str) -> str:
    return name.removeprefix("campaigns/").removeprefix("replays/")


def _says(node: Node, graph: Provenance) -> str:
    """Return how the links of a node are known, in a sentence."""
    names = {n.name: n.summary if n.missing or n.name.startswith(FOLDED) else n.name for n in graph.nodes}
    up = [f"{e.role} {names[e.parent]} ({e.known})" for e in graph.parents.get(node.name, ())]
    down = len({e.child for e in graph.children.get(node.name, ())})
    made = f"{down:,} artifact{'s' if down != 1 else ''} rest on it" if down > 1 else "one artifact rests on it" if down else ""
    return f"{names[node.name]}: {'; '.join([*up, *([made] if made else [])])}."


def _paths(places: Layout, graph: Provenance, wide: int, between: int, width: int, height: float) -> str:
    column = {p.node.name: p.column for p in places.placed}
    lost = {n.name for n in graph.nodes if n.missing}
    drawn = []
    for (a, b), rows in places.routes.items():
        drawn.append(_path(a, b, column[a] * (wide + between), rows, wide, between, "lost" if a in lost else ""))
    return f'<svg width="{width}" height="{height:.0f}" aria-hidden="true" focusable="false">{"".join(drawn)}</svg>'


def _path(a: str, b: str, left: int, rows: tuple[float, ...], wide: int, between: int, kind: str) -> str:
    """A curve between two columns, a straight line along a column that is passed."""
    bend = between * 0.55
    y = [row * (_HEIGHT + _GAP) - _GAP / 2 for row in rows]
    out, x = [f"M{left + wide} {y[0]:.1f}"], left + wide
    for i in range(1, len(y)):
        end = x + between
        out.append(f"C{x + bend:.1f} {y[i - 1]:.1f} {end - bend:.1f} {y[i]:.1f} {end} {y[i]:.1f}")
        x = end + wide
        if i < len(y) - 1:
            out.append(f"H{x}")
    ends = f'data-a="{escape(a, quote=True)}" data-b="{escape(b, quote=True)}"'
    return f'<path class="{kind}" {ends} d="{"".join(out)}"/>'


def _alone(nodes: tuple[Node, ...], href: Callable[[Node], str], most: int = 12) -> str:
    def link(n: Node) -> str:
        return f'<a href="{escape(href(n), quote=True)}" data-open="{escape(n.name, quote=True)}">{escape(_short(n.name))}</a>'

    links = [link(n) for n in nodes[:most]]
    more = f" and {len(nodes) - most:,} more" if len(nodes) > most else ""
    return f'<div class="lone">Without links to others: {", ".join(links)}{more}.</div>'
