"""Rankings against a reference: pairs, tau-b, intervals; alone and in a campaign."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from commcanary_lab.replay.campaign.agreement import _intervals, agree

from .builder import Lab, Made, write_trace

VALUES = st.lists(st.integers(1, 6).map(float), min_size=2, max_size=7)


@given(st.integers(2, 7).flatmap(lambda n: st.tuples(*[st.lists(st.integers(1, 6).map(float), min_size=n, max_size=n)] * 2)))
def test_pairs_and_tau_b_are_those_of_the_definition(values: tuple[list[float], list[float]]) -> None:
    a, b = values
    found = agree("other", {str(i): np.array([v]) for i, v in enumerate(b)}, {str(i): np.array([v]) for i, v in enumerate(a)})
    expected = [(np.sign(a[i] - a[j]), np.sign(b[i] - b[j])) for i, j in combinations(range(len(a)), 2)]
    assert found.agreeing == sum(x == y for x, y in expected)
    assert len(found.false_positives) == sum(x == 0 != y for x, y in expected)
    assert len(found.false_negatives) == sum(y == 0 != x for x, y in expected)
    assert len(found.inversions) == sum(x * y < 0 for x, y in expected)
    assert found.agreeing + len(found.false_positives) + len(found.false_negatives) + len(found.inversions) == len(expected)
    tau = kendalltau(a, b, variant="b").statistic
    assert found.tau_b == (None if np.isnan(tau) else pytest.approx(tau))


@given(st.integers(2, 6).flatmap(lambda n: st.tuples(*[st.lists(st.integers(1, 5).map(float), min_size=n, max_size=n)] * 2)))
def test_resampled_tau_b_is_the_same_figure(values: tuple[list[float], list[float]]) -> None:
    """With repetitions that are all alike every resample gives the value itself."""
    a, b = ({str(i): np.full(4, v) for i, v in enumerate(side)} for side in values)
    agreement, tau = _intervals(b, a, tuple(a), 0.0, 0.95, np.zeros((10, 4), np.int64))
    found = agree("other", b, a)
    assert agreement is not None and agreement.low == pytest.approx(found.pair_agreement)
    assert (tau is None) == (found.tau_b is None)
    assert tau is None or tau.low == pytest.approx(found.tau_b)


def test_ties_within_a_share() -> None:
    a, b = {"x": np.array([100.0]), "y": np.array([102.0])}, {"x": np.array([100.0]), "y": np.array([103.0])}
    found = agree("other", b, a, tie_fraction=0.02)
    assert [(p.reference, p.other) for p in found.false_positives] == [("tie", "left better")]


def test_repetitions_are_resampled_together() -> None:
    """What moves the reference and the ranking alike changes no agreement."""
    rng = np.random.default_rng(1)
    drift = rng.normal(0, 50, 8)
    a = {s: base + drift for s, base in (("x", 1000.0), ("y", 1010.0), ("z", 1020.0))}
    found = agree("same", a, a, seed="s")
    assert found.agreement_interval is not None
    assert (found.agreement_interval.low, found.agreement_interval.high, found.tau_b) == (1.0, 1.0, 1.0)
    assert found == agree("same", a, a, seed="s")


class TestCampaign:
    TEXT = """
format = "commcanary.campaign.v1"
name = "fidelity"
question = "Does the canary rank the links like the source?"
repetitions = 2
confidence = 0.5
[programs]
source = "source.json"
canary = "canary.json"
[agreement]
reference = "source"
tie_fraction = 0.02
[[agreement.predictions]]
name = "simulator"
source = "alpha-beta, calibrated"
values = { fast = 100.0, middle = 200.0, slow = 150.0 }
[[criteria]]
name = "canary"
metric = "pair_agreement"
ranking = "canary"
at_least = 0.9
[[criteria]]
name = "tau"
metric = "kendall_tau_b"
ranking = "canary"
at_least = 0.9
[[criteria]]
name = "simulator"
metric = "inversions"
ranking = "simulator"
equals = 0.0
required = false
"""

    def make(self, folder: Path, middle_us: float = 200.0):  # type: ignore[no-untyped-def]
        pytest.importorskip("torch")
        lab = Lab.at(folder)
        write_trace(folder / "source.json", all_gathers=40)
        write_trace(folder / "canary.json", all_gathers=2)
        text = self.TEXT
        for ranking in ("source", "canary"):
            for setting in ("fast", "middle", "slow"):
                text += f'[[configurations]]\nname = "{ranking}-{setting}"\nprogram = "{ranking}"\n'
                text += f'ranking = "{ranking}"\nsetting = "{setting}"\n'
        speed = {
            "source-fast": 1000,
            "source-middle": 2000,
            "source-slow": 3000,
            "canary-fast": 100,
            "canary-middle": middle_us,
            "canary-slow": 300,
        }
        return lab.run(text, Made(lambda name, run, rank, iteration: speed[name] + run))

    def test_it_is_counted(self, tmp_path: Path) -> None:
        campaign = self.make(tmp_path)
        canary, simulator = campaign.agreement
        assert (canary.agreeing, canary.pairs, canary.tau_b, canary.agreement_low) == (3, 3, 1.0, 1.0)
        assert canary.program_bytes is not None and canary.program_bytes < canary.reference_program_bytes
        assert (canary.run_seconds, canary.reference_run_seconds) == (9.0, 9.0)
        assert (simulator.source, simulator.run_seconds) == ("alpha-beta, calibrated", None)
        assert simulator.inversions == ("middle / slow: left better, simulator says right better",)
        assert simulator.tau_b == pytest.approx(1 / 3)
        assert [f.verdict for f in campaign.outcome.criteria] == ["pass", "pass", "fail"]
        assert campaign.decision == "pass"
        assert campaign.verify().passed
        assert "alpha-beta, calibrated" in campaign._repr_html_()

    def test_a_canary_that_ranks_otherwise_fails(self, tmp_path: Path) -> None:
        campaign = self.make(tmp_path, middle_us=400.0)
        assert campaign.decision == "fail"
        assert campaign.outcome.reason.startswith("canary: 0.666667 against >= 0.9")
        assert campaign.agreement[0].inversions == ("middle / slow: left better, canary says right better",)
