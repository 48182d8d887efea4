"""Read ``commcanary.trace.v1`` JSON.

The fast path decodes typed events with msgspec and checks whole columns; whenever it finds anything wrong or odd, the slow checker
of `check_v1` runs over the file and lists every error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import UNSET

from commcanary_lab._collector import collector_paused
from commcanary_lab.canonical import loads_strict
from commcanary_lab.errors import FormatError, InputError, TimingError
from commcanary_lab.files import read_file
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace import decode_v1 as decode
from commcanary_lab.trace.check_v1 import check_document
from commcanary_lab.trace.decode_v1 import Odd, Times
from commcanary_lab.trace.events_v1 import EventColumns, count_keys_of
from commcanary_lab.trace.invariants import fits_members, fits_widths
from commcanary_lab.trace.lab_v1 import LabSection, default_notes, read_lab_section
from commcanary_lab.trace.model import ImportCoverage, Trace
from commcanary_lab.trace.ops import DTYPE_BYTES, REDUCTIONS
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS, FORMAT, IGNORED_FIELDS, TOP_FIELDS, TraceV1, narrowed
from commcanary_lab.trace.timing import check_timing, in_time_order

if TYPE_CHECKING:
    from commcanary_lab.trace.scan import FileScan

__all__ = ["read_json", "read_json_bytes"]

#: Up to this size the keys are compared in Python; in larger files a compiled scan counts them.
SMALL_BYTES = 256 << 10
#: Up to this size comparing them takes less time than loading the compiler, where nothing has loaded it yet.
_ALONE_BYTES = 1 << 20

_BOM = b"\xef\xbb\xbf"


def read_json(path: str | os.PathLike[str], *, check: bool = False, round_ns: bool = False, limits: Limits = DEFAULT) -> Trace:
    """Read a trace from a JSON file.

    Parameters
    ----------
    path : path-like
        The file.
    check : bool
        Run the complete checker in any case (unknown fields and duplicate keys are looked for either way).
    round_ns : bool
        Accept times that are not whole nanoseconds; the largest change is recorded in the notes.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in time order.

    Raises
    ------
    InputError
        Listing every error with file, event, field, value and remedy.
    """
    return read_json_bytes(read_file(path, limits=limits), file=str(path), check=check, round_ns=round_ns, limits=limits)


def read_json_bytes(data: bytes, *, file: str = "<memory>", check: bool = False, round_ns: bool = False, limits: Limits = DEFAULT) -> Trace:
    """Read a trace from the bytes of a JSON file; see `read_json`.

    Examples
    --------
    >>> t = read_json_bytes(b'{"format": "commcanary.trace.v1", "events": '
    ...                     b'[{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1.5, "compute_overlap_us": 0}]}')
    >>> t.size_bytes.tolist(), t.gap_ns.values.tolist(), t.groups[0].members
    ([8], [1500], (0, 1))
    """
    data = data.removeprefix(_BOM)
    warnings: tuple[str, ...] = ()
    try:
        with collector_paused():
            decoded, columns, odd = _decoded(data, file, limits)
            if decoded.format != FORMAT:
                raise Odd
            if check or odd:
                findings = check_document(data, file, round_ns=round_ns)
                findings.raise_problems()
                warnings = findings.warnings
            return _build(decoded, columns, Times(file, round_ns), limits, warnings)
    except (msgspec.DecodeError, Odd, RecursionError, UnicodeError) as e:
        check_document(data, file, round_ns=round_ns).raise_problems()
        raise FormatError(f"not a {FORMAT} document: {e}", file=file, remedy="re-export the trace") from None


def _decoded(data: bytes, file: str, limits: Limits) -> tuple[TraceV1, EventColumns, bool]:
    """Return the document, its columns, and whether keys are duplicate or unknown, so that the complete checker has to look at the file."""
    small = len(data) <= (SMALL_BYTES if "numba" in sys.modules else _ALONE_BYTES)
    if not small:
        from commcanary_lab.trace.scan import scan_file

        found = scan_file(data)
        if found is not None:
            return _in_batches(data, found, file, limits)
    decoded = msgspec.json.decode(data, type=TraceV1)
    limits.check_events(len(decoded.events), file)
    columns = EventColumns(EVENT_FIELDS)
    columns.add(decoded.events)
    if not small:  # too many different keys for the scan
        return decoded, columns, True
    try:
        document = loads_strict(data, file)
    except InputError:
        return decoded, columns, True
    known = frozenset(EVENT_FIELDS)
    return decoded, columns, not document.keys() <= set(TOP_FIELDS) or any(e.keys() - known for e in document["events"])


def _in_batches(data: bytes, found: FileScan, file: str, limits: Limits) -> tuple[TraceV1, EventColumns, bool]:
    """Decode a scanned file: what is around the events, then the events in batches."""
    from commcanary_lab.trace.scan import key_hash

    limits.check_events(found.events, file)
    if found.array is None or found.repeated or data[found.array[1]] != ord("]"):
        raise Odd
    names = {key_hash(name): name for name in EVENT_FIELDS}
    counts = {names[h]: n for h, n in found.event_keys.items() if h in names}
    begin, end = found.array
    decoded = msgspec.json.decode(data[: begin + 1] + data[end:], type=TraceV1)
    # only the fields that occur: smaller objects decode and pack faster
    decoder = msgspec.json.Decoder(list[narrowed(frozenset(counts))])  # type: ignore[misc]
    columns = EventColumns(counts, [name for name, n in counts.items() if n == found.events])
    for batch in _batches(data, found.cuts, begin, end):
        columns.add(decoder.decode(batch))
    if len(columns) != found.events:
        raise Odd
    odd = len(counts) < len(found.event_keys) or columns.nested_keys() != found.nested
    return decoded, columns, odd or _outside_keys(decoded) != found.outside


def _batches(data: bytes, cuts: tuple[int, ...], begin: int, end: int) -> Iterator[bytes]:
    """Cut the list of events into lists; whatever a list would not have at a cut is refused."""
    white = b" \t\r\n"
    first = cuts[0] if cuts else end
    if data[begin + 1 : first].strip(white):
        raise Odd
    for start, stop in pairwise(cuts):
        part = data[start:stop].rstrip(white)
        if not part.endswith(b","):
            raise Odd
        yield b"[" + part[:-1] + b"]"
    if cuts:
        yield b"[" + data[cuts[-1] : end] + b"]"


def _outside_keys(decoded: TraceV1) -> int:
    parts = [part for part in (decoded.workload, decoded.system) if part is not UNSET]
    return 2 + len(parts) + sum(map(count_keys_of, parts))


def _build(decoded: TraceV1, c: EventColumns, times: Times, limits: Limits, warnings: tuple[str, ...]) -> Trace:
    n = len(c)
    system = decoded.system if isinstance(decoded.system, dict) else {}
    lab = read_lab_section(system.get("commcanary_lab"), times.file)
    group, table = decode.groups(c, system.get("world_size", UNSET), times.file, limits)
    op, custom = decode.texts(c, "op"), c.flag("custom_op")
    decode.check_ops(op, custom, c)
    arrival, arrival_known = decode.arrivals(c, group, table, times)
    observers, rank_sets = decode.observers(c, group, table)
    overlap, default_overlaps = decode.overlap(c, times)
    observed = times.column(c, "observed_exposed_us")
    if observed.known_count not in (0, n):
        raise Odd
    trace = Trace.build(
        n,
        op=op, custom_op=custom,
        phase=decode.texts(c, "phase"), tag=decode.texts(c, "tag"), channel=decode.texts(c, "channel"),
        dtype=decode.texts(c, "dtype", frozenset(DTYPE_BYTES), beyond="lab_dtype"),
        reduction=decode.texts(c, "reduction_op", REDUCTIONS, beyond="lab_reduction_op"),
        group=group, groups=table.groups, size_bytes=decode.sizes(c),
        root=decode.integers(c, "root_rank"), sender=decode.integers(c, "sender_rank"), receiver=decode.integers(c, "receiver_rank"),
        message_sequence=decode.integers(c, "message_sequence"), concurrent_groups=decode.integers(c, "concurrent_groups"),
        start_ns=times.column(c, "start_us"), gap_ns=times.column(c, "gap_us"),
        compute_before_ns=times.column(c, "compute_before_us"),
        overlap_ns=overlap, observed_exposed_ns=observed, pressure=decode.integers(c, "compute_pressure", np.float64),
        arrival_ns=arrival, arrival_known=arrival_known, observers=observers, rank_sets=rank_sets,
        splits=c.lists("lab_splits"),
        duration_ns=decode.optional_times(c, "lab_duration_us", times),
        rank_start_ns=decode.optional_times(c, "lab_rank_start_us", times),
        ids=decode.ids(c),
        workload=decoded.workload if isinstance(decoded.workload, dict) else {},
        system={k: v for k, v in system.items() if k != "commcanary_lab"},
        extra=lab.extra,
        source_format=lab.source_format or FORMAT,
        unsized=lab.unsized,
        coverage=lab.coverage or ImportCoverage(read=n, used=n),
    )  # fmt: skip
    if not fits_members(trace) or not fits_widths(trace):
        raise Odd
    ordered = _ordered(trace, times)
    defaults = [] if lab.defaults_noted else default_notes(trace, default_overlaps)
    return _annotated(ordered, lab, defaults, times, c, warnings)


def _ordered(trace: Trace, times: Times) -> Trace:
    """Sort by time and refuse wrong timing, together with what is not a whole nanosecond."""
    ordered = in_time_order(trace)
    order = None if ordered is trace else np.argsort(trace.start_ns.values, kind="stable")
    try:
        check_timing(ordered, times.file, order)
    except TimingError as e:
        if not times.problems:
            raise
        times.problems += e.problems
    if times.problems:
        raise InputError(sorted(times.problems, key=lambda p: p.record or 0))
    return ordered


def _annotated(trace: Trace, lab: LabSection, defaults: list[str], times: Times, c: EventColumns, warnings: tuple[str, ...]) -> Trace:
    notes = [*lab.notes, *defaults]
    if times.largest_us:
        notes.append(f"times rounded to whole nanoseconds; the largest change is {times.largest_us:.3g} us")
    ignored = {name: len(trace) - c.missing(name) for name in IGNORED_FIELDS}
    unused = [f"{name} on {used} events is not used" for name, used in ignored.items() if used]
    return replace(trace, notes=tuple(dict.fromkeys(notes)), warnings=tuple(dict.fromkeys([*lab.warnings, *warnings, *unused])))
