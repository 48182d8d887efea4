"""What tests with real ranks share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def workers(place: Path) -> list[int]:
    """Living processes whose command line names a replay's directory."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path("/proc", entry, "cmdline").read_bytes()
                state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(place).encode() in line and state not in "ZX":
                found.append(int(entry))
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for a replay; no process of it may be left when the test ends."""
    directory = tmp_path / "replay"
    yield directory
    deadline = time.monotonic() + 5
    while workers(directory) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers(directory) == []
