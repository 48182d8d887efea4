"""The view of rankings: what it shows is what the rows say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commcanary_lab import views
from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.ranking_rows import method_rows, pair_rows
from commcanary_lab.views.agreement_matrix import agreement_frame, agreement_html, agreement_text
from commcanary_lab.views.cycle_chart import cycle_figure
from tests.replay.test_ranking_rows import CYCLES_US, ranked

pytest.importorskip("panel")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return ranked(tmp_path_factory.mktemp("ranked"))


def test_a_cell_per_pair_and_ranking(campaign: Campaign) -> None:
    rows = method_rows(campaign)
    pairs = pair_rows(rows, 0.05)
    text = agreement_html(rows, pairs, 0.05)
    found = re.findall(r'<td class="(pass|fail|tie) [^"]*" tabindex="0" aria-label="(\w) or (\w), (\w+): ([a-z ]+)">', text)
    assert {(a, b, m): outcome for _, a, b, m, outcome in found} == {
        (p.left, p.right, m.name): p.outcome(m.name) for p in pairs for m in rows[1:]
    }
    assert {kind for kind, *_, outcome in found if outcome == "inverted"} == {"fail"}
    first = re.search(r'<th scope="row">(\w) or (\w)</th>', text)
    assert first is not None and first.groups() == ("c", "d")  # most rankings differ there
    assert "do not decide: c or d." in text
    assert agreement_text(rows) == "Pairs decided as job does: canary 5 of 6, alone 5 of 6, model 5 of 6"


def test_the_chart_draws_every_measured_ranking(campaign: Campaign) -> None:
    figure = cycle_figure(method_rows(campaign))
    drawn = [dict(r.data_source.data) for r in figure.renderers if "setting" in r.data_source.data]
    medians = {tuple(d["setting"]): d["x"] for d in drawn}
    assert list(medians) == [("d", "c", "b", "a")]  # the fastest on top
    values = [[round(v) for v in d["x"]] for d in drawn if "x0" in d]
    assert [CYCLES_US[m][s] for m in ("job", "canary", "alone") for s in "dcba"] == [v for of in values[::3] for v in of]


def test_the_table_and_the_whole(campaign: Campaign) -> None:
    frame = agreement_frame(method_rows(campaign))
    assert frame["ranking"].tolist() == ["job", "canary", "alone", "model"]
    assert frame["alike"].tolist() == ["reference", "5 of 6", "5 of 6", "5 of 6"]
    assert frame["inverted"].tolist()[1:] == [0, 1, 0] and frame["false_negatives"].tolist()[1:] == [1, 0, 1]
    view = views.agreement(campaign)
    assert len(view) == 3


def test_it_takes_what_has_a_campaign(campaign: Campaign, tmp_path: Path) -> None:
    class Result:
        def __init__(self, campaign: Campaign) -> None:
            self.campaign = campaign

    assert len(views.agreement(Result(campaign))) == 3
