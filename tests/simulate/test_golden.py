"""The published figures, to the last digit."""

from __future__ import annotations

import pytest

from commcanary_lab.simulate import ABLATIONS, DEFAULT_BACKENDS, Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.trace import Trace
from tests.golden_traces import NAMES, golden_figures, golden_trace

CONFIGURATIONS = [b.label for b in DEFAULT_BACKENDS] + [f"ablate_{a}" for a in ABLATIONS] + ["iter3_seed11"]


def check_figures(trace: Trace, name: str, configuration: str) -> None:
    """Simulate one configuration and compare metrics, breakdowns and, where published, samples."""
    expected = golden_figures(name)[configuration]
    backend, ablations = Backend(), frozenset[str]()
    if configuration.startswith("ablate_"):
        ablations = frozenset([configuration.removeprefix("ablate_")])
    elif configuration == "iter3_seed11":
        backend = Backend(iterations=3, seed=11)
    else:
        backend = next(b for b in DEFAULT_BACKENDS if b.label == configuration)
    report = simulate_prepared(prepare(trace), backend, ablations=ablations).to_json(samples="samples" in expected)
    assert report["metrics"] == expected["metrics"]
    assert report["by_op"] == expected["by_op"]
    assert report["by_phase"] == expected["by_phase"]
    if "samples" in expected:
        assert len(report["samples"]) == len(expected["samples"])
        for ours, theirs in zip(report["samples"], expected["samples"], strict=True):
            assert {k: ours[k] for k in ours.keys() & theirs.keys()} == {k: theirs[k] for k in ours.keys() & theirs.keys()}


def test_the_configurations_are_those_of_the_figures() -> None:
    assert sorted(golden_figures("adv100")) == sorted(CONFIGURATIONS)


@pytest.mark.golden
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_trace(name: str, configuration: str) -> None:
    check_figures(golden_trace(name), name, configuration)
