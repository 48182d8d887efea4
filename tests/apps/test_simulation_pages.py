"""The ablation and the ranking page without a browser: what they compute and what they say."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("panel")

from apps.backend_choice import known_backends, protocol
from apps.page import Selection
from apps.pages import ablation, ranking
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.simulate.ablation import ablate
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS
from commcanary_lab.trace.columns import Column
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.trace.write_v1 import write_json
from commcanary_lab.workspace import Workspace

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    for name in ("gloo4.json", "adversarial.json"):
        shutil.copy(SAMPLES / name, tmp_path / name)
    trace = read_json(SAMPLES / "gloo4.json")
    (tmp_path / "gloo4.exact.canary.json").write_bytes(compile_trace(trace).canonical)
    (tmp_path / "gloo4.two.canary.json").write_bytes(compile_trace(trace, records=2).canonical)
    (tmp_path / "gloo4.salted.canary.json").write_bytes(compile_trace(trace, records=2, salt=b"owner" * 8).canonical)
    (tmp_path / "gloo4.part.canary.json").write_bytes(compile_trace(trace, events=(0, 100)).canonical)
    return Workspace(tmp_path)


def chosen(*names: str, **options: str) -> dict[str, tuple[str, ...]]:
    return {"backends": names, **{k: (v,) for k, v in options.items()}}


# -- backends ---------------------------------------------------------------------------------------------------------


def test_backends_of_the_folder_come_after_the_built_in_ones(workspace: Workspace) -> None:
    (workspace.path / "fast.toml").write_text("[backends.ib_400]\nbandwidth_gbps = 400\n")
    (workspace.path / "policy.toml").write_text("[p99]\nlimit = 3\n")
    known, problems = known_backends(workspace.path)
    assert [b.label for b in known] == [*(b.label for b in DEFAULT_BACKENDS), "ib_400"]
    assert problems == ()
    asked = protocol(workspace, Selection("gloo4.json", options=chosen("ib_400", "baseline")), workspace.trace("gloo4.json"))
    assert [b.label for b in asked.chosen] == ["baseline", "ib_400"]
    assert asked.chosen[1].bandwidth_gbps == 400


def test_bad_backends_are_left_out_and_said(workspace: Workspace) -> None:
    (workspace.path / "a.toml").write_text("[backends.baseline]\nbandwidth_gbps = 1\n")
    (workspace.path / "b.toml").write_text("[backends.x]\nspeed = 1\n")
    (workspace.path / "c.toml").write_text("[backends.y\n")
    known, problems = known_backends(workspace.path)
    assert known == DEFAULT_BACKENDS
    assert len(problems) == 3
    assert "'baseline' is taken" in problems[0]
    assert problems[1].startswith("b.toml") and "'speed'" in problems[1]
    assert "not TOML" in problems[2]
    assert not any(str(workspace.path) in p for p in problems)
    asked = protocol(workspace, Selection("gloo4.json", options=chosen("nope", "congested")), workspace.trace("gloo4.json"))
    assert [b.label for b in asked.chosen] == ["congested"]
    assert "'nope'" in asked.problems[-1]


# -- ablation ---------------------------------------------------------------------------------------------------------


def test_the_ablation_is_that_of_the_library_on_the_chosen_backends(workspace: Workspace) -> None:
    data = ablation.gather(workspace, Selection("gloo4.json"))
    assert data.result is not None
    assert data.result.to_json() == ablate(workspace.trace("gloo4.json")).to_json()
    fewer = ablation.gather(workspace, Selection("gloo4.json", options=chosen("baseline", "congested")))
    assert fewer.result is not None
    assert fewer.result.backends == ("baseline", "congested")
    assert fewer.result.decisions_total == 4
    assert ablation.gather(workspace, Selection("gloo4.json")).result is data.result


def test_the_sentence_counts_the_flips(workspace: Workspace) -> None:
    data = ablation.gather(workspace, Selection("gloo4.json"))
    assert data.result is not None
    most = max(data.result.applicable, key=lambda a: len(data.result.flips(a)))  # type: ignore[union-attr]
    assert f"<b>{len(data.result.flips(most))} of 40 decisions flip without" in ablation.answer(data.result, "p99_us")
    still = ablation.gather(workspace, Selection("adversarial.json")).result
    assert still is not None
    assert ablation.answer(still, "p99_us").startswith("<b>No ranking rests on one mechanism</b>: none of 40")
    alone = ablation.gather(workspace, Selection("gloo4.json", options=chosen("baseline"))).result
    assert alone is not None
    assert ablation.answer(alone, "p99_us").startswith("One backend ranks nothing.")


def test_no_backend_is_no_ablation(workspace: Workspace) -> None:
    data = ablation.gather(workspace, Selection("gloo4.json", options=chosen("")))
    assert data.result is None
    assert "at least one" in data.why_not
    assert data.protocol.problems == ()


def test_unknown_fields_need_an_assumption(workspace: Workspace) -> None:
    trace = read_json(SAMPLES / "adversarial.json")
    silent = replace(trace, overlap_ns=Column(np.zeros(len(trace), np.int64), np.zeros(len(trace), np.bool_)))
    write_json(silent, workspace.path / "silent.json")
    for page in (ablation, ranking):
        data = page.gather(workspace, Selection("silent.json"))
        assert "concurrent compute of 100 events" in data.why_not
        assert data.protocol.origin == "model"
        data = page.gather(workspace, Selection("silent.json", options={"assume": ("0",)}))
        assert data.why_not == ""
        assert data.protocol.origin == "assumed: overlap_us = 0"


# -- ranking ----------------------------------------------------------------------------------------------------------


def test_an_exact_canary_decides_every_pair_like_its_source(workspace: Workspace) -> None:
    data = ranking.gather(workspace, Selection("gloo4.json", "gloo4.exact.canary.json"))
    assert data.both
    assert data.hint == ""
    assert "<b>10 of 10 pairs like its source</b>, under every metric." in ranking.answer(data.pairs, "p99_us")


def test_a_coarse_canary_says_where_it_differs(workspace: Workspace) -> None:
    data = ranking.gather(workspace, Selection("gloo4.json", "gloo4.two.canary.json"))
    wrong = {(p.left, p.right) for p in data.pairs if p.agrees is False}
    text = ranking.answer(data.pairs, "p99_us")
    assert f"<b>{10 - len(wrong)} of 10 pairs like its source</b>; it differs on " in text
    left, right = next(iter(sorted(wrong)))
    assert f"{left} or {right} under" in text


def test_a_salted_canary_is_compared_and_said_to_be_unchecked(workspace: Workspace) -> None:
    data = ranking.gather(workspace, Selection("gloo4.json", "gloo4.salted.canary.json"))
    assert data.pairs == ranking.gather(workspace, Selection("gloo4.json", "gloo4.two.canary.json")).pairs
    assert "salted" in data.hint


def test_a_part_says_how_much_it_stands_for(workspace: Workspace) -> None:
    data = ranking.gather(workspace, Selection("gloo4.json", "gloo4.part.canary.json"))
    assert data.both
    assert data.hint == "The canary stands for 100 of the source's 252 events."


def test_without_a_fitting_canary_the_source_stands_alone(workspace: Workspace) -> None:
    bare = ranking.gather(workspace, Selection("gloo4.json"))
    other = ranking.gather(workspace, Selection("adversarial.json", "gloo4.exact.canary.json"))
    absent = ranking.gather(workspace, Selection("gloo4.json", "absent.json"))
    for data, words in ((bare, "No canary is open"), (other, "had 252"), (absent, "no file named")):
        assert not data.both
        assert len(data.pairs) == 40
        assert words in data.hint
    assert "is fastest" in ranking.answer(bare.pairs, "p99_us")


def test_one_backend_ranks_nothing(workspace: Workspace) -> None:
    data = ranking.gather(workspace, Selection("gloo4.json", options=chosen("baseline")))
    assert data.pairs == ()
    assert "at least two" in data.why_not
