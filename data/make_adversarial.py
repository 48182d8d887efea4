#!/usr/bin/env python3
"""Make `samples/adversarial.json`: 100 events on which a minimiser that watches only rankings goes wrong.

A decode loop of two ranks issues small all-reduces back to back. Every twentieth event from the eleventh on is a tail window:
rank 1 arrives 500 us late while far more compute runs concurrently than the wait takes, under full pressure. The event after it
follows a pause of 500 us in which the queue drains. Drop the pauses, or the windows, and the pairwise rankings of configurations
can survive while exposed latency, queueing and the tail do not.

The events equal the published example of this shape, one by one. Standard library only; the same bytes every time.

    python data/make_adversarial.py [OUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sample_json import SAMPLES, write_document

COUNT = 100
PERIOD = 20
TAIL_AT = 10  # position of the tail window in each period; the pause comes right after it


def event(i: int) -> dict[str, object]:
    """Return event `i`."""
    tail, pause = i % PERIOD == TAIL_AT, i % PERIOD == TAIL_AT + 1
    return {
        "id": f"event-{i}",
        "phase": "decode",
        "op": "all_reduce",
        "group": "tp",
        "ranks": [0, 1],
        "bytes": 1024,
        "gap_us": 500.0 if pause else 1.0,
        "rank_arrival_us": {"0": 0.0, "1": 500.0 if tail else 0.0},
        "compute_overlap_us": 10000.0 if tail else 0.0,
        "compute_pressure": 1.0 if tail else 0.5,
    }


def document() -> dict[str, object]:
    """Return the whole trace."""
    notes = ("Synthetic. Small all-reduces back to back; rare late arrivals hidden under long compute, "
             "each followed by a pause that empties the queue.")
    return {
        "format": "commcanary.trace.v1",
        "workload": {"name": "adversarial-decode", "notes": notes, "origin": "synthetic: data/make_adversarial.py"},
        "events": [event(i) for i in range(COUNT)],
    }


if __name__ == "__main__":
    write_document(document(), Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES / "adversarial.json")
