"""The page Replay without a browser: what it opens, computes and says."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("panel")
pytest.importorskip("torch")

import commcanary_lab as lab
from apps.page import Selection
from apps.replay_request import asked
from commcanary_lab.replay.fidelity_bundle import unpack
from commcanary_lab.replay.modelled import modelled
from commcanary_lab.replay.result import Replay
from commcanary_lab.replay.spec import Fault, ProbeAsked
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS
from commcanary_lab.trace import Ragged
from commcanary_lab.views import campaign_view
from commcanary_lab.views.replay_view import ReplayView, operations_frame, ranks_frame
from commcanary_lab.views.replay_words import answer, chips_html, figures, probe_text
from commcanary_lab.workspace import Workspace

SAMPLES = Path(__file__).parents[2] / "data" / "samples"

pytestmark = pytest.mark.gloo


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """Two real ranks; one bit is flipped on rank 1 at event 4 of sample 1."""
    fault = Fault("flip", 4, 1, (1,), 3)
    place = tmp_path_factory.mktemp("replays") / "gloo4-1"
    return lab.replay(lab.samples.gloo4(), 2, out=place, backend="gloo", iterations=3, probe=ProbeAsked(1, 2, fault=fault))


@pytest.fixture
def workspace(tmp_path: Path, measured: Replay) -> Workspace:
    shutil.copy(SAMPLES / "gloo4.json", tmp_path / "gloo4.json")
    shutil.copytree(measured.directory, tmp_path / "replays" / "gloo4-1")
    return Workspace(tmp_path)


def test_the_model_answers_for_the_events_that_were_replayed(measured: Replay) -> None:
    source = lab.samples.gloo4()
    found = modelled(measured, DEFAULT_BACKENDS[0])
    report = lab.simulate(source)
    assert found.service_us.tolist() == report.samples.service_us[measured.events].tolist()
    assert len(measured.events) < len(source)
    assert set(measured.kinds) == {(r.op, r.size_bytes, r.ranks) for r in measured.latencies}
    assert np.sum(list(measured.kinds.values()), axis=0).tolist() == [1] * len(measured.events)
    frame = operations_frame(measured, found)
    assert frame["count"].sum() == 3 * len(measured.events)
    assert (frame["model_p50_us"] > 0).all()
    assert operations_frame(measured)["model_p50_us"].isna().all()


def test_the_time_of_a_rank_is_in_operations_at_barriers_and_between(measured: Replay) -> None:
    for row, columns in zip(measured.ranks, measured.samples, strict=True):
        first, last = (columns[n][columns["iteration"] >= 0] for n in ("ready_ns", "finish_ns"))
        iteration = columns["iteration"][columns["iteration"] >= 0]
        whole = sum((last[iteration == i].max() - first[iteration == i].min()) / 1000 for i in range(3))
        assert row.inside_us + row.wait_us + row.between_us == pytest.approx(whole)
    assert ranks_frame(measured)["rank"].tolist() == [0, 1]


def test_a_wrong_byte_is_named_in_words(measured: Replay) -> None:
    verdict = measured.probe
    assert (verdict.status, verdict.event, verdict.sample, verdict.ranks) == ("fail", 4, 1, (1,))
    text = probe_text(measured)
    assert text.startswith(f"Wrong bytes come first after {verdict.boundary} (event 4) in sample 1, on rank 1. There byte ")
    assert " and 1 of " in text
    assert answer(measured).startswith("<b>The data are wrong</b>, first after ")
    assert '<span class="chip bad"><span>data</span><span>wrong</span>' in chips_html(measured, measured.verify())
    assert [f.value for f in figures(measured)][-1] == "wrong"


def test_the_figure_is_callable_in_a_notebook(measured: Replay) -> None:
    assert len(lab.views.replay(measured, modelled(measured, DEFAULT_BACKENDS[0]))) == 6
    view = ReplayView(measured)
    view.compare(None, "no reason")
    assert len(view.cards) == 5


def test_the_page_opens_the_newest_replay_of_what_is_open(workspace: Workspace) -> None:
    found = asked(workspace, Selection("gloo4.json"))
    assert found.runnable is not None
    assert (found.runnable.kind, found.runnable.size, found.runnable.why_not) == ("trace", 4, "")
    assert found.shown is not None
    assert (found.shown.name, found.shown.problems, found.shown.problem) == ("gloo4-1", (), "")
    assert found.shown.model is not None
    assert found.shown.model.report.backend.label == "baseline"
    other = asked(workspace, Selection("gloo4.json", options={"replay": ("gloo4-1",), "model": ("congested",)}))
    assert other.shown is not None
    assert other.shown.model is not None
    assert other.shown.model.report.backend.label == "congested"
    assert other.shown.result is found.shown.result


def test_changed_evidence_is_said(workspace: Workspace) -> None:
    path = workspace.path / "replays" / "gloo4-1" / "log.txt"
    path.chmod(0o644)
    path.write_text("something else")
    shown = asked(workspace, Selection("gloo4.json")).shown
    assert shown is not None
    assert shown.problems == ("log.txt: changed",)
    assert shown.result is not None
    assert "changed after it was sealed" in chips_html(shown.result, list(shown.problems))


def test_a_changed_program_is_refused(workspace: Workspace) -> None:
    path = workspace.path / "replays" / "gloo4-1" / "trace.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"x")
    shown = asked(workspace, Selection("gloo4.json")).shown
    assert shown is not None
    assert shown.result is None
    assert "the program was changed" in shown.problem


@pytest.mark.parametrize("name", ["absent", "../gloo4.json", "replays/..", ".jobs", ""])
def test_unknown_names_in_the_address(workspace: Workspace, name: str) -> None:
    shown = asked(workspace, Selection("gloo4.json", options={"replay": (name,)})).shown
    assert shown is not None
    assert bool(shown.problem) == bool(name)


def test_what_the_source_does_not_say_is_not_modelled(tmp_path: Path) -> None:
    source = lab.samples.adversarial()
    silent = replace(source, arrival_ns=Ragged.empty(len(source)), arrival_known=np.zeros(len(source), np.bool_))
    w = Workspace(tmp_path)
    lab.write(silent, w.path / "silent.json")
    lab.replay(silent, 2, out=w.path / "replays" / "silent-1", backend="gloo", iterations=1)
    shown = asked(w, Selection("silent.json")).shown
    assert shown is not None
    assert shown.model is None
    assert shown.why_no_model.startswith("The source does not say the arrival skew of 100 events. Assume 0")
    assumed = asked(w, Selection("silent.json", options={"assume": ("0",)})).shown
    assert assumed is not None
    assert assumed.model is not None
    assert assumed.model.origin == "assumed: skew_us = 0"


def test_nothing_is_open(tmp_path: Path) -> None:
    found = asked(Workspace(tmp_path), Selection())
    assert (found.runnable, found.shown, found.replays) == (None, None, ())
    gone = asked(Workspace(tmp_path), Selection("gone.json"))
    assert gone.runnable is not None
    assert "no file named 'gone.json'" in gone.runnable.why_not


# -- campaigns --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with the recorded campaigns."""
    w = Workspace(tmp_path_factory.mktemp("campaigns"))
    unpack(SAMPLES / "fidelity_campaign" / "evidence.tar.xz", w.path / "campaigns")
    return w


def test_a_campaign_is_shown_with_its_decision(campaigns: Workspace) -> None:
    found = asked(campaigns, Selection(options={"campaign": ("fidelity",)}))
    assert found.shown is None
    assert [a.name for a in found.campaigns] == ["campaigns/calibration", "campaigns/fidelity"]
    assert found.campaign is not None
    c = found.campaign.result
    assert c is not None
    assert found.campaign.problems == ()
    assert campaign_view.answer(c).startswith(f"{c.outcome.question} <b>It passes</b>: {c.outcome.reason}")
    assert campaign_view.figures(c)[1].value == "3 of 3"
    assert campaign_view.criteria_frame(c)["verdict"].tolist() == [f.verdict for f in c.outcome.criteria]
    assert len(campaign_view.runs_frame(c)) == 72
    assert "as it was sealed" in campaign_view.decision_chips(c, [])
    assert len(list(lab.views.campaign(c))) == 1 + len(campaign_view.campaign_cards(c))


def test_changed_evidence_of_a_campaign_is_said(campaigns: Workspace) -> None:
    path = campaigns.path / "campaigns" / "calibration" / "journal.jsonl"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"\n")
    found = asked(campaigns, Selection(options={"campaign": ("calibration",)})).campaign
    assert found is not None
    assert found.result is not None
    assert found.problems == ("journal.jsonl: changed",)
    assert "changed after it was sealed" in campaign_view.decision_chips(found.result, list(found.problems))


@pytest.mark.parametrize("name", ["absent", "../campaigns", "fidelity/runs"])
def test_unknown_campaigns_in_the_address(campaigns: Workspace, name: str) -> None:
    found = asked(campaigns, Selection(options={"campaign": (name,)})).campaign
    assert found is not None
    assert found.result is None
    assert found.problem


def test_a_campaign_that_was_changed_is_read_again(tmp_path: Path) -> None:
    w = Workspace(tmp_path / "w")
    unpack(SAMPLES / "fidelity_campaign" / "evidence.tar.xz", w.path / "campaigns")
    shown = [asked(w, Selection(options={"campaign": ("fidelity",)})).campaign for _ in range(2)]
    assert shown[0] is not None and shown[1] is not None
    assert shown[0].result is shown[1].result and shown[0].rows is shown[1].rows
    run = w.path / "campaigns" / "fidelity" / "runs" / "0001-job-even-80" / "log.txt"
    run.write_bytes(run.read_bytes() + b" ")
    after = asked(w, Selection(options={"campaign": ("fidelity",)})).campaign
    assert after is not None and after.problems
    assert after.result is not shown[0].result
