"""The served workbench in a browser."""

from __future__ import annotations

import http.client
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import Server, wait_for_query
from tests.browser.pointer import drag_until, frame_of, hover_until

#: Colours on the largest canvas of the page; a blank one has at most one.
_COLORS = """() => {
  const all = [];
  const walk = (r) => { for (const e of r.querySelectorAll('*')) { if (e.tagName === 'CANVAS') all.push(e);
    if (e.shadowRoot) walk(e.shadowRoot) } };
  walk(document);
  const visible = all.filter((c) => c.width * c.height > 0 && c.getClientRects().length);
  if (!visible.length) return 0;
  const count = (c) => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = new Set();
    for (let i = 0; i < d.length; i += 4 * 7) if (d[i + 3] > 0) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]); return seen.size };
  return Math.max(...visible.map(count));
}"""


def wait_for_colors(page: Any, least: int) -> None:
    page.wait_for_function(f"() => ({_COLORS})() >= {least}")


def test_the_demo_workspace_opens(open_page: Any) -> None:
    page = open_page()
    expect(page.get_by_test_id("answer")).to_contain_text("2,015 collectives")
    expect(page.get_by_text("Import coverage")).to_be_visible()
    expect(page.locator(".tabulator-row", has_text="gloo4_shards").first).to_contain_text("recorder shards")
    wait_for_colors(page, 5)


@pytest.mark.parametrize("name", ["overview", "traffic", "timeline", "canary"])
def test_every_page_opens_and_draws(open_page: Any, name: str) -> None:
    page = open_page(f"page={name}&trace=gloo4.json&canary=gloo4.records-2.canary.json")
    expect(page.get_by_role("tab", name=re.compile(name, re.I))).to_have_attribute("aria-selected", "true")
    wait_for_colors(page, 5)
    assert page.locator(".key").count() >= 3


def test_tabs_switch_pages_and_the_address_follows(open_page: Any) -> None:
    page = open_page()
    page.get_by_role("tab", name="Traffic").click()
    expect(page.get_by_test_id("answer")).to_contain_text("Ranks exchange")
    page.get_by_role("tab", name="Canary").click()
    expect(page.get_by_text("What this canary reveals")).to_be_visible()
    wait_for_query(page, "page", ["canary"])
    page.reload()
    expect(page.get_by_text("What this canary reveals")).to_be_visible()


def test_heatmap_brush_fills_the_link_table(open_page: Any) -> None:
    page = open_page("page=traffic&trace=gloo4.json")
    wait_for_colors(page, 5)
    table = page.locator(".tabulator-row")
    expect(table).to_have_count(12)
    frame = frame_of(page)
    x, y, side = frame["x"], frame["y"], frame["width"] / 4
    start, end = (x + 0.2 * side, y + 0.2 * side), (x + 2.8 * side, y + 0.8 * side)  # row 0, columns 0 to 2
    drag_until(page, start, end, page.get_by_text("Links in the box"))
    expect(page.get_by_text(re.compile("Ranks 0 to 0-2: 2 links"))).to_be_visible()
    expect(table).to_have_count(2)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download links.csv").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == "src,dst,bytes"
    assert [line.split(",")[:2] for line in lines[1:]] == [["0", "1"], ["0", "2"]]


def test_hover_says_the_bytes_in_words(open_page: Any) -> None:
    page = open_page("page=traffic&trace=gloo4.json")
    wait_for_colors(page, 5)
    frame = frame_of(page)
    tip = page.locator(".bk-Tooltip:visible").first
    hover_until(page, (frame["x"] + 1.5 * frame["width"] / 4, frame["y"] + 0.5 * frame["height"] / 4), tip)
    expect(tip).to_contain_text(re.compile(r"from rank.*0.*to rank.*1.*sent.*MiB", re.S))


def test_colour_scale_and_node_borders(open_page: Any) -> None:
    page = open_page("page=traffic&trace=gloo4.json")
    expect(page.get_by_text("logarithmic colour")).to_be_visible()
    page.get_by_role("button", name="Linear").click()
    expect(page.get_by_text("linear colour", exact=False).first).to_be_visible()
    expect(page.get_by_text("logarithmic colour")).to_have_count(0)
    wait_for_colors(page, 5)
    page.get_by_label("GPUs per node").click()
    page.get_by_role("menuitem", name="2", exact=True).click()
    expect(page.get_by_test_id("answer")).to_contain_text("With 2 GPUs per node")
    expect(page.get_by_text("Between nodes", exact=True)).to_be_visible()


def test_timeline_windows(open_page: Any) -> None:
    page = open_page("page=timeline&trace=tp8_decode.json")
    expect(page.get_by_text(re.compile(r"\d+ of 2,015 events in view"))).to_be_visible()
    assert page.get_by_text("2,015 of 2,015 events in view").count() == 0
    page.get_by_role("button", name="Whole trace").click()
    expect(page.get_by_text("2,015 of 2,015 events in view")).to_be_visible()
    wait_for_colors(page, 4)
    page.get_by_role("button", name="First events").click()
    expect(page.get_by_text("2,015 of 2,015 events in view")).to_have_count(0)


def test_canary_statuses_and_bounds(open_page: Any) -> None:
    page = open_page("page=canary&trace=gloo4.json&canary=gloo4.records-2.canary.json")
    for status in ("timing", "coverage", "commitments", "bounds", "traffic", "ranking", "behavior"):
        expect(page.locator(".chip", has_text=status).first).to_be_visible()
    expect(page.get_by_text("running sum of gaps").first).to_be_visible()
    expect(page.locator(".tree")).to_contain_text("all_reduce")
    page.goto(page.url.replace("gloo4.json", "adversarial.json"))
    expect(page.get_by_text("Not verified here")).to_be_visible()


def test_compile_in_the_background(open_page: Any, server: Server) -> None:
    page = open_page("page=canary&trace=tp8_decode.json&canary=tp8_decode.lossless.canary.json")
    page.get_by_role("button", name="Bounded").click()
    records = page.get_by_label("Intervals per step, at most", exact=True)
    records.fill("3")
    records.press("Enter")
    page.get_by_role("button", name="Compile this trace").click()
    expect(page.locator(".crumb")).to_contain_text("tp8_decode.records-3.canary.json")
    assert (server.folder / "tp8_decode.records-3.canary.json").is_file()
    wait_for_query(page, "canary", ["tp8_decode.records-3.canary.json"])


def test_upload_opens_the_trace(open_page: Any, server: Server) -> None:
    page = open_page()
    events = [{"op": "all_gather", "bytes": 4096, "ranks": 4, "gap_us": 5.0, "group": "<img src=x onerror=alert(1)>"} for _ in range(7)]
    content = json.dumps({"format": "commcanary.trace.v1", "events": events}).encode()
    page.locator("input[type=file]").set_input_files({"name": "mine & yours.json", "mimeType": "application/json", "buffer": content})
    expect(page.get_by_test_id("answer")).to_contain_text("7 collectives")
    assert (server.folder / "mine & yours.json").read_bytes() == content
    expect(page.locator(".crumb")).to_contain_text("mine & yours.json")
    wait_for_query(page, "trace", ["mine & yours.json"])
    for tab in ("Traffic", "Timeline", "Overview"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(".crumb")).to_contain_text("mine & yours.json")
    assert page.locator("img[src=x]").count() == 0
    (server.folder / "mine & yours.json").unlink()


def test_a_bad_upload_shows_the_typed_error_and_leaves_nothing(open_page: Any, server: Server) -> None:
    page = open_page()
    before = sorted(p.name for p in server.folder.iterdir())
    bad = b'{"format": "commcanary.trace.v1", "events": [{"op": "all_reduce", "bytes": -4, "ranks": 2, "gap_us": 1}]}'
    page.locator("input[type=file]").set_input_files({"name": "broken.json", "mimeType": "application/json", "buffer": bad})
    box = page.get_by_role("alert").filter(has_text="broken.json was not added")
    expect(box).to_be_visible()
    expect(box).to_contain_text(re.compile(r"Error: broken\.json: event 0: bytes"))
    assert sorted(p.name for p in server.folder.iterdir()) == before


def test_a_click_in_the_list_opens_an_artifact(open_page: Any) -> None:
    page = open_page()
    page.locator(".tabulator-cell", has_text=re.compile(r"^adversarial\.json$")).click()
    expect(page.get_by_test_id("answer")).to_contain_text("100 collectives")
    wait_for_query(page, "canary", ["adversarial.lossless.canary.json"])


#: Defines ``tables``, the views of all tables of the page.
_TABLES = """
  const tables = []
  const walk = (view) => { if ("tabulator" in view) tables.push(view); for (const child of view.child_views || []) walk(child) }
  for (const root of Bokeh.index.roots) walk(root)
"""


@pytest.mark.parametrize("same", [True, False])
def test_a_click_on_a_row_that_is_drawn_anew_meanwhile(open_page: Any, same: bool) -> None:
    """A press lasts a tenth of a second; it opens its row also when that was made anew, and no other row that took its place."""
    page = open_page("trace=gloo4.json")
    table_row = page.locator(".tabulator-row").filter(has_text=re.compile(r"adversarial\.json"))
    cell = table_row.locator(".tabulator-cell", has_text=re.compile(r"^adversarial\.json$"))
    cell.hover()
    before = cell.element_handle()
    page.mouse.down()
    table_row.evaluate(f"(row) => {{ {_TABLES} tables.find((table) => table.shadow_el.contains(row)).redraw() }}")
    assert not before.evaluate("(element) => element.isConnected")
    if not same:
        table_row.locator("[tabulator-field=summary]").evaluate("(element) => { element.textContent = 'another row' }")
    page.mouse.up()
    if same:
        expect(page.get_by_test_id("answer")).to_contain_text("100 collectives")
    else:
        page.wait_for_timeout(1000)
        assert "trace=gloo4.json" in page.url


def test_deep_link_and_unknown_names(open_page: Any) -> None:
    page = open_page("page=timeline&trace=gloo4_shards&theme=dark")
    expect(page.locator(".crumb")).to_contain_text("gloo4_shards")
    open_page("page=traffic&trace=absent%3Cb%3E.json", wait="[role=alert]")
    expect(page.get_by_role("alert")).to_contain_text("the workspace has no file named 'absent<b>.json'")
    open_page("page=nonsense")
    expect(page.get_by_role("tab", name="Overview")).to_have_attribute("aria-selected", "true")


def test_dark_mode_themes_page_and_plots(open_page: Any) -> None:
    page = open_page("page=traffic&trace=gloo4.json")
    wait_for_colors(page, 5)

    def corner() -> tuple[int, ...]:
        """The median colour below the lower left corner of the heatmap: the card behind it, whatever tick is drawn there."""
        frame = frame_of(page)
        shot = page.screenshot(clip={"x": frame["x"] - 24, "y": frame["y"] + frame["height"] + 2, "width": 24, "height": 12})
        pixels = np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).reshape(-1, 3)
        return tuple(int(value) for value in np.median(pixels, axis=0))

    def wait_for_corner(accept: Callable[[tuple[int, ...]], bool]) -> None:
        """The plot is themed a moment after the page: ask until it is."""
        seen: tuple[int, ...] = ()
        for _ in range(50):
            seen = corner()
            if accept(seen):
                return
            page.wait_for_timeout(100)
        raise AssertionError(f"the heatmap's surroundings stayed {seen}")

    def is_light(color: tuple[int, ...]) -> bool:
        return min(color) > 240

    def is_dark(color: tuple[int, ...]) -> bool:
        return max(color) < 60

    wait_for_corner(is_light)
    page.get_by_label("Toggle theme").click()
    wait_for_corner(is_dark)
    page.wait_for_function("() => location.search.includes('theme=dark')")
    page.reload()
    page.get_by_test_id("answer").wait_for()
    wait_for_colors(page, 5)
    wait_for_corner(is_dark)


def test_two_visitors_do_not_disturb_each_other(open_page: Any, browser: Any, server: Server) -> None:
    mine = open_page("page=overview&trace=gloo4.json")
    other = browser.new_context().new_page()
    other.goto(f"{server.url}?page=overview&trace=adversarial.json")
    expect(other.get_by_test_id("answer")).to_contain_text("100 collectives")
    mine.get_by_role("tab", name="Timeline").click()
    expect(mine.get_by_text("Collectives in time")).to_be_visible()
    expect(other.get_by_text("Import coverage")).to_be_visible()
    expect(mine.locator(".crumb")).to_contain_text("gloo4.json")
    other.context.close()


def test_the_list_follows_the_folder(open_page: Any, server: Server) -> None:
    page = open_page()
    new = server.folder / "appeared.json"
    new.write_bytes((server.folder / "adversarial.json").read_bytes())
    try:
        expect(page.locator(".tabulator-row", has_text="appeared.json")).to_be_visible()
    finally:
        new.unlink()


def test_an_empty_workspace_says_what_to_do(watched: Any, tmp_path: Path) -> None:
    empty = Server(tmp_path / "empty")
    try:
        watched.goto(empty.url)
        expect(watched.get_by_text("This workspace has no trace yet")).to_be_visible()
        watched.get_by_role("tab", name="Traffic").click()
        expect(watched.get_by_text("No trace is open")).to_be_visible()
        watched.get_by_role("tab", name="Canary").click()
        expect(watched.get_by_text("No canary is open")).to_be_visible()
    finally:
        code = empty.stop()
    assert code == 0, "".join(empty.output)
    assert len([line for line in empty.output if line.strip()]) == 1


def test_the_first_page_of_a_server_may_have_no_chart(watched: Any, server: Server, tmp_path: Path) -> None:
    """A page knows only the components that existed when it was loaded."""
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copy(server.folder / "gloo4.json", folder)
    fresh = Server(folder)
    try:
        watched.goto(f"{fresh.url}?page=replay&trace=gloo4.json")
        watched.get_by_test_id("answer").wait_for()
        watched.get_by_role("tab", name="Ablation").click()
        expect(watched.get_by_label("Save this chart as PNG").first).to_be_visible()
    finally:
        fresh.stop()


def test_a_table_that_is_not_drawn_yet_is_left_out(open_page: Any) -> None:
    page = open_page("page=timeline&trace=gloo4.json")
    page.locator(".tabulator-row").first.wait_for()
    assert page.evaluate(
        "async () => {"
        + _TABLES
        + """for (const table of tables) {
               const kept = table.tabulator
               table.tabulator = undefined
               try {
                 table.restore_scroll(); table.record_scroll(); table.resize_table(); table.addData()
               } finally { table.tabulator = kept }
             }
             await new Promise((done) => setTimeout(done, 100))
             return tables.length
           }"""
    )


def test_a_plot_that_has_no_layout_yet_is_left_out(open_page: Any) -> None:
    page = open_page("page=ablation&trace=gloo4.json")
    page.locator("canvas").first.wait_for()
    page.evaluate(
        """() => {
             const plots = []
             const walk = (view) => { if (view.frame) plots.push(view); for (const child of view.child_views || []) walk(child) }
             for (const root of Bokeh.index.roots) walk(root)
             const [plot] = plots, kept = plot.layout
             plot.layout = undefined
             try { plot.measure_layout(); plot.after_layout() } finally { plot.layout = kept }
             plot.root.compute_layout()
           }"""
    )


@pytest.mark.parametrize(("origin", "status"), [("http://example.org", 403), (None, 101)])
def test_other_sites_cannot_open_a_websocket(server: Server, origin: str | None, status: int) -> None:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
    connection.request("GET", "/workbench")
    page = connection.getresponse().read().decode()
    token = re.search(r'"token":"([^"]+)"', page)
    assert token is not None
    headers = {"Upgrade": "websocket", "Connection": "Upgrade",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Protocol": f"bokeh, {token.group(1)}",
               "Origin": origin or f"http://{parts.hostname}:{parts.port}"}  # fmt: skip
    connection.request("GET", "/workbench/ws", headers=headers)
    assert connection.getresponse().status == status
