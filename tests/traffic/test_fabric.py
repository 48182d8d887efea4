"""Rail-optimised network against fat tree: the figures of the design, ring orders, PXN, utilisation, what-ifs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import UsageError
from commcanary_lab.traffic import FabricVerdict, Layout, Placement, build_matrix, fabric, moe_what_if, search_placement
from tests.traffic.jobs import MIB, Event, eight_ranks, row, trace_of

WORLD = tuple(range(8))


def fractions(found: FabricVerdict) -> dict[str, float]:
    return {v.order: v.cross_rail_fraction for v in found.by_order}


def test_the_job_of_eight() -> None:
    found = fabric(eight_ranks(), gpus_per_node=4, spine=0.1)
    assert (found.inter_node_bytes, found.on_rail_bytes) == (4096 * MIB, 4096 * MIB)
    assert (found.cross_rail_fraction, found.rail_congestion, found.fat_tree_congestion, found.verdict) == (0.0, 0.0, 0.0, "viable")
    assert fractions(found) == {"group": 0.0, "rail_aligned": 0.0, "hierarchical": 0.0}
    assert (found.nodes, found.relative_cost, found.break_even_spine, found.origin) == (2, 0.1, 0.0, "model")


def test_the_expert_exchange_of_the_same_volume() -> None:
    found = fabric(eight_ranks(), gpus_per_node=4, spine=0.1)
    assert found.moe is not None
    assert found.moe.inter_node_bytes == 4096 * MIB
    assert (found.moe.cross_rail_fraction, found.moe_fat_tree_congestion) == (0.75, 0.75)
    assert found.moe_rail_congestion == pytest.approx(7.5, rel=1e-12)
    assert found.moe_verdict == "saturates"
    # the real exchange says the same
    real = fabric(trace_of([Event("all_to_all", WORLD, 1024 * MIB)]), gpus_per_node=4, spine=0.1)
    assert (real.inter_node_bytes, real.cross_rail_fraction, real.fat_tree_congestion) == (4096 * MIB, 0.75, 0.75)
    assert (real.rail_congestion, real.verdict) == (pytest.approx(7.5), "saturates")
    assert set(fractions(real).values()) == {0.75}  # no ring: no order


def test_one_world_wide_all_reduce_depends_on_the_order() -> None:
    trace = trace_of([Event("all_reduce", WORLD, 8 * MIB, "world")])
    found = fabric(trace, gpus_per_node=4, spine=0.1)
    assert fractions(found) == {"group": 1.0, "rail_aligned": 0.5, "hierarchical": 0.0}
    assert found.verdict == "depends on ring order"
    assert [v.verdict for v in found.by_order] == ["saturates", "saturates", "viable"]
    # a spine that carries the worst order needs no answer
    assert fabric(trace, gpus_per_node=4, spine=1.0).verdict == "viable"
    assert fabric(trace, gpus_per_node=4, spine=0.5).verdict == "depends on ring order"


def test_a_stated_order_decides() -> None:
    trace = trace_of([Event("all_reduce", WORLD, 8 * MIB, "world")])
    found = fabric(build_matrix(trace, ring_order=[0, 4, 1, 5, 2, 6, 3, 7]), gpus_per_node=4, spine=0.1)
    assert fractions(found) == {"group": 1.0, "rail_aligned": 0.5, "hierarchical": 0.0, "stated": 0.5}
    assert (found.verdict, found.cross_rail_fraction) == ("saturates", 0.5)
    snake = fabric(build_matrix(trace, ring_order=[0, 1, 2, 3, 7, 6, 5, 4]), gpus_per_node=4, spine=0.1)
    assert (snake.verdict, snake.cross_rail_fraction) == ("viable", 0.0)


def test_an_algorithm_with_nodes_needs_no_order() -> None:
    for name in ("hierarchical", "nccl_tree", "nvls", "nvls_tree"):
        m = build_matrix(trace_of([Event("all_reduce", WORLD, 8 * MIB)]), algorithm=name, gpus_per_node=4)
        found = fabric(m)  # the matrix knows its nodes
        assert (found.verdict, found.cross_rail_fraction, found.ordered) == ("viable", 0.0, False), name
        assert ("what passes switches inside nodes is not counted" in found.limits) == name.startswith("nvls")


def test_hierarchical_where_it_does_not_exist() -> None:
    found = fabric(trace_of([Event("all_reduce", (0, 1, 4), 6 * MIB)]), gpus_per_node=4, spine=0.1)
    last = found.by_order[-1]
    assert (last.verdict, last.order) == (None, "hierarchical")
    assert last.reason is not None and "has 2 on node 0, 1 on node 1" in last.reason
    assert math.isnan(last.cross_rail_fraction)
    assert found.verdict == "saturates"  # 1 -> 4 crosses, 4 -> 0 does not: 0.5 either way
    assert "2 on node 0" in found._repr_html_()


def test_pxn() -> None:
    trace = trace_of([Event("all_to_all", WORLD, 8 * MIB)])
    off, on = (fabric(trace, gpus_per_node=4, spine=0.1, pxn=pxn) for pxn in (False, True))
    assert (off.verdict, on.verdict, on.cross_rail_fraction) == ("saturates", "viable", 0.0)
    assert on.crossing.pxn_bytes == off.crossing.cross_rail_bytes == 24 * MIB
    assert any("counts no PXN" in x for x in off.limits) and any("counts PXN" in x for x in on.limits)
    assert on.moe is not None and on.moe.cross_rail_fraction == 0
    # nobody of the group is on the destination's rail: PXN cannot help
    lone = fabric(trace_of([Event("point_to_point", (0, 5), 8, sender=0, receiver=5)]), gpus_per_node=4, spine=0.1, pxn=True)
    assert (lone.cross_rail_fraction, lone.verdict) == (1.0, "saturates")


def test_absolute_form() -> None:
    found = fabric(trace_of([Event("all_to_all", WORLD, 8 * MIB)]), gpus_per_node=4, spine=0.1, link_gb_s=50, step_time_s=0.001)
    assert found.utilisation is not None
    assert found.utilisation.nic == pytest.approx(4 * MIB / 50e6)
    assert found.utilisation.fat_tree_spine == pytest.approx(24 * MIB / (8 * 50e6))
    assert found.utilisation.rail_spine == pytest.approx(24 * MIB / (0.1 * 8 * 50e6))
    assert fabric(eight_ranks(), gpus_per_node=4).utilisation is None
    assert found.limits[0].startswith("volume-free") and "link capacity" not in found.limits[0]


def test_no_spine_and_one_node() -> None:
    assert fabric(eight_ranks(), gpus_per_node=4, spine=0).verdict == "viable"
    assert fabric(trace_of([Event("all_to_all", WORLD, 8)]), gpus_per_node=4, spine=0).rail_congestion == math.inf
    single = fabric(eight_ranks(), gpus_per_node=8)
    assert (single.nodes, single.inter_node_bytes, single.moe, single.moe_verdict, single.verdict) == (1, 0, None, None, "viable")


@pytest.mark.parametrize(("options", "message"), [
    ({}, "how many GPUs a node has"),
    ({"gpus_per_node": 0}, "0 GPUs per node"),
    ({"gpus_per_node": 4, "spine": 1.5}, "1.5 is not a fraction"),
    ({"gpus_per_node": 4, "spine": math.nan}, "nan is not a fraction"),
    ({"gpus_per_node": 4, "link_gb_s": 50}, "give both link_gb_s and step_time_s"),
    ({"gpus_per_node": 4, "link_gb_s": 0, "step_time_s": 1}, "not positive"),
    ({"gpus_per_node": 4, "moe_skew": -1}, "-1 is not a skew"),
    ({"gpus_per_node": 4, "layout": Layout(gpus_per_node=8)}, "the layout says 8"),
])  # fmt: skip
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fabric(eight_ranks(), **options)  # type: ignore[arg-type]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[np.ndarray, Placement]:
    """Ranks of a job, some GPUs left out, on at least two nodes."""
    per_node, nodes = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    ranks = draw(st.sets(st.integers(0, per_node * nodes - 1), min_size=2))
    if len({r // per_node for r in ranks}) < 2:
        ranks |= {0, per_node}
    return np.array(sorted(ranks), np.int64), Placement(per_node)


@settings(max_examples=60, deadline=None)
@given(jobs(), st.floats(0, 3), st.booleans())
def test_expert_exchange_against_the_dense_matrix(job: tuple[np.ndarray, Placement], skew: float, pxn: bool) -> None:
    ranks, place = job
    found = moe_what_if(ranks, place, 1e9, skew=skew, pxn=pxn)
    assert found is not None
    weight = (np.arange(len(ranks)) + 1.0) ** -skew
    nodes, rails = place.nodes(ranks), place.rails(ranks)
    inter = cross = 0.0
    ingress = np.zeros(len(ranks))
    for i in range(len(ranks)):
        for j in range(len(ranks)):
            if nodes[i] != nodes[j]:
                inter += weight[j]
                ingress[j] += weight[j]
                proxy = pxn and any(nodes[x] == nodes[i] and rails[x] == rails[j] for x in range(len(ranks)))
                cross += 0 if rails[i] == rails[j] or proxy else weight[j]
    assert found.cross_rail_fraction == pytest.approx(cross / inter, abs=1e-12)
    assert found.hottest_ingress == pytest.approx(ingress.max() / ingress.mean())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_uneven_exchange_is_sorted_cell_by_cell(data: st.DataObject) -> None:
    """The bytes of split lists, sorted in numpy and in plain Python."""
    k, per_node = data.draw(st.integers(2, 7)), data.draw(st.integers(1, 4))
    m = data.draw(st.lists(st.lists(st.integers(0, 99), min_size=k, max_size=k), min_size=k, max_size=k))
    lists = [row(sum(m[i]), sum(r[i] for r in m), m[i], [r[i] for r in m]) for i in range(k)]
    trace = trace_of([Event("all_to_all_v", tuple(range(k)), 1, splits=tuple(x for one in lists for x in one))])
    found = fabric(trace, gpus_per_node=per_node, spine=0.5)
    pairs = [(i, j, m[i][j]) for i in range(k) for j in range(k) if i // per_node != j // per_node]
    assert found.inter_node_bytes == sum(b for *_, b in pairs)
    assert found.on_rail_bytes == sum(b for i, j, b in pairs if i % per_node == j % per_node)
    assert found.crossing.nic_egress_bytes == max((sum(b for i, _, b in pairs if i == r) for r in range(k)), default=0)
    assert found.crossing.nic_ingress_bytes == max((sum(b for _, j, b in pairs if j == r) for r in range(k)), default=0)
    assert found.source == "commcanary.trace.v1"


def test_placement_search_finds_the_nodes() -> None:
    """A job of two tensor-parallel groups whose ranks are interleaved over the nodes."""
    shuffled = Placement(4, {0: 0, 1: 4, 2: 1, 3: 5, 4: 2, 5: 6, 6: 3, 7: 7})
    m = build_matrix(eight_ranks())
    found = search_placement(m, shuffled, evaluations=300)
    assert found.before.inter_node_bytes > found.after.inter_node_bytes == 4096 * MIB
    assert found.improved and found.evaluations <= 300
    assert fabric(m, placement=found.placement, spine=0.1).inter_node_bytes == 4096 * MIB
    again = search_placement(m, shuffled, evaluations=300)
    assert again.placement == found.placement
    good = search_placement(m, Placement(4), evaluations=50)
    assert not good.improved and good.placement == Placement(4) and good.moved_ranks == 0
    with pytest.raises(UsageError, match="0 evaluations"):
        search_placement(m, Placement(4), evaluations=0)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(8)), st.integers(1, 80))
def test_placement_search_never_makes_it_worse(slots: list[int], evaluations: int) -> None:
    place = Placement(4, {r: s for r, s in enumerate(slots)})
    m = build_matrix(eight_ranks())
    found = search_placement(m, place, evaluations=evaluations)
    cost = [c.on_rail_bytes + 2 * c.cross_rail_bytes for c in (found.before, found.after)]
    assert cost[1] <= cost[0]
    assert sorted(found.placement.positions(m.ranks).tolist()) == list(range(8))
    assert found.evaluations <= max(evaluations, 3)
