"""Ranks whose launcher was killed end by themselves: it cannot end them any more."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["end_with_launcher", "name_launcher"]

#: Names the process that watches a launch: its number and when it was born.
_LAUNCHER = "COMMCANARY_LAB_LAUNCHER"
_LOOK_S = 0.5


def name_launcher(environment: dict[str, str]) -> None:
    """Say in the environment of a launch which process watches it: this one.

    Examples
    --------
    >>> environment: dict[str, str] = {}
    >>> name_launcher(environment)
    >>> environment["COMMCANARY_LAB_LAUNCHER"].startswith(f"{os.getpid()}:")
    True
    """
    environment[_LAUNCHER] = f"{os.getpid()}:{_born(os.getpid())}"


def end_with_launcher() -> None:
    """End this process when the one that watches its launch is gone; to be called by a rank as it starts.

    Nothing happens where none is named, or where there is no ``/proc``.
    """
    pid, _, born = os.environ.get(_LAUNCHER, "").partition(":")
    if not pid.isdigit() or not born:
        return

    def watch() -> None:
        while _born(int(pid)) == born:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-launcher", daemon=True).start()


def _born(pid: int) -> str:
    """When a living process was born, in ticks since the machine started; empty for one that has ended, and where that cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            parts = f.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if len(parts) < 20 or parts[0] in (b"Z", b"X") else parts[19].decode("ascii")
