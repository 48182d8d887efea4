"""Campaigns on real ranks."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from commcanary_lab.replay.campaign import read_campaign, run_campaign, verify_campaign
from commcanary_lab.replay.campaign.run import CampaignProgress

from ..conftest import workers
from .builder import Lab, paired, write_trace

pytest.importorskip("torch")
pytestmark = pytest.mark.gloo

DECODE = """
format = "commcanary.campaign.v1"
name = "decode"
question = "Are the data of a decode cycle right?"
repetitions = 1
timeout_s = 120
programs = { decode = "decode.json" }
[[configurations]]
name = "decode"
kind = "probe"
backend = "gloo"
[configurations.probe]
replays = 4
fault = { kind = "stale", event = 97, sample = 2 }
[[audits]]
counts = { all_gather = 97, all_reduce = 1 }
total = 98
"""


def test_a_stale_final_all_reduce_fails_and_is_not_run_again(tmp_path: Path, cli: Any, document: Any) -> None:
    """The last of 98 collectives gives the buffer of the sample before."""
    write_trace(tmp_path / "decode.json", all_gathers=97, ranks=4)
    (tmp_path / "decode.toml").write_text(DECODE)
    place = tmp_path / "evidence"
    place.mkdir()
    found = document("campaign", "run", tmp_path / "decode.toml", "-o", place / "first", expect=1)
    assert (found["decision"], found["failure_boundary"]) == ("fail", "all_reduce #98")
    assert (found["failure_sample"], found["failure_ranks"], found["stopped"]["kind"]) == (2, [0, 1, 2, 3], "probe")
    # 98 boundaries in 4 samples on 4 ranks, of which one on each rank is wrong
    assert (found["criteria"][0]["value"], found["criteria"][0]["total"]) == (4 * 4 * 98 - 4, 4 * 4 * 98)
    assert verify_campaign(place / "first").passed
    code, _, err = cli("campaign", "run", tmp_path / "decode.toml", "-o", place / "second")
    assert (code, str(place / "first") in err) == (3, True)
    assert not (place / "second").exists()


def test_control_and_candidate(tmp_path: Path) -> None:
    lab = Lab.at(tmp_path, all_gathers=20)
    text = paired(
        """
        [[criteria]]
        name = "launches"
        metric = "launches"
        aggregate = "every_rank"
        compare = "reduction_pct"
        at_least = 75.0
        [[criteria]]
        name = "measured"
        metric = "cycle_us"
        aggregate = "count"
        configuration = "control"
        each_at_least = 1.0
        all = true
        """,
        repetitions=1,
        probe="probe = { replays = 1 }",
    ).replace("ABBA", "rotation")
    campaign = run_campaign(lab.write(text), tmp_path / "evidence")
    assert campaign.decision == "pass", campaign.outcome
    control, candidate, launches, measured = campaign.outcome.criteria
    assert (control.value, control.total, candidate.value, candidate.total) == (42, 42, 4, 4)
    assert launches.value == pytest.approx(100 * (1 - 2 / 21))
    assert (measured.value, measured.total) == (2, 2)
    assert [r.configuration for r in campaign.runs] == ["control", "candidate"]
    assert campaign.replays[1].latency_ns.shape == (3, 21)
    check = campaign.verify()
    assert check.passed, check.differences


def test_cancelled_in_a_run(tmp_path: Path) -> None:
    lab = Lab.at(tmp_path, all_gathers=50)
    text = paired("", repetitions=2, probe="probe = { replays = 100_000 }")
    cancelled = Event()

    def watch(now: CampaignProgress) -> None:
        if now.phase == "probing":
            cancelled.set()

    campaign = run_campaign(lab.write(text), tmp_path / "evidence", progress=watch, cancelled=cancelled)
    assert (campaign.decision, campaign.outcome.reason) == ("inconclusive", "run 1 (control) was cancelled")
    assert workers(tmp_path / "evidence") == []
    assert read_campaign(tmp_path / "evidence").verify().passed
