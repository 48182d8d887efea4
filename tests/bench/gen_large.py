#!/usr/bin/env python3
"""A generated trace of any number of events, made column by column: ten million take seconds.

    python tests/bench/gen_large.py 10000000 trace.parquet

A job of 64 ranks: tensor parallelism of 8, data parallelism across the nodes. Gaps and skews are lognormal, one event in a thousand
comes late, and every event says how long it took on one rank. The same number of events always gives the same trace.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from commcanary_lab.trace import Coded, Column, ImportCoverage, ProcessGroup, Ragged, Trace
from commcanary_lab.trace.parquet import write_parquet

__all__ = ["large_trace"]

SEED = 20260101
OPS = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")


def large_trace(events: int) -> Trace:
    """Return a trace of `events` irregular events."""
    rng = np.random.default_rng(SEED + events)
    groups = (*(ProcessGroup(f"tp{i}", tuple(range(8 * i, 8 * i + 8))) for i in range(8)), ProcessGroup("dp", tuple(range(0, 64, 8))))
    group = rng.integers(0, 9, events, dtype=np.int32)
    late = rng.random(events) < 0.001
    gap_us = np.exp(rng.normal(4.0, 0.5, events)) + 400.0 * late
    skew_us = np.exp(rng.normal(1.0, 0.8, events)) + 50.0 * late
    took_us = 20.0 + skew_us + np.exp(rng.normal(2.5, 0.4, events))

    def ns(us: np.ndarray) -> np.ndarray:
        return np.rint(us * 1000).astype(np.int64)

    start = np.cumsum(ns(gap_us))
    first = np.array([g.members[0] for g in groups])
    one = np.arange(events + 1, dtype=np.int64)
    return Trace.build(
        events,
        op=Coded(rng.integers(0, len(OPS), events, dtype=np.int32), OPS),
        phase=Coded((np.arange(events) // 500 % 2).astype(np.int32), ("decode", "prefill")),
        groups=groups,
        group=group,
        size_bytes=np.int64(1) << rng.integers(12, 24, events),
        start_ns=Column(start - start[0]),
        overlap_ns=Column(ns(rng.random(events) * 20.0)),
        pressure=Column(np.round(rng.random(events), 2)),
        arrival_ns=Ragged(ns(skew_us), one),
        observers=group,
        rank_sets=tuple((int(r),) for r in first),
        duration_ns=Ragged(ns(took_us), one),
        coverage=ImportCoverage(read=events, used=events),
        source_format="generated",
    )


def main() -> int:
    """Write the trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("events", type=int)
    parser.add_argument("output", type=Path, help="a .parquet file")
    given = parser.parse_args()
    write_parquet(large_trace(given.events), given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
