"""One process of a replay that outlives the visitor who started it, and the server: started, recognised again, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from commcanary_lab.capture.processes import is_running, marked

__all__ = ["ask_to_end", "born", "end_now", "is_same", "leftovers", "start"]

#: Marks everything that a job starts, whatever sessions its processes make for themselves.
_MARK = "COMMCANARY_LAB_REPLAY_JOB"


def start(command: Sequence[str], log: Path, mark: str) -> subprocess.Popen[bytes]:
    """Start a command line, never through a shell, in a session of its own, with its output in a file."""
    environment = {**os.environ, _MARK: mark, "PYTHONUNBUFFERED": "1"}
    with open(log, "ab") as out:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )


def born(pid: int) -> str:
    """Return what tells a process from a later one with the same number: the boot and its start time. Empty where that is not known.

    Examples
    --------
    >>> born(os.getpid()) == born(os.getpid())
    True
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
    return f"{boot} {ticks}"


def is_same(pid: int, when_born: str) -> bool:
    """True while the process that had this number and start lives."""
    return bool(when_born) and is_running(pid) and born(pid) == when_born


def leftovers(mark: str) -> list[int]:
    """Return the living processes that a job started."""
    return marked(mark, _MARK)


def ask_to_end(pid: int) -> None:
    """Ask a command and its process group to end; the launcher of a replay ends its ranks and seals its directory."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)


def end_now(pid: int | None, mark: str) -> None:
    """End what is left of a job."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    for process in leftovers(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
