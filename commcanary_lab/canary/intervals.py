"""Bounded intervals: a step's timings as few stretches, each with one value per field and exact maximum errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from commcanary_lab.errors import BudgetError, InputError, UsageError

if TYPE_CHECKING:
    from commcanary_lab.canary.interval_rows import Rows

__all__ = [
    "Encoding",
    "GapRule",
    "Partition",
    "encode",
    "partition",
    "partition_by_budget",
    "partition_streams",
    "partition_streams_by_budget",
]

#: How the constant gap of an interval is chosen; see `encode`.
GapRule = Literal["midrange", "midrange_or_mean"]

#: Sums of gaps stay below this, so that no product in the search leaves int64.
MAX_SUM_NS = 1 << 60

_THREADS = 2
#: From so many rows to search, a second thread pays.
_PARALLEL_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Partition:
    """Where a stream is cut.

    Parameters
    ----------
    boundaries : int64 (intervals + 1,)
        Interval r covers rows ``boundaries[r]:boundaries[r + 1]``.
    exact : bool
        Whether the partition is known to be optimal.
    """

    boundaries: NDArray[np.int64]
    exact: bool

    @property
    def count(self) -> int:
        """Number of intervals."""
        return self.boundaries.size - 1


@dataclass(frozen=True, eq=False)
class Encoding:
    """Encoded intervals. Row k of an interval gets `gap_ns`, its last row `gap_ns + residual_ns`; fields get their middle.

    Parameters
    ----------
    rows : int64 (n,)
        Rows per interval.
    gap_ns, residual_ns, gap_sum_ns : int64 (n,)
        Constant gap, what the last row's gap has on top of it, exact sum of the gaps.
    middles : float64 (F, n)
        Midrange per field; 0 where no row of the interval is valid.
    errors : float64 (F + 2, n)
        Largest absolute error per field, then of the gap, then of the running sum of gaps.
    """

    rows: NDArray[np.int64]
    gap_ns: NDArray[np.int64]
    residual_ns: NDArray[np.int64]
    gap_sum_ns: NDArray[np.int64]
    middles: NDArray[np.float64]
    errors: NDArray[np.float64]

    def cost(self, scales: NDArray[np.float64]) -> float:
        """Return the largest error / scale; an error at scale 0 costs infinitely much."""
        scale = np.asarray(scales, np.float64)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(self.errors == 0.0, 0.0, self.errors / scale).max(initial=0.0))


def _rows(
    gap_ns: NDArray[np.int64],
    fields: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    whole: NDArray[np.bool_] | None,
    scales: NDArray[np.float64] | None,
    gap_rule: GapRule,
    skew: int | None,
) -> Rows:
    from commcanary_lab.canary.interval_rows import Rows

    gap = np.ascontiguousarray(gap_ns)
    table = np.asarray(fields)
    if gap.ndim != 1 or gap.dtype.kind not in "iu" or table.ndim != 2 or table.shape[1] != gap.size or table.dtype.kind not in "iuf":
        raise InputError(
            f"gaps {gap.dtype}{gap.shape} and fields {table.dtype}{table.shape} do not fit: whole ns (m,) and numbers (F, m) are needed"
        )
    count = table.shape[0]
    known = np.ones(table.shape, np.bool_) if valid is None else np.asarray(valid, np.bool_)
    integral = np.full(count, table.dtype.kind in "iu") if whole is None else np.asarray(whole, np.bool_)
    limits = np.ones(count + 2) if scales is None else np.array(scales, np.float64)
    if known.shape != table.shape or integral.shape != (count,) or limits.shape != (count + 2,):
        raise InputError(f"{count} fields need a mask of {table.shape}, as many whole flags, and two more scales (gap, prefix gap)")
    if np.isnan(limits).any() or (limits < 0).any():
        raise BudgetError(f"error budgets must be >= 0: {limits.tolist()}")
    if gap_rule not in ("midrange", "midrange_or_mean"):
        raise UsageError(f"gap rule {gap_rule!r} is unknown; give 'midrange' or 'midrange_or_mean'")
    gap = gap.astype(np.int64, copy=False)
    values = np.ascontiguousarray(table.T, np.float64)
    mask = np.ascontiguousarray(known.T)
    _check_values(gap, values, mask, integral, skew)
    sums = np.zeros(gap.size + 1, np.int64)
    np.cumsum(gap, out=sums[1:])
    low = high = values
    if not mask.all():
        low, high = np.where(mask, values, np.inf), np.where(mask, values, -np.inf)
    return Rows(gap, sums, low, high, integral, limits, gap_rule == "midrange_or_mean", -1 if skew is None else skew)


def _check_values(
    gap: NDArray[np.int64], values: NDArray[np.float64], mask: NDArray[np.bool_], whole: NDArray[np.bool_], skew: int | None
) -> None:
    """Refuse values for which the errors would not be exact. `values` and `mask` are (m, F)."""
    if gap.size and (gap.min() < 0 or float(gap.sum(dtype=np.float64)) > MAX_SUM_NS):
        raise InputError("gaps must be >= 0 and sum to at most 2**60 ns (36 years)", field="gap_ns")
    bad = mask & (~np.isfinite(values) | (whole & (values != np.floor(values))) | (np.abs(values) > 2.0**53))
    if bad.any():
        row, column = (int(x) for x in np.argwhere(bad)[0])
        raise InputError(
            f"field {column} is {values[row, column]}: valid values are finite, within 2**53, and whole where declared so", record=row
        )
    if skew is None:
        return
    if not 0 <= skew < values.shape[1] - 1:
        raise UsageError(f"the skew cannot be field {skew} of {values.shape[1]}: the arrivals come after it")
    arrivals = values[:, skew + 1 :]
    spread = arrivals[:, 0] if arrivals.shape[1] == 1 else arrivals.max(axis=1) - arrivals.min(axis=1)
    wrong = np.flatnonzero((spread != values[:, skew]) | ~mask[:, skew:].all(axis=1))
    if wrong.size:
        raise InputError(
            f"skew {values[wrong[0], skew]} does not follow from its arrivals, or they are not all valid", record=int(wrong[0])
        )


def partition(
    gap_ns: NDArray[np.int64],
    fields: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    scales: NDArray[np.float64],
    max_intervals: int,
    *,
    whole: NDArray[np.bool_] | None = None,
    gap_rule: GapRule = "midrange",
    skew: int | None = None,
) -> Partition:
    """Cut a stream into at most `max_intervals` intervals so that the largest error / scale is smallest.

    Parameters
    ----------
    gap_ns : int64 (m,)
        Gaps, >= 0.
    fields : int64 or float64 (F, m)
        The other fields, one row each.
    valid : bool (F, m), optional
        Where fields are known; other values are ignored. None: everywhere.
    scales : float64 (F + 2,)
        Error that counts as 1, per field, then for gaps, then for running sums of gaps; > 0, infinite to ignore.
    max_intervals : int
        At least 1.
    whole : bool (F,), optional
        Which fields are whole numbers, encoded as such. None: all if `fields` is integer, else none.
    gap_rule : {"midrange", "midrange_or_mean"}
        How the constant gap of an interval is chosen, see `encode`.
    skew : int, optional
        The field that is a skew: it is not encoded itself but follows from the encoded arrivals, which are all fields after it.

    Returns
    -------
    Partition
        Of the best partitions, the one with the fewest intervals; of these, the one with the earliest boundaries.

    Raises
    ------
    InputError, UsageError, BudgetError
        Shapes that do not fit, invalid values, no interval allowed, scales that are not positive.

    Notes
    -----
    A field's error, (max - min) / 2, only grows with its interval, but the errors of gap and prefix gap do not: the constant gap
    moves. Hence a search. It is exact for one or two intervals (any m, near-linear), for up to 512 rows, and for longer streams
    where about 2**17 intervals (or 16 per row) have to be looked at to rule out all that could beat the best partition known; intervals are
    ruled out, with all their extensions, once a field costs too much or no constant gap could suit all their rows. Otherwise
    it is exact over candidate cuts only, 320 to 896 and at least 24 per interval: an even grid, the largest jumps, the even split and
    the cuts of greedy longest intervals; then again with the grid moved and candidates ever closer around the best cuts, down to
    single rows. Measured on streams of 1000 to 2500 rows with up to 32 intervals: 0.2 % above the optimum on average, 8 % at most.
    The result is never worse than the even split. Deterministic.

    Examples
    --------
    >>> gaps = np.array([10, 10, 10, 90, 90, 90])
    >>> skew = np.array([[5, 5, 5, 5, 7, 7]])
    >>> cut = partition(gaps, skew, None, np.array([1000.0, 1000.0, 1000.0]), 2)
    >>> cut.boundaries.tolist(), encode(gaps, skew, None, cut.boundaries).errors.tolist()
    ([0, 3, 6], [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    """
    rows = _rows(gap_ns, fields, valid, whole, scales, gap_rule, skew)
    return _partitions(rows, np.array([0, rows.gap.size]), max_intervals)[0]


def partition_streams(
    gap_ns: NDArray[np.int64],
    fields: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    scales: NDArray[np.float64],
    max_intervals: int,
    row_ptr: NDArray[np.int64],
    *,
    whole: NDArray[np.bool_] | None = None,
    gap_rule: GapRule = "midrange",
    skew: int | None = None,
) -> list[Partition]:
    """Apply `partition` to streams that lie end to end: stream s is rows ``row_ptr[s]:row_ptr[s + 1]``.

    Boundaries count from the start of each stream. Much faster than one call per stream where streams are many and short.

    Examples
    --------
    >>> gaps = np.array([10, 10, 90, 7, 7])
    >>> parts = partition_streams(gaps, np.zeros((0, 5)), None, np.array([1.0, 1.0]), 2, np.array([0, 3, 5]))
    >>> [p.boundaries.tolist() for p in parts]
    [[0, 2, 3], [0, 2]]
    """
    rows = _rows(gap_ns, fields, valid, whole, scales, gap_rule, skew)
    return _partitions(rows, _pointers(row_ptr, rows.gap.size), max_intervals)


def _pointers(row_ptr: NDArray[np.int64], m: int) -> NDArray[np.int64]:
    pointers = np.ascontiguousarray(row_ptr, np.int64)
    if pointers.ndim != 1 or pointers.size < 1 or pointers[0] != 0 or pointers[-1] != m or (np.diff(pointers) < 0).any():
        raise InputError(f"row pointers must rise from 0 to {m}", field="row_ptr")
    return pointers


def _part(rows: Rows, begin: int, end: int) -> Rows:
    return rows._replace(gap=rows.gap[begin:end], sums=rows.sums[begin : end + 1], low=rows.low[begin:end], high=rows.high[begin:end])


def _partitions(rows: Rows, row_ptr: NDArray[np.int64], max_intervals: int) -> list[Partition]:
    from commcanary_lab.canary.interval_cuts import settle
    from commcanary_lab.canary.interval_search import minimise

    if max_intervals < 1:
        raise UsageError(f"{max_intervals} intervals are too few; give at least 1")
    if (rows.scales <= 0).any():
        raise BudgetError(f"scales must be positive: {rows.scales.tolist()}; use partition_by_budget for budgets of 0")
    second = settle(rows, row_ptr, max_intervals)
    ends = row_ptr.tolist()

    def one(begin: int, end: int, cut: int) -> Partition:
        if cut >= 0:
            return Partition(np.unique([0, cut - begin, end - begin]), True)
        found = minimise(_part(rows, begin, end), max_intervals)
        return Partition(found.cuts, found.exact)

    searched = int(np.diff(row_ptr)[second < 0].sum())
    return _mapped(one, searched, ends[:-1], ends[1:], second.tolist())


def _mapped(one: Callable[..., Partition], rows: int, *arguments: Sequence[int]) -> list[Partition]:
    """Apply a search to each stream, on two threads where that pays: the kernels run without the interpreter's lock."""
    if rows < _PARALLEL_ROWS:
        return [one(*a) for a in zip(*arguments, strict=True)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(one, *arguments))


def partition_by_budget(
    gap_ns: NDArray[np.int64],
    fields: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    budgets: NDArray[np.float64],
    *,
    whole: NDArray[np.bool_] | None = None,
    gap_rule: GapRule = "midrange",
    skew: int | None = None,
) -> Partition:
    """Cut a stream into the fewest intervals whose every error is within its budget.

    Intervals of one row have no error, so there always is an answer.

    Parameters
    ----------
    gap_ns, fields, valid, whole, gap_rule, skew
        As for `partition`.
    budgets : float64 (F + 2,)
        Largest error allowed per field, for gaps, and for running sums of gaps; 0 for none, infinite for any.

    Returns
    -------
    Partition
        Of the partitions with the fewest intervals, the one with the earliest boundaries where m <= 512.

    Raises
    ------
    InputError, BudgetError
        As for `partition`; a budget is negative.

    Notes
    -----
    Exact for up to 512 rows, where gaps are unlimited (only monotone errors remain: longest intervals are optimal), and where
    about 2**17 intervals (or 16 per row) have to be looked at. Longer streams get a bounded search: per interval it goes on from
    at most 64 ends (20 for 100k rows), the farthest feasible ones and some at growing distances behind them, so it may use an
    interval too many.

    Examples
    --------
    >>> partition_by_budget(np.array([10, 12, 10, 90]), np.zeros((0, 4)), None, np.array([1.0, np.inf])).boundaries.tolist()
    [0, 3, 4]
    """
    rows = _rows(gap_ns, fields, valid, whole, budgets, gap_rule, skew)
    return _covers(rows, np.array([0, rows.gap.size]))[0]


def partition_streams_by_budget(
    gap_ns: NDArray[np.int64],
    fields: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    budgets: NDArray[np.float64],
    row_ptr: NDArray[np.int64],
    *,
    whole: NDArray[np.bool_] | None = None,
    gap_rule: GapRule = "midrange",
    skew: int | None = None,
) -> list[Partition]:
    """Apply `partition_by_budget` to streams that lie end to end, as `partition_streams` does."""
    rows = _rows(gap_ns, fields, valid, whole, budgets, gap_rule, skew)
    return _covers(rows, _pointers(row_ptr, rows.gap.size))


def _covers(rows: Rows, row_ptr: NDArray[np.int64]) -> list[Partition]:
    from commcanary_lab.canary.interval_cuts import within
    from commcanary_lab.canary.interval_search import cover

    single = within(rows, row_ptr)
    ends = row_ptr.tolist()

    def one(begin: int, end: int, alone: bool) -> Partition:
        if alone:
            return Partition(np.unique([0, end - begin]), True)
        found = cover(_part(rows, begin, end))
        return Partition(found.cuts, found.exact)

    return _mapped(one, int(np.diff(row_ptr)[~single].sum()), ends[:-1], ends[1:], single.tolist())


def encode(
    gap_ns: NDArray[np.int64],
    fields: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    boundaries: NDArray[np.int64],
    scales: NDArray[np.float64] | None = None,
    *,
    whole: NDArray[np.bool_] | None = None,
    gap_rule: GapRule = "midrange",
    skew: int | None = None,
) -> Encoding:
    """Encode the intervals between `boundaries` and state their exact errors.

    A field's middle is (min + max) / 2 of its valid rows, rounded down where the field is whole. The constant gap is that of the gaps,
    or sum // (rows - 1) if that is less (no encoded gap is negative); the last row takes what is left of the exact sum. The gap
    error counts that last row; the prefix error is the largest deviation of the running sum inside the interval.

    Parameters
    ----------
    gap_ns, fields, valid, whole, skew
        As for `partition`; streams may lie end to end.
    boundaries : int64 (n + 1,)
        Strictly rising, from 0 to m.
    scales : float64 (F + 2,), optional
        As for `partition`; only "midrange_or_mean" looks at them. None: all 1.
    gap_rule : {"midrange", "midrange_or_mean"}
        "midrange" as above. "midrange_or_mean": the mean of all gaps but the last (rounded down) instead, where that
        makes the larger of the two gap errors, in units of their scales, smaller. One short gap among equal ones pulls the midrange
        to half their length, and the running sum drifts by as much with every row; their mean hardly moves.

    Returns
    -------
    Encoding

    Raises
    ------
    InputError
        Shapes that do not fit, invalid values, boundaries that do not rise from 0 to m.

    Examples
    --------
    >>> found = encode(np.array([10, 20, 12]), np.array([[1, 4, 2]]), None, np.array([0, 3]))
    >>> found.gap_ns.tolist(), found.residual_ns.tolist(), found.middles.tolist(), found.errors.ravel().tolist()
    ([15], [-3], [[2.0]], [2.0, 5.0, 5.0])
    """
    from commcanary_lab.canary.interval_rows import encode_rows

    rows = _rows(gap_ns, fields, valid, whole, scales, gap_rule, skew)
    cuts = np.ascontiguousarray(boundaries, np.int64)
    if cuts.ndim != 1 or cuts.size < 1 or cuts[0] != 0 or cuts[-1] != rows.gap.size or (np.diff(cuts) <= 0).any():
        raise InputError(f"boundaries must rise strictly from 0 to {rows.gap.size}", field="boundaries")
    constant, residual, middles, errors = encode_rows(rows, cuts)
    return Encoding(np.diff(cuts), constant, residual, rows.sums[cuts[1:]] - rows.sums[cuts[:-1]], middles, errors)
