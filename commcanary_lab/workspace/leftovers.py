"""What killed processes leave in a workspace, and its removal."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

__all__ = ["sweep"]

#: Uploads, temporary files of atomic writes, and samples on their way.
_LEFT_OVER = re.compile(r"\.upload-.*|\..*\.tmp|\.unpack-.*")
#: What has not moved for so long is over: its process was killed.
_OLD_S = 3600.0


def sweep(folder: Path) -> None:
    """Remove what killed processes left: uploads and temporary files that have not moved for an hour.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / ".upload-killed").mkdir()
    >>> sweep(folder)
    >>> os.listdir(folder)
    ['.upload-killed']
    >>> os.utime(folder / ".upload-killed", (0, 0))
    >>> sweep(folder)
    >>> os.listdir(folder)
    []
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if not _LEFT_OVER.fullmatch(entry.name) or time.time() - _moved(entry) < _OLD_S:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def _moved(entry: os.DirEntry[str]) -> float:
    times = [entry.stat(follow_symlinks=False).st_mtime]
    if entry.is_dir(follow_symlinks=False):
        times += [e.stat(follow_symlinks=False).st_mtime for e in os.scandir(entry.path)]
    return max(times)
