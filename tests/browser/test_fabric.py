"""The fabric card and the time window of the traffic page."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import expect


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
    assert parse_qs(urlsplit(page.url).query)["gpus_per_node"] == ["2"]


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
