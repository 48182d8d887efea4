"""When a file or a folder has changed: stamps and marks, from its metadata alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from commcanary_lab.workspace.evidence import evidence_stamp

__all__ = ["Stamp", "stamp_of", "walked"]

#: Latest modification (nanoseconds), size and number of files; `Artifact.stamp`.
Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> tuple[Stamp, str]:
    """Return the stamp of a file or folder, and the mark by which the index knows it.

    The mark also has the inode and its last change, which no program can set back: a file that was replaced by one of the same size
    and date has another mark.

    Raises
    ------
    OSError
        If there is none.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as f:
    ...     _ = f.write(b"abc"), f.flush()
    ...     stamp, mark = stamp_of(Path(f.name))
    >>> stamp[1:], len(mark.split(":"))
    ((3, 1), 5)
    """
    info = path.stat()
    if not stat.S_ISDIR(info.st_mode):
        stamp = info.st_mtime_ns, info.st_size, 1
        return stamp, _mark(stamp, info.st_ctime_ns, info.st_ino)
    if (evidence := evidence_stamp(path)) is not None:
        return evidence, _mark(evidence, 0, info.st_ino)
    return _walk(path, info)


def walked(path: Path) -> Stamp:
    """Return the stamp of everything in a folder."""
    return _walk(path, path.stat())[0]


def _walk(path: Path, info: os.stat_result) -> tuple[Stamp, str]:
    latest, size, count, changed = info.st_mtime_ns, 0, 0, info.st_ctime_ns
    for folder, _, files in os.walk(path):
        for file in files:
            inner = os.stat(os.path.join(folder, file))
            latest, size, count = max(latest, inner.st_mtime_ns), size + inner.st_size, count + 1
            changed = max(changed, inner.st_ctime_ns)
    stamp = latest, size, count
    return stamp, _mark(stamp, changed, info.st_ino)


def _mark(stamp: Stamp, changed_ns: int, inode: int) -> str:
    return ":".join(map(str, (*stamp, changed_ns, inode)))
