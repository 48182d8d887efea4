"""Whose fault a slower quantile is: how much of its change each phase and operation brings, adding up to the whole change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.review.comparison import Comparison
from commcanary_lab.units import format_us

__all__ = ["Contribution", "Contributions", "contributions"]

FloatArray = npt.NDArray[np.float64]

#: Parts that are told apart at most; the others count as one.
MAX_PARTS = 8

#: Values that are looked at in all: more samples get fewer parts.
_MAX_VALUES = 30_000_000

#: Parts that sentences name before the others are only summed up.
_MAX_TOLD = 3

_NAMES = {"median": "the median", "p95": "p95", "p99": "p99", "mean": "the mean"}
_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "mean": None}


@dataclass(frozen=True)
class Contribution:
    """What one phase and operation brings.

    Parameters
    ----------
    phase, operation : str
        Both empty for all parts that are not told apart.
    samples : int
        Its events, over all iterations.
    delta_us : float
        What it adds to the metric, microseconds; negative where it takes something off.
    exposed_us : float
        What it adds to the exposed time of all events together, microseconds.
    """

    phase: str
    operation: str
    samples: int
    delta_us: float
    exposed_us: float

    @property
    def label(self) -> str:
        """Phase and operation in words."""
        return f"{self.phase} {self.operation}".strip() or "everything else"


@dataclass(frozen=True)
class Contributions:
    """How the change of one metric adds up.

    Parameters
    ----------
    metric : str
    before_us, after_us : float
        The metric of the samples.
    parts : tuple of Contribution
        The largest addition first; they sum up to `delta_us`.
    """

    metric: str
    before_us: float
    after_us: float
    parts: tuple[Contribution, ...]

    @property
    def delta_us(self) -> float:
        """The whole change."""
        return self.after_us - self.before_us

    @property
    def sentences(self) -> tuple[str, ...]:
        """The change in words: what brings most of it, and what works against it.

        Examples
        --------
        >>> parts = (Contribution("prefill", "all_gather", 4, 4100.0, 9e3), Contribution("decode", "all_reduce", 9, 900.0, 1e3))
        >>> Contributions("p99", 20000.0, 25000.0, parts).sentences[0]
        'prefill all_gather adds 4.10 ms of the 5.00 ms by which p99 rose (82 %).'
        """
        whole, name = self.delta_us, _NAMES[self.metric]
        up = whole >= 0
        along = [p for p in self.parts if (p.delta_us > 0) == up and abs(p.delta_us) >= 0.0005]
        along.sort(key=lambda p: -abs(p.delta_us))
        against = [p for p in self.parts if (p.delta_us > 0) != up and abs(p.delta_us) >= 0.0005]
        if abs(whole) < 0.0005 and not along and not against:
            return (f"{name} did not change.",)
        out = []
        for p in along[:_MAX_TOLD]:
            verb = "adds" if up else "takes off"
            of = f"{format_us(abs(p.delta_us))} of the {format_us(abs(whole))} by which {name} {'rose' if up else 'fell'}"
            share = f" ({100 * p.delta_us / whole:.0f} %)" if abs(whole) >= 0.0005 else ""
            out.append(f"{p.label} {verb} {of}{share}.")
        if len(along) > _MAX_TOLD:
            rest = sum(abs(p.delta_us) for p in along[_MAX_TOLD:])
            out.append(f"{len(along) - _MAX_TOLD} more bring {format_us(rest)} together.")
        if against:
            rest = sum(abs(p.delta_us) for p in against)
            verb = "take off" if up else "add"
            out.append(f"{', '.join(p.label for p in against[:3])}{' and others' if len(against) > 3 else ''} {verb} {format_us(rest)}.")
        return tuple(out)


def contributions(comparison: Comparison, metric: str = "p99") -> Contributions | None:
    """Distribute the change of a metric over phases and operations.

    The parts are exchanged one after another, baseline for candidate, and each is given the change of the metric at its turn, averaged
    over every order of exchange (the Shapley value). So the contributions sum up to the whole change, which the quantiles of single
    parts do not: the p99 of the workload may sit in another part afterwards. Both reports hold the same events, so that a part can be
    exchanged alone.

    Parameters
    ----------
    comparison : Comparison
        Of two reports of the same work.
    metric : {"median", "p95", "p99", "mean"}
        Of the exposed latency.

    Returns
    -------
    Contributions or None
        None where a report has no samples, or where the reports describe different work.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.tp8_decode()
    >>> found = contributions(lab.compare(lab.simulate(trace), lab.simulate(trace, "congested")))
    >>> [(p.label, round(p.delta_us, 1)) for p in found.parts[:2]], round(found.delta_us, 1)
    ([('prefill all_reduce', 397.8), ('prefill all_gather', 1.3)], 399.1)
    """
    a, b = comparison.base, comparison.candidate
    if a.exposed_us is None or b.exposed_us is None or a.parts is None or b.parts is None or not len(a.exposed_us):
        return None
    if len(a.exposed_us) != len(b.exposed_us) or a.parts.names != b.parts.names or not np.array_equal(a.parts.codes, b.parts.codes):
        return None
    before, after, codes = a.exposed_us, b.exposed_us, a.parts.codes
    change = np.bincount(codes, after - before, len(a.parts.names)).astype(np.float64)
    players, of_sample = _players(before, after, codes, change)
    value = _values(before, after, of_sample, len(players), _QUANTILES[metric])
    shares = _shapley(value, len(players))
    parts = []
    for i, members in enumerate(players):
        phase, operation = a.parts.names[members[0]] if len(members) == 1 else ("", "")
        count = int((of_sample == i).sum())
        parts.append(Contribution(phase, operation, count, float(shares[i]), float(change[list(members)].sum())))
    parts.sort(key=lambda p: (-p.delta_us, p.label))
    return Contributions(metric, float(value[0]), float(value[-1]), tuple(parts))


def _players(
    before: FloatArray, after: FloatArray, codes: npt.NDArray[np.int64], change: FloatArray
) -> tuple[list[tuple[int, ...]], npt.NDArray[np.int64]]:
    """Tell the parts apart that moved most, and put the others into one; the number is bounded by the work."""
    moved = np.bincount(codes, np.abs(after - before), len(change))
    most = max(2, min(MAX_PARTS, int(math.log2(_MAX_VALUES / len(codes))) if len(codes) < _MAX_VALUES else 2))
    order = sorted(range(len(change)), key=lambda i: (-moved[i], i))
    alone = order if len(order) <= most else order[: most - 1]
    players: list[tuple[int, ...]] = [(i,) for i in alone]
    if len(order) > len(alone):
        players.append(tuple(order[len(alone) :]))
    of_code = np.zeros(len(change), np.int64)
    for i, members in enumerate(players):
        of_code[list(members)] = i
    return players, of_code[codes]


def _values(before: FloatArray, after: FloatArray, player: npt.NDArray[np.int64], count: int, q: float | None) -> FloatArray:
    """The metric with every set of players exchanged; bit i of the index says whether player i is."""
    bit = np.int64(1) << player
    out = np.empty(1 << count)
    for chosen in range(1 << count):
        mixed = np.where(bit & chosen, after, before)
        out[chosen] = mixed.mean() if q is None else np.quantile(mixed, q)
    return out


def _shapley(value: FloatArray, count: int) -> FloatArray:
    sets = np.arange(1 << count)
    size = np.array([int(s).bit_count() for s in sets])
    weight = np.array([1 / (count * math.comb(count - 1, k)) for k in range(count)])
    out = np.empty(count)
    for i in range(count):
        without = sets[(sets >> i & 1) == 0]
        out[i] = float((weight[size[without]] * (value[without | 1 << i] - value[without])).sum())
    return out
