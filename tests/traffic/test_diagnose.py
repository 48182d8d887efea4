"""Routing against fabric: right on generated jobs of each kind."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import UsageError
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import build_matrix, diagnose
from tests.traffic.jobs import Event, eight_ranks, row, trace_of


def exchange(members: tuple[int, ...], weights: list[int], name: str, *, as_messages: bool) -> list[Event]:
    """Every member sends weights[j] to member j."""
    k = len(members)
    if as_messages:
        pairs = [(i, j) for i in range(k) for j in range(k) if i != j]
        return [Event("send", members, weights[j], name, sender=members[i], receiver=members[j]) for i, j in pairs]
    lists = [row(sum(weights), k * weights[i], weights, [weights[i]] * k) for i in range(k)]
    return [Event("all_to_all_v", members, 1, name, splits=tuple(x for one in lists for x in one))]


@st.composite
def jobs(draw: st.DrawFn, *, uneven: bool, crossing: bool) -> tuple[Trace, int]:
    """A mixture-of-experts job: expert groups inside nodes or across them, routing even or with a hot expert, data parallelism on rails."""
    per_node, nodes = draw(st.integers(3, 8)), draw(st.integers(2, 4))
    if crossing:
        groups = [tuple(range(per_node * nodes))]
    else:
        groups = [tuple(range(n * per_node, (n + 1) * per_node)) for n in range(nodes)]
    as_messages = draw(st.booleans())
    events: list[Event] = []
    for i, members in enumerate(groups):
        weights = draw(st.lists(st.integers(950, 1050), min_size=len(members), max_size=len(members)))
        if uneven and i == 0:
            # the hot expert receives at least 1.5 times the mean
            weights[draw(st.integers(0, len(members) - 1))] *= draw(st.integers(4, 9))
        events += exchange(members, weights, f"EP Group {i}", as_messages=as_messages)
    events += [Event("all_reduce", tuple(range(r, per_node * nodes, per_node)), 1 << 20, f"DP Group {r}") for r in range(per_node)]
    if crossing:  # gradients must not hide the exchange: the fraction is over everything between nodes
        events = [e for e in events if e.op != "all_reduce"]
    return trace_of(draw(st.permutations(events))), per_node


@pytest.mark.parametrize(("uneven", "crossing", "verdict"), [
    (True, False, "routing problem"),
    (False, True, "fabric problem"),
    (True, True, "both"),
    (False, False, "neither"),
])  # fmt: skip
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_each_kind(uneven: bool, crossing: bool, verdict: str, data: st.DataObject) -> None:
    trace, per_node = data.draw(jobs(uneven=uneven, crossing=crossing))
    found = diagnose(trace, gpus_per_node=per_node, spine=0.1)
    assert found.verdict == verdict
    assert (found.imbalance > 1.25) == uneven
    assert found.imbalance >= 1 - 1e-9
    assert (found.cross_rail_fraction > 0.1) == crossing
    assert found.rail_congestion == pytest.approx(found.cross_rail_fraction / 0.1)
    assert found.groups[0].senders == found.groups[0].group.size
    # what stands out is named
    if uneven:
        sent = {}
        for link in build_matrix(trace).by("group")[found.groups[0].name].links():
            sent[link.dst] = sent.get(link.dst, 0) + link.size_bytes
        assert found.groups[0].hottest_rank == max(sent, key=lambda r: sent[r])


def test_no_exchange_has_no_routing() -> None:
    found = diagnose(eight_ranks(), gpus_per_node=4)
    assert (found.verdict, found.groups, found.cross_rail_fraction) == ("neither", (), 0.0)
    assert math.isnan(found.imbalance)
    assert "no routing to judge" in found.notes[0]
    assert "stragglers" in found.advice


def test_rings_pipelines_and_broadcasts_are_not_routing() -> None:
    events = [Event("broadcast", tuple(range(8)), 1000, root=3)]
    events += [Event("send", (0, 1, 2, 3), 500, "pp", sender=i, receiver=i + 1) for i in range(3)]
    assert diagnose(trace_of(events), gpus_per_node=8).groups == ()


def test_an_assumed_order_is_not_called_a_problem() -> None:
    trace = trace_of([Event("all_reduce", tuple(range(8)), 800, "world")])
    found = diagnose(trace, gpus_per_node=4)
    assert (found.verdict, found.fabric_problem) == ("fabric depends on ring order", None)
    assert found.advice == "state the ring order"
    uneven = exchange((0, 1, 2, 3), [9, 1, 1, 1], "EP", as_messages=False)
    both = diagnose(trace_of([Event("all_reduce", tuple(range(8)), 800, "world"), *uneven]), gpus_per_node=4)
    assert both.verdict == "routing problem, fabric depends on ring order"
    assert "router" in both.advice and "<table" in both._repr_html_()


@pytest.mark.parametrize("k", [3, 4, 8])
def test_one_known_row(k: int) -> None:
    """The profile of one rank: what the others sent elsewhere is unknown, and what it keeps for itself is no hole in its column."""
    members = tuple(range(k))

    def of(sent: list[int]) -> Trace:
        return trace_of([Event("all_to_all_v", members, 1, "EP", observers=(1,), splits=row(sum(sent), 10 * k, sent, [10] * k))])

    even = diagnose(of([10] * k), gpus_per_node=k)
    assert (even.verdict, even.imbalance, even.groups[0].senders) == ("neither", 1.0, 1)
    assert any("whose sends are known" in note for note in even.notes)
    hot = diagnose(of([10] * (k - 1) + [90]), gpus_per_node=k)
    assert (hot.verdict, hot.groups[0].hottest_rank) == ("routing problem", k - 1)


def test_everything_goes_to_one_member() -> None:
    found = diagnose(trace_of(exchange((0, 1, 2, 3), [100, 0, 0, 0], "EP", as_messages=False)), gpus_per_node=4)
    assert (found.verdict, found.groups[0].hottest_rank, found.groups[0].senders, found.imbalance) == ("routing problem", 0, 4, 4.0)


def test_refusals() -> None:
    with pytest.raises(UsageError, match=r"0\.5 is no imbalance"):
        diagnose(eight_ranks(), gpus_per_node=4, max_imbalance=0.5)
    with pytest.raises(UsageError, match="how many GPUs a node has"):
        diagnose(eight_ranks())
