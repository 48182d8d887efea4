"""The prepared directory of several nodes: its batch script runs as it is, with an agent of torchrun for each node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import commcanary_lab as lab
from commcanary_lab.cli import run as command
from commcanary_lab.replay.result import read_replay

pytestmark = pytest.mark.gloo

#: What Slurm does for this script: names the first node, and starts the command once per node.
SCONTROL = "#!/bin/bash\necho localhost\n"
SRUN = """#!/bin/bash
shift
status=0
for node in 1 2; do "$@" & done
for job in $(jobs -p); do wait "$job" || status=$?; done
exit $status
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def batch(tmp_path: Path) -> Path:
    """A prepared directory of two ranks on two nodes, and the tools of Slurm in place of its own."""
    canary, out, tools = tmp_path / "job.canary.json", tmp_path / "run", tmp_path / "tools"
    lab.write(lab.compile(lab.samples.adversarial().take(slice(0, 12))), canary)
    assert command(["replay", str(canary), "--nodes", "2", "--backend", "gloo", "--iterations", "2", "-o", str(out)]) == 0
    tools.mkdir()
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    script = (out / "replay.sbatch").read_text()
    assert ":29500" in script
    (tmp_path / "replay.sbatch").write_text(script.replace(":29500", f":{free_port()}"))  # another test may have the port
    return out


def submit(tmp_path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    path = f"{tmp_path / 'tools'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SLURM_SUBMIT_DIR": str(out), "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "1"}
    return subprocess.run(
        ["bash", str(tmp_path / "replay.sbatch")], env=environment, cwd=out, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_batch_script_runs_two_agents_and_seals_what_they_left(tmp_path: Path) -> None:
    out = batch(tmp_path)
    assert read_replay(out).status == "failed"  # not run yet
    done = submit(tmp_path, out)
    assert done.returncode == 0, done.stderr[-2000:]
    found = read_replay(out)
    assert found.status == "done"
    assert len(found.ranks) == 2
    assert found.latency_ns.shape == (2, 12)
    assert (found.latency_ns > 0).all()
    assert found.count_differences == ()
    assert found.verify() == []


def test_a_node_that_fails_is_said(tmp_path: Path) -> None:
    out = batch(tmp_path)
    (tmp_path / "tools" / "srun").write_text("#!/bin/bash\nexit 9\n")
    done = submit(tmp_path, out)
    assert done.returncode == 4, done.stderr
    found = read_replay(out)
    assert (found.status, found.state.exit_status) == ("failed", 9)
    assert "exited with 9" in found.state.reason
    assert found.verify() == []
    again = subprocess.run(
        [sys.executable, "-m", "commcanary_lab.replay.finish", str(out), "0", "1"], capture_output=True, text=True, check=False
    )
    assert again.returncode == 3
    assert "says already how its run ended" in again.stderr
