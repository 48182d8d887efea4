"""How far a replay is: one small file that the first rank replaces, and anybody may read."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from commcanary_lab.errors import FormatError
from commcanary_lab.replay.spec import read_document, write_document

__all__ = ["ProgressFile", "ReplayProgress", "read_progress"]

_EVERY_S = 0.2


class ReplayProgress(msgspec.Struct, frozen=True):
    """What a replay is doing.

    Parameters
    ----------
    phase : str
        In words.
    done, total : int
        How much of the phase; 0 of 0 where that is not known.
    """

    phase: str
    done: int = 0
    total: int = 0


class ProgressFile:
    """Tells the progress of one rank, at most five times a second within a phase.

    Parameters
    ----------
    directory : Path
        The replay's.
    active : bool
        False on all ranks but one.
    """

    def __init__(self, directory: Path, active: bool = True) -> None:
        self._path = directory / "progress.json"
        self._active = active
        self._phase, self._next_s = "", 0.0

    def tell(self, phase: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done."""
        now = time.monotonic()
        if self._active and (phase != self._phase or now > self._next_s):
            self._phase, self._next_s = phase, now + _EVERY_S
            write_document(self._path, ReplayProgress(phase, done, total))


def read_progress(directory: Path) -> ReplayProgress:
    """Return the progress of a replay; before the first rank has said anything, that it starts."""
    try:
        return read_document(directory / "progress.json", ReplayProgress)
    except FormatError:
        return ReplayProgress("starting the ranks")
