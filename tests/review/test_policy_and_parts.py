"""Policies as TOML there and back, sentences that follow the policy, and where a change comes from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commcanary_lab as lab
from commcanary_lab.errors import InputError
from commcanary_lab.review import Policy, compare, localise
from commcanary_lab.review.policy import parse_policy
from commcanary_lab.simulate.report_file import ReportFile


@given(st.floats(0, 1e9), st.floats(0, 1), st.integers(0, 2**63 - 1))
def test_a_policy_survives_toml(pct: float, fraction: float, seed: int) -> None:
    policy = Policy(p99_threshold_pct=pct, warn_fraction=fraction, measured_seed=seed)
    assert parse_policy(policy.to_toml().encode(), file="p.toml") == policy
    assert Policy.from_mapping(policy.changed()) == policy


def test_a_kind_writes_only_what_it_uses() -> None:
    assert "measured_seed" not in Policy().to_toml("reports")
    assert "warn_fraction" not in Policy().to_toml("measured")


@pytest.mark.parametrize(
    ("text", "match"),
    [(b"p99_threshold_pct = ", "not TOML"), (b"\xff", "not UTF-8 text"), (b"p98 = 1", "unknown threshold 'p98'"),
     (b"[policy]\np99_threshold_pct = -2", "is -2; expected"), (b"x = 1\n[policy]\n", "beside the table")],
)  # fmt: skip
def test_a_bad_policy_names_its_file(text: bytes, match: str) -> None:
    with pytest.raises(InputError, match=rf"^mine.toml: .*{match}"):
        parse_policy(text, file="mine.toml")


def test_a_warning_names_the_share_that_it_exceeds() -> None:
    trace = lab.samples.adversarial()
    a, b = lab.simulate(trace), lab.simulate(trace, "overlap_friendly")
    halves, tenths = (compare(a, b, Policy(p99_threshold_pct=20, warn_fraction=f)).reasons for f in (0.5, 0.1))
    assert any(r.startswith("p99 rose by 11.4 %") and "more than half of the allowed 20 %" in r for r in halves)
    assert any(r.startswith("p99 rose by 11.4 %") and "more than 10 % of the allowed 20 %" in r for r in tenths)


def test_parts_add_up_to_the_whole() -> None:
    trace = lab.samples.tp8_decode()
    base, candidate = (lab.simulate(trace, b) for b in ("baseline", "congested"))
    found = compare(base, candidate)
    whole = float(candidate.samples.exposed_us.sum() - base.samples.exposed_us.sum())
    for scope in ("phase", "operation"):
        parts = localise(found, scope)
        # means have 3 decimals
        assert sum(p.delta_us for p in parts) == pytest.approx(whole, abs=0.001 * len(trace))
        assert sum(p.share for p in parts) == pytest.approx(1)
        assert [p.delta_us for p in parts] == sorted((p.delta_us for p in parts), reverse=True)
    back = localise(compare(candidate, base), "phase")
    assert all(p.share == 0 and p.delta_us < 0 for p in back)


def test_a_part_that_one_side_lacks_counts_as_nothing_there() -> None:
    a = ReportFile.of(lab.simulate(lab.samples.tp8_decode()))
    b = replace(a, by_phase={k: v for k, v in a.by_phase.items() if k != "prefill"})
    gone = {p.name: p for p in localise(compare(a, b), "phase")}["prefill"]
    assert gone.candidate_us == 0
    assert gone.baseline_us > 0
    assert localise(compare(b, a), "phase")[0].share == 1
