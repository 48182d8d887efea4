"""The job whose figures the design fixes: 8 ranks, 2 nodes of 4."""

from __future__ import annotations

import numpy as np
import pytest

from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.records import RankCapture, Record
from commcanary_lab.traffic import TrafficMatrix, build_matrix
from tests.traffic.jobs import MIB, Event, eight_ranks, trace_of


@pytest.fixture(scope="module")
def m() -> TrafficMatrix:
    return build_matrix(eight_ranks())


def test_figures(m: TrafficMatrix) -> None:
    assert (m.records, m.events, m.n) == (200, 52, 8)
    assert m.payload_bytes == 16384 * MIB
    assert m.sum_bytes == 22528 * MIB
    assert (m.algorithm, m.ring_order, m.origin, m.unattributed_bytes) == ("ring", "assumed", "model", 0)


def test_links(m: TrafficMatrix) -> None:
    per_node, rails = 8, 8
    links = m.links()
    assert [link.size_bytes for link in links] == [2304 * MIB] * per_node + [512 * MIB] * rails
    assert {(a.src, a.dst) for a in links[:per_node]} == {(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)}
    assert {(a.src, a.dst) for a in links[per_node:]} == {(r, r + 4) for r in range(4)} | {(r + 4, r) for r in range(4)}
    assert links == sorted(links, key=lambda a: (-a.size_bytes, a.src, a.dst))
    assert m.links(top=3) == links[:3]


def test_all_inter_node_traffic_is_on_rail(m: TrafficMatrix) -> None:
    crossing = [link for link in m.links() if link.src // 4 != link.dst // 4]
    assert sum(link.size_bytes for link in crossing) == 4096 * MIB
    assert all(link.src % 4 == link.dst % 4 for link in crossing)
    nodes = m.group_by_node(4)
    assert (nodes.inter_bytes, nodes.intra_bytes) == (4096 * MIB, (22528 - 4096) * MIB)
    assert nodes.dense().tolist() == [[9216 * MIB, 2048 * MIB], [2048 * MIB, 9216 * MIB]]


def test_taken_apart(m: TrafficMatrix) -> None:
    by_group = m.by("group")
    assert list(by_group) == [f"DP Group {i}" for i in range(4)] + ["TP Group 0", "TP Group 1"]
    assert by_group["TP Group 0"].sum_bytes == 4 * 2304 * MIB
    assert (by_group["DP Group 3"].records, by_group["DP Group 3"].payload_bytes) == (2, 1024 * MIB)
    by_phase = m.by("phase")
    assert {k: v.sum_bytes / MIB for k, v in by_phase.items()} == {"backward": 9216, "forward": 9216, "step": 4096}
    for what in ("op", "group", "phase"):
        total = None
        for piece in m.by(what).values():
            total = piece if total is None else total + piece
        assert total is not None
        assert total.equals(m, rtol=0)
        assert (total.records, total.payload_bytes) == (200, 16384 * MIB)


def test_egress_and_ingress(m: TrafficMatrix) -> None:
    assert m.egress().tolist() == m.ingress().tolist() == [2816 * MIB] * 8
    assert m.dense().sum() == m.sum_bytes
    assert np.array_equal(m.csr().toarray(), m.dense())


def _capture(rank: int) -> RankCapture:
    node, rail = divmod(rank, 4)
    tp, dp = tuple(range(4 * node, 4 * node + 4)), (rail, rail + 4)
    records = [Record(rank, "all_reduce", 64 * MIB, tp, f"TP Group {node}", sequence=i, start_ns=1000 * i) for i in range(24)]
    records.append(Record(rank, "all_reduce", 512 * MIB, dp, f"DP Group {rail}", sequence=0, start_ns=24_000))
    return RankCapture(rank, records, f"rank{rank}", "monotonic@host")


def test_merged_captures_give_the_same_matrix(m: TrafficMatrix) -> None:
    merged = build_matrix(merge_captures([_capture(r) for r in range(8)], source_format="test"))
    assert merged.equals(m, rtol=0)
    assert (merged.records, merged.payload_bytes) == (200, 16384 * MIB)


def test_single_rank_gives_its_row(m: TrafficMatrix) -> None:
    alone = build_matrix(merge_captures([_capture(2)], source_format="test"))
    assert (alone.records, alone.payload_bytes) == (25, 2048 * MIB)
    assert [(x.src, x.dst, x.size_bytes / MIB) for x in alone.links()] == [(2, 3, 2304.0), (2, 6, 512.0)]
    assert any("25 of 25 events are reported by a part of their ranks" in note for note in alone.notes)
    total = None
    for rank in (3, 0, 7, 1, 4, 2, 6, 5):
        piece = build_matrix(merge_captures([_capture(rank)], source_format="test"))
        total = piece if total is None else total + piece
    assert total is not None
    assert total.equals(m)
    assert (total.records, total.payload_bytes, len(total.parts)) == (200, 16384 * MIB, 6)


def test_messages_without_payload() -> None:
    """8 records and 0 MiB: barriers."""
    m = build_matrix(trace_of([Event("barrier", tuple(range(8)), 0)]))
    assert (m.records, m.payload_bytes, m.sum_bytes, m.links(), m.unattributed_bytes, m.notes) == (8, 0, 0.0, [], 0, ())
