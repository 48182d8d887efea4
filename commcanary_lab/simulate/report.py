"""Reports: what a simulation says, rounded once, with everything that is needed to recompute it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab._shown import Shown
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.engine import Samples, run
from commcanary_lab.simulate.models import CostModel, get_model
from commcanary_lab.simulate.prepare import Prepared
from commcanary_lab.trace.columns import Coded
from commcanary_lab.trace.signatures import default_group_names

__all__ = ["Calibration", "LatencySummary", "Report", "Sample", "quantile", "simulate_prepared", "summarise"]

FloatArray = npt.NDArray[np.float64]


def quantile(ordered: FloatArray, q: float) -> float:
    """Linear interpolation on an ascending sample at position (n - 1) q; NaN for an empty sample.

    Examples
    --------
    >>> quantile(np.array([1.0, 2.0, 4.0]), 0.75)
    3.0
    """
    if not len(ordered):
        return float("nan")
    position = (len(ordered) - 1) * q
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))


@dataclass(frozen=True)
class LatencySummary:
    """Summary of exposed latencies in microseconds, 3 decimals."""

    count: int
    median_us: float
    p95_us: float
    p99_us: float
    max_us: float
    mean_us: float


def summarise(values: FloatArray) -> LatencySummary:
    """Summarise a sample of latencies.

    Examples
    --------
    >>> summarise(np.array([3.0, 1.0, 2.0])).median_us
    2.0
    """
    if not len(values):
        return LatencySummary(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    s = np.sort(values)
    return LatencySummary(
        len(s),
        round(quantile(s, 0.5), 3),
        round(quantile(s, 0.95), 3),
        round(quantile(s, 0.99), 3),
        round(float(s[-1]), 3),
        round(float(values.sum()) / len(s), 3),
    )


@dataclass(frozen=True)
class Calibration:
    """Modelled against observed exposed latency, where the trace has it (microseconds, 3 decimals; MAPE in percent)."""

    count: int
    mean_absolute_error_us: float
    median_absolute_error_us: float
    p95_absolute_error_us: float
    max_absolute_error_us: float
    mean_bias_us: float
    mape_pct: float | None


@dataclass(frozen=True)
class Sample:
    """One event of one iteration, times in microseconds with 3 decimals."""

    index: int
    iteration: int
    op: str
    phase: str
    group: str
    bytes: int
    rank_count: int
    gap_us: float
    first_arrival_us: float
    last_arrival_us: float
    collective_start_us: float
    completion_us: float
    collective_us: float
    queue_wait_us: float
    arrival_skew_us: float
    avg_rank_wait_us: float
    compute_overlap_us: float
    total_us: float
    hidden_us: float
    exposed_us: float


@dataclass(frozen=True, eq=False)
class Report(Shown):
    """Result of one simulation.

    Attributes
    ----------
    backend : Backend
        The configuration.
    model : str
        Name of the cost model.
    ablations : tuple of str
        Mechanisms removed: a simulator control, not a physical intervention.
    metrics : mapping of str to float
        Rounded figures, named as in the command line's JSON.
    by_phase, by_op : mapping of str to LatencySummary
        Breakdowns of the exposed latency.
    assumptions : mapping
        Values assumed for unknown fields, microseconds.
    notes : tuple of str
        Notes of the trace.
    samples : Samples
        Unrounded per-event results.
    origin : str
        Always ``model``.
    """

    backend: Backend
    model: str
    ablations: tuple[str, ...]
    metrics: Mapping[str, float]
    by_phase: Mapping[str, LatencySummary]
    by_op: Mapping[str, LatencySummary]
    calibration: Calibration | None
    assumptions: Mapping[str, float]
    notes: tuple[str, ...]
    samples: Samples
    prepared: Prepared
    origin: str = "model"

    def __repr__(self) -> str:
        m = self.metrics
        removed = f" without {', '.join(self.ablations)}" if self.ablations else ""
        figures = f"p50 {m['median_us']} us, p99 {m['p99_us']} us, hidden {m['communication_hidden_pct']} %"
        return f"Report({self.backend.label}{removed}: {figures})"

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        m = self.metrics
        removed = f", without {', '.join(self.ablations)} (a simulator control, not a physical intervention)" if self.ablations else ""
        title = (
            f"{self.backend.label}{removed}: exposed latency in us ({self.origin}: {self.model}); "
            f"{m['communication_hidden_pct']} % of the latency is hidden"
        )
        whole = ("all", "", m["count"], m["median_us"], m["p95_us"], m["p99_us"], m["max_us"], m["mean_us"])
        parts = [
            (scope, name, s.count, s.median_us, s.p95_us, s.p99_us, s.max_us, s.mean_us)
            for scope, by in (("phase", self.by_phase), ("op", self.by_op))
            for name, s in by.items()
        ]
        assumed = [f"assumed: {name} = {value:g}" for name, value in self.assumptions.items()]
        headers = ["", "name", "count", "p50", "p95", "p99", "max", "mean"]
        return table_html(title, headers, [whole, *parts], 1 + len(parts), (*assumed, *self.notes))

    def event_samples(self) -> Iterable[Sample]:
        """Yield one `Sample` per event and iteration."""
        s, p, t = self.samples, self.prepared, self.prepared.trace
        ops, phases, groups = t.op.to_list(), t.phase.to_list(), default_group_names(t)
        n = max(1, len(p))
        no_gap, no_overlap, no_skew = (
            "queue_reset_gaps" in self.ablations,
            "compute_overlap" in self.ablations,
            "arrival_skew" in self.ablations,
        )
        for row, i in enumerate(s.event.tolist()):
            # the published samples subtract the rounded parts, so that a reader's arithmetic comes out
            total, hidden = round(float(s.total_us[row]), 3), round(float(s.hidden_us[row]), 3)
            yield Sample(
                i,
                row // n,
                ops[i] or "",
                phases[i] or "unknown",
                groups[t.group[i]],
                int(p.size_bytes[i]),
                int(p.group_size[i]),
                round(0.0 if no_gap else float(p.gap_us[i]), 3),
                round(float(s.first_us[row]), 3),
                round(float(s.first_us[row] + s.skew_us[row]), 3),
                round(float(s.start_us[row]), 3),
                round(float(s.completion_us[row]), 3),
                round(float(s.service_us[row]), 3),
                round(float(s.wait_us[row]), 3),
                round(float(s.skew_us[row]), 3),
                round(0.0 if no_skew else float(p.wait_us[i]), 3),
                round(0.0 if no_overlap else float(p.overlap_us[i]), 3),
                total,
                hidden,
                round(total - hidden, 3),
            )

    def to_json(self, *, samples: bool = False) -> dict[str, Any]:
        """Return the report as a JSON object with the key figures of the command line.

        It states the workload and all samples by SHA-256, so that `verify.reports.verify_report` can recompute it bit for bit.
        """
        from dataclasses import asdict

        from commcanary_lab.simulate.workload import samples_sha256

        out: dict[str, Any] = {
            "format": "commcanary_lab.report.v1",
            "metrics": dict(self.metrics),
            "by_phase": [{"name": k, **asdict(v)} for k, v in self.by_phase.items()],
            "by_op": [{"name": k, **asdict(v)} for k, v in self.by_op.items()],
            "backend": asdict(self.backend),
            "protocol": {
                "model": self.model,
                "ablations": list(self.ablations),
                "origin": self.origin,
                "ablation_label": "simulator control, not a physical intervention" if self.ablations else None,
            },
            "assumptions": [{"field": k, "value": v} for k, v in self.assumptions.items()],
            "notes": list(self.notes),
            "workload": {"events": len(self.prepared), "sha256": self.prepared.workload_sha256},
            "samples_sha256": samples_sha256(self.samples),
        }
        if self.calibration is not None:
            out["calibration"] = asdict(self.calibration)
        if samples:
            out["samples"] = [asdict(s) for s in self.event_samples()]
        return out


def simulate_prepared(
    prepared: Prepared, backend: Backend, *, ablations: frozenset[str] = frozenset(), model: str | CostModel = "commcanary-v4"
) -> Report:
    """Simulate a prepared trace on one backend and summarise it.

    Parameters
    ----------
    prepared : Prepared
        The trace; prepare it once and simulate it on many backends.
    backend : Backend
        The configuration.
    ablations : frozenset of str
        Mechanisms to remove.
    model : str or CostModel
        The cost model.
    """
    cost = get_model(model)
    samples = run(prepared, backend, cost, ablations)
    trace = prepared.trace
    exposed = samples.exposed_us
    overall = summarise(exposed)
    skew = np.sort(samples.skew_us)
    wait = np.sort(np.zeros(len(prepared)) if "arrival_skew" in ablations else np.tile(prepared.wait_us, samples.iterations))
    total = float(samples.total_us.sum())
    empty = not len(prepared)
    metrics = {
        "count": overall.count,
        "median_us": overall.median_us,
        "p95_us": overall.p95_us,
        "p99_us": overall.p99_us,
        "max_us": overall.max_us,
        "mean_us": overall.mean_us,
        "arrival_skew_median_us": 0.0 if empty else round(quantile(skew, 0.5), 3),
        "arrival_skew_p95_us": 0.0 if empty else round(quantile(skew, 0.95), 3),
        "arrival_skew_max_us": 0.0 if empty else round(float(skew[-1]), 3),
        "avg_rank_wait_median_us": 0.0 if empty else round(quantile(wait, 0.5), 3),
        "communication_hidden_pct": round(100 * float(samples.hidden_us.sum()) / total, 2) if total else 0.0,
    }
    return Report(
        backend,
        cost.name,
        tuple(sorted(ablations)),
        metrics,
        _breakdown(trace.phase, samples, "unknown"),
        _breakdown(trace.op, samples, ""),
        None if "observed_exposed_us" in ablations else _calibrate(prepared, samples),
        prepared.assumptions,
        trace.notes,
        samples,
        prepared,
    )


def _breakdown(column: Coded, samples: Samples, default: str) -> dict[str, LatencySummary]:
    names = [*column.names, default]
    codes = column.codes[samples.event]
    by_name: dict[str, list[int]] = {}
    for code in np.unique(codes).tolist():
        by_name.setdefault(names[code], []).append(code)
    return {name: summarise(samples.exposed_us[_among(codes, by_name[name])]) for name in sorted(by_name)}


def _among(codes: npt.NDArray[np.integer], wanted: list[int]) -> npt.NDArray[np.bool_]:
    return codes == wanted[0] if len(wanted) == 1 else np.isin(codes, wanted)


def _calibrate(prepared: Prepared, samples: Samples) -> Calibration | None:
    observed = prepared.trace.observed_exposed_ns
    if not len(prepared) or observed.known_count == 0:
        return None
    rows = observed.mask[samples.event]
    truth = observed.values[samples.event][rows] / 1000.0
    bias = samples.exposed_us[rows] - truth
    error = np.sort(np.abs(bias))
    positive = truth > 0
    mape = float((np.abs(bias[positive]) / truth[positive]).mean() * 100) if positive.any() else None
    return Calibration(
        len(error),
        round(float(error.mean()), 3),
        round(quantile(error, 0.5), 3),
        round(quantile(error, 0.95), 3),
        round(float(error[-1]), 3),
        round(float(bias.mean()), 3),
        None if mape is None else round(mape, 3),
    )
