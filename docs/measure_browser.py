#!/usr/bin/env python3
"""Measure in Chromium how fast the heatmap of 512, 2,048 and 16,384 ranks pans and zooms.

    python docs/measure_browser.py -o docs/browser_measurements.json

The result is a part of docs/benchmarks.md (``docs/make_benchmarks.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser.conftest import FLAGS, Server
from tests.browser.heatmap_speed import RECORDS, TARGETS_MS, measure, write_jobs


def main() -> int:
    """Measure and write."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--changes", type=int, default=48, help="changes of the view that are timed, per matrix")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if chromium is None:
        print("error: no Chromium on the PATH; install it", file=sys.stderr)
        return 3
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        names = write_jobs(Path(folder))
        server = Server(Path(folder))
        try:
            with sync_playwright() as p:
                browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
                version = browser.version
                for ranks, target in TARGETS_MS.items():
                    page = browser.new_page(viewport={"width": 1440, "height": 900})
                    speed = measure(page, server.url, names[ranks], ranks, changes=given.changes)
                    print(speed)
                    rows.append(
                        {"ranks": ranks, "links": speed.links, "median_ms": speed.median_ms, "p95_ms": speed.p95_ms, "target_ms": target}
                    )
                    page.close()
                browser.close()
        finally:
            server.stop()
    about = {"date": str(date.today()), "chromium": version, "cpus": os.cpu_count(), "records": RECORDS, "changes": given.changes}
    given.output.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
