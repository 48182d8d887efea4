#!/usr/bin/env python3
"""Make `samples/tp8_decode.json`: a tensor-parallel language model on eight ranks, one prefill pass and then decode steps.

Shape: 32 layers with two all-reduces each (after attention and after the MLP), and an all-gather of the logits per pass. Hidden
size 4096, vocabulary 128256, bfloat16, batch 4. The prefill pass covers prompts of 32 tokens, every decode step one token per
sequence. 1 prefill pass and 30 decode steps make 31 * 65 = 2015 events.

Timing follows rules with hashed jitter, no clock and no random generator: attention gaps grow with the context; compute overlaps
the MLP all-reduce; rank 5 is a little slow throughout; about one event in ninety has one rank late by up to 160 us; every tenth
step begins with a pause (the scheduler admits work). Everything is in whole nanoseconds.

Standard library only; the same bytes every time.

    python data/make_tp8_decode.py [OUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sample_json import SAMPLES, pick, write_document

RANKS = 8
LAYERS = 32
HIDDEN = 4096
VOCABULARY = 128_256
BATCH = 4
ELEMENT_BYTES = 2
PROMPT_TOKENS = 32
DECODE_STEPS = 30
SLOW_RANK = 5


def us(ns: int) -> float:
    """Nanoseconds as microseconds with at most three decimals."""
    return round(ns / 1000, 3)


def arrivals_ns(*key: object) -> list[int]:
    """Arrival of each rank after the first: jitter, a rank that is always slow, and rarely one that is very late."""
    late = [pick(0, 2_600, "jitter", *key, r) + (1_900 if r == SLOW_RANK else 0) for r in range(RANKS)]
    if pick(0, 90, "tail?", *key) == 0:
        late[pick(0, RANKS, "tail rank", *key)] += pick(40_000, 160_000, "tail", *key)
    return [t - min(late) for t in late]


def step_events(step: int) -> list[dict[str, object]]:
    """Events of one pass; step 0 is the prefill."""
    prefill = step == 0
    tokens = BATCH * PROMPT_TOKENS if prefill else BATCH
    context = PROMPT_TOKENS + step
    events = []
    for layer in range(LAYERS):
        for part in ("attention", "mlp"):
            key = (step, layer, part)
            if prefill:
                gap = (610_000 if part == "attention" else 890_000) + pick(0, 42_000, "gap", *key)
                overlap = pick(30_000, 55_000, "overlap", *key) if part == "mlp" else 0
            else:
                gap = 42_000 + 21 * context if part == "attention" else 58_000
                gap += pick(0, 4_200, "gap", *key)
                overlap = pick(3_000, 9_000, "overlap", *key) if part == "mlp" else 0
            if layer == 0 and part == "attention":
                gap += _pause_ns(step)
            pressure = (88, 97) if prefill else (42, 63)
            events.append(_event("all_reduce", tokens * HIDDEN * ELEMENT_BYTES, gap, overlap, pressure, key, prefill))
    key = (step, LAYERS, "logits")
    gap = 71_000 + pick(0, 6_000, "gap", *key)
    events.append(_event("all_gather", BATCH * VOCABULARY * ELEMENT_BYTES, gap, 0, (25, 36), key, prefill))
    return events


def _pause_ns(step: int) -> int:
    """Time between passes: sampling, and every tenth step the scheduler's work."""
    if step == 0:
        return 0
    return pick(150_000, 210_000, "sampling", step) + (1_350_000 if step % 10 == 1 else 0)


def _event(op: str, size: int, gap: int, overlap: int, pressure: tuple[int, int], key: tuple[object, ...],
           prefill: bool) -> dict[str, object]:
    event: dict[str, object] = {
        "phase": "prefill" if prefill else "decode",
        "op": op,
        "group": "tp",
        "ranks": RANKS,
        "bytes": size,
        "dtype": "bfloat16",
        "gap_us": us(gap),
        "compute_before_us": us(gap - gap // 9),
        "rank_arrival_us": [us(t) for t in arrivals_ns(*key)],
        "compute_overlap_us": us(overlap),
        "compute_pressure": pick(*pressure, "pressure", *key) / 100,
    }
    if op == "all_reduce":
        event["reduction_op"] = "sum"
    return event


def document() -> dict[str, object]:
    """Return the whole trace."""
    events = [event for step in range(1 + DECODE_STEPS) for event in step_events(step)]
    events[0]["gap_us"] = 0.0
    events[0]["compute_before_us"] = 0.0
    return {
        "format": "commcanary.trace.v1",
        "workload": {
            "name": "tp8-decode",
            "notes": "Synthetic. One prefill pass and 30 decode steps of a 32-layer model over 8 tensor-parallel ranks, batch 4.",
            "origin": "synthetic: data/make_tp8_decode.py",
        },
        "system": {"backend": "synthetic", "world_size": RANKS},
        "events": events,
    }


if __name__ == "__main__":
    write_document(document(), Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES / "tp8_decode.json")
