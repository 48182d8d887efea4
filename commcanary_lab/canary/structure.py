"""The structure of a trace as a canary keeps it: a program over steps, and the exact timing of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.commit import commitment, locator
from commcanary_lab.canary.fields import EventFields
from commcanary_lab.canary.grammar import Grammar, leaf_occurrences
from commcanary_lab.canary.model import Canary, SourceStatement, largest_errors
from commcanary_lab.canary.streams import APPROXIMATED, DEFAULT_SCALES, ExactStream, StepStream
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import stable_order
from commcanary_lab.trace.signatures import factorize
from commcanary_lab.trace.timing import gaps_ns

__all__ = ["Structure", "assembled", "clock_error_ns", "flat_structure", "nested_structure", "state_source"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Structure:
    """Steps of a trace: which event runs which step, in which program, with which timing.

    Attributes
    ----------
    program : Grammar
        Rule 0 is the program; terminals are step numbers.
    signature, pattern : ndarray of int64, shape (steps,)
        Signature and presence pattern of each step.
    order : ndarray of intp, shape (events,)
        Events sorted by step; events of one step stay in time order.
    streams : tuple of ExactStream
        Exact timing of each step.
    """

    program: Grammar
    signature: IntArray
    pattern: IntArray
    order: npt.NDArray[np.intp]
    streams: tuple[ExactStream, ...]

    @classmethod
    def of(cls, fields: EventFields, program: Grammar, step_of_event: IntArray, symbols: IntArray) -> Structure:
        """Cut the fields of a trace into streams.

        Parameters
        ----------
        fields : EventFields
            The trace, split.
        program : Grammar
            Over the steps.
        step_of_event : ndarray of int64, shape (events,)
            Step that each event executes.
        symbols : ndarray of int64, shape (steps, 2)
            Signature and pattern of each step.
        """
        order = stable_order(step_of_event, len(symbols))
        bounds = np.concatenate([[0], np.cumsum(np.bincount(step_of_event, minlength=len(symbols)))])
        signature, pattern = symbols.T
        return cls(program, signature, pattern, order, _streams(fields, order, bounds, pattern))


def nested_structure(fields: EventFields, *, by_timing: bool) -> Structure:
    """Find the loop nests of a trace; each position in a loop body is a step.

    Parameters
    ----------
    fields : EventFields
        The trace, split.
    by_timing : bool
        Whether runs of equal operations whose timing alternates get one step per phase of the timing, as bounded canaries want it.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.canary.fields import split_trace
    >>> fields = split_trace(lab.samples.tp8_decode())
    >>> len(nested_structure(fields, by_timing=False).streams), len(flat_structure(fields).streams)
    (4, 4)
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
    program = Grammar(values.astype(np.int32), grammar.counts, grammar.row_ptr)
    return Structure.of(fields, program, leaves.event_leaf.astype(np.int64), _symbols(fields, first[leaves.symbol]))


def flat_structure(fields: EventFields) -> Structure:
    """Make the program without loops: runs of equal operations, one step per distinct operation.

    Parameters
    ----------
    fields : EventFields
        The trace, split.
    """
    codes, first = factorize([fields.signature, fields.pattern])
    cuts = np.flatnonzero(np.diff(codes)) + 1
    starts = np.concatenate([[0], cuts]) if len(codes) else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, len(codes)))
    program = Grammar(codes[starts].astype(np.int32), counts.astype(np.int64), np.array([0, len(starts)], np.int64))
    return Structure.of(fields, program, codes, _symbols(fields, first))


def _symbols(fields: EventFields, rows: npt.NDArray[Any]) -> IntArray:
    return np.stack([fields.signature[rows], fields.pattern[rows]], axis=1).reshape(-1, 2)


def _streams(fields: EventFields, order: npt.NDArray[np.intp], bounds: IntArray, patterns: IntArray) -> tuple[ExactStream, ...]:
    gap = fields.gap_ns[order]
    scalars = {name: values[order] for name, values in fields.scalars.items()}
    arrival = fields.arrival.take(order)
    out = []
    for step, pattern in enumerate(patterns.tolist()):
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
    return tuple(out)


def _features(fields: EventFields) -> npt.NDArray[np.float64]:
    """Timing of each event in units of the default scales: gap, skew and the approximated fields."""
    rows = [fields.gap_ns / DEFAULT_SCALES["gap_ns"]]
    lengths = fields.arrival.lengths
    low = np.where(lengths > 1, fields.arrival.reduce(np.minimum), 0)
    rows.append((fields.arrival.reduce(np.maximum) - low) / DEFAULT_SCALES["skew_ns"])
    rows += [fields.scalars[n] / DEFAULT_SCALES[n] for n in APPROXIMATED if n in fields.scalars]
    return np.stack(rows)


def state_source(
    trace: Trace, part: Trace, start: int, salt: bytes = b"", derived_from: Mapping[str, Any] | None = None
) -> SourceStatement:
    """Write down what a canary states about its source.

    Parameters
    ----------
    trace, part : Trace
        The source, and the range of it that the canary stands for.
    start : int
        First event of the range.
    salt : bytes
        Mixed into the commitments.
    derived_from : mapping, optional
        What the source was derived from.
    """
    return SourceStatement(
        events=len(trace),
        start=start,
        stop=start + len(part),
        size_bytes=canonical_size(part),
        root=commitment(part, salt),
        locator=locator(part, salt),
        salted=bool(salt),
        format=trace.source_format,
        records_read=trace.coverage.read,
        records_used=trace.coverage.used,
        derived_from=derived_from,
    )


def assembled(part: Trace, fields: EventFields, source: SourceStatement, structure: Structure, streams: tuple[StepStream, ...]) -> Canary:
    """Put a canary together, and state its largest errors.

    Parameters
    ----------
    part : Trace
        The range of the source that the canary stands for.
    fields : EventFields
        That range, split.
    source : SourceStatement
        Goes into the canary.
    structure : Structure
        Program and steps.
    streams : tuple of ExactStream or BoundedStream
        Timing of each step, as it is kept.
    """
    errors = largest_errors(streams)
    canary = Canary(
        fields.signatures,
        fields.patterns,
        structure.program,
        structure.signature,
        structure.pattern,
        streams,
        fields.splits,
        fields.clock,
        source,
        errors,
        part.notes,
    )
    errors["clock_ns"] = clock_error_ns(part, canary)
    return canary


def clock_error_ns(part: Trace, canary: Canary) -> int:
    """Return the largest error of an event's time, nanoseconds.

    Parameters
    ----------
    part : Trace
        The range of the source that the canary stands for.
    canary : Canary
        As many events.
    """
    if canary.timing == "lossless":
        return 0
    return int(np.abs(np.cumsum(gaps_ns(canary.trace) - gaps_ns(part))).max(initial=0))
