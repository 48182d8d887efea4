"""What a replay runs: the same from a canary and from its trace, lazily, and on less ranks."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.canary.grammar import Grammar, expand
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.replay.program import Program, Step, walk
from tests.replay.programs import event, everything, make_trace


@pytest.mark.parametrize("name", ["gloo4", "adversarial", "tp8_decode"])
def test_canary_and_trace_run_the_same(name: str) -> None:
    trace = getattr(lab.samples, name)()
    a, b = Program.of(lab.compile(trace)), Program.of(trace)
    left, right = list(a.calls(timing=True)), list(b.calls(timing=True))
    assert len(left) == len(right) == len(trace)
    for x, y in zip(left, right, strict=True):
        assert (x.event, x.due_ns, x.arrival_ns, x.overlap_ns) == (y.event, y.due_ns, y.arrival_ns, y.overlap_ns)
        assert a.steps[x.step] == b.steps[y.step]
    for rank in range(a.size):
        assert a.counts(rank) == b.counts(rank)
        assert a.payload(rank) == b.payload(rank)


def test_payload_is_that_of_the_trace() -> None:
    trace = lab.samples.gloo4()
    program = Program.of(trace)
    total = sum(sum(program.payload(r).values()) for r in range(4))
    assert total == lab.traffic(trace).payload_bytes


def test_splits_of_a_canary() -> None:
    trace = lab.samples.gloo4()
    program = Program.of(lab.compile(trace, records=2))
    steps = [program.steps[c.step] for c in program.calls()]
    for e, step in enumerate(steps):
        if step.op == "all_to_all_v":
            row = trace.splits.row(e).reshape(4, 10)
            assert np.array_equal(np.array(step.splits), row[:, 2:6])


counts = st.integers(1, 3)
leaves = st.tuples(st.integers(0, 5), counts)
grammars = st.recursive(
    st.lists(leaves, min_size=1, max_size=4),
    lambda inner: st.lists(leaves | st.tuples(inner, counts), min_size=1, max_size=3),
    max_leaves=6,
)


@given(grammars)
def test_walk_is_expand(nest: list) -> None:
    rules: list[list[tuple[int, int]]] = []

    def add(body: list) -> int:
        number = len(rules)
        rules.append([])
        rules[number] = [(-add(v), n) if isinstance(v, list) else (v, n) for v, n in body]
        return number

    add(nest)
    grammar = Grammar.from_rules(rules)
    assert list(walk(grammar)) == expand(grammar).tolist()


def test_a_program_of_a_billion_events_is_walked_without_being_held() -> None:
    grammar = Grammar.from_rules([[(-1, 10**6)], [(-2, 10)], [(0, 50), (1, 50)]])
    tracemalloc.start()
    assert list(islice(walk(grammar), 200)) == ([0] * 50 + [1] * 50) * 2
    assert sum(1 for _ in islice(walk(grammar), 100_000)) == 100_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_less_ranks_run_their_part() -> None:
    program = Program.of(lab.samples.gloo4(), 2)
    assert program.ranks == (0, 1)
    assert program.source_ranks == 4
    assert program.runs + sum(program.dropped.values()) == 252
    assert "restricted to the first 2 of 4 ranks" in program.notes[-1]
    kept = [s for s in program.steps if s is not None]
    assert {s.members for s in kept} == {(0, 1)}
    uneven = [s for s in kept if s.op == "all_to_all_v"]
    assert uneven[0].splits == ((8192, 11264), (13312, 16384))
    assert uneven[0].size_bytes == 29696
    calls = list(program.calls(timing=True))
    assert all(len(c.arrival_ns) in (0, 2) for c in calls)


def test_ranks_are_numbered_anew() -> None:
    program = Program.of(make_trace([event("all_reduce", (3, 7), 8), event("point_to_point", (3, 7), 4, sender=7, receiver=3)]))
    assert program.ranks == (3, 7)
    assert [(s.members, s.sender) for s in program.steps if s is not None] == [((0, 1), None), ((0, 1), 1)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (event("all_fold", (0, 1), 8), "no such collective"),
        (event("broadcast", (0, 1), 8), "without a root"),
        (event("send", (0, 1), 8, sender=0), "without sender and receiver"),
        (event("send", (0, 1), 8, sender=1, receiver=1), "to itself"),
        (event("all_to_all_v", (0, 1), 8), "splits are not all known"),
    ],
)
def test_what_cannot_run_is_refused_or_listed(wrong: dict, words: str) -> None:
    trace = make_trace([event("all_reduce", (0, 1), 8), wrong, wrong])
    with pytest.raises(RefusedError, match=words):
        Program.of(trace)
    program = Program.of(trace, skip_unsupported=True)
    assert program.runs == 1
    assert sum(program.dropped.values()) == 2
    assert words in next(iter(program.dropped))


def test_wrong_numbers_of_ranks() -> None:
    trace = make_trace([event("all_reduce", (0, 1), 8)])
    for ranks in (0, 3):
        with pytest.raises(UsageError, match="2 ranks"):
            Program.of(trace, ranks)
    with pytest.raises(RefusedError, match="nothing of the program runs"):
        Program.of(trace, 1)
    with pytest.raises(RefusedError, match="nothing to run"):
        Program.of(trace.take(np.zeros(0, np.intp)))


def test_groups_are_those_that_torch_must_make() -> None:
    program = Program.of(everything(4))
    assert program.groups == ((0, 1),)


def test_payload_of_a_step() -> None:
    step = Step("all_to_all_v", (0, 1), 24, splits=((8, 16), (0, 4)))
    assert (step.payload_bytes(0), step.payload_bytes(1), step.payload_bytes(2)) == (24, 20, 0)
