"""Verification: what passes, what fails, and that every change of the source is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import BoundedStream
from commcanary_lab.errors import RefusedError, UnknownValueError
from commcanary_lab.simulate import Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace
from commcanary_lab.verify.behavior import tail_recall
from commcanary_lab.verify.model import Verification
from commcanary_lab.verify.run import verify_canary
from tests.canary.test_compile import generated
from tests.golden_traces import NAMES, golden_trace
from tests.minimize.sources import attributable
from tests.simulate.test_golden import CONFIGURATIONS, check_figures


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_lossless_canaries_give_the_published_figures(name: str) -> None:
    canary = compile_trace(golden_trace(name))
    for configuration in CONFIGURATIONS:
        check_figures(canary.trace, name, configuration)


@pytest.mark.parametrize("name", NAMES)
def test_lossless_canaries_are_verified(name: str) -> None:
    trace = golden_trace(name)
    found = verify_canary(trace, compile_trace(trace))
    assert found.statuses == {
        "timing": "lossless",
        "coverage": "full_source",
        "commitments": "recomputed",
        "bounds": "recomputed",
        "traffic": "pass",
        "ranking": "pass",
        "behavior": "pass",
    }
    assert (found.claim, found.passed, found.decisions_kept, found.decisions_total) == ("verified", True, 40, 40)
    assert not found.failures


@settings(max_examples=30)
@given(attributable(min_events=1, unknown=False))
def test_every_lossless_canary_verifies(trace: Trace) -> None:
    found = verify_canary(trace, compile_trace(trace))
    assert found.claim == "verified", found.failures


def test_a_bounded_canary_claims_only_what_it_earned() -> None:
    trace = generated("irregular", 1000)
    found = verify_canary(trace, compile_trace(trace, records=2))
    assert found.ranking == "pass"  # rankings alone would have let it through
    assert (found.timing, found.commitments, found.bounds, found.behavior, found.claim) == (
        "bounded_approximate",
        "recomputed",
        "recomputed",
        "fail",
        "refused",
    )
    assert not found.passed
    assert "source" in found.claim_reason


def _changed(trace: Trace, name: str, row: int) -> Trace:
    """The trace with one bit of one committed value changed; None-safe for every column."""
    value: Any = getattr(trace, name)
    if isinstance(value, Column):
        values = np.array(value.values)
        if values.dtype == np.float64:
            values[row] = (values[row : row + 1].view(np.int64) ^ 1).view(np.float64)[0]
        else:
            values[row] ^= 1
        return replace(trace, **{name: Column(values, value.known)})
    if isinstance(value, Ragged):
        values = np.array(value.values)
        values[value.pointers[row]] ^= 1
        return replace(trace, **{name: Ragged(values, value.pointers)})
    if isinstance(value, Coded):
        texts = value.to_list()
        text = texts[row]
        assert text is not None
        texts[row] = text[:-1] + chr(ord(text[-1]) ^ 1)
        return replace(trace, **{name: Coded.from_optional(texts)})
    array = np.array(value)
    array[row] ^= 1
    return replace(trace, **{name: array})


COMMITTED = (
    "ids",
    "phase",
    "op",
    "dtype",
    "reduction",
    "size_bytes",
    "custom_op",
    "gap_ns",
    "arrival_ns",
    "compute_before_ns",
    "overlap_ns",
    "pressure",
    "concurrent_groups",
)


def failed(found: Verification) -> str:
    return "; ".join(str(c) for c in found.checks if c.status == "commitments" and not c.passed)


@pytest.mark.parametrize("records", [None, 1])
@pytest.mark.parametrize("name", COMMITTED)
def test_one_bit_of_any_committed_value_is_named(name: str, records: int | None) -> None:
    trace = golden_trace("irr100") if records is None else generated("single", 300)
    canary = compile_trace(trace, records=records)
    row = 37 if name != "reduction" else int(np.flatnonzero(trace.reduction.codes >= 0)[11])
    if name == "arrival_ns":
        row = int(np.flatnonzero(trace.arrival_ns.lengths)[20])
    found = verify_canary(_changed(trace, name, row), canary)
    assert found.commitments == "mismatch"
    assert found.claim == "refused"
    assert f"record {row}" in failed(found) or f"differs is {row}" in failed(found), failed(found)
    if records is not None and name in ("gap_ns", "arrival_ns", "compute_before_ns", "overlap_ns", "pressure"):
        assert "step 0, interval 0" in failed(found)


@settings(max_examples=60)
@given(st.data())
def test_a_changed_value_anywhere_is_named(data: st.DataObject) -> None:
    trace = golden_trace("irr100")
    name = data.draw(st.sampled_from([n for n in COMMITTED if n != "reduction"]))
    row = data.draw(st.integers(0, 99))
    found = verify_canary(_changed(trace, name, row), compile_trace(trace))
    assert f"record {row} " in failed(found).replace(":", " ") or f"differs is {row} " in failed(found)


def test_members_and_group_names_are_committed() -> None:
    trace = golden_trace("adv100")
    canary = compile_trace(trace)
    for group in (ProcessGroup("tq", (0, 1)), ProcessGroup("tp", (0, 2)), ProcessGroup(None, (0, 1))):
        found = verify_canary(replace(trace, groups=(group,)), canary)
        assert found.commitments == "mismatch"
        assert "of record 0" in failed(found)


@pytest.mark.parametrize(
    ("index", "what"),
    [
        ([i for i in range(100) if i != 40], "dropped"),
        ([*range(41), 40, *range(41, 100)], "added"),
        ([*range(40), 41, 40, *range(42, 100)], "reordered"),
    ],
)
def test_dropped_added_and_reordered_events_are_noticed(index: list[int], what: str) -> None:
    trace = golden_trace("irr100")
    found = verify_canary(trace.rows(np.array(index)), compile_trace(trace))
    assert found.commitments == "mismatch", what
    assert found.claim == "refused"
    assert (found.coverage == "full_source") == (what == "reordered")


def test_a_canary_of_another_trace_is_refused() -> None:
    found = verify_canary(golden_trace("irr100"), compile_trace(golden_trace("lay100")))
    assert (found.commitments, found.bounds, found.traffic, found.claim) == ("mismatch", "mismatch", "fail", "refused")


def test_a_range_is_partial_however_well_it_behaves() -> None:
    trace = golden_trace("reg1000")
    found = verify_canary(trace, compile_trace(trace, events=(100, 900)))
    assert (found.coverage, found.commitments, found.bounds, found.behavior, found.claim) == (
        "partial_source",
        "recomputed",
        "recomputed",
        "pass",
        "partial",
    )
    assert found.claim_reason == "the canary stands for 800 of 1000 events (1000 of 1000 source records)"
    # a source that grew behind the canary is no longer fully covered
    prefix = compile_trace(trace.take(slice(0, 500)))
    assert verify_canary(trace, prefix).coverage == "partial_source"


def test_salted_commitments_need_the_salt() -> None:
    trace = golden_trace("adv100")
    canary = compile_trace(trace, salt=b"0123456789abcdef")
    assert canary.source.root != compile_trace(trace).source.root
    with pytest.raises(RefusedError, match="--salt-file"):
        verify_canary(trace, canary)
    assert verify_canary(trace, canary, salt=b"0123456789abcdef").claim == "verified"
    assert verify_canary(trace, canary, salt=b"0123456789abcdee").commitments == "mismatch"


def _edited(canary: Canary, **changes: Any) -> Canary:
    return replace(canary, source=replace(canary.source, **changes))


def test_false_statements_of_a_canary_are_found() -> None:
    trace = generated("single", 300)
    canary = compile_trace(trace, records=2)
    stream = canary.streams[0]
    assert isinstance(stream, BoundedStream)
    lies = [
        _edited(canary, size_bytes=canary.source.size_bytes - 1),
        _edited(canary, records_used=299),
        replace(canary, errors={**canary.errors, "skew_ns": canary.errors["skew_ns"] - 1}),
        replace(canary, errors={**canary.errors, "clock_ns": 0}),
        replace(canary, streams=(replace(stream, gap_sum_ns=stream.gap_sum_ns + 1),)),
        replace(canary, streams=(replace(stream, errors={**stream.errors, "gap_ns": stream.errors["gap_ns"] - 1}),)),
        replace(canary, streams=(replace(stream, gap_ns=stream.gap_ns + 1),)),
    ]
    assert verify_canary(trace, canary).bounds == "recomputed"
    for lie in lies:
        found = verify_canary(trace, lie)
        assert found.bounds == "mismatch"
        assert found.claim == "refused"
    for lie in (
        _edited(canary, root="0" * 64),
        replace(canary, streams=(replace(stream, commitments=("0" * 64, *stream.commitments[1:])),)),
    ):
        assert verify_canary(trace, lie).commitments == "mismatch"


def test_unknown_fields_need_an_assumption_and_end_as_unverified() -> None:
    trace = golden_trace("adv100")
    blind = Trace.build(
        len(trace),
        op=trace.op,
        group=trace.group,
        groups=trace.groups,
        size_bytes=trace.size_bytes,
        gap_ns=trace.gap_ns,
        arrival_known=np.zeros(len(trace), np.bool_),
    )
    canary = compile_trace(blind)
    with pytest.raises(UnknownValueError, match="--assume skew_us=0,overlap_us=0"):
        verify_canary(blind, canary)
    found = verify_canary(blind, canary, assume={"skew_us": 0.0, "overlap_us": 0.0})
    assert (found.behavior, found.claim, found.passed) == ("unverified", "unverified", False)
    assert "skew_us = 0" in found.claim_reason
    assert found.to_json()["assumptions"] == {"skew_us": 0.0, "overlap_us": 0.0}


def test_tail_recall_against_a_plain_definition() -> None:
    trace = golden_trace("irr100")
    a = simulate_prepared(prepare(trace), Backend())
    b = simulate_prepared(prepare(compile_trace(trace).trace), Backend(seed=8))
    values, other = a.samples.exposed_us.tolist(), b.samples.exposed_us.tolist()
    threshold = float(np.quantile(values, 0.95))
    tail = [i for i, v in enumerate(values) if v >= threshold]
    ours = sorted(range(100), key=lambda i: (-other[i], i))[: len(tail)]
    recall, source_us, canary_us = tail_recall(a, b, 0.95)
    assert recall == len(set(tail) & set(ours)) / len(tail)
    assert source_us == pytest.approx(sum(values[i] for i in tail))
    assert canary_us == pytest.approx(sum(other[i] for i in tail))


def test_the_public_verbs() -> None:
    trace = lab.samples.adversarial()
    canary = lab.compile(trace, records=2)
    check = lab.verify(trace, canary, backends=["baseline", "bandwidth_gbps=400"])
    assert check.backends == ("baseline", "bandwidth_gbps=400")
    assert lab.simulate(canary, backend="congested", ablate=["arrival_skew"]).ablations == ("arrival_skew",)
    assert "claim" in check._repr_html_()
