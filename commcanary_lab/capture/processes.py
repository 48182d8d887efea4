"""Processes of one launch: started in a session of their own, marked, and all ended, whatever sessions they made for themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["end_all", "how_ended", "is_running", "marked", "new_mark", "terminable"]

#: Marks every process of one launch, so that none is left behind.
_MARK = "COMMCANARY_LAB_LAUNCH_ID"

#: How long processes may take to end after they were asked to.
_GRACE_S = 5.0


def new_mark(environment: dict[str, str]) -> str:
    """Put a new mark into the environment of a launch, and return it."""
    environment[_MARK] = mark = uuid.uuid4().hex
    return mark


def is_running(pid: int) -> bool:
    """True while the process lives; one that ended and was not waited for does not. Linux; elsewhere it counts as living."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")
    except (OSError, IndexError):
        return False


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While the command runs, make the default SIGTERM an exception, so that a cancelled launcher ends its processes too."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_all(processes: Sequence[subprocess.Popen[Any]], mark: str) -> None:
    """Ask all processes of the launch to end, then kill what is left.

    A launcher such as torchrun puts its workers in sessions of their own, so the process group alone is not enough: the
    mark in their environment finds them.
    """
    for sign, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        for process in processes:
            _signal_group(process.pid, sign)
        for pid in marked(mark):
            _signal(pid, sign)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            ended = [process.poll() is not None for process in processes]  # reaps them
            if all(ended) and not marked(mark):
                return
            time.sleep(0.02)


def _signal_group(group: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, sign)


def _signal(pid: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sign)


def marked(mark: str, variable: str = _MARK) -> list[int]:
    """Return living processes that carry the mark in a variable of their environment. Linux only; elsewhere there are none."""
    wanted = f"{variable}={mark}".encode()
    out: list[int] = []
    try:
        entries = [e for e in os.listdir("/proc") if e.isdigit()]
    except OSError:
        return out
    for entry in entries:
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if wanted in f.read().split(b"\0"):
                    out.append(int(entry))
        except OSError:  # gone, or another user's
            continue
    return out


def how_ended(status: int) -> str:
    """Return what an exit status means, in words.

    Examples
    --------
    >>> how_ended(3), how_ended(-9)
    ('failed with exit status 3', 'was killed by SIGKILL')
    """
    if status >= 0:
        return f"failed with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
