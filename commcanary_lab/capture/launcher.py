"""Run a command with the recorder switched on in all its Python processes, then merge what it wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from commcanary_lab.capture.activate import HOST_VARIABLE, environment
from commcanary_lab.capture.processes import end_all, how_ended, new_mark, terminable
from commcanary_lab.errors import LabError, LaunchError, UsageError

if TYPE_CHECKING:
    from commcanary_lab.trace.model import Trace

__all__ = ["LaunchResult", "launch"]

#: Where the output of a command goes, as in `subprocess.Popen`.
Output: TypeAlias = int | IO[str] | IO[bytes] | None


@dataclass(frozen=True)
class LaunchResult:
    """A finished launch.

    Parameters
    ----------
    shards : tuple of Path
        One file per rank that issued an operation.
    trace : Trace
        The merged trace.
    seconds : float
        Wall time of the command.
    """

    shards: tuple[Path, ...]
    trace: Trace
    seconds: float


def launch(
    cmd: Sequence[str],
    out: str | os.PathLike[str],
    timeout: float | None = None,
    *,
    env: Mapping[str, str] | None = None,
    stdout: Output = None,
    stderr: Output = None,
    host: str | None = None,
) -> LaunchResult:
    """Run `cmd` with the recorder on, wait for it and merge the shards.

    The command is not changed: a ``sitecustomize`` module starts the recorder in each Python process that initialises
    torch.distributed. On a timeout, an interrupt, SIGTERM or any other exception, and when the command fails, every process of the
    launch is ended: first asked, after 5 s killed. Shards stay in `out` in every case.

    Parameters
    ----------
    cmd : sequence of str
        Typically ``["torchrun", "--nproc-per-node", "4", "job.py"]``. Its Python must have this package.
    out : path-like
        Directory of the shards, new or without any.
    timeout : float, optional
        Seconds after which the command is ended.
    env : mapping of str to str, optional
        Environment of the command; that of this process by default.
    stdout, stderr : optional
        Where the command's output goes, as in `subprocess.Popen`; inherited by default.
    host : str, optional
        Name to write in the shards instead of the host's name.

    Returns
    -------
    LaunchResult

    Raises
    ------
    UsageError
        If the command is empty or not found, or `out` holds shards already.
    LaunchError
        If the command fails, runs out of time, or records nothing; says what was kept.
    """
    directory = Path(os.path.abspath(out))
    _check(cmd, directory)
    variables = environment(directory, env)
    mark = new_mark(variables)
    if host is not None:
        variables[HOST_VARIABLE] = host
    start = time.monotonic()
    with terminable():
        status = _run(cmd, variables, mark, timeout, stdout, stderr)
    seconds = time.monotonic() - start
    shards = tuple(sorted(directory.glob("rank-*.jsonl"), key=lambda p: int(p.stem.removeprefix("rank-"))))
    if status is None:
        raise LaunchError(f"{cmd[0]} was ended after {timeout:g} s", remedy=_kept(shards, directory))
    if status != 0:
        raise LaunchError(f"{cmd[0]} {how_ended(status)}", remedy=_kept(shards, directory))
    if not shards:
        raise LaunchError(
            f"{cmd[0]} succeeded and no process recorded anything",
            remedy="check that its Python has commcanary-lab, runs without -I, -E and -S, and initialises torch.distributed; "
            "or use commcanary_lab.capture.Recorder inside the job",
        )
    from commcanary_lab.importers.shards import read

    try:
        trace = read(shards)
    except LabError as error:
        raise LaunchError(f"the shards cannot be merged: {error}", remedy=_kept(shards, directory)) from error
    return LaunchResult(shards, trace, seconds)


def _check(cmd: Sequence[str], directory: Path) -> None:
    if not cmd or isinstance(cmd, str):
        raise UsageError("no command was given", remedy="give it as a list, such as ['torchrun', '--nproc-per-node', '4', 'job.py']")
    if shutil.which(cmd[0]) is None:
        raise UsageError(f"{cmd[0]} is not a command here", remedy="check its spelling and PATH")
    if directory.exists() and not directory.is_dir():
        raise UsageError("not a directory", file=str(directory), remedy="name a new directory")
    if any(directory.glob("rank-*.jsonl")):
        raise UsageError(
            "the directory holds shards already", file=str(directory), remedy="name a new directory; shards are never overwritten"
        )
    directory.mkdir(parents=True, exist_ok=True)


def _run(cmd: Sequence[str], env: dict[str, str], mark: str, timeout: float | None, stdout: Output, stderr: Output) -> int | None:
    """Return the exit status, None after a timeout; leave no process of a command that did not succeed."""
    process = subprocess.Popen(list(cmd), env=env, stdout=stdout, stderr=stderr, start_new_session=True)
    status: int | None = None
    done = False
    try:
        status = process.wait(timeout)
        done = status == 0
    except subprocess.TimeoutExpired:
        status = None
    finally:
        if not done:
            end_all([process], mark)
    return status


def _kept(shards: Sequence[Path], directory: Path) -> str:
    """What is left of a failed launch, and which ranks did not end properly."""
    if not shards:
        return "no rank had recorded anything"
    from commcanary_lab.importers.shards import read_rank

    cut, operations = [], 0
    for path in shards:
        try:
            capture = read_rank(path)
        except LabError:
            cut.append(path.stem)
            continue
        operations += len(capture.records)
        if any("did not close its shard" in w for w in capture.warnings):
            cut.append(path.stem)
    ended = f"; cut short: {', '.join(cut)}" if cut else ""
    return f"{len(shards)} shards with {operations} operations are kept in {directory}{ended}"
