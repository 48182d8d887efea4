"""Each page is also served alone, by Panel's own command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import ROOT, Server

NAMES = ["overview", "traffic", "timeline", "canary", "ablation", "ranking", "minimise", "replay", "review"]


@pytest.fixture(scope="module")
def alone(server: Server) -> Iterator[str]:
    files = [f"apps/{n}.py" for n in (*NAMES, "workbench")]
    command = [sys.executable, "-m", "panel", "serve", *files, "--port", "0"]
    environment = {**os.environ, "COMMCANARY_LAB_WORKSPACE": str(server.folder)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    started = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "running at" in line:
                started.set()
        started.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        assert started.wait(90), "".join(lines)
        found = re.search(r"http://localhost:(\d+)/", "".join(lines))
        assert found is not None, "".join(lines)
        yield f"http://127.0.0.1:{found.group(1)}"
    finally:
        process.terminate()
        process.wait(20)
    # a page that closes while something is sent to it is logged, too, and is no error of the app
    assert "Error running application" not in "".join(lines), "".join(lines)


@pytest.mark.parametrize("name", [*NAMES, "workbench"])
def test_a_page_is_served_alone(watched: Any, alone: str, name: str) -> None:
    watched.goto(alone.replace("127.0.0.1", "localhost") + f"/{name}")
    watched.get_by_test_id("answer").wait_for()
    assert watched.get_by_role("tab").count() == (len(NAMES) if name == "workbench" else 0)
