"""Two traces side by side."""

from __future__ import annotations

import math

from commcanary_lab.inspect import diff
from commcanary_lab.trace import ImportCoverage, UnsizedRow
from tests.inspect.traces import Event, trace_of


def test_figures_by_hand() -> None:
    a = trace_of([Event("all_reduce", 64, group="tp", durations=(10_000, 10_000)),
                  Event("all_reduce", 64, group="tp", durations=(20_000, 1)),
                  Event("broadcast", 8, group="tp", durations=(1_000, 1_000))], notes=("one",), coverage=ImportCoverage(3, 3))
    b = trace_of([Event("all_reduce", 64, group="tp", durations=(30_000, 30_000)), Event("all_gather", 16, group="tp"),
                  Event("all_reduce", 64, group="tp", durations=(16_000, 1)), Event("all_reduce", 64, group="tp", durations=(14_000, 1))])
    d = diff(a, b)
    assert [(r.op, r.count_a, r.count_b, r.only_in) for r in d.rows] == [
        ("all_reduce", 2, 3, None), ("all_gather", 0, 1, "b"), ("broadcast", 1, 0, "a")]
    reduce, gather, broadcast = d.rows
    assert (reduce.count_delta, reduce.bytes_a, reduce.bytes_b, reduce.bytes_delta) == (1, 128, 192, 64)
    assert (reduce.p50_a_us, reduce.p50_b_us, reduce.p50_delta_us) == (15.0, 16.0, 1.0)
    assert (reduce.p95_a_us, round(reduce.p95_b_us, 6), round(reduce.p95_delta_us, 6)) == (19.5, 28.6, 9.1)
    assert (reduce.time_a_us, reduce.time_b_us, reduce.time_delta_us) == (30.0, 60.0, 30.0)
    assert math.isnan(gather.p50_a_us)
    assert math.isnan(gather.p50_delta_us)
    assert (broadcast.p50_a_us, broadcast.count_delta) == (1.0, -1)
    assert (d.only_in_a, d.only_in_b, d.same_operations) == ((broadcast,), (gather,), False)
    assert (d.notes, d.coverage_a.read, d.coverage_b.read) == (("a: one",), 3, 0)
    assert d.df["only_in"].tolist()[1:] == ["b", "a"]
    assert "1 only in a, 1 only in b" in d._repr_html_()


def test_equal_traces() -> None:
    trace = trace_of([Event("all_reduce", 64, durations=(10_000, 10_000))])
    d = diff(trace, trace)
    assert d.same_operations
    assert [(r.p50_delta_us, r.time_delta_us, r.only_in) for r in d.rows] == [(0.0, 0.0, None)]


def test_groups_match_by_members_where_names_are_addresses() -> None:
    a = trace_of([Event("all_reduce", 64, (0, 1), "0xa0"), Event("all_reduce", 64, (2, 3), "0xa1")])
    b = trace_of([Event("all_reduce", 64, (0, 1), "0xb7"), Event("all_reduce", 64, (2, 3), "0xb9")])
    assert diff(a, b).same_operations
    # two communicators over the same ranks can be told apart by name only
    c = trace_of([Event("all_reduce", 64, (0, 1), "tp"), Event("all_reduce", 64, (0, 1), "ep"), Event("all_reduce", 64, (0, 1), "ep")])
    e = trace_of([Event("all_reduce", 64, (0, 1), "ep"), Event("all_reduce", 64, (0, 1), "tp")])
    assert {(r.group, r.count_a, r.count_b) for r in diff(c, e).rows} == {("tp", 1, 1), ("ep", 2, 1)}


def test_unsized_rows_compare_by_name() -> None:
    a = trace_of([], unsized=(UnsizedRow("k", 5_000, "r"),))
    b = trace_of([], unsized=(UnsizedRow("k", 7_000, "r"), UnsizedRow("k", 7_000, "r")))
    row = diff(a, b).rows[0]
    assert (row.op, row.sized, row.count_a, row.count_b, row.time_delta_us, row.bytes_b) == ("k", False, 1, 2, 9.0, 0)
    assert diff(trace_of([]), trace_of([])).rows == ()
