"""The workflow that the documentation shows: its steps run as they stand there, on the files of the tutorial."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "github_actions.md"
COMMANDS = Path(sys.executable).parent


def steps() -> list[str]:
    """Return the commands of the gate, without the installation."""
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None
    workflow = yaml.safe_load(text.group(1))
    return [s["run"] for s in workflow["jobs"]["gate"]["steps"] if "run" in s and not s["run"].startswith("pip ")]


@pytest.mark.parametrize(("bandwidth", "exits"), [(55, [0, 0, 0]), (28, [0, 0, 1])])
def test_the_gate_passes_and_fails(tmp_path: Path, bandwidth: int, exits: list[int]) -> None:
    perf = tmp_path / "perf"
    perf.mkdir()
    shutil.copy(ROOT / "data" / "samples" / "adversarial.json", tmp_path / "job.json")

    def run(command: str) -> int:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={"PATH": f"{COMMANDS}:/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        return done.returncode

    assert run("commcanary-lab compile job.json -o perf/job.canary.json") == 0
    assert run("commcanary-lab simulate perf/job.canary.json --samples -o perf/baseline.report.json") == 0
    (perf / "policy.toml").write_text("p99_threshold_pct = 1.0\n")
    (perf / "next.toml").write_text(f"[backends.next]\nbandwidth_gbps = {bandwidth}\n")
    assert [run(c) for c in steps()] == exits
    assert (tmp_path / "verdict.html").is_file()
    assert (tmp_path / "verdict.json").is_file()
