"""Rankings of a campaign in rows, on synthetic runs whose times are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.ranking_rows import method_rows, pair_rows, ranked_replays, wanted
from tests.replay.campaign.builder import Lab, Made, paired, write_trace

pytest.importorskip("torch")

TEXT = """
format = "commcanary.campaign.v1"
name = "ranked"
question = "Which setting is faster?"
repetitions = 3
confidence = 0.7
programs = { job = "job.json", canary = "canary.json", alone = "alone.json" }
[agreement]
reference = "job"
tie_fraction = 0.05
[[agreement.predictions]]
name = "model"
source = "a model"
values = { a = 1.0, b = 2.0, c = 3.0, d = 3.01 }
[[criteria]]
name = "canary"
metric = "inversions"
ranking = "canary"
at_most = 0
"""

#: Cycle of the job on d scatters around that of c.
CYCLES_US = {
    "job": {"a": 1000, "b": 2000, "c": 4000, "d": 4400}, "canary": {"a": 110, "b": 210, "c": 400, "d": 410},
    "alone": {"a": 500, "b": 300, "c": 800, "d": 1000},
}  # fmt: skip
SCATTER = (0.0, -0.09, 0.09)


def ranked(folder: Path) -> Campaign:
    lab = Lab.at(folder)
    text = TEXT
    for number, (method, settings) in enumerate(CYCLES_US.items()):
        write_trace(folder / f"{method}.json", all_gathers=12 // (1 + number))
        for s in settings:
            text += f'[[configurations]]\nname = "{method}-{s}"\nprogram = "{method}"\nbackend = "gloo"\n'
            text += f'ranking = "{method}"\nsetting = "{s}"\n'

    def cycle(name: str, run: int, rank: int, iteration: int) -> float:
        method, setting = name.split("-")
        return CYCLES_US[method][setting] * (1 + (SCATTER[run] if name == "job-d" else 0))

    with pytest.MonkeyPatch.context() as patch:  # nothing really runs: what the code is does not matter, and takes time to find out
        for module in ("manifest", "run"):
            patch.setattr(f"commcanary_lab.replay.campaign.{module}.running_sha256", lambda: "0" * 64)
        return lab.run(text, Made(cycle))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return ranked(tmp_path_factory.mktemp("ranked"))


def test_every_ranking_has_a_row_and_the_reference_is_first(campaign: Campaign) -> None:
    rows = method_rows(campaign)
    assert [m.name for m in rows] == ["job", "canary", "alone", "model"]
    assert [m.measured for m in rows] == [True, True, True, False]
    assert rows[0].line is None and rows[3].origin == "a model"
    for m in rows[:3]:
        assert m.values_us == pytest.approx(CYCLES_US[m.name], rel=1e-5)
    assert rows[0].cycle_seconds == pytest.approx(sum(CYCLES_US["job"].values()) / 1e6, rel=1e-5)
    assert rows[0].run_seconds == 1.5 * 3 * 4
    assert rows[0].program_bytes is not None and rows[1].program_bytes is not None and rows[1].program_bytes < rows[0].program_bytes
    assert rows[3].cycle_seconds is rows[3].run_seconds is rows[3].program_bytes is rows[3].spread is None


def test_intervals_and_spread_are_those_of_the_repetitions(campaign: Campaign) -> None:
    job, canary = method_rows(campaign)[:2]
    low, high = 4400 * 0.91, 4400 * 1.09
    assert job.repetitions_us["d"] == pytest.approx((4400, low, high), rel=1e-5)
    assert low <= job.intervals_us["d"].low < 4400 < job.intervals_us["d"].high <= high * (1 + 1e-9)
    assert job.spread == pytest.approx(0.09, rel=1e-3)
    assert canary.spread == pytest.approx(0, abs=1e-6) and canary.intervals_us["a"].low == pytest.approx(110, rel=1e-5)


def test_pairs_by_hand(campaign: Campaign) -> None:
    pairs = {(p.left, p.right): p for p in pair_rows(method_rows(campaign), 0.05)}
    assert list(pairs) == [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]
    assert pairs["a", "b"].decisions == {"job": "left", "canary": "left", "alone": "right", "model": "left"}
    assert pairs["a", "b"].outcome("alone") == "inverted"
    assert pairs["c", "d"].decisions == {"job": "left", "canary": "tie", "alone": "left", "model": "tie"}
    assert pairs["c", "d"].outcome("canary") == "false negative"
    assert not pairs["c", "d"].sure and all(p.sure for k, p in pairs.items() if k != ("c", "d"))
    # with a wider tie the job itself sees none between c and d
    wide = {(p.left, p.right): p for p in pair_rows(method_rows(campaign), 0.12)}
    assert wide["c", "d"].decisions["job"] == "tie" and wide["c", "d"].outcome("alone") == "false positive"


def test_rows_count_as_the_campaign_does(campaign: Campaign) -> None:
    rows = method_rows(campaign)
    for m in rows[1:]:
        outcomes = [p.outcome(m.name) for p in pair_rows(rows, wanted(campaign).tie_fraction)]
        assert m.line is not None
        assert (outcomes.count("agree"), outcomes.count("inverted")) == (m.line.agreeing, len(m.line.inversions))
        assert (outcomes.count("false positive"), outcomes.count("false negative")) == (
            len(m.line.false_positives), len(m.line.false_negatives),
        )  # fmt: skip


def test_runs_by_ranking(campaign: Campaign) -> None:
    found = ranked_replays(campaign)
    assert {m: list(of) for m, of in found.items()} == {m: list(of) for m, of in CYCLES_US.items()}
    assert all(len(runs) == 3 for of in found.values() for runs in of.values())


def test_a_campaign_without_rankings_is_refused(tmp_path: Path) -> None:
    text = '\n[[criteria]]\nname = "c"\nmetric = "launches"\nconfiguration = "control"\nat_least = 1\naggregate = "every_rank"\n'
    found = Lab.at(tmp_path).run(paired(text), Made())
    with pytest.raises(RefusedError, match="ranks nothing"):
        method_rows(found)
