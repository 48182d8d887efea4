"""What would help: fewer bytes, fewer (fused) calls, or no call at all. An upper bound from a fit, not a prediction."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.inspect.grouping import Grouping, dense_codes, group_by, group_codes, text_codes
from commcanary_lab.replay.calibration.costs import OPS, Cost, cost_of
from commcanary_lab.replay.calibration.fit import Fit
from commcanary_lab.replay.calibration.resample import Interval
from commcanary_lab.replay.calibration.terms import Terms
from commcanary_lab.trace.model import ImportCoverage, Trace

__all__ = ["LIMITS", "LeverRow", "Levers", "levers"]

IntArray = npt.NDArray[np.int64]

#: What the figures do not say; printed beside them.
LIMITS = (
    "Savings are communication time at most: what is hidden under compute saves nothing, and the work that a change adds is not counted.",
    "The terms come from calls one at a time; calls that share links with others, or wait for a late rank, take longer.",
    "Calls next to each other may depend on each other: whether they can be fused, the trace does not say.",
    "One A/B cannot tell which lever worked: it measures the change as a whole. Factor the rate, and change one thing at a time.",
)


@dataclass(frozen=True)
class LeverRow:
    """All calls of one operation, size, and number of ranks; every time is the sum over these calls, microseconds.

    Parameters
    ----------
    op : str
        Operation.
    size_bytes : int
        B.
    ranks : int
        k.
    count : int
        Calls.
    bound : str
        ``latency`` or ``bandwidth``: the larger term; ``undecided`` where the fit's uncertainty leaves both possible.
    latency_share : float
        Latency over the time of a call.
    call_us : float
        Time of one call by the fit.
    save_bytes_us, fuse_us, remove_us : float
        What fewer bytes, fewer calls, and no calls would save.
    save_bytes_interval_us, fuse_interval_us, remove_interval_us : Interval or None
        Of these; None where the uncertainty of the terms is unknown.
    fused_calls : int
        Calls that fusing would leave.
    """

    op: str
    size_bytes: int
    ranks: int
    count: int
    bound: str
    latency_share: float
    call_us: float
    save_bytes_us: float
    fuse_us: float
    remove_us: float
    save_bytes_interval_us: Interval | None
    fuse_interval_us: Interval | None
    remove_interval_us: Interval | None
    fused_calls: int


@dataclass(frozen=True)
class Levers:
    """The levers of a trace, the most time first.

    Parameters
    ----------
    rows : tuple of LeverRow
    terms : Terms
        Latency and bandwidth that were used.
    keep_share : float
        Bytes that are left, as a share.
    fuse : int
        How many calls become one.
    unpriced : mapping of str to int
        Events without a cost here, by reason.
    coverage : ImportCoverage
        Of the trace.
    notes : tuple of str
        What was assumed, and the notes of the trace.
    """

    rows: tuple[LeverRow, ...]
    terms: Terms
    keep_share: float
    fuse: int
    unpriced: dict[str, int]
    coverage: ImportCoverage
    notes: tuple[str, ...]

    @property
    def total_us(self) -> float:
        """Time of all calls by the fit."""
        return sum(r.remove_us for r in self.rows)

    @property
    def latency_bound_us(self) -> float:
        """Time of the calls whose latency is the larger term."""
        return sum(r.remove_us for r in self.rows if r.bound == "latency")


def levers(source: Trace | Canary, calibration: Fit | Terms, *, keep_share: float = 0.5, fuse: int = 2,
           algorithm: str | None = None) -> Levers:  # fmt: skip
    """Return what three changes would save per operation and size.

    - *Fewer bytes*: each call moves `keep_share` of its bytes. It saves bandwidth time only.
    - *Fewer calls*: up to `fuse` calls become one with all their bytes, where they follow each other in the same group, with the same
      operation, size, type, reduction, root, peers and phase. It saves latency only.
    - *No calls*: both terms.

    Parameters
    ----------
    source : Trace or Canary
        The job.
    calibration : Fit or Terms
        Latency and bandwidth; of one step and one link, so that they are used for other operations and group sizes, too.
    keep_share : float
        In [0, 1).
    fuse : int
        At least 2.
    algorithm : str, optional
        ring or tree, for operations that come as both; the fit's for its operation by default.

    Returns
    -------
    Levers

    Raises
    ------
    UsageError
        If an option is out of range.
    RefusedError
        If no event has a cost here.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> found = levers(lab.samples.tp8_decode(), Terms.assumed(5.0, 50.0))
    >>> row = found.rows[0]
    >>> row.op, row.size_bytes, row.bound, row.count > row.fused_calls
    ('all_reduce', 32768, 'latency', True)
    """
    if not 0 <= keep_share < 1:
        raise UsageError(f"{keep_share} of the bytes would be left", remedy="give a share from 0 to less than 1")
    if fuse < 2:
        raise UsageError(f"{fuse} calls cannot become one", remedy="give 2 or more")
    trace = source.trace if isinstance(source, Canary) else source
    terms = calibration.terms if isinstance(calibration, Fit) else calibration
    if not len(trace):
        raise RefusedError("the trace has no event", remedy="open one that has")
    op_code, names = text_codes(trace.op)
    size_code, _ = dense_codes(trace.size_bytes)
    groups = group_by(op_code, trace.group_sizes.astype(np.int64), size_code)
    fused = _calls_after(trace, groups, op_code, size_code, fuse)
    rows, unpriced, others = [], Counter[str](), set()
    for g in range(groups.count):
        at = int(groups.first[g])
        op, k, count = (names[op_code[at]] or "").strip().lower(), int(trace.group_sizes[at]), int(groups.sizes[g])
        if k < 2:
            unpriced["groups of one rank"] += count
        elif op not in OPS:
            unpriced[f"{op or 'unnamed operation'} has no cost"] += count
        else:
            cost = cost_of(op, k, _algorithm(op, algorithm, calibration))
            rows.append(_row(cost, int(trace.size_bytes[at]), count, int(fused[g]), terms, keep_share))
            others.add((op, k))
    if not rows:
        raise RefusedError("no event has a latency-bandwidth cost", remedy=f"known: {', '.join(OPS)}, in groups of two or more")
    rows.sort(key=lambda r: (-r.remove_us, r.op, r.size_bytes, r.ranks))
    return Levers(tuple(rows), terms, keep_share, fuse, dict(sorted(unpriced.items())), trace.coverage,
                  (*_said(calibration, others), *trace.notes))  # fmt: skip


def _algorithm(op: str, asked: str | None, calibration: Fit | Terms) -> str | None:
    two = op in ("all_reduce", "broadcast", "reduce")
    if asked is not None:
        return asked if two else None
    return calibration.cost.algorithm if two and isinstance(calibration, Fit) and op == calibration.cost.op else None


def _said(calibration: Fit | Terms, used: set[tuple[str, int]]) -> list[str]:
    terms = calibration.terms if isinstance(calibration, Fit) else calibration
    out = [f"latency and bandwidth {terms.origin}: {terms.source}"]
    if isinstance(calibration, Fit):
        own = (calibration.cost.op, calibration.cost.ranks)
        if used != {own}:
            out.append(f"assumed: a step and a link cost the same in other operations and groups as in {own[0]} on {own[1]} ranks")
        if calibration.verdict != "fits":
            out.append(f"the fit is {calibration.verdict}: {'; '.join(calibration.reasons)}")
    return out


def _row(cost: Cost, size_bytes: int, count: int, fused: int, terms: Terms, keep_share: float) -> LeverRow:
    wire = cost.wire_bytes(size_bytes)
    latency_us, bytes_us = terms.time_us(cost.steps, 0), terms.time_us(0, wire)
    saved = (0.0, count * (1 - keep_share) * wire), ((count - fused) * cost.steps, 0.0), (count * cost.steps, count * wire)
    fewer, fuse_, remove = (terms.time_us(*s) for s in saved)
    intervals = [terms.interval_us(*s) for s in saved]
    total = latency_us + bytes_us
    return LeverRow(
        cost.op, size_bytes, cost.ranks, count, _bound(cost, wire, terms), latency_us / total if total else math.nan, total,
        fewer, fuse_, remove, intervals[0], intervals[1], intervals[2], fused,
    )  # fmt: skip


def _bound(cost: Cost, wire: float, terms: Terms) -> str:
    if not len(terms.draws):
        return "latency" if terms.time_us(cost.steps, 0) > terms.time_us(0, wire) else "bandwidth"
    share = float(np.mean(terms.draws_us(cost.steps, 0) > terms.draws_us(0, wire)))
    tail = (1 - terms.confidence) / 2
    return "latency" if share >= 1 - tail else "bandwidth" if share <= tail else "undecided"


def _calls_after(trace: Trace, groups: Grouping, op_code: IntArray, size_code: IntArray, fuse: int) -> IntArray:
    """Calls that are left in each group of rows when runs of equal calls are fused; shape (groups.count,)."""
    comm, _ = group_codes(trace)
    order = np.argsort(comm, kind="stable")  # the calls of one communicator behind each other, in order
    keys = [comm, op_code, size_code]
    keys += [text_codes(c)[0] for c in (trace.dtype, trace.reduction, trace.phase, trace.tag)]
    for column in (trace.root, trace.sender, trace.receiver):
        keys.append(np.where(column.mask, column.values, -1))
    new = np.ones(len(trace), np.bool_)
    new[1:] = np.any([k[order][1:] != k[order][:-1] for k in keys], axis=0)
    # an uneven all-to-all is never the same call twice
    uneven = np.array([(n or "").strip().lower() == "all_to_all_v" for n in text_codes(trace.op)[1]], np.bool_)[op_code][order]
    new |= uneven
    starts = np.flatnonzero(new)
    lengths = np.diff(np.append(starts, len(trace)))
    left = -(-lengths // fuse)
    out = np.zeros(groups.count, np.int64)
    np.add.at(out, groups.codes[order][starts], left)
    return out
