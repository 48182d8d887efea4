"""The library works without its extras: reading, compiling, simulating and verifying need the core dependencies only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = ("panel", "panel_material_ui", "holoviews", "bokeh", "datashader", "param", "torch", "dask", "distributed", "matplotlib")

WORK = """
import json, pathlib, sys, tempfile
import commcanary_lab as lab
from commcanary_lab.trace.parquet import write_parquet
from commcanary_lab.trace.write_v1 import write_json

folder = pathlib.Path(tempfile.mkdtemp())
events = [{"op": "all_reduce", "bytes": 65536, "ranks": 4, "group": "tp", "gap_us": 40 + i % 3, "compute_overlap_us": 5,
           "rank_arrival_us": [0, i % 5, 1, 2]} for i in range(40)]
(folder / "t.json").write_text(json.dumps({"format": "commcanary.trace.v1", "events": events}))
trace = lab.open(folder / "t.json")
write_parquet(trace, folder / "t.parquet")
write_json(lab.open(folder / "t.parquet"), folder / "u.json")
assert lab.open(folder / "u.json").equals(trace)
canary = lab.compile(trace)
report = lab.simulate(canary, "congested")
assert report.metrics == lab.simulate(trace, "congested").metrics
assert lab.verify(trace, canary).claim == "verified"
assert lab.traffic(trace).sum_bytes > 0
assert len(lab.ops(trace).rows) == 1
print(json.dumps({"events": len(trace), "p50": report.metrics, "extras": [m for m in EXTRAS if m in sys.modules]}))
"""

BLOCK = """
import importlib.abc, sys
EXTRAS = {extras!r}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def run(python: str | Path, code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd=cwd, timeout=300)


def test_the_core_works_where_no_extra_can_be_imported(tmp_path: Path) -> None:
    done = run(sys.executable, BLOCK.format(extras=EXTRAS) + WORK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"extras": []' in done.stdout


def test_the_block_blocks(tmp_path: Path) -> None:
    done = run(sys.executable, BLOCK.format(extras=EXTRAS) + "import bokeh", tmp_path)
    assert "No module named 'bokeh'" in done.stderr


def test_a_missing_extra_says_what_to_install(tmp_path: Path) -> None:
    code = """
import commcanary_lab as lab
from commcanary_lab.errors import MissingExtraError
try:
    lab.views.traffic(lab.traffic(lab.samples.adversarial()))
except MissingExtraError as e:
    assert isinstance(e, ImportError)
    print(e)
"""
    done = run(sys.executable, BLOCK.format(extras=EXTRAS) + code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "commcanary-lab[workbench]" in done.stdout


@pytest.mark.slow
def test_an_installation_without_extras(tmp_path: Path) -> None:
    """A fresh environment with the core dependencies at their pinned versions."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", ROOT]
    subprocess.run(install, check=True, timeout=900)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True).stdout
    present = {line.split("==")[0].lower().replace("-", "_") for line in listed.splitlines()}
    assert not present & set(EXTRAS), "an extra came in as a dependency of the core"
    done = run(python, f"EXTRAS = {EXTRAS!r}\n" + WORK, tmp_path)
    assert done.returncode == 0, done.stderr
    command = subprocess.run([tmp_path / "venv" / "bin" / "commcanary-lab", "--help"], capture_output=True, text=True)
    assert command.returncode == 0, command.stderr
