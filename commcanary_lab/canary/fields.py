"""Between a trace and the streams of a canary: signatures, presence patterns and timing fields.

Every event of a trace is a *signature* (what repeats), a *pattern* (which timing fields it has) and the values of those fields. The
functions here split a trace into these three and put them together again, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.columns import Column, Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.signatures import factorize, signature_codes
from commcanary_lab.trace.timing import gaps_ns, timing_mode

__all__ = ["SCALAR_FIELDS", "Clock", "EventFields", "assemble", "split_trace"]

IntArray = npt.NDArray[np.int64]

#: Fields with one value per event, besides the gap; each is in a pattern when the event has it.
SCALAR_FIELDS = (
    "compute_before_ns",
    "overlap_ns",
    "observed_exposed_ns",
    "pressure",
    "message_sequence",
    "split",
    "start_ns",
    "gap_delta_ns",
)

_SIGNATURE_COLUMNS = (
    "op",
    "phase",
    "dtype",
    "reduction",
    "tag",
    "channel",
    "group",
    "groups",
    "size_bytes",
    "custom_op",
    "root",
    "sender",
    "receiver",
    "concurrent_groups",
    "observers",
    "rank_sets",
)


@dataclass(frozen=True)
class Clock:
    """Which field governs time in the source, and where it starts.

    Parameters
    ----------
    governs : str
        ``start``, ``gap``, ``compute_before`` or ``none`` (`timing.timing_mode`).
    first_start_ns : int
        Start of the first event, where starts govern.
    """

    governs: str
    first_start_ns: int = 0


@dataclass(frozen=True, eq=False)
class EventFields:
    """A trace, split.

    Attributes
    ----------
    signatures : Trace
        One row per distinct signature, without timing.
    signature, pattern : ndarray of int64, shape (n,)
        Code of each event.
    patterns : tuple of frozenset of str
        The fields that the events of a pattern have; ``arrival_each`` or ``arrival_skew`` for the form of the arrivals,
        ``arrival_unknown`` for unknown ones, ``gap`` for an own gap.
    gap_ns : ndarray of int64, shape (n,)
        Effective gaps.
    scalars : mapping of str to ndarray, shape (n,)
        Values of the `SCALAR_FIELDS` that occur; 0 where a pattern lacks the field.
    arrival : Ragged
        Arrivals as the source gives them.
    splits : Ragged
        Distinct split lists.
    clock : Clock
        What governs time.
    """

    signatures: Trace
    signature: IntArray
    patterns: tuple[frozenset[str], ...]
    pattern: IntArray
    gap_ns: IntArray
    scalars: Mapping[str, npt.NDArray[Any]]
    arrival: Ragged
    splits: Ragged
    clock: Clock


def split_trace(trace: Trace) -> EventFields:
    """Split a trace into signatures, patterns and fields; `assemble` is the inverse."""
    n = len(trace)
    codes, first = signature_codes(trace)
    table = trace.rows(first)
    signatures = _without_unused(Trace.build(len(first), **{name: getattr(table, name) for name in _SIGNATURE_COLUMNS}))
    mode = timing_mode(trace)
    gaps = gaps_ns(trace)
    clock = Clock(mode, int(trace.start_ns.values[0]) if mode == "start" else 0)
    scalars: dict[str, npt.NDArray[Any]] = {}
    masks: dict[str, npt.NDArray[np.bool_]] = {}

    def add(name: str, column: Column) -> None:
        if column.known_count:
            scalars[name], masks[name] = column.filled(0), column.mask

    add("compute_before_ns", trace.compute_before_ns)
    add("overlap_ns", trace.overlap_ns)
    add("observed_exposed_ns", trace.observed_exposed_ns)
    add("pressure", trace.pressure)
    add("message_sequence", trace.message_sequence)
    splits, split_codes = _distinct_rows(trace.splits)
    if len(splits):
        add("split", Column(np.maximum(split_codes, 0), split_codes >= 0))
    if mode == "start":
        delta = np.where(trace.gap_ns.mask, trace.gap_ns.values - gaps, 0)
        if delta.any():
            add("gap_delta_ns", Column(delta, trace.gap_ns.mask))
    else:
        add("start_ns", trace.start_ns)
    masks["gap"] = trace.gap_ns.mask
    lengths, known = trace.arrival_ns.lengths, np.asarray(trace.arrival_known)
    masks["arrival_each"] = (lengths == trace.group_sizes) & (lengths > 0)
    masks["arrival_skew"] = (lengths == 1) & ~masks["arrival_each"]
    masks["arrival_unknown"] = ~known
    names = [name for name, mask in masks.items() if mask.any()]
    pattern, pattern_first = factorize([masks[name].astype(np.int8) for name in names] or [np.zeros(n, np.int8)])
    patterns = tuple(frozenset(name for name in names if masks[name][i]) for i in pattern_first.tolist())
    return EventFields(signatures, codes, patterns, pattern, gaps, scalars, trace.arrival_ns, splits, clock)


def _without_unused(table: Trace) -> Trace:
    """Drop groups and rank sets that no row refers to: a canary of a range must not reveal the groups of the rest."""
    groups, group = np.unique(table.group, return_inverse=True)
    sets, observers = np.unique(table.observers, return_inverse=True)
    if len(groups) == len(table.groups) and np.count_nonzero(sets >= 0) == len(table.rank_sets):
        return table
    return replace(
        table,
        group=group.reshape(-1).astype(np.int32),
        groups=tuple(table.groups[g] for g in groups.tolist()),
        observers=(observers.reshape(-1) - np.count_nonzero(sets < 0)).astype(np.int32),
        rank_sets=tuple(table.rank_sets[s] for s in sets.tolist() if s >= 0),
    )


def _distinct_rows(rows: Ragged) -> tuple[Ragged, IntArray]:
    """Distinct non-empty rows, and each row's code (-1 for empty)."""
    codes = np.full(len(rows), -1, np.int64)
    if rows.is_empty:
        return Ragged.empty(0), codes
    table: dict[bytes, int] = {}
    firsts = []
    for i in np.flatnonzero(rows.lengths).tolist():
        key = rows.row(i).tobytes()
        if key not in table:
            table[key] = len(table)
            firsts.append(i)
        codes[i] = table[key]
    return rows.take(np.array(firsts, np.intp)), codes


def assemble(fields: EventFields, *, exact: bool = True, notes: tuple[str, ...] = ()) -> Trace:
    """Put a trace together from its parts.

    Parameters
    ----------
    fields : EventFields
        The parts.
    exact : bool
        False when gaps were approximated: then every event gets its own gap, so that no other field governs.
    notes : tuple of str
        Notes of the trace.

    Returns
    -------
    Trace
        Without ids.
    """
    n = len(fields.signature)
    trace = fields.signatures.rows(fields.signature.astype(np.intp))

    def has(name: str) -> npt.NDArray[np.bool_]:
        table = np.array([name in p for p in fields.patterns] or [False], np.bool_)
        return table[fields.pattern]

    def column(name: str) -> Column:
        if name not in fields.scalars:
            return Column.absent(n, np.float64 if name == "pressure" else np.int64)
        mask = has(name)
        return Column(np.where(mask, fields.scalars[name], 0), mask)

    starts = fields.clock.governs == "start"
    if starts:
        elapsed = np.cumsum(fields.gap_ns)
        start = Column(fields.clock.first_start_ns + elapsed - (elapsed[0] if n else 0))
        delta = fields.scalars.get("gap_delta_ns", np.zeros(n, np.int64)) if exact else np.zeros(n, np.int64)
        gap = Column(fields.gap_ns + delta, has("gap")) if exact or has("gap").any() else Column.absent(n)
    else:
        start = column("start_ns") if exact else Column.absent(n)
        gap = Column(np.where(has("gap"), fields.gap_ns, 0), has("gap")) if exact else Column(fields.gap_ns)
    split = fields.scalars.get("split")
    splits = Ragged.empty(n) if split is None else _split_rows(fields.splits, np.where(has("split"), split, -1))
    return replace(
        trace,
        start_ns=start,
        gap_ns=_absent_if_none(gap),
        compute_before_ns=column("compute_before_ns"),
        overlap_ns=column("overlap_ns"),
        observed_exposed_ns=column("observed_exposed_ns"),
        pressure=column("pressure"),
        message_sequence=column("message_sequence"),
        arrival_ns=fields.arrival,
        arrival_known=~has("arrival_unknown"),
        splits=splits,
        notes=notes,
    )


def _absent_if_none(column: Column) -> Column:
    return Column.absent(len(column)) if column.none_known else column


def _split_rows(table: Ragged, codes: IntArray) -> Ragged:
    padded = Ragged.from_lengths(table.values, np.append(table.lengths, 0))
    return padded.take(np.where(codes < 0, len(table), codes).astype(np.intp))
