"""Which groups look like which parallelism: right where the evidence is there, never sure where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.errors import InputError, RefusedError, UsageError
from commcanary_lab.layout import Layout, parse_layout, read_layout
from commcanary_lab.trace import Trace
from commcanary_lab.traffic import infer_layout
from tests.traffic.jobs import MIB, Event, eight_ranks, trace_of


def job(layout: Layout, *, named: bool, layers: int = 6, messages_as_pairs: bool = False) -> Trace:
    """Training steps of a job of this layout: what each kind of group does there."""
    events = []

    def name(group: object) -> str | None:
        return group.name if named else None  # type: ignore[attr-defined]

    for g in layout.groups("tp"):
        events += [Event("all_reduce", g.members, 8 * MIB, name(g))] * 4 * layers
    for g in layout.groups("ep"):
        events += [Event("all_to_all", g.members, 4 * MIB, name(g))] * 2 * layers
    for g in layout.groups("pp"):
        for pair in zip(g.members, g.members[1:], strict=False):
            ends = pair if messages_as_pairs else g.members
            events += [Event("send", ends, 2 * MIB, name(g), sender=s, receiver=r) for s, r in (pair, pair[::-1])]
    for g in layout.groups("dp"):
        events += [Event("all_reduce", g.members, 256 * MIB, name(g))]
    return trace_of(events)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, pp, dp = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 3, 4])), draw(st.sampled_from([1, 2, 3, 4, 6]))
    ep = draw(st.sampled_from([e for e in (1, 2, 3) if dp % e == 0 and (e < dp or e == 1)]))
    return Layout(tp=tp, pp=pp, dp=dp, ep=ep)


@settings(max_examples=40, deadline=None)
@given(layouts().filter(lambda x: x.world_size > 1), st.booleans())
def test_named_groups_give_the_layout(layout: Layout, pairs: bool) -> None:
    found = infer_layout(job(layout, named=True, messages_as_pairs=pairs))
    kinds = {row.kind for row in found.rows}
    assert kinds == set(layout.kinds)
    assert {row.confidence for row in found.rows} == {"stated"}
    for kind in layout.kinds:
        if kind != "pp" or not pairs:
            assert {g.members for g in found.layout.groups(kind)} == {g.members for g in layout.groups(kind)}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 3, 4]), st.sampled_from([2, 3, 4]), st.booleans())
def test_unnamed_groups_of_a_whole_job(tp: int, pp: int, dp: int, pairs: bool) -> None:
    layout = Layout(tp=tp, pp=pp, dp=dp)
    found = infer_layout(job(layout, named=False, messages_as_pairs=pairs), gpus_per_node=tp)
    by_kind = {row.kind: row for row in found.rows}
    assert set(by_kind) == set(layout.kinds)
    assert {row.confidence for row in found.rows} == {"likely"}  # never stated: nobody said so
    for kind in layout.kinds:
        assert {g.members for g in by_kind[kind].groups} == {g.members for g in layout.groups(kind)}
    assert (found.layout.tp, found.layout.pp, found.layout.dp, found.layout.gpus_per_node) == (tp, pp, dp, tp)


def test_expert_groups_exchange() -> None:
    layout = Layout(tp=2, dp=8, ep=4)
    found = infer_layout(job(layout, named=False), gpus_per_node=8)
    assert {row.kind: row.confidence for row in found.rows} == {"tp": "likely", "ep": "likely", "dp": "likely"}
    assert (found.layout.tp, found.layout.dp, found.layout.ep) == (2, 8, 4)
    assert any("exchanges with every member (all_to_all x 12)" in x for row in found.rows for x in row.evidence)
    messages = [Event("send", (0, 1, 2, 3), 64, sender=i, receiver=j) for i in range(4) for j in range(4) if i != j]
    assert [(row.kind, row.confidence) for row in infer_layout(trace_of(messages)).rows] == [("ep", "likely")]


def test_the_job_of_eight_without_names() -> None:
    trace = eight_ranks()
    blank = trace_of([Event("all_reduce", trace.groups[g].members, int(b)) for g, b in zip(trace.group, trace.size_bytes, strict=True)])
    found = infer_layout(blank, gpus_per_node=4)
    assert found.layout == parse_layout("gpus_per_node = 4\ntp = 4\ndp = 2")
    assert found.notes == ()


@pytest.mark.parametrize("k", [2, 3, 8, 32])
def test_one_family_alone_is_never_sure(k: int) -> None:
    found = infer_layout(trace_of([Event("all_reduce", tuple(range(k)), MIB)] * 50), gpus_per_node=8)
    (row,) = found.rows
    assert row.confidence in ("possible", "unknown")
    assert row.confidence == "unknown" or "there is no other group to compare with" in row.evidence
    assert found.layout.kinds == ("other",)  # under its own name: not called tensor parallelism
    assert "not clear" in found.notes[0]


def test_groups_that_fit_two_kinds_name_both() -> None:
    events = [Event("all_reduce", (0, 1), MIB)] * 4 + [Event("all_reduce", (2, 3), MIB)] * 4
    events += [Event("all_reduce", (0, 2), MIB)] * 4 + [Event("all_reduce", (1, 3), MIB)] * 4
    found = infer_layout(trace_of(events))
    assert all(row.confidence in ("possible", "unknown") for row in found.rows)
    assert found.layout.kinds == ("other",)


def test_the_world_group() -> None:
    found = infer_layout(trace_of([*[Event("all_reduce", tuple(range(8)), 64)] * 3, *[Event("all_reduce", (0, 1, 2, 3), 9 * MIB)] * 30,
                                   *[Event("all_reduce", (4, 5, 6, 7), 9 * MIB)] * 30]))  # fmt: skip
    assert {row.kind for row in found.rows} == {"world", "tp"}


def test_recorded_job() -> None:
    found = infer_layout(lab.samples.gloo4())
    assert {(row.kind, row.confidence) for row in found.rows[:2]} == {("tp", "stated"), ("dp", "stated")}
    assert (found.layout.tp, found.layout.dp) == (2, 2)


def test_groups_that_form_no_grid_are_listed(tmp_path: Path) -> None:
    events = [
        Event("all_reduce", (0, 1, 5), MIB, "tp"),
        Event("all_reduce", (2, 3), MIB, "tp"),
        Event("all_reduce", (4, 6, 7), MIB, 'a "b"'),
    ]
    found = infer_layout(trace_of(events))
    assert found.layout.explicit == {'a "b"': (4, 6, 7), "TP Group 0": (0, 1, 5), "TP Group 1": (2, 3)}
    found.write(tmp_path / "layout.toml")
    assert read_layout(tmp_path / "layout.toml") == found.layout
    assert (tmp_path / "layout.toml").read_text().startswith("# Inferred from a trace")
    assert "listed one by one" in found.to_toml()
    assert "<table" in found._repr_html_()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["all_reduce", "all_to_all", "broadcast"]), st.sets(st.integers(0, 30), min_size=2, max_size=6),
                          st.sampled_from([None, "tp", "TP Group 3", "0xa0", "a\nb", "DP Group 1"])), min_size=1, max_size=8))  # fmt: skip
def test_the_file_always_reads_back(drawn: list[tuple[str, set[int], str | None]]) -> None:
    found = infer_layout(trace_of([Event(op, tuple(sorted(members)), 64, name) for op, members, name in drawn]))
    assert parse_layout(found.to_toml()) == found.layout
    assert {g.members for row in found.rows for g in row.groups} == {tuple(sorted(m)) for _, m, _ in drawn}
    listed = {g.members for g in found.layout.all_groups}
    assert {g.members for row in found.rows if row.kind != "world" for g in row.groups} <= listed


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no event has a group of more than one rank"):
        infer_layout(trace_of([Event("all_reduce", (0,), 8)]))
    with pytest.raises(UsageError, match="0 GPUs per node"):
        infer_layout(eight_ranks(), gpus_per_node=0)
    with pytest.raises(InputError, match="cannot be written"):
        infer_layout(eight_ranks()).write(tmp_path / "no" / "layout.toml")
