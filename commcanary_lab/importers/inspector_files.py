"""Read the files of a job, in two processes where there is much to read and nothing speaks against it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from commcanary_lab._collector import collector_paused
from commcanary_lab.importers.inspector_pack import Part, pack
from commcanary_lab.limits import Limits

__all__ = ["read_parts"]

#: From here on a second process pays for itself.
_MANY_BYTES = 64 << 20
_MAX_WORKERS = 4


def read_parts(paths: Sequence[str | os.PathLike[str]], limits: Limits) -> list[Part]:
    """Read files into columns, those that were written first in front.

    Raises
    ------
    FormatError
        If a line is no record; names file and line.
    LimitError
        If a limit is exceeded.
    """
    workers = _workers(paths)
    parts = _in_processes(paths, limits, workers) if workers > 1 else None
    if parts is None:
        parts = [pack(path, limits) for path in paths]
    return sorted(parts, key=lambda p: int(p.columns["dump_us"][0]) if len(p) else -1)


def _workers(paths: Sequence[str | os.PathLike[str]]) -> int:
    """How many processes read.

    A forked process has only the thread that forks. Where there are other threads, such as those of a server, locks that they hold
    would stay closed in it, so that everything is read here.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1 or len(paths) < 2 or cores < 2:
        return 1
    if multiprocessing.current_process().daemon or sum(Path(p).stat().st_size for p in paths) < _MANY_BYTES:
        return 1
    return min(cores, len(paths), _MAX_WORKERS)


def _in_processes(paths: Sequence[str | os.PathLike[str]], limits: Limits, workers: int) -> list[Part] | None:
    """Read in forked processes; None where they cannot be had, or are ended from outside."""
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
            return list(pool.map(partial(_pack, limits=limits), paths, chunksize=max(1, len(paths) // (8 * workers))))
    except (OSError, BrokenProcessPool):
        return None


def _pack(path: str | os.PathLike[str], limits: Limits) -> Part:
    with collector_paused():
        return pack(path, limits)
