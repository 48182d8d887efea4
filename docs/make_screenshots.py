#!/usr/bin/env python3
"""Make the screenshots of the documentation: every page of the workbench with the sample workspace, in Chromium.

    python docs/make_screenshots.py
    python docs/make_screenshots.py --review build/screens

The first writes one picture per page into ``docs/images``. The second takes every page, whole, at three window sizes, light and dark,
into a folder to be looked at, and says on standard error what the browser's console complained about.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
IMAGES = Path(__file__).resolve().parent / "images"
SIZES = ((1366, 768), (1440, 900), (1920, 1080))

#: Query of each page, and what must be visible before the shot.
PAGES = {
    "overview": ("trace=fabric_job.kineto", "canvas"),
    "traffic": ("trace=fabric_job.kineto", "canvas"),
    "timeline": ("trace=gloo4.json", "canvas"),
    "canary": ("trace=tp8_decode.json&canary=tp8_decode.records-4.canary.json", "canvas"),
    "ablation": ("trace=adversarial.json", "canvas"),
    "ranking": ("trace=adversarial.json", ".cl table"),
    "minimise": ("trace=adversarial.json", "canvas"),
    "replay": ("campaign=fidelity", "canvas"),
    "review": ("", "canvas"),
}
#: Pages that the documentation shows dark.
DARK = ("traffic", "review")


class Shot(NamedTuple):
    """One picture to take."""

    path: Path
    query: str
    ready: str
    size: tuple[int, int]
    whole: bool


def documented() -> Iterator[Shot]:
    """One picture per page, 1440 x 900."""
    for name, (query, ready) in PAGES.items():
        dark = "&theme=dark" if name in DARK else ""
        yield Shot(IMAGES / f"{name}.png", f"page={name}&{query}{dark}", ready, (1440, 900), False)


def reviewed(folder: Path) -> Iterator[Shot]:
    """Every page at every size, light and dark."""
    for width, height in SIZES:
        for theme in ("light", "dark"):
            for name, (query, ready) in PAGES.items():
                path = folder / f"{name}-{width}-{theme}.png"
                yield Shot(path, f"page={name}&{query}&theme={theme}", ready, (width, height), True)


def shoot(url: str, chromium: str, shots: Iterator[Shot]) -> None:
    """Take the pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        context = browser.new_context()
        for shot in shots:
            shot.path.parent.mkdir(parents=True, exist_ok=True)
            take(context, url, shot)
            print(shot.path)
        browser.close()


#: Elements of the page, those in shadow trees too.
_ELEMENTS = """() => {
  const count = (root) => [...root.querySelectorAll("*")].reduce((n, e) => n + 1 + (e.shadowRoot ? count(e.shadowRoot) : 0), 0)
  return count(document)
}"""


def rest(page: Any) -> None:
    """Wait until nothing has been added for two seconds: the controls come after the first cards, and transitions take their time."""
    counts: list[int] = []
    for _ in range(60):
        counts.append(page.evaluate(_ELEMENTS))
        if len(counts) > 4 and len(set(counts[-5:])) == 1:
            return
        page.wait_for_timeout(500)
    raise RuntimeError(f"the page does not come to rest: {counts[-5:]} elements")


def take(context: Any, url: str, shot: Shot) -> None:
    """Open the page, wait until it is drawn, and take it; a whole page is taken in a window as high as what it holds."""
    page = context.new_page()
    page.on("console", lambda m: print(f"{shot.path.name}: {m.text}", file=sys.stderr) if m.type == "error" else None)
    page.on("pageerror", lambda e: print(f"{shot.path.name}: {e}", file=sys.stderr))
    width, height = shot.size
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{url}?{shot.query}")
    page.get_by_test_id("answer").wait_for()
    page.locator(shot.ready).first.wait_for()
    rest(page)
    if shot.whole:
        wanted = page.locator(".main-content").evaluate("(e) => Math.ceil(e.getBoundingClientRect().top + e.scrollHeight)")
        page.set_viewport_size({"width": width, "height": max(height, min(wanted, 6000))})
        page.wait_for_timeout(1200)
    page.screenshot(path=shot.path)
    page.close()


def main() -> int:
    """Start a server, take the shots, stop it."""
    parser = argparse.ArgumentParser(description="Make the screenshots of the documentation.")
    parser.add_argument("--review", type=Path, metavar="DIR", help="every page, size and theme into this folder instead")
    folder = parser.parse_args().review
    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if chromium is None:
        print("error: no Chromium on the PATH; install it", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as workspace:
        subprocess.run([sys.executable, str(ROOT / "data" / "make_workspace.py"), workspace], check=True, cwd=ROOT)
        command = [sys.executable, "-m", "apps.serving", "--workspace", workspace, "--port", "0"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"http://\S+", server.stdout.readline())
                if found is None:
                    print("error: the workbench did not start", file=sys.stderr)
                    return 4
                shoot(found.group(0), chromium, reviewed(folder) if folder else documented())
            finally:
                server.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
