"""Iterations: nested loops, prologues, interruptions, interleaving ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.errors import UsageError
from commcanary_lab.inspect import iterations
from commcanary_lab.inspect.periods import find_period, occurrences
from tests.inspect.traces import Event, trace_of

LETTERS = {"A": "all_reduce", "G": "all_gather", "S": "reduce_scatter", "B": "broadcast", "T": "all_to_all"}


def sequence(text: str, step: int | None = None) -> list[Event]:
    return [Event(LETTERS[c], 64, start=None if step is None else i * step, durations=(1_000, 2_000)) for i, c in enumerate(text)]


def test_training_steps_after_a_prologue() -> None:
    """24 all-reduces and one gather per step: the period is 25, not 1."""
    found = iterations(trace_of(sequence("BBBAB" + ("A" * 24 + "G") * 6 + "AAA", step=10_000)))
    assert found is not None
    assert (found.period, len(found), found.prologue_events, found.epilogue_events) == (25, 6, 5, 3)
    assert [(r.start_event, r.stop_event) for r in found.rows] == [(5 + 25 * i, 30 + 25 * i) for i in range(6)]
    assert [r.start_us for r in found.rows] == [50.0 + 250.0 * i for i in range(6)]
    assert [r.duration_us for r in found.rows] == [250.0] * 6
    assert {(r.size_bytes, r.communication_us, r.events) for r in found.rows} == {(25 * 64, 50.0, 25)}
    assert (found.median_us, found.covered, found.reference_rank) == (250.0, 150 / 158, 0)
    assert found.df["index"].tolist() == list(range(6))
    assert "6 iterations of 25 events on rank 0, median 250 us" in found._repr_html_()


def test_the_outer_loop_wins() -> None:
    token = "GS" * 8 + "A"
    found = iterations(trace_of(sequence("BT" + token * 5)))
    assert found is not None
    assert (found.period, len(found), found.prologue_events) == (17, 5, 2)
    assert all(math.isnan(r.duration_us) for r in found.rows)
    assert math.isnan(found.median_us)


def test_no_element_occurs_once_in_the_period() -> None:
    found = iterations(trace_of(sequence(("A" * 9 + "B" + "A" * 10 + "B") * 4)))
    assert found is not None
    assert (found.period, len(found)) == (21, 4)


def test_interruption() -> None:
    step = "AAG"
    found = iterations(trace_of(sequence(step * 5 + "TTTT" + step * 4)))
    assert found is not None
    assert [r.start_event for r in found.rows] == [0, 3, 6, 9, 12, 19, 22, 25, 28]
    assert found.rows[4].stop_event == 15
    assert found.covered == 27 / 31


def test_last_iteration_ends_with_its_last_collective() -> None:
    found = iterations(trace_of(sequence("AG" * 3, step=10_000)))
    assert found is not None
    assert [r.duration_us for r in found.rows] == [20.0, 20.0, 12.0]
    unmeasured = iterations(trace_of([Event("all_reduce", 8, start=i * 1000) for i in range(3)]))
    assert unmeasured is not None
    assert [r.duration_us for r in unmeasured.rows[:2]] == [1.0, 1.0]
    assert math.isnan(unmeasured.rows[2].duration_us)
    assert math.isnan(unmeasured.rows[0].communication_us)


def test_ranks_that_interleave_differently() -> None:
    """Two tensor-parallel groups run at their own pace; each rank's own order is what repeats."""
    rng = np.random.default_rng(3)
    events = []
    for _ in range(12):
        block = [Event("all_reduce", 64, (2 * g, 2 * g + 1), f"tp{g}") for g in (0, 1) for _ in range(6)]
        events += [block[i] for i in rng.permutation(12)] + [Event("all_gather", 8, (0, 2), "dp"), Event("all_gather", 8, (1, 3), "dp")]
    found = iterations(trace_of(events))
    assert found is not None
    assert (found.period, len(found), found.reference_rank, found.covered) == (7, 12, 0, 1.0)
    assert iterations(trace_of(events), rank=3).period == 7  # type: ignore[union-attr]


def test_sizes_of_uneven_all_to_alls_do_not_break_the_period() -> None:
    events = [Event("all_to_all_v", 100 + i, phase="x") if i % 2 else Event("all_gather", 8, phase="x") for i in range(20)]
    found = iterations(trace_of(events))
    assert found is not None
    assert (found.period, len(found)) == (2, 10)
    assert found.rows[3].size_bytes == 8 + 107


def test_no_period() -> None:
    rng = np.random.default_rng(1)
    assert iterations(trace_of(sequence("".join(rng.choice(list("AGSBT"), 300))))) is None
    assert iterations(trace_of(sequence("AGSBT"))) is None
    assert iterations(trace_of(sequence("A"))) is None
    assert iterations(trace_of([])) is None
    assert iterations(trace_of(sequence("AA" + "GSBT" + "TBSG"))) is None  # repeats, but less than half


def test_given_period_and_wrong_arguments() -> None:
    trace = trace_of(sequence("AG" * 6))
    found = iterations(trace, period=4)
    assert found is not None
    assert (found.period, len(found)) == (4, 3)
    assert iterations(trace, period=3) is None
    assert iterations(trace, period=7) is None
    with pytest.raises(UsageError, match="rank 9 takes part in no event"):
        iterations(trace, rank=9)
    with pytest.raises(UsageError, match="the period 0 is not"):
        iterations(trace, period=0)


def _slow(codes: list[int]) -> int:
    """Length of the longest stretch with any period, at least two periods long."""
    best = 0
    for p in range(1, len(codes) // 2 + 1):
        run = 0
        for i in range(len(codes) - p):
            run = run + 1 if codes[i] == codes[i + p] else 0
            if run >= p:
                best = max(best, run + p)
    return best


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=40))
def test_stretches_are_as_long_as_the_slow_search_finds(codes: list[int]) -> None:
    found = find_period(np.array(codes, np.int64))
    best = _slow(codes)
    if found is None:
        assert best == 0
        return
    stretch = codes[found.start : found.stop]
    assert stretch[: -found.length] == stretch[found.length :]
    assert len(stretch) >= 2 * found.length
    assert len(stretch) >= 0.98 * best or best < 0.5 * len(codes)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(3, 8), st.lists(st.integers(4, 6), max_size=5))
def test_any_repeated_unit_is_found(unit: list[int], times: int, prologue: list[int]) -> None:
    found = find_period(np.array(prologue + unit * times, np.int64))
    assert found is not None
    primitive = next(p for p in range(1, len(unit) + 1) if len(unit) % p == 0 and unit[:p] * (len(unit) // p) == unit)
    assert found.length == primitive
    assert found.stop == len(prologue) + len(unit) * times
    assert found.start == len(prologue)
    assert len(occurrences(np.array(prologue + unit * times, np.int64), found.start, primitive)) == times * len(unit) // primitive
