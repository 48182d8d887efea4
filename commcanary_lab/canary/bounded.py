"""Bounded timing: replace exact step streams by ordered intervals with stated errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.commit import Committer
from commcanary_lab.canary.intervals import Encoding, GapRule, Partition, encode, partition_streams, partition_streams_by_budget
from commcanary_lab.canary.streams import APPROXIMATED, DEFAULT_SCALES, BoundedStream, ExactStream, StepStream, skew_of
from commcanary_lab.errors import BudgetError

__all__ = ["bound_streams", "interval_errors"]

#: The constant gap of an interval is the midrange of its gaps, or their mean where that costs less: a single short gap, such as the
#: leading 0 of a trace, would otherwise make the running sum drift through the whole interval.
_GAP_RULE: GapRule = "midrange_or_mean"
#: Longer streams are not worth encoding exactly just to compare sizes: their intervals are always smaller.
_COMPARE_ROWS = 4096


def bound_streams(
    streams: Sequence[ExactStream], committer: Committer, records: int | None, budgets: Mapping[str, float]
) -> tuple[StepStream, ...]:
    """Replace exact streams by intervals wherever that takes fewer bytes.

    Parameters
    ----------
    streams : sequence of ExactStream
        One per step.
    committer : Committer
        Over the source rows in step order.
    records : int, optional
        At most this many intervals per stream, chosen so that the largest error / scale is smallest; without it, the fewest intervals
        whose errors stay within the scales.
    budgets : mapping of str to float
        Largest error per field of `ERROR_FIELDS`; nanoseconds, pressure in its own unit.

    Raises
    ------
    BudgetError
        If a budget cannot be met with `records` intervals; names field, step and the smallest error found.
    """
    starts = np.concatenate([[0], np.cumsum([s.rows for s in streams])])
    by_shape: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, s in enumerate(streams):
        if s.rows:
            by_shape[(*(n for n in APPROXIMATED if n in s.scalars), s.arrival_ns.shape[1], s.arrival_is_skew)].append(i)
    out: list[StepStream] = list(streams)
    for steps in by_shape.values():
        members = [streams[i] for i in steps]
        table = _Fields(members[0])
        scales = np.array([budgets.get(n, DEFAULT_SCALES[n]) for n in table.kinds])
        for i, bounded in zip(steps, _bound_alike(members, table, scales, records), strict=True):
            if records is not None:
                _check_budgets(i, bounded, budgets)
            if _smaller(bounded, streams[i]):
                out[i] = _committed(bounded, committer, int(starts[i]))
    return tuple(out)


class _Fields:
    """The interval fields of streams of one shape: scalars, then the skew and what it is derived from, then gap and prefix gap."""

    def __init__(self, example: ExactStream) -> None:
        self.scalars = [n for n in APPROXIMATED if n in example.scalars]
        self.width = example.arrival_ns.shape[1]
        has_skew = example.arrival_is_skew or self.width > 1
        self.skew = len(self.scalars) if has_skew else None
        self.first_arrival = len(self.scalars) + has_skew
        self.kinds = [*self.scalars, *(["skew_ns"] if has_skew else []), *["arrival_ns"] * self.width, "gap_ns", "prefix_gap_ns"]
        self.whole = np.array([n != "pressure" for n in self.kinds[:-2]], np.bool_)

    def matrix(self, s: ExactStream) -> npt.NDArray[np.float64]:
        """Values of one stream, shape (F, m)."""
        skew = skew_of(s.arrival_ns, s.arrival_is_skew)
        rows = [*(s.scalars[n] for n in self.scalars), *([] if skew is None else [skew]), *s.arrival_ns.T]
        return np.array(rows, np.float64).reshape(len(rows), s.rows)


def _bound_alike(
    streams: Sequence[ExactStream], table: _Fields, scales: npt.NDArray[np.float64], records: int | None
) -> list[BoundedStream]:
    gap = np.concatenate([s.gap_ns for s in streams])
    fields = np.concatenate([table.matrix(s) for s in streams], axis=1)
    pointers = np.concatenate([[0], np.cumsum([s.rows for s in streams])])
    parts: list[Partition]
    if records is None:
        parts = partition_streams_by_budget(gap, fields, None, scales, pointers, whole=table.whole, skew=table.skew, gap_rule=_GAP_RULE)
    else:
        # a scale of 0 would forbid any error; the smallest step of each unit asks for the same without dividing by it
        positive = np.maximum(scales, np.where(np.array(table.kinds) == "pressure", 1e-12, 1e-6))
        parts = partition_streams(gap, fields, None, positive, records, pointers, whole=table.whole, skew=table.skew, gap_rule=_GAP_RULE)
    cuts = np.unique(np.concatenate([[0], *(p.boundaries + a for p, a in zip(parts, pointers.tolist(), strict=False))]))
    found = encode(gap, fields, None, cuts, scales, whole=table.whole, skew=table.skew, gap_rule=_GAP_RULE)
    ends = np.cumsum([p.count for p in parts])
    return [_stream(s, table, found, int(b - p.count), int(b)) for s, p, b in zip(streams, parts, ends, strict=True)]


def _stream(s: ExactStream, table: _Fields, found: Encoding, a: int, b: int) -> BoundedStream:
    middles, errors = found.middles[:, a:b], found.errors[:, a:b]
    scalars = {n: middles[i] if n == "pressure" else middles[i].astype(np.int64) for i, n in enumerate(table.scalars)}
    arrival = (
        middles[table.first_arrival : table.first_arrival + table.width].T.astype(np.int64)
        if table.width
        else np.zeros((b - a, 0), np.int64)
    )
    stated: dict[str, npt.NDArray[Any]] = {}
    for kind, row in zip(table.kinds, errors, strict=True):
        row = row if kind == "pressure" else row.astype(np.int64)
        stated[kind] = np.maximum(stated[kind], row) if kind in stated else row
    exact = {n: v for n, v in s.scalars.items() if n in ("message_sequence", "split")}
    gap = found.gap_ns[a:b]
    return BoundedStream(
        found.rows[a:b],
        gap,
        gap + found.residual_ns[a:b],
        found.gap_sum_ns[a:b],
        scalars,
        exact,
        np.ascontiguousarray(arrival),
        stated,
        (),
        s.arrival_is_skew,
    )


def _check_budgets(step: int, stream: BoundedStream, budgets: Mapping[str, float]) -> None:
    for name, budget in budgets.items():
        if name in stream.errors and (worst := stream.errors[name].max().item()) > budget:
            unit, scale = ("", 1.0) if name == "pressure" else (" us", 1000.0)
            field = name.removesuffix("_ns")
            raise BudgetError(
                f"the budget of {budget / scale:g}{unit} for {field} cannot be met: step {step} has an error of {worst / scale:g}{unit}",
                remedy="allow more records, or raise the budget",
            )


def _smaller(bounded: BoundedStream, exact: ExactStream) -> bool:
    """Whether the intervals take fewer bytes than the exact columns."""
    return exact.rows > _COMPARE_ROWS or bounded.encoded_bytes < exact.encoded_bytes


def _committed(stream: BoundedStream, committer: Committer, start: int) -> BoundedStream:
    from dataclasses import replace

    ends = start + np.cumsum(stream.lengths)
    digests = tuple(committer.digest(b - n, b) for b, n in zip(ends.tolist(), stream.lengths.tolist(), strict=True))
    return replace(stream, commitments=digests)


def interval_errors(
    stream: BoundedStream, gap_ns: npt.NDArray[np.int64], scalars: Mapping[str, npt.NDArray[Any]], arrival_ns: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """Recompute, independently of how the intervals were found, the gap sums and the errors of each interval.

    Parameters
    ----------
    stream : BoundedStream
        The encoded values.
    gap_ns : ndarray of int64, shape (m,)
        True gaps.
    scalars : mapping of str to ndarray, shape (m,)
        True values of the approximated fields.
    arrival_ns : ndarray of int64, shape (m, w)
        True arrivals.

    Returns
    -------
    sums : ndarray of int64, shape (intervals,)
    errors : dict of str to ndarray, shape (intervals,)
    """
    expanded = stream.expanded()
    firsts = np.cumsum(stream.lengths) - stream.lengths

    def largest(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.maximum.reduceat(np.abs(a - b), firsts)

    errors = {n: largest(expanded.scalars[n], v) for n, v in scalars.items()}
    drift = np.cumsum(expanded.gap_ns - gap_ns)
    before = np.concatenate([[0], drift])[firsts]
    errors["gap_ns"] = largest(expanded.gap_ns, gap_ns)
    errors["prefix_gap_ns"] = np.maximum.reduceat(np.abs(drift - np.repeat(before, stream.lengths)), firsts)
    if arrival_ns.shape[1]:
        errors["arrival_ns"] = np.maximum.reduceat(np.abs(expanded.arrival_ns - arrival_ns).max(axis=1), firsts)
    encoded_skew, true_skew = skew_of(expanded.arrival_ns, stream.arrival_is_skew), skew_of(arrival_ns, stream.arrival_is_skew)
    if encoded_skew is not None and true_skew is not None:
        errors["skew_ns"] = largest(encoded_skew, true_skew)
    return np.add.reduceat(gap_ns, firsts), errors
