"""M by time, by operation, group and phase; sources and canaries side by side."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.trace import Column
from commcanary_lab.traffic import build_matrix, compare_sources, in_window, windows
from tests.traffic.jobs import Event, eight_ranks, trace_of


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 999)), min_size=1, max_size=20), st.integers(1, 7))
def test_windows_sum_to_the_whole(drawn: list[tuple[int, int]], count: int) -> None:
    drawn.sort()
    trace = trace_of(
        [Event("point_to_point", (0, 1), b, sender=0, receiver=1) for _, b in drawn], start_ns=Column(np.array([t for t, _ in drawn]))
    )
    parts = windows(trace, count=count)
    assert len(parts) == count
    first = drawn[0][0]
    for w in parts:
        assert w.matrix.sum_bytes == sum(b for t, b in drawn if w.start_ns <= t - first < w.stop_ns)
        assert in_window(trace, w.start_ns, w.stop_ns).size_bytes.sum() == w.matrix.sum_bytes
    assert sum(w.matrix.sum_bytes for w in parts) == sum(b for _, b in drawn)
    assert all(a.stop_ns == b.start_ns for a, b in itertools.pairwise(parts))
    span = drawn[-1][0] - first + 1
    by_width = windows(trace, width_ns=-(-span // count))
    assert [w.matrix.sum_bytes for w in by_width] == [w.matrix.sum_bytes for w in parts[: len(by_width)]]


def test_a_source_without_times_has_no_windows() -> None:
    for ask in (lambda: windows(eight_ranks(), count=2), lambda: in_window(eight_ranks(), 0, 1)):
        with pytest.raises(UnknownValueError, match="the source has no times"):
            ask()
    assert windows(trace_of([]), count=3) == ()


def test_wrong_windows() -> None:
    trace = lab.samples.adversarial()
    for options in ({}, {"count": 2, "width_ns": 5}, {"count": 0}, {"width_ns": -5}):
        with pytest.raises(UsageError, match="give count or width_ns"):
            windows(trace, **options)
    with pytest.raises(UsageError, match="intervals of 1 ns"):
        windows(trace, width_ns=1)
    with pytest.raises(UsageError, match="is empty"):
        in_window(trace, 5, 5)


def test_selected_parts() -> None:
    m = build_matrix(eight_ranks())
    tp = m.where(group=["TP Group 0", "TP Group 1"])
    assert tp.sum_bytes == m.where(phase=["forward", "backward"]).sum_bytes == 18432 * 2**20
    assert m.where(op="all_reduce", group="DP Group 1", phase="step").records == 2
    assert m.where(phase="step", group="TP Group 0").sum_bytes == 0
    assert tp.reattributed(algorithm="double_tree").sum_bytes == tp.sum_bytes
    with pytest.raises(UsageError, match="there is no phase 'fwd'; there is: backward, forward, step"):
        m.where(phase="fwd")


def test_canary_against_source() -> None:
    trace = lab.samples.tp8_decode()
    canary = lab.compile(trace, records=2)
    whole = compare_sources({"trace": build_matrix(trace), "canary": build_matrix(canary.trace)})
    assert whole.agree
    part = lab.compile(trace, events=(0, 100))
    found = compare_sources({"trace": build_matrix(trace), "canary": build_matrix(part.trace)}, reference="canary")
    assert not found.agree
    assert found.rows[1].difference.added_bytes == 0


def test_wrong_comparisons() -> None:
    with pytest.raises(UsageError, match="no matrix"):
        compare_sources({})
    with pytest.raises(UsageError, match="there is no source 'b'; there is: a"):
        compare_sources({"a": build_matrix(eight_ranks())}, reference="b")
