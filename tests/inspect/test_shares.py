"""Hidden and exposed communication."""

from __future__ import annotations

import math

import pytest

from commcanary_lab.errors import UsageError
from commcanary_lab.inspect import overlap_shares
from tests.inspect.traces import Event, trace_of

EVENTS = [
    Event("all_reduce", 8, (0, 1), "tp", "prefill", durations=(10_000, 8_000), overlap=4_000),
    Event("all_reduce", 8, (0, 1), "tp", "decode", durations=(5_000, 5_000), overlap=9_000),
    Event("all_gather", 8, (0, 2), "dp", "decode", durations=(20_000,), overlap=5_000),
    Event("all_gather", 8, (0, 2), "dp", None, durations=(7_000,)),
]


def test_figures_by_hand() -> None:
    shares = overlap_shares(trace_of(EVENTS))
    assert [(r.name, r.count, r.known, r.time_us, r.overlapped_us, r.exposed_us, r.hidden_fraction) for r in shares.rows] == [
        ("all_gather", 2, 1, 20.0, 5.0, 15.0, 0.25), ("all_reduce", 2, 2, 15.0, 9.0, 6.0, 0.6)]
    assert (shares.unknown, shares.origin, shares.by) == (1, "measured", "op")


def test_by_phase_and_group() -> None:
    phases = overlap_shares(trace_of(EVENTS), "phase").rows
    assert [(r.name, r.known, r.exposed_us) for r in phases[:2]] == [("decode", 2, 15.0), ("prefill", 1, 6.0)]
    assert (phases[2].name, phases[2].known) == ("no phase", 0)
    assert math.isnan(phases[2].exposed_us)
    assert math.isnan(phases[2].hidden_fraction)
    assert [r.name for r in overlap_shares(trace_of(EVENTS), "group").rows] == ["dp (2 ranks: 0,2)", "tp (2 ranks: 0-1)"]
    frame = overlap_shares(trace_of(EVENTS), "phase").df
    assert frame["phase"].tolist() == ["decode", "prefill", "no phase"]
    assert "unknown for 1 events" in overlap_shares(trace_of(EVENTS))._repr_html_()


def test_unknown_property() -> None:
    with pytest.raises(UsageError, match="cannot sum by 'rank'; give op, group or phase"):
        overlap_shares(trace_of(EVENTS), "rank")
