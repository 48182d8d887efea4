"""An independent, slow reference of the commcanary-v4 model, in plain Python, straight from its description."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from decimal import Decimal
from typing import Any

from commcanary_lab.simulate import Backend
from commcanary_lab.trace import Trace
from commcanary_lab.trace.write_v1 import event_objects

MASK = (1 << 64) - 1


def splitmix64(v: int) -> int:
    v = (v + 0x9E3779B97F4A7C15) & MASK
    v = ((v ^ (v >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    v = ((v ^ (v >> 27)) * 0x94D049BB133111EB) & MASK
    return v ^ (v >> 31)


def uniform(counter: int, lane: int) -> float:
    return (splitmix64(counter ^ (lane * 0x9E3779B97F4A7C15 & MASK)) >> 11) / 2**53


def events_of(trace: Trace) -> list[dict[str, Any]]:
    """Prepared events: offsets, gap, keys."""
    out, previous = [], None
    by_start = all("start_us" in e for e in event_objects(trace))
    for e in event_objects(trace):
        ranks = e["ranks"]
        given = e.get("rank_arrival_us")
        if given is not None:
            low = min(given.values())
            offsets = [round(given[str(r)] - low, 9) for r in ranks]
        else:
            offsets = [0.0] * len(ranks)
            if len(ranks) > 1:
                offsets[-1] = e.get("arrival_skew_us", 0.0)
        if by_start:
            gap = e.get("gap_us", 0.0) if previous is None else float(Decimal(repr(e["start_us"])) - Decimal(repr(previous)))
            previous = e["start_us"]
        else:
            gap = e.get("gap_us", e.get("compute_before_us", 0.0))
        size = e.get("lab_bytes", e["bytes"])
        e |= {k.removeprefix("lab_"): e[k] for k in ("lab_reduction_op", "lab_dtype") if k in e}
        out.append(
            {**e, "bytes": size, "offsets": offsets, "gap": gap, "group": e.get("group", "default"), "phase": e.get("phase", "unknown")}
        )
    return out


def identities(events: list[dict[str, Any]]) -> None:
    """Number the occurrences and hash the identity of each event."""
    seen: dict[Any, int] = defaultdict(int)
    for e in events:
        key = json.dumps(
            [
                e.get(k)
                for k in (
                    "phase",
                    "op",
                    "dtype",
                    "reduction_op",
                    "bytes",
                    "ranks",
                    "group",
                    "root_rank",
                    "sender_rank",
                    "receiver_rank",
                    "tag",
                    "channel",
                    "message_sequence",
                )
            ]
            + [e.get("concurrent_groups", 1), e.get("custom_op", False)]
        )
        e["occurrence"] = seen[key]
        seen[key] += 1
        identity = {
            "arrival_offsets_us": e["offsets"],
            "group": e["group"],
            "occurrence": e["occurrence"],
            "op": e["op"],
            "phase": e["phase"],
            "ranks": e["ranks"],
        }
        for k in ("reduction_op", "root_rank", "sender_rank", "receiver_rank", "message_sequence", "tag", "channel"):
            if k in e:
                identity[k] = e[k]
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        e["hash"] = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def factor(op: str, n: int) -> float:
    return {
        "all_reduce": 2 * (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "all_gather": (n - 1) / n,
        "all_to_all": 1.6,
        "broadcast": 0.8,
    }.get(op, 1)


def service(e: dict[str, Any], backend: Backend, iteration: int, ablations: frozenset[str]) -> float:
    n = len(e["ranks"])
    skew = max(e["offsets"]) - min(e["offsets"])
    groups = e.get("concurrent_groups", 1)
    pressure = 0.55 if "pressure" in ablations else e.get("compute_pressure", 0.5)
    p = min(1.5, max(0.0, backend.compute_pressure * pressure / 0.55))
    counter = ((backend.seed ^ ((iteration + 1) * 0xD6E8FEB86659FD93)) ^ e["hash"]) & MASK
    noise = -0.45 + uniform(counter, 0) * 1.35
    p_tail = min(0.35, 0.015 + skew / 180 + p * 0.035 + (groups - 1) * 0.04)
    if "rare_tail_windows" not in ablations and uniform(counter, 1) <= p_tail:
        noise -= math.log(max(1e-15, 1 - uniform(counter, 2))) * (3.5 + p * 8 + skew * 0.08)
    startup = backend.latency_floor_us + math.log2(max(2, n)) * 1.15 + 4
    transfer = e["bytes"] * 8 / (backend.bandwidth_gbps * 1000)
    return max(0.5, startup + transfer * factor(e["op"], n) * (1 + (groups - 1) * 0.22) * (1 + p * 0.18) + noise)


def resource(e: dict[str, Any]) -> Any:
    if e["op"] == "point_to_point" and "sender_rank" in e and "receiver_rank" in e:
        group = e["group"] if e["group"] != "default" else tuple(e["ranks"])
        return (
            group,
            e["sender_rank"],
            e["receiver_rank"],
            e.get("channel", "default"),
            e.get("tag", "default"),
            e.get("message_sequence"),
        )
    return e["group"] if e["group"] != "default" else tuple(e["ranks"])


def order_key(e: dict[str, Any]) -> Any:
    return (
        e["phase"],
        e["op"],
        e.get("dtype", ""),
        e.get("reduction_op", ""),
        e["bytes"],
        e["group"],
        tuple(e["ranks"]),
        e.get("root_rank", -1),
        e.get("sender_rank", -1),
        e.get("receiver_rank", -1),
        e.get("tag", ""),
        e.get("channel", ""),
    )


def exposed(trace: Trace, backend: Backend, ablations: frozenset[str] = frozenset()) -> list[float]:
    """Exposed latency of each event of each iteration, in the order of the run."""
    events = events_of(trace)
    if "arrival_skew" in ablations:
        for e in events:
            e["offsets"] = [0.0] * len(e["ranks"])
    identities(events)
    if "operation_ordering" in ablations:
        events.sort(key=order_key)
    out = []
    for iteration in range(backend.iterations):
        clock, free = 0.0, defaultdict(float)
        for e in events:
            clock += 0.0 if "queue_reset_gaps" in ablations else e["gap"]
            last = clock + max(e["offsets"]) - min(e["offsets"])
            start = max(last, free[resource(e)])
            completion = start + service(e, backend, iteration, ablations)
            free[resource(e)] = completion
            total = completion - clock
            overlap = 0.0 if "compute_overlap" in ablations else e.get("compute_overlap_us", 0.0)
            out.append(total - min(total, overlap * backend.overlap_efficiency))
    return out
