"""Traces with every kind of event and field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.trace import Trace
from commcanary_lab.trace.json_v1 import read_json_bytes

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


def repeating_trace(n: int, timing: str) -> Trace:
    """Mostly one operation with the same fields, so that its timing is worth approximating; a few others keep theirs exact."""
    i = np.arange(n)
    return mixed_trace(n, timing).take(np.flatnonzero(((i % 4 == 0) & (i % 7 != 0) & (i % 3 != 0)) | (i < 7)))
