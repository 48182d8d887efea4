"""What the Minimise page computes: ddmin and search of a trace, their contrast, the frontier and the table of all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from commcanary_lab.minimize import Candidate, Contrast, Frontier, MethodTable, Reduction, Search, Step
from commcanary_lab.minimize import compare_methods as methods_of
from commcanary_lab.minimize import contrast as contrast_of
from commcanary_lab.minimize import pareto as pareto_of
from commcanary_lab.minimize import reduce as reduce_trace
from commcanary_lab.minimize import search as search_canary
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace import Workspace

from .backend_choice import Protocol
from .deferred import Progress

__all__ = ["DDMIN", "SEARCH", "Asked", "Comparison"]

T = TypeVar("T")

DDMIN, SEARCH = "ddmin", "behaviour search"


@dataclass(frozen=True)
class Comparison:
    """Both minimisers of one trace."""

    reduction: Reduction
    search: Search
    contrast: Contrast


@dataclass(frozen=True)
class Asked:
    """A trace of a workspace and how its minimisers are asked.

    Parameters
    ----------
    workspace : Workspace
        Its cache keeps the results.
    name : str
        The trace in it.
    trace : Trace
        The same, open.
    protocol : Protocol
        Backends and assumptions.
    budget : int
        Oracle calls that ddmin may make.
    """

    workspace: Workspace
    name: str
    trace: Trace
    protocol: Protocol
    budget: int

    @property
    def _key(self) -> str:
        return f"{self.protocol.key} {self.budget}"

    @property
    def key(self) -> str:
        """Names the trace and all that its results depend on."""
        return f"{self.name} {self._key}"

    @property
    def known(self) -> bool:
        """True when the comparison is in the cache."""
        kept = self.workspace.cache.keys()
        return (f"minimised {self._key}", self.name, self.workspace.get(self.name).stamp) in kept

    def comparison(self, progress: Progress) -> Comparison:
        """Run ddmin and the search, and contrast them."""
        return self._kept("minimised", lambda: self._compare(progress))

    def frontier(self, progress: Progress) -> Frontier:
        """Simulate every candidate of the search."""

        def compute() -> Frontier:
            found = pareto_of(
                self.trace,
                backends=self.protocol.chosen,
                assume=self.protocol.assume,
                progress=_candidates(progress),
                cancelled=progress.cancelled,
            )
            progress.check()
            return found

        return self._kept("frontier", compute)

    def methods(self, both: Comparison, progress: Progress) -> MethodTable:
        """Verify the baselines, too."""

        def compute() -> MethodTable:
            progress.tell("Making and verifying the baselines")
            found = methods_of(
                self.trace, backends=self.protocol.chosen, assume=self.protocol.assume, reduction=both.reduction, found=both.search
            )
            progress.check()
            return found

        return self._kept("methods", compute)

    def _kept(self, what: str, compute: Callable[[], T]) -> T:
        return self.workspace.derived(self.name, f"{what} {self._key}", compute)

    def _compare(self, progress: Progress) -> Comparison:
        backends, assume, stop = self.protocol.chosen, self.protocol.assume, progress.cancelled
        progress.tell("ddmin: simulating the whole trace")
        reduction = reduce_trace(
            self.trace, backends=backends, assume=assume, budget=self.budget, progress=_steps(progress, self.budget), cancelled=stop
        )
        progress.check()
        found = search_canary(self.trace, backends=backends, assume=assume, progress=_candidates(progress), cancelled=stop)
        progress.check()
        progress.tell("Contrasting both results with the source")
        result = contrast_of(reduction, found, self.trace, labels=(DDMIN, SEARCH), backends=backends, assume=assume)
        _ = result.rows, result.lost_tail_events  # computed here, not while the page is drawn
        progress.check()
        return Comparison(reduction, found, result)


def _steps(progress: Progress, budget: int) -> Callable[[Step], None]:
    count = [0, 0]

    def tell(step: Step) -> None:
        count[1] = step.events if step.accepted else count[1]
        progress.tell(f"ddmin: {count[0]:,} of at most {budget:,} oracle calls, {count[1]:,} events so far", count[0], budget)
        count[0] += 1

    return tell


def _candidates(progress: Progress) -> Callable[[Candidate, int, int], None]:
    best: list[int] = []
    judged = [0]

    def tell(candidate: Candidate, done: int, total: int) -> None:
        if candidate.judgement is None:
            progress.tell(f"Search: {done:,} of {total:,} candidates compiled", done, total)
            return
        judged[0] += 1
        if candidate.status == "accepted":
            best[:] = [min([*best, candidate.size_bytes])]
        smallest = f"; the smallest that passes has {best[0]:,} bytes" if best else "; none passes yet"
        progress.tell(f"Search: {judged[0]:,} candidates simulated{smallest}")

    return tell
