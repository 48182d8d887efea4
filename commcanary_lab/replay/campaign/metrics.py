"""What can be asked of one run: each metric is a row of figures, one per rank or one for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.campaign.preregistration import Criterion
from commcanary_lab.replay.result import Replay
from commcanary_lab.replay.spec import RankMarker

__all__ = ["METRICS", "AGREEMENT_METRICS", "Metric", "reduce_samples", "run_totals", "run_values"]

FloatArray = npt.NDArray[np.float64]

#: Figures of a campaign's rankings, not of a run.
AGREEMENT_METRICS = ("pair_agreement", "kendall_tau_b", "false_positives", "false_negatives", "inversions")


@dataclass(frozen=True)
class Metric:
    """One metric.

    Parameters
    ----------
    name : str
        As criteria call it.
    unit : str
        Of its values.
    of_ranks : bool
        One value per rank; otherwise one for the run.
    exact : bool
        A count, not a time: it has no spread, and must hold in every repetition.
    filtered : bool
        Takes `op` and `size_bytes`.
    sampled : bool
        Takes `statistic`.
    told : str
        What it is.
    values : callable
        From a run, for a criterion.
    """

    name: str
    unit: str
    of_ranks: bool
    exact: bool
    filtered: bool
    sampled: bool
    told: str
    values: Callable[[Replay, Criterion], FloatArray]


def reduce_samples(values: FloatArray, statistic: str, axis: int | None = None) -> FloatArray:
    """Return ``min``, ``max``, ``mean``, ``sum`` or a quantile (``p50``) of values; NaN where there are none.

    Examples
    --------
    >>> float(reduce_samples(np.array([1.0, 2.0, 4.0]), "p50"))
    2.0
    """
    if not values.size:
        return np.asarray(np.nan)
    if statistic.startswith("p"):
        return np.asarray(np.quantile(values, int(statistic[1:]) / 100, axis=axis))
    return np.asarray(getattr(np, statistic)(values, axis=axis))


def run_values(replay: Replay, criterion: Criterion) -> FloatArray:
    """Return what a criterion's metric says of a run, shape (ranks,), or (1,) where it is one figure for the run.

    NaN where the run has no such figure: it has no samples, or nothing passes the filter.
    """
    return METRICS[criterion.metric].values(replay, criterion)


def run_totals(replay: Replay, criterion: Criterion) -> FloatArray:
    """Return of how many the values of `run_values` are, shape (ranks,): what was compared, for data that were right; 1 otherwise."""
    if criterion.metric == "outputs_equal":
        return _markers(replay, lambda m: m.boundaries_checked)
    return np.ones(len(run_values(replay, criterion)))


def _events(replay: Replay, criterion: Criterion) -> npt.NDArray[np.bool_]:
    """Which of the replay's events a criterion looks at, shape (e,)."""
    keep = [
        s is not None and criterion.op in ("", s.op) and criterion.size_bytes in (None, s.size_bytes) for s in replay.program.steps
    ]  # fmt: skip
    return np.array(keep, np.bool_)[replay.steps] if len(replay.steps) else np.zeros(0, np.bool_)


def _rank_samples(replay: Replay, rank: int, criterion: Criterion) -> dict[str, npt.NDArray[np.int64]]:
    c = replay.samples[rank]
    keep = (c["iteration"] >= 0) & (c["iteration"] < replay.iterations)
    if criterion.op or criterion.size_bytes is not None:
        keep &= np.isin(c["event"], replay.events[_events(replay, criterion)])
    return {name: column[keep] for name, column in c.items()}


def _per_rank(value: Callable[[dict[str, npt.NDArray[np.int64]]], FloatArray]) -> Callable[[Replay, Criterion], FloatArray]:
    def values(replay: Replay, criterion: Criterion) -> FloatArray:
        found = [value(_rank_samples(replay, r, criterion)) for r in range(replay.spec.ranks)]
        return np.array([float(reduce_samples(f, criterion.statistic)) for f in found])

    return values


def _cycles(c: dict[str, npt.NDArray[np.int64]]) -> FloatArray:
    """Time of each iteration on a rank: from coming to the first event until the last one is done."""
    if not len(c["iteration"]):
        return np.zeros(0)
    first = np.flatnonzero(np.r_[True, np.diff(c["iteration"]) != 0])
    return np.asarray((np.maximum.reduceat(c["finish_ns"], first) - np.minimum.reduceat(c["ready_ns"], first)) / 1000)


def _sums(begin: str, end: str) -> Callable[[dict[str, npt.NDArray[np.int64]]], FloatArray]:
    def value(c: dict[str, npt.NDArray[np.int64]]) -> FloatArray:
        if not len(c["iteration"]):
            return np.zeros(0)
        first = np.flatnonzero(np.r_[True, np.diff(c["iteration"]) != 0])
        return np.asarray(np.add.reduceat(c[end] - c[begin], first) / 1000)

    return value


def _of_fleet(name: str) -> Callable[[Replay, Criterion], FloatArray]:
    def values(replay: Replay, criterion: Criterion) -> FloatArray:
        found = getattr(replay, name)
        if name != "cycle_ns" and found.size:
            found = found[:, _events(replay, criterion)]
        return np.array([float(reduce_samples(np.asarray(found / 1000), criterion.statistic))])

    return values


def _figure(name: str) -> Callable[[Replay, Criterion], FloatArray]:
    return lambda replay, criterion: np.array([replay.metrics.get(name, np.nan)])


def _markers(replay: Replay, value: Callable[[RankMarker], float]) -> FloatArray:
    return np.array([np.nan if m is None else float(value(m)) for m in replay.markers])


def _counted(name: str) -> Callable[[Replay, Criterion], FloatArray]:
    def values(replay: Replay, criterion: Criterion) -> FloatArray:
        return _markers(replay, lambda m: sum(n for op, n in getattr(m, name).items() if criterion.op in ("", op)))

    return values


def _bookkeeping(replay: Replay, criterion: Criterion) -> FloatArray:
    found = [replay.bookkeeping_ns(r) / 1000 for r in range(replay.spec.ranks)]
    return np.array([float(reduce_samples(f, criterion.statistic)) for f in found])


def _all(*metrics: Metric) -> dict[str, Metric]:
    return {m.name: m for m in metrics}


_FIGURES = (*(f"{kind}_p{q}_us" for kind in ("latency", "exposed") for q in (50, 95, 99)), "cycle_min_us", "cycle_p50_us")


def _cycle_of_rate(replay: Replay, criterion: Criterion) -> FloatArray:
    """Cycles per second; what a cycle yields is stated in the preregistration and multiplied in by the one who has it."""
    return np.asarray(1e6 / METRICS["fleet_cycle_us"].values(replay, criterion))


#: Every metric of a run.
METRICS = _all(
    Metric("cycle_us", "us", True, False, False, True, "time of a cycle on a rank", _per_rank(_cycles)),
    Metric("latency_us", "us", True, False, True, True, "time of an event on a rank, waiting for the others at the barrier excluded",
           _per_rank(lambda c: np.asarray((c["finish_ns"] - c["start_ns"]) / 1000))),
    Metric("communication_us", "us", True, False, True, True, "time of a rank in events, per cycle",
           _per_rank(_sums("start_ns", "finish_ns"))),
    Metric("wait_us", "us", True, False, True, True, "time of a rank at barriers, per cycle", _per_rank(_sums("ready_ns", "start_ns"))),
    Metric("bookkeeping_us", "us", True, False, False, True, "time of the worker itself between two events", _bookkeeping),
    Metric("fleet_cycle_us", "us", False, False, False, True, "time of a cycle on its slowest rank", _of_fleet("cycle_ns")),
    Metric("fleet_latency_us", "us", False, False, True, True, "time of an event from its last arrival", _of_fleet("latency_ns")),
    Metric("fleet_exposed_us", "us", False, False, True, True, "what of that time no compute hid", _of_fleet("exposed_ns")),
    *(Metric(name, "us", False, False, False, False, "the figure of a replay with this name", _figure(name)) for name in _FIGURES),
    Metric("rate", "per s", False, False, False, True, "stated yield of a cycle over the time of the cycle on its slowest rank",
           _cycle_of_rate),
    Metric("launches", "events", True, True, True, False, "events of one cycle on a rank, counted while they ran", _counted("counts")),
    Metric("payload_bytes", "B", True, True, True, False, "bytes (B) of one cycle on a rank", _counted("payload_bytes")),
    Metric("outputs_equal", "outputs", True, True, False, False, "outputs that were right byte for byte, of those that the probe compared",
           lambda r, c: _markers(r, lambda m: m.boundaries_checked - m.mismatches)),
    Metric("probe_pass", "runs", False, True, False, False, "1 where the probe passed",
           lambda r, c: np.array([float(r.probe.status == "pass")])),
)  # fmt: skip
