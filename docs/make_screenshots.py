#!/usr/bin/env python3
"""Make the screenshots of the documentation: the workbench with the sample workspace, in Chromium.

    python docs/make_screenshots.py

Writes ``docs/images/workbench.png`` (timeline, light) and ``docs/images/workbench-dark.png`` (traffic, dark).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = Path(__file__).resolve().parent / "images"

#: File name, query of the page, and what must be visible before the shot.
SHOTS = {
    "workbench.png": ("page=timeline&trace=gloo4.json", "canvas"),
    "workbench-dark.png": ("page=traffic&trace=gloo4.json&theme=dark", "canvas"),
}


def main() -> int:
    """Start a server, take the shots, stop it."""
    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if chromium is None:
        print("error: no Chromium on the PATH; install it", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(ROOT / "data" / "make_workspace.py"), folder], check=True, cwd=ROOT)
        command = [sys.executable, "-m", "apps.serving", "--workspace", folder, "--port", "0"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"http://\S+", server.stdout.readline())
                if found is None:
                    print("error: the workbench did not start", file=sys.stderr)
                    return 4
                shoot(found.group(0), chromium)
            finally:
                server.terminate()
    return 0


def shoot(url: str, chromium: str) -> None:
    """Take all shots at 1440 x 900."""
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        for name, (query, ready) in SHOTS.items():
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{url}?{query}")
            page.get_by_test_id("answer").wait_for()
            page.locator(ready).first.wait_for()
            page.wait_for_timeout(2500)  # transitions and late layout
            page.screenshot(path=IMAGES / name)
            print(IMAGES / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
