"""Diagnosis over generated jobs of every kind: the right kind, and both numbers as a slow count over every message says."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from commcanary_lab.trace import Trace
from commcanary_lab.traffic import build_matrix, diagnose
from commcanary_lab.traffic.placement import Placement
from tests.traffic.jobs import Event, row, trace_of

SPINE = 0.1
LIMIT = 1.25


@dataclass(frozen=True)
class Job:
    """A job and everything that is sent in it, as plain numbers."""

    trace: Trace
    per_node: int
    groups: dict[str, tuple[tuple[int, ...], dict[tuple[int, int], int]]]  # name -> members, bytes between two of them
    rest: dict[tuple[int, int], float]  # what rings send

    @property
    def imbalance(self) -> float:
        """Largest over mean column of the least even group, counted one message at a time."""
        worst = math.nan
        for members, sent in self.groups.values():
            column = dict.fromkeys(members, 0)
            for (_, dst), size in sent.items():
                column[dst] += size
            ratio = max(column.values()) * len(members) / sum(column.values())
            worst = ratio if math.isnan(worst) else max(worst, ratio)
        return worst

    def cross_rail_fraction(self, slots: dict[int, int] | None = None) -> float:
        """Share of the inter-node bytes that changes rails, counted one link at a time."""
        inter = cross = 0.0
        every = [*self.rest.items(), *(item for _, sent in self.groups.values() for item in sent.items())]
        for (src, dst), size in every:
            (a, rail_a), (b, rail_b) = (divmod((slots or {}).get(r, r), self.per_node) for r in (src, dst))
            if a != b:
                inter += size
                cross += size if rail_a != rail_b else 0
        return cross / inter if inter else 0.0


def expert_groups(draw: st.DrawFn, world: int, per_node: int, crossing: bool) -> list[tuple[int, ...]]:
    """Groups that exchange: inside nodes or along one rail where nothing may cross, over whole nodes where it must."""
    nodes = world // per_node
    if not crossing:
        if draw(st.booleans()) and nodes > 2:  # along the rails: inter-node and all of it on its rail
            return [tuple(range(rail, world, per_node)) for rail in range(per_node)]
        sizes = [k for k in range(3, per_node + 1) if per_node % k == 0]
        size = draw(st.sampled_from(sizes or [per_node]))
        return [tuple(range(low, low + size)) for low in range(0, world, size)]
    shape = draw(st.sampled_from(["world", "pairs of nodes", "strided"]))
    if shape == "pairs of nodes" and nodes % 2 == 0:
        return [tuple(range(low, low + 2 * per_node)) for low in range(0, world, 2 * per_node)]
    if shape == "strided" and per_node % 2 == 0 and per_node > 2:
        return [tuple(range(first, world, 2)) for first in (0, 1)]
    return [tuple(range(world))]


def weights_of(draw: st.DrawFn, k: int, hot: bool) -> list[int]:
    """Bytes that every other member sends to each: within 5 %, or with a hot expert of a drawn skew."""
    weights = draw(st.lists(st.integers(950, 1050), min_size=k, max_size=k))
    if hot:
        at = draw(st.integers(0, k - 1))
        weights[at] = round(weights[at] * draw(st.floats(2.0, 40.0)))
    return weights


@st.composite
def jobs(draw: st.DrawFn, *, uneven: bool, crossing: bool) -> Job:
    per_node = draw(st.sampled_from([2, 3, 4, 6, 8, 16]))
    nodes = draw(st.integers(2 if crossing else 1, max(2, 64 // per_node)))
    world = per_node * nodes
    assume(4 <= world <= 64)
    groups = expert_groups(draw, world, per_node, crossing)
    assume(all(len(g) > 2 for g in groups))
    hot = draw(st.integers(0, len(groups) - 1)) if uneven else -1
    as_messages = draw(st.booleans())
    events: list[Event] = []
    table: dict[str, tuple[tuple[int, ...], dict[tuple[int, int], int]]] = {}
    for i, members in enumerate(groups):
        weights, name, k = weights_of(draw, len(members), i == hot), f"EP Group {i}", len(members)
        calls = draw(st.integers(1, 3))
        sent = {(a, b): calls * w for a in members for b, w in zip(members, weights, strict=True) if a != b}
        table[name] = (members, sent)
        for _ in range(calls):
            if as_messages:
                one = [(a, b, w) for a in members for b, w in zip(members, weights, strict=True) if a != b]
                events += [Event("send", members, w, name, sender=a, receiver=b) for a, b, w in one]
            else:
                lists = [row(sum(weights), k * w, weights, [w] * k) for w in weights]
                events.append(Event("all_to_all_v", members, 1, name, splits=tuple(x for own in lists for x in own)))
    rest: dict[tuple[int, int], float] = defaultdict(float)
    if nodes > 1 and not crossing:  # gradients along the rails; rings over equal indices cross no rail in any order
        size = draw(st.integers(1, 1 << 20))
        for rail in range(per_node):
            members = tuple(range(rail, world, per_node))
            events.append(Event("all_reduce", members, size, f"DP Group {rail}"))
            for a, b in zip(members, (*members[1:], members[0]), strict=True):
                rest[a, b] += 2 * (nodes - 1) / nodes * size
    job = Job(trace_of(events), per_node, table, dict(rest))
    # the kind that was drawn is the kind that the numbers say: a hot expert among many may be lost in the mean
    assume((job.imbalance > LIMIT) == uneven)
    assume((job.cross_rail_fraction() > SPINE) == crossing)
    return job


KINDS = {
    (True, False): "routing problem",
    (False, True): "fabric problem",
    (True, True): "both",
    (False, False): "neither",
}


@pytest.mark.parametrize(("uneven", "crossing"), sorted(KINDS))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_right_kind_with_both_numbers(uneven: bool, crossing: bool, data: st.DataObject) -> None:
    job = data.draw(jobs(uneven=uneven, crossing=crossing))
    found = diagnose(job.trace, gpus_per_node=job.per_node, spine=SPINE)
    assert found.verdict == KINDS[uneven, crossing]
    assert found.imbalance == pytest.approx(job.imbalance, rel=1e-12)
    assert found.cross_rail_fraction == pytest.approx(job.cross_rail_fraction(), rel=1e-12, abs=1e-15)
    assert found.rail_congestion == pytest.approx(job.cross_rail_fraction() / SPINE, rel=1e-12, abs=1e-15)
    assert {g.name for g in found.groups} == set(job.groups)
    for g in found.groups:
        members, sent = job.groups[g.name]
        assert (g.group.members, g.senders) == (members, len(members))
        assert g.size_bytes == sum(sent.values())
        column = {r: sum(size for (_, dst), size in sent.items() if dst == r) for r in members}
        assert column[g.hottest_rank] == max(column.values())
        assert g.imbalance == pytest.approx(max(column.values()) * len(members) / sum(column.values()))
    assert [g.imbalance for g in found.groups] == sorted((g.imbalance for g in found.groups), reverse=True)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), uneven=st.booleans(), crossing=st.booleans())
def test_relabelling_ranks_moves_the_fabric_number_only_with_the_placement(data: st.DataObject, uneven: bool, crossing: bool) -> None:
    """Routing is a property of the traffic; the fabric number is one of where the ranks sit."""
    job = data.draw(jobs(uneven=uneven, crossing=crossing))
    ranks = sorted(job.trace.ranks)
    slots = dict(zip(ranks, data.draw(st.permutations(ranks)), strict=True))
    found = diagnose(build_matrix(job.trace), placement=Placement(job.per_node, slots=slots), spine=SPINE)
    assert found.imbalance == pytest.approx(job.imbalance, rel=1e-12)
    assert found.cross_rail_fraction == pytest.approx(job.cross_rail_fraction(slots), rel=1e-9, abs=1e-12)
    assert found.routing_problem == uneven


@settings(max_examples=40, deadline=None)
@given(data=st.data(), limit=st.floats(1.0, 8.0), spine=st.floats(0.0, 1.0))
def test_thresholds_decide(data: st.DataObject, limit: float, spine: float) -> None:
    job = data.draw(jobs(uneven=data.draw(st.booleans()), crossing=data.draw(st.booleans())))
    assume(abs(job.imbalance - limit) > 1e-9 and abs(job.cross_rail_fraction() - spine) > 1e-9)
    found = diagnose(job.trace, gpus_per_node=job.per_node, spine=spine, max_imbalance=limit)
    routing, fabric = job.imbalance > limit, job.cross_rail_fraction() > spine
    if found.fabric_problem is not None:
        assert found.verdict == KINDS[routing, fabric]
    assert found.routing_problem == routing


@settings(max_examples=40, deadline=None)
@given(data=st.data(), uneven=st.booleans())
def test_part_of_the_ranks_report(data: st.DataObject, uneven: bool) -> None:
    """Captures of some ranks: columns are those of the senders that are known, without a member's own missing one."""
    k = data.draw(st.integers(3, 12))
    members = tuple(range(k))
    weights = weights_of(data.draw, k, uneven)
    known = tuple(sorted(data.draw(st.sets(st.sampled_from(members), min_size=1))))
    lists = [row(sum(weights), k * weights[r], weights, [weights[r]] * k) for r in known]
    event = Event("all_to_all_v", members, 1, "EP", splits=tuple(x for own in lists for x in own),
                  observers=None if len(known) == k else known)  # fmt: skip
    found = diagnose(trace_of([event]), gpus_per_node=k)
    if not uneven:
        assert not found.routing_problem  # half of the ranks are no reason to call an even exchange uneven
    if len(known) == k - 1:
        known = members  # the others say all that the silent one sends
    # bytes per possible sender, so that a member that reports is not blamed for not sending to itself
    senders = {j: [i for i in known if i != j] for j in members}
    level = {j: weights[j] * len(s) / max(len(s), 1) for j, s in senders.items()}
    mean = sum(weights[j] * len(s) for j, s in senders.items()) / sum(len(s) for s in senders.values())
    assert found.imbalance == pytest.approx(max(level.values()) / mean, rel=1e-12)
    assert found.groups[0].senders == len(known)


def test_captures_that_end_at_different_events_are_judged() -> None:
    """One rank misses the last of 20 exchanges: its row is nearly whole. A rank that misses half of them is not taken for a quiet one."""
    members = (0, 1, 2, 3)

    def job(missed: int) -> Trace:
        events = []
        for i in range(20):
            known = members[:3] if i >= 20 - missed else members
            lists = [row(40, 40, [10] * 4, [10] * 4) for _ in known]
            observers = None if known == members else known
            events.append(Event("all_to_all_v", members, 1, "EP", splits=tuple(x for own in lists for x in own), observers=observers))
        return trace_of(events)

    for missed, senders in ((1, 4), (10, 4)):  # the others say what they received from it
        found = diagnose(job(missed), gpus_per_node=4)
        assert (found.verdict, found.groups[0].senders) == ("neither", senders)
        assert found.imbalance == pytest.approx(1.0, abs=0.02)


def test_nobody_reports_enough_to_judge() -> None:
    members = tuple(range(6))
    events = [
        Event("all_to_all_v", members, 1, "EP", splits=tuple(row(60, 60, [10] * 6, [10] * 6)), observers=(r,)) for r in members
    ]  # fmt: skip
    found = diagnose(trace_of(events), gpus_per_node=6)
    assert (found.groups, found.verdict) == ((), "neither")
    assert "1 group not judged: no rank reports nearly all of the exchanges" in found.notes


def test_the_generator_reaches_every_shape() -> None:
    """World sizes, node sizes, group shapes and skews are really varied: a generator that narrows would prove little."""
    seen: dict[str, set[object]] = defaultdict(set)

    @settings(max_examples=120, deadline=None)
    @given(uneven=st.booleans(), crossing=st.booleans(), data=st.data())
    def collect(uneven: bool, crossing: bool, data: st.DataObject) -> None:
        job = data.draw(jobs(uneven=uneven, crossing=crossing))
        seen["world"].add(job.trace.world_size if hasattr(job.trace, "world_size") else len(job.trace.ranks))
        seen["per node"].add(job.per_node)
        seen["group size"] |= {len(m) for m, _ in job.groups.values()}
        seen["stride"] |= {int(np.diff(m)[0]) for m, _ in job.groups.values()}
        seen["kind"].add((uneven, crossing))
        seen["skew"].add(round(job.imbalance))

    collect()
    assert seen["kind"] == set(KINDS)
    assert max(seen["world"]) > 32 and min(seen["world"]) <= 8  # type: ignore[type-var, operator]
    assert len(seen["per node"]) >= 4 and len(seen["group size"]) >= 6 and len(seen["stride"]) >= 3
    assert max(seen["skew"]) >= 8  # type: ignore[type-var, operator]
