"""Where the nodes of a provenance graph stand: columns from left to right, few crossings, nothing overlaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from commcanary_lab.workspace.provenance import Edge, Node, Provenance

__all__ = ["Layout", "Placed", "condensed", "connected", "layout"]

#: The leftmost column of each kind; what was made from something stands to the right of it in any case.
_COLUMN = {"trace": 0, "canary": 1, "report": 2, "ledger": 2, "replay": 2, "campaign": 2, "comparison": 3}
_MAX_COLUMN = 11
_SWEEPS = 4

#: Height of the place that an edge takes where it passes a column, in units of one node's.
_THIN = 0.32

#: Begins the name of a node that stands for several.
FOLDED = "/more "
#: Begins the name of a place that an edge passes; no file name holds it.
_PLACE = "\0"


@dataclass(frozen=True)
class Placed:
    """A node in its place; column from 0, row in units of one node's height, from 0, not always whole."""

    node: Node
    column: int
    row: float


@dataclass(frozen=True)
class Layout:
    """All nodes in their places.

    Parameters
    ----------
    placed : tuple of Placed
        By column, then row.
    routes : mapping of (str, str) to tuple of float
        For each pair of nodes with an edge, the middle of its row in every column that it passes, both ends included.
    columns : int
        How many.
    rows : float
        Height, in units of one node's.
    """

    placed: tuple[Placed, ...]
    routes: Mapping[tuple[str, str], tuple[float, ...]]
    columns: int
    rows: float


def connected(graph: Provenance) -> tuple[Provenance, tuple[Node, ...]]:
    """Return the part that has edges, and the nodes that have none."""
    inside = {n for e in graph.edges for n in (e.parent, e.child)}
    nodes = tuple(n for n in graph.nodes if n.name in inside)
    return Provenance(nodes, graph.edges, graph.unread), tuple(n for n in graph.nodes if n.name not in inside)


def condensed(graph: Provenance, keep: Sequence[str] = (), most: int = 6) -> Provenance:
    """Fold nodes of one kind that were made from the same and from which nothing was made, where there are more than `most`.

    Parameters
    ----------
    graph : Provenance
    keep : sequence of str
        Nodes that stay.
    most : int
        How many of them are drawn; one node stands for the others.

    Examples
    --------
    >>> nodes = [Node("t", "trace", "")] + [Node(f"r{i}", "report", "") for i in range(9)]
    >>> edges = [Edge("t", f"r{i}", "simulated from", "") for i in range(9)]
    >>> [n.summary or n.name for n in condensed(Provenance(tuple(nodes), tuple(edges)), most=2).nodes]
    ['t', 'r0', 'r1', '7 more reports']
    """
    alike: dict[tuple[str, bool, tuple[str, ...]], list[str]] = defaultdict(list)
    for node in graph.nodes:
        if node.name not in graph.children:
            parents = tuple(sorted({e.parent for e in graph.parents.get(node.name, ())}))
            alike[node.kind, node.missing, parents].append(node.name)
    folded: dict[str, str] = {}
    extra: list[Node] = []
    for (kind, missing, _), names in alike.items():
        if len(names) <= most + 1:
            continue
        shown = [n for n in names if n in keep][:most]
        shown += [n for n in names if n not in shown][: most - len(shown)]
        rest = [n for n in names if n not in shown]
        many = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
        stands = Node(f"{FOLDED}{kind} {len(extra)}", kind, f"{len(rest):,} more {many}", missing)
        extra.append(stands)
        folded |= {n: stands.name for n in rest}
    if not extra:
        return graph
    nodes = tuple(n for n in graph.nodes if n.name not in folded)
    edges = dict.fromkeys(
        e if e.child not in folded else Edge(e.parent, folded[e.child], e.role, "each by its own SHA-256") for e in graph.edges
    )
    return Provenance((*nodes, *extra), tuple(edges), graph.unread)


def layout(graph: Provenance) -> Layout:
    """Place every node.

    Examples
    --------
    >>> nodes = Node("t", "trace", ""), Node("c", "canary", ""), Node("d", "canary", "")
    >>> out = layout(Provenance(nodes, (Edge("t", "c", "", ""), Edge("t", "d", "", ""))))
    >>> [(p.node.name, p.column, p.row) for p in out.placed], out.columns, out.rows
    ([('t', 0, 0.5), ('c', 1, 0.0), ('d', 1, 1.0)], 2, 2.0)
    """
    column = _columns(graph)
    groups: list[list[str]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for node in graph.nodes:
        groups[column[node.name]].append(node.name)
    pairs = {(e.parent, e.child): _passed(e, column) for e in graph.edges}
    beside: dict[str, list[str]] = defaultdict(list)
    for path in pairs.values():
        for i, name in enumerate(path[1:-1], 1):
            column[name] = column[path[0]] + i
            groups[column[name]].append(name)
        for a, b in pairwise(path):
            beside[a].append(b)
            beside[b].append(a)
    middle = _middles(groups, beside, column)
    top = min((m - _height(n) / 2 for n, m in middle.items()), default=0.0)
    bottom = max((m + _height(n) / 2 for n, m in middle.items()), default=0.0)
    by_name = {n.name: n for n in graph.nodes}
    placed = sorted((Placed(node, column[n], middle[n] - 0.5 - top) for n, node in by_name.items()), key=lambda p: (p.column, p.row))
    routes = {pair: tuple(middle[n] - top for n in path) for pair, path in pairs.items()}
    return Layout(tuple(placed), routes, len(groups), bottom - top)


def _passed(edge: Edge, column: Mapping[str, int]) -> tuple[str, ...]:
    """Both ends of an edge, and a name for its place in each column between them."""
    between = range(column[edge.parent] + 1, column[edge.child])
    return (edge.parent, *(f"{_PLACE}{edge.parent}{_PLACE}{edge.child}{_PLACE}{c}" for c in between), edge.child)


def _height(name: str) -> float:
    return _THIN if name.startswith(_PLACE) else 1.0


def _columns(graph: Provenance) -> dict[str, int]:
    column = {n.name: _COLUMN.get(n.kind, 2) for n in graph.nodes}
    for _ in range(_MAX_COLUMN):  # forged statements could go round in a circle: then this ends all the same
        changed = False
        for e in graph.edges:
            if column[e.child] <= column[e.parent] < _MAX_COLUMN:
                column[e.child] = column[e.parent] + 1
                changed = True
        if not changed:
            break
    used = {c: i for i, c in enumerate(sorted(set(column.values())))}
    return {name: used[c] for name, c in column.items()}


def _middles(groups: list[list[str]], beside: Mapping[str, Sequence[str]], column: Mapping[str, int]) -> dict[str, float]:
    """Sweep over the columns: every name as near as it can to the middle of its neighbours on one side, in their order."""
    middle: dict[str, float] = {}
    for names in groups:
        middle |= _spread(names, {n: 0.0 for n in names})
    for sweep in range(2 * _SWEEPS):
        forward = sweep % 2 == 0
        last = sweep >= 2 * _SWEEPS - 2
        for index in range(len(groups)) if forward else range(len(groups) - 1, -1, -1):
            wanted: dict[str, float] = {}
            for name in groups[index]:
                near = [n for n in beside[name] if last or (column[n] < index if forward else column[n] > index)]
                wanted[name] = sum(middle[n] for n in near) / len(near) if near else middle[name]
            groups[index].sort(key=lambda n: (wanted[n], middle[n]))
            middle.update(_spread(groups[index], wanted))
    return middle


def _spread(names: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
    """Give each name its wanted middle, in order and without overlap: neighbours that collide become one block around their middle."""
    blocks: list[tuple[list[str], float, float]] = []  # names, upper edge, height
    for name in names:
        tall = _height(name)
        blocks.append(([name], wanted[name] - tall / 2, tall))
        while len(blocks) > 1 and blocks[-1][1] < blocks[-2][1] + blocks[-2][2] - 1e-9:
            (a, top_a, tall_a), (b, top_b, tall_b) = blocks[-2], blocks[-1]
            top = (top_a * len(a) + (top_b - tall_a) * len(b)) / (len(a) + len(b))
            blocks[-2:] = [([*a, *b], top, tall_a + tall_b)]
    out: dict[str, float] = {}
    for group, top, _ in blocks:
        for name in group:
            out[name] = top + _height(name) / 2
            top += _height(name)
    return out
