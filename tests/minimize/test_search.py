"""Behaviour search, its ledger and the Pareto frontier."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import commcanary_lab as lab
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canary.read import read_canary_bytes
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import FormatError, UnknownValueError, UsageError
from commcanary_lab.minimize.judge import Judge
from commcanary_lab.minimize.ledger import verify_ledger
from commcanary_lab.minimize.pareto import pareto
from commcanary_lab.minimize.plan import Plan, Recipe
from commcanary_lab.minimize.search import Search, search
from commcanary_lab.minimize.worst import worst_error
from commcanary_lab.simulate import Backend
from commcanary_lab.trace import Column, Trace
from commcanary_lab.verify.derived import derive
from commcanary_lab.verify.model import Tolerances
from commcanary_lab.verify.run import verify_canary
from tests.golden_traces import golden_trace
from tests.minimize.sources import attributable


@cache
def decode() -> Trace:
    """Enough events for rejected, skipped, duplicate and refined candidates, and a bounded canary that passes."""
    return lab.samples.tp8_decode().take(slice(0, 300))


def blind() -> Trace:
    """A source that does not say its overlap."""
    return replace(decode(), overlap_ns=Column.absent(len(decode())))


@cache
def found() -> Search:
    return search(decode(), range(1, 7))


def test_the_adversarial_trace_needs_at_most_2000_bytes() -> None:
    result = search(golden_trace("adv100"), range(2, 33))
    assert result.canary is not None
    assert result.canary.size_bytes <= 2000
    assert result.passed
    assert result.verification is not None
    assert (result.verification.claim, result.stopped) == ("verified", "complete")
    assert verify_canary(golden_trace("adv100"), read_canary_bytes(result.canary.canonical)).claim == "verified"


def test_the_selected_canary_is_the_smallest_that_passes() -> None:
    result = found()
    assert result.canary is not None
    assert result.selected is not None
    assert result.canary.timing == "bounded_approximate"
    passing = [c for c in result.candidates if c.status in ("accepted", "selected")]
    assert min(c.size_bytes for c in passing) == result.selected.size_bytes == result.canary.size_bytes
    judge = Judge(decode())
    plan = Plan(decode())
    for c in result.candidates:
        canary = plan.canary(c.recipe)
        assert (canary.size_bytes, canary.identity) == (c.size_bytes, c.sha256)
        if canary.size_bytes < result.selected.size_bytes:
            assert not judge.judge(canary).accepted
            assert c.status in ("rejected", "duplicate")
    assert {c.status for c in result.candidates} == {"rejected", "duplicate", "skipped", "selected"}
    assert all(c.reason for c in result.candidates if c.status != "selected")
    assert result.candidates[-1].stage == "refine"
    assert next(c for c in reversed(result.candidates) if c.stage != "refine").recipe.program == "lossless"


def test_the_judgement_is_that_of_verify() -> None:
    plan, judge = Plan(decode()), Judge(decode())
    for recipe in (Recipe("nested", ("records=1",)), Recipe("flat", ("records=3",)), Recipe("nested", ("scale=10",)), Recipe("lossless")):
        canary = plan.canary(recipe)
        check, ours = verify_canary(decode(), canary), judge.judge(canary)
        assert (ours.ranking, ours.behavior, ours.decisions_kept) == (check.ranking, check.behavior, check.decisions_kept)
        assert ours.worst_error == worst_error(check.checks, Tolerances())
        assert (ours.worst_error <= 1) == ours.accepted == (check.ranking == check.behavior == "pass")
        assert (check.commitments, check.bounds) == ("recomputed", "recomputed")


@settings(max_examples=20)
@given(attributable(min_events=1, unknown=False))
def test_plans_compile_as_compile_does(trace: Trace) -> None:
    plan = Plan(trace)
    assert plan.canary(Recipe("nested", ("records=2",))).canonical == compile_trace(trace, records=2).canonical
    for recipe in (Recipe("flat", ("exact",)), Recipe("flat", ("records=1",)), Recipe("nested", ("scale=5",))):
        canary = plan.canary(recipe)
        assert read_canary_bytes(canary.canonical).identity == canary.identity
        check = verify_canary(trace, canary)
        assert (check.commitments, check.bounds, check.traffic, check.coverage) == ("recomputed", "recomputed", "pass", "full_source")


@settings(max_examples=12)
@given(attributable(min_events=1, max_events=20, unknown=False))
def test_every_result_verifies_from_its_bytes(trace: Trace) -> None:
    result = search(trace, range(1, 3), refine=4)
    assert result.canary is not None
    assert verify_canary(trace, read_canary_bytes(result.canary.canonical)).claim == "verified"
    assert verify_ledger(result.ledger(), result.canary, trace).status == "recomputed"


def test_executors_give_the_same_ledger() -> None:
    plain = search(decode(), range(1, 4), scales=(10,), refine=3).ledger()
    with ThreadPoolExecutor(3) as pool:
        assert search(decode(), range(1, 4), scales=(10,), refine=3, executor=pool).ledger() == plain


@pytest.mark.slow
def test_processes_give_the_same_ledger() -> None:
    plain = search(decode(), range(1, 4), scales=(10,), refine=3).ledger()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert search(decode(), range(1, 4), scales=(10,), refine=3, executor=pool).ledger() == plain


def test_progress_and_cancellation() -> None:
    seen, stop = [], threading.Event()

    def progress(candidate: Any, done: int, total: int) -> None:
        seen.append((candidate.index, done, total))
        if len(seen) == 3:
            stop.set()

    result = search(decode(), range(1, 7), progress=progress, cancelled=stop)
    assert (result.stopped, result.canary, result.passed) == ("cancelled", None, False)
    assert [s[:2] for s in seen] == [(0, 1), (1, 2), (2, 3)]
    assert result.ledger()["canary_sha256"] is None
    assert "no canary" in repr(result)
    assert verify_ledger(result.ledger(), compile_trace(decode())).first_difference == "selected: stated None, a canary was given"


def test_the_refinement_stops_at_its_budget() -> None:
    result = search(decode(), range(1, 7), refine=1)
    assert result.stopped == "budget"
    assert sum(c.stage == "refine" for c in result.candidates) == 1
    assert search(decode(), range(1, 3), refine=0).stopped == "budget"


def test_refinement_finds_what_one_budget_for_all_cannot() -> None:
    trace = lab.samples.tp8_decode()
    coarse, fine = (search(trace, (2,), scales=(10, 20), flat=False, refine=n) for n in (0, 12))
    assert coarse.canary is not None
    assert fine.canary is not None
    assert fine.selected is not None
    assert fine.canary.size_bytes < coarse.canary.size_bytes
    assert (fine.selected.stage, fine.passed) == ("refine", True)
    assert len(set(fine.selected.recipe.levels)) > 1


def test_wrong_usage() -> None:
    for records in ((), (0,), (-1, 2)):
        with pytest.raises(UsageError, match="record budgets"):
            search(decode(), records)
    with pytest.raises(UsageError, match="scales"):
        search(decode(), (2,), scales=(0.0,))
    with pytest.raises(UsageError, match="itself reduced"):
        search(derive(decode(), range(10), "by hand"), (2,))
    with pytest.raises(UsageError, match="backends"):
        search(decode(), (2,), backends=[Backend()])
    with pytest.raises(UnknownValueError, match="overlap_us"):
        search(blind(), (2,))


def test_an_assumption_ends_as_unverified() -> None:
    trace = blind()
    result = search(trace, (2, 4), scales=(), refine=0, assume={"overlap_us": 0.0})
    assert result.verification is not None
    assert result.canary is not None
    assert (result.verification.behavior, result.verification.claim, result.passed) == ("unverified", "unverified", False)
    assert verify_ledger(result.ledger(), result.canary, trace).status == "recomputed"


def test_salted_canaries() -> None:
    salt = b"0123456789abcdef"
    result = search(golden_trace("adv100"), (2,), salt=salt)
    assert result.canary is not None
    assert result.canary.source.salted
    assert result.passed
    assert verify_ledger(result.ledger(), result.canary, golden_trace("adv100"), salt=salt).status == "recomputed"


# -- the ledger ------------------------------------------------------------------------------------------------------------


def test_a_ledger_of_another_canary_or_trace() -> None:
    result = found()
    ledger = result.ledger()
    assert result.canary is not None
    assert verify_ledger(ledger, result.canary).status == "consistent"
    assert verify_ledger(ledger, result.canary, decode()).status == "recomputed"
    other = compile_trace(decode())
    assert "canary_sha256" in (verify_ledger(ledger, other).first_difference or "")
    assert not verify_ledger(ledger, result.canary, lab.samples.tp8_decode().take(slice(0, 301))).passed
    for broken in ({**ledger, "candidates": ledger["candidates"][:-1]}, {**ledger, "selected": 900}, {**ledger, "statuses": None}):
        broken["sha256"] = sha256_hex(canonical_bytes({k: v for k, v in broken.items() if k != "sha256"}))
        assert not verify_ledger(broken, result.canary, decode()).passed
    with pytest.raises(FormatError):
        verify_ledger({}, result.canary)


# -- the frontier ----------------------------------------------------------------------------------------------------------


def test_the_frontier_and_the_search_on_it() -> None:
    front = pareto(decode(), range(1, 7))
    assert front.selected is not None
    assert front.selected.on_frontier
    assert front.selected.canary_bytes == found().candidates[front.selected.candidate].size_bytes
    bytes_, errors = zip(*((p.canary_bytes, p.worst_error) for p in front.points), strict=True)
    assert list(bytes_) == sorted(bytes_)
    assert (np.diff(errors) < 0).all()
    for p in front.all_points:
        dominated = any(
            (q.canary_bytes, q.worst_error) != (p.canary_bytes, p.worst_error)
            and q.canary_bytes <= p.canary_bytes
            and q.worst_error <= p.worst_error
            for q in front.all_points
        )
        assert p.on_frontier <= (not dominated)
    assert front.points[-1].worst_error == 0.0
    smaller = [p for p in front.all_points if p.canary_bytes < front.selected.canary_bytes]
    assert smaller
    assert all(p.worst_error > 1 for p in smaller)
    document = front.to_json()
    assert {"canary_bytes", "worst_error", "records"} <= set(document["points"][0])
