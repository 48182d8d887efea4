"""Run small real Gloo jobs, each rank in a fresh Python process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

collect_ignore_glob = ["jobs/*"]  # scripts, not tests

JOBS = Path(__file__).parent / "jobs"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gloo: runs real process groups on this machine")


def rank_environment(rank: int, ranks: int, store: Path) -> dict[str, str]:
    own = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "STORE": str(store), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **own}


def start_ranks(job: str, ranks: int, folder: Path, *args: str) -> list[subprocess.Popen[str]]:
    """Start a job's ranks; each gets the folder for its shards as the first argument."""
    pytest.importorskip("torch")
    command = [sys.executable, str(JOBS / job), str(folder / "shards"), *args]
    store, pipe = folder / "store", subprocess.PIPE
    return [subprocess.Popen(command, env=rank_environment(r, ranks, store), stdout=pipe, stderr=pipe, text=True) for r in range(ranks)]


def finish(processes: Sequence[subprocess.Popen[str]], timeout_s: float = 60.0) -> list[tuple[int, str, str]]:
    """Wait for all; return (exit status, stdout, stderr) per rank. Kills what is left at the timeout."""
    deadline = time.monotonic() + timeout_s
    out = []
    for p in processes:
        try:
            stdout, stderr = p.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            for q in processes:
                q.kill()
            stdout, stderr = p.communicate()
        out.append((p.returncode, stdout, stderr))
    return out


@pytest.fixture(scope="session")
def run_job(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run a job of `jobs/` to its end, once per (job, ranks), and return the folder of its shards."""
    done: dict[tuple[str, int], Path] = {}

    def run(job: str, ranks: int) -> Path:
        if (job, ranks) not in done:
            folder = tmp_path_factory.mktemp(f"{Path(job).stem}{ranks}")
            for rank, (status, stdout, stderr) in enumerate(finish(start_ranks(job, ranks, folder))):
                assert status == 0, f"rank {rank}: {stdout}\n{stderr}"
            done[job, ranks] = folder / "shards"
        return done[job, ranks]

    return run
