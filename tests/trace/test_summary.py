"""The summary says what is there, escapes what files say, and has the keys of the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
from hypothesis import given

from commcanary_lab.trace import Coded, Column, ImportCoverage, ProcessGroup, Ragged, Trace, UnsizedRow
from commcanary_lab.trace.summary import MAX_GROUPS, summarise, summary_html, summary_text
from tests.golden_traces import golden_trace
from tests.strategies import traces


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(html: str) -> _Tags:
    parser = _Tags()
    parser.feed(html)
    return parser


def hostile() -> Trace:
    evil = "<script>alert('x')</script>&amp;\"'"
    return Trace.build(
        2, op=Coded.constant(2, evil), custom_op=np.ones(2, np.bool_), phase=Coded.constant(2, evil), group=np.zeros(2, np.int32),
        groups=(ProcessGroup(evil, (0, 1)),), size_bytes=np.array([8, 0]), notes=(evil,), warnings=(evil,), source_format=evil,
        coverage=ImportCoverage(3, 2, {evil: 1}), unsized=(UnsizedRow(evil, 1500, evil),),
    )  # fmt: skip


def test_html_escapes_everything_that_comes_from_files() -> None:
    page = parsed(summary_html(hostile()))
    assert page.tags == {"div", "p", "table", "tr", "th", "td", "ul", "li"}
    assert page.text.count("<script>alert('x')</script>&amp;\"'") == 7  # format, op, phase, group, skip reason, note, warning


def record_sizes(trace: Trace, event: int) -> list[int]:
    """B of each record: in an uneven exchange the larger of what its rank sent and received, as far as known; else the event's."""
    size, row = int(trace.size_bytes[event]), trace.splits.row(event).tolist()
    records = len(trace.observers_of(event))
    if not row:
        return [size] * records
    width = len(row) // records
    k = trace.groups[trace.group[event]].size
    out = []
    for i in range(records):
        sent, received, *splits = row[i * width : (i + 1) * width]
        sums = [sum(half) for half in (splits[:k], splits[k:]) if -1 not in half]
        known = [x for x in (sent, received, *sums) if x >= 0]
        out.append(max(known) if known else size)
    return out


@given(traces())
def test_any_trace_has_a_summary(trace: Trace) -> None:
    s = summarise(trace)
    assert s.payload_bytes == sum(b for event in range(len(trace)) for b in record_sizes(trace, event))
    assert sum(s.ops.values()) == s.events == len(trace)
    assert sum(g.events for g in s.group_table) == s.events
    assert json.loads(json.dumps(s.to_json())) == s.to_json()
    assert parsed(summary_html(trace)).tags <= {"div", "p", "table", "tr", "th", "td", "ul", "li"}
    assert summary_text(trace)


def test_keys_of_the_command_line() -> None:
    out = summarise(hostile()).to_json()
    assert {"format", "events", "ranks", "groups", "ops", "unsized", "import_coverage", "notes", "warnings"} <= out.keys()
    assert out["unsized"] == {"count": 1, "time_us": 1.5}
    assert out["import_coverage"].items() >= {"read": 3, "used": 2, "skipped": {"<script>alert('x')</script>&amp;\"'": 1}}.items()
    assert (out["events"], out["ranks"], out["groups"], out["records"], out["payload_bytes"]) == (2, 2, 1, 4, 16)


def test_golden_trace() -> None:
    s = summarise(golden_trace("irr100"))
    assert (s.events, s.ranks, s.timing) == (100, 8, "gap")
    assert s.payload_bytes == int((golden_trace("irr100").size_bytes * golden_trace("irr100").group_sizes).sum())
    assert "100 events on 8 ranks" in summary_text(golden_trace("irr100"))


def test_unknown_fields_and_times_are_said() -> None:
    trace = Trace.build(3, op=Coded.constant(3, "broadcast"), groups=(ProcessGroup(None, (0, 1)),), group=np.zeros(3, np.int32),
                        size_bytes=np.array([1, 1, 1]), arrival_known=np.array([True, False, False]))  # fmt: skip
    s = summarise(trace)
    assert s.unknown == {"skew_us": 2, "overlap_us": 3}
    assert s.duration_us is None
    assert "skew_us 2, overlap_us 3 (of 3 events)" in summary_text(trace)
    assert "no times" in summary_text(trace)


def test_duration_ends_with_the_latest_known_end() -> None:
    trace = Trace.build(2, op=Coded.constant(2, "broadcast"), groups=(ProcessGroup(None, (0, 1)),), group=np.zeros(2, np.int32),
                        size_bytes=np.array([1, 1]), start_ns=Column(np.array([5000, 7000])),
                        duration_ns=Ragged.from_rows([[9000, 8000], [1000, 2000]]))  # fmt: skip
    assert summarise(trace).duration_us == 9.0


def test_many_groups_are_counted_not_listed() -> None:
    n = MAX_GROUPS + 3
    trace = Trace.build(n, op=Coded.constant(n, "broadcast"), groups=tuple(ProcessGroup(f"g{i}", (0, i + 1)) for i in range(n)),
                        group=np.arange(n, dtype=np.int32), size_bytes=np.full(n, 8))  # fmt: skip
    assert "3 more" in summary_text(trace)
    assert "g14" not in summary_text(trace)


def test_sizes_beyond_int64_sum_exactly() -> None:
    trace = Trace.build(2, op=Coded.constant(2, "broadcast"), groups=(ProcessGroup("w", tuple(range(8))),), group=np.zeros(2, np.int32),
                        size_bytes=np.full(2, 1 << 62))  # fmt: skip
    assert summarise(trace).payload_bytes == 16 << 62


def test_empty_trace() -> None:
    empty = replace(golden_trace("adv100").take(np.zeros(0, np.intp)), notes=())
    s = summarise(empty)
    assert (s.events, s.ops, s.payload_bytes, s.ranks) == (0, {}, 0, 0)
    assert "0 events" in summary_text(empty)
