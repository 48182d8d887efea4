"""The page Minimise in a browser."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import commcanary_lab as lab
from commcanary_lab.trace import Ragged
from tests.browser.conftest import Server

#: What is drawn: figures by their axis labels, those in view only.
_FIGURES = """() => {
  const out = [];
  for (const doc of Bokeh.documents) for (const m of doc._all_models.values()) {
    if (m.type !== 'Figure') continue;
    const view = Bokeh.index.find_one_by_id(m.id);
    if (view && view.el.getClientRects().length) out.push(m.below.concat(m.left).map((a) => a.axis_label).filter((t) => t).join(' / '));
  } return out }"""


def wait_for_figure(page: Any, words: str) -> None:
    page.wait_for_function(f"(words) => ({_FIGURES})().some((t) => t.includes(words))", arg=words)


def save(page: Any, button: str) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {button}", exact=True).click()
    return list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))


def test_it_opens_on_the_contrast(open_page: Any) -> None:
    page = open_page("page=minimise&trace=adversarial.json")
    answer = page.get_by_test_id("answer")
    expect(answer).to_contain_text("ddmin keeps 1 of 100 events and all 40 rankings, and loses all of the tail")
    size = lab.search(lab.samples.adversarial()).canary.size_bytes
    expect(answer).to_contain_text(f"behaviour search keeps every check in {size:,} B")
    expect(page.get_by_role("tab", name="Contrast")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".chip.bad", has_text="behavior")).to_have_count(1)
    expect(page.locator(".chip.ok", has_text="ranking")).to_have_count(2)
    wait_for_figure(page, "exposed latency")
    wait_for_figure(page, "from rank")
    expect(page.locator(".tabulator-row:visible").first).to_contain_text("left out")
    assert page.locator(".key").count() >= 5


def test_the_backend_and_the_downloads(open_page: Any) -> None:
    page = open_page("page=minimise&trace=adversarial.json")
    expect(page.get_by_text(re.compile("tails on baseline"))).to_be_visible()
    before = page.locator("tr", has_text="p50").first.inner_text()
    page.get_by_label("Backend", exact=True).click()
    page.get_by_role("menuitem", name="congested", exact=True).click()
    expect(page.get_by_text(re.compile("tails on congested"))).to_be_visible()
    expect(page.locator("tr", has_text="p50").first).not_to_have_text(before)
    kept = save(page, "kept_events.csv")
    assert [r["result"] for r in kept].count("ddmin") == 1
    assert [int(r["index"]) for r in kept if r["result"] == "behaviour search"] == list(range(100))
    lost = save(page, "lost_tail_events.csv")
    assert len(lost) == 30
    assert {r["result"] for r in lost} == {"ddmin"}


def test_the_scrubber_moves(open_page: Any) -> None:
    page = open_page("page=minimise&trace=gloo4.json&view=ddmin")
    text = page.get_by_test_id("ddmin-step")
    expect(text).to_contain_text("accepted")
    wait_for_figure(page, "oracle calls")
    first = text.inner_text()
    slider = page.locator("input[type=range]")
    slider.focus()
    slider.press("ArrowLeft")
    expect(text).not_to_have_text(first)
    slider.press("Home")
    expect(text).to_contain_text("Step 0: the whole trace, 252 events")
    slider.press("ArrowRight")
    expect(text).to_contain_text("Step 1: rejected. Chunk 1 of 2: 126 events of 252.")
    expect(page.locator("table.held td.n").first).to_be_visible()
    page.get_by_role("button", name="Next accepted step").click()
    expect(text).to_contain_text("All 40 decisions hold")
    for _ in range(3):  # quick clicks, some of which arrive while the page is being written to
        page.get_by_role("button", name="Next accepted step").click()
    expect(text).to_contain_text("Step 157: accepted")
    expect(page.locator("table.held td.n")).to_have_count(0)
    number = re.search(r"Step (\d+)", text.inner_text())
    assert number is not None
    page.wait_for_function(f"() => location.search.includes('step={number.group(1)}')")
    page.reload()
    expect(text).to_contain_text(f"Step {number.group(1)}: accepted")


def test_every_tab_is_filled_when_it_is_opened(open_page: Any) -> None:
    page = open_page("page=minimise&trace=adversarial.json")
    page.get_by_role("tab", name="Search").click()
    wait_for_figure(page, "worst error over its tolerance")
    expect(page.get_by_text("Ledger", exact=True)).to_be_visible()
    expect(page.locator(".tabulator-row:visible").first).to_contain_text("selected")
    page.get_by_role("tab", name="Frontier").click()
    expect(page.get_by_text("Limits of the method")).to_be_visible(timeout=30_000)
    wait_for_figure(page, "canonical bytes")
    expect(page.locator(".tabulator-row:visible", has_text="chosen by the search")).to_have_count(1)
    page.wait_for_function("() => location.search.includes('view=frontier')")
    page.get_by_role("tab", name="All methods").click()
    rows = page.locator(".tabulator-row:visible")
    expect(rows).to_have_count(12)
    expect(rows.nth(0)).to_contain_text(re.compile("search.*verified", re.S))
    expect(rows.nth(1)).to_contain_text(re.compile("ddmin.*40/40.*fail.*refused", re.S))
    table = save(page, "methods.csv")
    assert [r["method"] for r in table][:2] == ["search", "ddmin"]
    assert {r["behavior"] for r in table[1:]} == {"fail"}
    page.get_by_role("tab", name="Contrast").click()
    wait_for_figure(page, "exposed latency")
    page.wait_for_function("() => !location.search.includes('view=')")


@pytest.mark.parametrize("view", ["frontier", "methods"])
def test_a_link_opens_a_tab(open_page: Any, view: str) -> None:
    page = open_page(f"page=minimise&trace=adversarial.json&view={view}")
    wait = {"frontier": "Limits of the method", "methods": "rows are refused"}[view]
    expect(page.get_by_text(re.compile(wait))).to_be_visible(timeout=30_000)


def test_a_long_trace_runs_in_the_background_and_can_be_stopped(open_page: Any) -> None:
    page = open_page("page=minimise&trace=tp8_decode.json")
    expect(page.get_by_test_id("answer")).to_contain_text("not compared yet")
    page.get_by_role("button", name="Compare them").click()
    note = page.get_by_role("note")
    expect(note).to_contain_text(re.compile("ddmin|Search"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Compare them")).to_be_visible()
    expect(page.get_by_test_id("answer")).to_contain_text("not compared yet")
    page.get_by_role("button", name="Compare them").click()
    expect(note).to_contain_text("Search")
    page.get_by_role("tab", name="Overview").click()
    expect(page.get_by_text("Import coverage")).to_be_visible()
    page.get_by_role("tab", name="Minimise").click()  # the work goes on, and the page finds it
    expect(page.get_by_test_id("answer")).to_contain_text(re.compile("ddmin keeps 3 of 2,015 events"))
    wait_for_figure(page, "exposed latency")


def test_backends_and_budget(open_page: Any) -> None:
    page = open_page("page=minimise&trace=adversarial.json")
    page.get_by_label("congested").uncheck()
    expect(page.get_by_test_id("answer")).to_contain_text("all 24 rankings")
    for name in ("low_latency", "high_bandwidth", "overlap_friendly"):
        page.get_by_label(name).uncheck()
    expect(page.get_by_text("Choose at least two at the left")).to_be_visible()
    page = open_page("page=minimise&trace=gloo4.json&budget=3&view=ddmin")
    expect(page.get_by_text("3 oracle calls of at most 3")).to_be_visible()
    expect(page.get_by_test_id("answer")).to_contain_text("when its budget ends")


def test_unknown_fields_are_never_filled_silently(open_page: Any, server: Server) -> None:
    source = lab.samples.adversarial()
    silent = replace(source, arrival_ns=Ragged.empty(len(source)), arrival_known=np.zeros(len(source), np.bool_))
    new = server.folder / "silent.json"
    lab.write(silent, new)
    try:
        page = open_page("page=minimise&trace=silent.json")
        expect(page.get_by_text("The source does not say")).to_be_visible()
        page.get_by_label("Assume 0 where the source is silent").check()
        expect(page.get_by_test_id("answer")).to_contain_text("on assumed values")
        expect(page.locator(".key", has_text="assumed").first).to_be_visible()
    finally:
        new.unlink()
