"""The work of a search: candidates compiled and judged in order, here or on an executor, until asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

from commcanary_lab.minimize.candidates import Candidate, Problem, Workshop, judge_task, measure_task
from commcanary_lab.minimize.ddmin import Cancel
from commcanary_lab.minimize.plan import Recipe

__all__ = ["SMALL_EVENTS", "Cancelled", "Progress", "Work"]

#: Above so many events candidates are compiled two at a time, and a search tries fewer of them unless the call says otherwise.
SMALL_EVENTS = 4_096
_THREADS = 2

#: Called with the candidate, how many are done, and of how many.
Progress = Callable[[Candidate, int, int], None]


class Cancelled(Exception):
    """Raised where a search was asked to stop."""


class Work:
    """Measures and judges candidates in order, reports progress, and stops when asked to."""

    def __init__(self, problem: Problem, executor: Executor | None, progress: Progress | None, cancelled: Cancel | None) -> None:
        self.workshop = Workshop(problem, executor)
        self.problem, self.executor, self.progress, self.cancelled = problem, executor, progress, cancelled
        self.key = problem.key() if executor is not None else ()
        self.candidates: list[Candidate] = []

    def check(self) -> None:
        """Raise where the search was cancelled."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise Cancelled

    def measure(self, tasks: Sequence[tuple[str, Recipe]]) -> None:
        """Compile candidates and append them; those with a known identity are duplicates."""
        first = len(self.candidates)
        for i, found in enumerate(self._measured(first, tasks)):
            same = next((c for c in self.candidates if c.sha256 == found.sha256), None)
            if same is not None:
                found = replace(found, status="duplicate", reason=f"the same canary as candidate {same.index}")
            self.candidates.append(found)
            self._report(found, i + 1, len(tasks))

    def _measured(self, first: int, tasks: Sequence[tuple[str, Recipe]]) -> Iterator[Candidate]:
        if self.executor is not None:
            yield from self._in_order(
                [self.executor.submit(measure_task, self.key, self.problem, first + i, s, r) for i, (s, r) in enumerate(tasks)]
            )
        elif len(tasks) > 1 and len(self.problem.trace) > SMALL_EVENTS:
            self.workshop.plan.prime("nested")
            with ThreadPoolExecutor(_THREADS) as pool:
                yield from self._in_order([pool.submit(self.workshop.measured, first + i, s, r) for i, (s, r) in enumerate(tasks)])
        else:
            for i, (stage, recipe) in enumerate(tasks):
                self.check()
                yield self.workshop.measured(first + i, stage, recipe)

    def _in_order(self, futures: Sequence[Future[Candidate]]) -> Iterator[Candidate]:
        try:
            for future in futures:
                self.check()
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def judge(self, indices: Sequence[int]) -> list[Candidate]:
        """Judge candidates of the ledger, in order."""
        self.check()
        chosen = [self.candidates[i] for i in indices]
        if self.executor is None or len(chosen) == 1:
            found = [self.workshop.judged(c) for c in chosen]
        else:
            found = [f.result() for f in [self.executor.submit(judge_task, self.key, self.problem, c) for c in chosen]]
        for c in found:
            self.candidates[c.index] = c
            self._report(c, c.index + 1, len(self.candidates))
        return found

    def _report(self, candidate: Candidate, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(candidate, done, total)

    def best(self) -> Candidate | None:
        """The smallest accepted candidate; among equals the one with the smallest error, then the earliest."""
        passing = [c for c in self.candidates if c.status == "accepted"]
        return min(passing, key=lambda c: (c.size_bytes, c.worst_error, c.index), default=None)
