"""The fabric card, the time window and the comparison with other sources on the traffic page."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import expect

from tests.browser.conftest import wait_for_query


def test_the_spine_slider_changes_the_verdict(open_page: Any) -> None:
    page = open_page("page=traffic&trace=tp8_decode.json&gpus_per_node=4")
    verdict = page.get_by_test_id("fabric")
    expect(verdict).to_contain_text("depends on ring order")
    expect(page.get_by_text("volume-free")).to_be_visible()
    expect(page.get_by_text("counts no PXN")).to_be_visible()
    slider = page.get_by_role("slider", name="Spine")
    slider.focus()
    slider.press("End")
    expect(verdict).to_contain_text("carries")
    slider.press("Home")
    expect(verdict).to_contain_text("depends on ring order")
    page.get_by_label("Count PXN").click()
    expect(page.get_by_text("counts PXN")).to_be_visible()


def test_the_fabric_asks_for_the_node_size(open_page: Any) -> None:
    page = open_page("page=traffic&trace=tp8_decode.json")
    expect(page.get_by_text("Choose the GPUs per node at the left")).to_be_visible()
    page.get_by_role("combobox", name="GPUs per node").click()
    page.get_by_role("menuitem", name="2", exact=True).click()
    expect(page.get_by_test_id("fabric")).to_be_visible()
    expect(page.get_by_text("4 nodes of 2")).to_be_visible()
    wait_for_query(page, "gpus_per_node", ["2"])


def test_the_time_window_cuts_the_matrix(open_page: Any) -> None:
    page = open_page("page=traffic&trace=adversarial.json")
    answer = page.get_by_test_id("answer")
    expect(answer).to_contain_text("200 KiB")
    last = page.get_by_role("slider").last
    last.focus()
    for _ in range(5):
        last.press("PageDown")
    expect(page.locator(".crumb")).to_contain_text("events that start from 0 us to")
    expect(answer).not_to_contain_text("200 KiB")


def _against(page: Any) -> list[str]:
    return parse_qs(urlsplit(page.url).query).get("against", [])


def test_four_sources_of_a_job_are_compared(open_page: Any) -> None:
    page = open_page("page=traffic&trace=fabric_job.inspector")
    expect(page.get_by_text("Does another source of this job, or a canary, send the same?")).to_be_visible()
    page.get_by_role("checkbox", name="fabric_job.kineto", exact=True).check()
    said = page.get_by_test_id("against")
    expect(said).to_contain_text("M of fabric_job.kineto is equal to that of fabric_job.inspector, cell by cell")
    page.get_by_role("checkbox", name="fabric_job.rccl", exact=True).check()
    expect(said).to_contain_text("all 2 other sources are equal")
    page.get_by_role("checkbox", name="fabric_job.mpi", exact=True).check()
    expect(said).to_contain_text("1 of 3 sources differ from fabric_job.inspector (fabric_job.mpi: 22.0 GiB of 22.0 GiB missing")
    expect(page.get_by_text("fabric_job.inspector minus fabric_job.mpi")).to_be_visible()
    expect(page.get_by_text("Does another source of this job")).to_be_hidden()
    assert _against(page) == ["fabric_job.kineto", "fabric_job.mpi", "fabric_job.rccl"]
    page.reload()
    expect(said).to_contain_text("1 of 3 sources differ")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download sources.csv").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    found = {r["name"]: (float(r["records"]), float(r["matrix_sum_bytes"]) / 2**20, float(r["links"]), r["verdict"]) for r in rows}
    equal = "equal cell by cell"
    assert found == {
        "fabric_job.inspector": (200, 22528, 16, "reference"),
        "fabric_job.kineto": (200, 22528, 16, equal),
        "fabric_job.rccl": (200, 22528, 16, equal),
        "fabric_job.mpi": (8, 0, 0, "first difference 0 to 1: 0 B, not 2.25 GiB"),
    }


def test_the_canary_of_a_trace_is_offered_first_and_sends_the_same(open_page: Any) -> None:
    page = open_page("page=traffic&trace=gloo4.json")
    boxes = page.get_by_role("checkbox")
    boxes.nth(1).wait_for()
    names = boxes.evaluate_all("(all) => all.map((b) => (b.closest('label') ?? b.parentElement).textContent)")
    assert names[:2] == ["gloo4.lossless.canary.json", "gloo4.records-2.canary.json"]
    page.get_by_role("checkbox", name="gloo4.records-2.canary.json", exact=True).check()
    expect(page.get_by_test_id("against")).to_contain_text("is equal to that of gloo4.json, cell by cell")
    page.get_by_role("checkbox", name="gloo4.records-2.canary.json", exact=True).uncheck()
    expect(page.get_by_test_id("against")).to_have_count(0)
    assert _against(page) == []


def test_what_has_no_matrix_says_why_and_can_be_taken_off(open_page: Any) -> None:
    page = open_page("page=traffic&trace=fabric_job.kineto&against=gone%3Cb%3E.json&against=tp8_decode.json")
    box = page.get_by_role("alert")
    expect(box).to_contain_text("gone<b>.json has no matrix")
    expect(box).to_contain_text("the workspace has no file named 'gone<b>.json'")
    expect(page.get_by_test_id("against")).to_contain_text("differs from that of fabric_job.kineto")
    page.get_by_role("checkbox", name="gone<b>.json", exact=True).uncheck()
    expect(box).to_have_count(0)
    assert _against(page) == ["tp8_decode.json"]


def test_a_trace_without_bytes_can_be_compared(open_page: Any) -> None:
    page = open_page("page=traffic&trace=fabric_job.mpi&against=fabric_job.rccl")
    expect(page.get_by_text("No bytes between ranks")).to_be_visible()
    expect(page.get_by_test_id("against")).to_contain_text("22.0 GiB more than there, over 16 links")
