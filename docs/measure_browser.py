#!/usr/bin/env python3
"""Measure the workbench in Chromium: how soon pages are ready, how fast charts follow, what many visitors cost.

    python docs/measure_browser.py -o docs/browser_measurements.json

All figures are of one run. The result is a part of docs/benchmarks.md (``docs/make_benchmarks.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import heatmap_speed, timeline_speed
from tests.browser.conftest import FLAGS, PATIENCE_MS, Server
from tests.browser.server_load import cycle, ready_ms, sessions, settle, usage

#: Pages, each with something open that it shows.
PAGES = {
    "Overview": "page=overview&trace=tp8_decode.json",
    "Traffic & Fabric": "page=traffic&trace=fabric_job.kineto",
    "Timeline": "page=timeline&trace=gloo4.json",
    "Canary": "page=canary&trace=tp8_decode.json&canary=tp8_decode.records-4.canary.json",
    "Ablation": "page=ablation&trace=gloo4.json",
    "Ranking": "page=ranking&trace=gloo4.json",
    "Minimise": "page=minimise&trace=adversarial.json",
    "Replay": "page=replay&campaign=fidelity",
    "Review": "page=review",
}
SESSIONS = 20
#: The first cycles fill caches and pools; growth is counted from there on.
WARM_CYCLES = 40


def ready(browser: Any, url: str, rounds: int) -> list[dict[str, Any]]:
    """Return how soon each page is ready, in a context whose cache is warm."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    rows = []
    for name, query in PAGES.items():
        times = [ready_ms(page, f"{url}?{query}") for _ in range(rounds + 1)][1:]
        rows.append({"page": name, "median_ms": statistics.median(times), "worst_ms": max(times)})
        print(f"{name}: {rows[-1]['median_ms']:.0f} ms")
    context.close()
    return rows


def visitors(browser: Any, server: Server, cycles: int) -> dict[str, Any]:
    """Return what the server holds with many sessions open, and after many have come and gone."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    addresses = [f"{server.url}?{query}" for query in PAGES.values()]
    pid = server.process.pid
    before = usage(pid)
    opened = sessions(context, [addresses[i % len(addresses)] for i in range(SESSIONS)])
    full = usage(pid)
    print(f"{SESSIONS} sessions: {full}")
    for page in opened:
        page.close()
    series = []
    for i in range(WARM_CYCLES + cycles):
        cycle(context, addresses[i % len(addresses)])
        if i + 1 == WARM_CYCLES or (i + 1 - WARM_CYCLES) % 50 == 0:
            settle()
            series.append({"cycles": i + 1 - WARM_CYCLES, **asdict(usage(pid))})
            print(f"after {i + 1} visits: {usage(pid)}")
    context.close()
    return {"sessions": SESSIONS, "before": asdict(before), "full": asdict(full), "cycles": series}


def main() -> int:
    """Measure and write."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--changes", type=int, default=48, help="changes of a view that are timed, per chart")
    parser.add_argument("--cycles", type=int, default=200, help="visits after those that warm the server")
    parser.add_argument("--rounds", type=int, default=5, help="times that each page is opened")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if chromium is None:
        print("error: no Chromium on the PATH; install it", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as samples, tempfile.TemporaryDirectory() as large, sync_playwright() as p:
        subprocess.run([sys.executable, str(ROOT / "data" / "make_workspace.py"), samples], check=True, cwd=ROOT, capture_output=True)
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        found: dict[str, Any] = {"date": str(date.today()), "chromium": browser.version, "cpus": os.cpu_count()}
        server = Server(Path(samples))
        try:
            found["ready"] = ready(browser, server.url, given.rounds)
            found["visitors"] = visitors(browser, server, given.cycles)
        finally:
            server.stop()
        found |= charts(browser, Path(large), given.changes)
        browser.close()
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def charts(browser: Any, folder: Path, changes: int) -> dict[str, Any]:
    """Return how fast the heatmap and the timeline follow."""
    names = heatmap_speed.write_jobs(folder)
    timeline_speed.write_trace(folder / "timeline.parquet")
    server = Server(folder)
    rows = []
    try:
        for ranks, target in heatmap_speed.TARGETS_MS.items():
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            speed = heatmap_speed.measure(page, server.url, names[ranks], ranks, changes=changes)
            print(speed)
            rows.append({"ranks": ranks, "links": speed.links, "median_ms": speed.median_ms, "p95_ms": speed.p95_ms, "target_ms": target})
            page.close()
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        along = timeline_speed.measure(page, server.url, "timeline.parquet", changes=changes)
        print(f"timeline: {along}")
        page.close()
    finally:
        server.stop()
    timeline = {"events": timeline_speed.EVENTS, "median_ms": along.median_ms, "p95_ms": along.p95_ms, "target_ms": along.target_ms}
    return {"changes": changes, "records": heatmap_speed.RECORDS, "heatmap": rows, "timeline": timeline}


if __name__ == "__main__":
    sys.exit(main())
