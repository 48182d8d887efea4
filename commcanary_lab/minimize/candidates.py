"""Candidates of the behaviour search: how each was made, how large it is, how it answers, and why it was not chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from commcanary_lab.minimize.judge import Judge, Judgement
from commcanary_lab.minimize.plan import Plan, Recipe
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.derived import trace_sha256
from commcanary_lab.verify.model import Tolerances

__all__ = ["Candidate", "Problem", "Workshop"]


@dataclass(frozen=True)
class Candidate:
    """One candidate.

    Attributes
    ----------
    index : int
        Its place in the ledger.
    stage : str
        ``records``, ``scale``, ``lossless`` or ``refine``.
    recipe : Recipe
        How it was made.
    canary_records, size_bytes, sha256, timing
        Of the canary.
    judgement : Judgement or None
        None where it was not simulated.
    status : str
        ``selected``, ``accepted``, ``rejected``, ``duplicate`` or ``skipped``.
    reason : str
        Why it is not the selected one.
    """

    index: int
    stage: str
    recipe: Recipe
    canary_records: int
    size_bytes: int
    sha256: str
    timing: str
    judgement: Judgement | None = None
    status: str = "skipped"
    reason: str = ""

    @property
    def worst_error(self) -> float | None:
        """Largest ratio of a difference to its tolerance; None where it was not simulated."""
        return None if self.judgement is None else self.judgement.worst_error

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as a JSON object."""
        out: dict[str, Any] = {
            "index": self.index,
            "stage": self.stage,
            "recipe": self.recipe.to_json(),
            "records": self.recipe.records,
            "canary_records": self.canary_records,
            "canary_bytes": self.size_bytes,
            "sha256": self.sha256,
            "timing": self.timing,
            "status": self.status,
            "reason": self.reason,
        }
        if self.judgement is not None:
            worst = self.judgement.worst_error
            out["judgement"] = {**asdict(self.judgement), "worst_error": worst if math.isfinite(worst) else None}
        return out


@dataclass(frozen=True, eq=False)
class Problem:
    """What every worker needs to make and judge candidates; small enough to send to another process."""

    trace: Trace
    backends: tuple[Backend, ...]
    model: str | CostModel
    tolerances: Tolerances
    assume: Mapping[str, float]
    salt: bytes = field(default=b"", repr=False)

    def key(self) -> tuple[object, ...]:
        """Identifies the problem among those that a worker has met."""
        model = self.model if isinstance(self.model, str) else self.model.name
        return trace_sha256(self.trace), self.backends, model, self.tolerances, tuple(sorted(self.assume.items())), self.salt


class Workshop:
    """Makes and judges candidates, here or on an executor."""

    def __init__(self, problem: Problem, executor: Executor | None = None) -> None:
        self.problem, self.executor = problem, executor
        self.plan = Plan(problem.trace, problem.salt)
        self.judge = Judge(
            problem.trace, backends=problem.backends, model=problem.model, tolerances=problem.tolerances, assume=problem.assume
        )

    def measured(self, index: int, stage: str, recipe: Recipe) -> Candidate:
        """Compile a candidate and measure it."""
        canary = self.plan.canary(recipe)
        return Candidate(index, stage, recipe, canary.records, canary.size_bytes, canary.identity, canary.timing)

    def judged(self, candidate: Candidate) -> Candidate:
        """Simulate a candidate and compare it with the source."""
        found = self.judge.judge(self.plan.canary(candidate.recipe))
        if found.accepted:
            return replace(candidate, judgement=found, status="accepted", reason="")
        return replace(candidate, judgement=found, status="rejected", reason=found.reason or "")


#: The workshop of the last problem that this process met as a worker.
_WORKER: dict[tuple[object, ...], Workshop] = {}


def worker(key: tuple[object, ...], problem: Problem) -> Workshop:
    """Return this process's workshop for a problem; only the last one is kept."""
    found = _WORKER.get(key)
    if found is None:
        found = Workshop(problem)
        _WORKER.clear()
        _WORKER[key] = found
    return found


def measure_task(key: tuple[object, ...], problem: Problem, index: int, stage: str, recipe: Recipe) -> Candidate:
    """Measure a candidate in a worker."""
    return worker(key, problem).measured(index, stage, recipe)


def judge_task(key: tuple[object, ...], problem: Problem, candidate: Candidate) -> Candidate:
    """Judge a candidate in a worker."""
    return worker(key, problem).judged(candidate)
