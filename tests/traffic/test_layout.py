"""Layouts: derived and explicit groups, files, refusals."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.trace import ProcessGroup
from commcanary_lab.traffic import Layout, build_matrix, parse_layout, read_layout
from tests.traffic.jobs import eight_ranks


def members(layout: Layout, kind: str) -> list[tuple[int, ...]]:
    return [g.members for g in layout.groups(kind)]


def test_the_job_of_eight() -> None:
    layout = parse_layout('gpus_per_node = 4\ntp = 4\ndp = 2\norder = ["tp", "cp", "ep", "dp", "pp"]\n')
    assert members(layout, "tp") == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert members(layout, "dp") == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert layout.kinds == ("tp", "dp")
    assert layout.groups("pp") == ()
    assert layout.world_size == 8
    groups = {g.name: g.members for g in layout.all_groups}
    assert {(g.name, g.members) for g in eight_ranks().groups} == set(groups.items())
    assert layout.group_named("DP Group 3") is not None
    assert layout.group_named("DP Group 4") is None
    assert (layout.node_of(5), layout.rail_of(5)) == (1, 1)
    assert layout.gpus_per_node is not None
    assert build_matrix(eight_ranks()).group_by_node(layout.gpus_per_node).inter_bytes == 4096 * 2**20


def test_order_says_what_varies_fastest() -> None:
    layout = Layout(tp=2, pp=2, dp=2, order=("tp", "cp", "ep", "pp", "dp"))
    assert members(layout, "pp") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert members(layout, "dp") == [(0, 4), (1, 5), (2, 6), (3, 7)]
    default = Layout(tp=2, pp=2, dp=2)
    assert members(default, "dp") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert members(default, "pp") == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_expert_groups_divide_dp_and_cp() -> None:
    assert members(Layout(dp=8, ep=4), "ep") == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert members(Layout(tp=2, dp=4, ep=2), "ep") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert members(Layout(cp=2, dp=2, ep=4), "ep") == [(0, 1, 2, 3)]
    slow = Layout(dp=8, ep=4, order=("tp", "cp", "dp", "ep", "pp"))
    assert members(slow, "ep") == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert Layout(dp=8, ep=4).world_size == 8


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, pp, cp, dp = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    ep = draw(st.sampled_from([n for n in range(1, cp * dp + 1) if cp * dp % n == 0]))
    return Layout(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp, order=tuple(draw(st.permutations(("tp", "cp", "ep", "dp", "pp")))))


@given(layouts())
def test_groups_of_a_kind_partition_the_ranks(layout: Layout) -> None:
    assert layout.world_size == layout.tp * layout.pp * layout.cp * layout.dp
    for kind in ("tp", "pp", "cp", "ep", "dp"):
        size, rows = getattr(layout, kind), members(layout, kind)
        if size == 1:
            assert rows == []
            continue
        assert sorted(r for row in rows for r in row) == list(range(layout.world_size))
        assert all(len(row) == size and list(row) == sorted(row) for row in rows)
        assert rows == sorted(rows)
        if kind != "ep":  # neighbours are one stride apart: the product of the sizes that vary faster
            faster = [other for other in layout.order[: layout.order.index(kind)] if other != "ep"]
            stride = math.prod(getattr(layout, other) for other in faster)
            assert all(b - a == stride for row in rows for a, b in itertools.pairwise(row))


@given(layouts())
def test_expert_groups_lie_inside_dp_and_cp(layout: Layout) -> None:
    def position(rank: int, kind: str) -> int:
        return next((row.index(rank) for row in members(layout, kind) if rank in row), 0)

    for row in members(layout, "ep"):
        assert len({(position(r, "tp"), position(r, "pp")) for r in row}) == 1


def test_explicit_groups() -> None:
    layout = parse_layout('[groups]\n"TP Group 0" = [3, 2]\n"TP Group 1" = [0, 1]\n"0xa000" = [0, 2]\n')
    assert [(g.name, g.members) for g in layout.groups("tp")] == [("TP Group 1", (0, 1)), ("TP Group 0", (2, 3))]
    assert [(g.name, g.members) for g in layout.groups("other")] == [("0xa000", (0, 2))]
    assert layout.ranks == (0, 1, 2, 3)
    assert layout.group_named("0xa000") == ProcessGroup("0xa000", (0, 2))
    assert layout.group_named("TP Group 0") == ProcessGroup("TP Group 0", (2, 3))


def test_explicit_expert_groups_beside_sizes() -> None:
    layout = parse_layout('tp = 2\ndp = 4\n[groups]\n"EP Group 0" = [0, 7]\n')
    assert members(layout, "ep") == [(0, 7)]
    assert len(layout.groups("dp")) == 2


def test_round_trip(tmp_path: Path) -> None:
    for layout in (Layout(tp=4, dp=2, gpus_per_node=4), Layout(dp=6, ep=3, order=("pp", "dp", "ep", "cp", "tp")), Layout(),
                   Layout(explicit={'a "quoted" \\ name': (1, 2), "EP Group 0": (0, 3)}, tp=2, gpus_per_node=8)):
        path = tmp_path / "layout.toml"
        path.write_text(layout.to_toml())
        assert read_layout(path) == layout


@pytest.mark.parametrize(("text", "message"), [
    ("tp = 0", "f.toml: tp: 0 is not a size; give a whole number >= 1"),
    ('tp = "4"', "f.toml: tp: '4' is not a whole number"),
    ("tp = true", "f.toml: tp: True is not a whole number"),
    ("gpus_per_nod = 4", "f.toml: gpus_per_nod: unknown key; did you mean gpus_per_node?"),
    ("zz = 4", "f.toml: zz: unknown key; known are tp, cp, ep, dp, pp, gpus_per_node, order, groups"),
    ("tp = ", "f.toml: not TOML: "),
    ("dp = 4\nep = 3", "f.toml: ep: ep groups are sub-groups of the dp x cp = 4 ranks, which 3 does not divide"),
    ('order = ["tp", "xp"]', "f.toml: order: ['tp', 'xp', "),
    ('dp = 2\norder = ["tp", "pp"]', "f.toml: order: "),
    ("order = 3", "f.toml: order: 3 is not a list of kinds"),
    ("groups = 3", "f.toml: groups: not a table of rank lists"),
    ('[groups]\n"a" = []', "f.toml: groups.a: the group has no rank"),
    ('[groups]\n"a" = [1, 1]', "f.toml: groups.a: a rank occurs more than once"),
    ('[groups]\n"a" = [-1, 1]', "f.toml: groups.a: -1 is not a rank"),
    ('tp = 2\n[groups]\n"TP Group 0" = [0, 1]', "groups.TP Group 0: tp groups follow from tp = 2 already; give either tp or its groups"),
])
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layout(text, "f.toml")
    assert message in str(caught.value)


def test_every_problem_is_listed() -> None:
    with pytest.raises(InputError) as caught:
        parse_layout("tp = 0\ndp = -1\n")
    assert len(caught.value.problems) == 2


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.toml: cannot be read"):
        read_layout(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b"tp = 4 # \xe9")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_layout(tmp_path / "latin.toml")


def test_questions_without_answer() -> None:
    with pytest.raises(UsageError, match="no kind of group 'xp'"):
        Layout().groups("xp")
    with pytest.raises(UsageError, match="how many GPUs a node has"):
        Layout(tp=4).node_of(3)
