"""The slow, complete checker of ``commcanary.trace.v1``: every error with file, event, field, value and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from commcanary_lab.canonical import loads_strict
from commcanary_lab.errors import FormatError, InputError, Problem, TimingError
from commcanary_lab.trace.columns import Coded, Column
from commcanary_lab.trace.explain_v1 import Finding, kind_of, schema_findings
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.ops import OPS, REDUCTION_OPS, canonical_op
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS, FORMAT, TOP_FIELDS
from commcanary_lab.trace.timing import check_timing
from commcanary_lab.units import MAX_TIME_US, us_to_ns

__all__ = ["Findings", "check_document"]

_MAX_WARNINGS = 20

#: Time fields, single and in lists; rank_arrival_us may also be a map.
_TIME_FIELDS = ("start_us", "gap_us", "compute_before_us", "compute_overlap_us", "observed_exposed_us", "arrival_skew_us")
_TIME_LISTS = ("rank_arrival_us", "lab_duration_us", "lab_rank_start_us")


@dataclass(frozen=True)
class Findings:
    """What is wrong with a document.

    Attributes
    ----------
    problems : tuple of Problem
        Everything but contradicting timing, in file order.
    timing : tuple of Problem
        Timing fields that contradict each other or the format.
    warnings : tuple of str
        Unknown fields, with the nearest known name.
    """

    problems: tuple[Problem, ...]
    timing: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    def raise_problems(self) -> None:
        """Raise everything at once, as `TimingError` where only timing is wrong."""
        if self.problems:
            raise InputError(self.problems + self.timing)
        if self.timing:
            raise TimingError(self.timing)


def check_document(data: bytes, file: str, *, round_ns: bool = False) -> Findings:
    """Check a whole file.

    Parameters
    ----------
    data : bytes
        The file's content.
    file : str
        Its name, for messages.
    round_ns : bool
        Accept times that are not whole nanoseconds.

    Raises
    ------
    FormatError
        If the file is not a JSON object of this format at all.
    """
    try:
        document = loads_strict(data, file)
    except InputError as e:
        raise FormatError(e.problems) from None
    events = _events(document, file)
    problems = list(_section_problems(document, file))
    world = document["system"].get("world_size") if isinstance(document.get("system"), dict) else None
    world = world if type(world) is int and world > 0 else None
    unknown: dict[str, int] = {}
    ids: dict[str, int] = {}
    for i, event in enumerate(events):
        for f in _event_findings(event, world, round_ns):
            problems.append(Problem(f.what, file=file, record=i, field=f.field, remedy=f.remedy))
        if isinstance(event, dict):
            for key in event.keys() - set(EVENT_FIELDS):
                unknown[key] = unknown.get(key, 0) + 1
            problems += _repeated_id(event.get("id"), i, ids, file)
    with_observed = sum(isinstance(e, dict) and "observed_exposed_us" in e for e in events)
    if 0 < with_observed < len(events):
        problems.append(
            Problem(
                f"observed_exposed_us is on {with_observed} of {len(events)} events",
                file=file,
                field="observed_exposed_us",
                remedy="give it on every event or on none",
            )
        )
    warnings = [*_unknown({k: 1 for k in document if k not in TOP_FIELDS}, TOP_FIELDS, f"{file}: top level", False)]
    warnings += _unknown(unknown, EVENT_FIELDS, file, True)
    return Findings(tuple(problems), tuple(_timing_problems(events, file)), tuple(warnings))


def _events(document: Any, file: str) -> list[Any]:
    if not isinstance(document, dict):
        raise FormatError(f"the top level is {kind_of(document)}, not an object", file=file, remedy=f"expected format {FORMAT}")
    if document.get("format") != FORMAT:
        what = f"format is {document['format']!r}" if "format" in document else "is missing"
        raise FormatError(what, file=file, field="format", remedy=f"expected {FORMAT!r}")
    events = document.get("events")
    if not isinstance(events, list):
        what = f"events is {kind_of(events)}, not an array" if "events" in document else "is missing"
        raise FormatError(what, file=file, field="events", remedy="write a list of event objects")
    return events


def _section_problems(document: Mapping[str, Any], file: str) -> Iterator[Problem]:
    for name in ("workload", "system"):
        if name in document and not isinstance(document[name], dict):
            yield Problem(f"{name} is {kind_of(document[name])}, not an object", file=file, field=name, remedy="write an object")
    system = document.get("system")
    if isinstance(system, dict) and "world_size" in system:
        world = system["world_size"]
        if type(world) is not int or world < 1:
            yield Problem(f"is {world!r}", file=file, field="system.world_size", remedy="write a whole number >= 1 or leave it out")


def _repeated_id(name: Any, i: int, ids: dict[str, int], file: str) -> list[Problem]:
    if not isinstance(name, str) or ids.setdefault(name, i) == i:
        return []
    what = f"id {name!r} is already used by event {ids[name]}"
    return [Problem(what, file=file, record=i, field="id", remedy="give every event its own id")]


def _unknown(names: Mapping[str, int], known: tuple[str, ...], where: str, count: bool) -> Iterator[str]:
    for name in sorted(names)[:_MAX_WARNINGS]:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        on = f" on {names[name]} event{'s' if names[name] > 1 else ''}" if count else ""
        yield f"{where}: unknown field {name!r}{on} is not used{hint}"
    if len(names) > _MAX_WARNINGS:
        yield f"{where}: {len(names) - _MAX_WARNINGS} more unknown fields are not used"


def _event_findings(event: Any, world: int | None, round_ns: bool) -> Iterator[Finding]:
    """Yield everything that is wrong with one event."""
    if not isinstance(event, dict):
        yield Finding(None, f"is {kind_of(event)}, not an object", "write an object with op, bytes and ranks")
        return
    bad: set[str | None] = set()
    for finding in schema_findings(event):
        bad.add(finding.field)
        yield finding
    good = {k: v for k, v in event.items() if k not in bad}
    yield from _vocabulary(good)
    if not round_ns:
        yield from _parts_of_ns(good)
    if good.get("compute_overlap_unknown") is True and "compute_overlap_us" in event:
        yield Finding("compute_overlap_unknown", "compute_overlap_us is given although it is declared unknown", "remove one of the two")
    if good.get("lab_bytes") == 0 and good.get("bytes", 1) != 1:
        yield Finding("lab_bytes", f"says 0 but bytes is {good['bytes']}", "write bytes: 1 for a zero size")
    if "ranks" in good:
        ranks = list(range(good["ranks"])) if isinstance(good["ranks"], int) else good["ranks"]
        yield from _members(good, ranks, world)
        yield from _reports(good, ranks)
        yield from _arrivals(good, ranks)


def _vocabulary(event: Mapping[str, Any]) -> Iterator[Finding]:
    op = event.get("op")
    if op is None:
        return
    if op not in OPS and event.get("custom_op") is not True:
        alias = canonical_op(op)
        remedy = f"write {alias!r}" if alias in OPS else "add custom_op: true if it is meant"
        yield Finding("op", f"op {op!r} is not in the vocabulary", remedy)
    if "reduction_op" in event and op not in REDUCTION_OPS:
        yield Finding("reduction_op", f"reduction_op is given on {op}", "only all_reduce and reduce_scatter reduce")
    for name in ("dtype", "reduction_op"):
        if name in event and f"lab_{name}" in event:
            yield Finding(f"lab_{name}", f"is given beside {name}", "remove one of the two")


def _parts_of_ns(event: Mapping[str, Any]) -> Iterator[Finding]:
    values = [(name, event[name]) for name in _TIME_FIELDS if name in event]
    for name in _TIME_LISTS:
        items = event.get(name, [])
        values += [(name, x) for x in (items.values() if isinstance(items, dict) else items) if x is not None]
    for name, value in values:
        if not us_to_ns(value)[1]:
            remedy = "round it to 3 decimals, or accept rounding with --round-ns"
            yield Finding(name, f"{float(value)!r} us is not a whole number of nanoseconds", remedy)


def _members(event: Mapping[str, Any], ranks: Sequence[int], world: int | None) -> Iterator[Finding]:
    members = set(ranks)
    if "rank_count" in event and event["rank_count"] != len(members):
        what = f"rank_count is {event['rank_count']} but ranks has {len(members)}"
        yield Finding("rank_count", what, "remove rank_count or make it agree")
    if world is not None and max(members) >= world:
        yield Finding("ranks", f"rank {max(members)} is outside system.world_size {world}", "correct the rank or the world size")
    for name in ("root_rank", "sender_rank", "receiver_rank"):
        if name in event and event[name] not in members:
            yield Finding(name, f"{name} {event[name]} is not among the ranks", "name a member of the group")
        elif name != "root_rank" and name not in event and event.get("op") == "point_to_point":
            yield Finding(name, "is missing", "point_to_point needs sender_rank and receiver_rank")


def _reports(event: Mapping[str, Any], ranks: Sequence[int]) -> Iterator[Finding]:
    """Check what the reporting ranks say."""
    observers, members = event.get("lab_observers", ranks), set(ranks)
    if not set(observers) <= members:
        yield Finding("lab_observers", "names a rank that is not a member", "list members only")
    if "lab_observers" in event and observers != sorted(set(observers)):
        yield Finding("lab_observers", "is not in ascending order, or names a rank twice", "list each rank once, in ascending order")
    for name in ("lab_duration_us", "lab_rank_start_us"):
        if event.get(name) and len(event[name]) != len(observers):
            yield Finding(name, f"has {len(event[name])} values for {len(observers)} reporting ranks", "give one value per reporting rank")
    expected = len(observers) * (2 * len(members) + 2)
    if event.get("lab_splits") and len(event["lab_splits"]) != expected:
        yield Finding("lab_splits", f"has {len(event['lab_splits'])} values, expected {expected}", "re-export the trace")


def _arrivals(event: Mapping[str, Any], ranks: Sequence[int]) -> Iterator[Finding]:
    arrival, skew = event.get("rank_arrival_us"), event.get("arrival_skew_us")
    values: list[float] = []
    if isinstance(arrival, dict):
        expected = {str(r) for r in ranks}
        if set(arrival) != expected:
            lacking = sorted(expected - set(arrival), key=int)
            surplus = sorted(set(arrival) - expected)
            what = f"has no value for rank {lacking[0]}" if lacking else f"names rank {surplus[0]}, which is not a member"
            yield Finding("rank_arrival_us", what, "give exactly the ranks as keys")
        else:
            values = list(arrival.values())
    elif arrival is not None:
        if len(arrival) != len(ranks):
            yield Finding("rank_arrival_us", f"has {len(arrival)} values for {len(ranks)} ranks", "give one value per rank")
        else:
            values = arrival
    if skew is not None and arrival is None and len(ranks) == 1 and skew != 0:
        yield Finding("arrival_skew_us", f"is {skew} on a group of one rank", "one rank has no skew: remove it")
    if skew is not None and values:
        high, low, stated = us_to_ns([max(values), min(values), skew])[0].tolist()
        if abs(high - low - stated) > 1:
            what = f"is {skew} but the arrivals differ by {(high - low) / 1000}"
            yield Finding("arrival_skew_us", what, "remove it or make it agree")
    if event.get("arrival_skew_unknown") is True and (arrival is not None or skew is not None):
        yield Finding("arrival_skew_unknown", "arrivals are given although they are declared unknown", "remove one of the two")
    if event.get("partial_rank_arrival") is True:
        remedy = "give all ranks, or arrival_skew_unknown: true"
        yield Finding("partial_rank_arrival", "arrivals of only some ranks are refused", remedy)


def _timing_problems(events: Sequence[Any], file: str) -> Sequence[Problem]:
    """Contradicting timing, as far as the timing fields themselves are readable."""
    columns = {}
    for name in ("start_us", "gap_us"):
        values = [e.get(name) if isinstance(e, dict) else None for e in events]
        if not all(v is None or (type(v) in (int, float) and 0 <= v <= MAX_TIME_US) for v in values):
            return ()
        column = Column.from_optional(values, np.float64)
        columns[name] = Column(us_to_ns(column.values)[0], column.known)
    n = len(events)
    trace = Trace.build(
        n, op=Coded.constant(n, None), group=np.zeros(n, np.int32), groups=(), size_bytes=np.zeros(n, np.int64),
        start_ns=columns["start_us"], gap_ns=columns["gap_us"],
    )  # fmt: skip
    order = np.argsort(trace.start_ns.values, kind="stable") if trace.start_ns.all_known else np.arange(n)
    try:
        check_timing(trace.rows(order), file, order)
    except TimingError as e:
        return e.problems
    return ()
