"""The frontier of canonical bytes against worst behavioural error.

Limits of the method: the frontier is that of the candidates that were tried (record budgets, multiples of the error scales, with and
without loop nests, and the steps of the refinement), not of all canaries; nothing here proves that no better one exists. The error is
a maximum over checks against tolerances (`worst.worst_error`), so it says how far the worst check is off, not how many are. Behaviour is
that of the cost model on the given backends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

from commcanary_lab._shown import Shown
from commcanary_lab.minimize.candidates import Candidate
from commcanary_lab.minimize.ddmin import Cancel
from commcanary_lab.minimize.search import Progress, Search, search
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.model import Tolerances

__all__ = ["Frontier", "Point", "pareto"]


@dataclass(frozen=True)
class Point:
    """One candidate that was simulated.

    Attributes
    ----------
    canary_bytes : int
        Size of the canonical JSON.
    worst_error : float
        Largest difference over its tolerance; at most 1 passes.
    records : int or None
        The record budget, where one holds for all steps.
    canary_records : int
        Records of the canary.
    recipe : str
        How it was made.
    candidate : int
        Its index in the search ledger.
    on_frontier : bool
        Whether no other point is at least as good in both and better in one.
    selected : bool
        Whether the search selected it.
    """

    canary_bytes: int
    worst_error: float
    records: int | None
    canary_records: int
    recipe: str
    candidate: int
    on_frontier: bool
    selected: bool

    def to_json(self) -> dict[str, Any]:
        """Return the point as a JSON object."""
        return {**asdict(self), "worst_error": self.worst_error if math.isfinite(self.worst_error) else None}


@dataclass(frozen=True, eq=False)
class Frontier(Shown):
    """Result of `pareto`.

    Attributes
    ----------
    search : Search
        The exhaustive search whose candidates these are.
    all_points : tuple of Point
        Every distinct candidate, by bytes, then error.
    """

    search: Search
    all_points: tuple[Point, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """The frontier, smallest first; the error falls strictly."""
        return tuple(p for p in self.all_points if p.on_frontier)

    @property
    def evaluated(self) -> int:
        """Distinct candidates simulated."""
        return len(self.all_points)

    @property
    def selected(self) -> Point | None:
        """The point that the search selected."""
        return next((p for p in self.all_points if p.selected), None)

    def to_json(self) -> dict[str, Any]:
        """Return the frontier and all points as a JSON object."""
        return {
            "points": [p.to_json() for p in self.points],
            "all_points": [p.to_json() for p in self.all_points],
            "evaluated": self.evaluated,
            "selected": None if self.selected is None else self.selected.to_json(),
            "stopped": self.search.stopped,
            "method": "frontier of the candidates tried; no optimality beyond them is claimed",
        }

    def __repr__(self) -> str:
        return f"Frontier({len(self.points)} of {self.evaluated} points, stopped: {self.search.stopped})"

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        title = f"Frontier of bytes against worst error: {len(self.points)} of {self.evaluated} canaries, stopped: {self.search.stopped}"
        rows = ((p.canary_bytes, p.worst_error, p.canary_records, p.recipe, "selected" if p.selected else "") for p in self.points)
        headers = ["bytes", "worst error / tolerance", "records", "recipe", ""]
        notes = ("frontier of the candidates tried; no optimality beyond them is claimed", "an error of at most 1 passes every check")
        return table_html(title, headers, rows, len(self.points), notes)


def pareto(
    trace: Trace,
    records: Iterable[int] = range(2, 33),
    *,
    scales: Iterable[float] | None = None,
    flat: bool | None = None,
    refine: int | None = None,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    model: str | CostModel = "commcanary-v4",
    tolerances: Tolerances | None = None,
    assume: Mapping[str, float] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    cancelled: Cancel | None = None,
) -> Frontier:
    """Return the frontier of canonical bytes against worst behavioural error.

    The candidates are those of `search` with the same arguments, all of them simulated, so that the search's result lies on the
    frontier: whatever is smaller fails a check, and so has an error above 1.

    Parameters
    ----------
    trace : Trace
        The source.
    records, scales, flat, refine, backends, model, tolerances, assume, executor, progress, cancelled
        As in `search`.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> found = pareto(lab.samples.adversarial(), range(1, 4))
    >>> found.selected.on_frontier, found.selected.worst_error <= 1
    (True, True)
    """
    found = search(
        trace,
        records,
        scales=scales,
        flat=flat,
        refine=refine,
        exhaustive=True,
        backends=backends,
        model=model,
        tolerances=tolerances,
        assume=assume,
        executor=executor,
        progress=progress,
        cancelled=cancelled,
    )
    judged = sorted((c for c in found.candidates if c.judgement is not None), key=_place)
    points: list[Point] = []
    best = math.inf
    for c in judged:
        error = c.judgement.worst_error if c.judgement is not None else math.inf
        on_frontier = error < best or not points
        best = min(best, error)
        chosen = found.selected is not None and c.index == found.selected.index
        points.append(Point(c.size_bytes, error, c.recipe.records, c.canary_records, str(c.recipe), c.index, on_frontier, chosen))
    return Frontier(found, tuple(points))


def _place(c: Candidate) -> tuple[int, float, int]:
    return c.size_bytes, math.inf if c.worst_error is None else c.worst_error, c.index
