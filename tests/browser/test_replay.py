"""The page Replay in a browser: real Gloo ranks, started, watched and ended from the page."""

from __future__ import annotations

import csv
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from apps.replay_jobs import Job
from apps.replay_process import leftovers
from commcanary_lab.replay.result import Replay, read_replay
from commcanary_lab.replay.spec import read_document
from commcanary_lab.units import format_us
from tests.browser.conftest import PATIENCE_MS, Server, open_row
from tests.browser.test_minimise import wait_for_figure

pytest.importorskip("torch")

_QUICK = "page=replay&trace=gloo4.json&run_ranks=2&run_iterations=2"
_LONG = "page=replay&trace=gloo4.json&run_ranks=2&run_iterations=10000"


def shown_name(page: Any) -> str:
    """The replay that the address names."""
    page.wait_for_function("() => location.search.includes('replay=')")
    return parse_qs(urlsplit(page.url).query)["replay"][0]


def job(server: Server, name: str) -> Job:
    return read_document(server.folder / "replays" / ".jobs" / f"{name}.json", Job)


def until_ended(server: Server, name: str) -> Job:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (found := job(server, name)).state != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def result(server: Server, name: str) -> Replay:
    return read_replay(server.folder / "replays" / name)


def test_a_replay_measures_and_checks(open_page: Any, server: Server) -> None:
    page = open_page(f"{_QUICK}&run_probe=1")
    answer = page.get_by_test_id("answer")
    expect(answer).to_contain_text("gloo4.lossless.canary.json was not replayed yet")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(answer).to_contain_text("gloo4.lossless.canary.json on 2 Gloo ranks is running")
    expect(page.get_by_role("progressbar", name="Measure")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("started")
    expect(answer).to_contain_text("half of the operations take at least")
    found = result(server, shown_name(page))
    expect(answer).to_contain_text(
        f"2 of 4 ranks on Gloo half of the operations take at least {format_us(found.metrics['latency_p50_us'])}"
    )
    expect(answer).to_contain_text("the model’s baseline says")
    expect(answer).to_contain_text("Every byte was right.")
    expect(page.locator(".chip.ok", has_text="as it was sealed")).to_be_visible()
    wait_for_figure(page, "from the last rank's start")
    wait_for_figure(page, "per iteration")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download replay_operations.csv", exact=True).click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert [(r["operation"], float(r["p50_us"])) for r in rows] == [(r.op, pytest.approx(r.p50_us)) for r in found.latencies]
    page.locator(".tabulator-row:visible").first.click()
    expect(page.get_by_text(f"Latency of {found.latencies[0].op}")).to_be_visible()
    before = rows[0]["model_p50_us"]
    page.get_by_label("Simulated backend", exact=True).click()
    page.get_by_role("menuitem", name="congested", exact=True).click()
    expect(answer).to_contain_text("the model’s congested says")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download replay_operations.csv", exact=True).click()
    assert next(csv.DictReader(Path(download.value.path()).read_text().splitlines()))["model_p50_us"] != before


def test_a_cancelled_replay_leaves_no_process(open_page: Any, server: Server) -> None:
    page = open_page(_LONG)
    answer = page.get_by_test_id("answer")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(answer).to_contain_text(re.compile(r"is running: measuring, \d"))
    name = shown_name(page)
    assert len(leftovers(job(server, name).mark)) >= 4  # the command, torchrun, two ranks
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Waits: 1 replay on the CPU before it")).to_be_visible()
    expect(answer).to_contain_text("waits for 1 other replay on the CPU")
    waiting = shown_name(page)
    assert waiting != name
    page.get_by_role("button", name="Cancel", exact=True).nth(1).click()
    expect(page.get_by_text("It was cancelled before its ranks were started")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    ended = until_ended(server, name)
    assert leftovers(ended.mark) == []
    assert not (server.folder / "replays" / waiting).exists()
    assert result(server, name).status == "cancelled"
    assert result(server, name).verify() == []
    listed = page.locator(".tabulator-row:visible", has_text=name)
    expect(listed).to_contain_text("cancelled")
    listed.click()
    expect(answer).to_contain_text("The replay was cancelled")
    expect(page.locator(".chip", has_text="as it was sealed")).to_be_visible()


def test_a_replay_survives_a_reload(open_page: Any, server: Server) -> None:
    page = open_page(f"{_QUICK}&run_of=trace")
    answer = page.get_by_test_id("answer")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(answer).to_contain_text("gloo4.json on 2 Gloo ranks is running")
    name = shown_name(page)
    started = job(server, name)
    page.reload()
    expect(answer).to_contain_text(re.compile("is running|half of the operations"))
    assert shown_name(page) == name
    expect(answer).to_contain_text("half of the operations take at least")
    assert until_ended(server, name).pid == started.pid
    assert result(server, name).status == "done"
    page.get_by_role("tab", name="Overview").click()
    open_row(page, f"replays/{name}", "half of the operations take at least")


def test_a_campaign_opens_from_the_list(open_page: Any) -> None:
    page = open_page("page=replay&trace=adversarial.json")
    answer = page.get_by_test_id("answer")
    page.locator(".tabulator-row:visible", has_text="campaign decision-fidelity").click()
    expect(answer).to_contain_text("It passes: 3 of 3 criteria pass")
    page.wait_for_function("() => location.search.includes('campaign=fidelity')")
    expect(page.locator(".chip.ok", has_text="as it was sealed")).to_be_visible()
    expect(page.locator("table.grid td.pass").first).to_be_visible()
    expect(page.locator(".tabulator-row:visible", has_text="the canary inverts no pair")).to_contain_text("decides")
