"""Background work of one session: workers put results into a queue, the session drains it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import panel as pn

from commcanary_lab.errors import LabError

__all__ = ["Job", "Jobs"]

#: Opening and analysing for all sessions; compiling has its own worker, so that it never holds up a page.
_READERS = ThreadPoolExecutor(2, thread_name_prefix="workbench-read")
_COMPILER = ThreadPoolExecutor(1, thread_name_prefix="workbench-compile")
#: Nobody waits for the provenance of a workspace; looking at large files must hold up nothing else.
_BACKGROUND = ThreadPoolExecutor(1, thread_name_prefix="workbench-background")

_POLL_MS = 40

log = logging.getLogger("commcanary_lab.workbench")


@dataclass(eq=False)
class Job:
    """One piece of work; a cancelled one may still run to its end, and its result is dropped."""

    done: Callable[[Any], None]
    failed: Callable[[str], None]
    stop: Callable[[], None] | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Drop the result, and ask the work to stop where it can."""
        self.cancelled = True
        if self.stop is not None:
            self.stop()


class Jobs:
    """The running jobs of a session. All callbacks run in the session, never in a worker."""

    def __init__(self) -> None:
        self._finished: SimpleQueue[tuple[Job, Any, BaseException | None]] = SimpleQueue()
        self._pending = 0
        self._timer: Any = None
        self._running: set[Job] = set()

    def close(self) -> None:
        """Stop everything: the visitor is gone, and nobody waits for the results."""
        for job in list(self._running):
            job.cancel()
        self._running.clear()

    def start(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[str], None], *, long: bool = False,
        slow: bool = False, stop: Callable[[], None] | None = None,
    ) -> Job:  # fmt: skip
        """Run `work` in the background, then `done` with its result or `failed` with a message; `stop` asks it to end early.

        What takes `long` has a worker of its own, and so has what is `slow` and nobody waits for.
        """
        job = Job(done, failed, stop)
        self._running.add(job)
        self._pending += 1
        (_BACKGROUND if slow else _COMPILER if long else _READERS).submit(self._run, job, work)
        if self._timer is None:
            self._timer = pn.state.add_periodic_callback(self._drain, period=_POLL_MS)
        return job

    def _run(self, job: Job, work: Callable[[], Any]) -> None:
        try:
            result, error = (None if job.cancelled else work()), None
        except BaseException as e:  # the session must hear of it, whatever it is
            result, error = None, e
        self._finished.put((job, result, error))

    def _drain(self) -> None:
        while True:
            try:
                job, result, error = self._finished.get_nowait()
            except Empty:
                break
            self._pending -= 1
            self._running.discard(job)
            if job.cancelled:
                continue
            if error is None:
                job.done(result)
            else:
                job.failed(describe(error))
        if self._pending == 0 and self._timer is not None:
            self._timer.stop()
            self._timer = None


def describe(error: BaseException) -> str:
    """Return what a user should read about an error."""
    if isinstance(error, LabError):
        return str(error)
    log.error("unexpected error", exc_info=error)
    return f"An unexpected error: {type(error).__name__}: {error}. The server's log has the details."
