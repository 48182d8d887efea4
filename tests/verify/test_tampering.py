"""A canary changed anywhere is refused when it is read, or reported when it is verified."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canary.read import read_canary_bytes
from commcanary_lab.canary.streams import BoundedStream, ExactStream
from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.errors import FormatError, RefusedError
from commcanary_lab.simulate import Backend
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json_bytes
from commcanary_lab.verify.run import verify_canary

BACKENDS = (Backend("a"), Backend("b", bandwidth_gbps=99))
KNOWN = {"skew_us": 0.0, "overlap_us": 0.0}


def _event(i: int, draw: np.random.Generator, clock: float, timing: str) -> dict[str, Any]:
    def us(scale: float) -> float:
        return round(float(draw.random()) * scale, 3)

    out: dict[str, Any] = {"id": f"e{i}", "phase": "decode" if i % 3 else "prefill", "bytes": 1024, "ranks": [0, 1, 2, 3]}
    out["compute_before_us"] = us(9)
    if timing == "start" or (timing == "mixed" and i % 2):
        out["start_us"] = round(clock, 3)
    if timing in ("gap", "mixed"):
        out["gap_us"] = us(60)
    kinds: tuple[dict[str, Any], ...] = (
        {"op": "all_reduce", "group": "tp", "reduction_op": "sum", "dtype": "bfloat16"},
        {"op": "point_to_point", "sender_rank": 0, "receiver_rank": 1 + i % 3, "message_sequence": i, "tag": "t", "channel": "c"},
        {"op": "broadcast", "group": "tp", "root_rank": 2},
        {"op": "barrier", "group": "tp", "custom_op": True, "lab_bytes": 0, "bytes": 1},
    )
    out |= kinds[i % 4 if i % 8 else 0]
    arrivals: tuple[dict[str, Any], ...] = (
        {"rank_arrival_us": [us(4) for _ in range(4)]},
        {"arrival_skew_us": us(5)},
        {"arrival_skew_unknown": True},
        {},
    )
    out |= arrivals[i % 4]
    out |= {"compute_overlap_unknown": True} if i % 7 == 0 else {"compute_overlap_us": us(9)}
    return out | {"compute_pressure": us(1) / (1 + 2 * (i % 2)), "concurrent_groups": 1 + i % 2, "observed_exposed_us": us(9)}


def mixed_trace(n: int, timing: str) -> Trace:
    """Every kind of event and field, some unknown, with notes."""
    draw = np.random.default_rng(3)
    clock = np.cumsum(draw.lognormal(3, 0.5, n))
    events = [_event(i, draw, float(clock[i]), timing) for i in range(n)]
    document = {"format": "commcanary.trace.v1", "workload": {}, "system": {}, "events": events}
    return replace(read_json_bytes(canonical_bytes(document)), notes=("observational",))


def changes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every place of a document (long lists: ends only) and what is done to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), "delete"
            yield from changes(inner, (*path, key))
    elif isinstance(value, list):
        if value and path:
            yield path, "repeat last"
        for i in sorted({*range(min(2, len(value))), len(value) - 1}) if value else ():
            yield from changes(value[i], (*path, i))
    else:
        yield path, "change"


def _changed_leaf(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    return "x" if value is None else value[:-1] + ("1" if value.endswith("0") else "0")


def changed(document: Any, path: tuple[Any, ...], how: str) -> Any:
    out = copy.deepcopy(document)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    if how == "delete":
        del inner[path[-1]]
    elif how == "repeat last":
        inner[path[-1]].append(copy.deepcopy(inner[path[-1]][-1]))
    else:
        inner[path[-1]] = _changed_leaf(inner[path[-1]])
    return out


@pytest.mark.parametrize(
    ("timing", "records", "events"),
    [("gap", None, 16), ("start", None, 16), ("compute_before", None, 16), ("start", 2, 160), ("mixed", 2, 160)],
)
def test_no_change_of_a_canary_goes_unnoticed(timing: str, records: int | None, events: int) -> None:
    trace = mixed_trace(events, timing)
    canary = compile_trace(trace, records=records)
    document = json.loads(canary.canonical)
    if records is not None:
        assert {type(s) for s in canary.streams} == {BoundedStream, ExactStream}

    def noticed(data: bytes) -> bool:
        found = verify_canary(trace, read_canary_bytes(data), backends=BACKENDS, assume=KNOWN)
        return any(not c.passed for c in found.checks if c.status not in ("ranking", "behavior"))

    assert not noticed(canary.canonical)
    unnoticed = []
    for path, how in changes(document):
        try:
            if not noticed(canonical_bytes(changed(document, path, how))):
                unnoticed.append((path, how))
        except (FormatError, RefusedError):
            continue
    assert not unnoticed


def test_an_event_after_the_last_one_is_no_partial_canary() -> None:
    whole = mixed_trace(20, "start")
    found = verify_canary(whole, compile_trace(whole.take(slice(0, 19))), backends=BACKENDS, assume=KNOWN)
    assert (found.coverage, found.bounds, found.claim) == ("partial_source", "mismatch", "refused")


def test_a_canary_of_a_range_says_nothing_of_other_groups() -> None:
    trace = mixed_trace(40, "gap")
    rows = np.flatnonzero(trace.sender.mask)[:1]
    part = compile_trace(trace, events=(int(rows[0]), int(rows[0]) + 1))
    assert [g.name for g in part.signatures.groups] == [None]
    assert "tp" not in json.dumps(json.loads(part.canonical)["groups"])


def test_a_salt_for_an_unsalted_canary_is_refused() -> None:
    trace = mixed_trace(8, "gap")
    with pytest.raises(RefusedError, match="unsalted"):
        verify_canary(trace, compile_trace(trace), salt=b"x" * 16, assume=KNOWN)
