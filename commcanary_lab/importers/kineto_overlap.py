"""Overlap of communication with compute, from the kernels' intervals on the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.kineto_scan import Kernel

__all__ = ["Busy", "ComputeOverlap", "TimeShares", "busy", "busy_ns", "time_shares_of"]

Streams = Mapping[str, Mapping[str, list[tuple[int, int]]]]


@dataclass(frozen=True)
class TimeShares:
    """How long a rank's devices communicate, compute, and do both at once, in microseconds.

    Parameters
    ----------
    comm_us, compute_us : float
        Time during which at least one communication (compute) kernel runs; summed over devices.
    overlap_us : float
        Time during which both run.
    left_out : int
        Kernels without a usable duration, which are in none of the figures.
    """

    comm_us: float
    compute_us: float
    overlap_us: float
    left_out: int = 0

    @property
    def overlap_share(self) -> float | None:
        """Overlap as a share of the communication time; None where nothing communicates.

        Examples
        --------
        >>> TimeShares(20.0, 20.0, 10.0).overlap_share
        0.5
        """
        return self.overlap_us / self.comm_us if self.comm_us else None


@dataclass(frozen=True)
class Busy:
    """Disjoint, sorted intervals [start, end) in nanoseconds, with the busy time before each.

    Parameters
    ----------
    starts, ends, before : ndarray of int64, shape (n,)
        The intervals, and the sum of the lengths of those before each.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]

    @property
    def total_ns(self) -> int:
        """Sum of the lengths."""
        return int((self.ends - self.starts).sum())

    def until(self, time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Busy time before each of the given times, shape of `time_ns`."""
        if not len(self.starts):
            return np.zeros(len(time_ns), np.int64)
        i = np.searchsorted(self.starts, time_ns, side="right") - 1
        inside = np.minimum(time_ns, self.ends[i]) - self.starts[i]
        return np.where(i < 0, 0, self.before[i] + inside)

    def overlap_ns(self, other: Busy) -> int:
        """Time that both cover."""
        return int((self.until(other.ends) - self.until(other.starts)).sum())


def busy(intervals: Iterable[tuple[int, int]]) -> Busy:
    """Return the union of intervals.

    Examples
    --------
    >>> b = busy([(0, 10), (20, 30), (5, 12)])
    >>> b.starts.tolist(), b.ends.tolist(), b.overlap_ns(busy([(11, 25)]))
    ([0, 20], [12, 30], 6)
    """
    pairs = np.array(list(intervals), np.int64).reshape(-1, 2)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    if not len(pairs):
        empty = np.zeros(0, np.int64)
        return Busy(empty, empty, empty)
    reach = np.maximum.accumulate(pairs[:, 1])
    first = np.concatenate([[True], pairs[1:, 0] > reach[:-1]])
    starts = pairs[first, 0]
    ends = np.maximum.reduceat(pairs[:, 1], np.flatnonzero(first))
    lengths = ends - starts
    return Busy(starts, ends, np.cumsum(lengths) - lengths)


def _span(kernel: Kernel) -> tuple[int, int]:
    assert kernel.duration_ns is not None
    return (kernel.start_ns, kernel.start_ns + kernel.duration_ns)


def busy_ns(kernels: list[Kernel]) -> int | None:
    """Time during which at least one of a collective's kernels runs; None where a duration is unknown.

    A collective usually is one kernel; then this is its duration.
    """
    if not kernels or any(k.duration_ns is None for k in kernels):
        return None
    if len(kernels) == 1:
        return kernels[0].duration_ns
    return busy(map(_span, kernels)).total_ns


class ComputeOverlap:
    """Compute that runs during a collective: on other streams of the same device, inside the intervals of its kernels.

    Parameters
    ----------
    compute : mapping
        Device -> stream -> intervals of compute kernels.
    """

    def __init__(self, compute: Streams) -> None:
        self._compute = compute
        self._others: dict[tuple[str, str], Busy] = {}

    def of(self, collectives: Sequence[Sequence[Kernel]]) -> list[int | None]:
        """Overlap of each collective in nanoseconds, given its kernels.

        None where there is no kernel, a kernel has no usable duration, or the kernels ran on several streams, so that none is the
        collective's own.
        """
        out: list[int | None] = [None] * len(collectives)
        single: dict[tuple[str, str], list[int]] = {}
        for i, kernels in enumerate(collectives):
            places = {(k.device, k.stream) for k in kernels}
            if len(places) != 1 or any(k.duration_ns is None for k in kernels):
                continue
            place = places.pop()
            if len(kernels) == 1:
                single.setdefault(place, []).append(i)
            else:
                out[i] = self._other(*place).overlap_ns(busy(map(_span, kernels)))
        for place, indices in single.items():  # all at once: there are many
            spans = np.array([_span(collectives[i][0]) for i in indices], np.int64)
            other = self._other(*place)
            for i, covered in zip(indices, (other.until(spans[:, 1]) - other.until(spans[:, 0])).tolist(), strict=True):
                out[i] = covered
        return out

    def _other(self, device: str, stream: str) -> Busy:
        key = (device, stream)
        if key not in self._others:
            streams = self._compute.get(device, {})
            self._others[key] = busy(pair for s, pairs in streams.items() if s != stream for pair in pairs)
        return self._others[key]


def time_shares_of(comm: list[Kernel], compute: Streams, left_out: int) -> TimeShares:
    """Return the shares of one rank.

    Parameters
    ----------
    comm : list of Kernel
        Communication kernels.
    compute : mapping
        Device -> stream -> intervals of compute kernels.
    left_out : int
        Compute kernels without usable times.
    """
    by_device: dict[str, list[tuple[int, int]]] = {}
    for k in comm:
        if k.duration_ns is None:
            left_out += 1
        else:
            by_device.setdefault(k.device, []).append(_span(k))
    totals = [0, 0, 0]
    for device in sorted({*by_device, *compute}):
        communicating = busy(by_device.get(device, []))
        computing = busy(pair for pairs in compute.get(device, {}).values() for pair in pairs)
        totals[0] += communicating.total_ns
        totals[1] += computing.total_ns
        totals[2] += computing.overlap_ns(communicating)
    return TimeShares(totals[0] / 1000, totals[1] / 1000, totals[2] / 1000, left_out)
