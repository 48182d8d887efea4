"""Running campaigns: identity, endings, and the probe that is not run again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from commcanary_lab.errors import InputError, MissingExtraError, RefusedError, UsageError
from commcanary_lab.replay.campaign import manifest as manifests
from commcanary_lab.replay.campaign import read_campaign, verify_campaign
from commcanary_lab.replay.campaign import run as running
from commcanary_lab.replay.campaign.manifest import running_sha256, this_tool
from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.campaign.run import CampaignProgress
from commcanary_lab.replay.spec import RunState

from .builder import PROBE, Lab, Made
from .builder import paired as whole

pytest.importorskip("torch")

CRITERION = '[[criteria]]\nname = "faster"\nmetric = "fleet_cycle_us"\ncompare = "difference"\nat_least = 1.0\n'


def paired(text: str = "", *, repetitions: int = 2, top: str = "", **options: Any) -> str:
    """Return a preregistration of four runs: with half the confidence two repetitions are enough."""
    return whole(text, repetitions=repetitions, top=f"confidence = 0.5\n{top}", **options)


STALE = {("control", 1): (4, 2, (0, 1))}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.at(tmp_path)


class TestProbe:
    def test_wrong_bytes_fail_the_campaign_at_once(self, lab: Lab) -> None:
        made = Made(wrong=dict(STALE))
        campaign = lab.run(paired(CRITERION, probe=PROBE), made)
        o = campaign.outcome
        assert (campaign.decision, campaign.exit_code) == ("fail", 1)
        assert (o.failure_boundary, o.failure_sample, o.failure_ranks, o.failure_run) == ("all_reduce #5", 2, (0, 1), 4)
        assert made.started == ["control", "candidate", "candidate", "control"]
        assert o.criteria[0].reason == "run 4: wrong bytes first after all_reduce #5 in sample 2, on ranks 0, 1"
        assert (o.criteria[0].value, o.criteria[0].total) == (78.0, 80)
        assert campaign.verify().passed

    def test_it_is_not_run_again(self, lab: Lab) -> None:
        text = paired(CRITERION, probe=PROBE)
        lab.run(text, Made(wrong=dict(STALE)))
        made = Made()
        with pytest.raises(RefusedError, match=r"evidence/a: the probe of 'control' failed before and is unchanged: .*all_reduce #5"):
            lab.run(text, made, out="evidence/b")
        assert made.started == []
        assert not (lab.folder / "evidence/b").exists()

    def test_nor_with_other_words_or_repetitions(self, lab: Lab) -> None:
        lab.run(paired(CRITERION, probe=PROBE), Made(wrong=dict(STALE)))
        other = paired(CRITERION.replace("1.0", "2.0"), probe=PROBE, repetitions=4).replace("Is the", "Is now the")
        with pytest.raises(RefusedError, match="failed before"):
            lab.run(other, out="evidence/b")

    def test_in_another_folder_it_is_found_through_the_history(self, lab: Lab, tmp_path: Path) -> None:
        text = paired(CRITERION, probe=PROBE)
        lab.run(text, Made(wrong=dict(STALE)))
        (tmp_path / "elsewhere").mkdir()
        for history in ("evidence", "evidence/a"):
            with pytest.raises(RefusedError, match="failed before"):
                lab.run(text, out="elsewhere/b", history=[tmp_path / history])
        with pytest.raises(UsageError, match="is no directory"):
            lab.run(text, out="elsewhere/b", history=[tmp_path / "absent"])
        assert lab.run(text, out="elsewhere/b").outcome.failure_boundary is None

    @pytest.mark.parametrize("change", ["replays = 5", "program", "code"])
    def test_what_changed_may_run(self, lab: Lab, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
        text = paired(CRITERION, probe=PROBE)
        lab.run(text, Made(wrong=dict(STALE)))
        if change == "program":
            path = lab.folder / "control.json"
            path.write_text(path.read_text().replace('"bytes": 128', '"bytes": 256'))
        elif change == "code":
            for module in (manifests, running):
                monkeypatch.setattr(module, "running_sha256", lambda: "0" * 64)
        else:
            text = text.replace("replays = 4", change)
        assert lab.run(text, out="evidence/b").outcome.failure_boundary is None

    def test_a_campaign_that_failed_by_its_times_may_run_again(self, lab: Lab) -> None:
        made = Made(lambda name, run, rank, iteration: 900 if name == "control" else 1000)
        assert lab.run(paired(CRITERION, probe=PROBE), made).decision == "fail"
        made.started.clear()
        assert lab.run(paired(CRITERION, probe=PROBE), made, out="evidence/b").decision == "fail"

    def test_one_that_was_killed_before_it_decided_counts(self, lab: Lab) -> None:
        text = paired(CRITERION, probe=PROBE)
        place = lab.run(text, Made(wrong=dict(STALE))).directory
        for name in ("decision.json", "SHA256SUMS", "stop.json"):
            (place / name).unlink()
        with pytest.raises(RefusedError, match="failed before"):
            lab.run(text, out="evidence/b")


class TestEndings:
    def test_cancelled_between_runs(self, lab: Lab) -> None:
        cancelled = Event()
        made = Made()
        inner = made.start

        def start(c):  # type: ignore[no-untyped-def]
            begin = inner(c)

            def started(place, spec):  # type: ignore[no-untyped-def]
                if len(made.started) == 2:
                    cancelled.set()
                return begin(place, spec)

            return started

        made.start = start  # type: ignore[method-assign]
        campaign = lab.run(paired(CRITERION), made, cancelled=cancelled)
        assert (campaign.decision, campaign.outcome.reason) == ("inconclusive", "cancelled after 3 of 4 runs")
        assert (len(campaign.runs), campaign.exit_code) == (3, 1)
        assert campaign.verify().passed

    def test_a_run_that_is_cancelled(self, lab: Lab) -> None:
        made = Made(status={("candidate", 0): RunState(status="cancelled", seconds=1, reason="cancelled")})
        campaign = lab.run(paired(CRITERION), made)
        assert campaign.outcome.reason == "run 2 (candidate) was cancelled"
        assert campaign.outcome.stopped is not None and campaign.outcome.stopped.kind == "cancelled"

    @pytest.mark.parametrize(("error", "kind", "reason"), [
        (KeyboardInterrupt(), "cancelled", "interrupted"), (OSError("disk full"), "error", "OSError: disk full"),
    ])  # fmt: skip
    def test_an_interrupt_leaves_sealed_evidence_with_a_decision(self, lab: Lab, error: BaseException, kind: str, reason: str) -> None:
        made = Made()
        inner = made.start

        def start(c):  # type: ignore[no-untyped-def]
            def started(place, spec):  # type: ignore[no-untyped-def]
                if len(made.started) == 1:
                    raise error
                return inner(c)(place, spec)

            return started

        made.start = start  # type: ignore[method-assign]
        with pytest.raises(type(error)):
            lab.run(paired(CRITERION), made)
        campaign = read_campaign(lab.folder / "evidence/a")
        assert campaign.outcome.stopped is not None
        assert (campaign.decision, campaign.outcome.stopped.kind, campaign.outcome.reason) == ("inconclusive", kind, reason)
        assert [r.status for r in campaign.runs] == ["done", "cancelled"]
        assert campaign.verify().passed

    def test_code_that_changes_meanwhile_makes_it_incomparable(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        made = Made()
        monkeypatch.setattr(running, "running_sha256", lambda: running_sha256() if len(made.started) < 3 else "0" * 64)
        campaign = lab.run(paired(CRITERION), made)
        assert (campaign.decision, campaign.outcome.reason) == ("incomparable", "the code was changed after run 3")

    def test_evidence_is_never_overwritten_or_resumed(self, lab: Lab) -> None:
        text = paired(CRITERION)
        lab.run(text, Made(status={("control", 0): RunState(status="timeout", seconds=9, reason="not done after 9 s")}))
        with pytest.raises(UsageError, match="evidence is never overwritten"):
            lab.run(text)
        assert read_campaign(lab.folder / "evidence/a").exit_code == 4


class TestIdentity:
    def test_the_manifest_says_what_ran(self, lab: Lab) -> None:
        campaign = lab.run(paired(CRITERION))
        m = campaign.manifest
        assert m.tool == this_tool()
        assert m.programs["control"].events == 5
        assert [p.directory for p in m.order[:2]] == ["runs/0001-control", "runs/0002-candidate"]
        assert {c.backend for c in m.configurations.values()} == {"gloo"}
        assert campaign.outcome.campaign == m.sha256
        assert (campaign.directory / "preregistration.toml").read_bytes() == (lab.folder / "campaign.toml").read_bytes()
        assert (campaign.directory / "programs/control.json").read_bytes() == (lab.folder / "control.json").read_bytes()

    def test_it_is_written_before_the_first_run(self, lab: Lab) -> None:
        seen = []
        made = Made()
        inner = made.start

        def start(c):  # type: ignore[no-untyped-def]
            def started(place: Path, spec):  # type: ignore[no-untyped-def]
                if not seen:
                    manifest = place.parent.parent / "manifest.json"
                    seen.append((manifest.stat().st_mode & 0o777, json.loads(manifest.read_bytes())["name"]))
                return inner(c)(place, spec)

            return started

        made.start = start  # type: ignore[method-assign]
        lab.run(paired(CRITERION), made)
        assert seen == [(0o444, "paired")]

    def test_ranks_start_with_nothing_that_is_not_watched(self) -> None:
        code = "import commcanary_lab.replay.worker, commcanary_lab.canary.read, commcanary_lab.trace.parquet, sys; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        names = [n.partition(".")[2].replace(".", "/") for n in done.stdout.split() if n.startswith("commcanary_lab.")]
        assert "replay/worker" in names
        folders = {"trace", "canary", "replay"}
        assert [n for n in names if not manifests._is_running(n + ".py") and n not in folders] == []

    def test_progress(self, lab: Lab) -> None:
        told: list[CampaignProgress] = []
        lab.run(paired(CRITERION), progress=told.append)
        assert [(p.run, p.configuration) for p in told][:3] == [(1, "control"), (2, "candidate"), (3, "candidate")]
        assert {p.planned for p in told} == {4}


class TestRefusedBeforeAnythingIsWritten:
    def refused(self, lab: Lab, text: str) -> str:
        with pytest.raises(InputError) as caught:
            lab.run(text)
        assert not (lab.folder / "evidence/a").exists()
        return str(caught.value).replace(f"{lab.folder}/", "")

    def test_programs(self, lab: Lab) -> None:
        text = paired(CRITERION).replace('"control.json"', '"absent.json"').replace('"candidate.json"', '"evidence"')
        told = self.refused(lab, text).splitlines()
        assert told[0].startswith("campaign.toml: programs.control: absent.json: does not exist")
        assert told[1].startswith("campaign.toml: programs.candidate: evidence: is a directory; write it into one file")

    def test_ranks_and_faults(self, lab: Lab) -> None:
        text = paired(CRITERION, ranks=3)
        assert "configurations[control]: the program has 2 ranks, 3 cannot run it; choose 1 to 2" in self.refused(lab, text)
        fault = 'probe = { replays = 4, fault = { kind = "swap", event = 4, sample = 1 } }'
        assert "configurations[control]: parts cannot change places in a all_reduce" in self.refused(lab, paired(CRITERION, probe=fault))

    def test_operations_that_are_not_there(self, lab: Lab) -> None:
        text = CRITERION.replace("fleet_cycle_us", "fleet_latency_us") + 'op = "broadcast"\n'
        assert "criteria[faster]: 'control' has no broadcast; it has all_gather of 128 B, all_reduce of 64 B" in self.refused(
            lab, paired(text)
        )

    def test_inputs_and_fabrics(self, lab: Lab) -> None:
        assert "inputs: 'absent' is no file" in self.refused(lab, paired(CRITERION, top='inputs = ["absent"]'))
        told = self.refused(lab, paired(CRITERION, probe="fabric = { rate_mbit = 400, ranks_per_node = 2 }"))
        assert "configurations[control].fabric.across_mbit: ranks_per_node and across_mbit belong together" in told
        assert "configurations[candidate].fabric.across_mbit" in told

    def test_without_torch(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"commcanary-lab\[replay\]"):
            lab.run(paired(CRITERION))


def test_a_notebook_shows_it(lab: Lab) -> None:
    made = Made(lambda name, run, rank, iteration: 1000 if name == "control" else 900)
    text = CRITERION + '[[rates]]\nname = "<tokens>"\nper_cycle = { control = 1.0, candidate = 1.0 }\n'
    campaign: Campaign = lab.run(paired(text), made)
    html = campaign._repr_html_()
    assert "<b>pass</b>" in html
    assert "&lt;tokens&gt;: 1,000.00 to 1,111.11 per second (+11.11 %)" in html
    assert repr(campaign) == "Campaign('paired': pass, 1 of 1 criteria pass, 1 have to; 4 of 4 runs)"
    (row,) = campaign.criteria
    assert (row.value, row.interval, row.spread, row.verdict) == ("100 us", "100 to 100", "0.0%", "pass")
    assert verify_campaign(campaign.directory).passed
