"""The operation table, figure by figure."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.inspect import algbw_gb_s, bus_factor, ops
from commcanary_lab.inspect.grouping import dense_codes, group_by, quantiles, sums
from commcanary_lab.trace import ImportCoverage, UnsizedRow
from tests.inspect.traces import Event, trace_of

TP = (0, 1, 2, 3)


def test_figures_by_hand() -> None:
    trace = trace_of([
        Event("all_reduce", 1_000_000, TP, "tp", durations=(10_000, 12_000, 11_000, 12_000), overlap=2_000),
        Event("all_reduce", 1_000_000, TP, "tp", durations=(20_000, 20_000, 20_000, 20_000), overlap=30_000),
        Event("all_gather", 4_000_000, TP, "tp", durations=(40_000, 40_000, 40_000, 40_000)),
        Event("all_reduce", 1_000_000, (0, 4), "dp", durations=(5_000, 5_000), overlap=0),
    ])
    table = ops(trace)
    assert [(r.op, r.group, r.size_bytes, r.count) for r in table.rows] == [
        ("all_gather", "tp", 4_000_000, 1), ("all_reduce", "tp", 1_000_000, 2), ("all_reduce", "dp", 1_000_000, 1)]
    gather, tp, dp = table.rows
    assert (tp.total_bytes, tp.measured, tp.time_us) == (2_000_000, 2, 32.0)
    assert tp.p50_us == 16.0
    assert tp.p95_us == pytest.approx(19.6)
    assert tp.algbw_gb_s == pytest.approx(62.5)
    assert tp.busbw_gb_s == pytest.approx(62.5 * 1.5)
    # hidden: 2 of 12 us, then all 20 us
    assert (tp.overlap_known, tp.overlapped_us, tp.exposed_us) == (2, 22.0, 10.0)
    assert (gather.algbw_gb_s, gather.busbw_gb_s) == (100.0, 75.0)
    assert gather.overlap_known == 0
    assert math.isnan(gather.exposed_us)
    assert math.isnan(gather.overlapped_us)
    assert (dp.algbw_gb_s, dp.busbw_gb_s, dp.exposed_us) == (200.0, 200.0, 5.0)
    # time that ranks spend: 45 + 80, 160, 10 us
    assert table.communication_us == 295.0
    assert [r.share for r in table.rows] == [160 / 295, 125 / 295, 10 / 295]
    assert (table.events, table.measured, table.origin, len(table)) == (4, 4, "measured", 3)


def test_unmeasured_is_unknown_and_not_zero() -> None:
    row = ops(trace_of([Event("all_reduce", 8)])).rows[0]
    assert (row.count, row.measured, row.total_bytes) == (1, 0, 8)
    for value in (row.time_us, row.p50_us, row.p95_us, row.share, row.algbw_gb_s, row.busbw_gb_s, row.overlapped_us, row.exposed_us):
        assert math.isnan(value)


def test_partly_measured() -> None:
    trace = trace_of([Event("all_reduce", 8, durations=(3_000, -1)), Event("all_reduce", 8), Event("all_reduce", 8, durations=(-1, -1))])
    row = ops(trace).rows[0]
    assert (row.count, row.measured, row.total_bytes, row.p50_us, row.time_us, row.share) == (3, 1, 24, 3.0, 3.0, 1.0)


def test_time_zero_has_no_bandwidth() -> None:
    row = ops(trace_of([Event("all_reduce", 8, durations=(0, 0))])).rows[0]
    assert row.p50_us == 0.0
    assert math.isnan(row.algbw_gb_s)
    assert math.isnan(row.share)


def test_one_rank_has_no_bus_traffic() -> None:
    row = ops(trace_of([Event("all_reduce", 4096, (0,), durations=(1_000,))])).rows[0]
    assert (row.algbw_gb_s, row.busbw_gb_s) == (4.096, 0.0)


def test_unsized_rows_have_time_and_no_bytes() -> None:
    unsized = (UnsizedRow("coalesced", 40_000, "no metadata", rank=0), UnsizedRow("coalesced", 20_000, "no metadata", rank=0),
               UnsizedRow("other", 0, "no metadata"))
    table = ops(trace_of([Event("all_reduce", 4096, observers=(0,), durations=(30_000,))], unsized=unsized,
                         coverage=ImportCoverage(4, 1, {"no metadata": 3})))
    assert [(r.op, r.sized, r.count, r.measured, r.total_bytes) for r in table.rows] == [
        ("coalesced", False, 2, 2, 0), ("all_reduce", True, 1, 1, 4096), ("other", False, 1, 0, 0)]
    assert [r.share for r in table.rows[:2]] == [60 / 90, 30 / 90]
    assert math.isnan(table.rows[2].share)
    assert (table.rows[0].p50_us, table.rows[0].time_us, table.rows[0].size_bytes) == (30.0, 60.0, None)
    assert (table.communication_us, table.unsized_count, table.unsized_us) == (90.0, 3, 60.0)
    assert table.coverage.fraction == 0.25


def test_stated_exposed_latency_is_taken() -> None:
    row = ops(trace_of([Event("all_reduce", 8, exposed=7_000), Event("all_reduce", 8, exposed=4_000)])).rows[0]
    assert (row.exposed_us, row.overlap_known) == (11.0, 2)
    assert math.isnan(row.overlapped_us)


def test_groups_of_one_name_are_two_rows() -> None:
    table = ops(trace_of([Event("all_reduce", 8, members, name) for members, name in (((0, 1), "tp"), ((2, 3), "tp"), ((0, 1), None))]))
    assert [(r.group, r.members) for r in table.rows] == [(None, (0, 1)), ("tp", (0, 1)), ("tp", (2, 3))]


def test_frame_and_html() -> None:
    table = ops(trace_of([Event("all_reduce", 2**20, TP, "<tp>", durations=(10_000,) * 4)], notes=("a note",),
                         unsized=(UnsizedRow("x", 1_000, "r"),)))
    frame = table.df
    assert frame.columns[:6].tolist() == ["op", "group", "members", "group_size", "size_bytes", "count"]
    assert frame["size_bytes"].isna().tolist() == [False, True]
    assert frame["share"].sum() == pytest.approx(1)
    html = table._repr_html_()
    assert "&lt;tp&gt;" in html
    assert "a note" in html
    assert "1.00 MiB" in html
    assert "1 collectives of unknown size (1.00 us)" in html


def test_empty() -> None:
    table = ops(trace_of([]))
    assert (table.rows, table.events, table.communication_us) == ((), 0, 0.0)
    assert len(table.df) == 0


def test_bus_factors() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert [bus_factor(op, 8) for op in ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_v")] == [0.875] * 4
    assert [bus_factor(op, 8) for op in ("broadcast", "reduce", "send", "recv", "point_to_point")] == [1.0] * 5
    assert math.isnan(bus_factor("gather", 8))
    # 33.55 GB/s of an all_gather over 8 ranks are 29.36 GB/s on the bus
    assert round(33.55 * bus_factor("all_gather", 8), 2) == 29.36
    assert algbw_gb_s(4096, 10) == pytest.approx(0.4096)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**15)), max_size=40), st.floats(0, 1))
def test_quantiles_equal_numpy(rows: list[tuple[int, int]], q: float) -> None:
    codes = np.array([c for c, _ in rows], np.int64)
    values = np.array([v for _, v in rows], np.int64)
    out = quantiles(codes, values, 4, (q,))[0]
    for c in range(4):
        own = values[codes == c]
        if len(own):
            assert out[c] == pytest.approx(np.quantile(own, q), rel=1e-12, abs=1e-6)
        else:
            assert math.isnan(out[c])


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 3)), max_size=30))
def test_groups_are_those_of_a_dictionary(rows: list[tuple[int, int, int]]) -> None:
    g = group_by(*(np.array([r[i] for r in rows], np.int64) for i in range(3)))
    expected = sorted(set(rows))
    assert [expected[c] for c in g.codes.tolist()] == rows
    assert [rows[i] for i in g.first.tolist()] == expected
    assert [rows.index(rows[i]) for i in g.first.tolist()] == g.first.tolist()
    assert g.sizes.tolist() == [rows.count(r) for r in expected]


def test_sums_are_exact() -> None:
    assert sums(np.array([1, 1]), np.array([2**53, 1]), 2).tolist() == [0, 2**53 + 1]
    assert dense_codes(np.zeros(0, np.int64))[1].tolist() == []
