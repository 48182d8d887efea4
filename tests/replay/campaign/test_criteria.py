"""Criteria on runs whose times are chosen: values, intervals, verdicts."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commcanary_lab.replay.calibration.resample import Interval
from commcanary_lab.replay.campaign.criteria import bounds_of, verdict_of
from commcanary_lab.replay.campaign.decide import decide
from commcanary_lab.replay.campaign.outcome import Finding
from commcanary_lab.replay.campaign.preregistration import Criterion, Decision
from commcanary_lab.replay.spec import RunState

from .builder import PROBE, Lab, Made, paired

pytest.importorskip("torch")


def criterion(name: str = "c", **fields: object) -> str:
    """Return a criterion as TOML."""
    told = {"name": name, **fields}
    lines = [f"{k} = {str(v).lower() if isinstance(v, bool) else repr(v)}" for k, v in told.items()]
    return "[[criteria]]\n" + "\n".join(lines).replace("'", '"') + "\n"


def saving(each_us: list[float], noise_us: float = 2.0):  # type: ignore[no-untyped-def]
    """Return cycles in which each rank of the candidate saves something; repetitions differ a little."""

    def cycle(name: str, run: int, rank: int, iteration: int) -> float:
        base = 40_380 + noise_us * run
        return base if name == "control" else base - each_us[rank] + noise_us * (run % 2)

    return cycle


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.at(tmp_path)


def finding(lab: Lab, text: str, made: Made, **options: object) -> Finding:
    """Run a campaign of one criterion and return its finding."""
    return lab.run(paired(text, **options), made).outcome.criteria[-1]  # type: ignore[arg-type]


class TestPaired:
    def test_a_saving_on_every_rank_and_of_the_fleet(self, tmp_path: Path) -> None:
        lab = Lab.at(tmp_path, ranks=4)
        text = criterion("rank", metric="cycle_us", aggregate="every_rank", compare="difference", at_least=1000.0)
        text += criterion("fleet", metric="cycle_us", aggregate="fleet_median", compare="difference", at_least=1500.0)
        text += criterion("launches", metric="launches", aggregate="every_rank", compare="reduction_pct", at_least=60.0)
        campaign = lab.run(paired(text, ranks=4), Made(saving([1100, 1600, 1700, 1600])))
        rank, fleet, launches = campaign.outcome.criteria
        assert (campaign.decision, campaign.exit_code) == ("pass", 0)
        assert rank.per_rank == pytest.approx((1099, 1599, 1699, 1599))
        assert rank.value == pytest.approx(1099)
        assert (rank.low, rank.high) == (pytest.approx(1098), pytest.approx(1100))
        assert fleet.value == pytest.approx(1599)
        assert launches.value == pytest.approx(60.0)
        assert launches.low is None

    def test_one_rank_that_saves_less_fails_it_and_is_named(self, tmp_path: Path) -> None:
        lab = Lab.at(tmp_path, ranks=4)
        text = criterion(metric="cycle_us", aggregate="every_rank", compare="difference", at_least=1000.0)
        found = finding(lab, text, Made(saving([1100, 1600, 800, 1600])), ranks=4)
        assert (found.verdict, found.reason, found.value) == ("fail", "rank 2", pytest.approx(799))

    def test_a_negative_result_is_a_result(self, lab: Lab) -> None:
        text = criterion(metric="fleet_cycle_us", compare="difference", at_least=1.0)
        campaign = lab.run(paired(text), Made(saving([-1030, -1030])))
        assert (campaign.decision, campaign.exit_code) == ("fail", 1)
        assert campaign.outcome.stopped is None
        assert "c: -1,031 us against >= 1" in campaign.outcome.reason.replace("-1031", "-1,031")

    def test_an_interval_across_the_boundary_is_inconclusive(self, lab: Lab) -> None:
        def cycle(name: str, run: int, rank: int, iteration: int) -> float:
            return 10_000 - (0 if name == "control" else (90, 110)[run % 2])

        text = criterion(metric="fleet_cycle_us", compare="difference", at_least=100.0)
        found = finding(lab, text, Made(cycle))
        assert (found.verdict, found.reason) == ("inconclusive", "the interval crosses the boundary")
        assert found.low is not None and found.high is not None
        assert found.low < 100 < found.high

    def test_a_drift_falls_on_both_alike(self, lab: Lab) -> None:
        """The order is A B B A: a machine that becomes slower by 10 us per run changes no difference on average."""
        made = Made()
        made.cycle_us = lambda name, run, rank, iteration: 5000 + 10 * len(made.started) - (100 if name == "candidate" else 0)
        text = criterion(metric="fleet_cycle_us", compare="difference", at_most=1000.0, repetitions="mean")
        found = finding(lab, text, made)
        assert made.started[:4] == ["control", "candidate", "candidate", "control"]
        assert found.value == pytest.approx(100)

    @pytest.mark.parametrize(("compare", "value"), [("difference", 250.0), ("reduction_pct", 25.0), ("ratio", 0.75)])
    def test_comparisons(self, lab: Lab, compare: str, value: float) -> None:
        made = Made(lambda name, run, rank, iteration: 1000 if name == "control" else 750)
        found = finding(lab, criterion(metric="fleet_cycle_us", compare=compare, at_least=0.0), made)
        assert (found.value, found.low, found.high, found.verdict) == (*[pytest.approx(value)] * 3, "pass")


class TestStability:
    def test_a_spread_beyond_the_limit_is_inconclusive(self, lab: Lab) -> None:
        cycles = [1000, 1500, 1000, 1500, 1000, 1500]
        made = Made(lambda name, run, rank, iteration: cycles[run] - (900 if name == "candidate" else 0))
        text = criterion(metric="fleet_cycle_us", compare="difference", at_least=100.0)
        found = finding(lab, text, made)
        # the candidate's repetitions are 100 and 600 us
        assert found.spread == pytest.approx(np.std([100, 600] * 3, ddof=1) / 350)
        assert (found.verdict, found.reason) == ("inconclusive", "the repetitions spread by 78.2%, more than 10.0%")

    def test_its_own_limit(self, lab: Lab) -> None:
        cycles = [1000, 1500] * 3
        made = Made(lambda name, run, rank, iteration: cycles[run] - (900 if name == "candidate" else 0))
        text = criterion(metric="fleet_cycle_us", compare="difference", at_least=100.0, stability_limit=0.8)
        assert finding(lab, text, made).verdict == "pass"

    def test_counts_have_no_spread(self, lab: Lab) -> None:
        found = finding(lab, criterion(metric="launches", aggregate="sum", configuration="control", equals=10.0), Made())
        assert (found.spread, found.value, found.verdict) == (None, 10.0, "pass")


class TestCounts:
    def test_outputs_equal(self, lab: Lab) -> None:
        text = criterion(metric="outputs_equal", aggregate="count", configuration="candidate", all=True)
        found = finding(lab, text, Made(), probe=PROBE, repetitions=2)
        # 2 events x 4 samples x 2 ranks x 2 repetitions
        assert (found.value, found.total, found.verdict) == (32.0, 32, "pass")

    def test_runs_that_passed(self, lab: Lab) -> None:
        text = criterion(metric="probe_pass", aggregate="count", configuration="candidate", equals=2.0)
        assert finding(lab, text, Made(), probe=PROBE, repetitions=2).verdict == "pass"

    def test_values_within(self, lab: Lab) -> None:
        made = Made(lambda name, run, rank, iteration: 1000 + 50 * rank + run)
        text = criterion(metric="cycle_us", aggregate="count", configuration="control", each_at_most=1030.0, at_least=7.0)
        found = finding(lab, text, made)
        assert (found.value, found.total, found.verdict, found.unit) == (6.0, 12, "fail", "values")

    def test_a_count_holds_in_every_repetition_of_either_end(self, lab: Lab) -> None:
        for bounds, verdict in (({"at_least": 5.0, "at_most": 5.0}, "pass"), ({"at_least": 4.0, "at_most": 4.5}, "fail")):
            lab.folder.joinpath("evidence").mkdir(exist_ok=True)
            text = criterion(metric="launches", aggregate="max", configuration="control", **bounds)
            found = lab.run(paired(text), Made(), out=f"evidence/{verdict}").outcome.criteria[-1]
            assert (found.verdict, found.value) == (verdict, 5.0)

    def test_filters(self, lab: Lab) -> None:
        text = criterion("ag", metric="launches", aggregate="min", configuration="control", op="all_gather", equals=4.0)
        text += criterion("ar", metric="latency_us", aggregate="max", configuration="control", op="all_reduce", at_most=1e6)
        text += criterion("com", metric="communication_us", aggregate="max", configuration="control", at_most=1e6)
        text += criterion("wait", metric="wait_us", aggregate="max", configuration="control", at_most=1e6)
        text += criterion("size", metric="fleet_latency_us", configuration="control", size_bytes=64, at_most=1e6)
        text += criterion("bytes", metric="payload_bytes", aggregate="every_rank", configuration="control", equals=4 * 128 + 64.0)
        campaign = lab.run(paired(text), Made())
        values = {f.name: f.value for f in campaign.outcome.criteria}
        # a cycle of 1000 us is 5 events of 200 us, of which 20 us wait at the barrier
        assert values == pytest.approx({"ag": 4, "ar": 180, "com": 900, "wait": 100, "size": 180, "bytes": 576})
        assert campaign.decision == "pass"

    def test_statistics_of_iterations(self, lab: Lab) -> None:
        made = Made(lambda name, run, rank, iteration: (1000, 2000, 6000)[iteration] if iteration >= 0 else 99_999)
        text = "".join(
            criterion(s, metric="fleet_cycle_us", configuration="control", statistic=s, at_least=0.0)
            for s in ("min", "p50", "mean", "max", "p90")
        )
        values = {f.name: f.value for f in lab.run(paired(text), made).outcome.criteria}
        assert values == pytest.approx({"min": 1000, "p50": 2000, "mean": 3000, "max": 6000, "p90": 5200})


class TestIncomparable:
    TEXT = criterion(metric="fleet_cycle_us", compare="difference", at_least=-1e9)

    def test_other_machines(self, lab: Lab) -> None:
        campaign = lab.run(paired(self.TEXT), Made(hosts={"candidate": "node1"}))
        found = campaign.outcome.criteria[0]
        assert (found.verdict, campaign.decision, campaign.exit_code) == ("incomparable", "incomparable", 1)
        assert "node0" in found.reason and "node1" in found.reason

    def test_counts_that_are_not_the_pinned_ones_stop_before_the_first_run(self, lab: Lab) -> None:
        text = self.TEXT + '[[audits]]\nconfigurations = ["candidate"]\ncounts = { all_gather = 2, all_reduce = 1 }\ntotal = 3\n'
        made = Made()
        campaign = lab.run(paired(text), made)
        assert (campaign.decision, made.started) == ("incomparable", [])
        assert campaign.outcome.stopped is not None
        assert (campaign.outcome.stopped.kind, campaign.outcome.stopped.after_run) == ("audit", 0)
        assert campaign.outcome.reason == "counts differ: candidate, rank 0: 1 all_gather instead of 2; 2 events instead of 3"
        assert campaign.verify().passed

    def test_counts_of_a_run_that_are_not_the_programs_stop_the_campaign(self, lab: Lab) -> None:
        made = Made(counts={"candidate": {"all_gather": 7, "all_reduce": 1}})
        campaign = lab.run(paired(self.TEXT), made)
        assert (campaign.decision, made.started) == ("incomparable", ["control", "candidate"])
        assert campaign.outcome.audits[0].startswith("candidate, rank 0: events {'all_gather': 7")
        assert campaign.verify().passed


class TestIncomplete:
    def test_a_run_that_fails_ends_the_campaign_and_keeps_what_there_is(self, lab: Lab) -> None:
        made = Made(saving([100, 100]))
        made.status[("candidate", 1)] = RunState(status="failed", seconds=1, failed_rank=1, reason="rank 1: RuntimeError: gone")
        campaign = lab.run(paired(criterion(metric="fleet_cycle_us", compare="difference", at_least=50.0)), made)
        assert (campaign.decision, campaign.exit_code) == ("inconclusive", 4)
        assert campaign.outcome.reason == "run 3 (candidate): rank 1: RuntimeError: gone"
        found = campaign.outcome.criteria[0]
        assert (found.value, found.repetitions, found.reason) == (100.0, 1, "1 of 6 repetitions are complete")
        assert [r.status for r in campaign.runs] == ["done", "done", "failed"]
        assert campaign.verify().passed


class TestRates:
    def test_the_whole_regression_is_cycle_time(self, lab: Lab) -> None:
        made = Made(lambda name, run, rank, iteration: 39_350 if name == "control" else 40_380)
        text = '[[rates]]\nname = "tokens/s"\nper_cycle = { control = 3.9552, candidate = 3.9546 }\n'
        text += criterion("rate", metric="rate", rate="tokens/s", compare="ratio", at_least=1.0)
        campaign = lab.run(paired(text), made)
        (f,) = campaign.outcome.factors
        assert (round(f.control_rate, 2), round(f.candidate_rate, 2)) == (100.51, 97.93)
        assert f.cycle_share == pytest.approx(0.9941, abs=1e-4)
        assert (f.per_cycle_pct, f.cycle_pct) == (pytest.approx(-0.01517, abs=1e-5), pytest.approx(-2.5508, abs=1e-4))
        assert campaign.outcome.criteria[0].value == pytest.approx(97.934 / 100.513, abs=1e-4)
        assert campaign.decision == "fail"


class TestVerdicts:
    ENDS = st.one_of(st.none(), st.integers(-5, 5).map(float))

    @given(low=st.integers(-6, 6), width=st.integers(0, 6), at_least=ENDS, at_most=ENDS)
    def test_a_verdict_is_what_all_values_of_the_interval_say(
        self, low: int, width: int, at_least: float | None, at_most: float | None
    ) -> None:
        if at_least is not None and at_most is not None and at_least > at_most:
            return
        bounds = bounds_of(Criterion(name="c", metric="cycle_us", at_least=at_least, at_most=at_most))
        inside = {
            (at_least is None or x >= at_least) and (at_most is None or x <= at_most) for x in np.arange(low, low + width + 0.25, 0.25)
        }
        expected = "pass" if inside == {True} else "fail" if inside == {False} else "inconclusive"
        found = verdict_of(Interval(float(low), float(low + width)), bounds)
        # an interval around the whole allowed range has both ends outside, on either side
        assert found == expected

    @given(
        st.lists(st.sampled_from(["pass", "fail", "inconclusive"]), min_size=1, max_size=5),
        st.sampled_from(["all", "any", "at_least"]), st.integers(1, 5),
    )  # fmt: skip
    def test_a_decision_holds_however_the_open_criteria_turn_out(self, verdicts: list[str], rule: str, k: int) -> None:
        minimum = min(k, len(verdicts)) if rule == "at_least" else None
        asked = Decision(rule=rule, minimum=minimum)  # type: ignore[arg-type]

        def decided(words: tuple[str, ...]) -> str:
            return decide(asked, [Finding(name="c", metric="", unit="", boundary="", verdict=w) for w in words]).decision  # type: ignore[arg-type]

        ends = {decided(words) for words in product(*(("pass", "fail") if v == "inconclusive" else (v,) for v in verdicts))}
        assert decided(tuple(verdicts)) == (ends.pop() if len(ends) == 1 else "inconclusive")
        assert "inconclusive" not in ends

    def test_incomparable_comes_first_and_what_is_not_required_does_not_count(self) -> None:
        def make(*words: tuple[str, bool]) -> list[Finding]:
            return [Finding(name=w, metric="", unit="", boundary="", verdict=w, required=r) for w, r in words]  # type: ignore[arg-type]

        assert decide(Decision(), make(("pass", True), ("fail", True), ("incomparable", True))).decision == "incomparable"
        assert decide(Decision(), make(("pass", True), ("fail", False), ("incomparable", False))).decision == "pass"
        assert decide(Decision(rule="any"), make(("pass", True)), make(("fail", True))).decision == "fail"
        assert decide(Decision(rule="any"), make(("pass", True)), make(("inconclusive", True))).decision == "inconclusive"


def test_resampling_is_seeded_by_manifest_and_name(lab: Lab) -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 10, (2, 6))
    made = Made(lambda name, run, rank, iteration: 1000 + noise[int(name == "candidate"), run])
    text = "".join(criterion(n, metric="fleet_cycle_us", compare="difference", at_least=0.0, repetitions="mean") for n in ("a", "b"))
    first, second = lab.run(paired(text), made, out="evidence/a"), None
    made.started.clear()
    second = lab.run(paired(text), made, out="evidence/b")
    assert first.manifest.sha256 == second.manifest.sha256
    assert first.outcome == second.outcome
    a, b = first.outcome.criteria
    assert a.value == b.value
    assert (a.low, a.high) != (b.low, b.high)
