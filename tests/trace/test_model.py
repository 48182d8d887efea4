"""The Trace itself: selection, filters, the pandas view, immutability, equality."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.errors import TimingError, UsageError
from commcanary_lab.trace import Coded, Column, GroupTable, ImportCoverage, ProcessGroup, Ragged, Trace
from commcanary_lab.trace.timing import check_timing, clock_ns, gaps_ns, in_time_order, timing_mode
from tests.strategies import traces

GROUPS = (ProcessGroup("tp", (0, 1)), ProcessGroup(None, (0, 1, 2, 3)))


def build(n: int = 4, **columns: Any) -> Trace:
    base = {
        "op": Coded.from_optional(["all_reduce", "all_gather", "all_reduce", "broadcast"][:n]), "groups": GROUPS,
        "phase": Coded.from_optional(["prefill", "decode", None, "decode"][:n]), "group": np.array([0, 1, 0, 1], np.int32)[:n],
        "size_bytes": np.array([8, 16, 32, 0])[:n],
    }  # fmt: skip
    return Trace.build(n, **{**base, **columns})


# -- selection --------------------------------------------------------------------------------------------------------


def test_filter_by_names() -> None:
    t = build()
    assert t.filter(op="all_reduce").size_bytes.tolist() == [8, 32]
    assert t.filter(op=["all_reduce", "broadcast"]).size_bytes.tolist() == [8, 32, 0]
    assert t.filter(group="tp").size_bytes.tolist() == [8, 32]
    assert t.filter(group="unnamed").size_bytes.tolist() == [16, 0]
    assert t.filter(phase="decode").size_bytes.tolist() == [16, 0]
    assert t.filter(op="all_reduce", phase="prefill", group="tp").size_bytes.tolist() == [8]
    assert t.filter().equals(t)


@pytest.mark.parametrize(
    ("kind", "known"), [("op", "all_gather, all_reduce, broadcast"), ("group", "tp, unnamed"), ("phase", "decode, prefill")]
)
def test_filter_names_what_it_does_not_know(kind: str, known: str) -> None:
    with pytest.raises(UsageError, match=f"no {kind} named 'nope'; it has: {known}"):
        build().filter(**{kind: "nope"})


def test_filter_by_window_is_half_open() -> None:
    t = build(start_ns=Column(np.array([5000, 6000, 7000, 8000])))
    assert t.filter(window=(1, 3)).size_bytes.tolist() == [16, 32]
    assert len(t.filter(window=(0, 0))) == 0


def test_filtered_gaps_are_derived_anew_from_starts() -> None:
    t = build(start_ns=Column(np.array([0, 10, 30, 60])), gap_ns=Column(np.array([0, 10, 20, 30])))
    some = t.filter(op="all_reduce")
    assert gaps_ns(some).tolist() == [0, 30]
    check_timing(some)


def test_gaps_govern_a_selection_of_a_mixed_trace() -> None:
    t = build(start_ns=Column.from_optional([0, 10, 30, None]), gap_ns=Column(np.array([0, 10, 20, 30])))
    some = t.take(np.array([0, 2, 3]))
    assert gaps_ns(some).tolist() == [0, 20, 30]
    check_timing(some)


def test_unsorted_starts_are_sorted_without_losing_a_contradiction() -> None:
    t = build(start_ns=Column(np.array([10, 0, 30, 60])), gap_ns=Column.from_optional([99, None, None, None]))
    ordered = in_time_order(t)
    assert ordered.size_bytes.tolist() == [16, 8, 32, 0]
    with pytest.raises(TimingError):
        check_timing(ordered)


@given(traces(min_events=1), st.data())
def test_take_agrees_with_python_indexing(trace: Trace, data: st.DataObject) -> None:
    n = len(trace)
    index = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=6)), np.intp)
    some = trace.take(index)
    assert some.size_bytes.tolist() == [int(trace.size_bytes[i]) for i in index]
    assert some.op.to_list() == [trace.op.text(i) for i in index]
    assert [some.arrival_ns.row(j).tolist() for j in range(len(index))] == [trace.arrival_ns.row(i).tolist() for i in index]
    assert [some.observers_of(j) for j in range(len(index))] == [trace.observers_of(i) for i in index]
    assert [some.id(j) or None for j in range(len(index))] == [trace.id(i) or None for i in index]
    assert some.overlap_ns.mask.tolist() == trace.overlap_ns.mask[index].tolist()


@given(traces(min_events=1))
def test_a_contiguous_part_keeps_every_column(trace: Trace) -> None:
    half = len(trace) // 2
    assert trace.take(slice(half, None)).equals(trace.rows(np.arange(half, len(trace))))
    assert trace.take(slice(0, None)).equals(trace)


@given(traces())
def test_timing_modes_and_clocks(trace: Trace) -> None:
    gaps, mode = gaps_ns(trace), timing_mode(trace)
    assert len(gaps) == len(clock_ns(trace)) == len(trace)
    assert (gaps >= 0).all()
    assert np.array_equal(np.diff(clock_ns(trace)), gaps[1:])
    if mode == "start" and len(trace) > 1:
        assert np.array_equal(gaps[1:], np.diff(trace.start_ns.values))
    if mode == "gap":
        expected = np.where(trace.gap_ns.mask, trace.gap_ns.values, trace.compute_before_ns.filled(0))
        assert np.array_equal(gaps, expected)
    if mode == "none":
        assert not gaps.any()


def test_the_first_gap_of_a_timestamped_trace_is_its_own() -> None:
    t = build(start_ns=Column(np.array([50, 60, 70, 80])), gap_ns=Column.from_optional([7, None, None, None]))
    assert gaps_ns(t).tolist() == [7, 10, 10, 10]
    assert clock_ns(t).tolist() == [0, 10, 20, 30]


# -- the pandas view --------------------------------------------------------------------------------------------------


def test_df_has_units_in_its_names_and_missing_values_where_unknown() -> None:
    t = build(
        overlap_ns=Column.from_optional([2500, None, 0, 1]), arrival_ns=Ragged.from_rows([[0, 3000], [], [], [4000]]),
        arrival_known=np.array([True, False, True, True]), root=Column.from_optional([None, None, None, 3]),
        duration_ns=Ragged.from_rows([[9000, 12000], [], [], []]), gap_ns=Column.from_optional([1000, 2000, 3000, 4000]),
        ids=Ragged.from_rows([b"a", b"", b"c", "ü".encode()], np.uint8),
    )  # fmt: skip
    df = t.df
    assert df.columns[:3].tolist() == ["id", "time_us", "gap_us"]
    assert {"size_bytes", "skew_us", "overlap_us", "duration_us", "compute_before_us", "observed_exposed_us"} <= set(df.columns)
    assert df["time_us"].tolist() == [0, 2, 5, 9]
    assert df["overlap_us"].fillna(-1).tolist() == [2.5, -1, 0, 0.001]
    assert df["skew_us"].fillna(-1).tolist() == [3, -1, 0, 4]
    assert df["duration_us"].fillna(-1).tolist() == [12, -1, -1, -1]
    assert df["root"].isna().tolist() == [True, True, True, False]
    assert df["root"].dtype == "Int64"
    assert df["group"].isna().tolist() == [False, True, False, True]
    assert df["group_size"].tolist() == [2, 4, 2, 4]
    assert df["phase"].isna().sum() == 1
    assert df["id"].tolist() == ["a", "", "c", "ü"]


@given(traces())
def test_any_trace_has_a_df(trace: Trace) -> None:
    df = trace.df
    assert len(df) == len(trace)
    assert df["size_bytes"].tolist() == trace.size_bytes.tolist()
    assert int(df["overlap_us"].isna().sum()) == trace.unknown_fields.get("overlap_us", 0)
    assert int(df["skew_us"].isna().sum()) == trace.unknown_fields.get("skew_us", 0)


def test_importing_the_library_loads_neither_pandas_nor_anything_optional() -> None:
    heavy = ["pandas", "pyarrow", "jsonschema", "panel", "holoviews", "bokeh", "datashader", "torch", "dask", "matplotlib"]
    code = (
        "import sys, commcanary_lab, commcanary_lab.trace, commcanary_lab.trace.json_v1, commcanary_lab.simulate.report, "
        f"commcanary_lab.canary.compile, commcanary_lab.verify.run; print([m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# -- immutability and equality ----------------------------------------------------------------------------------------


@given(traces(min_events=1))
def test_nothing_can_be_changed(trace: Trace) -> None:
    with pytest.raises(FrozenInstanceError):
        trace.size_bytes = np.zeros(1)  # type: ignore[misc]
    for f in fields(trace):
        value = getattr(trace, f.name)
        arrays = [value] if isinstance(value, np.ndarray) else [getattr(value, a, None) for a in ("values", "known", "codes", "pointers")]
        for array in arrays:
            if isinstance(array, np.ndarray) and array.size:
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = array[0]


def test_a_trace_does_not_freeze_the_arrays_it_was_built_from() -> None:
    sizes = np.array([8, 16, 32, 0])
    build(size_bytes=sizes)
    sizes[0] = 9


@given(traces(min_events=1), st.data())
def test_any_change_of_a_column_is_seen(trace: Trace, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(trace) - 1))
    sizes = trace.size_bytes.copy()
    sizes[row] ^= 1
    assert trace.first_difference(replace(trace, size_bytes=sizes)) == "size_bytes"
    known = trace.overlap_ns.mask.copy()
    known[row] ^= True
    assert trace.first_difference(replace(trace, overlap_ns=Column(trace.overlap_ns.filled(0), known))) == "overlap_ns"
    assert trace.first_difference(trace.with_notes("a new note")) == "notes"
    assert trace.first_difference(trace.with_notes("a new note"), ignore=["notes"]) is None
    assert trace.first_difference(trace.take(slice(0, row))) == "event count"


def test_equality_looks_through_codes_of_text_and_groups() -> None:
    a = build()
    b = build(
        op=Coded(np.array([2, 0, 2, 1], np.int32), ("all_gather", "broadcast", "all_reduce", "unused")),
        group=np.array([2, 0, 2, 0], np.int32), groups=(GROUPS[1], ProcessGroup("x", (9,)), GROUPS[0]),
    )  # fmt: skip
    assert a.equals(b)
    assert a.first_difference(replace(b, group=np.array([2, 0, 2, 1], np.int32))) == "group"
    assert a.first_difference(replace(a, observers=np.array([0, -1, -1, -1], np.int32), rank_sets=((0,),))) == "observers"


@given(traces())
def test_copies_and_pickles_are_equal(trace: Trace) -> None:
    assert pickle.loads(pickle.dumps(trace)).equals(trace)
    assert copy.deepcopy(trace).equals(trace)


# -- the parts --------------------------------------------------------------------------------------------------------


def test_groups() -> None:
    table = GroupTable()
    assert [table.code("a", (3, 1)), table.code("a", (1, 3)), table.code(None, (1, 3))] == [0, 0, 1]
    assert table.groups == (ProcessGroup("a", (1, 3)), ProcessGroup(None, (1, 3)))
    assert ProcessGroup("a", (1, 3)).label == "a (2 ranks: 1,3)"
    assert ProcessGroup(None, tuple(range(0, 20, 2))).label == "unnamed (10 ranks: 0,2,4,6,8,10,...)"
    assert ProcessGroup("w", (5,)).label == "w (1 rank: 5)"
    assert ProcessGroup("a", (1, 3)).position(3) == 1


def test_import_coverage_adds_up() -> None:
    a = ImportCoverage(3, 2, {"wait": 1}, (1,), ("a",))
    b = ImportCoverage(5, 3, {"wait": 1, "torn": 1}, (0,), ("b",))
    assert a + b == ImportCoverage(8, 5, {"wait": 2, "torn": 1}, (0, 1), ("a", "b"))
    assert ImportCoverage().fraction == 1.0


@given(st.lists(st.none() | st.integers(-5, 5), max_size=8))
def test_columns(items: list[int | None]) -> None:
    c = Column.from_optional(items)
    assert [v if k else None for v, k in zip(c.values.tolist(), c.mask.tolist(), strict=True)] == items
    assert (c.known_count, c.all_known) == (len(items) - items.count(None), None not in items)
    assert c.none_known == (bool(items) and c.known_count == 0)
    assert c.filled(-9).tolist() == [-9 if x is None else x for x in items]
    every = np.ones(len(items), np.bool_)
    assert c.without(every).known_count == 0
    assert c.without(~every).equals(c)


@given(st.lists(st.none() | st.sampled_from("abc"), max_size=8))
def test_coded_text(items: list[str | None]) -> None:
    c = Coded.from_optional(items)
    assert c.to_list() == c.normalised().to_list() == items
    assert list(c.normalised().names) == sorted({x for x in items if x is not None})
    assert c.equals(Coded(c.codes, (*c.names, "unused")))


@given(st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=6), st.data())
def test_ragged_rows(rows: list[list[int]], data: st.DataObject) -> None:
    r = Ragged.from_rows(rows)
    assert [r.row(i).tolist() for i in range(len(r))] == rows
    assert r.reduce(np.maximum, default=-99).tolist() == [max(row, default=-99) for row in rows]
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)) if rows else []
    assert r.take(np.array(index, np.intp)).equals(Ragged.from_rows([rows[i] for i in index]))
    assert r.take(slice(1, None, 2)).equals(Ragged.from_rows(rows[1::2]))
