"""The slow, complete checker of ``commcanary.trace.v1``: every error with file, event, field, value and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from commcanary_lab.canonical import loads_strict
from commcanary_lab.errors import FormatError, InputError, Problem
from commcanary_lab.trace.ops import OPS, REDUCTION_OPS, canonical_dtype, canonical_op, canonical_reduction
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS, EVENT_SCHEMA, FORMAT, TOP_FIELDS

__all__ = ["check_document"]

_MAX_WARNINGS = 20


def check_document(data: bytes, file: str) -> tuple[list[Problem], list[str]]:
    """Check a whole file.

    Parameters
    ----------
    data : bytes
        The file's content.
    file : str
        Its name, for messages.

    Returns
    -------
    problems : list of Problem
        Everything that is wrong, in file order.
    warnings : list of str
        Unknown fields, with the nearest known name.

    Raises
    ------
    FormatError
        If the file is not a JSON object of this format at all.
    """
    try:
        document = loads_strict(data, file)
    except InputError as e:
        raise FormatError(e.problems) from None
    if not isinstance(document, dict):
        raise FormatError(f"the top level is {_kind(document)}, not an object", file=file, remedy=f"expected format {FORMAT}")
    if document.get("format") != FORMAT:
        raise FormatError(f"format is {document.get('format')!r}", file=file, field="format", remedy=f"expected {FORMAT!r}")
    problems = [
        Problem(f"{name} is {_kind(document[name])}, not an object", file=file, field=name, remedy="write an object")
        for name in ("workload", "system")
        if name in document and not isinstance(document[name], dict)
    ]
    events = document.get("events")
    if not isinstance(events, list):
        what = "missing" if events is None else f"{_kind(events)}, not an array"
        raise FormatError([*problems, Problem(f"events is {what}", file=file, field="events", remedy="write a list of event objects")])
    warnings = _unknown({k: 1 for k in document if k not in TOP_FIELDS}, TOP_FIELDS, f"{file}: top level")
    unknown: dict[str, int] = {}
    world = document.get("system", {}).get("world_size") if isinstance(document.get("system"), dict) else None
    ids: dict[str, int] = {}
    for i, event in enumerate(events):
        for field, what, remedy in _event_problems(event, world if isinstance(world, int) else None):
            problems.append(Problem(what, file=file, record=i, field=field, remedy=remedy))
        if isinstance(event, dict):
            for key in event.keys() - set(EVENT_FIELDS):
                unknown[key] = unknown.get(key, 0) + 1
            name = event.get("id")
            if isinstance(name, str) and ids.setdefault(name, i) != i:
                problems.append(
                    Problem(
                        f"id {name!r} is already used by event {ids[name]}",
                        file=file,
                        record=i,
                        field="id",
                        remedy="give every event its own id",
                    )
                )
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
    return problems, warnings + _unknown(unknown, EVENT_FIELDS, file)


def _unknown(names: Mapping[str, int], known: tuple[str, ...], where: str) -> list[str]:
    out = []
    for name in sorted(names)[:_MAX_WARNINGS]:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        count = f" on {names[name]} event{'s' if names[name] > 1 else ''}" if "top level" not in where else ""
        out.append(f"{where}: unknown field {name!r}{count} is not used{hint}")
    if len(names) > _MAX_WARNINGS:
        out.append(f"{where}: {len(names) - _MAX_WARNINGS} more unknown fields are not used")
    return out


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


_Finding = tuple[str | None, str, str | None]


def _event_problems(event: Any, world: int | None) -> Iterator[_Finding]:
    """Yield (field, what, remedy) for everything that is wrong with one event."""
    if not isinstance(event, dict):
        yield None, f"is {_kind(event)}, not an object", "write an object with op, bytes and ranks"
        return
    bad: set[str] = set()
    for error in _validator().iter_errors(event):
        field, what, remedy = _explain(error, event)
        bad.add(field or "")
        yield field, what, remedy
    yield from _vocabulary(event, bad)
    if "ranks" in bad or "ranks" not in event:
        return
    ranks = list(range(event["ranks"])) if isinstance(event["ranks"], int) else event["ranks"]
    yield from _members(event, ranks, world, bad)
    yield from _arrivals(event, ranks, bad)
    if event.get("compute_overlap_unknown") is True and "compute_overlap_us" in event:
        yield "compute_overlap_unknown", "compute_overlap_us is given although it is declared unknown", "remove one of the two"


_cached_validator: Any = None


def _validator() -> Any:
    global _cached_validator
    if _cached_validator is None:
        from jsonschema import Draft202012Validator

        _cached_validator = Draft202012Validator(EVENT_SCHEMA)
    return _cached_validator


def _explain(error: Any, event: Mapping[str, Any]) -> _Finding:
    path = list(error.absolute_path)
    field = str(path[0]) if path else None
    if error.validator == "required":
        name = error.message.split("'")[1]
        return name, "is missing", f"every event needs {name}"
    value = repr(error.instance)
    value = value if len(value) <= 60 else value[:57] + "..."
    inner = "".join(f"[{p}]" for p in path[1:])
    label = f"{field}{inner}" if field else "event"
    if error.validator == "enum" and field == "dtype":
        alias = canonical_dtype(str(error.instance)) if isinstance(error.instance, str) else None
        return field, f"dtype {value} is not a known dtype", f"write {alias!r}" if alias else "see the dtype table of the format"
    if error.validator == "enum" and field == "reduction_op":
        alias = canonical_reduction(str(error.instance)) if isinstance(error.instance, str) else None
        return field, f"reduction_op {value} is not known", f"write {alias!r}" if alias else "one of sum, avg, min, max, product"
    limits = {
        "minimum": "at least",
        "maximum": "at most",
        "minLength": "of length at least",
        "maxLength": "of length at most",
        "minItems": "of at least this many items:",
    }
    if error.validator in limits:
        return field, f"{label} is {value}", f"expected a value {limits[error.validator]} {error.validator_value}"
    if error.validator == "type":
        expected = error.validator_value if isinstance(error.validator_value, str) else " or ".join(error.validator_value)
        remedy = (
            "leave the field out where the value is unknown"
            if error.instance is None
            else f"write {_article(expected)}, without quotes"
            if isinstance(error.instance, str) and expected in ("number", "integer")
            else f"expected {_article(expected)}"
        )
        return field, f"{label} is {_kind(error.instance)} ({value})", remedy
    if error.validator == "uniqueItems":
        return field, "ranks lists a rank twice", "list each rank once"
    if error.validator == "anyOf":
        details = sorted({s.message for s in error.context})[:2]
        return field, f"{label} is {value}: {'; '.join(details)}"[:300], "see the format description"
    return field, f"{label}: {error.message}"[:300], None


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


def _vocabulary(event: Mapping[str, Any], bad: set[str]) -> Iterator[_Finding]:
    op = event.get("op")
    if not isinstance(op, str) or "op" in bad:
        return
    custom = event.get("custom_op") is True
    if op not in OPS and not custom:
        alias = canonical_op(op)
        yield "op", f"op {op!r} is not in the vocabulary", f"write {alias!r}" if alias in OPS else "add custom_op: true if it is meant"
    if "reduction_op" in event and op not in REDUCTION_OPS:
        yield "reduction_op", f"reduction_op is given on {op}", "only all_reduce and reduce_scatter reduce"


def _members(event: Mapping[str, Any], ranks: list[int], world: int | None, bad: set[str]) -> Iterator[_Finding]:
    members = set(ranks)
    if "rank_count" in event and "rank_count" not in bad and event["rank_count"] != len(members):
        yield "rank_count", f"rank_count is {event['rank_count']} but ranks has {len(members)}", "remove rank_count or make it agree"
    if world is not None and max(members) >= world:
        yield "ranks", f"rank {max(members)} is outside system.world_size {world}", "correct the rank or the world size"
    for name in ("root_rank", "sender_rank", "receiver_rank"):
        if name in event and name not in bad and event[name] not in members:
            yield name, f"{name} {event[name]} is not among the ranks", "name a member of the group"
    if event.get("op") == "point_to_point":
        for name in ("sender_rank", "receiver_rank"):
            if name not in event:
                yield name, "is missing", "point_to_point needs sender_rank and receiver_rank"
    for name in ("lab_duration_us", "lab_rank_start_us"):
        observers = event.get("lab_observers", ranks)
        if isinstance(event.get(name), list) and isinstance(observers, list) and len(event[name]) != len(observers):
            yield name, f"has {len(event[name])} values for {len(observers)} reporting ranks", "give one value per reporting rank"
    observers = event.get("lab_observers")
    if isinstance(observers, list) and "lab_observers" not in bad and not set(observers) <= members:
        yield "lab_observers", "names a rank that is not a member", "list members only"
    if isinstance(event.get("lab_splits"), list):
        rows = len(observers) if isinstance(observers, list) else len(members)
        if len(event["lab_splits"]) != rows * (2 * len(members) + 2):
            yield "lab_splits", f"has {len(event['lab_splits'])} values, expected {rows * (2 * len(members) + 2)}", "re-export the trace"


def _arrivals(event: Mapping[str, Any], ranks: list[int], bad: set[str]) -> Iterator[_Finding]:
    arrival = event.get("rank_arrival_us")
    values: list[float] = []
    if "rank_arrival_us" in bad:
        arrival = None
    if isinstance(arrival, dict):
        expected = {str(r) for r in ranks}
        if set(arrival) != expected:
            lacking = sorted(expected - set(arrival), key=int)
            surplus = sorted(set(arrival) - expected)
            what = f"has no value for rank {lacking[0]}" if lacking else f"names rank {surplus[0]}, which is not a member"
            yield "rank_arrival_us", what, "give exactly the ranks as keys"
        else:
            values = list(arrival.values())
    elif isinstance(arrival, list):
        if len(arrival) != len(ranks):
            yield "rank_arrival_us", f"has {len(arrival)} values for {len(ranks)} ranks", "give one value per rank"
        else:
            values = arrival
    skew = event.get("arrival_skew_us")
    if values and isinstance(skew, (int, float)) and "arrival_skew_us" not in bad and abs(max(values) - min(values) - skew) > 1.0000001e-3:
        yield "arrival_skew_us", f"is {skew} but the arrivals differ by {max(values) - min(values):.3f}", "remove it or make it agree"
    if event.get("arrival_skew_unknown") is True and (arrival is not None or "arrival_skew_us" in event):
        yield "arrival_skew_unknown", "arrivals are given although they are declared unknown", "remove one of the two"
    if event.get("partial_rank_arrival") is True:
        yield "partial_rank_arrival", "arrivals of only some ranks are refused", "give all ranks, or arrival_skew_unknown: true"
