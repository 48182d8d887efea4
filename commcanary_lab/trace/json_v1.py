"""Read ``commcanary.trace.v1`` JSON.

The fast path decodes typed events with msgspec and checks whole columns; whenever it finds anything wrong or odd, the slow checker
of `check_v1` runs over the file and lists every error.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from commcanary_lab.errors import FormatError, InputError, Problem
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.check_v1 import check_document
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.lab_v1 import LabSection, read_lab_section
from commcanary_lab.trace.model import ImportCoverage, Trace
from commcanary_lab.trace.ops import DTYPE_BYTES, OPS, REDUCTION_OPS, REDUCTIONS
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS, FORMAT, IGNORED_FIELDS, EventV1, TraceV1
from commcanary_lab.trace.timing import check_timing, in_time_order
from commcanary_lab.units import us_to_ns

__all__ = ["read_json", "read_json_bytes"]

#: Files up to this size always go through the complete checker; larger ones only when a compiled key scan finds something odd.
SMALL_BYTES = 256 << 10


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
    limits.check_file(path)
    try:
        data = Path(path).read_bytes()
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", file=str(path)) from None
    return read_json_bytes(data, file=str(path), check=check, round_ns=round_ns, limits=limits)


def read_json_bytes(data: bytes, *, file: str = "<memory>", check: bool = False, round_ns: bool = False, limits: Limits = DEFAULT) -> Trace:
    """Read a trace from the bytes of a JSON file; see `read_json`.

    Examples
    --------
    >>> t = read_json_bytes(b'{"format": "commcanary.trace.v1", "events": '
    ...                     b'[{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1.5, "compute_overlap_us": 0}]}')
    >>> t.size_bytes.tolist(), t.gap_ns.values.tolist(), t.groups[0].members
    ([8], [1500], (0, 1))
    """
    warnings: list[str] = []
    try:
        with _collector_paused():
            decoded = msgspec.json.decode(data, type=TraceV1)
            if decoded.format != FORMAT:
                raise _Odd
            limits.check_events(len(decoded.events), file)
            columns, odd = _columns(data, decoded.events)
            if check or odd:
                problems, warnings = check_document(data, file)
                if problems:
                    raise InputError(problems)
            return _build(decoded, columns, file, round_ns, limits, warnings)
    except (msgspec.DecodeError, _Odd, RecursionError, UnicodeDecodeError) as e:
        problems, warnings = check_document(data, file)
        if problems:
            raise InputError(problems) from None
        raise FormatError(f"not a {FORMAT} document: {e}", file=file, remedy="re-export the trace") from None


class _Odd(Exception):
    """A column holds something that the slow checker must explain."""


class _Columns:
    """The decoded events by field. A field that no event has is one shared tuple of ``UNSET``, never collected from the events."""

    def __init__(self, events: list[EventV1], present: frozenset[str] | None) -> None:
        self._events = events
        self._present = present
        self._unset: tuple[Any, ...] = (UNSET,) * len(events)
        self._cache: dict[str, Sequence[Any]] = {}
        self._missing: dict[str, int] = {}

    def __getitem__(self, name: str) -> Sequence[Any]:
        if self._present is not None and name not in self._present:
            return self._unset
        if name not in self._cache:
            self._cache[name] = list(map(attrgetter(name), self._events))
        return self._cache[name]

    def missing(self, name: str) -> int:
        """How many events lack the field."""
        if name not in self._missing:
            values = self[name]
            self._missing[name] = len(values) if values is self._unset else values.count(UNSET)
        return self._missing[name]

    def none(self, name: str) -> bool:
        """True when no event has the field."""
        return self.missing(name) == len(self._events)


def _columns(data: bytes, events: list[EventV1]) -> tuple[_Columns, bool]:
    """Return the columns, and whether the complete checker has to look at the file."""
    if len(data) <= SMALL_BYTES:
        return _Columns(events, None), True
    from commcanary_lab.trace.scan import count_event_keys, key_hash

    found = count_event_keys(data)
    if found is None:
        return _Columns(events, None), True
    counts, deeper = found
    hashes = {key_hash(name): name for name in EVENT_FIELDS}
    columns = _Columns(events, frozenset(hashes[h] for h in counts if h in hashes))
    arrivals = columns["rank_arrival_us"]
    nested = 0 if columns.none("rank_arrival_us") else sum(len(a) for a in arrivals if type(a) is dict)
    expected = {h: len(events) - columns.missing(name) for h, name in hashes.items()}
    return columns, {h: n for h, n in expected.items() if n} != counts or deeper != nested


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Decoding makes many objects and no cycles; the cyclic collector would only walk them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass
class _Times:
    """Converts time columns and remembers what rounding changed."""

    file: str
    accept: bool
    largest_us: float = 0.0
    problems: list[Problem] = field(default_factory=list)

    def ns(
        self, name: str, values: Sequence[Any] | npt.NDArray[np.float64], rows: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.int64]:
        floats = np.array(values, np.float64)
        out, exact = us_to_ns(floats)
        if not exact.all():
            wrong = np.flatnonzero(~exact)
            if self.accept:
                self.largest_us = max(self.largest_us, float(np.abs(out[wrong] / 1000.0 - floats[wrong]).max()))
            else:
                self.problems += [
                    Problem(
                        f"{floats[i]!r} us is not a whole number of nanoseconds",
                        file=self.file,
                        record=int(i if rows is None else rows[i]),
                        field=name,
                        remedy="round it to 3 decimals, or accept rounding with --round-ns",
                    )
                    for i in wrong.tolist()
                ]
        return out

    def column(self, name: str, items: Sequence[Any]) -> Column:
        missing = items.count(UNSET)
        n = len(items)
        if missing == n:
            return Column.absent(n)
        if not missing:
            return Column(self.ns(name, items))
        known = np.fromiter((x is not UNSET for x in items), np.bool_, n)
        return Column(self.ns(name, [0.0 if x is UNSET else x for x in items]), known)


def _ints(items: Sequence[Any], dtype: npt.DTypeLike = np.int64) -> Column:
    return Column.from_optional([None if x is UNSET else x for x in items] if UNSET in items else list(items), dtype)


def _texts(items: Sequence[Any], allowed: frozenset[str] | None = None) -> Coded:
    coded = Coded.from_optional([None if x is UNSET else x for x in items] if UNSET in items else items)
    if allowed is not None and not set(coded.names) <= allowed:
        raise _Odd
    return coded


def _build(decoded: TraceV1, c: _Columns, file: str, round_ns: bool, limits: Limits, warnings: list[str]) -> Trace:
    n = len(decoded.events)
    system = decoded.system if isinstance(decoded.system, dict) else {}
    lab = read_lab_section(system.get("commcanary_lab"), file)
    group, table = _groups(c["group"], c["ranks"], system.get("world_size"), file, limits)
    op, custom = _texts(c["op"]), np.array([x is True for x in c["custom_op"]], np.bool_)
    reduction = _texts(c["reduction_op"], REDUCTIONS)
    _check_ops(op, custom, reduction)
    times = _Times(file, round_ns)
    arrival, arrival_known = _arrivals(c, table, group, times)
    observers, rank_sets = _observers(c["lab_observers"], table, group)
    sizes = np.array(c["bytes"], np.int64)
    if not c.none("lab_bytes"):
        sizes = np.where([x == 0 for x in c["lab_bytes"]], 0, sizes)
    overlap, defaults = _overlap(c, times)
    observed = times.column("observed_exposed_us", c["observed_exposed_us"])
    if observed.known_count not in (0, n):
        raise _Odd
    trace = Trace.build(
        n,
        op=op, custom_op=custom, reduction=reduction,
        phase=_texts(c["phase"]), dtype=_texts(c["dtype"], frozenset(DTYPE_BYTES)), tag=_texts(c["tag"]), channel=_texts(c["channel"]),
        group=group, groups=table.groups, size_bytes=sizes,
        root=_ints(c["root_rank"]), sender=_ints(c["sender_rank"]), receiver=_ints(c["receiver_rank"]),
        message_sequence=_ints(c["message_sequence"]), concurrent_groups=_ints(c["concurrent_groups"]),
        start_ns=times.column("start_us", c["start_us"]), gap_ns=times.column("gap_us", c["gap_us"]),
        compute_before_ns=times.column("compute_before_us", c["compute_before_us"]),
        overlap_ns=overlap, observed_exposed_ns=observed, pressure=_ints(c["compute_pressure"], np.float64),
        arrival_ns=arrival, arrival_known=arrival_known, observers=observers, rank_sets=rank_sets,
        splits=Ragged.from_rows([() if x is UNSET else x for x in c["lab_splits"]]) if not c.none("lab_splits") else Ragged.empty(n),
        duration_ns=_optional_times("lab_duration_us", c["lab_duration_us"], times),
        rank_start_ns=_optional_times("lab_rank_start_us", c["lab_rank_start_us"], times),
        ids=_ids(c["id"]),
        workload=decoded.workload if isinstance(decoded.workload, dict) else {},
        system={k: v for k, v in system.items() if k != "commcanary_lab"},
        source_format=lab.source_format or FORMAT,
        unsized=lab.unsized,
        coverage=lab.coverage or ImportCoverage(read=n, used=n),
    )  # fmt: skip
    if times.problems:
        raise InputError(times.problems)
    _check_members(trace, table, group)
    ordered = in_time_order(trace)
    check_timing(ordered, file)
    return _annotated(ordered, lab, defaults, times, c, warnings)


def _annotated(trace: Trace, lab: LabSection, defaults: list[str], times: _Times, c: _Columns, warnings: list[str]) -> Trace:
    from dataclasses import replace

    notes = [*lab.notes, *defaults]
    if times.largest_us:
        notes.append(f"times rounded to whole nanoseconds; the largest change is {times.largest_us:.3g} us")
    for name in IGNORED_FIELDS:
        used = len(trace) - c.missing(name)
        if used:
            warnings = [*warnings, f"{name} on {used} events is not used"]
    return replace(trace, notes=tuple(dict.fromkeys(notes)), warnings=tuple(dict.fromkeys([*lab.warnings, *warnings])))


def _groups(names: Sequence[Any], ranks: Sequence[Any], world: Any, file: str, limits: Limits) -> tuple[npt.NDArray[np.int32], GroupTable]:
    table = GroupTable()
    keys = list(zip(names, [m if type(m) is int else tuple(m) for m in ranks], strict=True))
    codes: dict[tuple[Any, Any], int] = {}
    for name, members in dict.fromkeys(keys):
        distinct = tuple(range(members)) if isinstance(members, int) else members
        if not distinct or len(set(distinct)) != len(distinct) or (isinstance(world, int) and max(distinct) >= world):
            raise _Odd
        codes[name, members] = table.code(None if name is UNSET else name, distinct)
        limits.check_groups(len(codes), file)
    return np.fromiter(map(codes.__getitem__, keys), np.int32, len(keys)), table


def _check_ops(op: Coded, custom: npt.NDArray[np.bool_], reduction: Coded) -> None:
    known = np.array([name in OPS for name in op.names] or [True], np.bool_)
    reduces = np.array([name in REDUCTION_OPS for name in op.names] or [True], np.bool_)
    if len(op) and (not (known[op.codes] | custom).all() or not (reduces[op.codes] | (reduction.codes < 0)).all()):
        raise _Odd


def _arrivals(c: _Columns, table: GroupTable, group: npt.NDArray[np.int32], times: _Times) -> tuple[Ragged, npt.NDArray[np.bool_]]:
    maps, skews, unknown = c["rank_arrival_us"], c["arrival_skew_us"], c["arrival_skew_unknown"]
    n = len(maps)
    known = np.broadcast_to(np.True_, (n,)) if True not in unknown else np.array([x is not True for x in unknown], np.bool_)
    if not c.none("partial_rank_arrival") and True in c["partial_rank_arrival"]:
        raise _Odd
    if c.none("rank_arrival_us"):
        if c.none("arrival_skew_us"):
            return Ragged.empty(n), known
        given = np.fromiter((x is not UNSET for x in skews), np.bool_, n)
        values = times.ns("arrival_skew_us", [x for x in skews if x is not UNSET], np.flatnonzero(given))
        if (given & ~known).any():
            raise _Odd
        return Ragged.from_lengths(values, given.astype(np.int64)), known
    rows: list[Any] = []
    orders: dict[tuple[int, tuple[str, ...]], list[int] | None] = {}
    groups = table.groups
    for i, (arrival, code) in enumerate(zip(maps, group.tolist(), strict=True)):
        if arrival is UNSET:
            rows.append(() if skews[i] is UNSET else (skews[i],))
            continue
        if type(arrival) is dict:
            key = (code, tuple(arrival))
            if key not in orders:
                orders[key] = _order(key[1], groups[code].members)
            order = orders[key]
            values_of = list(arrival.values())
            rows.append(values_of if order is None else [values_of[j] for j in order])
        else:
            # a list follows the order in which the file lists the ranks
            rows.append(_listed(arrival, c["ranks"][i], groups[code].members))
    lengths = np.fromiter(map(len, rows), np.int64, n)
    owner = np.repeat(np.arange(n), lengths)
    ragged = Ragged.from_lengths(times.ns("rank_arrival_us", list(chain.from_iterable(rows)), owner), lengths)
    if ((lengths > 0) & ~known).any():
        raise _Odd
    _check_skews(ragged, maps, skews, times)
    return ragged, known


def _order(keys: tuple[str, ...], members: tuple[int, ...]) -> list[int] | None:
    """Positions of the members' values in an arrival map; None when the map is already in member order."""
    try:
        ranks = [int(k) for k in keys]
    except ValueError:
        raise _Odd from None
    if ranks == list(members) and all(str(r) == k for r, k in zip(ranks, keys, strict=True)):
        return None
    if sorted(ranks) != list(members) or any(str(r) != k for r, k in zip(ranks, keys, strict=True)):
        raise _Odd
    where = {r: i for i, r in enumerate(ranks)}
    return [where[m] for m in members]


def _listed(arrival: list[float], ranks: Any, members: tuple[int, ...]) -> list[float]:
    if len(arrival) != len(members):
        raise _Odd
    if isinstance(ranks, int) or list(members) == ranks:
        return arrival
    where = {r: i for i, r in enumerate(ranks)}
    return [arrival[where[m]] for m in members]


def _check_skews(arrival: Ragged, maps: Sequence[Any], skews: Sequence[Any], times: _Times) -> None:
    both = [i for i, (m, s) in enumerate(zip(maps, skews, strict=True)) if m is not UNSET and s is not UNSET]
    if both:
        spread = (arrival.reduce(np.maximum) - arrival.reduce(np.minimum))[both]
        if (np.abs(spread - times.ns("arrival_skew_us", [skews[i] for i in both], np.array(both))) > 1).any():
            raise _Odd


def _observers(
    items: Sequence[Any], table: GroupTable, group: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], tuple[tuple[int, ...], ...]]:
    n = len(items)
    if items.count(UNSET) == n:
        return np.broadcast_to(np.int32(-1), (n,)), ()
    sets: dict[tuple[int, ...], int] = {}
    codes = [-1 if x is UNSET else sets.setdefault(tuple(x), len(sets)) for x in items]
    for code, g in set(zip(codes, group.tolist(), strict=True)):
        if code >= 0:
            observers = list(sets)[code]
            if list(observers) != sorted(set(observers)) or not set(observers) <= set(table.groups[g].members):
                raise _Odd
    return np.array(codes, np.int32), tuple(sets)


def _overlap(c: _Columns, times: _Times) -> tuple[Column, list[str]]:
    """Overlap column; where the file neither gives nor disclaims it, the format's default 0 applies, which a note says."""
    given, unknown = c["compute_overlap_us"], c["compute_overlap_unknown"]
    n, notes = len(given), []
    absent_arrival = 0
    if c.missing("rank_arrival_us") and c.missing("arrival_skew_us"):
        absent_arrival = sum(
            a is UNSET and s is UNSET and u is not True
            for a, s, u in zip(c["rank_arrival_us"], c["arrival_skew_us"], c["arrival_skew_unknown"], strict=True)
        )
    if absent_arrival:
        notes.append(f"{absent_arrival} of {n} events give no arrivals; the format's default of 0 us skew applies")
    missing = given.count(UNSET)
    if not missing:
        if True in unknown:
            raise _Odd
        return times.column("compute_overlap_us", given), notes
    if any(u is True and g is not UNSET for u, g in zip(unknown, given, strict=True)):
        raise _Odd
    known = np.fromiter((u is not True for u in unknown), np.bool_, n)
    defaulted = missing - int(np.count_nonzero(~known))
    if defaulted:
        notes.append(f"{defaulted} of {n} events give no compute_overlap_us; the format's default of 0 us applies")
    return Column(times.ns("compute_overlap_us", [0.0 if x is UNSET else x for x in given]), known), notes


def _optional_times(name: str, items: Sequence[Any], times: _Times) -> Ragged:
    n = len(items)
    if items.count(UNSET) == n:
        return Ragged.empty(n)
    rows = [() if x is UNSET else x for x in items]
    lengths = np.fromiter(map(len, rows), np.int64, n)
    flat = list(chain.from_iterable(rows))
    ns = times.ns(name, [0.0 if x is None else x for x in flat], np.repeat(np.arange(n), lengths))
    return Ragged.from_lengths(np.where([x is None for x in flat], -1, ns), lengths)


def _ids(items: Sequence[Any]) -> Ragged | None:
    n = len(items)
    missing = items.count(UNSET)
    if missing == n:
        return None
    texts = items if not missing else ["" if x is UNSET else x for x in items]
    if len(set(texts)) != n - max(0, missing - 1):
        raise _Odd
    joined = "".join(texts)
    if not joined.isascii():
        encoded = [t.encode() for t in texts]
        return Ragged.from_lengths(np.frombuffer(b"".join(encoded), np.uint8), list(map(len, encoded)))
    return Ragged.from_lengths(np.frombuffer(joined.encode(), np.uint8), np.fromiter(map(len, texts), np.int64, n))


def _check_members(trace: Trace, table: GroupTable, group: npt.NDArray[np.int32]) -> None:
    """Roots, senders and receivers are members; a point_to_point names both ends; rank_count agrees (all on distinct rows)."""
    for column in (trace.root, trace.sender, trace.receiver):
        if column.known_count:
            pairs = np.unique(np.stack([group[column.mask], column.values[column.mask]]), axis=1)
            if any(rank not in table.groups[g].members for g, rank in pairs.T.tolist()):
                raise _Odd
    p2p = [i for i, name in enumerate(trace.op.names) if name == "point_to_point"]
    if p2p:
        rows = np.isin(trace.op.codes, p2p)
        if not (trace.sender.mask & trace.receiver.mask)[rows].all():
            raise _Odd
    counts = trace.observer_counts
    for ragged, width in ((trace.duration_ns, counts), (trace.rank_start_ns, counts), (trace.splits, counts * (2 * trace.group_sizes + 2))):
        lengths = ragged.lengths
        if not ((lengths == 0) | (lengths == width)).all():
            raise _Odd
    arrivals = trace.arrival_ns.lengths
    if not ((arrivals <= 1) | (arrivals == trace.group_sizes)).all():
        raise _Odd
