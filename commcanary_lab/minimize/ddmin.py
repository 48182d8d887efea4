"""ddmin: the fewest events that still rank the backends alike. The baseline that behaviour verification refuses.

The rule is in `ddmin_rule`, the oracle in `oracle`; here both work together, and every step is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from commcanary_lab._shown import Shown
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize.ddmin_rule import Stop, ranges_of, reduce_by_rule
from commcanary_lab.minimize.oracle import Answer, SubsetOracle, decision_labels
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.derived import derive
from commcanary_lab.verify.model import Tolerances
from commcanary_lab.verify.ranking import METRICS

__all__ = ["LEDGER_FORMAT", "Reduction", "ReductionProtocol", "Step", "ddmin"]

IntArray = npt.NDArray[np.int64]


LEDGER_FORMAT = "commcanary_lab.ddmin_ledger.v1"


class Cancel(Protocol):
    """Anything like `threading.Event`."""

    def is_set(self) -> bool:
        """True when the work should stop."""
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """One test of the reduction.

    Attributes
    ----------
    kind : str
        ``whole`` (the trace itself), ``chunk`` or ``complement``.
    parts, part : int
        Into how many chunks the current events were cut, and which one was kept or left out.
    events : int
        Events tested.
    accepted : bool
        Whether all decisions held.
    held : ndarray of bool, shape (decisions,)
        Which decisions held, in the order of `Reduction.decisions`.
    p50_error, p99_error : float
        Largest relative error of the median and p99 exposed latency over the backends; NaN when not simulated.
    tail_recall : float
        Smallest share of the p99 tail events still in the tail, over the backends; 0 for rejected steps, where it is not computed.
    kept : ndarray of int64
        The events tested.
    """

    kind: str
    parts: int
    part: int
    events: int
    accepted: bool
    held: npt.NDArray[np.bool_]
    p50_error: float
    p99_error: float
    tail_recall: float
    kept: IntArray

    @property
    def decisions_held(self) -> int:
        """How many decisions held."""
        return int(self.held.sum())

    def to_json(self) -> dict[str, Any]:
        """Return the step as a JSON object; kept events as half-open ranges, for accepted steps."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "parts": self.parts,
            "part": self.part,
            "events": self.events,
            "accepted": self.accepted,
            "decisions_held": self.decisions_held,
            "flipped": np.flatnonzero(~self.held).tolist(),
        }
        if self.accepted:
            out |= {"p50_error": _figure(self.p50_error), "p99_error": _figure(self.p99_error), "tail_recall": round(self.tail_recall, 6)}
            out["kept"] = ranges_of(self.kept)
        return out


@dataclass(frozen=True)
class ReductionProtocol:
    """What was asked for; a reduction is a function of trace and protocol.

    Parameters
    ----------
    backends : tuple of Backend
        Configurations that are ranked.
    model : str
        The cost model.
    budget : int
        Oracle calls allowed.
    tolerances : Tolerances
        For ties.
    assume : mapping of str to float
        Values for unknown fields.
    """

    backends: tuple[Backend, ...] = DEFAULT_BACKENDS
    model: str = "commcanary-v4"
    budget: int = 256
    tolerances: Tolerances = field(default_factory=Tolerances)
    assume: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the protocol as a JSON object."""
        return {**asdict(self), "backends": [asdict(b) for b in self.backends], "assume": dict(self.assume)}


@dataclass(frozen=True, eq=False)
class Reduction(Shown):
    """Result of `ddmin`.

    Attributes
    ----------
    source : Trace
        The whole trace.
    kept : ndarray of int64
        Source indices of the kept events.
    oracle_calls, oracle_evaluations : int
        Questions asked, repeats included; subsets that were really simulated.
    stopped : str
        ``minimal`` (no chunk and no complement is accepted), ``budget`` or ``cancelled``.
    decisions : tuple of str
        Name of each ranking decision.
    decisions_kept : int
        How many hold for the kept events.
    steps : tuple of Step
        Every test, in order; the first is the trace itself.
    protocol : ReductionProtocol
        What was asked for.
    """

    source: Trace
    kept: IntArray
    oracle_calls: int
    oracle_evaluations: int
    stopped: str
    decisions: tuple[str, ...]
    decisions_kept: int
    steps: tuple[Step, ...]
    protocol: ReductionProtocol = field(default_factory=ReductionProtocol)

    @property
    def events_before(self) -> int:
        """Events of the source."""
        return len(self.source)

    @property
    def events_after(self) -> int:
        """Events kept."""
        return len(self.kept)

    @property
    def decisions_total(self) -> int:
        """Ranking decisions asked for."""
        return len(self.decisions)

    @cached_property
    def trace(self) -> Trace:
        """The reduced trace; it says what it was derived from."""
        return derive(self.source, self.kept, "ddmin")

    def ledger(self) -> dict[str, Any]:
        """Return every step as a JSON object, bound to the trace by SHA-256; `minimize.verify_ledger` replays it."""
        out = {
            "format": LEDGER_FORMAT,
            "protocol": self.protocol.to_json(),
            "derived_from": dict(self.trace.extra["derived_from"]),
            "decisions": list(self.decisions),
            "steps": [s.to_json() for s in self.steps],
            **{k: v for k, v in self.to_json().items() if k != "kept"},
            # of a warm oracle fewer are simulated; a ledger says only what follows from trace and protocol
            "oracle_evaluations": len({s.kept.tobytes() for s in self.steps[1:]}),
        }
        return {**out, "sha256": sha256_hex(canonical_bytes(out))}

    def to_json(self) -> dict[str, Any]:
        """Return the key figures as a JSON object."""
        return {
            "method": "ddmin",
            "events_before": self.events_before,
            "events_after": self.events_after,
            "oracle_calls": self.oracle_calls,
            "oracle_evaluations": self.oracle_evaluations,
            "decisions_kept": self.decisions_kept,
            "decisions_total": self.decisions_total,
            "kept": self.kept.tolist(),
            "stopped": self.stopped,
        }

    def __repr__(self) -> str:
        return (
            f"Reduction({self.events_before:,} -> {self.events_after:,} events, {self.decisions_kept} of {self.decisions_total} decisions, "
            f"{self.oracle_calls} oracle calls, stopped: {self.stopped})"
        )

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        title = (
            f"ddmin: {self.events_after:,} of {self.events_before:,} events keep {self.decisions_kept} of {self.decisions_total} ranking "
            f"decisions; {self.oracle_calls} questions, stopped: {self.stopped}"
        )
        taken = [s for s in self.steps if s.accepted]
        rows = ((s.kind, s.events, f"{s.decisions_held} of {self.decisions_total}", 100 * s.p50_error, 100 * s.p99_error,
                 100 * s.tail_recall) for s in taken)  # fmt: skip
        headers = ["step kept", "events", "decisions", "p50 off (%)", "p99 off (%)", "tail left (%)"]
        notes = ("only ranking decisions were asked for; latencies and tail events are shown, not kept",)
        return table_html(title, headers, rows, len(taken), notes)


class _Run:
    """Asks the oracle within the budget and keeps the ledger."""

    def __init__(self, oracle: SubsetOracle, budget: int, progress: Callable[[Step], None] | None, cancelled: Cancel | None) -> None:
        self.oracle, self.budget, self.progress, self.cancelled = oracle, budget, progress, cancelled
        self.steps: list[Step] = []

    def note(self, kind: str, parts: int, part: int, kept: IntArray, answer: Answer) -> None:
        whole = self.oracle.metrics
        p50, p99 = (_relative(answer.metrics[:, i], whole[:, i]) for i in (METRICS.index("median_us"), METRICS.index("p99_us")))
        step = Step(kind, parts, part, len(kept), answer.accepted, answer.held, p50, p99, answer.tail_recall, kept)
        self.steps.append(step)
        if self.progress is not None:
            self.progress(step)

    def accepts(self, kind: str, parts: int, part: int, kept: IntArray) -> bool:
        if self.oracle.calls >= self.budget:
            raise Stop("budget")
        if self.cancelled is not None and self.cancelled.is_set():
            raise Stop("cancelled")
        answer = self.oracle.ask(kept)
        self.note(kind, parts, part, kept, answer)
        return answer.accepted


def ddmin(
    trace: Trace,
    *,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    model: str | CostModel = "commcanary-v4",
    budget: int = 256,
    tolerances: Tolerances | None = None,
    assume: Mapping[str, float] | None = None,
    oracle: SubsetOracle | None = None,
    progress: Callable[[Step], None] | None = None,
    cancelled: Cancel | None = None,
) -> Reduction:
    """Reduce a trace to few events that keep every ranking decision, and nothing else.

    Parameters
    ----------
    trace : Trace
        The source.
    backends : sequence of Backend
        Configurations that are ranked; five give 40 decisions.
    model : str or CostModel
        The cost model.
    budget : int
        Oracle calls allowed, repeats included.
    tolerances : Tolerances, optional
        For ties.
    assume : mapping of str to float, optional
        Values for unknown fields.
    oracle : SubsetOracle, optional
        One that is already warm; it must be of this trace.
    progress : callable, optional
        Called with each `Step`.
    cancelled : threading.Event, optional
        Stops the reduction when set; what was reached so far is returned.

    Returns
    -------
    Reduction

    Raises
    ------
    UsageError
        If the budget is negative.
    UnknownValueError
        If a field that the simulator needs is unknown and not assumed.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> ddmin(lab.samples.adversarial())
    Reduction(100 -> 1 events, 40 of 40 decisions, 6 oracle calls, stopped: minimal)
    """
    if budget < 0:
        raise UsageError(f"the oracle budget is {budget}", remedy="give a number >= 0")
    oracle = oracle or SubsetOracle(trace, backends=backends, model=model, tolerances=tolerances, assume=assume)
    before = oracle.calls, oracle.evaluations
    work = _Run(oracle, budget + oracle.calls, progress, cancelled)
    whole = np.arange(len(trace), dtype=np.int64)
    work.note("whole", 1, 0, whole, Answer(np.ones(len(oracle.decisions), np.bool_), oracle.metrics, 1.0))
    kept, stopped = reduce_by_rule(len(trace), work.accepts)
    return Reduction(
        trace,
        kept,
        oracle.calls - before[0],
        oracle.evaluations - before[1],
        stopped,
        decision_labels(oracle.backends),
        next(s for s in reversed(work.steps) if s.accepted).decisions_held,
        tuple(work.steps),
        ReductionProtocol(oracle.backends, oracle.model.name, budget, oracle.tolerances, oracle.assume),
    )


def _relative(values: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]) -> float:
    """Largest relative error; NaN where the values are."""
    if not len(values):
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(values == truth, 0.0, np.abs(values - truth) / np.abs(truth))
    return float(errors.max())


def _figure(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
