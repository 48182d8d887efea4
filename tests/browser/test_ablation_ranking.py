"""The ablation and the ranking page in a browser."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from commcanary_lab.simulate.ablation import ablate
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS
from commcanary_lab.trace.json_v1 import read_json
from commcanary_lab.verify.run import verify_canary
from commcanary_lab.workspace import Workspace
from tests.browser.conftest import Server, wait_for_query

SAMPLES = Path(__file__).parents[2] / "data" / "samples"

#: Backend of every slot of the ablation chart, as the browser has it.
_BARS = """() => {
  for (const doc of Bokeh.documents) for (const m of doc._all_models.values())
    if (m.type === 'ColumnDataSource' && m.data.hatch_low) return Array.from(m.data.backend);
  return null }"""


def test_ablation_answers_and_reacts_to_backends(open_page: Any) -> None:
    page = open_page("page=ablation&trace=gloo4.json")
    result = ablate(read_json(SAMPLES / "gloo4.json"))
    most = max(len(result.flips(a)) for a in result.applicable)
    answer = page.get_by_test_id("answer")
    expect(answer).to_contain_text(f"{most} of 40 decisions flip without")
    expect(page.get_by_text("signed logarithmic axis")).to_be_visible()
    expect(page.get_by_text("simulator control, not a physical intervention").first).to_be_visible()
    expect(page.locator(".b.model").first).to_be_visible()
    assert set(page.evaluate(_BARS)) == set(result.backends)
    page.get_by_role("checkbox", name="congested", exact=True).uncheck()
    page.get_by_role("checkbox", name="overlap_friendly", exact=True).uncheck()
    expect(answer).to_contain_text("of 12 decisions")
    fewer = ablate(read_json(SAMPLES / "gloo4.json"), DEFAULT_BACKENDS[:3])
    expect(page.locator(".key", has_text="Decisions that flip")).to_contain_text(
        f"{len(fewer.flipped_decisions)}of {12 * len(fewer.applicable)}"
    )
    page.wait_for_function(f"() => new Set(({_BARS})()).size === 3")
    wait_for_query(page, "backends", list(fewer.backends))
    expect(page.get_by_role("checkbox", name="baseline", exact=True)).to_be_checked()
    page.get_by_role("checkbox", name="congested", exact=True).check()
    page.get_by_role("checkbox", name="overlap_friendly", exact=True).check()
    expect(answer).to_contain_text(f"{most} of 40 decisions flip without")
    wait_for_query(page, "backends", None)


def test_ablation_metric_axis_and_reasons(open_page: Any) -> None:
    page = open_page("page=ablation&trace=adversarial.json")
    expect(page.get_by_text("the events are already in the order of the ablation").first).to_be_visible()
    page.get_by_label("Metric").click()
    page.get_by_role("menuitem", name="hidden share of communication").click()
    expect(page.get_by_text("Hidden share of communication: without the mechanism")).to_be_visible()
    expect(page.get_by_test_id("answer")).to_contain_text("points")
    page.get_by_role("button", name="Logarithmic").click()
    expect(page.get_by_text("minus with it, signed logarithmic axis")).to_be_visible()
    page.get_by_role("button", name="Linear").click()
    expect(page.get_by_text("minus with it, linear axis")).to_be_visible()
    wait_for_query(page, "metric", ["communication_hidden_pct"])
    wait_for_query(page, "axis", ["linear"])
    page.reload()
    expect(page.get_by_text("Hidden share of communication: without the mechanism minus with it, linear axis")).to_be_visible()


def test_ablation_download_has_every_row(open_page: Any) -> None:
    page = open_page("page=ablation&trace=adversarial.json&backends=baseline&backends=congested")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download ablation.csv").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    table = ablate(read_json(SAMPLES / "adversarial.json"), (DEFAULT_BACKENDS[0], DEFAULT_BACKENDS[4]))
    assert [(r["ablation"], r["backend"], r["metric"], r["status"]) for r in rows] == [
        (r.ablation, r.backend, r.metric, r.status) for r in table.rows
    ]


def test_ranking_shows_both_sides_and_reacts_to_backends(open_page: Any, server: Server) -> None:
    page = open_page("page=ranking&trace=gloo4.json&canary=gloo4.records-2.canary.json")
    workspace = Workspace(server.folder)
    check = verify_canary(workspace.trace("gloo4.json"), workspace.canary("gloo4.records-2.canary.json"))
    expect(page.locator(".key", has_text="Decided alike")).to_contain_text(f"{check.decisions_kept}of 40")
    assert check.decisions_kept < 40
    expect(page.get_by_test_id("answer")).to_contain_text("it differs on")
    expect(page.locator("table.grid")).to_have_count(2)
    expect(page.locator("td.differs").first).to_be_visible()
    expect(page.locator("table.grid td[tabindex]")).to_have_count(40)
    page.get_by_role("checkbox", name="high_bandwidth", exact=True).uncheck()
    expect(page.locator("table.grid td[tabindex]")).to_have_count(24)
    expect(page.get_by_test_id("answer")).to_contain_text("of 6 pairs like its source")
    wait_for_query(page, "backends", ["baseline", "low_latency", "overlap_friendly", "congested"])


def test_ranking_values_on_hover_and_with_the_keyboard(open_page: Any) -> None:
    page = open_page("page=ranking&trace=gloo4.json&canary=gloo4.records-2.canary.json&metric=p99_us")
    cell = page.locator("table.grid td[tabindex]").nth(2)
    tip = cell.locator(".tip")
    expect(tip).to_be_hidden()
    cell.hover()
    expect(tip).to_be_visible()
    expect(tip).to_contain_text(re.compile(r"source: baseline[\d,.]+ us.*source decides.*is faster.*canary: baseline[\d,.]+ us"))
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()


def test_ranking_without_a_fitting_canary_is_the_source_alone(open_page: Any) -> None:
    page = open_page("page=ranking&trace=gloo4.json&canary=adversarial.lossless.canary.json")
    expect(page.get_by_text("this is the source alone")).to_be_visible()
    expect(page.locator("table.grid")).to_have_count(1)
    expect(page.get_by_test_id("answer")).to_contain_text("is fastest")
    expect(page.get_by_text("Order, fastest first")).to_be_visible()


@pytest.mark.parametrize("name", ["ablation", "ranking"])
def test_a_deep_link_keeps_the_backends_across_reload_and_pages(open_page: Any, name: str) -> None:
    page = open_page(f"page={name}&trace=gloo4.json&backends=low_latency&backends=congested")
    for label, state in (("baseline", False), ("low_latency", True), ("high_bandwidth", False), ("congested", True)):
        expect(page.get_by_role("checkbox", name=label, exact=True)).to_be_checked(checked=state)
    expect(page.locator(".key", has_text="Backends")).to_contain_text("1 pair x 4 metrics")
    page.get_by_role("checkbox", name="baseline", exact=True).check()
    expect(page.locator(".key", has_text="Backends")).to_contain_text("3 pairs x 4 metrics")
    page.reload()
    expect(page.get_by_role("checkbox", name="baseline", exact=True)).to_be_checked()
    other = "Ranking" if name == "ablation" else "Ablation"
    page.get_by_role("tab", name=other).click()
    expect(page.get_by_text("Which backend is better" if other == "Ranking" else "Change without each mechanism")).to_be_visible()
    expect(page.locator(".key", has_text="Backends")).to_contain_text("3 pairs x 4 metrics")
    wait_for_query(page, "backends", ["baseline", "low_latency", "congested"])


def test_too_few_backends_say_what_to_do(open_page: Any) -> None:
    page = open_page("page=ranking&trace=gloo4.json&backends=baseline&backends=congested")
    page.get_by_role("checkbox", name="congested", exact=True).uncheck()
    expect(page.get_by_text("Choose at least two backends at the left")).to_be_visible()
    expect(page.get_by_text("Which backend is better")).to_be_hidden()
    page.get_by_role("checkbox", name="low_latency", exact=True).check()
    expect(page.get_by_text("Which backend is better")).to_be_visible()
    expect(page.locator("table.grid").first).to_contain_text("low_latency")
    expect(page.get_by_text("Choose at least two backends at the left")).to_be_hidden()


def test_backends_of_the_workspace_can_be_chosen(open_page: Any, server: Server) -> None:
    file = server.folder / "fabrics.toml"
    file.write_text("[backends.ib_400]\nbandwidth_gbps = 400\nlatency_floor_us = 3\n")
    try:
        page = open_page("page=ablation&trace=adversarial.json&backends=ib_400&backends=unheard_of")
        expect(page.get_by_role("checkbox", name="ib_400", exact=True)).to_be_checked()
        expect(page.get_by_text("'unheard_of', which is not known here")).to_be_visible()
        expect(page.get_by_test_id("answer")).to_contain_text("One backend ranks nothing.")
    finally:
        file.unlink()


def test_checks_by_backend_on_the_canary_page(open_page: Any) -> None:
    page = open_page("page=canary&trace=gloo4.json&canary=gloo4.records-2.canary.json")
    grid = page.locator("table.checks")
    expect(grid.locator("td.fail").first).to_be_visible()
    expect(grid.locator("td.none").first).to_be_visible()
    cell = grid.locator("td.fail").last  # the last row of a card that is taller than the window
    cell.hover()
    expect(cell.locator(".tip")).to_be_visible()
    expect(cell.locator(".tip")).to_contain_text("→")
