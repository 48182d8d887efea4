"""Baselines: simple ways to keep a few events of a trace, each with as many events as the method it is compared with.

=============  ==================================================================================================================
isolated       every operation alone, the most frequent first: no skew, no overlap, no pressure, one second apart
random         events drawn evenly
frequency      the most frequent operations first, their earliest events
cluster        medoids of k-means over size, group, operation and timing
stratified     operations in proportion to their frequency, events drawn inside each
=============  ==================================================================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UsageError
from commcanary_lab.trace.columns import Column, Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.signatures import signature_codes
from commcanary_lab.trace.timing import gaps_ns
from commcanary_lab.verify.derived import derive, trace_sha256

__all__ = ["KINDS", "Baseline", "baseline"]

IntArray = npt.NDArray[np.int64]

#: Far enough apart that no queue is left from the event before.
_ISOLATED_GAP_NS = 1_000_000_000
_LLOYD_ROUNDS = 10
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Baseline:
    """A trace reduced by a simple rule.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    source, trace : Trace
        Before and after; the reduced trace says what it was derived from.
    kept : ndarray of int64
        Source indices of the kept events.
    seed : int
        Of the random choices; without effect on ``isolated`` and ``frequency``.
    """

    kind: str
    source: Trace
    trace: Trace
    kept: IntArray
    seed: int

    @property
    def label(self) -> str:
        """Kind, events and seed in words."""
        seed = "" if self.kind in ("isolated", "frequency") else f", seed {self.seed}"
        return f"{self.kind} baseline, {len(self.kept):,} of {len(self.source):,} events{seed}"

    def to_json(self) -> dict[str, Any]:
        """Return the key figures as a JSON object."""
        return {
            "method": self.kind,
            "label": self.label,
            "events_before": len(self.source),
            "events_after": len(self.kept),
            "seed": self.seed,
            "kept": self.kept.tolist(),
        }

    def __repr__(self) -> str:
        return f"Baseline({self.label})"


def baseline(trace: Trace, kind: str, *, events: int, seed: int = 0) -> Baseline:
    """Reduce a trace by a simple rule.

    Parameters
    ----------
    trace : Trace
        The source.
    kind : str
        One of `KINDS`.
    events : int
        Events to keep; at most all.
    seed : int
        Of the random choices.

    Raises
    ------
    UsageError
        If the kind is unknown or no event would be kept.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> baseline(trace, "frequency", events=3).kept.tolist(), baseline(trace, "random", events=3)
    ([0, 1, 2], Baseline(random baseline, 3 of 100 events, seed 0))
    """
    if kind not in _CHOICES:
        raise UsageError(f"no baseline {kind!r}", remedy=f"known: {', '.join(KINDS)}")
    if events < 1:
        raise UsageError(f"{events} events are too few", remedy="keep at least one event")
    sha256 = trace_sha256(trace)
    digest = hashlib.sha256(f"{kind}:{seed}:{sha256}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    kept = np.sort(_CHOICES[kind](trace, min(events, len(trace)), rng))
    part = derive(trace, kept, kind, sha256=sha256)
    return Baseline(kind, trace, _isolated(part) if kind == "isolated" else part, kept, seed)


def _isolated(trace: Trace) -> Trace:
    n = len(trace)
    return replace(
        trace.with_notes("isolated: arrival skew, overlap, pressure and gaps were removed, as in a benchmark of one collective at a time"),
        start_ns=Column.absent(n),
        gap_ns=Column(np.full(n, _ISOLATED_GAP_NS)),
        compute_before_ns=Column.absent(n),
        overlap_ns=Column(np.zeros(n, np.int64)),
        pressure=Column(np.zeros(n)),
        arrival_ns=Ragged.empty(n),
        arrival_known=np.ones(n, np.bool_),
    )


def _random(trace: Trace, k: int, rng: np.random.Generator) -> IntArray:
    return rng.choice(len(trace), k, replace=False)


def _frequency(trace: Trace, k: int, rng: np.random.Generator) -> IntArray:
    """Round-robin over the signatures, the most frequent first; the j-th turn takes the j-th event of each."""
    codes, first = signature_codes(trace)
    turn = _occurrence(codes, len(first))
    counts = np.bincount(codes, minlength=len(first))
    place = np.empty(len(first), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(first))
    return np.lexsort((place[codes], turn))[:k]


def _occurrence(codes: IntArray, kinds: int) -> IntArray:
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=kinds))])
    out = np.empty(len(codes), np.int64)
    out[order] = np.arange(len(codes)) - starts[codes[order]]
    return out


def _stratified(trace: Trace, k: int, rng: np.random.Generator) -> IntArray:
    """Largest remainders of the proportional shares; ties go to the signature that appears first."""
    codes, first = signature_codes(trace)
    counts = np.bincount(codes, minlength=len(first))
    share = counts * k / len(codes)
    taken = np.floor(share).astype(np.int64)
    more = np.argsort(-(share - taken), kind="stable")[: k - int(taken.sum())]
    taken[more] += 1
    return np.concatenate([rng.choice(np.flatnonzero(codes == s), n, replace=False) for s, n in enumerate(taken.tolist())])


def _cluster(trace: Trace, k: int, rng: np.random.Generator) -> IntArray:
    """k-means++ and Lloyd; of each cluster the event nearest its centre, then the farthest events where clusters are empty."""
    points = _features(trace)
    centres = points[_seeds(points, k, rng)]
    for _ in range(_LLOYD_ROUNDS):
        owner, _ = _nearest(points, centres)
        counts = np.bincount(owner, minlength=k)
        sums = np.stack([np.bincount(owner, weights=column, minlength=k) for column in points.T], axis=1)
        moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    owner, distance = _nearest(points, centres)
    order = np.lexsort((distance, owner))
    heads = order[np.unique(owner[order], return_index=True)[1]]
    rest = np.setdiff1d(order[np.argsort(-distance[order], kind="stable")], heads, assume_unique=True)
    return np.concatenate([heads, rest[: k - len(heads)]])


def _features(trace: Trace) -> npt.NDArray[np.float64]:
    """Size, group size, gap, skew and overlap on logarithmic scales, and the operation; each spread to unit variance."""
    columns = [
        trace.size_bytes,
        trace.group_sizes,
        np.maximum(gaps_ns(trace), 0),
        trace.skew_ns.filled(0),
        trace.overlap_ns.filled(0),
    ]
    rows = [np.log1p(c.astype(np.float64)) for c in columns]
    rows += [(trace.op.codes == code).astype(np.float64) for code in np.unique(trace.op.codes).tolist()]
    points = np.stack(rows, axis=1)
    spread = points.std(axis=0)
    out: npt.NDArray[np.float64] = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return out


def _seeds(points: npt.NDArray[np.float64], k: int, rng: np.random.Generator) -> IntArray:
    chosen = np.empty(k, np.int64)
    chosen[0] = rng.integers(len(points))
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    for i in range(1, k):
        total = float(distance.sum())
        chosen[i] = rng.choice(len(points), p=distance / total) if total > 0 else rng.integers(len(points))
        np.minimum(distance, ((points - points[chosen[i]]) ** 2).sum(axis=1), out=distance)
    return chosen


def _nearest(points: npt.NDArray[np.float64], centres: npt.NDArray[np.float64]) -> tuple[IntArray, npt.NDArray[np.float64]]:
    owner, distance = np.empty(len(points), np.int64), np.empty(len(points))
    norms = (centres**2).sum(axis=1)
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        squared = norms - 2 * block @ centres.T
        owner[start : start + _BLOCK] = squared.argmin(axis=1)
        distance[start : start + _BLOCK] = ((block - centres[owner[start : start + _BLOCK]]) ** 2).sum(axis=1)
    return owner, distance


_CHOICES: dict[str, Callable[[Trace, int, np.random.Generator], IntArray]] = {
    "isolated": _frequency,
    "random": _random,
    "frequency": _frequency,
    "cluster": _cluster,
    "stratified": _stratified,
}

#: The baselines, in the order in which they are listed.
KINDS = tuple(_CHOICES)
