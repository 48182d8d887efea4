"""The workspace in a browser: upload, delete, provenance, the first five minutes, and two visitors at once."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from commcanary_lab.workspace import Workspace
from tests.browser.conftest import PATIENCE_MS, ROOT, Server, row, wait_for_query

SAMPLES = ROOT / "data" / "samples"


@pytest.fixture(scope="module")
def server(browser_type_launch_args: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own: these tests add and delete."""
    from commcanary_lab.samples import fill

    folder = tmp_path_factory.mktemp("shared")
    fill(folder)
    running = Server(folder)
    yield running
    running.stop()
    trouble = [line for line in running.output if "Traceback" in line or "ERROR" in line]
    assert not trouble, "".join(running.output)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def visible_names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if not p.name.startswith(".")}


def trace_bytes(events: int) -> bytes:
    rows = [{"op": "all_gather", "bytes": 4096, "ranks": 4, "gap_us": 5.0 + i} for i in range(events)]
    return json.dumps({"format": "commcanary.trace.v1", "events": rows}).encode()


def test_the_files_of_all_ranks_become_one_trace(open_page: Any, server: Server) -> None:
    page = open_page()
    files = sorted(str(p) for p in (SAMPLES / "fabric_job" / "kineto").glob("*.json"))
    before = visible_names(server.folder)
    page.locator("input[type=file]").set_input_files(files)
    box = page.get_by_test_id("uploaded")
    expect(box).to_contain_text("8 files, one per rank, became one trace: the folder ranks-8")
    expect(box).to_contain_text("Import coverage")
    expect(box).to_contain_text(re.compile(r"Records read\s*200"))
    expect(page.locator(".crumb")).to_contain_text("ranks-8")
    expect(page.get_by_test_id("answer")).to_contain_text("52 collectives of 8 ranks")
    assert visible_names(server.folder) - before == {"ranks-8"}
    assert len(list((server.folder / "ranks-8").iterdir())) == 8
    shutil.rmtree(server.folder / "ranks-8")


def test_an_inspector_log_says_what_was_read(open_page: Any, server: Server) -> None:
    page = open_page()
    source = SAMPLES / "fabric_job" / "inspector" / "node0-pid4100.log"
    page.locator("input[type=file]").set_input_files(str(source))
    box = page.get_by_test_id("uploaded")
    expect(box).to_contain_text("node0-pid4100.log was added")
    expect(box).to_contain_text("sources of 1 rank")
    wait_until(lambda: (server.folder / source.name).read_bytes() == source.read_bytes(), "the file is there")
    (server.folder / source.name).unlink()


def test_good_and_bad_files_together(open_page: Any, server: Server) -> None:
    page = open_page()
    before = visible_names(server.folder)
    files = [
        {"name": "good.json", "mimeType": "application/json", "buffer": trace_bytes(3)},
        {"name": "noise.bin", "mimeType": "application/octet-stream", "buffer": bytes(range(256)) * 9000},
        {"name": "con.json", "mimeType": "application/json", "buffer": trace_bytes(1)},
        {"name": "nothing.json", "mimeType": "application/json", "buffer": b""},
    ]
    page.locator("input[type=file]").set_input_files(files)
    expect(page.get_by_role("alert").filter(has_text="noise.bin was not added")).to_contain_text("no known format recognises it; upload a")
    expect(page.get_by_role("alert").filter(has_text="con.json was not added")).to_contain_text("rename the file")
    expect(page.get_by_role("alert").filter(has_text="nothing.json was not added")).to_contain_text("the file is empty")
    expect(page.get_by_test_id("uploaded")).to_contain_text("good.json was added")
    assert visible_names(server.folder) - before == {"good.json"}
    assert not list(server.folder.glob(".upload-*"))
    (server.folder / "good.json").unlink()


def test_the_limit_is_said_and_enforced_before_anything_is_sent(open_page: Any, server: Server, tmp_path: Path) -> None:
    page = open_page()
    expect(page.get_by_text("Up to 512 MiB each, 256 at once.")).to_be_visible()
    huge = tmp_path / "huge.json"
    with huge.open("wb") as f:
        f.truncate((512 << 20) + 1)  # sparse
    page.locator("input[type=file]").set_input_files(str(huge))
    box = page.get_by_role("alert").filter(has_text="huge.json was not added")
    expect(box).to_contain_text("exceed the upload limit of 512 MiB; copy the file into the workspace folder instead")
    assert not (server.folder / "huge.json").exists()
    assert not list(server.folder.glob(".upload-*"))


def test_progress_is_shown_and_an_upload_can_be_cancelled(open_page: Any, server: Server, tmp_path: Path) -> None:
    page = open_page()
    before = visible_names(server.folder)
    large = tmp_path / "large.json"
    with large.open("wb") as f:
        f.write(b'{"format": "commcanary.trace.v1", "events": [')
        f.truncate(400 << 20)
    page.locator("input[type=file]").set_input_files(str(large))
    expect(page.get_by_role("progressbar", name="Upload")).to_be_visible()
    expect(page.get_by_text(re.compile(r"Uploading large\.json: .* of 400 MiB"))).to_be_visible()
    wait_until(lambda: any(server.folder.glob(".upload-*/large.json")), "parts arrive in a hidden folder")
    page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: not list(server.folder.glob(".upload-*")), "nothing is left behind")
    expect(page.get_by_role("progressbar", name="Upload")).to_be_hidden()
    assert visible_names(server.folder) == before


def test_a_visitor_who_leaves_in_the_middle_leaves_nothing(browser: Any, server: Server, tmp_path: Path) -> None:
    large = tmp_path / "left.json"
    with large.open("wb") as f:
        f.truncate(400 << 20)
    visitor = browser.new_context().new_page()
    visitor.set_default_timeout(PATIENCE_MS)
    visitor.goto(server.url)
    visitor.get_by_test_id("answer").wait_for()
    visitor.locator("input[type=file]").set_input_files(str(large))
    wait_until(lambda: any(server.folder.glob(".upload-*/left.json")), "parts arrive")
    visitor.context.close()
    wait_until(lambda: not list(server.folder.glob(".upload-*")), "nothing is left behind")
    assert not (server.folder / "left.json").exists()


def test_delete_undo_and_restore(open_page: Any, server: Server) -> None:
    (server.folder / "mine.json").write_bytes(trace_bytes(4))
    page = open_page()
    row(page, "mine.json").locator("input[type=checkbox]").check()
    page.get_by_role("button", name="Delete 1").click()
    expect(page.get_by_text("mine.json moved to the trash")).to_be_visible()
    assert not (server.folder / "mine.json").exists()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("mine.json restored")).to_be_visible()
    assert (server.folder / "mine.json").read_bytes() == trace_bytes(4)
    row(page, "mine.json").locator("input[type=checkbox]").check()
    page.get_by_role("button", name="Delete 1").click()
    wait_until(lambda: not (server.folder / "mine.json").exists(), "deleted")
    (server.folder / "mine.json").write_bytes(trace_bytes(5))
    page.get_by_role("button", name=re.compile("^Show the trash: 1")).click()
    page.get_by_role("button", name="Restore").first.click()
    expect(page.get_by_role("alert").filter(has_text="Nothing was restored")).to_contain_text("nothing is overwritten")
    (server.folder / "mine.json").unlink()
    page.reload()
    page.get_by_role("button", name=re.compile("^Show the trash: 1")).click()
    page.get_by_role("button", name="Restore").first.click()
    expect(page.get_by_text("mine.json restored")).to_be_visible()
    assert (server.folder / "mine.json").read_bytes() == trace_bytes(4)
    (server.folder / "mine.json").unlink()


def test_the_trash_is_emptied_only_after_a_question(open_page: Any, server: Server) -> None:
    w = Workspace(server.folder)
    w.add("gone.json", trace_bytes(2))
    w.trash("gone.json")
    page = open_page()
    page.get_by_role("button", name=re.compile("^Show the trash")).click()
    page.get_by_role("button", name="Empty the trash").click()
    page.get_by_role("button", name="Keep", exact=True).click()
    assert len(w.trashed()) == 1
    page.get_by_role("button", name="Empty the trash").click()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_text("1 artifact deleted for good")).to_be_visible()
    assert w.trashed() == ()


def test_a_node_of_the_graph_opens_the_artifact(open_page: Any, server: Server) -> None:
    shutil.copy(server.folder / "gloo4.records-2.canary.json", server.folder / "zebra.json")
    try:
        page = open_page("page=overview&trace=tp8_decode.json")
        node = page.locator("a.pn[data-open='zebra.json']")
        expect(node).to_have_accessible_name(
            re.compile(r"canary zebra\.json.*compiled from gloo4\.json \(same events: SHA-256 [0-9a-f]{12}…\)")
        )
        node.hover()
        expect(page.locator(".says")).to_contain_text("zebra.json: compiled from gloo4.json")
        assert page.locator(".pg path.on").count() == 2  # gloo4.json, and the shards that it was merged from
        node.click()
        expect(page.get_by_text("What this canary reveals")).to_be_visible()
        expect(page.locator(".crumb")).to_contain_text("zebra.json")
        wait_for_query(page, "page", ["canary"])
        wait_for_query(page, "canary", ["zebra.json"])
        assert "trace=gloo4" in page.url  # its source, whatever the canary is called
    finally:
        (server.folder / "zebra.json").unlink()


def test_the_graph_with_the_keyboard_and_as_deep_links(open_page: Any, server: Server) -> None:
    page = open_page("page=overview&trace=tp8_decode.json")
    node = page.locator("a.pn[data-open='tp8_decode.slower_links.report.json']")
    address = node.get_attribute("href")
    assert address == "?page=review&candidate=tp8_decode.slower_links.report.json"
    expect(page.locator(".pn.lost").first).to_contain_text("not in this workspace")
    node.focus()
    expect(page.locator(".says")).to_contain_text("same simulated work: SHA-256")
    page.keyboard.press("Enter")
    wait_for_query(page, "page", ["review"])
    wait_for_query(page, "candidate", ["tp8_decode.slower_links.report.json"])
    open_page(address.removeprefix("?"))
    expect(page.get_by_role("tab", name="Review")).to_have_attribute("aria-selected", "true")


def test_the_list_is_filtered_and_a_document_opens_on_its_page(open_page: Any) -> None:
    page = open_page()
    page.get_by_role("button", name=re.compile("^Reports 2")).click()
    expect(page.locator(".tabulator-row", has_text=".report.json")).to_have_count(2)
    expect(page.locator(".tabulator-row", has_text=".canary.json")).to_have_count(0)
    page.locator(".tabulator-cell", has_text=re.compile(r"^tp8_decode\.baseline\.report\.json$")).click()
    wait_for_query(page, "page", ["review"])


def test_an_empty_workspace_offers_samples_and_a_tour(watched: Any, tmp_path: Path) -> None:
    empty = Server(tmp_path / "empty")
    page = watched
    try:
        page.goto(empty.url)
        expect(page.get_by_text("This workspace has no trace yet")).to_be_visible()
        page.get_by_role("button", name="Add the samples").click()
        expect(page.get_by_text("Tour, step 1 of 9")).to_be_visible()
        expect(page.get_by_test_id("answer")).to_contain_text("2,015 collectives")
        for step, tab in ((2, "Traffic"), (3, "Timeline"), (4, "Canary")):
            page.get_by_role("button", name="Next", exact=True).click()
            expect(page.get_by_text(f"Tour, step {step} of 9")).to_be_visible()
            expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
            expect(page.get_by_test_id("answer").first).to_be_visible()
        page.get_by_role("button", name="Back", exact=True).click()
        expect(page.get_by_text("Tour, step 3 of 9")).to_be_visible()
        page.get_by_role("button", name="End the tour").press("Enter")
        expect(page.get_by_text("Tour, step")).to_be_hidden()
        page.get_by_role("button", name="Tour", exact=True).click()
        expect(page.get_by_text("Tour, step 1 of 9")).to_be_visible()
        assert {a.kind for a in Workspace(tmp_path / "empty").list()} == {"trace", "canary", "report", "campaign"}
    finally:
        code = empty.stop()
    assert code == 0, "".join(empty.output)


def test_two_visitors_at_once(open_page: Any, browser: Any, server: Server) -> None:
    mine = open_page("page=overview&trace=gloo4.json")
    other = browser.new_context().new_page()
    other.set_default_timeout(PATIENCE_MS)
    other.goto(f"{server.url}?page=overview&trace=adversarial.json")
    expect(other.get_by_test_id("answer")).to_contain_text("100 collectives")
    address = other.url
    other.get_by_label("Filter by name").fill("theirs")
    content = {"name": "theirs.json", "mimeType": "application/json", "buffer": trace_bytes(6)}
    mine.locator("input[type=file]").set_input_files(content)
    expect(mine.get_by_test_id("answer")).to_contain_text("6 collectives")
    expect(other.locator(".tabulator-cell", has_text=re.compile(r"^theirs\.json$"))).to_be_visible()
    expect(other.get_by_test_id("answer")).to_contain_text("100 collectives")
    expect(other.locator(".crumb")).to_contain_text("adversarial.json")
    assert other.url == address
    assert other.get_by_test_id("uploaded").count() == 0 or not other.get_by_test_id("uploaded").is_visible()
    other.get_by_role("button", name="Tour", exact=True).click()
    expect(other.get_by_text("Tour, step 1 of 9")).to_be_visible()
    expect(mine.get_by_text("Tour, step")).to_be_hidden()
    row(other, "theirs.json").locator("input[type=checkbox]").check()
    other.get_by_role("button", name="Delete 1").click()
    expect(other.get_by_text("theirs.json moved to the trash")).to_be_visible()
    expect(mine.get_by_role("button", name=re.compile("^Show the trash"))).to_be_visible()
    expect(mine.get_by_text("moved to the trash")).to_have_count(0)
    other.context.close()
