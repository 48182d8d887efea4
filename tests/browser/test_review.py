"""The review page in a browser: a verdict at a glance, a policy that turns it, and a page to take along."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import commcanary_lab as lab
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.review import Policy, compare
from commcanary_lab.review.policy import load_policy
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.workspace import Workspace
from tests.browser.conftest import ROOT, Server, row, wait_for_query

BASE, CANDIDATE = "tp8_decode.baseline.report.json", "tp8_decode.slower_links.report.json"

#: Colours of the bars of the whole workload, as the browser has them.
_BARS = """() => {
  for (const doc of Bokeh.documents) for (const m of doc._all_models.values())
    if (m.type === 'ColumnDataSource' && m.data.allowed && Array.from(m.data.label)[0] === 'p99') return Array.from(m.data.color);
  return null }"""


def set_number(page: Any, label: str, value: str) -> None:
    field = page.get_by_label(label, exact=True).first
    field.fill(value)
    field.press("Enter")


def choose(page: Any, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("menuitem", name=option, exact=True).click()


def test_the_bundled_workspace_shows_a_verdict_that_reads(open_page: Any, server: Server) -> None:
    page = open_page("page=review")
    expect(page.get_by_test_id("verdict")).to_have_text("Fail")
    w = Workspace(server.folder)
    e = next(e for e in compare(w.report(BASE), w.report(CANDIDATE)).evaluations if e.key == "p99_pct")
    expect(page.get_by_test_id("answer")).to_contain_text(f"became {e.change:.1f} % slower")
    expect(page.get_by_test_id("answer")).to_contain_text("the policy allows 15 %")
    for words in ("Change against the policy", "What changed by phase", "What changed by operation", "Distribution of the exposed latency"):
        expect(page.get_by_text(words)).to_be_visible()
    expect(page.locator(".tabulator-row")).not_to_have_count(0)
    expect(page.locator("code")).to_contain_text(f"commcanary-lab compare {BASE} {CANDIDATE}")
    assert page.evaluate(_BARS)[0] == "#c93a32"
    with page.expect_download() as download:
        page.get_by_role("button", name="Download comparison.csv").click()
    assert Path(download.value.path()).read_text().startswith("scope,name,metric,baseline,candidate")


def test_the_policy_turns_the_verdict_live_and_is_kept_in_the_address(open_page: Any) -> None:
    page = open_page("page=review")
    verdict = page.get_by_test_id("verdict")
    expect(verdict).to_have_text("Fail")
    for label, value in (("p99, %", "60"), ("p95, %", "60"), ("Median, %", "60")):
        set_number(page, label, value)
    expect(page.get_by_test_id("answer")).to_contain_text("in phase")  # the whole workload passes, its parts do not
    expect(verdict).to_have_text("Fail")
    set_number(page, "Each part, %", "60")
    expect(verdict).to_have_text("Pass")
    page.wait_for_function(f"() => !({_BARS})().includes('#c93a32')")
    expect(page.locator("code")).to_contain_text("--policy policy.toml")
    page.wait_for_function("() => new URLSearchParams(location.search).get('policy') === 'p99_threshold_pct=60.0'")
    page.reload()
    expect(verdict).to_have_text("Pass")
    with page.expect_download() as download:
        page.get_by_role("button", name="policy.toml").click()
    assert load_policy(download.value.path()).breakdown_threshold_pct == 60
    page.get_by_role("button", name="Defaults").click()
    expect(verdict).to_have_text("Fail")
    expect(page.get_by_label("p99, %", exact=True).first).to_have_value("15")
    wait_for_query(page, "policy", None)


def test_a_policy_file_is_taken_or_refused(open_page: Any) -> None:
    page = open_page("page=review")
    upload = page.locator("input[type=file]")
    loose = "".join(f"{n}_threshold_pct = 90\n" for n in ("p99", "p95", "median", "breakdown")).encode()
    upload.set_input_files({"name": "loose.toml", "mimeType": "application/toml", "buffer": loose})
    expect(page.get_by_test_id("verdict")).to_have_text("Pass")
    expect(page.get_by_label("p95, %", exact=True).first).to_have_value("90")
    for _ in range(3):  # the field is written anew after a file, and one that comes in that moment is not noticed
        upload.set_input_files({"name": "wrong.toml", "mimeType": "application/toml", "buffer": b"p98_threshold_pct = 1"})
        with contextlib.suppress(AssertionError):
            expect(page.get_by_role("alert")).to_be_visible(timeout=20_000)
            break
    expect(page.get_by_role("alert")).to_contain_text("wrong.toml: unknown threshold 'p98_threshold_pct'")
    expect(page.get_by_test_id("verdict")).to_have_text("Pass")


def test_the_page_to_take_along_opens_offline_and_the_json_recomputes(open_page: Any, browser: Any, server: Server, tmp_path: Path) -> None:
    page = open_page("page=review")
    with page.expect_download() as download:
        page.get_by_role("button", name="Report as HTML").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.suffix == ".html"
    context = browser.new_context(offline=True)
    other = context.new_page()
    requests: list[str] = []
    other.on("request", lambda r: requests.append(r.url))
    other.goto(saved.as_uri())
    expect(other.locator("h1 .verdict")).to_have_text("✕ Fail")
    expect(other.locator("h1")).to_contain_text("p99 +21.1 %")
    expect(other.locator("svg").first).to_be_visible()
    assert requests == [saved.as_uri()]
    context.close()
    with page.expect_download() as download:
        page.get_by_role("button", name="Comparison as JSON").click()
    document = tmp_path / "comparison.json"
    download.value.save_as(document)
    command = [sys.executable, "-m", "commcanary_lab.cli", "verify-comparison", document, server.folder / BASE, server.folder / CANDIDATE]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_deep_link_restores_both_sides(open_page: Any) -> None:
    page = open_page(f"page=review&baseline={CANDIDATE}&candidate={BASE}&policy=p99_threshold_pct%3D7.5")
    expect(page.locator(".crumb")).to_contain_text(f"{CANDIDATE} → {BASE}")
    expect(page.get_by_test_id("verdict")).to_have_text("Pass")
    expect(page.get_by_label("p99, %", exact=True).first).to_have_value("7.5")
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_test_id("verdict")).to_have_text("Fail")
    expect(page.locator(".crumb")).to_contain_text(f"{BASE} → {CANDIDATE}")
    wait_for_query(page, "baseline", [BASE])
    wait_for_query(page, "candidate", [CANDIDATE])
    expect(page.get_by_label("p99, %", exact=True).first).to_have_value("7.5")


def test_incompatible_reports_are_refused_until_allowed(open_page: Any, server: Server) -> None:
    document = json.loads((server.folder / BASE).read_bytes())
    document["backend"]["seed"] = 8
    added = server.folder / "other_seed.report.json"
    added.write_text(json.dumps(document))
    try:
        page = open_page(f"page=review&baseline={BASE}&candidate=other_seed.report.json", wait="[role=alert]")
        box = page.get_by_role("alert")
        expect(box).to_contain_text("cannot be compared")
        expect(box).to_contain_text("the reports are incompatible in seed: 7 against 8; simulate both alike, or allow it at the left")
        page.get_by_label("Allow different work or protocol").click()
        expect(page.get_by_test_id("verdict")).to_have_text("Warning")
        expect(page.get_by_test_id("answer")).to_contain_text("do not describe the same work")
        wait_for_query(page, "allow", ["1"])
    finally:
        added.unlink()


def test_measured_traces(open_page: Any) -> None:
    page = open_page("page=review&trace=gloo4.json")
    page.get_by_role("button", name="Measured").click()
    expect(page.get_by_test_id("answer")).to_contain_text("No operation became slower")
    expect(page.locator(".crumb")).to_contain_text("gloo4.json → gloo4_shards · measured")
    expect(page.get_by_text("Change of each operation")).to_be_visible()
    title = page.locator(".tt", has_text=re.compile("^Distribution of"))
    before = title.inner_text()
    page.locator(".tabulator-cell[tabulator-field=operation]:visible").nth(4).click()
    expect(title).not_to_have_text(before)
    page.get_by_role("button", name="p95", exact=True).click()
    expect(page.get_by_text("the band is the 10 % that the policy allows")).to_be_visible()


def test_two_configurations_simulated_now_become_reports(open_page: Any, server: Server) -> None:
    page = open_page("page=review&trace=adversarial.json&compare=simulated")
    expect(page.locator(".crumb")).to_contain_text("adversarial.json on baseline → adversarial.json on high_bandwidth")
    expect(page.get_by_test_id("verdict")).to_have_text("Fail")
    choose(page, "Candidate on", "low_latency")
    expect(page.get_by_test_id("verdict")).to_have_text("Pass")
    page.get_by_role("button", name="Keep both reports").click()
    expect(page.locator(".crumb")).to_contain_text("adversarial.baseline.report.json → adversarial.low_latency.report.json")
    expect(page.get_by_test_id("verdict")).to_have_text("Pass")
    for name in ("baseline", "low_latency"):
        path = server.folder / f"adversarial.{name}.report.json"
        verb = [sys.executable, "-m", "commcanary_lab.cli", "verify-report", path, server.folder / "adversarial.json"]
        assert subprocess.run(verb, cwd=ROOT, capture_output=True, check=False).returncode == 0
        path.unlink()


def test_a_saved_comparison_opens_from_the_list_recomputed(open_page: Any, server: Server) -> None:
    w = Workspace(server.folder)
    found = compare(w.report(BASE), w.report(CANDIDATE), Policy(p99_threshold_pct=33))
    path = server.folder / "review.comparison.json"
    path.write_text(json.dumps(found.to_json()))
    try:
        page = open_page("page=overview")
        row(page, "review.comparison.json").locator(".tabulator-cell", has_text="review.comparison.json").click()
        expect(page.get_by_text("Saved comparison review.comparison.json")).to_be_visible()
        expect(page.locator(".chip.ok")).to_contain_text("values come out as stated")
        expect(page.get_by_label("p99, %", exact=True).first).to_have_value("33")
        set_number(page, "p99, %", "34")
        expect(page.get_by_test_id("verdict")).to_be_visible()
        expect(page.get_by_text("Saved comparison")).to_have_count(0)
        wait_for_query(page, "comparison", None)
        wait_for_query(page, "baseline", [BASE])
    finally:
        path.unlink()


@pytest.mark.parametrize("width", [1366, 1440])
def test_every_tab_is_in_view(open_page: Any, width: int) -> None:
    page = open_page("page=review")
    page.set_viewport_size({"width": width, "height": 768})
    tabs = page.get_by_role("tab")
    expect(tabs.last).to_be_visible()
    edges = [tabs.nth(i).bounding_box() for i in range(tabs.count())]
    theme = page.get_by_label("Toggle theme").bounding_box()
    assert len(edges) >= 7
    assert all(box is not None and box["x"] >= 0 and box["x"] + box["width"] <= theme["x"] for box in edges)
    assert len({round(box["y"]) for box in edges}) == 1
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


# -- a series -----------------------------------------------------------------------------------------------------------

WEEKS = [f"series.2026-{m:02}-{d:02}.report.json" for m, d in ((10, 5), (10, 12), (10, 19), (10, 26), (11, 2), (11, 9), (11, 16))]
SLOW_FROM = 4
EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def series(server: Server) -> Iterator[str]:
    """Seven reports of a workload of its own; the link becomes slower at the fifth."""
    prepared = prepare(lab.samples.tp8_decode().take(list(range(0, 600))))
    for i, name in enumerate(WEEKS):
        backend = Backend("new library" if i >= SLOW_FROM else "old library", bandwidth_gbps=42.0 if i >= SLOW_FROM else 55.0)
        document = simulate_prepared(prepared, backend).to_json(samples=True)
        (server.folder / name).write_bytes(canonical_bytes(document))
    yield "page=review&compare=series&" + "&".join(f"series={n}" for n in WEEKS)
    for name in [*WEEKS, *(p.name for p in server.folder.glob("*.signoff.json"))]:
        (server.folder / name).unlink(missing_ok=True)


_COLUMN = """([at, n]) => { for (const doc of Bokeh.documents) for (const m of doc._all_models.values())
  if (m.type === 'Figure' && m.x_range.end === n - 0.5) {
    const view = Bokeh.index.find_one_by_id(m.id), el = view?.el?.getBoundingClientRect(), frame = view?.frame?.bbox;
    if (el && frame) return [el.x + frame.left + frame.width * (at + 0.5) / n, el.y + frame.top + frame.height / 2] }
  return null }"""


def _click_entry(page: Any, index: int) -> None:
    """Click into the column of an entry in the trend."""
    place = page.evaluate(_COLUMN, [index, len(WEEKS)])
    assert place is not None
    page.mouse.click(*place)


def test_a_series_shows_since_when_it_fails(open_page: Any, series: str) -> None:
    page = open_page(series)
    expect(page.get_by_test_id("verdict").first).to_have_text("Fail")
    said = page.get_by_test_id("answer")
    expect(said).to_contain_text(f"The newest entry {WEEKS[-1]} is slower than the policy allows, compared with {WEEKS[0]}")
    expect(page.get_by_test_id("answer")).to_contain_text(f"It has been so since {WEEKS[SLOW_FROM]}; {WEEKS[SLOW_FROM - 1]} passed")
    expect(page.get_by_text(f"From {WEEKS[SLOW_FROM - 1]} to {WEEKS[SLOW_FROM]}, p").first).to_be_visible()
    expect(page.get_by_test_id("entry")).to_contain_text(f"{WEEKS[0]} → {WEEKS[-1]}")
    expect(page.get_by_text("What changed, by phase and operation")).to_be_visible()
    expect(page.locator("code")).to_contain_text("commcanary-lab trend")
    for words in ("pass", "fail", "the most that the policy allows"):  # the legend tells signs, not colours alone
        expect(page.get_by_text(words, exact=True).first).to_be_visible()


def test_a_click_on_an_entry_opens_its_pair_and_the_link_reopens_it(open_page: Any, series: str) -> None:
    page = open_page(series)
    expect(page.get_by_test_id("entry")).to_contain_text(WEEKS[-1])
    page.locator(".bk-Figure").first.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    _click_entry(page, 2)
    expect(page.get_by_test_id("entry")).to_contain_text(f"{WEEKS[0]} → {WEEKS[2]}")
    expect(page.get_by_test_id("entry").get_by_test_id("verdict")).to_have_text("Pass")
    wait_for_query(page, "entry", [WEEKS[2]])
    page.reload()
    expect(page.get_by_test_id("entry")).to_contain_text(f"{WEEKS[0]} → {WEEKS[2]}")
    page.locator(".tabulator-cell", has_text=WEEKS[5]).first.click()
    expect(page.get_by_test_id("entry")).to_contain_text(f"{WEEKS[0]} → {WEEKS[5]}")
    expect(page.get_by_test_id("entry").get_by_test_id("verdict")).to_have_text("Fail")
    choose(page, "Compared with", "The entry before")
    expect(page.get_by_test_id("answer")).to_contain_text(f"compared with {WEEKS[-2]}")
    expect(page.get_by_test_id("verdict").first).to_have_text("Pass")
    wait_for_query(page, "against", ["previous"])


def test_the_policy_turns_a_series_and_all_its_entries(open_page: Any, series: str) -> None:
    page = open_page(series)
    expect(page.get_by_test_id("verdict").first).to_have_text("Fail")
    for label in ("p99, %", "p95, %", "Median, %", "Each part, %"):
        set_number(page, label, "90")
    expect(page.get_by_test_id("verdict").first).to_have_text("Pass")
    expect(page.get_by_test_id("entry").get_by_test_id("verdict")).to_have_text("Pass")
    expect(page.get_by_test_id("answer")).to_contain_text("All 6 compared entries passed.")
    page.reload()
    expect(page.get_by_test_id("verdict").first).to_have_text("Pass")


def test_a_sign_off_is_kept_shown_escaped_and_goes_stale(open_page: Any, series: str, server: Server) -> None:
    page = open_page(series)
    expect(page.get_by_text("Nobody has signed this comparison.")).to_be_visible()
    page.get_by_label("Your name (optional)").fill("Ada")
    page.get_by_label("Note (optional)").fill(EVIL)
    page.get_by_label("Note (optional)").press("Tab")
    page.get_by_role("button", name="Reject", exact=True).click()
    note = page.get_by_test_id("signoff")
    expect(note).to_contain_text("Rejected by Ada")
    expect(note).to_contain_text(EVIL)
    expect(note).to_contain_text("about exactly this")
    page.reload()
    expect(note).to_contain_text(EVIL)
    assert page.title() != "owned"
    files = list(server.folder.glob("*.signoff.json"))
    assert len(files) == 1
    command = [sys.executable, "-m", "commcanary_lab.cli", "verify-signoff", files[0], server.folder / WEEKS[0], server.folder / WEEKS[-1]]
    assert subprocess.run(command, capture_output=True, cwd=ROOT, check=False).returncode == 0
    with page.expect_download() as download:
        page.get_by_role("button", name="Report as HTML").click()
    text = Path(download.value.path()).read_text()
    assert "Rejected" in text
    assert "<script" not in text
    # the same name with another content: what was signed is no longer what lies there
    candidate = server.folder / WEEKS[-1]
    kept = candidate.read_bytes()
    candidate.write_bytes((server.folder / WEEKS[0]).read_bytes())
    try:
        page.reload()
        expect(note).to_contain_text("stale")
        expect(note).to_contain_text("the candidate is another one than the one that was signed")
    finally:
        candidate.write_bytes(kept)
        files[0].unlink()


def test_the_exported_series_is_offline_and_prints(open_page: Any, browser: Any, series: str, tmp_path: Path) -> None:
    page = open_page(series)
    with page.expect_download() as download:
        page.get_by_role("button", name="Report as HTML").click()
    saved = tmp_path / "series.html"
    download.value.save_as(saved)
    context = browser.new_context(offline=True, color_scheme="dark")
    other = context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    other.on("request", lambda r: requests.append(r.url))
    other.on("console", lambda m: problems.append(m.text))
    other.goto(saved.as_uri())
    expect(other.locator("h1 .verdict").first).to_contain_text("Fail")
    assert other.locator(".sign.fail").count() >= len(WEEKS) - SLOW_FROM
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = other.evaluate(background)
    for size in ("A4", "Letter"):
        pdf = other.pdf(format=size)
        assert pdf.startswith(b"%PDF-")
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2
        assert len(pdf) > 20_000
    other.emulate_media(media="print")
    assert other.evaluate(background) != dark  # paper is light, whatever the screen was
    for words in ("In words", "Every entry", "What changed", "Policy", WEEKS[3]):
        expect(other.get_by_text(words).first).to_be_visible()
    inside = (
        "() => [...document.querySelectorAll('section')].filter(s => !s.querySelector('table')).map(s => getComputedStyle(s).breakInside)"
    )
    assert set(other.evaluate(inside)) == {"avoid"}
    assert other.evaluate("() => getComputedStyle(document.querySelector('tr')).breakInside") == "avoid"
    assert other.locator(".hash").count() >= 3
    assert (requests, problems) == ([saved.as_uri()], [])
    context.close()
