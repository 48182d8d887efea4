"""The scripts of the pages, run where nothing serves them: as an editor, a notebook or a check of imports does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APPS = Path(__file__).parents[2] / "apps"
SCRIPTS = sorted(path.name for path in APPS.glob("*.py") if ".servable(" in path.read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_without_a_server(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(APPS / name)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_there_is_a_script_for_each_page() -> None:
    assert len(SCRIPTS) == 10
