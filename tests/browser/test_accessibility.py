"""Every page, light and dark: nothing that axe-core calls serious, everything reachable with the keyboard, every control with a name."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import wait_for_query

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")

PAGES = {
    "overview": "",
    "traffic": "trace=fabric_job.kineto",
    "timeline": "trace=gloo4.json",
    "canary": "trace=tp8_decode.json&canary=tp8_decode.records-4.canary.json",
    "ablation": "trace=gloo4.json",
    "ranking": "trace=gloo4.json",
    "minimise": "trace=adversarial.json",
    "replay": "campaign=fidelity",
    "review": "",
}


def serious(page: Any) -> list[str]:
    """Return what axe-core finds, one line each."""
    found = axe_playwright.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{v['id']}: {v['help']} ({n['html'][:160]})" for v in found if v["impact"] in ("serious", "critical") for n in v["nodes"]]


def _settled(page: Any) -> None:
    """Wait until the page has all its parts, and the tables their rows: one without rows, for a moment, is no finding."""
    parts = page.locator("canvas, .tabulator, .cl")
    without_rows = page.locator(".tabulator-tableholder:not(:has(.tabulator-placeholder)) .tabulator-table:empty")
    empty = page.locator(".tabulator:visible").filter(has=without_rows)
    seen = -1
    for _ in range(60):
        page.wait_for_timeout(800)
        if (now := parts.count()) == seen and not empty.count():
            return
        seen = now
    raise AssertionError("the page does not come to rest")


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(open_page: Any, name: str) -> None:
    page = open_page(f"page={name}&{PAGES[name]}&theme={'dark' if len(name) % 2 else 'light'}")
    page.locator("canvas, .tabulator, .cl table").first.wait_for()
    page.wait_for_function("() => !document.querySelector('h5:not([role])')")  # what gives names has run
    for _ in range(3):  # parts that arrive while axe-core reads are half there for it; what is wrong stays wrong
        _settled(page)
        if not (found := serious(page)):
            return
    assert found == []


def test_axe_would_find_a_control_without_a_name(open_page: Any) -> None:
    page = open_page("page=timeline&trace=gloo4.json")
    page.evaluate("() => document.body.append(document.createElement('button'))")
    assert any(line.startswith("button-name") for line in serious(page))


def test_the_keyboard_reaches_pages_and_controls(open_page: Any) -> None:
    page = open_page("page=timeline&trace=gloo4.json")
    page.get_by_role("button", name="Whole trace").wait_for()
    reached: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(
            """() => { let at = document.activeElement
                       while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
                       return (at?.getAttribute('aria-label') || at?.innerText || at?.id || '').trim() }"""
        ))  # fmt: skip
    wanted = {"Timeline", "First events", "Whole trace", "Save this chart as PNG"}
    assert wanted <= reached, sorted(reached)
    page.get_by_role("tab", name="Timeline").focus()
    page.keyboard.press("ArrowRight")  # the tabs are one stop, and arrows move between them
    page.keyboard.press("Enter")
    wait_for_query(page, "page", ["canary"])
