"""Compile a trace into a canary."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from commcanary_lab.canary.commit import Committer
from commcanary_lab.canary.fields import split_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import StepStream
from commcanary_lab.canary.structure import Structure, assembled, nested_structure, state_source
from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.trace.model import Trace

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
    # Hashing the source and finding its structure share nothing, and neither holds the interpreter for long.
    with ThreadPoolExecutor(1) as other:
        statement = other.submit(state_source, trace, part, start, salt, derived_from)
        fields = split_trace(part)
        bounded = records is not None or bool(budgets)
        if bounded:
            structure = nested_structure(fields, by_timing=True)
            # more intervals than events change nothing, and might not fit the compiled search
            most = None if records is None else min(records, max(1, len(part)))
            intervals = _intervals(part, structure, salt, most, limits_ns)
        if not bounded or len(part) <= _COMPARE_EVENTS:
            exact = nested_structure(fields, by_timing=False)
        source = statement.result()
    if bounded:
        canary = assembled(part, fields, source, structure, intervals)
        if len(part) > _COMPARE_EVENTS:
            return canary
    lossless = assembled(part, fields, source, exact, exact.streams)
    return canary if bounded and canary.size_bytes < lossless.size_bytes else lossless


def _intervals(
    part: Trace, structure: Structure, salt: bytes, records: int | None, limits_ns: Mapping[str, float]
) -> tuple[StepStream, ...]:
    from commcanary_lab.canary.bounded import bound_streams

    return bound_streams(structure.streams, Committer(part.rows(structure.order), salt), records, limits_ns)


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
