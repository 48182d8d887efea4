"""One entry of a history: its figures, where it stands against the baseline, and what moved since the entry before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.dates import Dated, date_in_name, date_in_notes, date_in_system
from commcanary_lab.review.latencies import latencies, latencies_sha256, matched
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.review.steps import Step
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace.model import Trace

__all__ = ["Entry", "Member"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Member:
    """A report or a measured trace, with its name.

    Parameters
    ----------
    name : str
        Unique in its history.
    artifact : ReportFile or Trace
    """

    name: str
    artifact: ReportFile | Trace = field(repr=False)

    @property
    def kind(self) -> str:
        """``reports`` or ``measured``, as comparisons name it."""
        return "reports" if isinstance(self.artifact, ReportFile) else "measured"

    @cached_property
    def dated(self) -> Dated | None:
        """The date that the artifact states, else that in its name; never when the file was written."""
        a = self.artifact
        day = date_in_notes(a.notes)
        if day is None and isinstance(a, Trace):
            day = date_in_system(a.system, a.workload)
        if day is not None:
            return Dated(day, "artifact")
        day = date_in_name(self.name)
        return None if day is None else Dated(day, "name")

    @cached_property
    def values_us(self) -> FloatArray | None:
        """Exposed latency of every sample, or measured latency of every event, in time order; None where there is none."""
        if isinstance(self.artifact, ReportFile):
            return self.artifact.exposed_us
        known = self.artifact.duration_max_ns
        return known.values[known.mask] / 1000.0 if known.known_count else None

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """``p50_us``, ``p95_us``, ``p99_us`` and ``mean_us``, 3 decimals; None where nothing was measured."""
        if isinstance(self.artifact, ReportFile):
            m = self.artifact.metrics
            return {"p50_us": m["median_us"], "p95_us": m["p95_us"], "p99_us": m["p99_us"], "mean_us": m["mean_us"]}
        values = self.values_us
        if values is None:
            return dict.fromkeys(("p50_us", "p95_us", "p99_us", "mean_us"))
        p50, p95, p99 = (round(float(v), 3) for v in np.quantile(values, [0.5, 0.95, 0.99]))
        return {"p50_us": p50, "p95_us": p95, "p99_us": p99, "mean_us": round(float(values.mean()), 3)}

    @cached_property
    def sha256(self) -> str:
        """Identity: of the report, or of the measured latencies of the trace."""
        if isinstance(self.artifact, ReportFile):
            return self.artifact.sha256
        own = latencies(self.artifact)
        return latencies_sha256(matched(own, own)[0])

    @property
    def events(self) -> int:
        """Events of the workload."""
        return self.artifact.events if isinstance(self.artifact, ReportFile) else len(self.artifact)

    @property
    def what(self) -> str:
        """What was simulated or recorded, in a few words."""
        if isinstance(self.artifact, ReportFile):
            return self.artifact.backend.label
        return self.artifact.origin


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a history.

    Attributes
    ----------
    member : Member
        The report or trace.
    verdict : str
        ``pass``, ``warn``, ``fail`` or ``inconclusive`` against the baseline; ``baseline`` for the one that others are compared
        with; ``incomparable`` where it cannot be compared.
    against : str or None
        Name of the entry that it was compared with.
    comparison : Comparison, MeasuredComparison or None
        With that entry.
    problem : str
        Why it cannot be compared.
    steps : tuple of Step
        Each quantile against the comparable entry before it.
    before : str or None
        The name of that entry.
    """

    member: Member
    verdict: str
    against: str | None = None
    comparison: Comparison | MeasuredComparison | None = field(default=None, repr=False)
    problem: str = ""
    steps: tuple[Step, ...] = ()
    before: str | None = None

    @property
    def name(self) -> str:
        """Name of the report or trace."""
        return self.member.name

    @property
    def date(self) -> str | None:
        """Its day as ``2026-11-30``; None where neither the artifact nor its name states one."""
        return None if self.member.dated is None else self.member.dated.day.isoformat()

    @property
    def comparable(self) -> bool:
        """True for the baseline and for what was compared."""
        return self.verdict != "incomparable"

    def figure(self, name: str) -> float | None:
        """Return ``p50_us``, ``p95_us``, ``p99_us`` or ``mean_us``."""
        return self.member.figures[name]

    def result(self, metric: str) -> str | None:
        """Return the result of one metric of the whole workload (``median``, ``p95``, ``p99``) or of its parts (``parts``).

        None where there is no comparison of two reports.
        """
        if not isinstance(self.comparison, Comparison):
            return None
        order = ("pass", "warn", "fail")
        if metric == "parts":
            found = [e.threshold_result for e in self.comparison.evaluations if e.scope != "overall"]
        elif metric == "hidden":
            found = [e.threshold_result for e in self.comparison.evaluations if e.is_hidden_share]
        else:
            found = [e.threshold_result for e in self.comparison.evaluations if e.scope == "overall" and e.metric == metric]
        return max(found, key=order.index, default=None)

    def limit_us(self, metric: str) -> float | None:
        """Return the largest ``median``, ``p95`` or ``p99`` that the policy allows this entry.

        None for the baseline, and for measured traces, whose operations are judged one by one.
        """
        if not isinstance(self.comparison, Comparison):
            return None
        e = next(e for e in self.comparison.evaluations if e.scope == "overall" and e.metric == metric)
        before = e.baseline or 0.0
        return before + max(before * e.threshold / 100, e.absolute_threshold_us or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        dated = self.member.dated
        return {
            "name": self.name,
            "date": self.date,
            "dated_by": None if dated is None else dated.stated_by,
            "what": self.member.what,
            "sha256": self.member.sha256,
            "events": self.member.events,
            **self.member.figures,
            "verdict": self.verdict,
            "against": self.against,
            "deltas": {}
            if self.comparison is None
            else {k: v for k, v in self.comparison.deltas.items() if "." not in k}
            if isinstance(self.comparison, Comparison)
            else self.comparison.deltas,
            "reasons": [] if self.comparison is None else list(self.comparison.reasons),
            "problem": self.problem or None,
            "before": self.before,
            "steps": [s.to_json() for s in self.steps],
        }
