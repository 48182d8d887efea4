"""Commitments and bounds: does a canary stand for exactly this source, and are its stated errors true?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.commit import COLUMNS, Committer, Locator, commitment, locate, locator
from commcanary_lab.canary.fields import assemble
from commcanary_lab.canary.model import Canary, largest_errors
from commcanary_lab.canary.streams import APPROXIMATED, BoundedStream
from commcanary_lab.canary.structure import clock_error_ns
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.timing import gaps_ns, timing_mode
from commcanary_lab.verify.model import Check

__all__ = ["bounds_checks", "commitment_checks"]

#: Committed columns that a bounded step may change, and those that a canary never stores.
_APPROXIMATE = {
    "gap_ns",
    "effective gap_ns",
    "start_ns",
    "arrival_ns",
    "compute_before_ns",
    "compute_overlap_ns",
    "observed_exposed_ns",
    "compute_pressure",
}
_NOT_STORED = {"id"}


def commitment_checks(source: Trace, canary: Canary, salt: bytes) -> list[Check]:
    """Recompute every commitment of a canary from the range of the source that it stands for.

    Parameters
    ----------
    source : Trace
        The range, not the whole trace.
    canary : Canary
    salt : bytes
        The owner's salt; empty for none.

    Returns
    -------
    list of Check
        The first difference first, naming part and record; then root and intervals.
    """
    checks: list[Check] = []
    if len(source) != canary.event_count:
        checks.append(Check("commitments", "number of events", False, len(source), canary.event_count))
    else:
        checks += _stored_columns(source, canary)
    root = commitment(source, salt)
    checks.append(Check("commitments", "root over all records", root == canary.source.root, root, canary.source.root))
    if len(source) == canary.event_count:
        checks += _intervals(source, canary, salt)
        actual = locator(source, salt)
        if any(not c.passed for c in checks):
            checks += _located(source, canary, actual)
        else:
            same = actual == canary.source.locator
            checks.append(Check("commitments", "locator of changed records", same, _spell(actual), _spell(canary.source.locator)))
    return sorted(checks, key=lambda c: c.passed)  # stable: what differs first


def _stored_columns(source: Trace, canary: Canary) -> Iterator[Check]:
    """Compare what the canary stores with the source, column by column; the first differing record is named."""
    approximate = np.zeros(len(source), np.bool_)
    for step, stream in enumerate(canary.streams):
        if isinstance(stream, BoundedStream):
            approximate[_rows(canary, step)] = True
    mode, fields = timing_mode(source), canary.fields
    first = int(source.start_ns.values[0]) if mode == "start" else 0
    if (mode, first) != (fields.clock.governs, fields.clock.first_start_ns):
        ours = f"{fields.clock.governs} from {fields.clock.first_start_ns} ns"
        yield Check("commitments", f"clock of record {canary.source.start}", False, f"{mode} from {first} ns", ours)
    expanded = canary.trace if canary.timing == "lossless" else assemble(fields)
    for name, theirs, ours in _stored(source, expanded, fields.gap_ns):
        differs = _differences(ours, theirs)
        if name in _APPROXIMATE:
            differs &= ~approximate | _known_differs(ours, theirs)
        if name == "start_ns" and mode == "start" and approximate.any():
            continue  # one approximated gap moves every later start; clock and effective gaps say the same
        rows = np.flatnonzero(differs)
        if len(rows):
            i = int(rows[0])
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            yield Check("commitments", f"{name} of record {i + canary.source.start}{more}", False, _show(theirs, i), _show(ours, i))


def _stored(source: Trace, expanded: Trace, gap_ns: npt.NDArray[np.int64]) -> Iterator[tuple[str, Any, Any]]:
    """Name, source column and canary column of everything that a canary stores, not only of what is committed to."""
    for name, get in COLUMNS:
        if name not in _NOT_STORED:
            yield name, get(source), get(expanded)
    yield "effective gap_ns", Column(gaps_ns(source)), Column(gap_ns)
    yield "arrival known", source.arrival_known, expanded.arrival_known
    yield "reporting ranks", _observers(source), _observers(expanded)


def _observers(trace: Trace) -> Ragged:
    return Ragged.from_rows([*trace.rank_sets, ()]).take(trace.observers.astype(np.intp))


def _known_differs(a: Any, b: Any) -> npt.NDArray[np.bool_]:
    """Rows where one side has a value and the other has none: never a matter of approximation."""
    if isinstance(a, Column):
        return np.asarray(a.mask != b.mask)
    return np.asarray(a.lengths != b.lengths)


def _rows(canary: Canary, step: int) -> npt.NDArray[np.intp]:
    order, bounds = canary.by_step
    return order[bounds[step] : bounds[step + 1]]


def _differences(a: Any, b: Any) -> npt.NDArray[np.bool_]:
    if isinstance(a, Coded):
        return (
            np.array([x != y for x, y in zip(a.to_list(), b.to_list(), strict=True)], np.bool_)
            if not a.equals(b)
            else np.zeros(len(a), np.bool_)
        )
    if isinstance(a, Column):
        out: npt.NDArray[np.bool_] = (a.mask != b.mask) | (a.filled(0) != b.filled(0))
        return out
    if isinstance(a, Ragged):
        if a.equals(b):
            return np.zeros(len(a), np.bool_)
        return _rows_differ(a, b)
    return np.asarray(np.asarray(a) != np.asarray(b))


def _rows_differ(a: Ragged, b: Ragged) -> npt.NDArray[np.bool_]:
    out: npt.NDArray[np.bool_] = a.lengths != b.lengths
    alike = np.flatnonzero(~out)
    x, y = a.take(alike), b.take(alike)
    owner = np.repeat(alike, x.lengths)
    out[owner[x.values != y.values]] = True
    return out


def _spell(value: Locator) -> str:
    return " ".join(value.to_json())


def _show(column: Any, i: int) -> str:
    if isinstance(column, Coded):
        return str(column.text(i))
    if isinstance(column, Column):
        return str(column.values[i].item()) if column.mask[i] else "unknown"
    if isinstance(column, Ragged):
        return str(column.row(i).tolist())
    return str(np.asarray(column)[i].item())


def _intervals(source: Trace, canary: Canary, salt: bytes) -> Iterator[Check]:
    bounded = [(i, s) for i, s in enumerate(canary.streams) if isinstance(s, BoundedStream)]
    if not bounded:
        return
    rows = [_rows(canary, step) for step, _ in bounded]
    committer = Committer(source.rows(np.concatenate(rows)), salt)
    at = 0
    for (step, stream), own in zip(bounded, rows, strict=True):
        inside = 0
        for j, (length, stated) in enumerate(zip(stream.lengths.tolist(), stream.commitments, strict=True)):
            found = committer.digest(at, at + length)
            first = int(own[inside]) + canary.source.start
            yield Check("commitments", f"step {step}, interval {j} ({length} records from record {first})", found == stated, found, stated)
            at += length
            inside += length


def _located(source: Trace, canary: Canary, actual: Locator) -> Iterator[Check]:
    record = locate(canary.source.locator, actual)
    if record is None:
        found = "none" if actual == canary.source.locator else "more than one"
        yield Check("commitments", "records that differ", False, found, "")
        return
    step = int(canary.step_of_event[record])
    part = f"step {step}"
    stream = canary.streams[step]
    if isinstance(stream, BoundedStream):
        position = int(np.searchsorted(_rows(canary, step), record))
        part += f", interval {int(np.searchsorted(np.cumsum(stream.lengths), position, side='right'))}"
    yield Check(
        "commitments", f"the one record that differs is {record + canary.source.start} ({part})", False, source.id(record) or "", ""
    )


def bounds_checks(source: Trace, canary: Canary) -> list[Check]:
    """Recompute every error, gap sum, count, size and disclosure entry that a canary states, from the source.

    Returns
    -------
    list of Check
    """
    s = canary.source
    checks = [Check("bounds", "source events in range", len(source) == s.stop - s.start, len(source), s.stop - s.start)]
    if len(source) != canary.event_count:
        return checks
    checks.append(Check("bounds", "source bytes", (size := canonical_size(source)) == s.size_bytes, size, s.size_bytes))
    read, used = source.coverage.read, source.coverage.used
    checks.append(
        Check(
            "bounds",
            "source records",
            (read, used) == (s.records_read, s.records_used),
            f"{used} of {read}",
            f"{s.records_used} of {s.records_read}",
        )
    )
    recomputed: list[BoundedStream] = []
    for step, stream in enumerate(canary.streams):
        if isinstance(stream, BoundedStream):
            checks += _interval_bounds(source, canary, step, stream, recomputed)
    actual = largest_errors(tuple(recomputed))
    actual["clock_ns"] = clock_error_ns(source, canary)
    for name in sorted(set(actual) | set(canary.errors)):
        found, stated = actual.get(name), canary.errors.get(name)
        checks.append(Check("bounds", f"largest error of {name}", found == stated, found, stated))
    return checks


def _interval_bounds(source: Trace, canary: Canary, step: int, stream: BoundedStream, recomputed: list[BoundedStream]) -> Iterator[Check]:
    from dataclasses import replace

    from commcanary_lab.canary.bounded import interval_errors

    rows = _rows(canary, step)
    truth = source.rows(rows)
    columns = {
        "compute_before_ns": truth.compute_before_ns,
        "overlap_ns": truth.overlap_ns,
        "observed_exposed_ns": truth.observed_exposed_ns,
        "pressure": truth.pressure,
    }
    scalars = {n: columns[n].filled(0) for n in APPROXIMATED if n in stream.scalars}
    width = stream.arrival_ns.shape[1]
    if not (truth.arrival_ns.lengths == width).all():
        yield Check("bounds", f"step {step}: arrivals per record", False, "different", width)
        return
    arrival = truth.arrival_ns.values.reshape(len(rows), width)
    gap = gaps_ns(source)[rows]
    sums, errors = interval_errors(stream, gap, scalars, arrival)
    recomputed.append(replace(stream, errors=errors))
    yield Check("bounds", f"step {step}: gap sums", bool((sums == stream.gap_sum_ns).all()), int(sums.sum()), int(stream.gap_sum_ns.sum()))
    inner = stream.gap_ns * (stream.lengths - 1) + stream.last_gap_ns
    yield Check("bounds", f"step {step}: encoded gaps add up", bool((inner == sums).all()), int(sums.sum()), int(inner.sum()))
    firsts = np.cumsum(stream.lengths) - stream.lengths
    centred = all(np.array_equal(_midrange(v, firsts), stream.scalars[n]) for n, v in scalars.items())
    centred &= width == 0 or np.array_equal(_midrange(arrival, firsts), stream.arrival_ns)
    yield Check("bounds", f"step {step}: encoded values are midranges", centred, "midranges", "midranges" if centred else "others")
    for name in sorted(set(errors) | set(stream.errors)):
        same = name in errors and name in stream.errors and np.array_equal(errors[name], stream.errors[name])
        yield Check("bounds", f"step {step}: errors of {name}", same, _largest(errors.get(name)), _largest(stream.errors.get(name)))


def _midrange(values: npt.NDArray[Any], firsts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Middle of the extremes of each interval (rows), in whole units where the values are whole."""
    low, high = (f.reduceat(values, firsts).astype(np.float64) for f in (np.minimum, np.maximum))
    half = (low + high) / 2
    return half if values.dtype == np.float64 else np.floor(half).astype(np.int64)


def _largest(values: npt.NDArray[Any] | None) -> float | None:
    return None if values is None else values.max().item()
