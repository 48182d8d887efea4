"""Step streams: the timing of one step over all its executions, exact or as bounded intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.codec import encode, record_count, thousandths
from commcanary_lab.canonical import canonical_bytes

__all__ = ["APPROXIMATED", "DEFAULT_SCALES", "ERROR_FIELDS", "BoundedStream", "ExactStream", "StepStream", "skew_of"]

IntArray = npt.NDArray[np.int64]

#: Scalar fields that an interval approximates; the others stay exact in every mode.
APPROXIMATED = ("compute_before_ns", "overlap_ns", "observed_exposed_ns", "pressure")

#: Errors that an interval states.
ERROR_FIELDS = ("gap_ns", "prefix_gap_ns", "skew_ns", "arrival_ns", *APPROXIMATED)

#: Error that counts as 1 where no budget is given: 1 us, pressure 0.01.
DEFAULT_SCALES = {name: 0.01 if name == "pressure" else 1000.0 for name in ERROR_FIELDS}

#: What the commitment of an interval takes in the canary file.
_COMMITMENT_BYTES = 67


@dataclass(frozen=True, eq=False)
class ExactStream:
    """Exact timing of a step.

    Attributes
    ----------
    gap_ns : ndarray of int64, shape (m,)
        Effective gap of each execution.
    scalars : mapping of str to ndarray, shape (m,)
        The scalar fields that the step's pattern has.
    arrival_ns : ndarray of int64, shape (m, w)
        Arrivals: w = k offsets, 1 skew, or 0.
    arrival_is_skew : bool
        Whether the one arrival is the skew (a group of one rank has one arrival that is not).
    """

    gap_ns: IntArray
    scalars: Mapping[str, npt.NDArray[Any]]
    arrival_ns: IntArray
    arrival_is_skew: bool = False

    @property
    def rows(self) -> int:
        """Executions of the step."""
        return len(self.gap_ns)

    @cached_property
    def records(self) -> int:
        """Timing records: those of the longest encoded field."""
        columns = [self.gap_ns, *(_compact(v) for v in self.scalars.values()), *self.arrival_ns.T]
        return max((record_count(encode(c, arrays=True)) for c in columns), default=1) if self.rows else 0

    @cached_property
    def encoded_bytes(self) -> int:
        """About what the timing takes in the canary file."""
        return _encoded_bytes([self.gap_ns, *self.scalars.values(), *self.arrival_ns.T])

    def expanded(self) -> ExactStream:
        """Return the values per execution: the stream itself."""
        return self


@dataclass(frozen=True, eq=False)
class BoundedStream:
    """Timing of a step as ordered intervals of executions, each with its errors, its exact gap sum and its commitment.

    Attributes
    ----------
    lengths : ndarray of int64, shape (intervals,)
        Executions per interval.
    gap_ns, last_gap_ns, gap_sum_ns : ndarray of int64, shape (intervals,)
        The gap of every execution but the last, of the last, and their exact sum.
    scalars : mapping of str to ndarray, shape (intervals,)
        Midranges of the `APPROXIMATED` fields.
    exact : mapping of str to ndarray, shape (m,)
        Fields that are never approximated (message sequence, split list).
    arrival_ns : ndarray of int64, shape (intervals, w)
        Midranges of the arrivals.
    errors : mapping of str to ndarray, shape (intervals,)
        Largest error of each of the `ERROR_FIELDS` that the step has; nanoseconds, pressure in its own unit.
    commitments : tuple of str
        SHA-256 of the source rows of each interval.
    """

    lengths: IntArray
    gap_ns: IntArray
    last_gap_ns: IntArray
    gap_sum_ns: IntArray
    scalars: Mapping[str, npt.NDArray[Any]]
    exact: Mapping[str, npt.NDArray[Any]]
    arrival_ns: IntArray
    errors: Mapping[str, npt.NDArray[Any]]
    commitments: tuple[str, ...]
    arrival_is_skew: bool = False

    @property
    def rows(self) -> int:
        """Executions of the step."""
        return int(self.lengths.sum())

    @property
    def records(self) -> int:
        """Timing records: the intervals."""
        return len(self.lengths)

    @cached_property
    def encoded_bytes(self) -> int:
        """About what the timing and the commitments take in the canary file."""
        columns = [self.lengths, self.gap_ns, self.last_gap_ns, self.gap_sum_ns, self.arrival_ns.reshape(-1)]
        columns += [*self.scalars.values(), *self.exact.values(), *self.errors.values()]
        return _encoded_bytes(columns) + _COMMITMENT_BYTES * len(self.lengths)

    def expanded(self) -> ExactStream:
        """Return the approximated values per execution."""
        gap = np.repeat(self.gap_ns, self.lengths)
        gap[np.cumsum(self.lengths) - 1] = self.last_gap_ns
        scalars = {name: np.repeat(values, self.lengths) for name, values in self.scalars.items()}
        return ExactStream(gap, {**scalars, **self.exact}, np.repeat(self.arrival_ns, self.lengths, axis=0), self.arrival_is_skew)


def _encoded_bytes(columns: list[npt.NDArray[Any]]) -> int:
    return sum(len(canonical_bytes(encode(np.ascontiguousarray(c), arrays=True))) for c in columns)


def _compact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    milli = thousandths(values) if values.dtype == np.float64 else None
    return values if milli is None else milli


def skew_of(arrival_ns: IntArray, arrival_is_skew: bool) -> IntArray | None:
    """Return the skew of each row of arrivals, or None where it cannot differ from 0 (no arrivals, or one rank).

    Examples
    --------
    >>> skew_of(np.array([[0, 3, 1]]), False).tolist(), skew_of(np.array([[7]]), True).tolist(), skew_of(np.array([[7]]), False)
    ([3], [7], None)
    """
    if arrival_is_skew:
        return arrival_ns[:, 0]
    if arrival_ns.shape[1] < 2:
        return None
    out: IntArray = arrival_ns.max(axis=1) - arrival_ns.min(axis=1)
    return out


StepStream = ExactStream | BoundedStream
