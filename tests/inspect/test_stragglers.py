"""Late ranks."""

from __future__ import annotations

import pytest

from commcanary_lab.errors import UnknownValueError
from commcanary_lab.inspect import stragglers
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.records import RankCapture, Record
from tests.inspect.traces import Event, trace_of


def test_figures_by_hand() -> None:
    members = (4, 5, 7)
    table = stragglers(trace_of([
        Event("all_reduce", 8, members, arrivals=(0, 9_000, 2_000)),   # 5 last: 4 waits 9, 7 waits 7
        Event("all_reduce", 8, members, arrivals=(0, 1_000, 4_000)),   # 7 last: 4 waits 4, 5 waits 3
        Event("all_reduce", 8, members, arrivals=(3_000, 3_000, 3_000)),  # together
        Event("all_reduce", 8, members, arrivals=(0, 6_000, 6_000)),   # 5 and 7 last: 4 waits 6
        Event("all_reduce", 8, (4, 5), arrivals=(2_000, 0)),           # 4 last: 5 waits 2
        Event("all_reduce", 8, members, arrival_known=False),
        Event("all_reduce", 8, members, arrivals=(5_000,)),
        Event("all_reduce", 8, (4,), arrivals=(0,)),
    ]))
    assert (table.known, table.unknown, table.skew_only, table.origin) == (5, 1, 1, "measured")
    by_rank = {r.rank: r for r in table.rows}
    assert [r.rank for r in table.rows] == [5, 7, 4]
    assert [(r.events, r.last) for r in (by_rank[4], by_rank[5], by_rank[7])] == [(5, 1), (5, 2), (4, 2)]
    assert [by_rank[r].waiting_caused_us for r in members] == [2.0, 16.0 + 3.0, 7.0 + 3.0]
    assert [by_rank[r].waited_us for r in members] == [9.0 + 4.0 + 6.0, 3.0 + 2.0, 7.0]
    assert table.waiting_us == sum(r.waiting_caused_us for r in table.rows) == 31.0
    # lateness of rank 5: 9, 1, 0, 6, 0
    five = by_rank[5]
    assert (five.median_lateness_us, five.max_lateness_us) == (1.0, 9.0)
    assert five.p95_lateness_us == pytest.approx(8.4)
    assert five.last_fraction == 0.4
    assert table.df["rank"].tolist() == [5, 7, 4]
    assert "Arrival of 3 ranks at 5 collectives" in table._repr_html_()


def test_refusals() -> None:
    with pytest.raises(UnknownValueError, match=r"arrival skew is unknown for all events .*; give --clock-offsets or --align-ends"):
        stragglers(trace_of([Event("all_reduce", 8, arrival_known=False)]))
    with pytest.raises(UnknownValueError, match=r"no arrival per rank \(2 events\): which rank was late is unknown"):
        stragglers(trace_of([Event("all_reduce", 8, arrivals=(5_000,)), Event("all_reduce", 8)]))
    with pytest.raises(UnknownValueError, match=r"unknown for the events .1 of two or more ranks; 1 others give no arrival per rank"):
        stragglers(trace_of([Event("all_reduce", 8, arrivals=(5_000,)), Event("all_reduce", 8, arrival_known=False)]))
    with pytest.raises(UnknownValueError, match="none of the 0 events has two or more ranks"):
        stragglers(trace_of([]))


def _captures() -> list[RankCapture]:
    def records(rank: int, starts: list[int]) -> list[Record]:
        return [Record(rank, "all_reduce", 8, (0, 1), "g", sequence=i, start_ns=s, duration_ns=100_000 - s % 100_000)
                for i, s in enumerate(starts)]

    return [RankCapture(0, records(0, [10_000, 120_000]), "a", "monotonic@h1"),
            RankCapture(1, records(1, [40_000, 130_000]), "b", "monotonic@h2")]


def test_clocks_of_two_hosts() -> None:
    with pytest.raises(UnknownValueError, match="--clock-offsets"):
        stragglers(merge_captures(_captures(), source_format="t"))
    given = stragglers(merge_captures(_captures(), source_format="t", clock_offsets_ns={0: 0, 1: -5_000}))
    assert (given.origin, [(r.rank, r.waiting_caused_us) for r in given.rows]) == ("measured", [(1, 30.0), (0, 0.0)])
    aligned = stragglers(merge_captures(_captures(), source_format="t", align_ends=True))
    assert (aligned.origin, [(r.rank, r.waiting_caused_us) for r in aligned.rows]) == ("model", [(1, 40.0), (0, 0.0)])
