"""Invariants of every registered algorithm, and what is not attributed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, LimitError, RefusedError, UsageError
from commcanary_lab.trace import ImportCoverage, UnsizedRow
from commcanary_lab.traffic import Algorithm, Calls, Layout, TrafficMatrix, algorithms, build_matrix, register
from commcanary_lab.traffic import attribution as registry
from commcanary_lab.traffic.attribution import switch_name
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.placement import Placement
from tests.traffic.jobs import MIB, Event, trace_of

MESSAGES = ("send", "recv", "point_to_point")
ROOTED = ("broadcast", "reduce")


def passes(op: str) -> int:
    return 2 if op == "all_reduce" else 1


def volume(op: str, k: int, size: int) -> float:
    """Sum of M of one event."""
    if op in MESSAGES:
        return size if k > 1 else 0
    return passes(op) * (k - 1) * size


@dataclass(frozen=True)
class Shape:
    """What an algorithm promises: an invariant of M for one event, and whether every node must hold as many ranks of the group."""

    holds: Callable[[TrafficMatrix, Drawn], None]
    even: bool = False


@dataclass(frozen=True)
class Drawn:
    """One event on nodes."""

    event: Event
    placement: Placement

    @property
    def k(self) -> int:
        return len(self.event.members)

    @property
    def per_node(self) -> int:
        """m, where nodes hold equally many."""
        return self.k // self.placement.node_count(np.array(self.event.members))


def near(values: object, expected: object) -> None:
    assert np.allclose(values, expected, rtol=1e-12, atol=0), (values, expected)


def uniform(m: TrafficMatrix, d: Drawn) -> None:
    """Every rank sends and receives as much as every other one."""
    each = volume(d.event.op, d.k, d.event.size) / d.k
    near(m.egress(), each)
    near(m.ingress(), each)


def symmetric(m: TrafficMatrix, d: Drawn) -> None:
    """What goes up an edge comes down it."""
    near(m.dense(), m.dense().T)
    assert d.k < 2 or (m.egress() > 0).all() or d.event.size == 0


def complementary(m: TrafficMatrix, d: Drawn) -> None:
    """At most three edges in one tree and one in the other."""
    symmetric(m, d)
    assert m.egress().max() <= 2 * d.event.size * (1 + 1e-12)


def rooted(m: TrafficMatrix, d: Drawn) -> None:
    """A broadcast reaches everybody but its root once; a reduce leaves everybody but its root once."""
    sums = m.ingress() if d.event.op == "broadcast" else m.egress()
    near(sums, np.where(m.ranks == d.event.root, 0, d.event.size))


def chain_or_rings(m: TrafficMatrix, d: Drawn) -> None:
    (rooted if d.event.op in ROOTED else uniform)(m, d)


def one_message(m: TrafficMatrix, d: Drawn) -> None:
    e = d.event
    assert {(x.src, x.dst) for x in m.links()} == ({(e.sender, e.receiver)} if e.size and e.sender != e.receiver else set())


def switched(m: TrafficMatrix, d: Drawn) -> None:
    """Every member exchanges with the switch of its node and with nobody else there; between nodes blocks of B / m travel."""
    b, m_, op = d.event.size, d.per_node, d.event.op
    n = d.k // m_
    up = {"all_reduce": b + b / m_, "reduce_scatter": b, "all_gather": b / m_}[op] if m_ > 1 else 0
    down = {"all_reduce": b + b / m_, "reduce_scatter": b / m_, "all_gather": b}[op] if m_ > 1 else 0
    near([m.to_switches_bytes, m.from_switches_bytes], [up * d.k, down * d.k])
    for link in m.switch_links():
        rank, switch = max(link.src, link.dst), min(link.src, link.dst)
        assert switch == -1 - d.placement.nodes(np.array([rank]))[0]
    near(m.sum_bytes, passes(op) * (n - 1) * b)
    assert all(np.diff(d.placement.nodes(np.array([x.src, x.dst]))) != 0 for x in m.links())


#: One line per algorithm: what M looks like.
SHAPES: dict[str, Shape] = {
    "ring": Shape(uniform),
    "double_ring": Shape(uniform),
    "tree": Shape(symmetric),
    "double_tree": Shape(complementary),
    "nccl_tree": Shape(symmetric),
    "hierarchical": Shape(chain_or_rings, even=True),
    "nvls": Shape(switched, even=True),
    "nvls_tree": Shape(switched, even=True),
    "chain": Shape(rooted),
    "pairwise": Shape(uniform),
    "send_recv": Shape(one_message),
}

CASES = [(name, op) for name, a in sorted(algorithms().items()) for op in sorted(a.ops)]
OPS = sorted({op for _, op in CASES})
RANKS = 64

sizes = st.integers(0, 1 << 40)
members_of_a_group = st.sets(st.integers(0, RANKS - 1), min_size=1, max_size=RANKS).map(lambda s: tuple(sorted(s)))


@st.composite
def places(draw: st.DrawFn) -> Placement:
    """64 ranks on nodes of 1 to 16 GPUs, in order or not."""
    moved = draw(st.permutations(range(RANKS))) if draw(st.booleans()) else []
    return Placement(draw(st.integers(1, 16)), {rank: slot for rank, slot in enumerate(moved) if rank != slot})


@st.composite
def groups(draw: st.DrawFn, place: Placement, *, even: bool) -> tuple[int, ...]:
    """Members of a group; `even`: as many on every node, though not on the same rails."""
    if not even:
        return draw(members_of_a_group)
    nodes = place.nodes(np.arange(RANKS))
    whole = [np.flatnonzero(nodes == n).tolist() for n in draw(st.sets(st.integers(0, int(nodes.max())), min_size=1))]
    per_node = draw(st.integers(1, min(map(len, whole))))
    return tuple(sorted(r for ranks in whole for r in draw(st.permutations(ranks))[:per_node]))


@st.composite
def drawn_events(draw: st.DrawFn, op: str, *, even: bool = False) -> Drawn:
    place = draw(places())
    return Drawn(draw(events_on(op, draw(groups(place, even=even)))), place)


@st.composite
def events_on(draw: st.DrawFn, op: str, members: tuple[int, ...]) -> Event:
    size = draw(sizes)
    if op in MESSAGES:
        src = draw(st.sampled_from(members))
        others = [r for r in members if r != src] or [src]
        return Event(op, members, size, sender=src, receiver=draw(st.sampled_from(others)))
    return Event(op, members, size, root=draw(st.sampled_from(members)) if op in ROOTED else None)


def matrix(d: Drawn, name: str, *, order: list[int] | None = None, events: list[Event] | None = None) -> TrafficMatrix:
    used = [d.event] if events is None else events
    return build_matrix(trace_of(used), algorithm={d.event.op: name}, placement=d.placement, ring_order=order)


def test_the_table_is_complete() -> None:
    assert set(SHAPES) == set(algorithms())
    assert {op for a in algorithms().values() for op in a.default_for} == set(OPS)


@pytest.mark.parametrize(("name", "op"), CASES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_invariants(name: str, op: str, data: st.DataObject) -> None:
    d = data.draw(drawn_events(op, even=SHAPES[name].even))
    m = matrix(d, name, order=data.draw(st.permutations(d.event.members)))
    if SHAPES[name].holds is not switched:
        near(m.sum_bytes, volume(op, d.k, d.event.size))
        assert not m.switch_links()
    SHAPES[name].holds(m, d)
    assert not np.any(np.diagonal(m.dense()))
    assert m.unattributed_bytes == 0
    if d.k == 1:
        assert m.links() == m.switch_links() == []


@pytest.mark.parametrize(("name", "op"), CASES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_relabelling_ranks_permutes(name: str, op: str, data: st.DataObject) -> None:
    d = data.draw(drawn_events(op, even=SHAPES[name].even))
    new = data.draw(st.permutations(range(RANKS)))
    order = data.draw(st.permutations(d.event.members))

    def label(rank: int | None) -> int | None:
        return None if rank is None else new[rank]

    e = d.event
    renamed = replace(e, members=tuple(new[r] for r in e.members), root=label(e.root), sender=label(e.sender), receiver=label(e.receiver))
    slots = d.placement.positions(np.arange(RANKS)).tolist()
    moved = Placement(d.placement.gpus_per_node, {new[r]: slots[r] for r in range(RANKS)})
    a, b = matrix(d, name, order=order), matrix(Drawn(renamed, moved), name, order=[new[r] for r in order])
    permuted = b.dense()[np.ix_(*[np.searchsorted(b.ranks, [new[r] for r in a.ranks])] * 2)]
    near(permuted, a.dense())
    expected = {(new[x.src] if x.src >= 0 else x.src, new[x.dst] if x.dst >= 0 else x.dst): x.size_bytes for x in a.switch_links()}
    assert {(x.src, x.dst): x.size_bytes for x in b.switch_links()} == expected


@pytest.mark.parametrize(("name", "op"), CASES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_single_observers_sum_to_all(name: str, op: str, data: st.DataObject) -> None:
    d = data.draw(drawn_events(op, even=SHAPES[name].even))
    drawn = [d.event, *data.draw(st.lists(events_on(op, d.event.members), max_size=3))]
    whole = matrix(d, name, events=drawn)
    total = build_matrix(trace_of([]), placement=d.placement)
    for rank in data.draw(st.permutations(d.event.members)):
        # either side alone tells everything about a message
        own = [replace(e, observers=(rank,)) for e in drawn if op not in MESSAGES or e.sender == rank]
        total = total + matrix(d, name, events=own)
    assert total.equals(whole)
    assert total.reattributed(placement=d.placement).equals(whole)


@pytest.mark.parametrize("name", ["ring", "double_ring", "hierarchical", "nvls"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_all_reduce_is_reduce_scatter_and_all_gather(name: str, data: st.DataObject) -> None:
    d = data.draw(drawn_events("all_reduce", even=SHAPES[name].even))
    order = data.draw(st.permutations(d.event.members))
    halves = [replace(d.event, op=op) for op in ("reduce_scatter", "all_gather")]
    two = build_matrix(trace_of(halves), algorithm=name, ring_order=order, placement=d.placement)
    assert matrix(d, name, order=order).equals(two)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_order_of_ranks_does_not_change_sums(data: st.DataObject) -> None:
    """Ring sum = tree sum, whatever the order; what algorithms do differently is which links carry it."""
    d = data.draw(drawn_events("all_reduce", even=True))
    totals = []
    for name in sorted(a.name for a in algorithms().values() if "all_reduce" in a.ops and SHAPES[a.name].holds is not switched):
        totals.append(matrix(d, name, order=data.draw(st.permutations(d.event.members))).sum_bytes)
    near(totals, 2 * (d.k - 1) * d.event.size)
    assert len(totals) == 6


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_attributing_again_is_attributing_otherwise(data: st.DataObject) -> None:
    d = data.draw(drawn_events("all_reduce", even=True))
    events = [d.event, *data.draw(st.lists(st.sampled_from(OPS).flatmap(lambda op: events_on(op, d.event.members)), max_size=3))]
    order = data.draw(st.permutations(d.event.members))
    name = data.draw(st.sampled_from(sorted(a.name for a in algorithms().values() if "all_reduce" in a.ops)))
    direct = build_matrix(trace_of(events), algorithm=name, ring_order=order, placement=d.placement)
    again = build_matrix(trace_of(events)).reattributed(algorithm=name, order=RingOrder(tuple(order), {}), placement=d.placement)
    assert again.equals(direct)
    assert again.algorithms == direct.algorithms
    assert again.ring_order == "assumed"  # who calls it says what it stands for


def test_nodes_must_be_known_and_even() -> None:
    trace = trace_of([Event("all_reduce", (0, 1, 2), 8)])
    for name in ("hierarchical", "nvls", "nvls_tree", "nccl_tree"):
        with pytest.raises(UsageError, match=f"{name}' needs to know which ranks share a node; give gpus_per_node"):
            build_matrix(trace, algorithm=name)
    for name in ("hierarchical", "nvls", "nvls_tree"):
        with pytest.raises(RefusedError, match=f"{name} needs as many ranks of a group on every node; 0-2 has 2 on node 0, 1 on node 1"):
            build_matrix(trace, algorithm=name, gpus_per_node=2)
    assert build_matrix(trace, algorithm="nccl_tree", layout=Layout(gpus_per_node=2)).sum_bytes == 32
    with pytest.raises(UsageError, match="2 GPUs per node are given, the layout says 4"):
        build_matrix(trace, gpus_per_node=2, layout=Layout(gpus_per_node=4))


def test_switches_stand_beside_the_matrix() -> None:
    trace = trace_of([Event("all_reduce", (0, 1, 2, 3), 12, "tp"), Event("all_gather", (4, 5, 6, 7), 12, "tp")])
    m = build_matrix(trace, algorithm="nvls", gpus_per_node=4)
    assert (m.sum_bytes, m.links(), m.ranks.tolist()) == (0, [], list(range(8)))
    assert (m.to_switches_bytes, m.from_switches_bytes) == (4 * 15 + 4 * 3, 4 * 15 + 4 * 12)
    assert {x.src for x in m.switch_links() if x.src < 0} == {-1, -2}
    assert switch_name(-2) == "switch of node 1"
    ring = build_matrix(trace)
    assert str(m.first_difference(ring)) == "switch of node 1 -> 4: 12 bytes against 0 bytes"
    assert not m.equals(ring)
    assert m.by("op")["all_gather"].to_switches_bytes == 12


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_order_of_events_does_not_matter(data: st.DataObject) -> None:
    one = st.sampled_from(OPS).flatmap(lambda op: members_of_a_group.flatmap(lambda members: events_on(op, members)))
    drawn = data.draw(st.lists(one, max_size=8))
    a = build_matrix(trace_of(drawn))
    b = build_matrix(trace_of(data.draw(st.permutations(drawn))))
    assert a.equals(b)
    slow = build_matrix(trace_of([]))
    for event in drawn:
        if event.op != "recv":  # a recv pairs with a send of the same trace
            slow = slow + build_matrix(trace_of([event]))
    if not any(e.op == "recv" for e in drawn):
        assert slow.equals(a)
        assert slow.payload_bytes == a.payload_bytes


def test_ring_follows_the_stated_order() -> None:
    trace = trace_of([Event("all_reduce", (0, 1, 2, 3, 4, 5, 6, 7), 8 * MIB, "world")])
    flat = build_matrix(trace)
    stated = build_matrix(trace, ring_order=[0, 4, 1, 5, 2, 6, 3, 7])
    assert {(x.src, x.dst) for x in flat.links()} == {(r, (r + 1) % 8) for r in range(8)}
    assert {(x.src, x.dst) for x in stated.links()} == {(0, 4), (4, 1), (1, 5), (5, 2), (2, 6), (6, 3), (3, 7), (7, 0)}
    assert (flat.ring_order, stated.ring_order) == ("assumed", "stated")
    assert flat.sum_bytes == stated.sum_bytes == 14 * 8 * MIB
    by_name = build_matrix(trace, ring_order={"world": [0, 4, 1, 5, 2, 6, 3, 7]})
    assert by_name.equals(stated)
    assert by_name.ring_order == "stated"


def test_partly_stated_order_is_assumed() -> None:
    trace = trace_of([Event("all_reduce", (0, 1, 2), 9, "a"), Event("all_reduce", (3, 4, 5), 9, "b"), Event("all_reduce", (0, 3), 9, "c")])
    assert build_matrix(trace, ring_order={"a": [2, 1, 0]}).ring_order == "assumed"
    assert build_matrix(trace, ring_order={"a": [2, 1, 0], "b": [3, 4, 5]}).ring_order == "stated"  # a ring of two has one order


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1], "lacks rank 2 of a"),
        ([0, 1, 2, 1], "rank 1 more than once"),
        ({"b": [0, 1, 2]}, "a group 'b' that the trace does not have"),
        ({"a": [0, 1]}, "lacks rank 2 of a"),
    ],
)
def test_wrong_orders_are_refused(order: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_matrix(trace_of([Event("all_reduce", (0, 1, 2), 9, "a")]), ring_order=order)  # type: ignore[arg-type]


def test_chain_directions() -> None:
    members = (3, 5, 8, 9)
    broadcast = build_matrix(trace_of([Event("broadcast", members, 10, root=8)]))
    assert [(x.src, x.dst, x.size_bytes) for x in broadcast.links()] == [(3, 5, 10.0), (8, 9, 10.0), (9, 3, 10.0)]
    reduce = build_matrix(trace_of([Event("Reduce", members, 10, root=8)]))
    assert [(x.src, x.dst, x.size_bytes) for x in reduce.links()] == [(3, 5, 10.0), (5, 8, 10.0), (9, 3, 10.0)]
    assert list(reduce.by("op")) == ["reduce"]


def test_roots_are_kept_apart() -> None:
    m = build_matrix(
        trace_of(
            [Event("broadcast", (0, 1, 2), 10, root=0), Event("broadcast", (0, 1, 2), 7, root=1), Event("broadcast", (0, 1, 2), 5, root=0)]
        )
    )
    assert m.dense().tolist() == [[0, 15, 0], [0, 0, 22], [7, 0, 0]]


def test_root_outside_the_group() -> None:
    with pytest.raises(InputError, match=r"event 1: root: the root 7 is no member of g \(2 ranks: 0-1\)"):
        build_matrix(trace_of([Event("all_reduce", (0, 1), 8, "g"), Event("broadcast", (0, 1), 8, "g", root=7)]))


def test_message_is_counted_once_whoever_logs_it() -> None:
    for observers in (None, (3,), (7,)):
        m = build_matrix(trace_of([Event("point_to_point", (3, 7), 4096, sender=7, receiver=3, observers=observers)]))
        assert [(x.src, x.dst, x.size_bytes) for x in m.links()] == [(7, 3, 4096.0)]
        assert m.records == (2 if observers is None else 1)
        assert m.origin == "measured"


def test_send_and_recv_events_are_two_sides() -> None:
    both = [
        Event("send", (0, 1), 2000, sender=0, receiver=1),
        Event("recv", (0, 1), 2000, sender=0, receiver=1),
        Event("send", (0, 1), 1000, sender=1, receiver=0),
        Event("recv", (0, 1), 1000, sender=1, receiver=0),
    ]
    assert build_matrix(trace_of(both)).dense().tolist() == [[0, 2000], [1000, 0]]
    assert build_matrix(trace_of(both[::-1])).dense().tolist() == [[0, 2000], [1000, 0]]
    # a second recv of that size has no send beside it: it is a message of its own
    assert build_matrix(trace_of([*both, both[1]])).dense().tolist() == [[0, 4000], [1000, 0]]
    assert build_matrix(trace_of([both[0], both[3]])).dense().tolist() == [[0, 2000], [1000, 0]]
    assert build_matrix(trace_of([both[0], both[0], both[1]])).value(0, 1) == 4000


def test_what_cannot_be_attributed() -> None:
    m = build_matrix(
        trace_of(
            [
                Event("broadcast", (0, 1, 2), 100),
                Event("gather", (0, 1), 30),
                Event("gather", (0, 1), 30),
                Event("send", (0, 1), 5),
                Event("all_to_all_v", (0, 1), 9),
                Event("scatter", (0,), 1000),
                Event("barrier", (0, 1), 0),
                Event("all_reduce", (0, 1), 8),
            ]
        )
    )
    assert m.sum_bytes == 16
    assert m.unattributed_bytes == 300 + 120 + 10 + 18
    assert {op: x.unattributed_bytes for op, x in m.by("op").items() if x.unattributed_bytes} == {
        "all_to_all_v": 18,
        "broadcast": 300,
        "gather": 120,
        "send": 10,
    }
    assert list(m.notes) == [
        "1 broadcast event unattributed (300 B): the root is unknown",
        "2 gather events unattributed (120 B): the traffic of this operation is not defined",
        "1 send event unattributed (10 B): sender or receiver is unknown",
        "1 all_to_all_v event unattributed (18 B): the splits are unknown",
    ]


def test_unsized_rows_are_said_not_counted() -> None:
    unsized = (UnsizedRow("ncclKernel", 40_000, "no metadata"), UnsizedRow("allreduce", 1, "members unknown", size_bytes=512))
    m = build_matrix(trace_of([Event("all_reduce", (0, 1), 4096)], unsized=unsized, coverage=ImportCoverage(3, 1, {"no metadata": 1})))
    assert (m.records, m.payload_bytes, m.sum_bytes, m.unattributed_bytes) == (2, 8192, 8192, 512)
    assert "1 collective of unknown size: not in the matrix" in m.notes
    assert any("1 collective of unknown members unattributed (512 B)" in note for note in m.notes)
    assert (m.coverage.read, m.coverage.used) == (3, 1)
    assert m.by("op")["all_reduce"].unattributed_bytes == 0


def test_empty_trace() -> None:
    m = build_matrix(trace_of([]))
    assert (m.n, m.records, m.sum_bytes, m.links(), m.algorithm, m.by("op")) == (0, 0, 0.0, [], "none", {})
    assert m.dense().shape == (0, 0)


def test_unknown_algorithms() -> None:
    trace = trace_of([Event("all_reduce", (0, 1), 8)])
    with pytest.raises(UsageError, match=r"no attribution algorithm 'rign'; choose one of: .*ring"):
        build_matrix(trace, algorithm="rign")
    with pytest.raises(UsageError, match="'chain' cannot attribute 'all_reduce'; it attributes: broadcast, reduce"):
        build_matrix(trace, algorithm={"all_reduce": "chain"})


def test_a_further_algorithm_is_one_function() -> None:
    """A star, as a user would add it: everybody sends to the first rank, which answers."""

    def star(calls: Calls) -> registry.Links:
        hub = np.repeat(calls.members[:, :1], calls.group_size, axis=1)
        size = np.repeat(calls.size_bytes[:, None], calls.group_size, axis=1)
        other = calls.reporting & (calls.members != hub)
        up = registry.Links.where(other, calls.members, hub, size)
        down = registry.Links.where(other, hub, calls.members, size)
        return registry.Links(*(np.concatenate([getattr(up, f), getattr(down, f)]) for f in ("call", "src", "dst", "size_bytes")))

    register("star", ops=("all_reduce",))(star)
    try:
        m = build_matrix(trace_of([Event("all_reduce", (2, 4, 6), 10), Event("all_to_all", (2, 4), 6)]), algorithm="star")
        assert m.dense().tolist() == [[0, 13, 10], [13, 0, 0], [10, 0, 0]]
        assert m.algorithm == "all_reduce star, all_to_all pairwise"
        assert isinstance(algorithms()["star"], Algorithm)
        with pytest.raises(UsageError, match="an algorithm named 'star' exists"):
            register("star", ops=())(star)
    finally:
        del registry._ALGORITHMS["star"]


def test_a_world_wide_all_to_all_is_refused() -> None:
    members = tuple(range(6000))
    with pytest.raises(LimitError, match="all_to_all connects 35,994,000 pairs of ranks"):
        build_matrix(trace_of([Event("all_to_all", members, 1 << 30)]))
    row = build_matrix(trace_of([Event("all_to_all", members, 6000 * 7, observers=(5,))]))
    assert (len(row.cells), row.sum_bytes) == (5999, 5999 * 7)
