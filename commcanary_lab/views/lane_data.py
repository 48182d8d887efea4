"""What a timeline draws, as columns in microseconds: computed once per trace, sliced per view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.inspect import iterations
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.timing import clock_ns, timing_mode
from commcanary_lab.views.group_labels import group_labels

__all__ = ["LaneData", "lane_data"]

FloatArray = npt.NDArray[np.float64]

#: Events that the first view shows, about.
FIRST_VIEW = 240


@dataclass(frozen=True, eq=False)
class LaneData:
    """The columns of a timeline.

    Parameters
    ----------
    lanes : tuple of str
        Name of each lane, in order of first use; one per process group.
    lane, op : ndarray of int, shape (n,)
        Lane and operation of each event.
    op_names : tuple of str
        Names of operations.
    start_us : ndarray of float64, shape (n,)
        First arrival, from the first event; ascending.
    duration_us, skew_us, overlap_us : ndarray of float64, shape (n,)
        Measured duration, arrival skew, concurrent compute; NaN where unknown.
    size_bytes : ndarray of int64, shape (n,)
        B.
    phases : tuple of (str or None), shape (n,) through `phase` codes
        Names of phases; `phase` is -1 where there is none.
    ordered_only : bool
        True when the source has no times: the axis then counts events.
    """

    lanes: tuple[str, ...]
    lane: npt.NDArray[np.int64]
    op: npt.NDArray[np.int64]
    op_names: tuple[str, ...]
    start_us: FloatArray
    duration_us: FloatArray
    skew_us: FloatArray
    overlap_us: FloatArray
    size_bytes: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int64]
    phases: tuple[str, ...]
    ordered_only: bool
    first_view: tuple[float, float]
    end_us: float
    longest_us: float

    def __len__(self) -> int:
        return len(self.start_us)

    def inside(self, low_us: float, high_us: float) -> slice:
        """Return the events that may touch a window."""
        return slice(int(np.searchsorted(self.start_us, low_us - self.longest_us)), int(np.searchsorted(self.start_us, high_us, "right")))


def lane_data(trace: Trace) -> LaneData:
    """Return the columns of a timeline.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded, Column, ProcessGroup
    >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32),
    ...                 size_bytes=np.array([8, 8]), start_ns=Column(np.array([0, 5000])))
    >>> d = lane_data(t)
    >>> d.lanes, d.start_us.tolist(), bool(np.isnan(d.duration_us).all())
    (('tp (0-1)',), [0.0, 5.0], True)
    """
    used, first, lane = np.unique(trace.group, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    position = np.empty(len(used), np.int64)
    position[order] = np.arange(len(used))
    groups = [trace.groups[used[i]] for i in order.tolist()]
    names = group_labels(dict.fromkeys(groups))
    op, phase = trace.op.normalised(), trace.phase.normalised()
    ordered_only = timing_mode(trace) == "none"
    start = np.arange(len(trace), dtype=np.float64) if ordered_only else clock_ns(trace) / 1000.0

    def us(column: object) -> FloatArray:
        values, mask = column.values, column.mask  # type: ignore[attr-defined]
        return np.where(mask, values / 1000.0, np.nan)

    duration, skew, overlap = us(trace.duration_max_ns), us(trace.skew_ns), us(trace.overlap_ns)
    if ordered_only:
        duration, skew, overlap = (np.full(len(trace), np.nan) for _ in range(3))
    reach = np.nan_to_num(np.stack([duration, skew, overlap]), nan=0.0).max(axis=0) if len(trace) else np.zeros(0)
    end = float((start + reach).max()) if len(trace) else 1.0
    return LaneData(
        tuple(names[g] for g in groups), position[lane].astype(np.int64), op.codes.astype(np.int64), op.names,
        start, duration, skew, overlap,
        trace.size_bytes, phase.codes.astype(np.int64), phase.names, ordered_only,
        _first_view(trace, start, reach, end), end, float(reach.max(initial=0.0)))  # fmt: skip


def _first_view(trace: Trace, start: FloatArray, reach: FloatArray, end: float) -> tuple[float, float]:
    """Everything if it is little, otherwise the first whole iterations, otherwise the first events."""
    n = len(trace)
    if n <= FIRST_VIEW:
        return _padded(0.0, end)
    last = FIRST_VIEW
    found = iterations(trace) if n <= 200_000 else None
    if found is not None and len(found):
        fitting = [r.stop_event for r in found.rows if r.stop_event <= 1.6 * FIRST_VIEW]
        last = fitting[-1] if fitting else last
    return _padded(0.0, float((start[:last] + reach[:last]).max()))


def _padded(low: float, high: float) -> tuple[float, float]:
    width = (high - low) or 1.0
    return low - 0.012 * width, high + 0.012 * width
