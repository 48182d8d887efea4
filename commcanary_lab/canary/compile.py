"""Compile a trace into a canary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.commit import Committer, locator
from commcanary_lab.canary.fields import EventFields, split_trace
from commcanary_lab.canary.grammar import Grammar, leaf_occurrences
from commcanary_lab.canary.model import Canary, SourceStatement, largest_errors
from commcanary_lab.canary.streams import APPROXIMATED, DEFAULT_SCALES, ExactStream, StepStream
from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.signatures import factorize
from commcanary_lab.trace.timing import gaps_ns

__all__ = ["BUDGET_FIELDS", "compile_trace"]

#: Up to this many events a bounded canary is compared with the lossless one, which is returned when it is no larger.
_COMPARE_EVENTS = 20_000

#: Fields for which an error budget may be given, in microseconds (pressure: its own unit), and the column each bounds.
BUDGET_FIELDS = {
    "gap": "gap_ns",
    "prefix_gap": "prefix_gap_ns",
    "skew": "skew_ns",
    "arrival": "arrival_ns",
    "compute_before": "compute_before_ns",
    "overlap": "overlap_ns",
    "observed_exposed": "observed_exposed_ns",
    "pressure": "pressure",
}


def compile_trace(
    trace: Trace,
    *,
    records: int | None = None,
    budgets: Mapping[str, float] | None = None,
    events: tuple[int, int] | None = None,
    salt: bytes = b"",
    strict: bool = False,
    derived_from: Mapping[str, Any] | None = None,
) -> Canary:
    """Compile a trace into a canary: loop nests of steps, timed exactly or within stated bounds.

    Parameters
    ----------
    trace : Trace
        The source.
    records : int, optional
        At most this many intervals per step stream; without it and without budgets the canary is lossless. A step whose exact
        timing takes fewer bytes than its intervals stays exact.
    budgets : mapping of str to float, optional
        Largest error per field of `BUDGET_FIELDS`, microseconds (``pressure`` in its own unit). Fields without a budget are held to
        1 us (pressure 0.01) when no `records` limit is given.
    events : (int, int), optional
        Half-open range of source events to compile; the canary is then partial.
    salt : bytes
        Mixed into the commitments; needed again to verify.
    strict : bool
        Refuse unknown fields.
    derived_from : mapping, optional
        What the events were derived from, where a reducer kept a part of a source.

    Returns
    -------
    Canary

    Raises
    ------
    UsageError
        If the range or a budget makes no sense.
    BudgetError
        If a budget cannot be met with `records` intervals.
    UnknownValueError
        If `strict` and a field that the simulator needs is unknown.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> compile_trace(lab.samples.adversarial(), events=(0, 50)).source.is_whole
    False
    """
    if derived_from is None:
        derived_from = trace.extra.get("derived_from")  # a reduced trace says what it was reduced from
    start, stop = _range(events, len(trace))
    part = trace if (start, stop) == (0, len(trace)) else trace.take(slice(start, stop))
    if strict and part.unknown_fields:
        listed = ", ".join(f"{name} on {n} events" for name, n in part.unknown_fields.items())
        raise UnknownValueError(f"strict compile refuses unknown {listed}", remedy="record these fields, or compile without strict")
    limits_ns = _budgets(budgets, records)
    fields = split_trace(part)
    source = SourceStatement(
        events=len(trace),
        start=start,
        stop=stop,
        size_bytes=canonical_size(part),
        root=Committer(part, salt).digest(0, len(part)),
        locator=locator(part, salt),
        salted=bool(salt),
        format=trace.source_format,
        records_read=trace.coverage.read,
        records_used=trace.coverage.used,
        derived_from=derived_from,
    )
    if records is None and not budgets:
        return _compiled(part, fields, source)

    def bound(streams: Sequence[ExactStream], order: npt.NDArray[np.intp]) -> tuple[StepStream, ...]:
        from commcanary_lab.canary.bounded import bound_streams

        # more intervals than events change nothing, and might not fit the compiled search
        most = None if records is None else min(records, max(1, len(part)))
        return bound_streams(streams, Committer(part.rows(order), salt), most, limits_ns)

    canary = _compiled(part, fields, source, bound)
    if len(part) > _COMPARE_EVENTS:
        return canary
    lossless = _compiled(part, fields, source)
    return lossless if lossless.size_bytes <= canary.size_bytes else canary


def _compiled(
    part: Trace,
    fields: EventFields,
    source: SourceStatement,
    bound: Callable[[Sequence[ExactStream], npt.NDArray[np.intp]], tuple[StepStream, ...]] | None = None,
) -> Canary:
    """Return the exact canary, or the one whose streams `bound` makes of the exact ones and the event of each of their rows."""
    program, step_of_event, symbols = _structure(fields, by_timing=bound is not None)
    order = np.argsort(step_of_event, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(step_of_event, minlength=len(symbols)))])
    exact = _exact_streams(fields, order, bounds, symbols)
    streams = tuple(exact) if bound is None else bound(exact, order)
    signature, pattern = symbols.T
    errors = largest_errors(streams)
    canary = Canary(
        fields.signatures, fields.patterns, program, signature, pattern, streams, fields.splits, fields.clock, source, errors, part.notes
    )
    errors["clock_ns"] = _clock_error(part, canary)
    return canary


def _clock_error(part: Trace, canary: Canary) -> int:
    """Largest error of an event's time, nanoseconds."""
    if canary.timing == "lossless":
        return 0
    return int(np.abs(np.cumsum(gaps_ns(canary.trace) - gaps_ns(part))).max(initial=0))


def _range(events: tuple[int, int] | None, n: int) -> tuple[int, int]:
    if events is None:
        return 0, n
    start, stop = events
    if not 0 <= start < stop <= n:
        raise UsageError(
            f"the event range {start}:{stop} does not fit a trace of {n} events", remedy=f"give LO:HI with 0 <= LO < HI <= {n}"
        )
    return start, stop


def _budgets(budgets: Mapping[str, float] | None, records: int | None) -> dict[str, float]:
    if records is not None and records < 1:
        raise UsageError(f"records is {records}", remedy="give a whole number >= 1")
    out = {}
    for name, value in (budgets or {}).items():
        if name not in BUDGET_FIELDS:
            raise UsageError(f"no error budget {name!r}", remedy=f"known: {', '.join(BUDGET_FIELDS)}")
        if not value >= 0:
            raise UsageError(f"the error budget {name} is {value}", remedy="give a number >= 0")
        out[BUDGET_FIELDS[name]] = value if name == "pressure" else value * 1000
    return out


def _structure(fields: EventFields, *, by_timing: bool) -> tuple[Grammar, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the program over steps, the step of each event, and (signature, pattern) of each step.

    With `by_timing`, runs of equal operations whose timing alternates get one step per phase of the timing.
    """
    from commcanary_lab.canary.loops import find_loops

    codes, first = factorize([fields.signature, fields.pattern])
    grammar = find_loops(codes)
    leaves = leaf_occurrences(grammar, max_events=len(codes))
    if by_timing:
        from commcanary_lab.canary.phases import split_runs

        split = split_runs(grammar, leaves, _features(fields))
        if split is not grammar:
            grammar, leaves = split, leaf_occurrences(split, max_events=len(codes))
    values = np.where(grammar.values < 0, grammar.values, leaves.item_leaf)
    rows = first[leaves.symbol]
    return (
        Grammar(values.astype(np.int32), grammar.counts, grammar.row_ptr),
        leaves.event_leaf.astype(np.int64),
        np.stack([fields.signature[rows], fields.pattern[rows]], axis=1).reshape(-1, 2),
    )


def _exact_streams(
    fields: EventFields, order: npt.NDArray[np.intp], bounds: npt.NDArray[np.int64], symbols: npt.NDArray[np.int64]
) -> list[ExactStream]:
    gap = fields.gap_ns[order]
    scalars = {name: values[order] for name, values in fields.scalars.items()}
    arrival = fields.arrival.take(order)
    out = []
    for step, (_, pattern) in enumerate(symbols.tolist()):
        a, b = int(bounds[step]), int(bounds[step + 1])
        has = fields.patterns[pattern]
        p, q = int(arrival.pointers[a]), int(arrival.pointers[b])
        width = (q - p) // (b - a) if b > a else 0
        out.append(
            ExactStream(
                gap[a:b],
                {n: v[a:b] for n, v in scalars.items() if n in has},
                arrival.values[p:q].reshape(b - a, width),
                "arrival_skew" in has,
            )
        )
    return out


def _features(fields: EventFields) -> npt.NDArray[np.float64]:
    """Timing of each event in units of the default scales: gap, skew and the approximated fields."""
    rows = [fields.gap_ns / DEFAULT_SCALES["gap_ns"]]
    lengths = fields.arrival.lengths
    low = np.where(lengths > 1, fields.arrival.reduce(np.minimum), 0)
    rows.append((fields.arrival.reduce(np.maximum) - low) / DEFAULT_SCALES["skew_ns"])
    rows += [fields.scalars[n] / DEFAULT_SCALES[n] for n in APPROXIMATED if n in fields.scalars]
    return np.stack(rows)
