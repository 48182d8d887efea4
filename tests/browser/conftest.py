"""A real server with the sample workspace, and Chromium. No request may leave this machine, no error may reach the console."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]
#: A deadline, not a wait: a machine that others use, too, may take ten times as long as an idle one.
PATIENCE_MS = 120_000
REQUIRED = os.environ.get("COMMCANARY_LAB_REQUIRE_BROWSER") == "1"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync"]  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    found = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if found is None:
        reason = "no chromium, chromium-browser or google-chrome on the PATH"
        if REQUIRED:
            pytest.fail(f"{reason}, and COMMCANARY_LAB_REQUIRE_BROWSER=1 requires one")
        pytest.skip(reason)
    return {"executable_path": found, "args": FLAGS}


@pytest.fixture(scope="session")
def browser_context_args() -> dict[str, Any]:
    return {"viewport": {"width": 1440, "height": 900}}


def wait_for_query(page: Any, name: str, values: list[str] | None) -> None:
    """Wait until the address has these values under a name; None where it must not have the name."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (found := parse_qs(urlsplit(page.url).query).get(name)) != values:
        assert time.monotonic() < deadline, f"{name} is {found}, not {values}, in {page.url}"
        page.wait_for_timeout(50)


class Server:
    """A workbench process on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "apps.serving", "--workspace", str(folder), "--port", "0"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output: list[str] = []
        self._ready = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(90) or not self.url:
            self.stop()
            raise RuntimeError("the workbench did not start:\n" + "".join(self.output))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
                self.url = found.group(0)
                self._ready.set()
        self._ready.set()

    def stop(self) -> int:
        self.process.send_signal(2)  # what Ctrl-C sends
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None and not self._reader.is_alive():
            self.process.stdout.close()
        return self.process.returncode


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, browser_type_launch_args: dict[str, Any]) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("workspace")
    subprocess.run([sys.executable, str(ROOT / "data" / "make_workspace.py"), str(folder)], check=True, cwd=ROOT, capture_output=True)
    running = Server(folder)
    yield running
    running.stop()
    trouble = [line for line in running.output if ("Traceback" in line or "ERROR" in line) and "Refusing websocket" not in line]
    assert not trouble, "".join(running.output)


@pytest.fixture(scope="session")
def context(browser: Any, browser_context_args: dict[str, Any]) -> Iterator[Any]:
    """One context for all tests: its cache holds the scripts of the page, which are megabytes. What a visitor chose is in the address."""
    made = browser.new_context(**browser_context_args)
    yield made
    made.close()


@pytest.fixture
def page(context: Any) -> Iterator[Any]:
    """A page of its own for each test."""
    opened = context.new_page()
    yield opened
    opened.close()


@pytest.fixture
def watched(page: Any) -> Iterator[Any]:
    """A page that fails the test on an outside request, a console error or an uncaught exception."""
    problems: list[str] = []
    local = ("http://127.0.0.1:", "ws://127.0.0.1:", "http://localhost:", "ws://localhost:", "data:", "blob:")
    page.on("request", lambda r: None if r.url.startswith(local) else problems.append(f"request to {r.url}"))
    page.on("console", lambda m: problems.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda e: problems.append(f"exception: {e}"))
    page.on("dialog", lambda d: (problems.append(f"dialog: {d.message}"), d.dismiss()))
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield page
    assert problems == []


@pytest.fixture
def open_page(watched: Any, server: Server) -> Any:
    """Open a page of the workbench and wait until it is drawn."""

    def go(query: str = "", wait: str = "[data-testid=answer]") -> Any:
        watched.goto(f"{server.url}{'?' + query if query else ''}")
        watched.locator(wait).first.wait_for()
        return watched

    return go


def row(page: Any, name: str) -> Any:
    """The row of an artifact in the list; the list has pages, so it is filtered by name, and the filter has taken effect."""
    page.get_by_label("Filter by name").fill(name)
    found = page.locator(".tabulator-row").filter(has=page.locator(".tabulator-cell", has_text=re.compile(f"^{re.escape(name)}$")))
    expect(found).to_have_count(1)
    others = page.locator(".tabulator", has=found).locator(".tabulator-row").filter(has_not_text=name)
    expect(others).to_have_count(0)
    return found


def open_row(page: Any, name: str, text: str) -> None:
    """Click the row of an artifact until the sentence of its page is there: a list that is just written anew takes no click."""
    answer = page.get_by_test_id("answer")
    for _ in range(3):
        row(page, name).click()
        with contextlib.suppress(AssertionError):
            expect(answer).to_contain_text(text, timeout=15_000)
            return
    expect(answer).to_contain_text(text)
