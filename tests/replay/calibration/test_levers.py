"""Levers against sums by hand; the worked example digit by digit."""

from __future__ import annotations

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.errors import InputError, RefusedError, UsageError
from commcanary_lab.replay.calibration import Terms, byte_saving_bound, cost_of, factor_rate, fit, levers
from commcanary_lab.replay.calibration.worked_example import LOCAL_ARGMAX, RateParts
from tests.replay.calibration.synthetic import samples
from tests.replay.programs import event, make_trace

TERMS = Terms.assumed(10.0, 2.0)  # a latency-bound 4-rank all_reduce is below 80,000 bytes
FOUR, PAIR = (0, 1, 2, 3), (0, 1)


class TestLevers:
    def test_sums_by_hand(self) -> None:
        trace = make_trace([event("all_reduce", FOUR, 8_000, reduction="sum")] * 5 + [event("all_gather", FOUR, 800_000)])
        small, large = sorted(levers(trace, TERMS, keep_share=0.25, fuse=3).rows, key=lambda r: r.size_bytes)
        # ring of 4: 6 steps, 1.5 B on a link; 3 steps and 0.75 B for the gather; 2 GB/s = 2000 bytes per us
        assert (small.count, small.call_us, small.bound) == (5, pytest.approx(60 + 6), "latency")
        assert (large.count, large.call_us, large.bound) == (1, pytest.approx(30 + 300), "bandwidth")
        assert small.save_bytes_us == pytest.approx(5 * 0.75 * 6)
        assert large.save_bytes_us == pytest.approx(0.75 * 300)
        assert (small.fused_calls, small.fuse_us) == (2, pytest.approx(3 * 60))  # 3 + 2 calls become 1 + 1
        assert (large.fused_calls, large.fuse_us) == (1, 0.0)
        assert (small.remove_us, large.remove_us) == (pytest.approx(5 * 66), pytest.approx(330))
        assert small.save_bytes_interval_us is None

    def test_only_neighbours_of_one_group_with_one_signature_fuse(self) -> None:
        a, b = event("all_reduce", PAIR, 64, reduction="sum"), event("all_reduce", (2, 3), 64, reduction="sum")
        other = event("broadcast", PAIR, 64, root=0)
        interleaved = levers(make_trace([a, b, a, b]), TERMS).rows
        assert [(r.count, r.fused_calls) for r in interleaved] == [(4, 2)]  # the other group stands between, not in the way
        parted = {r.op: r for r in levers(make_trace([a, other, a, other]), TERMS).rows}
        assert parted["all_reduce"].fused_calls == 2
        for change in ({"dtype": "bfloat16"}, {"reduction": "max"}, {"size_bytes": 65}):
            rows = levers(make_trace([a, {**a, **change}, a]), TERMS).rows
            assert sum(r.fused_calls for r in rows) == 3, change
        roots = [event("broadcast", PAIR, 64, root=r) for r in (0, 1, 0)]
        assert levers(make_trace(roots), TERMS).rows[0].fused_calls == 3
        messages = [event("send", PAIR, 64, sender=s, receiver=1 - s) for s in (0, 0, 1)]
        assert levers(make_trace(messages), TERMS).rows[0].fused_calls == 2

    def test_fused_calls_cost_what_the_model_says_of_the_fused_trace(self) -> None:
        one = make_trace([event("all_reduce", FOUR, 4096, reduction="sum")] * 8)
        two = make_trace([event("all_reduce", FOUR, 8192, reduction="sum")] * 4)
        before, after = levers(one, TERMS).rows[0], levers(two, TERMS).rows[0]
        assert before.remove_us - before.fuse_us == pytest.approx(after.remove_us)

    def test_uncertainty_travels(self) -> None:
        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=30, noise=0.1), statistic="median")
        trace = make_trace([event("all_reduce", FOUR, 4096, reduction="sum")] * 10)
        row = levers(trace, found).rows[0]
        assert row.fuse_interval_us is not None
        alpha = found.alpha_interval_us
        assert (row.fuse_interval_us.low, row.fuse_interval_us.high) == pytest.approx((30 * alpha.low, 30 * alpha.high))
        assert row.fuse_us in row.fuse_interval_us
        assert row.remove_interval_us is not None and row.save_bytes_interval_us is not None
        # the terms are correlated: the interval of their sum is narrower than the sum of their intervals
        beta = 2 * row.save_bytes_interval_us.half_width
        assert row.remove_interval_us.half_width < 60 * alpha.half_width + beta

    def test_near_the_half_performance_size_the_bound_is_undecided(self) -> None:
        found = fit(samples(cost_of("all_reduce", 4), 20.0, 3.0, rounds=30, noise=0.1), statistic="median")
        bounds = {}
        for size in (1024, round(found.half_size_bytes), 1 << 26):
            bounds[size] = levers(make_trace([event("all_reduce", FOUR, size, reduction="sum")]), found).rows[0].bound
        assert list(bounds.values()) == ["latency", "undecided", "bandwidth"]

    def test_what_is_not_priced_is_counted(self) -> None:
        trace = make_trace([event("barrier", FOUR, 0, None)] * 3 + [event("all_reduce", (0,), 64), event("all_reduce", FOUR, 64)])
        found = levers(trace, TERMS)
        assert found.unpriced == {"barrier has no cost": 3, "groups of one rank": 1}
        assert sum(r.count for r in found.rows) == 1
        with pytest.raises(RefusedError, match="no event has a latency-bandwidth cost"):
            levers(make_trace([event("barrier", FOUR, 0, None)]), TERMS)

    def test_a_canary_has_the_levers_of_its_trace(self) -> None:
        trace = lab.samples.gloo4()
        assert levers(lab.compile(trace), TERMS).rows == levers(trace, TERMS).rows

    def test_another_operation_than_the_fitted_is_an_assumption(self) -> None:
        found = fit(samples(cost_of("all_gather", 4), 20.0, 3.0))
        same = levers(make_trace([event("all_gather", FOUR, 64)]), found)
        other = levers(make_trace([event("all_reduce", FOUR, 64)]), found)
        assert not any(n.startswith("assumed") for n in same.notes)
        assert any(n.startswith("assumed: a step and a link cost the same") for n in other.notes)

    def test_options(self) -> None:
        trace = make_trace([event("all_gather", FOUR, 64)])
        for wrong in ({"keep_share": 1.0}, {"keep_share": -0.1}, {"fuse": 1}):
            with pytest.raises(UsageError):
                levers(trace, TERMS, **wrong)  # type: ignore[arg-type]
        for terms in ((-1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))):
            with pytest.raises(UsageError):
                Terms.assumed(*terms)
        tree = levers(make_trace([event("all_reduce", FOUR, 64)]), TERMS, algorithm="tree").rows[0]
        assert tree.call_us == pytest.approx(4 * 10 + 2 * 64 / 2000)


class TestWorkedExample:
    def test_bytes(self) -> None:
        assert LOCAL_ARGMAX.factor == 6272
        bounds = [LOCAL_ARGMAX.bound_ms(rate) for rate in (8, 16, 25, 50)]
        assert [round(b, 2) for b in bounds] == [0.45, 0.23, 0.14, 0.07]
        assert bounds[0] == pytest.approx(0.75 * 4_816_128 / 8e6)
        assert byte_saving_bound(4_816_896, 768, 4, 8.0) == pytest.approx(451.512)

    def test_the_cycle_grew_although_bytes_fell(self) -> None:
        assert round(LOCAL_ARGMAX.growth_ms, 2) == 1.03
        assert LOCAL_ARGMAX.collectives_per_cycle == 97
        for rate, most in ((8, 1.48), (50, 1.10)):
            low, high = LOCAL_ARGMAX.added_ms(rate)
            assert (round(low, 2), round(high, 2)) == (1.03, most)
            assert low > LOCAL_ARGMAX.bound_ms(rate)  # what was added cost more than the bytes can have saved

    def test_the_rate_falls_through_the_cycle_time(self) -> None:
        change = LOCAL_ARGMAX.rate
        assert change.before.per_second == pytest.approx(100.513, abs=0.001)
        assert change.after.per_second == pytest.approx(97.935, abs=0.001)
        assert change.change == pytest.approx(97.9346 / 100.5133 - 1, abs=1e-5)
        assert change.cycle_share == pytest.approx(0.99416, abs=1e-5)
        assert change.emitted_share == pytest.approx(0.00584, abs=1e-5)
        assert change.log_emitted + change.log_cycle == pytest.approx(np.log(change.after.per_second / change.before.per_second))

    def test_factors_that_pull_apart_and_rates_that_stay(self) -> None:
        apart = factor_rate(RateParts(4.0, 40.0), RateParts(3.0, 20.0))
        assert apart.emitted_share is not None and apart.cycle_share is not None
        assert apart.emitted_share < 0 < 1 < apart.cycle_share
        same = factor_rate(RateParts(4.0, 40.0), RateParts(4.0, 40.0))
        assert (same.change, same.cycle_share, same.emitted_share) == (0.0, None, None)

    def test_wrong_numbers(self) -> None:
        for wrong in ((0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)):
            with pytest.raises(InputError):
                RateParts(*wrong)
        with pytest.raises(UsageError):
            byte_saving_bound(1, 0, 4, 0.0)
        with pytest.raises(UsageError):
            byte_saving_bound(-1, 0, 4, 8.0)
        with pytest.raises(RefusedError):
            byte_saving_bound(1, 0, 1, 8.0)
