"""One rank's shard file: created once, appended to, closed with an end line."""

from __future__ import annotations

import os
from pathlib import Path

from commcanary_lab.capture.journal import Row
from commcanary_lab.capture.rows import EndRow, HeaderRow, encode_rows
from commcanary_lab.errors import UsageError

__all__ = ["ShardFile", "boot_id", "shard_path"]


def shard_path(directory: str | os.PathLike[str], rank: int) -> Path:
    """Return the path of a rank's shard.

    Examples
    --------
    >>> shard_path("run", 3).as_posix()
    'run/rank-3.jsonl'
    """
    return Path(directory) / f"rank-{rank}.jsonl"


def boot_id() -> str:
    """Return what names this boot of this machine, so that clocks of different boots never compare.

    Linux says it; elsewhere the first network address stands in, which still separates machines.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        import uuid

        return f"node-{uuid.getnode():012x}"


class ShardFile:
    """Append rows to a new file.

    Rows go to the operating system with one unbuffered write per batch: what was written survives the death of the
    process, and only the last line can be torn.

    Parameters
    ----------
    directory : path-like
        Created when it is missing.
    header : HeaderRow
        Written at once.

    Raises
    ------
    UsageError
        If the directory already holds a shard of this rank.
    """

    def __init__(self, directory: str | os.PathLike[str], header: HeaderRow) -> None:
        self.path = shard_path(directory, header.rank)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        _keep_earlier_attempt(self.path)
        try:
            self._fd: int | None = os.open(self.path, flags, 0o666)
        except FileExistsError:
            raise UsageError("the directory already holds a shard of this rank", file=str(self.path),
                             remedy="record into a new directory; shards are never overwritten") from None
        self.write([header])

    def write(self, rows: list[Row]) -> None:
        """Append rows; does nothing after `close` or a failed write, so that only the last line can ever be torn."""
        if self._fd is None:
            return
        data = memoryview(encode_rows(rows))
        try:
            while data:
                data = data[os.write(self._fd, data):]
        except OSError:
            self._release()
            raise

    def close(self, end: EndRow) -> None:
        """Append the end line and close the file."""
        self.write([end])
        self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _keep_earlier_attempt(path: Path) -> None:
    """An elastic launcher starts a rank again after a failure: set the earlier attempt's shard aside under its own name."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt.isdigit() and int(attempt) > 0 and path.exists():
        aside = path.with_name(f"{path.name}.attempt{int(attempt) - 1}")
        if not aside.exists():
            path.rename(aside)
