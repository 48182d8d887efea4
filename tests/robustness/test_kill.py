"""A few kills of every program; ``make kill-test`` has a hundred each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.kill_test import SCENARIOS, run


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SCENARIOS if n != "campaign"])
def test_kills(name: str, tmp_path: Path) -> None:
    out = run(SCENARIOS[name], 6, 3, tmp_path)
    assert out.problems == []
    assert out.kills == 6
    assert out.ended_before < out.kills


@pytest.mark.slow
@pytest.mark.gloo
def test_kills_of_a_campaign(tmp_path: Path) -> None:
    out = run(SCENARIOS["campaign"], 3, 3, tmp_path)
    assert out.problems == []
    assert out.kills == 3
