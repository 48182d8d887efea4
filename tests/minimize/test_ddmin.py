"""ddmin: the published counts, the rule, and that what it keeps is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import FormatError, UnknownValueError, UsageError
from commcanary_lab.minimize.ddmin import Step, ddmin
from commcanary_lab.minimize.ledger import verify_ledger
from commcanary_lab.minimize.oracle import SubsetOracle, decision_labels, outcomes
from commcanary_lab.simulate import DEFAULT_BACKENDS, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.write_v1 import write_json
from commcanary_lab.verify.derived import derive, derived_from, verify_derived
from commcanary_lab.verify.ranking import decisions
from tests.golden_traces import NAMES, golden_figures, golden_trace
from tests.strategies import traces


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_counts_are_the_published_ones(name: str) -> None:
    expected = golden_figures(name, "summary.json")["ddmin"]
    found = ddmin(golden_trace(name))
    assert (found.events_before, found.events_after, found.oracle_calls) == (
        expected["original_events"],
        expected["reduced_events"],
        expected["oracle_calls"],
    )
    assert (found.stopped == "budget") == expected["budget_exhausted"]
    assert (found.decisions_kept, found.decisions_total) == (40, 40)


def test_the_adversarial_trace_collapses_to_one_event_that_is_refused() -> None:
    trace = golden_trace("adv100")
    found = ddmin(trace)
    assert (found.events_before, found.events_after, found.oracle_calls, found.decisions_kept) == (100, 1, 6, 40)
    canary = compile_trace(found.trace, derived_from=found.trace.extra["derived_from"])
    check = verify_derived(trace, canary)
    assert (check.coverage, check.commitments, check.bounds, check.ranking, check.behavior, check.claim) == (
        "partial_source",
        "recomputed",
        "recomputed",
        "pass",
        "fail",
        "refused",
    )
    assert (check.decisions_kept, check.traffic) == (40, "fail")
    assert any("tail recall" in c.name and not c.passed for c in check.checks)


def slow_rule(trace: Trace, budget: int) -> tuple[list[int], int]:
    """The rule as the format states it, without memo, subsets prepared from scratch."""

    def decide(kept: list[int]) -> tuple[str, ...]:
        prepared = prepare(trace.take(np.array(kept, np.int64)))
        return tuple(d.outcome for d in decisions([simulate_prepared(prepared, b) for b in DEFAULT_BACKENDS]))

    cur, n, calls = list(range(len(trace))), 2, 0
    wanted = decide(cur)
    while len(cur) >= 2:
        size = len(cur)
        chunks = [cur[int(i * size / n) : int((i + 1) * size / n)] for i in range(n)]
        tests = [(c, 2) for c in chunks if c and len(c) < size]
        if n > 2:
            tests += [([e for e in cur if e not in set(c)], max(n - 1, 2)) for c in chunks if c]
        for subset, parts in tests:
            if calls >= budget:
                return cur, calls
            calls += 1
            if decide(subset) == wanted:
                cur, n = subset, parts
                break
        else:
            if n >= size:
                break
            n = min(size, 2 * n)
    return cur, calls


@settings(max_examples=25)
@given(traces(min_events=1, max_events=14, unknown=False))
def test_equals_the_rule_written_plainly(trace: Trace) -> None:
    found = ddmin(trace, budget=60)
    assert (found.kept.tolist(), found.oracle_calls) == slow_rule(trace, 60)
    assert found.oracle_evaluations <= found.oracle_calls


@settings(max_examples=30)
@given(traces(min_events=1, unknown=False), st.data())
def test_a_subset_is_simulated_as_the_trace_it_makes(trace: Trace, data: st.DataObject) -> None:
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, len(trace) - 1), min_size=1))), np.int64)
    ours, plain = SubsetOracle(trace).subset(kept), prepare(trace.take(kept))
    assert (ours.identity == plain.identity).all()
    for backend in DEFAULT_BACKENDS:
        a, b = simulate_prepared(ours, backend), simulate_prepared(plain, backend)
        assert a.metrics == b.metrics
        assert (a.samples.exposed_us == b.samples.exposed_us).all()


@settings(max_examples=25)
@given(traces(min_events=2, unknown=False))
def test_the_result_keeps_every_decision(trace: Trace) -> None:
    found = ddmin(trace, budget=40)
    whole = decisions([simulate_prepared(prepare(trace), b) for b in DEFAULT_BACKENDS])
    ours = decisions([simulate_prepared(prepare(found.trace), b) for b in DEFAULT_BACKENDS])
    assert [d.outcome for d in ours] == [d.outcome for d in whole]
    assert found.decisions_kept == found.decisions_total == len(whole)


def test_outcomes_are_those_of_the_reports() -> None:
    trace = golden_trace("irr100")
    reports = [simulate_prepared(prepare(trace), b) for b in DEFAULT_BACKENDS]
    words = {-1: "left", 0: "tie", 1: "right"}
    assert [words[o] for o in outcomes(SubsetOracle(trace).metrics, 0.001).tolist()] == [d.outcome for d in decisions(reports)]
    assert decision_labels(DEFAULT_BACKENDS)[5] == "baseline / high_bandwidth: p95_us"


def test_the_ledger_tells_the_collapse() -> None:
    found = ddmin(golden_trace("irr100"))
    whole, *tests = found.steps
    assert (whole.kind, whole.events, whole.accepted, whole.tail_recall, whole.p99_error) == ("whole", 100, True, 1.0, 0.0)
    assert len(tests) == found.oracle_calls
    accepted = [s for s in tests if s.accepted]
    assert [s.events for s in accepted] == sorted((s.events for s in accepted), reverse=True)
    assert accepted[-1].kept.tolist() == found.kept.tolist()
    assert all(s.decisions_held == 40 for s in accepted)
    assert all(s.decisions_held < 40 for s in tests if not s.accepted)
    assert accepted[-1].tail_recall < 0.8 < accepted[0].tail_recall + 1  # the tail is lost on the way
    ledger = found.ledger()
    assert ledger["steps"][0]["kept"] == [[0, 100]]
    assert ledger["derived_from"]["kept"] == found.kept.tolist()


def rehash(ledger: dict[str, Any]) -> dict[str, Any]:
    return {**ledger, "sha256": sha256_hex(canonical_bytes({k: v for k, v in ledger.items() if k != "sha256"}))}


def test_the_ledger_is_replayed() -> None:
    trace = golden_trace("irr100")
    found = ddmin(trace)
    ledger = found.ledger()
    canary = compile_trace(found.trace)
    for result in (found.trace, canary):
        assert verify_ledger(ledger, result).status == "consistent"
        assert verify_ledger(ledger, result, trace).status == "recomputed"
    salted = compile_trace(found.trace, salt=b"0123456789abcdef")
    assert verify_ledger(ledger, salted, trace, salt=b"0123456789abcdef").passed
    # the rule is followed with the stated answers: a test that it would not have asked is found without the source
    steps = ledger["steps"]
    swapped = rehash({**ledger, "steps": [*steps[:1], steps[2], steps[1], *steps[3:]]})
    assert (verify_ledger(swapped, canary).first_difference or "").startswith("steps")
    short = rehash({**ledger, "steps": steps[:-1], "oracle_calls": len(steps) - 2})
    assert (verify_ledger(short, canary).first_difference or "").startswith("stopped: stated minimal")
    huge = rehash({**ledger, "events_before": 10**12})
    assert "at most" in (verify_ledger(huge, canary).first_difference or "")
    # other answers, true to the rule, are found with the source only
    assert verify_ledger(ledger, found.trace, golden_trace("lay100")).status == "mismatch"
    other = derive(golden_trace("lay100"), found.kept, "ddmin", sha256=ledger["derived_from"]["trace_sha256"])
    assert verify_ledger(ledger, other).status == "consistent"
    assert (verify_ledger(ledger, other, trace).first_difference or "").startswith("events of the reduced trace")
    assert "not derived" in (verify_ledger(ledger, trace).first_difference or "")


@settings(max_examples=15)
@given(traces(min_events=1, max_events=14, unknown=False), st.integers(0, 12))
def test_every_ledger_is_true(trace: Trace, budget: int) -> None:
    found = ddmin(trace, budget=budget)
    assert verify_ledger(found.ledger(), found.trace, trace).status == "recomputed"


def test_budget_and_cancellation() -> None:
    trace = golden_trace("irr100")
    found = ddmin(trace, budget=3)
    assert (found.stopped, found.oracle_calls) == ("budget", 3)
    assert found.decisions_kept == 40
    assert ddmin(trace, budget=0).events_after == 100
    with pytest.raises(UsageError, match="budget"):
        ddmin(trace, budget=-1)

    class After:
        def __init__(self, steps: int) -> None:
            self.left = steps

        def is_set(self) -> bool:
            return self.left <= 0

        def __call__(self, step: Step) -> None:
            self.left -= 1

    after = After(4)
    found = ddmin(trace, progress=after, cancelled=after)
    assert (found.stopped, len(found.steps)) == ("cancelled", 4)
    assert verify_ledger(found.ledger(), found.trace).status == "consistent"
    assert "cancelled" in (verify_ledger(found.ledger(), found.trace, trace).first_difference or "")


def test_a_warm_oracle_answers_repeats_from_memory() -> None:
    trace = golden_trace("irr100")
    oracle = SubsetOracle(trace)
    first, second = ddmin(trace, oracle=oracle), ddmin(trace, oracle=oracle)
    assert (second.oracle_calls, second.oracle_evaluations) == (first.oracle_calls, 0)
    assert second.kept.tolist() == first.kept.tolist()
    assert second.ledger() == first.ledger()


def test_unknown_fields_need_an_assumption() -> None:
    trace = golden_trace("irr100")
    from dataclasses import replace

    from commcanary_lab.trace import Column

    blind = replace(trace, overlap_ns=Column.absent(len(trace)))
    with pytest.raises(UnknownValueError, match="overlap_us"):
        ddmin(blind)
    assert ddmin(blind, assume={"overlap_us": 0.0}).decisions_kept == 40


def test_the_reduced_trace_says_what_it_was_derived_from(tmp_path: Path) -> None:
    trace = golden_trace("irr100")
    found = ddmin(trace)
    path = tmp_path / "r.json"
    write_json(found.trace, path)
    again = read_json(path)
    assert again.equals(found.trace)
    stated = derived_from(again)
    assert stated is not None
    assert (stated.kept.tolist(), stated.method) == (found.kept.tolist(), "ddmin")
    assert "derived: ddmin kept 2 of 100 events" in again.notes
    check = verify_derived(trace, compile_trace(again, derived_from=again.extra["derived_from"]))
    assert (check.commitments, check.bounds) == ("recomputed", "recomputed")


def test_a_derived_canary_of_other_rows_or_another_trace_is_refused() -> None:
    trace = golden_trace("irr100")
    part = derive(trace, [3, 5, 9], "by hand")
    good = part.extra["derived_from"]
    assert verify_derived(trace, compile_trace(part, derived_from=good)).commitments == "recomputed"
    for wrong in ({**good, "kept": [3, 5, 8]}, {**good, "kept": [3, 5]}, {**good, "kept": [3, 5, 900]}, {**good, "trace_sha256": "0" * 64}):
        check = verify_derived(trace, compile_trace(part, derived_from=wrong))
        assert (check.commitments, check.claim) == ("mismatch", "refused")
    assert verify_derived(golden_trace("lay100"), compile_trace(part, derived_from=good)).commitments == "mismatch"
    for malformed in ({**good, "kept": "all"}, {**good, "kept": [-1]}, {"kept": [1]}, {**good, "more": 1}):
        with pytest.raises(FormatError, match="derived_from"):
            verify_derived(trace, compile_trace(part, derived_from=malformed))
    with pytest.raises(UsageError, match="ascend"):
        derive(trace, [5, 3], "by hand")
    with pytest.raises(UsageError, match="verify_canary"):
        verify_derived(trace, compile_trace(trace))


def test_everything_kept_is_still_partial() -> None:
    trace = golden_trace("adv100")
    part = derive(trace, range(100), "nothing")
    check = verify_derived(trace, compile_trace(part, derived_from=part.extra["derived_from"]))
    assert (check.traffic, check.ranking, check.behavior, check.coverage, check.claim) == (
        "pass",
        "pass",
        "pass",
        "partial_source",
        "partial",
    )
