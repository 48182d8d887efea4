"""A series: order, verdicts, steps that are no chance, and entries that cannot be compared but stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import UsageError
from commcanary_lab.review import Policy, compare, history
from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.steps import steps
from commcanary_lab.simulate import Backend
from commcanary_lab.simulate.report_file import parse_report
from commcanary_lab.trace.model import Trace
from tests.review.test_measured import measured


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    trace = lab.samples.tp8_decode()
    return {
        "fast": lab.simulate(trace, Backend("now")),
        "slow": lab.simulate(trace, Backend("new", bandwidth_gbps=45.0)),
        "seed": lab.simulate(trace, Backend("now", seed=8)),
        "other": lab.simulate(lab.samples.adversarial()),
    }


@pytest.fixture(scope="module")
def weeks(reports: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"job.2026-W{40 + i}.json", reports["slow" if i >= 4 else "fast"]) for i in range(7)]


def test_each_entry_against_the_first(weeks: list[tuple[str, Any]]) -> None:
    found = history(weeks)
    assert [e.verdict for e in found.entries] == ["baseline", "pass", "pass", "pass", "fail", "fail", "fail"]
    assert (found.verdict, found.passed, found.kind) == ("fail", False, "reports")
    assert found.entries[0].date == "2026-09-28"
    expected = compare(weeks[0][1], weeks[-1][1])
    newest = found.newest.comparison
    assert newest is not None
    assert newest.to_json() == expected.to_json()
    assert found.newest.figure("p99_us") == weeks[-1][1].metrics["p99_us"]
    assert found.sentences[0].startswith("The newest entry job.2026-W46.json fails against job.2026-W40.json: p99 +21.1 %")
    assert found.sentences[1] == "It has been so since job.2026-W44.json; job.2026-W43.json passed."


def test_the_step_is_where_it_was_made(weeks: list[tuple[str, Any]]) -> None:
    found = history(weeks)
    assert {e.name for e, _ in found.moved} == {"job.2026-W44.json"}
    assert all(s.verdict == "rise" and s.interval is not None and s.interval.low > 0 for _, s in found.moved)
    assert {s.verdict for e in found.entries if e.name != "job.2026-W44.json" for s in e.steps} == {"same"}
    assert any("From job.2026-W43.json to job.2026-W44.json" in s for s in found.sentences)


def test_previous_and_named_baselines(weeks: list[tuple[str, Any]]) -> None:
    previous = history(weeks, baseline="previous")
    assert [e.verdict for e in previous.entries] == ["baseline", "pass", "pass", "pass", "fail", "pass", "pass"]
    assert [e.against for e in previous.entries] == [None, *(n for n, _ in weeks[:-1])]
    named = history(weeks, baseline=weeks[5][0])
    assert [e.verdict for e in named.entries] == ["pass", "pass", "pass", "pass", "pass", "baseline", "pass"]
    with pytest.raises(UsageError, match="no entry is named 'gone'"):
        history(weeks, baseline="gone")


def test_a_policy_turns_verdicts(weeks: list[tuple[str, Any]]) -> None:
    lax = Policy(p99_threshold_pct=90, p95_threshold_pct=90, median_threshold_pct=90, breakdown_threshold_pct=90)
    assert history(weeks, lax).passed
    assert history(weeks, lax).to_json()["policy_sha256"] == lax.sha256("reports")


def test_what_cannot_be_compared_stays_with_its_reason(reports: dict[str, Any]) -> None:
    series = [("1", reports["fast"]), ("2", reports["other"]), ("3", reports["seed"]), ("4", lab.samples.gloo4()), ("5", reports["slow"])]
    found = history(series)
    assert [e.verdict for e in found.entries] == ["baseline", "incomparable", "incomparable", "incomparable", "fail"]
    assert [e.name for e in found.incomparable] == ["2", "3", "4"]
    assert "events: 2015 against 100" in found.incomparable[0].problem
    assert "seed: 7 against 8" in found.incomparable[1].problem
    assert found.incomparable[2].problem == "it is a measured trace, and the baseline 1 is a report"
    assert found.newest.before == "1"  # steps pass over them
    assert any(s.startswith("3 of 5 entries cannot be compared (2: ") for s in found.sentences)
    allowed = history(series[:3], allow_incompatible=True)
    assert [e.verdict for e in allowed.entries][2] == "warn"


def test_the_newest_must_be_comparable(reports: dict[str, Any]) -> None:
    found = history([("1", reports["fast"]), ("2", reports["other"])])
    assert (found.verdict, found.passed) == ("incomparable", False)


@pytest.mark.parametrize(
    ("names", "order", "by"),
    [
        (["b.2026-11-09", "a.2026-11-16", "c.2026-11-02"], ["c.2026-11-02", "b.2026-11-09", "a.2026-11-16"], "the date in each name"),
        (["run10", "run9", "run11"], ["run9", "run10", "run11"], "name, because not every entry states a date"),
        (["b.2026-11-09", "a"], ["a", "b.2026-11-09"], "name, because not every entry states a date"),
    ],
)
def test_order(reports: dict[str, Any], names: list[str], order: list[str], by: str) -> None:
    found = history([(n, reports["fast"]) for n in names])
    assert ([e.name for e in found.entries], found.ordered_by) == (order, by)
    kept = history([(n, reports["fast"]) for n in names], keep_order=True)
    assert [e.name for e in kept.entries] == names


def test_a_date_in_the_artifact_comes_before_the_name(reports: dict[str, Any]) -> None:
    def noted(report: Any, day: str) -> Any:
        return parse_report(report.to_json(samples=True) | {"notes": [f"recorded on {day} by hand"]})

    found = history([("z.2026-01-01", noted(reports["fast"], "2026-11-09")), ("a.2026-02-01", noted(reports["fast"], "2026-11-16"))])
    assert [e.date for e in found.entries] == ["2026-11-09", "2026-11-16"]
    assert found.ordered_by == "the date that each artifact states"
    described = replace(lab.samples.gloo4(), notes=(), system={"recorded_at": "2026-11-03T23:30:00-02:00"})
    pair = history([("x", described), ("y", described)])
    assert pair.entries[0].date == "2026-11-04"


def test_measured_traces() -> None:
    series = [(f"t{i}", measured((1.5,) * 4 if i >= 3 else (1.0,) * 4, seed=i, n=800, spread=0.05)) for i in range(5)]
    found = history(series)
    assert found.kind == "measured"
    assert [e.verdict for e in found.entries][:3] == ["baseline", "pass", "pass"]
    assert [e.verdict for e in found.entries][3:] == ["fail", "fail"]
    # the median lies in the gap between two operations, where it scatters: it is not said to have moved
    assert {(e.name, s.metric) for e, s in found.moved} == {("t3", "p95"), ("t3", "p99")}
    empty = lab.samples.adversarial()
    assert "no measured latency" in history([*series, ("t9", empty)]).newest.problem
    with pytest.raises(UsageError, match="cannot be the baseline"):
        history([*series, ("t9", empty)], baseline="t9")


def test_no_common_operation_is_no_comparison() -> None:
    a = measured(seed=1, n=60)
    other = replace(a, size_bytes=a.size_bytes * 3)
    found = history([("a", a), ("b", other)])
    assert found.newest.problem == "no operation was measured both in it and in a"


def test_noise_alone_hardly_ever_shows_a_step() -> None:
    """The same distribution on both sides; 20 tests share 5 %, so that one quantile of 400 may look moved by chance."""
    found = 0
    for i in range(60):
        rng = np.random.default_rng(i)
        tested = steps(rng.lognormal(4, 0.5, 80), rng.lognormal(4, 0.5, 80), Policy(), paired=False, tests=20, seed=str(i))
        found += sum(s.moved for s in tested)
        assert [s.verdict for s in tested][2] == "untested"
    assert found <= 2


@settings(max_examples=10)
@given(factor=st.floats(1.3, 4), seed=st.integers(0, 1000))
def test_a_real_change_is_found_in_its_direction(factor: float, seed: int) -> None:
    values = np.random.default_rng(seed).lognormal(4, 0.2, 200)
    up = steps(values, values * factor, Policy(measured_resamples=400), paired=True, tests=20, seed="x")
    assert {s.verdict for s in up} == {"rise"}
    assert {s.verdict for s in steps(values * factor, values, Policy(measured_resamples=400), paired=True, tests=20, seed="x")} == {"fall"}
    assert all(s.interval is not None and abs(s.interval.low - (factor - 1) * 100) < 0.01 for s in up)


def test_few_values_and_zeros_are_not_tested() -> None:
    few = steps(np.arange(1.0, 5), np.arange(2.0, 6), Policy(), paired=True, tests=1, seed="a")
    assert [(s.metric, s.verdict) for s in few] == [(m, "untested") for m in ("median", "p95", "p99")]
    zeros = steps(np.zeros(300), np.arange(300.0), Policy(), paired=True, tests=1, seed="a")
    assert {s.verdict for s in zeros} == {"untested"}
    assert steps(None, np.ones(3), Policy(), paired=False, tests=1, seed="a") == ()


def test_reports_without_samples_have_verdicts_but_no_steps(reports: dict[str, Any]) -> None:
    found = history([(n, parse_report(reports[n].to_json())) for n in ("fast", "slow")])
    assert found.verdict == "fail"
    assert not found.newest.steps
    assert any("was not tested" in s for s in found.sentences)


def test_one_entry_twins_and_repeats(reports: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="two entries"):
        history([("a", reports["fast"])])
    with pytest.raises(UsageError, match="two entries are named 'a'"):
        history([("a", reports["fast"]), ("a", reports["slow"])])


def test_document_and_frame(weeks: list[tuple[str, Any]]) -> None:
    found = history(weeks)
    document = found.to_json()
    canonical_bytes(document)
    assert document["format"] == "commcanary_lab.history.v1"
    assert [r["verdict"] for r in document["rows"]] == [e.verdict for e in found.entries]
    assert document["rows"][4]["deltas"]["p99_pct"] == 21.06
    assert list(found.df.p99_us) == [e.figure("p99_us") for e in found.entries]
    assert found.df.step_p99.tolist()[4] == "rise"
    assert "job.2026-W46.json" in found._repr_html_()
    assert history(weeks).to_json() == document  # no chance that is not seeded


def test_a_memo_is_asked_once_per_pair(weeks: list[tuple[str, Any]]) -> None:
    known: dict[str, Any] = {}
    computed: list[str] = []

    def memo(key: str, compute: Any) -> Any:
        if key not in known:
            computed.append(key)
            known[key] = compute()
        return known[key]

    first = history(weeks, memo=memo)
    count = len(computed)
    assert count == 2 + 3  # equal files are one pair: fast-fast and fast-slow, and the steps also slow-slow
    again = history(weeks, memo=memo)
    assert len(computed) == count
    assert again.to_json() == first.to_json()
    strict = history(weeks, Policy(p99_threshold_pct=1), memo=memo)
    assert len(computed) == count + 2  # another policy compares anew, and resamples nothing
    assert isinstance(strict.newest.comparison, Comparison)
    assert isinstance(lab.samples.gloo4(), Trace)
