"""Behaviour: does a canary answer like its source on every backend?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from commcanary_lab.simulate.report import LatencySummary, Report, quantile, summarise
from commcanary_lab.verify.model import Check, Tolerances

__all__ = ["behavior_checks", "tail_events", "tail_recall"]

TAILS = (0.95, 0.99)
_LATENCIES = ("median_us", "p95_us", "p99_us", "max_us", "mean_us")


def behavior_checks(source: Report, canary: Report, tolerances: Tolerances) -> list[Check]:
    """Compare two reports of one backend: latencies, counts, queue waits, hidden share, breakdowns and tail events.

    Parameters
    ----------
    source, canary : Report
        Same backend, model and ablations.
    tolerances : Tolerances

    Returns
    -------
    list of Check
        Every comparison with both values.
    """
    return list(_checks(source, canary, tolerances))


def _close(a: float, b: float, tolerances: Tolerances) -> bool:
    return abs(a - b) <= max(tolerances.relative * abs(a), tolerances.absolute_us)


def _checks(source: Report, canary: Report, tolerances: Tolerances) -> Iterator[Check]:
    label = source.backend.label
    same = source.metrics["count"] == canary.metrics["count"]
    yield Check("behavior", "event count", same, source.metrics["count"], canary.metrics["count"], label)
    for name in _LATENCIES:
        a, b = source.metrics[name], canary.metrics[name]
        yield Check("behavior", f"exposed {name}", _close(a, b, tolerances), a, b, label)
    waits = summarise(source.samples.wait_us), summarise(canary.samples.wait_us)
    for name in _LATENCIES:
        a, b = getattr(waits[0], name), getattr(waits[1], name)
        yield Check("behavior", f"queue wait {name}", _close(a, b, tolerances), a, b, label)
    a, b = source.metrics["communication_hidden_pct"], canary.metrics["communication_hidden_pct"]
    yield Check("behavior", "hidden share (%)", abs(a - b) <= tolerances.hidden_points, a, b, label)
    for what, ours, theirs in (("phase", source.by_phase, canary.by_phase), ("op", source.by_op, canary.by_op)):
        for name in sorted({*ours, *theirs}):
            yield from _breakdown(f"{what} {name}", ours.get(name), theirs.get(name), label, tolerances)
    if same:
        yield from _tails(source, canary, tolerances)


def _breakdown(what: str, a: LatencySummary | None, b: LatencySummary | None, label: str, tolerances: Tolerances) -> Iterator[Check]:
    if a is None or b is None:
        yield Check("behavior", what, False, "absent" if a is None else a.count, "absent" if b is None else b.count, label)
        return
    yield Check("behavior", f"{what} count", a.count == b.count, a.count, b.count, label)
    for name in _LATENCIES:
        x, y = getattr(a, name), getattr(b, name)
        yield Check("behavior", f"{what} {name}", _close(x, y, tolerances), x, y, label)


def tail_events(report: Report, q: float) -> npt.NDArray[np.int64]:
    """Return the samples whose exposed latency is at least the q-quantile, ascending.

    Returns
    -------
    ndarray of int64
        Positions in the samples (iteration-major, program order unless ordering was ablated).
    """
    exposed = report.samples.exposed_us
    return np.flatnonzero(exposed >= quantile(np.sort(exposed), q))


def tail_recall(source: Report, canary: Report, q: float) -> tuple[float, float, float]:
    """Return how much of the source's tail the canary's tail holds.

    The tail T of the source is every sample at or above the q-quantile. The canary's tail is its ``|T|`` samples with the largest
    exposed latency, ties to the smaller index.

    Returns
    -------
    recall : float
        Share of T in the canary's tail.
    source_us, canary_us : float
        Exposed latency summed over T in the source and in the canary.
    """
    tail = tail_events(source, q)
    exposed = canary.samples.exposed_us
    largest = np.argsort(-exposed, kind="stable")[: len(tail)]
    in_tail = np.zeros(max(len(exposed), len(source.samples)), np.bool_)
    in_tail[tail] = True
    recall = int(in_tail[largest].sum()) / len(tail) if len(tail) else 1.0
    return recall, float(source.samples.exposed_us[tail].sum()), float(exposed[tail].sum())


def _tails(source: Report, canary: Report, tolerances: Tolerances) -> Iterator[Check]:
    label = source.backend.label
    if not len(source.samples):
        return
    for q in TAILS:
        recall, ours, theirs = tail_recall(source, canary, q)
        name = f"p{round(q * 100)} tail"
        yield Check(
            "behavior",
            f"{name} recall (at least {tolerances.tail_recall:g})",
            recall >= tolerances.tail_recall,
            1.0,
            round(recall, 3),
            label,
        )
        close = abs(ours - theirs) <= tolerances.relative * abs(ours)
        yield Check("behavior", f"{name} total exposed (us)", close, round(ours, 3), round(theirs, 3), label)
