"""Scripted use of a real server in Chromium at a modest rate, for as long as asked, and what the server holds each minute.

``make soak`` runs it for 30 minutes (``MINUTES=5 make soak`` for five) and writes ``docs/soak.json``. The bounds are on growth after the
warm-up: Python keeps memory that it has used once, so what counts is that it does not go on growing.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, expect, sync_playwright

from tests.browser.conftest import FLAGS, ROOT, Server, row
from tests.browser.pointer import frame_of
from tests.browser.server_load import Usage, usage

__all__ = ["BOUNDS", "Row", "Soak", "soak"]

#: Largest growth from the median of the first third after the warm-up to the median of the last third.
BOUNDS = {"rss_bytes": 150e6, "files": 12, "threads": 8, "processes": 1}
_PAGES = ("Traffic", "Timeline", "Canary", "Ablation", "Ranking", "Minimise", "Review", "Replay", "Overview")
_EVENT = {"op": "all_reduce", "bytes": 65536, "ranks": 2, "gap_us": 5}
_PACE_MS = 700
_REPLAY_EVERY = 12


@dataclass(frozen=True)
class Row:
    """What the server held at a time: `seconds` since the start, how much use there was until then, and what went wrong."""

    seconds: float
    rounds: int
    failures: int
    rss_bytes: int
    files: int
    threads: int
    processes: int


@dataclass(frozen=True)
class Soak:
    """The result: a row per minute, and how the last third compares with the first after the warm-up."""

    rows: tuple[Row, ...]
    warm_up: int
    trouble: tuple[str, ...]

    def growth(self, name: str) -> float:
        """Return the growth of a quantity between the thirds of what follows the warm-up."""
        values = [float(getattr(r, name)) for r in self.rows[self.warm_up :]]
        part = max(1, len(values) // 3)
        return statistics.median(values[-part:]) - statistics.median(values[:part])

    def problems(self) -> list[str]:
        """Return what exceeds its bound, and what went wrong."""
        found = [f"{n} grew by {self.growth(n):,.0f}, more than {b:,.0f}" for n, b in BOUNDS.items() if self.growth(n) > b]
        if self.rows[-1].rounds < 1:
            found.append("nothing was used")
        return [*found, *self.trouble]

    def table(self) -> str:
        """Return the rows as text."""
        head = f"{'min':>5} {'rounds':>7} {'failed':>7} {'memory, MB':>11} {'files':>6} {'threads':>8} {'processes':>10}"
        lines = [
            f"{r.seconds / 60:5.1f} {r.rounds:7,} {r.failures:7,} {r.rss_bytes / 1e6:11,.0f} {r.files:6,} {r.threads:8,} {r.processes:10,}"
            for r in self.rows
        ]
        return "\n".join([head, *lines])


class _Use:
    """One visitor who does everything, again and again."""

    def __init__(self, context: Any, server: Server) -> None:
        self.context, self.server = context, server
        self.rounds = self.failures = 0
        self.trouble: list[str] = []
        self.steps: tuple[Callable[[Any], None], ...] = (self._tabs, self._brush, self._files, self._cancel)

    def round(self) -> None:
        """Open a page, do everything once, close it."""
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda e: self.trouble.append(f"exception on a page: {e}"))
        try:
            page.goto(f"{self.server.url}?page=overview&trace=gloo4.json")
            page.get_by_test_id("answer").wait_for()
            for step in self.steps:
                step(page)
            if self.rounds % _REPLAY_EVERY == 1:
                self._replay(page)
            self.rounds += 1
        except (Error, AssertionError) as e:
            self.failures += 1
            print(f"a round failed: {str(e).splitlines()[0]}", file=sys.stderr)
        finally:
            page.close()

    def _tabs(self, page: Any) -> None:
        for name in _PAGES:
            page.get_by_role("tab", name=name).click()
            page.locator("[data-testid=answer]:visible, .cl .empty:visible").first.wait_for()
            page.wait_for_timeout(_PACE_MS)
        page.get_by_role("combobox", name="Trace").click()
        page.get_by_role("menuitem", name="adversarial.json", exact=True).click()
        page.get_by_test_id("answer").wait_for()
        page.wait_for_timeout(_PACE_MS)

    def _brush(self, page: Any) -> None:
        page.goto(f"{self.server.url}?page=traffic&trace=gloo4.json")
        page.get_by_text("Links").first.wait_for()
        box = frame_of(page)
        page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.1 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
        page.mouse.up()
        page.wait_for_timeout(_PACE_MS)

    def _files(self, page: Any) -> None:
        """Upload, delete, restore, delete, and empty the trash."""
        name = f"soak-{self.rounds}.json"
        page.goto(f"{self.server.url}?page=overview&trace=gloo4.json")
        page.get_by_test_id("answer").wait_for()
        content = json.dumps({"format": "commcanary.trace.v1", "events": [_EVENT] * (2000 + self.rounds)}).encode()
        page.locator(".dz input[type=file]").set_input_files({"name": name, "mimeType": "application/json", "buffer": content})
        page.get_by_text(f"{name} was added").first.wait_for()
        page.wait_for_timeout(_PACE_MS)
        entry = next(p for p in [self.server.folder / name] if p.exists())
        self._delete(page, name)
        page.get_by_role("button", name="Undo").click()
        page.get_by_text(f"{name} restored").first.wait_for()
        assert entry.exists()
        self._delete(page, name)
        page.get_by_role("button", name="Show the trash").click()
        page.get_by_role("button", name="Empty the trash").click()
        page.get_by_role("button", name="Delete for good").click()
        page.get_by_text("deleted for good").first.wait_for()

    def _delete(self, page: Any, name: str) -> None:
        delete = page.get_by_role("button", name="Delete 1")
        for _ in range(3):  # a list that is just written anew takes no tick
            with contextlib.suppress(Error, AssertionError):
                row(page, name).locator("input[type=checkbox]").check(timeout=5_000)
                expect(delete).to_be_visible(timeout=5_000)
                break
        delete.click()
        page.get_by_text(f"{name} moved to the trash").first.wait_for()
        page.wait_for_timeout(_PACE_MS)

    def _cancel(self, page: Any) -> None:
        """Start ddmin and search, and take it back."""
        page.goto(f"{self.server.url}?page=minimise&trace=tp8_decode.json")
        page.get_by_test_id("answer").first.wait_for()
        start = page.get_by_role("button", name="Compare them")
        if start.is_visible():  # a small trace is minimised at once
            start.click()
            page.get_by_role("button", name="Cancel").first.click()
            start.wait_for()
        page.wait_for_timeout(_PACE_MS)

    def _replay(self, page: Any) -> None:
        page.goto(f"{self.server.url}?page=replay&trace=gloo4.json&run_of=trace&run_ranks=2&run_iterations=2")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text("Runs on the CPU").first.wait_for()
        page.get_by_text("Runs on the CPU").first.wait_for(state="detached", timeout=180_000)


def soak(minutes: float, *, warm_up: float = 0.25, say: Callable[[str], None] = print) -> Soak:
    """Use a workbench for some minutes.

    Parameters
    ----------
    minutes : float
        How long.
    warm_up : float
        Share of the time after which nothing may grow.
    say : callable
        Told a row of the table each minute.
    """
    from shutil import which

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        subprocess.run([sys.executable, str(ROOT / "data" / "make_workspace.py"), folder], check=True, cwd=ROOT, capture_output=True)
        server = Server(Path(folder))
        try:
            with sync_playwright() as p:
                browser = p.chromium.launch(executable_path=which("chromium") or which("google-chrome"), args=FLAGS)
                use = _Use(browser.new_context(viewport={"width": 1440, "height": 900}), server)
                begin, last = time.monotonic(), 0.0
                step = min(60.0, minutes * 60 / 6)
                while time.monotonic() - begin < 60 * minutes:
                    use.round()
                    now = time.monotonic() - begin
                    if now - last >= step or not rows:
                        held: Usage = usage(server.process.pid)
                        rows.append(Row(round(now, 1), use.rounds, use.failures, **asdict(held)))
                        say(Soak(tuple(rows[-1:]), 0, ()).table().splitlines()[-1])
                        last = now
                browser.close()
        finally:
            server.stop()
    trouble = list(use.trouble)
    trouble += [line.rstrip() for line in server.output if "Traceback" in line or "unexpected error" in line]
    if use.failures > 0.2 * max(1, use.rounds):
        trouble.append(f"{use.failures:,} of {use.failures + use.rounds:,} rounds failed")
    return Soak(tuple(rows), max(1, round(warm_up * len(rows))), tuple(trouble))


def main() -> int:
    """Run, print the table, write it down; the exit status says whether the bounds hold."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    found = soak(minutes, say=lambda line: print(line, flush=True))
    print(found.table())
    grown = {name: found.growth(name) for name in BOUNDS}
    problems = found.problems()
    document = {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "minutes": minutes,
        "warm_up_rows": found.warm_up,
        "bounds": BOUNDS,
        "growth": grown,
        "problems": problems,
        "rows": [asdict(r) for r in found.rows],
    }
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print("; ".join(f"{name} {grown[name]:+,.0f} (bound {BOUNDS[name]:,.0f})" for name in BOUNDS))
    print("\n".join(problems) or "all bounds hold")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
