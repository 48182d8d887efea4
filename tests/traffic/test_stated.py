"""Algorithms that a source states: attribution follows them, says so, and never takes a switch for a ring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.importers.open import open_trace
from commcanary_lab.layout import Layout
from commcanary_lab.trace import Trace
from commcanary_lab.trace.write_v1 import write_json
from commcanary_lab.traffic import RingOrder, build_matrix, fabric
from tests.importers.inspector_lines import collective, rank_line, write
from tests.traffic.jobs import Event, trace_of

WORLD = tuple(range(8))


def job(folder: Path, *calls: tuple[str, int, str], ranks: int = 8) -> Trace:
    """Every rank's records: operation, size, algorithm."""
    lines = [
        rank_line(collective(op, sn=i, size=size, **({"coll_algo": algorithm} if algorithm else {})), r, ranks)
        for i, (op, size, algorithm) in enumerate(calls)
        for r in range(ranks)
    ]
    return open_trace(write(folder / "job.log", *lines))


@pytest.mark.parametrize(
    ("word", "op", "model"),
    [
        ("RING", "AllReduce", "ring"), ("TREE", "AllReduce", "nccl_tree"), ("NVLS", "AllReduce", "nvls"), ("NVLS", "AllGather", "nvls"),
        ("NVLS_TREE", "AllReduce", "nvls_tree"), ("NVLSTree", "AllReduce", "nvls_tree"), ("Ring", "ReduceScatter", "ring"),
    ],
)  # fmt: skip
def test_stated_algorithms_attribute(word: str, op: str, model: str, tmp_path: Path) -> None:
    trace = job(tmp_path, (op, 1 << 20, word))
    m = build_matrix(trace, gpus_per_node=4)
    assert m.algorithm == model
    assert m.algorithm_origin == "stated" and f"{model} (stated)" in repr(m)
    assert m.equals(build_matrix(trace, algorithm={m.parts[0].op: model}, gpus_per_node=4))
    assert any(f"{m.parts[0].op} {word} as {model} (1)" in n for n in m.notes)
    # a caller who asks for another gets it
    asked = build_matrix(trace, algorithm="double_ring", gpus_per_node=4)
    assert (asked.algorithm, asked.algorithm_origin) == ("double_ring", "asked")
    assert not any("the source states" in n for n in asked.notes)


def test_without_the_field_nothing_changes(tmp_path: Path) -> None:
    m = build_matrix(job(tmp_path, ("AllReduce", 800, "")))
    assert (m.algorithm, m.algorithm_origin) == ("ring", "assumed")
    assert "stated" not in repr(m)


def test_a_tree_without_nodes_is_a_tree_over_all_ranks(tmp_path: Path) -> None:
    m = build_matrix(job(tmp_path, ("AllReduce", 800, "TREE")))
    assert (m.algorithm, m.algorithm_origin) == ("double_tree", "assumed")
    assert m.sum_bytes == 2 * 7 * 800
    assert any(
        "states TREE for 1 all_reduce event: attributed as double_tree, for nobody says which ranks share a node" in n for n in m.notes
    )


@pytest.mark.parametrize(
    ("word", "why"),
    [("COLLNET_DIRECT", "there is no model of it"), ("CollNetChain", "there is no model of it"), ("NVLS", "give gpus_per_node")],
)
def test_a_switch_is_no_ring(word: str, why: str, tmp_path: Path) -> None:
    """No peer, so no link; the bytes stay visible as unattributed, and only who asks for a ring gets one."""
    trace = job(tmp_path, ("AllReduce", 800, word))
    m = build_matrix(trace)
    assert (m.sum_bytes, m.unattributed_bytes) == (0, 8 * 800)
    assert any(n.startswith(f"1 all_reduce event unattributed (6.25 KiB): the source states {word}:") and why in n for n in m.notes)
    ring = build_matrix(trace, algorithm="ring")
    assert (ring.sum_bytes, ring.unattributed_bytes) == (2 * 7 * 800, 0)


def test_what_has_no_model_and_peers_is_attributed_as_usual(tmp_path: Path) -> None:
    m = build_matrix(job(tmp_path, ("AllGather", 100, "PAT")))
    assert (m.algorithm, m.algorithm_origin, m.sum_bytes) == ("ring", "assumed", 7 * 800)
    assert any(
        "the source states PAT for 1 all_gather event: attributed as ring, for there is no model of it for all_gather" in n for n in m.notes
    )


def test_the_algorithm_may_differ_by_size(tmp_path: Path) -> None:
    trace = job(tmp_path, ("AllReduce", 800, "TREE"), ("AllReduce", 8000, "RING"), ("AllReduce", 800, "TREE"))
    assert trace.extra["algorithms"] == [["all_reduce", "0xc0ffee", 800, "TREE"], ["all_reduce", "0xc0ffee", 8000, "RING"]]
    m = build_matrix(trace, gpus_per_node=4)
    two = [Event("all_reduce", WORLD, 800, "0xc0ffee")] * 2
    small = build_matrix(trace_of(two), algorithm="nccl_tree", gpus_per_node=4)
    large = build_matrix(trace_of([Event("all_reduce", WORLD, 8000, "0xc0ffee")]), gpus_per_node=4)
    assert m.equals(small + large)
    assert m.algorithms == (("all_reduce", "nccl_tree"), ("all_reduce", "ring"))
    assert m.algorithm_origin == "stated"
    # attributed again, every call keeps its own
    assert m.reattributed().equals(m)
    assert m.reattributed(algorithm="ring").equals(build_matrix(trace, algorithm="ring"))
    assert (m + m).reattributed().equals(m + m)
    turned = m.reattributed(order=RingOrder.of([0, 4, 1, 5, 2, 6, 3, 7], [p.group for p in m.parts]))
    assert not turned.equals(m) and turned.sum_bytes == pytest.approx(m.sum_bytes)
    # other ring orders of the fabric leave the tree alone
    orders = {o.order: o.crossing for o in fabric(m, gpus_per_node=4).by_order}
    tree = fabric(small, gpus_per_node=4).own.crossing
    rings = {o.order: o.crossing for o in fabric(large, gpus_per_node=4).by_order}
    assert tree is not None
    for order, found in orders.items():
        ring = rings[order]
        assert found is not None and ring is not None
        assert found.inter_node_bytes == pytest.approx(tree.inter_node_bytes + ring.inter_node_bytes), order


def test_ranks_that_disagree_state_nothing(tmp_path: Path) -> None:
    lines = [rank_line(collective(size=64, coll_algo=word), r) for r, word in ((0, "RING"), (1, "TREE"))]
    trace = open_trace(write(tmp_path / "x.log", *lines))
    assert "algorithms" not in trace.extra
    assert any("all_reduce of 64 bytes in 0xc0ffee: records state RING and TREE; neither is taken" in w for w in trace.warnings)
    assert build_matrix(trace).algorithm_origin == "assumed"


def test_it_survives_the_trace_format_and_filters(tmp_path: Path) -> None:
    trace = job(tmp_path, ("AllReduce", 800, "NVLS"), ("AllGather", 8, "RING"))
    write_json(trace, tmp_path / "t.json")
    again = open_trace(tmp_path / "t.json")
    assert build_matrix(again, gpus_per_node=4).algorithms == (("all_gather", "ring"), ("all_reduce", "nvls"))
    assert build_matrix(again.filter(op="all_reduce"), gpus_per_node=4).algorithm == "nvls"


@pytest.mark.parametrize(
    "extra", [7, "RING", [["all_reduce"]], [[1, 2, 3, 4]], [["all_reduce", None, 1.5, "TREE"]], {"all_reduce": "TREE"}]
)
def test_nonsense_states_nothing(extra: object) -> None:
    trace = trace_of([Event("all_reduce", WORLD, 800)], extra={"algorithms": extra})
    assert build_matrix(trace).algorithm_origin == "assumed"


@pytest.mark.parametrize(
    "extra", [{"algorithms": [["all_reduce", "world", None, "TREE"]]}, {"ring_order": {"world": [0, 2, 1, 3, 4, 6, 5, 7]}}]
)
def test_verification_attributes_source_and_canary_alike(extra: dict[str, object]) -> None:
    """A lossless canary keeps M, whatever the source states about algorithms and ring orders."""
    trace = trace_of([Event("all_reduce", WORLD, 800, "world")] * 5, extra=extra)
    assert not build_matrix(trace).equals(build_matrix(replace(trace, extra={})))
    assert lab.verify(trace, lab.compile(trace), assume={"overlap_us": 0}).traffic == "pass"


@given(st.lists(st.tuples(st.sampled_from(["RING", "TREE", "NVLS", "PAT", None]), st.integers(1, 4)), min_size=1, max_size=6))
def test_sum_is_that_of_each_call_alone(calls: list[tuple[str | None, int]]) -> None:
    """Events of different stated algorithms: M is the sum of the matrices under each."""
    events = [Event("all_reduce", WORLD, 80 * (i + 1), "world") for i, (_, n) in enumerate(calls) for _ in range(n)]
    rows = [["all_reduce", "world", 80 * (i + 1), word] for i, (word, _) in enumerate(calls) if word is not None]
    m = build_matrix(trace_of(events, extra={"algorithms": rows}), layout=Layout(dp=8, gpus_per_node=2))
    models = {"RING": "ring", "TREE": "nccl_tree", "NVLS": "nvls", "PAT": "ring", None: "ring"}
    alone = [
        build_matrix(trace_of([Event("all_reduce", WORLD, 80 * (i + 1), "world")] * n), algorithm=models[word], gpus_per_node=2)
        for i, (word, n) in enumerate(calls)
    ]
    total = alone[0]
    for other in alone[1:]:
        total = total + other
    assert m.equals(total)
    assert m.reattributed().equals(m)
