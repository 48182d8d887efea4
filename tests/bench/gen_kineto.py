#!/usr/bin/env python3
"""A generated PyTorch profiler trace of one rank, of any size: operators, launches, flows, compute kernels and collectives.

    python tests/bench/gen_kineto.py 1000 rank0.json     a file of about 1,000 MB

The same size always gives the same bytes. Events have the fields and about the lengths that the profiler writes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HEAD = """{
  "schemaVersion": 1,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1, "pg_config":
    [{"pg_name": "0", "pg_desc": "TP Group 0", "backend_config": "cuda:nccl", "pg_size": 8, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}]},
  "baseTimeNanoseconds": 1760000000000000000,
  "traceEvents": [
"""
OPERATOR = """  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::{name}", "pid": 4100, "tid": 4100,
    "ts": {ts}.{ns:03}, "dur": {dur}.250,
    "args": {{
      "External id": {id},"Record function id": 0, "Sequence number": {id}, "Fwd thread id": 0, "Ev Idx": {id}
    }}
  }},
"""
LAUNCH = """  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4100, "tid": 4100,
    "ts": {ts}.{ns:03}, "dur": 4.125,
    "args": {{
      "External id": {id}, "cbid": 211, "correlation": {id}
    }}
  }},
  {{
    "ph": "s", "id": {id}, "pid": 4100, "tid": 4100, "ts": {ts}.{ns:03},
    "cat": "ac2g", "name": "ac2g"
  }},
"""
KERNEL = """  {{
    "ph": "X", "cat": "kernel", "name": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "pid": 0, "tid": 7,
    "ts": {ts}.{ns:03}, "dur": {dur}.512,
    "args": {{
      "External id": {id}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {id},
      "registers per thread": 168, "shared memory": 213040, "blocks per SM": 1.93, "warps per SM": 23.2,
      "grid": [32, 8, 1], "block": [384, 1, 1], "est. achieved occupancy %": 18
    }}
  }},
"""
COLLECTIVE = """  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts}.{ns:03}, "dur": {dur}.125,
    "args": {{
      "Collective name": "{op}", "dtype": "BFloat16", "In msg nelems": {count}, "Out msg nelems": {count},
      "In split size": "[]", "Out split size": "[]", "Group size": 8, "Process Group Name": "0",
      "Process Group Description": "TP Group 0", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]", "Rank": 0, "Seq": {seq},
      "External id": {id}{more}
    }}
  }},
"""
TAIL = '  {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 9, "s": "g"}\n  ],\n  "traceName": "rank0.json"\n}\n'
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OPERATORS = ("linear", "mm", "native_layer_norm", "mul", "silu", "scaled_dot_product_attention", "copy_", "empty_strided")


def write(path: Path, size_mb: int) -> int:
    """Write the file; return how many collectives it has."""
    ts, number, seq = 1000, 1, 0
    with path.open("w") as f:
        f.write(HEAD)
        while f.tell() < size_mb * 1_000_000:
            parts = []
            for k in range(12):  # operators and kernels between two collectives
                name = OPERATORS[(number + k) % len(OPERATORS)]
                parts.append(OPERATOR.format(name=name, ts=ts, ns=number % 1000, dur=9 + number % 7, id=number))
                parts.append(LAUNCH.format(ts=ts + 3, ns=number % 1000, id=number))
                parts.append(KERNEL.format(ts=ts + 12, ns=number % 1000, dur=11 + number % 5, id=number))
                ts, number = ts + 18, number + 1
            seq += 1
            fields = {"op": "allreduce", "count": 4096 << (seq % 6), "seq": seq, "id": number, "ns": seq % 1000}
            parts.append(COLLECTIVE.format(cat="cpu_op", name="record_param_comms", pid=4100, tid=4100, ts=ts, dur=25, more="", **fields))
            more = f', "device": 0, "stream": 20, "correlation": {number}'
            parts.append(COLLECTIVE.format(cat="kernel", name=NCCL, pid=0, tid=20, ts=ts + 20, dur=60 + seq % 13, more=more, **fields))
            ts, number = ts + 90, number + 1
            f.write("".join(parts))
        f.write(TAIL)
    return seq


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("size_mb", type=int)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    print(f"{write(given.output, given.size_mb):,} collectives")
    return 0


if __name__ == "__main__":
    sys.exit(main())
