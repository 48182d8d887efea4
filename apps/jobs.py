"""Background work of one session: workers put results into a queue, the session drains it. How much may wait is bounded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from commcanary_lab.errors import LabError, LimitError

from .timers import every

__all__ = ["MOST_JOBS", "MOST_JOBS_EACH", "Job", "Jobs"]

#: Opening and analysing for all sessions; compiling has its own worker, so that it never holds up a page.
_READERS = ThreadPoolExecutor(2, thread_name_prefix="workbench-read")
_COMPILER = ThreadPoolExecutor(1, thread_name_prefix="workbench-compile")
#: Nobody waits for the provenance of a workspace; looking at large files must hold up nothing else.
_BACKGROUND = ThreadPoolExecutor(1, thread_name_prefix="workbench-background")

#: Jobs that run or wait: of the server, and of one visitor. A page has one or two; what is cancelled while it waits does not count.
MOST_JOBS, MOST_JOBS_EACH = 96, 12

_POLL_MS = 40

log = logging.getLogger("commcanary_lab.workbench")


class _Count:
    """How many jobs the workers of this server have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0

    def take(self) -> bool:
        with self._lock:
            if self.now >= MOST_JOBS:
                return False
            self.now += 1
            return True

    def give(self) -> None:
        with self._lock:
            self.now -= 1


_ALL = _Count()


@dataclass(eq=False)
class Job:
    """One piece of work; a cancelled one that runs may still run to its end, and its result is dropped."""

    done: Callable[[Any], None]
    failed: Callable[[str], None]
    stop: Callable[[], None] | None = None
    cancelled: bool = False
    _future: Future[None] | None = field(default=None, repr=False)

    def cancel(self) -> None:
        """Drop the result, and ask the work to stop where it can; work that waits is not begun."""
        self.cancelled = True
        if self.stop is not None:
            self.stop()
        if self._future is not None:
            self._future.cancel()


class Jobs:
    """The running jobs of a session. All callbacks run in the session, never in a worker."""

    def __init__(self) -> None:
        self._finished: SimpleQueue[tuple[Job, Any, BaseException | None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._working = 0
        self._timer: Any = None
        self._running: set[Job] = set()
        self._early: set[Future[Any]] = set()
        self._closed = False

    @property
    def working(self) -> int:
        """How many of this session run or wait."""
        return self._working

    def close(self) -> None:
        """Stop everything: the visitor is gone, and nobody waits for the results."""
        self._closed = True
        for job in list(self._running):
            job.cancel()
        self._running.clear()
        for future in list(self._early):
            future.cancel()

    def start(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[str], None], *, long: bool = False,
        slow: bool = False, stop: Callable[[], None] | None = None,
    ) -> Job:  # fmt: skip
        """Run `work` in the background, then `done` with its result or `failed` with a message; `stop` asks it to end early.

        What takes `long` has a worker of its own, and so has what is `slow` and nobody waits for. Where too much waits already, nothing
        is begun, and `failed` hears of a `LimitError`.
        """
        job = Job(done, failed, stop)
        self._running.add(job)
        pool = _BACKGROUND if slow else _COMPILER if long else _READERS
        if (problem := self._admit()) is not None:
            self._finished.put((job, None, problem))
        else:
            job._future = pool.submit(self._run, job, work)
            job._future.add_done_callback(lambda future: self._left(job, future))
        if self._timer is None:
            self._timer = every(_POLL_MS, self._drain)
        return job

    def ahead(self, work: Callable[[], Any]) -> Future[Any] | None:
        """Run `work` in the background for a page that may be asked for soon; None where too much waits already."""
        if self._admit() is not None:
            return None
        future = _READERS.submit(work)
        self._early.add(future)
        future.add_done_callback(self._ended_early)
        return future

    def _ended_early(self, future: Future[Any]) -> None:
        self._early.discard(future)  # whoever asked has it; here it would keep the result as long as the visitor stays
        self._given()

    def _admit(self) -> LimitError | None:
        remedy = "wait until something is done, or cancel it"
        if self._working >= MOST_JOBS_EACH:
            return LimitError(f"{self._working} computations of yours run or wait: no more than {MOST_JOBS_EACH}", remedy=remedy)
        if not _ALL.take():
            return LimitError(f"{MOST_JOBS} computations of this server run or wait: no more are taken", remedy=remedy)
        with self._lock:
            self._working += 1
        return None

    def _left(self, job: Job, future: Future[None]) -> None:
        """A job is done, or was cancelled before it began; runs in any thread."""
        self._given()
        if future.cancelled():
            self._finished.put((job, None, None))

    def _given(self) -> None:
        _ALL.give()
        with self._lock:
            self._working -= 1

    def _run(self, job: Job, work: Callable[[], Any]) -> None:
        try:
            result, error = (None if job.cancelled else work()), None
        except BaseException as e:  # the session must hear of it, whatever it is
            result, error = None, e
        self._finished.put((job, None if self._closed else result, error))

    def _drain(self) -> None:
        while True:
            try:
                job, result, error = self._finished.get_nowait()
            except Empty:
                break
            self._running.discard(job)
            if job.cancelled:
                continue
            if error is None:
                job.done(result)
            else:
                job.failed(describe(error))
        if not self._running and self._timer is not None:
            self._timer.stop()
            self._timer = None


def describe(error: BaseException) -> str:
    """Return what a user should read about an error."""
    if isinstance(error, LabError):
        return str(error)
    log.error("unexpected error", exc_info=error)
    return f"An unexpected error: {type(error).__name__}: {error}. The server's log has the details."
