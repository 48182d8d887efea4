"""Judge candidates: ranking and behaviour of many canaries of one trace, the source simulated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize.worst import smallest_tail_recall, worst_error
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel, get_model
from commcanary_lab.simulate.prepare import Prepared, prepare
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.behavior import behavior_checks
from commcanary_lab.verify.model import Check, Tolerances
from commcanary_lab.verify.ranking import ranking_checks

__all__ = ["Judge", "Judgement"]


@dataclass(frozen=True)
class Judgement:
    """How a canary of all events answers.

    Attributes
    ----------
    decisions_kept, decisions_total : int
        Ranking decisions that agree.
    ranking, behavior : str
        ``pass``, ``fail``; behaviour ``unverified`` where something was assumed.
    worst_error : float
        See `worst.worst_error`: at most 1 exactly when ranking and behaviour checks pass.
    tail_recall : float or None
        Smallest over quantiles and backends.
    reason : str or None
        The first check that failed.
    """

    decisions_kept: int
    decisions_total: int
    ranking: str
    behavior: str
    worst_error: float
    tail_recall: float | None
    reason: str | None

    @property
    def accepted(self) -> bool:
        """True when ranking and behaviour checks pass."""
        return self.reason is None


class Judge:
    """Compares canaries of all events of a trace with that trace.

    Parameters
    ----------
    trace : Trace
        The source.
    backends, model, tolerances, assume
        As in `verify.run.verify_canary`.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.tp8_decode()
    >>> judge = Judge(trace)
    >>> judge.judge(lab.compile(trace)).accepted, judge.judge(lab.compile(trace, records=1)).behavior
    (True, 'fail')
    """

    def __init__(
        self,
        trace: Trace,
        *,
        backends: Sequence[Backend] = DEFAULT_BACKENDS,
        model: str | CostModel = "commcanary-v4",
        tolerances: Tolerances | None = None,
        assume: Mapping[str, float] | None = None,
    ) -> None:
        if len({b.label for b in backends}) != len(backends) or len(backends) < 2:
            raise UsageError(f"{len(backends)} backends are too few or share a name", remedy="give at least two, each with its own name")
        self.trace = trace
        self.backends = tuple(backends)
        self.model = get_model(model)
        self.tolerances = tolerances or Tolerances()
        self.assume = dict(assume or {})
        self.prepared = prepare(trace, self.assume)
        self._known: dict[str, Judgement] = {}

    @cached_property
    def reports(self) -> list[Report]:
        """Reports of the source, one per backend."""
        return [simulate_prepared(self.prepared, b, model=self.model) for b in self.backends]

    def prepare(self, canary: Canary) -> Prepared:
        """Return a canary of all events, prepared; what its events share with the source's is not computed again."""
        found = prepare(canary.trace, self.assume)
        if len(found) == len(self.prepared):
            whole = self.prepared
            found.__dict__["identity"] = whole.identities.changed(whole.identity, whole.assumed_arrival_ns, found.assumed_arrival_ns)
        return found

    def judge(self, canary: Canary) -> Judgement:
        """Return how a canary compiled from this very trace answers; each distinct canary is simulated once."""
        if canary.identity not in self._known:
            self._known[canary.identity] = self._judge(canary)
        return self._known[canary.identity]

    def _judge(self, canary: Canary) -> Judgement:
        if canary.timing == "lossless":
            answers = self.reports  # expands to the very columns of the source
        else:
            prepared = self.prepare(canary)
            answers = [simulate_prepared(prepared, b, model=self.model) for b in self.backends]
        ranking = ranking_checks(self.reports, answers, self.tolerances)
        behavior: list[Check] = []
        for a, b in zip(self.reports, answers, strict=True):
            behavior += behavior_checks(a, b, self.tolerances)
        failed = next((c for c in (*ranking, *behavior) if not c.passed), None)
        good = "unverified" if self.prepared.assumptions else "pass"
        return Judgement(
            sum(c.passed for c in ranking),
            len(ranking),
            "pass" if all(c.passed for c in ranking) else "fail",
            good if all(c.passed for c in behavior) else "fail",
            worst_error([*ranking, *behavior], self.tolerances),
            smallest_tail_recall(behavior),
            None if failed is None else str(failed),
        )
