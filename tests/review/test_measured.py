"""Two measured traces: known changes are found, noise is not, and nothing depends on chance or on names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.canonical import canonical_bytes, loads_strict
from commcanary_lab.errors import RefusedError
from commcanary_lab.review import MeasuredComparison, Policy, compare_measured, verify_comparison
from commcanary_lab.review.bootstrap import Interval, quantile_replicates
from commcanary_lab.trace import Trace
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import ProcessGroup
from tests.golden_traces import golden_trace

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
BASE_US = (80.0, 200.0, 35.0, 900.0)


def measured(factors: tuple[float, ...] = (1, 1, 1, 1), *, seed: int, n: int = 1200, spread: float = 0.1, group: str = "tp") -> Trace:
    """A recording of four operations with log-normal latencies, in turn, on four ranks."""
    which = np.arange(n) % 4
    median = np.array(BASE_US)[which] * np.array(factors)[which]
    time_ns = (median * np.exp(np.random.default_rng(seed).normal(0, spread, n)) * 1000).astype(np.int64)
    return Trace.build(
        n,
        op=Coded.from_optional([OPS[w] for w in which]),
        groups=(ProcessGroup(group, (0, 1, 2, 3)),),
        group=np.zeros(n, np.int32),
        size_bytes=np.array([1 << 20, 1 << 22, 1 << 16, 1 << 24])[which],
        start_ns=Column(np.arange(n) * 1_000_000),
        duration_ns=Ragged.from_lengths(np.repeat(time_ns, 4), np.full(n, 4)),
    )


def _verdicts(comparison: MeasuredComparison, metric: str = "median") -> dict[str, str]:
    return {r.op: r.verdict for r in comparison.rows if r.metric == metric}


def test_known_changes() -> None:
    found = compare_measured(measured(seed=1), measured((1, 1.3, 0.75, 1.085), seed=2))
    assert _verdicts(found) == {
        "all_reduce": "unchanged",
        "all_gather": "regression",
        "reduce_scatter": "improvement",
        "all_to_all": "inconclusive",  # the true change is at the threshold
    }
    assert found.verdict == "fail"
    row = next(r for r in found.rows if r.op == "all_gather" and r.metric == "median")
    assert row.change_interval is not None
    assert row.change_interval.low < 30 < row.change_interval.high
    assert any("all_gather 4.00 MiB on tp: median changed by" in r for r in found.reasons)
    better = compare_measured(measured(seed=1), measured((1, 1, 0.75, 1), seed=2))
    assert better.verdict == "pass"
    assert better.reasons == ("No operation changed by more than the policy allows.",)


def test_no_change_never_fails() -> None:
    """Over 20 pairs of recordings of the same thing there is no regression and no improvement."""
    policy = Policy(measured_resamples=300)
    pairs = ((measured(seed=seed, n=800), measured(seed=seed + 100, n=800)) for seed in range(20))
    verdicts = [v for a, b in pairs for v in _verdicts(compare_measured(a, b, policy)).values()]
    assert set(verdicts) <= {"unchanged", "inconclusive"}
    assert verdicts.count("unchanged") > 70


def test_intervals_cover_the_truth() -> None:
    """A 95 % interval of the median covers the true one in about 95 of 100 samples."""
    rng = np.random.default_rng(5)
    inside = 0
    for i in range(300):
        sample = np.exp(rng.normal(0, 0.5, 120))
        interval = Interval.of(quantile_replicates(sample, 0.5, 400, f"{i}"), 0.95)
        inside += interval.low <= 1.0 <= interval.high
    assert 270 <= inside <= 297


def test_runs_of_slow_events_widen_the_interval() -> None:
    rng = np.random.default_rng(6)
    slow = np.repeat(rng.normal(0, 1, 40), 25)  # windows of 25 events share their latency
    shuffled = rng.permutation(slow)
    wide, narrow = (Interval.of(quantile_replicates(x, 0.5, 800, "x"), 0.95) for x in (slow, shuffled))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_too_noisy_is_inconclusive() -> None:
    found = compare_measured(measured(seed=1, n=48, spread=1.5), measured((1.2,) * 4, seed=2, n=48, spread=1.5))
    assert set(_verdicts(found).values()) == {"inconclusive"}
    assert found.verdict == "inconclusive"
    assert not found.passed
    assert any("the intervals of both sides cross" in r.reason for r in found.rows)
    assert any("a p95 needs 40 on each side" in r.reason for r in found.rows)
    few = compare_measured(measured(seed=1, n=12), measured(seed=2, n=12))
    assert {r.reason for r in few.rows if r.metric == "median"} == {"3 measurements, a median needs 5 on each side"}


def test_small_times_do_not_count_by_share_alone() -> None:
    tiny = (0.01, 0.01, 0.01, 0.01)  # 0.35 us to 9 us
    slower = (0.01, 0.01, 0.012, 0.01)  # +20 % of 0.35 us is not more than 1 us
    assert set(_verdicts(compare_measured(measured(tiny, seed=1), measured(slower, seed=2))).values()) == {"unchanged"}


def test_the_same_recording_is_unchanged_however_noisy() -> None:
    trace = lab.samples.gloo4()
    found = compare_measured(trace, trace)
    assert (found.verdict, set(r.verdict for r in found.rows)) == ("pass", {"unchanged"})
    assert all(r.change_pct == 0 for r in found.rows)
    assert found.origin == "measured"


def test_operations_that_only_one_side_has() -> None:
    trace = measured(seed=1)
    less = trace.take(np.flatnonzero(np.arange(1200) % 4 != 3))
    found = compare_measured(trace, less)
    assert found.unmeasured == ("all_to_all 16.0 MiB on tp: only in the baseline (300 events)",)
    assert found.verdict == "warn"
    other = compare_measured(less, trace.take(np.flatnonzero(np.arange(1200) % 4 == 3)))
    assert other.verdict == "inconclusive"
    assert other.reasons[0] == "No operation was measured in both traces."


def test_communicator_addresses_do_not_matter() -> None:
    a, b = measured(seed=1, group="0x7f01"), measured((1, 1.3, 1, 1), seed=2, group="0x7fa9")
    assert _verdicts(compare_measured(a, b))["all_gather"] == "regression"


def test_traces_without_latency_are_refused() -> None:
    with pytest.raises(RefusedError, match="candidate trace has no measured latency"):
        compare_measured(measured(seed=1), golden_trace("adv100"))


def test_policy_decides() -> None:
    a, b = measured(seed=1), measured((1, 1.3, 1, 1), seed=2)
    assert compare_measured(a, b, Policy(median_threshold_pct=50, p95_threshold_pct=60)).verdict == "pass"
    assert compare_measured(a, b, Policy(median_absolute_threshold_us=500, p95_absolute_threshold_us=500)).verdict == "pass"
    wide = compare_measured(a, b, Policy(measured_confidence=0.999))
    narrow = compare_measured(a, b, Policy(measured_confidence=0.5))
    for x, y in zip(wide.rows, narrow.rows, strict=True):
        assert x.change_interval is not None
        assert y.change_interval is not None
        assert x.change_interval.low <= y.change_interval.low <= y.change_interval.high <= x.change_interval.high


@settings(max_examples=25)
@given(st.lists(st.floats(0.5, 1e6), min_size=1, max_size=60), st.sampled_from([0.0, 0.5, 0.95, 1.0]), st.text(max_size=5))
def test_replicates(values: list[float], q: float, seed: str) -> None:
    sample = np.array(values)
    a = quantile_replicates(sample, q, 50, seed)
    assert np.array_equal(a, quantile_replicates(sample, q, 50, seed))
    assert (a >= sample.min()).all()
    assert (a <= sample.max()).all()


def test_replicates_are_the_same_everywhere() -> None:
    """Pinned: the raw generator is the same in every numpy version, so a comparison can be recomputed elsewhere."""
    found = quantile_replicates(np.arange(20.0), 0.5, 4, "pinned")
    assert found.tolist() == PINNED


PINNED = [10.5, 13.5, 15.0, 7.5]


def test_other_measurements_are_found() -> None:
    a, b = measured(seed=1, n=48), measured((1, 1.3, 1, 1), seed=2, n=48)
    document: dict[str, Any] = loads_strict(canonical_bytes(compare_measured(a, b, Policy(measured_resamples=100)).to_json()))
    assert verify_comparison(document, a, b).passed
    one = a.duration_ns.values.copy()
    one[:4] += 1
    assert not verify_comparison(document, replace(a, duration_ns=Ragged(one, a.duration_ns.pointers)), b).passed
    assert not verify_comparison(document, b, a).passed


def test_it_shows_itself() -> None:
    found = compare_measured(measured(seed=1), measured((1, 1.3, 1, 1), seed=2))
    assert len(found.df) == 8
    assert {"change_low_pct", "a_high_us"} <= set(found.df.columns)
    assert repr(found).startswith("MeasuredComparison(fail: median 1 regressed")
    assert "<table>" in found._repr_html_()
