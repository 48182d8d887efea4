#!/usr/bin/env python3
"""Deterministic NCCL Inspector output of a job with tensor and data parallelism (standard library only).

  python3 gen_inspector.py OUT_DIR [--records N] [--tp T] [--dp D] [--gpus-per-node G] [--files F] [--verbose]

Every rank is a process. Per step a rank takes part in 24 all-reduces of its TP group and one of its DP group. The plugin dumps about
every 50 records, at another moment on each rank, one communicator after the other, as the real one does. Ranks share files where there are
more of them than files.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
KINDS = (("TP", 24, 64 * MIB), ("DP", 1, 512 * MIB))
LINE = (
    '{"header":{"id":"%s","comm_name":"%s","rank":%d,"n_ranks":%d,"nnodes":%d},"metadata":{"inspector_output_format_version":"v4.2",'
    '"git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":%d,"hostname":"node-%d","pid":%d},"coll_perf":'
    '{"coll":"AllReduce","coll_sn":%d,"coll_msg_size_bytes":%d,"coll_exec_time_us":%d,"coll_timing_source":"kernel_gpu",'
    '"coll_algobw_gbs":%f,"coll_busbw_gbs":%f%s}}\n'
)
VERBOSE = (
    ',"event_trace_sn":{"coll_start_sn":1,"coll_stop_sn":2,"kernel_events":[{"channel_id":0,"kernel_start_sn":3,"kernel_stop_sn":5,'
    '"kernel_record_sn":4}]},"event_trace_ts":{"coll_start_ts":%d,"coll_stop_ts":%d,"kernel_events":[{"channel_id":0,"kernel_start_ts":%d,'
    '"kernel_stop_ts":%d,"kernel_record_ts":%d},{"channel_id":1,"kernel_start_ts":0,"kernel_stop_ts":0,"kernel_record_ts":0}]}'
)


def records(rank: int, count: int, args: argparse.Namespace) -> Iterator[str]:
    """Lines of one rank."""
    rng = random.Random(f"{args.records}/{rank}")
    tp, dp = args.tp, args.dp
    comms = {
        "TP": (f"0xa{rank // tp:012x}", f"TP Group {rank // tp}", rank % tp, tp),
        "DP": (f"0xb{rank % tp:012x}", f"DP Group {rank % tp}", rank // tp, dp),
    }
    nodes = {"TP": -(-tp // args.gpus_per_node), "DP": min(dp, -(-tp * dp // args.gpus_per_node))}
    node, pid = rank // args.gpus_per_node, 1000 + rank
    sequence = dict.fromkeys(comms, 0)
    pending: dict[str, list[tuple[object, ...]]] = {"TP": [], "DP": []}
    clock, dumped, since = 1_748_030_377_000_000, 0, 0
    plan = [(kind, size) for kind, times, size in KINDS for _ in range(times)]
    due = rng.randrange(30, 70)
    for i in range(count):
        kind, size = plan[i % len(plan)]
        time = size // 50_000 + rng.randrange(200)
        clock += time + 100
        k = comms[kind][3]
        algbw = size / time / 1e3
        more = VERBOSE % (clock - time - 5, clock - time, clock - time + rng.randrange(9), clock, clock) if args.verbose else ""
        pending[kind].append((sequence[kind], size, time, algbw, algbw * 2 * (k - 1) / k, more))
        sequence[kind] += 1
        since += 1
        if since == due or i == count - 1:
            for which, rows in pending.items():
                for row in rows:
                    yield LINE % (*comms[which], nodes[which], clock + dumped, node, pid, *row)
                rows.clear()
            dumped, since, due = dumped + 1, 0, rng.randrange(30, 70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--tp", type=int, default=4)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--gpus-per-node", type=int, default=4)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    ranks = args.tp * args.dp
    args.out.mkdir(parents=True, exist_ok=True)
    per_file = -(-ranks // args.files)
    for first in range(0, ranks, per_file):
        with open(args.out / (f"node-{first // args.gpus_per_node}-pid{1000 + first}.log"), "w", encoding="ascii") as f:
            for rank in range(first, min(first + per_file, ranks)):
                f.writelines(records(rank, args.records // ranks, args))
    layout = f"gpus_per_node = {args.gpus_per_node}\ntp = {args.tp}\ndp = {args.dp}\n"
    (args.out.parent / f"{args.out.name}.toml").write_text(layout)


if __name__ == "__main__":
    main()
