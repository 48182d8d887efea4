"""Two minimised results of one source side by side: what each kept, how each answers, and the tail events each lost."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from commcanary_lab._shown import Shown
from commcanary_lab.canary.summary import program_lines
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize.sides import Minimised, Side, make_side
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import Report, quantile
from commcanary_lab.trace.groups import ranks_text
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.difference import TrafficDifference
from commcanary_lab.verify.behavior import TAILS, tail_events
from commcanary_lab.verify.model import Tolerances
from commcanary_lab.verify.setting import Setting

__all__ = ["QUANTILES", "Contrast", "ContrastRow", "Distribution", "LostEvent", "contrast"]

#: Quantiles of the exposed-latency distributions.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

Cell = float | int | str | None


@dataclass(frozen=True)
class ContrastRow:
    """One figure of the source and of both results; None where it has no meaning."""

    name: str
    source: Cell
    a: Cell
    b: Cell


@dataclass(frozen=True)
class Distribution:
    """Exposed latency of source and both results on one backend, microseconds, at `QUANTILES`."""

    backend: str
    source_us: tuple[float, ...]
    a_us: tuple[float, ...]
    b_us: tuple[float, ...]


@dataclass(frozen=True)
class LostEvent:
    """A tail event of the source that is no tail event of a result.

    Attributes
    ----------
    label : str
        The result.
    backend : str
    quantile : float
        0.95 or 0.99.
    index : int
        Source event.
    op, phase, group : str or None
    size_bytes : int
    exposed_us : float
        In the source.
    kept : bool
        Whether the result still has the event at all.
    """

    label: str
    backend: str
    quantile: float
    index: int
    op: str | None
    phase: str | None
    group: str | None
    size_bytes: int
    exposed_us: float
    kept: bool


@dataclass(frozen=True, eq=False)
class Contrast(Shown):
    """Result of `contrast`.

    Attributes
    ----------
    source : Trace
        The source of both.
    a, b : Side
        The two results.
    """

    source: Trace
    a: Side
    b: Side

    @cached_property
    def reports(self) -> tuple[Report, ...]:
        """Simulations of the source, one per backend."""
        return tuple(self.a.setting.reports(prepare(self.source, self.a.setting.assume)))

    @cached_property
    def rows(self) -> tuple[ContrastRow, ...]:
        """Figures side by side."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[ContrastRow]:
        a, b = self.a, self.b
        yield ContrastRow("bytes", canonical_size(self.source), *self._of("size_bytes"))
        yield ContrastRow("events", len(self.source), *self._of("event_count"))
        yield ContrastRow("records", None, *self._of("records"))
        for name in a.verification.statuses:
            yield ContrastRow(name, None, a.verification.statuses[name], b.verification.statuses[name])
        yield ContrastRow("claim", None, a.verification.claim, b.verification.claim)
        total = a.verification.decisions_total
        yield ContrastRow("ranking decisions kept", total, a.verification.decisions_kept, b.verification.decisions_kept)
        yield ContrastRow("worst error", None, _finite(a.worst_error), _finite(b.worst_error))
        yield ContrastRow("smallest tail recall", 1.0, a.tail_recall, b.tail_recall)
        m = self.matrices
        yield ContrastRow("sum of M (bytes)", m[0].left.sum_bytes, m[0].right.sum_bytes, m[1].right.sum_bytes)
        for d in self.distributions:
            for q in (0.5, 0.95, 0.99, 1.0):
                i = QUANTILES.index(q)
                yield ContrastRow(f"{d.backend}: exposed p{q * 100:g} (us)", d.source_us[i], d.a_us[i], d.b_us[i])

    def _of(self, name: str) -> tuple[int, int]:
        return getattr(self.a.canary, name), getattr(self.b.canary, name)

    @cached_property
    def distributions(self) -> tuple[Distribution, ...]:
        """Exposed-latency quantiles per backend."""
        triples = zip(self.reports, self.a.reports, self.b.reports, strict=True)
        return tuple(Distribution(s.backend.label, _quantiles(s), _quantiles(a), _quantiles(b)) for s, a, b in triples)

    @cached_property
    def matrices(self) -> tuple[TrafficDifference, TrafficDifference]:
        """M of the source minus M of each result."""
        whole = build_matrix(self.source)
        return whole - build_matrix(self.a.canary.trace), whole - build_matrix(self.b.canary.trace)

    @cached_property
    def lost_tail_events(self) -> tuple[LostEvent, ...]:
        """Tail events that each result lost, per backend and quantile."""
        return tuple(event for side in (self.a, self.b) for event in self._lost(side))

    def lost(self, label: str) -> tuple[LostEvent, ...]:
        """Return what one result lost."""
        return tuple(e for e in self.lost_tail_events if e.label == label)

    @property
    def tail_total(self) -> int:
        """Tail events of the source over all backends and quantiles."""
        return sum(len(self._tail(report, q)) for report in self.reports for q in TAILS)

    @property
    def tail_sizes(self) -> dict[str, int]:
        """Distinct tail events of the source per backend, those of all quantiles together."""
        return {r.backend.label: len(np.unique(np.concatenate([self._tail(r, q) for q in TAILS]))) for r in self.reports}

    def _tail(self, report: Report, q: float) -> np.ndarray:
        """Source events of the tail; an event of several iterations counts once."""
        return np.unique(report.samples.event[tail_events(report, q)])

    def _lost(self, side: Side) -> Iterator[LostEvent]:
        t = self.source
        has = np.zeros(len(t), np.bool_)
        has[side.kept[side.kept < len(t)]] = True
        for source, report in zip(self.reports, side.reports, strict=True):
            exposed = _by_event(source)
            for q in TAILS:
                wanted = tail_events(source, q)
                tail = self._tail(source, q)
                index = side.kept[report.samples.event]
                largest = index[np.lexsort((index, -report.samples.exposed_us))[: len(wanted)]]
                for i in np.setdiff1d(tail, largest).tolist():
                    yield LostEvent(
                        side.label,
                        source.backend.label,
                        q,
                        i,
                        t.op.text(i),
                        t.phase.text(i),
                        t.groups[t.group[i]].name,
                        int(t.size_bytes[i]),
                        round(float(exposed[i]), 3),
                        bool(has[i]),
                    )

    def kept_csv(self) -> str:
        """Return the events that each result kept as CSV, one row per result and event."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            ["result", "index", "op", "phase", "group", "ranks", "bytes", "source_gap_us", "source_skew_us", "source_overlap_us"]
            + [f"source_exposed_us_{r.backend.label}" for r in self.reports]
        )
        from commcanary_lab.trace.timing import gaps_ns

        t, gaps, exposed = self.source, gaps_ns(self.source), [_by_event(r) for r in self.reports]
        for side in (self.a, self.b):
            for i in side.kept[side.kept < len(t)].tolist():
                group = t.groups[t.group[i]]
                writer.writerow(
                    [side.label, i, t.op.text(i), t.phase.text(i) or "", group.name or "", ranks_text(group.members), int(t.size_bytes[i])]
                    + [float(gaps[i] / 1000), _us(t.skew_ns, i), _us(t.overlap_ns, i)]
                    + [round(float(e[i]), 3) for e in exposed]
                )
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return the contrast as a JSON object."""
        return {
            "labels": {"a": self.a.label, "b": self.b.label},
            "rows": [asdict(r) for r in self.rows],
            "programs": {"a": program_lines(self.a.canary), "b": program_lines(self.b.canary)},
            "distributions": [{"quantiles": list(QUANTILES), **asdict(d)} for d in self.distributions],
            "matrix_difference": {
                name: {"added_bytes": d.added_bytes, "removed_bytes": d.removed_bytes, "links": len(d.cells)}
                for name, d in zip(("a", "b"), self.matrices, strict=True)
            },
            "tail_events": self.tail_total,
            "lost_tail_events": [asdict(e) for e in self.lost_tail_events],
            "origin": "model",
        }

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        lost = {side.label: len(self.lost(side.label)) for side in (self.a, self.b)}
        title = "; ".join(f"{label}: {n} of {self.tail_total} tail events lost" for label, n in lost.items()) + " (model)"
        rows = ((r.name, r.source, r.a, r.b) for r in self.rows)
        return table_html(title, ["figure", "source", self.a.label, self.b.label], rows, len(self.rows))

    def __repr__(self) -> str:
        lost = ", ".join(f"{s.label}: {s.verification.claim}, lost {len(self.lost(s.label))} tail events" for s in (self.a, self.b))
        return f"Contrast({lost})"


def contrast(
    a: Minimised,
    b: Minimised,
    source: Trace,
    *,
    labels: tuple[str, str] = ("a", "b"),
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    model: str | CostModel = "commcanary-v4",
    tolerances: Tolerances | None = None,
    assume: Mapping[str, float] | None = None,
    salt: bytes = b"",
) -> Contrast:
    """Put two minimised results of one source side by side.

    Parameters
    ----------
    a, b : Canary, Trace, Reduction, Search or Baseline
        The results; a trace is compiled first.
    source : Trace
        The trace that both came from.
    labels : (str, str)
        Their names; made distinct where they are the same.
    backends, model, tolerances, assume, salt
        As in `verify.run.verify_canary`.

    Returns
    -------
    Contrast

    Raises
    ------
    UsageError
        If a result has an event that the source lacks.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.minimize import reduce, search
    >>> trace = lab.samples.adversarial()
    >>> found = contrast(reduce(trace), search(trace, range(2, 4)), trace, labels=("ddmin", "search"))
    >>> found.lost("search"), len(found.lost("ddmin")) > 0
    ((), True)
    """
    setting = Setting.of(backends, tolerances, assume, model, salt)
    first, second = labels if labels[0] != labels[1] else (f"{labels[0]} (1)", f"{labels[1]} (2)")
    sides = make_side(a, source, first, setting), make_side(b, source, second, setting)
    for side in sides:
        if len(side.kept) != side.canary.event_count or (len(side.kept) and side.kept.max() >= len(source)):
            raise UsageError(f"{side.label} has events that the source lacks", remedy="give the trace that both were made from")
    return Contrast(source, *sides)


def _quantiles(report: Report) -> tuple[float, ...]:
    ordered = np.sort(report.samples.exposed_us)
    return tuple(round(quantile(ordered, q), 3) for q in QUANTILES)


def _by_event(report: Report) -> np.ndarray:
    """Largest exposed latency of each event over the iterations."""
    out = np.zeros(len(report.prepared))
    np.maximum.at(out, report.samples.event, report.samples.exposed_us)
    return out


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _us(column: Any, i: int) -> float | str:
    return float(column.values[i] / 1000) if column.mask[i] else ""
