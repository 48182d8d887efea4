"""Ablations as a result: what each preserved mechanism contributes to each metric on each backend, and which rankings rest on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from commcanary_lab._shown import Shown
from commcanary_lab.errors import UsageError
from commcanary_lab.simulate.backend import ABLATIONS, DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel, get_model
from commcanary_lab.simulate.prepare import Assumptions, Prepared, prepare
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.trace.model import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AblationRow", "AblationTable", "FlippedDecision", "Mechanism", "ablate"]

LABEL = "simulator control, not a physical intervention"

#: Metrics that rank backends; lower is better.
_RANKED = ("median_us", "p95_us", "p99_us", "mean_us")
#: Metrics of the exposed latency and what makes it, then those of the calibration where the trace has a measured signal.
_METRICS = (*_RANKED, "max_us", "communication_hidden_pct", "arrival_skew_median_us", "arrival_skew_p95_us", "arrival_skew_max_us",
            "avg_rank_wait_median_us")  # fmt: skip
_CALIBRATION = ("mean_absolute_error_us", "mean_bias_us", "mape_pct")


@dataclass(frozen=True)
class AblationRow:
    """One metric on one backend without one mechanism.

    Parameters
    ----------
    backend, ablation, metric : str
        What was simulated, what was removed, what was read.
    value : float or None
        The metric without the mechanism; None where the ablation is not applicable, or leaves nothing to read.
    delta : float or None
        `value` minus the unablated one, 3 decimals.
    unablated : float or None
        The metric with everything in place.
    status : str
        ``changed``, ``unchanged`` or ``not_applicable``.
    """

    backend: str
    ablation: str
    metric: str
    value: float | None
    delta: float | None
    unablated: float | None
    status: str


@dataclass(frozen=True)
class Mechanism:
    """Whether an ablation can act on a trace on one backend; `reason` says why it cannot, and is empty where it can."""

    ablation: str
    backend: str
    applicable: bool
    reason: str = ""


@dataclass(frozen=True)
class FlippedDecision:
    """A ranking decision that changes: ``left``, ``right`` or ``tie``, before and after."""

    ablation: str
    left: str
    right: str
    metric: str
    before: str
    after: str


@dataclass(frozen=True)
class AblationTable(Shown):
    """Every mechanism x backend x metric.

    Attributes
    ----------
    rows : tuple of AblationRow
        By ablation, then backend, then metric.
    mechanisms : tuple of Mechanism
        One per ablation and backend.
    flipped_decisions : tuple of FlippedDecision
        Ranking decisions that change without a mechanism.
    decisions_total : int
        Decisions per ablation: pairs of backends x ranked metrics.
    model : str
        The cost model.
    assumptions : mapping
        What was assumed for unknown fields, microseconds.
    """

    rows: tuple[AblationRow, ...]
    mechanisms: tuple[Mechanism, ...]
    flipped_decisions: tuple[FlippedDecision, ...]
    decisions_total: int
    backends: tuple[str, ...]
    model: str
    assumptions: Mapping[str, float]
    notes: tuple[str, ...] = ()
    origin: str = "model"

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        absent = len({m.ablation for m in self.mechanisms}) - len(self.applicable)
        return (
            f"AblationTable({len(self.applicable)} mechanisms act on {len(self.backends)} backends, {absent} not applicable, "
            f"{len(self.flipped_decisions)} decisions flip)"
        )

    @cached_property
    def applicable(self) -> tuple[str, ...]:
        """Ablations that can act on at least one backend."""
        return tuple(a for a in ABLATIONS if any(m.applicable for m in self.mechanisms if m.ablation == a))

    def flips(self, ablation: str) -> tuple[FlippedDecision, ...]:
        """Return the decisions that flip without one mechanism."""
        return tuple(f for f in self.flipped_decisions if f.ablation == ablation)

    def value(self, ablation: str, backend: str, metric: str) -> AblationRow:
        """Return one row.

        Raises
        ------
        UsageError
            If there is none.
        """
        for row in self.rows:
            if (row.ablation, row.backend, row.metric) == (ablation, backend, metric):
                return row
        raise UsageError(f"no row for {ablation}, {backend}, {metric}", remedy="see `rows`")

    @cached_property
    def df(self) -> pd.DataFrame:
        """The rows as a pandas table."""
        import pandas as pd

        return pd.DataFrame([asdict(r) for r in self.rows], columns=list(AblationRow.__dataclass_fields__))

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return {
            "format": "commcanary_lab.ablation.v1",
            "rows": [asdict(r) for r in self.rows],
            "mechanisms": [asdict(m) for m in self.mechanisms],
            "flipped_decisions": [asdict(f) for f in self.flipped_decisions],
            "decisions_total": self.decisions_total,
            "backends": list(self.backends),
            "model": self.model,
            "assumptions": [{"field": k, "value": v} for k, v in self.assumptions.items()],
            "notes": list(self.notes),
            "origin": self.origin,
            "label": LABEL,
        }

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        title = f"{len(self.flipped_decisions)} of {self.decisions_total * len(self.applicable)} decisions flip ({self.model}; {LABEL})"
        return table_html(title, ["mechanism", "acts on", "p99, largest change (us)", "on", "decisions flipped", "why not"],
                          (self._summary(a) for a in ABLATIONS), len(ABLATIONS), self.notes)  # fmt: skip

    def _summary(self, ablation: str) -> list[object]:
        own = [m for m in self.mechanisms if m.ablation == ablation]
        acting = [m.backend for m in own if m.applicable]
        changes = [r for r in self.rows if r.ablation == ablation and r.metric == "p99_us" and r.delta is not None]
        largest = max(changes, key=lambda r: abs(r.delta or 0.0), default=None)
        acts = f"{len(acting)} of {len(own)}" if acting else "not applicable"
        why = next((m.reason for m in own if not m.applicable), "")
        flips = f"{len(self.flips(ablation))} of {self.decisions_total}" if acting else None
        return [ablation, acts, largest.delta if largest else None, largest.backend if largest else None, flips, why]


def ablate(
    source: Prepared | Trace,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    *,
    model: str | CostModel = "commcanary-v4",
    assume: Assumptions | None = None,
    tie_us: float = 0.001,
) -> AblationTable:
    """Remove every mechanism in turn on every backend.

    An ablation is *not applicable* on a backend where the simulator reads exactly the same input with and without it: no skew anywhere,
    no overlap, gaps all zero, events that are already sorted, and so on. That is not the same as a metric that happens not to change.

    Parameters
    ----------
    source : Prepared or Trace
        The workload.
    backends : sequence of Backend
        Each with its own label.
    model : str or CostModel
        The cost model.
    assume : mapping of str to float, optional
        Values for unknown fields of a trace.
    tie_us : float
        Backends tie within this difference.

    Returns
    -------
    AblationTable

    Raises
    ------
    UsageError
        If two backends have one label, or there is none.
    UnknownValueError
        If a field is unknown and not assumed.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> table = ablate(lab.samples.adversarial())
    >>> table
    AblationTable(5 mechanisms act on 5 backends, 2 not applicable, 0 decisions flip)
    >>> table.value("queue_reset_gaps", "baseline", "p99_us").status
    'changed'
    """
    labels = [b.label for b in backends]
    if not labels or len(set(labels)) != len(labels):
        raise UsageError(f"{len(labels)} backends with {len(set(labels))} names", remedy="give at least one, each with its own name")
    prepared = source if isinstance(source, Prepared) else prepare(source, assume)
    return _table(prepared, backends, get_model(model), tie_us)


def _table(prepared: Prepared, backends: Sequence[Backend], cost: CostModel, tie_us: float) -> AblationTable:
    plain = [simulate_prepared(prepared, b, model=cost) for b in backends]
    rows: list[AblationRow] = []
    mechanisms: list[Mechanism] = []
    flipped: list[FlippedDecision] = []
    for ablation in ABLATIONS:
        reports = []
        for backend, before in zip(backends, plain, strict=True):
            after = simulate_prepared(prepared, backend, ablations=frozenset([ablation]), model=cost)
            reason = _why_not(prepared, ablation, before, after)
            mechanisms.append(Mechanism(ablation, backend.label, not reason, reason))
            rows += _rows(ablation, before, after, not reason)
            reports.append(before if reason else after)
        flipped += _flips(ablation, plain, reports, tie_us)
    labels = tuple(b.label for b in backends)
    pairs = len(labels) * (len(labels) - 1) // 2
    return AblationTable(
        tuple(rows), tuple(mechanisms), tuple(flipped), pairs * len(_RANKED), labels, cost.name, prepared.assumptions,
        prepared.trace.notes,
    )  # fmt: skip


def _why_not(prepared: Prepared, ablation: str, before: Report, after: Report) -> str:
    """Say why an ablation cannot act; empty if it can."""
    if not len(prepared):
        return "the trace has no events"
    if ablation == "arrival_skew":
        return "" if prepared.skew_us.any() else "no event has arrival skew"
    if ablation == "compute_overlap":
        if not prepared.overlap_us.any():
            return "no event has overlapping compute"
        return "" if before.backend.overlap_efficiency else "the overlap efficiency of the backend is 0"
    if ablation == "queue_reset_gaps":
        return "" if prepared.gap_us.any() else "every gap is 0"
    if ablation == "operation_ordering":
        order = prepared.canonical_order
        return "" if (np.diff(order) != 1).any() else "the events are already in the order of the ablation"
    if ablation == "observed_exposed_us":
        return "" if before.calibration is not None else "the trace has no observed exposed latency"
    if not np.array_equal(before.samples.service_us, after.samples.service_us):
        return ""
    return _same_service(prepared, ablation, before)


def _same_service(prepared: Prepared, ablation: str, before: Report) -> str:
    """Say why the cost model gives the same service times with and without pressure or tails."""
    if ablation == "rare_tail_windows":
        drawn = f"{len(before.samples):,} samples with seed {before.backend.seed}"
        return f"no tail occurs in {drawn}" if before.model == "commcanary-v4" else f"the model {before.model} has no tails"
    if (prepared.pressure == 0.55).all():
        return "the pressure of every event is 0.55 already"
    if not before.backend.compute_pressure:
        return "the compute pressure of the backend is 0"
    return f"the service times of the model {before.model} do not depend on it"


def _rows(ablation: str, before: Report, after: Report, acts: bool) -> list[AblationRow]:
    a, b = _figures(before), _figures(after)
    out = []
    for metric, old in a.items():
        new = b.get(metric) if acts else None
        delta = None if old is None or new is None else round(new - old, 3)
        status = ("unchanged" if new == old else "changed") if acts else "not_applicable"
        out.append(AblationRow(before.backend.label, ablation, metric, new, delta, old, status))
    return out


def _figures(report: Report) -> dict[str, float | None]:
    out: dict[str, float | None] = {name: report.metrics[name] for name in _METRICS}
    if report.calibration is not None:
        out |= {f"calibration_{name}": getattr(report.calibration, name) for name in _CALIBRATION}
    return out


def _flips(ablation: str, before: Sequence[Report], after: Sequence[Report], tie_us: float) -> list[FlippedDecision]:
    out = []
    for i, j in combinations(range(len(before)), 2):
        for metric in _RANKED:
            old = _outcome(before[i].metrics[metric], before[j].metrics[metric], tie_us)
            new = _outcome(after[i].metrics[metric], after[j].metrics[metric], tie_us)
            if old != new:
                out.append(FlippedDecision(ablation, before[i].backend.label, before[j].backend.label, metric, old, new))
    return out


def _outcome(left: float, right: float, tie_us: float) -> str:
    return "tie" if abs(left - right) <= tie_us else ("left" if left < right else "right")
