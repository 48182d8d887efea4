"""The oracle that all minimisers ask: does this subset of the events still rank the backends like the whole trace?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import LabError, UsageError
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.engine import Samples, run
from commcanary_lab.simulate.models import CostModel, get_model
from commcanary_lab.simulate.prepare import Prepared, prepare
from commcanary_lab.simulate.report import quantile, summarise
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.timing import gaps_ns
from commcanary_lab.verify.model import Tolerances
from commcanary_lab.verify.ranking import METRICS

__all__ = ["Answer", "SubsetOracle", "decision_labels", "outcomes"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def decision_labels(backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the name of each ranking decision, in the order of `outcomes`.

    Examples
    --------
    >>> decision_labels(DEFAULT_BACKENDS)[:2]
    ('baseline / low_latency: median_us', 'baseline / low_latency: p95_us')
    """
    return tuple(f"{a.label} / {b.label}: {metric}" for a, b in combinations(backends, 2) for metric in METRICS)


def outcomes(metrics: FloatArray, tie_us: float) -> npt.NDArray[np.int8]:
    """Return every ranking decision: -1 left is better, 0 tie, 1 right is better.

    Parameters
    ----------
    metrics : ndarray of float64, shape (backends, 4)
        Rounded `METRICS`, microseconds.
    tie_us : float
        Differences up to this are ties.

    Returns
    -------
    ndarray of int8, shape (pairs * 4,)

    Examples
    --------
    >>> outcomes(np.array([[1.0, 2, 3, 4], [1.0, 1, 4, 4]]), 0.001).tolist()
    [0, 1, -1, 0]
    """
    left, right = np.triu_indices(len(metrics), 1)
    difference = metrics[left] - metrics[right]
    return np.where(np.abs(difference) <= tie_us, 0, np.sign(difference)).astype(np.int8).reshape(-1)


@dataclass(frozen=True, eq=False)
class Answer:
    """What the oracle found for one subset.

    Attributes
    ----------
    held : ndarray of bool, shape (decisions,)
        Which ranking decisions equal those of the whole trace.
    metrics : ndarray of float64, shape (backends, 4)
        The rounded `METRICS`, microseconds; NaN for a subset that could not be simulated.
    tail_recall : float
        Smallest share of the p99 tail kept, over the backends.
    """

    held: npt.NDArray[np.bool_]
    metrics: FloatArray
    tail_recall: float

    @property
    def accepted(self) -> bool:
        """True when every decision holds."""
        return bool(self.held.all())


class SubsetOracle:
    """Answers for subsets of one trace, each distinct subset evaluated once.

    Parameters
    ----------
    trace : Trace
        The whole trace.
    backends : sequence of Backend
        At least two.
    model : str or CostModel
        The cost model.
    tolerances : Tolerances, optional
        For ties.
    assume : mapping of str to float, optional
        Values for unknown fields.

    Attributes
    ----------
    calls, evaluations : int
        Questions asked, repeats included; subsets simulated.

    Raises
    ------
    UsageError
        If there are fewer than two backends.
    UnknownValueError
        If a field that the simulator needs is unknown and not assumed.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> oracle = SubsetOracle(lab.samples.adversarial())
    >>> oracle.ask(np.arange(3)).accepted, oracle.ask(np.arange(3)).accepted, oracle.calls, oracle.evaluations
    (True, True, 2, 1)
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
        if len(backends) < 2:
            raise UsageError(f"{len(backends)} backend ranks nothing", remedy="give at least two")
        self.trace = trace
        self.backends = tuple(backends)
        self.model = get_model(model)
        self.tolerances = tolerances or Tolerances()
        self.assume = dict(sorted((assume or {}).items()))
        self.prepared = prepare(trace, self.assume)
        self.calls = self.evaluations = 0
        self._known: dict[bytes, Answer] = {}
        # where starts govern only some events, a subset may have others governing: derived by the slow, general rule
        self._plain_gaps = trace.start_ns.all_known or trace.start_ns.none_known

    @cached_property
    def _whole(self) -> list[Samples]:
        return [run(self.prepared, b, self.model) for b in self.backends]

    @cached_property
    def metrics(self) -> FloatArray:
        """Metrics of the whole trace, shape (backends, 4)."""
        return _metrics(self._whole)

    @cached_property
    def decisions(self) -> npt.NDArray[np.int8]:
        """Decisions of the whole trace, shape (decisions,)."""
        return outcomes(self.metrics, self.tolerances.tie_us)

    @cached_property
    def _tails(self) -> list[npt.NDArray[np.bool_]]:
        """For each backend, which samples are at or above the p99."""
        return [s.exposed_us >= quantile(np.sort(s.exposed_us), 0.99) for s in self._whole]

    def ask(self, kept: IntArray) -> Answer:
        """Return the answer for the events at `kept`, ascending; counts as a call even when it is known."""
        self.calls += 1
        key = kept.astype(np.int64, copy=False).tobytes()
        found = self._known.get(key)
        if found is None:
            self.evaluations += 1
            found = self._known[key] = self._evaluate(kept)
        return found

    def _evaluate(self, kept: IntArray) -> Answer:
        try:
            part = self.subset(kept)
            samples = [run(part, b, self.model) for b in self.backends]
        except LabError:  # a subset that cannot be simulated is rejected, never repaired
            return Answer(np.zeros(len(self.decisions), np.bool_), np.full((len(self.backends), len(METRICS)), math.nan), 0.0)
        metrics = _metrics(samples)
        held = outcomes(metrics, self.tolerances.tie_us) == self.decisions
        if not held.all():
            return Answer(held, metrics, 0.0)
        return Answer(held, metrics, min(self._recall(s, kept, tail) for s, tail in zip(samples, self._tails, strict=True)))

    def _recall(self, samples: Samples, kept: IntArray, tail: npt.NDArray[np.bool_]) -> float:
        n, exposed = len(self.trace), samples.exposed_us
        wanted = int(tail.sum())
        if not wanted:
            return 1.0
        index = kept[samples.event] + (np.arange(len(exposed)) // max(1, len(kept))) * n
        largest = index[np.lexsort((index, -exposed))[:wanted]]
        return float(tail[largest].sum()) / wanted

    def subset(self, kept: IntArray) -> Prepared:
        """Return the events at `kept`, prepared: occurrences counted anew, gaps derived anew, all else shared with the whole trace."""
        rows: IntArray | slice = kept
        if len(kept) and kept[-1] - kept[0] + 1 == len(kept):
            rows = slice(int(kept[0]), int(kept[-1]) + 1)
        whole = self.prepared
        part = self.trace.take(rows)
        gap = gaps_ns(part) if not self._plain_gaps or self.trace.start_ns.all_known else None
        out = replace(
            whole,
            trace=part,
            size_bytes=whole.size_bytes[rows],
            group_size=whole.group_size[rows],
            concurrent_groups=whole.concurrent_groups[rows],
            gap_us=whole.gap_us[rows] if gap is None else gap / 1000.0,
            skew_us=whole.skew_us[rows],
            overlap_us=whole.overlap_us[rows],
            wait_us=whole.wait_us[rows],
            pressure=whole.pressure[rows],
            resource=whole.resource[rows],
        )
        # cached properties of a frozen instance: filled here from the shared table
        out.__dict__["identity"] = whole.identities.of(whole.assumed_arrival_ns.take(rows), rows)
        return out


def _metrics(samples: Sequence[Samples]) -> FloatArray:
    """Rounded metrics as in reports, shape (backends, 4)."""
    found = [summarise(s.exposed_us) for s in samples]
    return np.array([[getattr(f, name) for name in METRICS] for f in found], np.float64)
