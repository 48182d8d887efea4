"""Who is in a communicator: stated, implied, propagated; never guessed where two answers fit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, RefusedError
from commcanary_lab.importers.membership import Communicator, Membership, resolve
from commcanary_lab.layout import Layout

JOB = Layout(tp=4, dp=2, gpus_per_node=4)
TP0 = Communicator("0x1", "TP Group 0", 4, 1, ((0, 0),))


def communicators(layout: Layout, *, named: bool = False, world: bool = False, seen: set[int] | None = None) -> list[Communicator]:
    """Communicators of a job whose process p is rank p; only the processes in `seen` show themselves."""
    shown = set(layout.ranks) if seen is None else seen
    groups = [(g.name, g.members) for g in layout.all_groups] + ([(None, layout.ranks)] if world else [])
    per_node = layout.gpus_per_node or layout.world_size
    return [
        Communicator(f"0x{i + 1:x}", name if named else None, len(members), len({r // per_node for r in members}),
                     tuple((position, rank) for position, rank in enumerate(members) if rank in shown))
        for i, (name, members) in enumerate(groups)
        if shown & set(members)
    ]  # fmt: skip


def truth(layout: Layout, found: list[Communicator], world: bool = False) -> dict[str, tuple[int, ...]]:
    groups = [g.members for g in layout.all_groups] + ([layout.ranks] if world else [])
    own = {f"0x{i + 1:x}": members for i, members in enumerate(groups)}
    return {c.id: own[c.id] for c in found}


def solve(found: list[Communicator], layout: Layout | None, ranks: dict[int, int] | None = None) -> Membership:
    return resolve(found, [f"host pid {i}" for i in range(1024)], layout=layout, ranks=ranks)


def members(found: list[Communicator], answer: Membership) -> dict[str, tuple[int, ...]]:
    return {c.id: m for c, m in zip(found, answer.members, strict=True)}


def test_names_in_a_layout() -> None:
    found = communicators(JOB, named=True)
    answer = solve(found, JOB)
    assert members(found, answer) == truth(JOB, found)
    assert answer.groups[0].label == "TP Group 0 (4 ranks: 0-3)"
    assert answer.notes == ("members of communicators: from the layout",)


def test_names_without_a_layout() -> None:
    found = communicators(JOB, named=True)
    answer = solve(found, None)
    assert members(found, answer) == truth(JOB, found)
    assert "tp=4, dp=2" in answer.notes[0]


def test_one_rank_of_a_named_group() -> None:
    (only,) = solve([Communicator("0x1", "TP Group 1", 4, 1, ((0, 0),))], None).members
    assert only == (4, 5, 6, 7)
    with pytest.raises(RefusedError, match="does not say which global ranks"):
        solve([Communicator("0x1", "DP Group 1", 2, 2, ((0, 0),))], None)


def test_ids_in_a_layout() -> None:
    layout = Layout(explicit={"0xa0": (0, 1), "0xB0": (2, 3), "0x123456789abcdef7": (4, 5)})
    found = [Communicator(name, None, 2, 1, ((0, i),)) for i, name in enumerate(["0xa0", "0xb0", "0x123456789abcdef"])]
    assert solve(found, layout).members == ((0, 1), (2, 3), (4, 5))


def test_a_communicator_of_all_processes_gives_the_global_ranks() -> None:
    found = communicators(JOB, world=True)
    for layout in (None, JOB):
        assert members(found, solve(found, layout)) == truth(JOB, found, world=True)
    assert "taken as the whole job" in solve(found, None).notes[0]


def test_a_lone_communicator_is_the_job() -> None:
    answer = solve([Communicator("0x1", None, 3, 1, ((1, 0),))], None)
    assert answer.members == ((0, 1, 2),)
    assert "taken as the whole job" in answer.notes[0]


def test_positions_in_groups_across_nodes_tell_the_nodes_apart() -> None:
    found = communicators(JOB)
    assert members(found, solve(found, JOB)) == truth(JOB, found)


def test_two_nodes_that_could_be_exchanged_are_refused_with_both_assignments() -> None:
    found = communicators(JOB)[:2]
    with pytest.raises(RefusedError) as e:
        solve(found, JOB)
    text = str(e.value)
    assert "communicator 0x1 (4 ranks, 1 node), seen in host pid 0, host pid 1, host pid 2, host pid 3, could be " in text
    assert "TP Group 0 (0-3) or TP Group 1 (4-7)" in text
    assert "--layout FILE" in text


def test_one_name_decides_about_the_rest() -> None:
    found = communicators(JOB)[:2]
    first = [Communicator("0x1", "TP Group 0", 4, 1, found[0].seen), *found[1:]]
    assert members(first, solve(first, JOB)) == truth(JOB, first)


def test_one_known_rank_decides_about_the_rest() -> None:
    found = communicators(JOB)[:2]
    assert members(found, solve(found, JOB, {5: 5})) == truth(JOB, found)
    everybody = {r: r for r in range(8)}
    assert members(found, solve(found, None, everybody)) == truth(JOB, found)


def test_node_span_decides() -> None:
    layout = Layout(gpus_per_node=4, explicit={"near": (0, 1), "far": (2, 6)})
    found = [Communicator("0x1", None, 2, 2, ((0, 0),)), Communicator("0x2", None, 2, 1, ((0, 1),))]
    assert solve(found, layout).members == ((2, 6), (0, 1))


def test_members_in_another_order_than_the_global_ranks() -> None:
    """Positions are those of the communicator, wherever its ranks are globally."""
    found = [
        Communicator("0x1", None, 4, 1, tuple((i, i) for i in range(4))),
        Communicator("0x2", None, 2, 1, ((0, 3), (1, 1))),
    ]
    answer = solve(found, None)
    assert answer.members == ((0, 1, 2, 3), (3, 1))
    assert answer.groups[1].members == (1, 3)


def test_a_process_with_several_ranks() -> None:
    """One process drives four GPUs: it does not say which of its ranks is meant, the names do."""
    found = [Communicator(f"0x{i}", f"TP Group {i}", 4, 1, tuple((p, i) for p in range(4))) for i in range(2)]
    found += [Communicator(f"0xd{i}", f"DP Group {i}", 2, 2, ((0, 0), (1, 1))) for i in range(4)]
    answer = solve(found, JOB)
    assert answer.members[:2] == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert answer.members[2:] == ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([Communicator("0x1", "TP Group 0", 8, 1, ((0, 0),))], "is TP Group 0 (4 ranks: 0-3) in the layout"),
        ([Communicator("0x1", None, 3, 1, ((0, 0),))], "is no group of the layout"),
        ([Communicator("0x1", None, 4, 2, ((0, 0),))], "is no group of the layout"),
        (
            [Communicator("0x1", "TP Group 0", 4, 1, ((0, 0),)), Communicator("0x2", "DP Group 1", 2, 2, ((0, 0),))],
            "both rank 0 and rank 1",
        ),
        ([Communicator("0x1", "TP Group 0", 4, 1, ((0, 0),)), Communicator("0x2", "TP Group 0", 4, 1, ((0, 1),))], "would both be rank 0"),
    ],
    ids=["size", "no group", "span", "process twice", "rank twice"],
)
def test_a_layout_of_another_job_is_refused(found: list[Communicator], says: str) -> None:
    with pytest.raises(InputError) as e:
        solve(found, JOB)
    assert says in str(e.value)


def test_large_symmetric_jobs_are_refused_soon() -> None:
    layout = Layout(tp=8, dp=64, gpus_per_node=8)
    with pytest.raises(RefusedError, match="could be TP Group 0"):
        solve([c for c in communicators(layout) if c.size == 8], layout)


@given(seed=st.integers(0, 1 << 30))
def test_what_is_found_is_true_or_it_is_refused(seed: int) -> None:
    """Processes, names and layouts of random jobs: an answer is the truth."""
    rng = random.Random(seed)
    layout = Layout(tp=rng.choice([1, 2, 4]), dp=rng.choice([1, 2, 3]), pp=rng.choice([1, 2]), gpus_per_node=rng.choice([None, 2, 4]))
    world = rng.random() < 0.5
    seen = set(rng.sample(layout.ranks, rng.randint(1, layout.world_size)))
    found = communicators(layout, world=world, seen=seen)
    stated = {g.members: g.name for g in layout.all_groups}
    named = [
        Communicator(c.id, stated.get(truth(layout, found, world)[c.id]) if rng.random() < 0.3 else None, c.size, c.nodes, c.seen)
        for c in found
    ]
    rng.shuffle(named)
    try:
        answer = solve(named, layout)
    except RefusedError:
        return
    assert members(named, answer) == truth(layout, named, world)


@given(seed=st.integers(0, 1 << 30))
def test_names_and_a_world_make_any_job_clear(seed: int) -> None:
    rng = random.Random(seed)
    layout = Layout(tp=rng.choice([1, 4]), dp=3, pp=rng.choice([1, 2]), gpus_per_node=2)  # sizes that tell the kinds apart
    seen = set(rng.sample(layout.ranks, rng.randint(1, layout.world_size)))
    found = communicators(layout, world=True, seen=seen)
    assert members(found, solve(found, layout)) == truth(layout, found, world=True)
