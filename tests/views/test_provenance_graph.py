"""The drawing of provenance: nothing overlaps, every artifact can be reached, names are escaped."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.views.provenance_graph import graph_html
from commcanary_lab.views.provenance_layout import condensed, layout
from commcanary_lab.workspace.provenance import Edge, Node, Provenance

KINDS = ("trace", "canary", "report", "ledger", "comparison", "replay", "campaign")


@st.composite
def graphs(draw: st.DrawFn) -> Provenance:
    n = draw(st.integers(1, 24))
    nodes = tuple(Node(f"n{i}", draw(st.sampled_from(KINDS)), "", draw(st.booleans())) for i in range(n))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))  # circles, too
    return Provenance(nodes, tuple(Edge(f"n{a}", f"n{b}", "", "") for a, b in dict.fromkeys(pairs) if a != b))


@given(graphs())
def test_nothing_overlaps(graph: Provenance) -> None:
    places = layout(graph)
    assert sorted(p.node.name for p in places.placed) == sorted(n.name for n in graph.nodes)
    by_column: dict[int, list[float]] = {}
    for p in places.placed:
        by_column.setdefault(p.column, []).append(p.row)
        assert -1e-6 <= p.row <= places.rows - 1 + 1e-6
    for rows in by_column.values():
        ordered = sorted(rows)
        assert all(b - a >= 1 - 1e-6 for a, b in pairwise(ordered))
    assert set(by_column) <= set(range(places.columns))


def test_sources_stand_left_of_what_was_made_from_them() -> None:
    nodes = Node("t", "trace", ""), Node("u", "trace", ""), Node("c", "canary", ""), Node("x", "comparison", "")
    graph = Provenance(nodes, (Edge("t", "u", "", ""), Edge("u", "c", "", ""), Edge("c", "x", "", "")))
    assert [(p.node.name, p.column) for p in layout(graph).placed] == [("t", 0), ("u", 1), ("c", 2), ("x", 3)]


def test_hundreds_are_folded_and_all_named_in_the_table() -> None:
    nodes = [Node("t", "trace", "")] + [Node(f"r{i}", "report", "") for i in range(300)]
    graph = Provenance(tuple(nodes), tuple(Edge("t", f"r{i}", "simulated from", "same work") for i in range(300)))
    small = condensed(graph, keep=["r250"])
    assert len(small.nodes) == 8
    assert "r250" in {n.name for n in small.nodes}
    text = graph_html(graph, lambda n: f"?candidate={n.name}", here=("r250",))
    assert "294 more reports" in text
    assert 'data-kind="report"' in text
    assert "All 300 links" in text


def test_names_are_escaped() -> None:
    evil = '"><img src=x onerror=alert(1)>.json'
    nodes = Node(evil, "trace", "<b>"), Node("c", "canary", "<script>"), Node("lone<i>", "trace", "")
    text = graph_html(Provenance(nodes, (Edge(evil, "c", "compiled from", "<u>"),)), lambda n: "?trace=" + n.name)
    assert not re.search(r"<(img|script|i>|u>|b></b>)", text)
    assert "&lt;img" in text


def test_every_node_is_a_link_with_a_name() -> None:
    nodes = (
        Node("t.json", "trace", "JSON trace"),
        Node("c.json", "canary", "lossless canary"),
        Node("/canary 00", "canary", "Canary not here, SHA", True),
    )
    edges = Edge("t.json", "c.json", "compiled from", "same events: SHA-256 ab…"), Edge("/canary 00", "t.json", "x", "y")
    text = graph_html(Provenance(nodes, edges), lambda n: f"?trace={n.name}", here=("t.json",))
    assert re.findall(r'<a class="pn[^>]*href="([^"]*)"', text) == ["?trace=t.json", "?trace=c.json"]
    assert 'aria-label="canary c.json, lossless canary. c.json: compiled from t.json (same events: SHA-256 ab…)."' in text
    assert 'aria-current="true"' in text
    assert "Canary not here" in text
