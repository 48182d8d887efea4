"""The interchange format ``commcanary.trace.v1``: its typed events and its JSON schema."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, cast, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from commcanary_lab.trace.ops import DTYPE_BYTES, REDUCTIONS
from commcanary_lab.units import MAX_TIME_US

__all__ = ["EVENT_FIELDS", "EVENT_SCHEMA", "FORMAT", "IGNORED_FIELDS", "TOP_FIELDS", "EventV1", "TraceV1", "narrowed"]

FORMAT = "commcanary.trace.v1"

_Time = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_US)]
_Rank = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=(1 << 62))]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class EventV1(msgspec.Struct, gc=False):
    """One event of the file, decoded without interpretation; ``UNSET`` where a field is absent."""

    op: _Text
    bytes: _Size
    ranks: list[_Rank] | Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    id: _Text | UnsetType = UNSET
    phase: _Text | UnsetType = UNSET
    group: _Text | UnsetType = UNSET
    dtype: _Text | UnsetType = UNSET
    custom_op: bool | UnsetType = UNSET
    reduction_op: _Text | UnsetType = UNSET
    rank_count: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | UnsetType = UNSET
    root_rank: _Rank | UnsetType = UNSET
    sender_rank: _Rank | UnsetType = UNSET
    receiver_rank: _Rank | UnsetType = UNSET
    message_sequence: Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))] | UnsetType = UNSET
    tag: _Text | UnsetType = UNSET
    channel: _Text | UnsetType = UNSET
    start_us: _Time | UnsetType = UNSET
    gap_us: _Time | UnsetType = UNSET
    compute_before_us: _Time | UnsetType = UNSET
    compute_overlap_us: _Time | UnsetType = UNSET
    compute_overlap_unknown: bool | UnsetType = UNSET
    compute_pressure: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | UnsetType = UNSET
    concurrent_groups: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | UnsetType = UNSET
    observed_exposed_us: _Time | UnsetType = UNSET
    rank_arrival_us: dict[str, _Time] | list[_Time] | UnsetType = UNSET
    arrival_skew_us: _Time | UnsetType = UNSET
    arrival_skew_unknown: bool | UnsetType = UNSET
    partial_rank_arrival: bool | UnsetType = UNSET
    compute_recipe: msgspec.Raw | UnsetType = UNSET
    compute_recipe_by_rank: msgspec.Raw | UnsetType = UNSET
    lab_bytes: Annotated[int, msgspec.Meta(ge=0, le=0)] | UnsetType = UNSET
    lab_observers: list[_Rank] | UnsetType = UNSET
    lab_splits: list[Annotated[int, msgspec.Meta(ge=-1, le=(1 << 62))]] | UnsetType = UNSET
    lab_duration_us: list[_Time | None] | UnsetType = UNSET
    lab_rank_start_us: list[_Time | None] | UnsetType = UNSET
    lab_dtype: _Text | UnsetType = UNSET
    lab_reduction_op: _Text | UnsetType = UNSET


class TraceV1(msgspec.Struct):
    """The file, decoded without interpretation."""

    format: str
    events: list[EventV1]
    workload: dict[str, Any] | UnsetType = UNSET
    system: dict[str, Any] | UnsetType = UNSET


EVENT_FIELDS: tuple[str, ...] = EventV1.__struct_fields__


@cache
def narrowed(fields: frozenset[str]) -> type[EventV1]:
    """Return an event type that has only the given fields and the required ones, in the order of `EventV1`.

    Examples
    --------
    >>> e = msgspec.json.decode(b'{"op": "all_reduce", "bytes": 8, "ranks": 2, "tag": "a", "phase": "b"}',
    ...                         type=narrowed(frozenset(["tag"])))
    >>> e.tag, hasattr(e, "phase")
    ('a', False)
    """
    kept = [f for f in msgspec.structs.fields(EventV1) if f.required or f.name in fields]
    hints = get_type_hints(EventV1, include_extras=True)
    specs = [(f.name, hints[f.name]) if f.required else (f.name, hints[f.name], UNSET) for f in kept]
    return cast("type[EventV1]", msgspec.defstruct("Event", specs, gc=False))


TOP_FIELDS = ("format", "workload", "system", "events")

#: Fields of the format that carry nothing this package computes with.
IGNORED_FIELDS = ("compute_recipe", "compute_recipe_by_rank")


def _event_schema() -> dict[str, Any]:
    time = {"type": "number", "minimum": 0, "maximum": MAX_TIME_US}
    rank = {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}
    text = {"type": "string", "minLength": 1, "maxLength": 4096}
    flag = {"type": "boolean"}
    times = {"type": "array", "items": {"anyOf": [time, {"type": "null"}]}}
    properties: dict[str, Any] = {
        "op": text, "bytes": {"type": "integer", "minimum": 1, "maximum": 1 << 62},
        "ranks": {"anyOf": [{"type": "array", "items": rank, "minItems": 1, "uniqueItems": True},
                            {"type": "integer", "minimum": 1, "maximum": 1 << 20}]},
        "id": text, "phase": text, "group": text, "tag": text, "channel": text,
        "dtype": {"enum": sorted(DTYPE_BYTES)}, "reduction_op": {"enum": sorted(REDUCTIONS)},
        "rank_count": {"type": "integer", "minimum": 1, "maximum": 1 << 31},
        "root_rank": rank, "sender_rank": rank, "receiver_rank": rank,
        "message_sequence": {"type": "integer", "minimum": 0, "maximum": 1 << 62},
        "compute_pressure": {"type": "number", "minimum": 0, "maximum": 1e6},
        "concurrent_groups": {"type": "integer", "minimum": 1, "maximum": 1 << 20},
        "rank_arrival_us": {"anyOf": [{"type": "object", "additionalProperties": time, "propertyNames": {"pattern": "^[0-9]+$"}},
                                      {"type": "array", "items": time}]},
        "lab_bytes": {"const": 0}, "lab_observers": {"type": "array", "items": rank},
        "lab_splits": {"type": "array", "items": {"type": "integer", "minimum": -1, "maximum": 1 << 62}},
        "lab_duration_us": times, "lab_rank_start_us": times, "lab_dtype": text, "lab_reduction_op": text,
        "compute_recipe": {"type": "array"}, "compute_recipe_by_rank": {"type": "object"},
    }  # fmt: skip
    properties.update(
        dict.fromkeys(("start_us", "gap_us", "compute_before_us", "compute_overlap_us", "observed_exposed_us", "arrival_skew_us"), time)
    )
    properties.update(dict.fromkeys(("custom_op", "compute_overlap_unknown", "arrival_skew_unknown", "partial_rank_arrival"), flag))
    return {"type": "object", "required": ["op", "bytes", "ranks"], "properties": properties}


EVENT_SCHEMA = _event_schema()
