"""The recorder: a context manager that writes one shard per rank while a torch.distributed job runs."""

from __future__ import annotations

import atexit
import os
import socket
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType

from commcanary_lab.capture.groups import GroupRegistry
from commcanary_lab.capture.journal import Journal, Row
from commcanary_lab.capture.patch import Patches, Session
from commcanary_lab.capture.rows import FORMAT, EndRow, HeaderRow
from commcanary_lab.capture.shard import ShardFile, boot_id, shard_path
from commcanary_lab.errors import MissingExtraError, UsageError

__all__ = ["Recorder", "Summary", "phase"]

_active: Recorder | None = None


@dataclass(frozen=True)
class Summary:
    """What one rank's recorder did.

    Parameters
    ----------
    path : Path or None
        The shard; None when the rank issued no operation.
    operations : int
        Finished operations written.
    unfinished : int
        Operations that arrived and were never seen to finish.
    overhead_ns : int or None
        Median bookkeeping per operation, sampled in the run; None when nothing was sampled.
    outside : dict of str to int
        Per group, collectives that the backend ran and that did not pass the recorder.
    problems : dict of str to int
        What could not be recorded, with counts.
    """

    path: Path | None
    operations: int
    unfinished: int
    overhead_ns: int | None
    outside: dict[str, int]
    problems: dict[str, int]


class Recorder:
    """Record every collective and message that this process issues through torch.distributed.

    Use it as a context manager around the job, before or after ``init_process_group``. Each rank writes
    ``rank-<r>.jsonl`` in the directory from its first operation on. `importers.shards.read` merges the shards.

    Collectives issued inside C++ do not pass Python: gradient buckets of DistributedDataParallel (register
    ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook`` on the model and they do) and functional
    collectives (DTensor, compiled graphs). The backend's own count tells how many; the shard's last line says so per group.

    Parameters
    ----------
    directory : path-like
        Where the shards go; created when missing. A shard is never overwritten.
    host : str, optional
        Name to write for this machine instead of its host name. It names the clock: ranks of one machine must agree.
    notes : sequence of str
        Notes that travel with the trace.
    flush_seconds : float
        How often a daemon thread writes what has finished: what a killed process may lose.
    max_rows : int
        Rows kept in memory before the recording thread writes them itself.

    Raises
    ------
    UsageError
        If a recorder is already active in this process, or the directory already holds a shard of this rank.
    MissingExtraError
        If torch is not installed.

    Examples
    --------
    >>> with Recorder("run") as rec:                     # doctest: +SKIP
    ...     with rec.phase("decode"):
    ...         dist.all_reduce(x)
    >>> Recorder("run", flush_seconds=0)
    Traceback (most recent call last):
    commcanary_lab.errors.UsageError: flush_seconds is 0, not a positive time
    """

    def __init__(self, directory: str | os.PathLike[str], *, host: str | None = None, notes: Sequence[str] = (),
                 flush_seconds: float = 0.25, max_rows: int = 4096) -> None:
        if not flush_seconds > 0:
            raise UsageError(f"flush_seconds is {flush_seconds}, not a positive time")
        if max_rows < 1:
            raise UsageError(f"max_rows is {max_rows}, not a positive number")
        self.directory = Path(os.path.abspath(directory))
        self._host = host or socket.gethostname()
        self._notes = list(notes)
        self._flush_seconds = flush_seconds
        self._journal = Journal(self._write, max_rows)
        self._registry = GroupRegistry(self._journal.add)
        self._session = Session(self._journal, self._registry, self._open)
        self._patches = Patches()
        self._shard: ShardFile | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._overhead_ns = 0
        self._started = False
        self._pid = os.getpid()
        self.summary: Summary | None = None

    # -- start and stop -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to record; `stop` ends it. The context manager calls both."""
        global _active
        if _active is not None:
            raise UsageError(f"a recorder is already active in this process (it writes to {_active.directory})",
                             remedy="leave it first; inside a recorded job use commcanary_lab.capture.phase to name phases")
        if self._started:
            raise UsageError("this recorder was used before", remedy="make a new Recorder with a new directory")
        try:
            import torch.distributed as dist
        except ImportError:
            raise MissingExtraError("recording needs torch", remedy="pip install 'commcanary-lab[replay]'") from None
        if not dist.is_available():
            raise MissingExtraError("this build of torch has no torch.distributed", remedy="install a build with distributed support")
        self._started = True
        self._pid = os.getpid()
        first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if dist.is_initialized() and first_attempt and (path := shard_path(self.directory, dist.get_rank())).exists():
            raise UsageError("the directory already holds a shard of this rank", file=str(path),
                             remedy="record into a new directory; shards are never overwritten")
        from commcanary_lab.capture.overhead import bookkeeping_ns

        self._overhead_ns = bookkeeping_ns()
        self._registry.take_base()
        self._patches.install(self._session)
        _active = self
        atexit.register(self.stop)
        self.ready()

    def ready(self) -> None:
        """Open the shard now if the process group exists, so that the first operation does not pay for it."""
        import torch.distributed as dist

        if self._session.live and dist.is_initialized():
            try:
                self._open()
            except Exception:  # told by a warning already
                return

    def stop(self) -> None:
        """Restore torch, write what is left and close the shard. Safe to call again."""
        global _active
        if _active is not self:
            return
        _active = None
        atexit.unregister(self.stop)
        if os.getpid() != self._pid:
            return
        try:
            self._registry.account()
        except Exception as error:
            self._journal.problem(f"accounting: {type(error).__name__}")
        self._session.live = False
        self._patches.restore()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._close()

    def _close(self) -> None:
        self._journal.flush()
        samples = self._journal.samples
        end = EndRow(self._journal.operations, self._journal.unfinished, time.monotonic_ns(),
                     round(statistics.median(samples)) if samples else None, self._registry.outside, self._journal.problems)
        path = None
        if self._shard is not None:
            path = self._shard.path
            try:
                self._shard.close(end)
            except OSError as error:
                self._lost(error)
        self.summary = Summary(path, end.operations, end.unfinished, end.overhead_ns, dict(end.outside), dict(end.problems))

    # -- phases -------------------------------------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name the phase of the operations inside; the innermost name counts, for all threads of the process."""
        before, self._journal.phase = self._journal.phase, name
        try:
            yield
        finally:
            self._journal.phase = before

    # -- the shard ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the shard at the first operation, when rank and world size are known."""
        if self._shard is not None:
            return
        import torch
        import torch.distributed as dist

        with self._lock:
            if self._shard is not None:
                return
            host, boot = self._host, boot_id()
            header = HeaderRow(
                FORMAT, dist.get_rank(), dist.get_world_size(), host, boot, f"monotonic@{host}/{boot}", os.getpid(), time.time_ns(),
                time.monotonic_ns(), {"commcanary_lab": _version(), "torch": str(torch.__version__), "python": sys.version.split()[0]},
                self._overhead_ns, self._notes)
            try:
                self._shard = ShardFile(self.directory, header)
            except Exception as error:  # a directory that cannot be written ends the recording, not the job
                self._session.live = False
                self._lost(error)
                raise
            self._thread = threading.Thread(target=self._flush_in_time, name="commcanary-lab-recorder", daemon=True)
            self._thread.start()

    def _flush_in_time(self) -> None:
        while not self._stop.wait(self._flush_seconds):
            self._journal.flush()

    def _write(self, rows: list[Row]) -> None:
        if self._shard is None:
            return
        try:
            self._shard.write(rows)
        except OSError as error:  # a full disk ends the recording, not the job
            self._session.live = False
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        self._journal.problem(f"shard not written: {error}"[:200])
        warnings.warn(f"commcanary_lab recorder stopped: {error}", RuntimeWarning, stacklevel=2)

    def _after_fork(self) -> None:
        """A forked child starts afresh if its parent had recorded nothing; otherwise the shard stays the parent's."""
        if self._shard is not None:
            self._session.live = False
            return
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stop = threading.Event()


def _version() -> str:
    try:
        return metadata.version("commcanary-lab")
    except metadata.PackageNotFoundError:
        return "unknown"


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name the phase of the operations inside, if a recorder is active; do nothing otherwise.

    For jobs that are recorded from outside (`launch`): the line can stay in the job.

    Examples
    --------
    >>> with phase("prefill"):
    ...     pass
    """
    recorder = _active
    if recorder is None:
        yield
    else:
        with recorder.phase(name):
            yield


def _forked() -> None:
    recorder = _active
    if recorder is not None:
        recorder._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
