"""Invariants of every registered algorithm, and what is not attributed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, LimitError, UsageError
from commcanary_lab.trace import ImportCoverage, UnsizedRow
from commcanary_lab.traffic import Algorithm, Calls, algorithms, build_matrix, register
from commcanary_lab.traffic import attribution as registry
from tests.traffic.jobs import MIB, Event, trace_of

#: Sum of the contributions of one event, as a function of k and B.
SUMS: dict[str, Callable[[int, int], float]] = {
    "all_reduce": lambda k, b: 2 * (k - 1) * b,
    "all_gather": lambda k, b: (k - 1) * b,
    "reduce_scatter": lambda k, b: (k - 1) * b,
    "all_to_all": lambda k, b: (k - 1) * b,
    "broadcast": lambda k, b: (k - 1) * b,
    "reduce": lambda k, b: (k - 1) * b,
    "send": lambda k, b: b if k > 1 else 0,
    "recv": lambda k, b: b if k > 1 else 0,
    "point_to_point": lambda k, b: b if k > 1 else 0,
}

CASES = [(name, op) for name, a in sorted(algorithms().items()) for op in sorted(a.ops)]

members_of_a_group = st.sets(st.integers(0, 60), min_size=1, max_size=9).map(lambda s: tuple(sorted(s)))
sizes = st.integers(0, 1 << 40)


def event_of(op: str, members: tuple[int, ...], size: int, data: st.DataObject, **more: object) -> Event:
    if SUMS[op](2, 1) == 1 and op in ("send", "recv", "point_to_point"):
        src = data.draw(st.sampled_from(members))
        others = [r for r in members if r != src] or [src]
        return Event(op, members, size, sender=src, receiver=data.draw(st.sampled_from(others)), **more)  # type: ignore[arg-type]
    root = data.draw(st.sampled_from(members)) if op in ("broadcast", "reduce") else None
    return Event(op, members, size, root=root, **more)  # type: ignore[arg-type]


def test_every_operation_has_a_sum() -> None:
    assert {op for _, op in CASES} == set(SUMS)


@pytest.mark.parametrize(("name", "op"), CASES)
@settings(max_examples=40, deadline=None)
@given(members=members_of_a_group, size=sizes, data=st.data())
def test_sum_and_diagonal(name: str, op: str, members: tuple[int, ...], size: int, data: st.DataObject) -> None:
    m = build_matrix(trace_of([event_of(op, members, size, data)]), algorithm={op: name})
    assert m.sum_bytes == pytest.approx(SUMS[op](len(members), size), rel=1e-12)
    assert not np.any(np.diagonal(m.dense()))
    assert m.unattributed_bytes == 0
    if len(members) == 1:
        assert m.links() == []


@pytest.mark.parametrize(("name", "op"), CASES)
@settings(max_examples=25, deadline=None)
@given(members=members_of_a_group, size=sizes, data=st.data())
def test_relabelling_ranks_permutes(name: str, op: str, members: tuple[int, ...], size: int, data: st.DataObject) -> None:
    event = event_of(op, members, size, data)
    new = data.draw(st.permutations(range(61)))
    order = data.draw(st.permutations(members))

    def label(rank: int | None) -> int | None:
        return None if rank is None else new[rank]

    renamed = Event(op, tuple(new[r] for r in members), size, root=label(event.root), sender=label(event.sender),
                    receiver=label(event.receiver))
    a = build_matrix(trace_of([event]), algorithm={op: name}, ring_order=order)
    b = build_matrix(trace_of([renamed]), algorithm={op: name}, ring_order=[new[r] for r in order])
    permuted = b.dense()[np.ix_(*[np.searchsorted(b.ranks, [new[r] for r in a.ranks])] * 2)]
    assert np.array_equal(permuted, a.dense())


@pytest.mark.parametrize(("name", "op"), CASES)
@settings(max_examples=25, deadline=None)
@given(members=members_of_a_group, events=st.lists(sizes, min_size=1, max_size=4), data=st.data())
def test_single_observers_sum_to_all(name: str, op: str, members: tuple[int, ...], events: list[int], data: st.DataObject) -> None:
    drawn = [event_of(op, members, size, data) for size in events]
    whole = build_matrix(trace_of(drawn), algorithm={op: name})
    total = build_matrix(trace_of([]))
    for rank in data.draw(st.permutations(members)):
        if op in ("send", "recv", "point_to_point"):  # either side alone tells everything
            own = [replace(e, observers=(rank,)) for e in drawn if e.sender == rank]
        else:
            own = [replace(e, observers=(rank,)) for e in drawn]
        total = total + build_matrix(trace_of(own), algorithm={op: name})
    assert total.equals(whole)


@settings(max_examples=50, deadline=None)
@given(members=members_of_a_group, size=sizes, data=st.data())
def test_all_reduce_is_reduce_scatter_and_all_gather(members: tuple[int, ...], size: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(members))
    one = build_matrix(trace_of([Event("all_reduce", members, size)]), ring_order=order)
    two = build_matrix(trace_of([Event("reduce_scatter", members, size), Event("all_gather", members, size)]), ring_order=order)
    assert one.equals(two)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(SUMS)), members_of_a_group, sizes), max_size=8), st.data())
def test_order_of_events_does_not_matter(events: list[tuple[str, tuple[int, ...], int]], data: st.DataObject) -> None:
    drawn = [event_of(op, members, size, data) for op, members, size in events]
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


@pytest.mark.parametrize(("order", "message"), [
    ([0, 1], "lacks rank 2 of a"),
    ([0, 1, 2, 1], "rank 1 more than once"),
    ({"b": [0, 1, 2]}, "a group 'b' that the trace does not have"),
    ({"a": [0, 1]}, "lacks rank 2 of a"),
])
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
    m = build_matrix(trace_of([Event("broadcast", (0, 1, 2), 10, root=0), Event("broadcast", (0, 1, 2), 7, root=1),
                               Event("broadcast", (0, 1, 2), 5, root=0)]))
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
    both = [Event("send", (0, 1), 2000, sender=0, receiver=1), Event("recv", (0, 1), 2000, sender=0, receiver=1),
            Event("send", (0, 1), 1000, sender=1, receiver=0), Event("recv", (0, 1), 1000, sender=1, receiver=0)]
    assert build_matrix(trace_of(both)).dense().tolist() == [[0, 2000], [1000, 0]]
    assert build_matrix(trace_of(both[::-1])).dense().tolist() == [[0, 2000], [1000, 0]]
    # a second recv of that size has no send beside it: it is a message of its own
    assert build_matrix(trace_of([*both, both[1]])).dense().tolist() == [[0, 4000], [1000, 0]]
    assert build_matrix(trace_of([both[0], both[3]])).dense().tolist() == [[0, 2000], [1000, 0]]
    assert build_matrix(trace_of([both[0], both[0], both[1]])).value(0, 1) == 4000


def test_what_cannot_be_attributed() -> None:
    m = build_matrix(trace_of([
        Event("broadcast", (0, 1, 2), 100), Event("gather", (0, 1), 30), Event("gather", (0, 1), 30), Event("send", (0, 1), 5),
        Event("all_to_all_v", (0, 1), 9), Event("scatter", (0,), 1000), Event("barrier", (0, 1), 0), Event("all_reduce", (0, 1), 8),
    ]))
    assert m.sum_bytes == 16
    assert m.unattributed_bytes == 300 + 120 + 10 + 18
    assert {op: x.unattributed_bytes for op, x in m.by("op").items() if x.unattributed_bytes} == {
        "all_to_all_v": 18, "broadcast": 300, "gather": 120, "send": 10}
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
