"""Starts the ranks of a replay with torchrun, watches them, and ends all of them when one fails, time is up or somebody cancels."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

from commcanary_lab.capture.processes import end_all, how_ended, is_running, new_mark, terminable
from commcanary_lab.errors import FormatError, MissingExtraError, UsageError
from commcanary_lab.replay.orphans import name_launcher
from commcanary_lab.replay.spec import RankMarker, ReplaySpec, RunState, marker_path, read_document

__all__ = ["batch_script", "check_nodes", "markers_verdict", "need_torch", "run_ranks", "torchrun", "worker_command"]

_POLL_S = 0.02
LOG = "log.txt"


def need_torch() -> None:
    """Check that torch is there.

    Raises
    ------
    MissingExtraError
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtraError("replaying needs torch", remedy="install commcanary-lab[replay]")


def worker_command(directory: Path) -> list[str]:
    """Return the command of one rank, without its interpreter."""
    return ["-m", "commcanary_lab.replay.worker", str(directory)]


def torchrun(command: Sequence[str], ranks: int) -> list[str]:
    """Return the command line that starts `ranks` processes of `command` on this host.

    Parameters
    ----------
    command : sequence of str
        Arguments of the Python interpreter: ``["-m", "module", ...]``.
    ranks : int
        Processes.
    """
    options = ["--nnodes", "1", "--nproc-per-node", str(ranks), "--max-restarts", "0", "--rdzv-backend", "c10d"]
    options += ["--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    return [sys.executable, "-m", "torch.distributed.run", *options, *command]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of ranks on one host: one thread each, and Gloo on the loopback interface, unless it says otherwise."""
    out = {**os.environ}
    out.setdefault("OMP_NUM_THREADS", "1")
    out.setdefault("GLOO_SOCKET_IFNAME", "lo")
    out.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    out["PYTHONUNBUFFERED"] = "1"
    out.pop("PYTHONWARNINGS", None)
    return {**out, **(extra or {})}


def run_ranks(
    commands: Sequence[Sequence[str]],
    directory: Path,
    ranks: int,
    *,
    timeout_s: float,
    cancelled: Event | None = None,
    env: Mapping[str, str] | None = None,
    environments: Sequence[Mapping[str, str]] | None = None,
) -> RunState:
    """Run the commands that start the ranks, until all have ended; none of their processes survives.

    Parameters
    ----------
    commands : sequence of command lines
        One for torchrun; one per rank where each needs a place of its own.
    directory : Path
        Where the ranks leave ``rank-*.started`` and their markers, and where their output goes (``log.txt``).
    ranks : int
        How many markers there must be.
    timeout_s : float
        Seconds after which all are ended.
    cancelled : threading.Event, optional
        Ends all when it is set.
    env : mapping of str to str, optional
        Variables for all of them.
    environments : sequence of mappings, optional
        Further variables per command.

    Returns
    -------
    RunState
        Also after a failure; an interrupt or SIGTERM ends the ranks and is raised on.
    """
    base = environment(env)
    mark = new_mark(base)
    name_launcher(base)
    extras = environments or [{}] * len(commands)
    start = time.monotonic()
    processes: list[subprocess.Popen[bytes]] = []
    watch = _Watch(directory, ranks)
    status, reason = "failed", ""
    with open(directory / LOG, "ab") as log, terminable():
        try:
            for command, extra in zip(commands, extras, strict=True):
                both = {**base, **extra}
                processes.append(subprocess.Popen(list(command), env=both, stdout=log, stderr=log, start_new_session=True))
            status, reason = _wait(processes, watch, start + timeout_s, timeout_s, cancelled)
        finally:
            end_all(processes, mark)
    exit_status = next((p.returncode for p in processes if p.returncode), 0)
    failed = None
    if status in ("done", "failed"):
        failed, why = watch.verdict(status == "done")
        if failed is not None or why:
            status, reason = "failed", why or reason
        elif status == "failed":
            reason = reason or f"the launcher {how_ended(exit_status)}"
    seconds = time.monotonic() - start
    told = tuple(shlex.join(c) for c in commands)
    return RunState(status=status, seconds=seconds, failed_rank=failed, reason=reason, exit_status=exit_status, command=told)  # type: ignore[arg-type]


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], watch: _Watch, deadline: float, timeout_s: float, cancelled: Event | None
) -> tuple[str, str]:
    while True:
        watch.look()
        codes = [p.poll() for p in processes]
        if all(c == 0 for c in codes):
            return "done", ""
        if any(c not in (None, 0) for c in codes):
            return "failed", ""
        if cancelled is not None and cancelled.is_set():
            return "cancelled", "cancelled"
        if time.monotonic() > deadline:
            return "timeout", f"not done after {timeout_s:g} s"
        time.sleep(_POLL_S)


class _Watch:
    """Sees which rank ends first without having said that it is done."""

    def __init__(self, directory: Path, ranks: int) -> None:
        self.directory, self.ranks = directory, ranks
        self._pids: dict[int, int] = {}
        self._lost: int | None = None

    def look(self) -> None:
        if len(self._pids) < self.ranks:
            for path in self.directory.glob("rank-*.started"):
                if (found := re.fullmatch(r"rank-(\d+)\.started", path.name)) and (text := path.read_text().strip()):
                    self._pids.setdefault(int(found[1]), int(text))
        if self._lost is None:
            gone = [r for r, pid in self._pids.items() if not is_running(pid)]
            self._lost = next((r for r in gone if not marker_path(self.directory, r).exists()), None)

    def verdict(self, ended_well: bool) -> tuple[int | None, str]:
        """Return the rank that failed first and why; None and nothing where all are well."""
        if self._lost is not None:
            return self._lost, f"rank {self._lost} ended without a word: it was killed or crashed"
        return markers_verdict(self.directory, self.ranks, ended_well)


def markers_verdict(directory: Path, ranks: int, ended_well: bool) -> tuple[int | None, str]:
    """Return the rank that failed first by what the ranks left, and why; None and nothing where all are well.

    Parameters
    ----------
    directory : Path
        Of the replay.
    ranks : int
        How many markers there must be.
    ended_well : bool
        Whether what started the ranks reported success; a rank without a marker is then the one that failed.
    """
    markers = []
    for rank in range(ranks):
        try:
            markers.append(read_document(marker_path(directory, rank), RankMarker))
        except FormatError:
            if ended_well:
                return rank, f"rank {rank} left no marker"
    failed = sorted((m for m in markers if m.status == "fail"), key=lambda m: m.ended_ns)
    if failed:
        return failed[0].rank, f"rank {failed[0].rank}: {failed[0].error}"
    return None, ""


_SCRIPT = """#!/bin/bash
#SBATCH --job-name=commcanary-replay
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --time={minutes}
{gpus}
# Copy this directory to a place that all nodes see, then: sbatch {name}
# The interpreter on every node needs commcanary-lab[replay].
set -euo pipefail
directory="${{SLURM_SUBMIT_DIR:?submit this with sbatch}}"
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"

begin=$(date +%s)
status=0
srun --kill-on-bad-exit=1 python -m torch.distributed.run \\
  --nnodes {nodes} --nproc-per-node {per_node} --max-restarts 0 \\
  --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head_node:29500" \\
  -m commcanary_lab.replay.worker "$directory" || status=$?
# what the ranks left, judged and sealed
python -m commcanary_lab.replay.finish "$directory" "$status" "$(($(date +%s) - begin))"
"""


def check_nodes(ranks: int, nodes: int) -> None:
    """Refuse a number of nodes over which the ranks do not spread evenly.

    Raises
    ------
    UsageError
    """
    if nodes < 1 or ranks % nodes:
        raise UsageError(f"{ranks} ranks do not spread evenly over {nodes} nodes", remedy="choose a divisor of the ranks")


def batch_script(spec: ReplaySpec, nodes: int, name: str = "replay.sbatch") -> str:
    """Return a Slurm batch script that runs a prepared directory on several nodes.

    Parameters
    ----------
    spec : ReplaySpec
        What is prepared; its ranks are spread evenly.
    nodes : int
        Nodes.
    name : str
        What the script will be called.

    Examples
    --------
    >>> spec = ReplaySpec("canary.json", "0" * 64, 16, 16, "nccl")
    >>> "--nnodes 2 --nproc-per-node 8" in batch_script(spec, 2)
    True
    """
    check_nodes(spec.ranks, nodes)
    per_node = spec.ranks // nodes
    gpus = f"#SBATCH --gpus-per-node={per_node}" if spec.backend == "nccl" else f"#SBATCH --cpus-per-task={per_node}"
    minutes = max(1, -(-int(spec.timeout_s) // 60) + 1)
    return _SCRIPT.format(nodes=nodes, per_node=per_node, gpus=gpus, minutes=minutes, name=name)
