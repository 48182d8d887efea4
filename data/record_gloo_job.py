#!/usr/bin/env python3
"""Record `samples/gloo4_shards/` and `samples/gloo4.json`: a real job of four Gloo ranks on this machine, measured.

Tensor parallelism inside the pairs (0, 1) and (2, 3), data parallelism across the pairs (0, 2) and (1, 3), an expert exchange over
all four ranks, and a handoff of activations from the first pair to the second. Between collectives each rank multiplies real
matrices. The recorder runs inside the job, so the trace has named phases.

The result is a measurement: running this again gives other times, the same operations, sizes, groups and order.

    python data/record_gloo_job.py [FOLDER]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

RANKS = 4
LAYERS = 4
PREFILL_STEPS = 4
DECODE_TOKENS = 16
EXCHANGES = 4
GRADIENTS = 4
HANDOFFS = 4
HOST = "sample-host"


def main(folder: Path) -> None:
    """Start the ranks, merge their shards, and put both in place."""
    from commcanary_lab.importers import shards
    from commcanary_lab.trace.write_v1 import write_json

    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "shards"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        command += [__file__, "--rank", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        trace = shards.read(out)
        workload = {
            "name": "gloo4-tp-dp",
            "notes": f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: 4 Gloo ranks on {os.cpu_count()} cores of one machine.",
            "origin": "measured: data/record_gloo_job.py",
        }
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "gloo4_shards", ignore_errors=True)
        shutil.copytree(out, folder / "gloo4_shards")
        write_json(replace(trace, workload=workload), folder / "gloo4.json")
    print(f"{len(trace)} events, {trace.record_count} records, {len(trace.groups)} groups")


def rank_main(out: str) -> None:
    """What each rank does."""
    import torch
    import torch.distributed as dist

    from commcanary_lab.capture import Recorder

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tp = [dist.new_group(r, group_desc="tp") for r in ([0, 1], [2, 3])][rank // 2]
    dp = [dist.new_group(r, group_desc="dp") for r in ([0, 2], [1, 3])][rank % 2]
    torch.manual_seed(rank)
    weight = torch.randn(256, 256)
    warm = torch.ones(1)
    for group in (None, tp, dp):  # connections are made by the first collective of a group: keep that out of the trace
        dist.all_reduce(warm, group=group)
    notes = [f"recorded on {time.strftime('%Y-%m-%d', time.gmtime())} by data/record_gloo_job.py on {os.cpu_count()} cores of one machine: "
             "with more ranks than cores, skew and latency include waiting for a core"]
    with Recorder(out, host=HOST, notes=notes) as rec:
        with rec.phase("setup"):
            dist.broadcast(weight, src=0)
            dist.barrier()
        with rec.phase("prefill"):
            hidden = torch.randn(256, 256)
            for _ in range(PREFILL_STEPS):
                for _ in range(LAYERS):
                    for _ in ("attention", "mlp"):
                        hidden = torch.tanh(hidden @ weight)
                        dist.all_reduce(hidden, group=tp)
        with rec.phase("handoff"):
            _handoff(rank, hidden)
        with rec.phase("decode"):
            _decode(weight, tp)
        with rec.phase("exchange"):
            _exchange(rank)
        with rec.phase("gradients"):
            for _ in range(GRADIENTS):
                handle = dist.all_reduce(torch.randn(128 * 1024), group=dp, async_op=True)
                torch.tanh(weight @ weight)  # overlaps the all-reduce
                handle.wait()
        with rec.phase("report"):
            dist.reduce(torch.ones(4), dst=0)
            dist.barrier()
    dist.destroy_process_group()


def _handoff(rank: int, hidden: object) -> None:
    """The first pair sends activations to the second."""
    import torch
    import torch.distributed as dist

    for _ in range(HANDOFFS):
        if rank < 2:
            dist.send(hidden[:32], dst=rank + 2)  # type: ignore[index]
        else:
            dist.recv(torch.empty(32, 256), src=rank - 2)


def _decode(weight: object, tp: object) -> None:
    """One token at a time: a small all-reduce per layer, then the logits of both halves of the vocabulary."""
    import torch
    import torch.distributed as dist

    token = torch.randn(8, 256)
    for _ in range(DECODE_TOKENS):
        for _ in range(LAYERS):
            token = torch.tanh(token @ weight)  # type: ignore[operator]
            dist.all_reduce(token, group=tp)
        dist.all_gather([torch.empty(8, 512) for _ in range(2)], torch.randn(8, 512), group=tp)


def _exchange(rank: int) -> None:
    """Experts: an even exchange, then one whose rows depend on where the tokens are routed."""
    import torch
    import torch.distributed as dist

    for step in range(EXCHANGES):
        dist.all_to_all_single(torch.empty(64, 256), torch.randn(64, 256))
        rows = [[8 + (5 * i + 3 * j + step) % 17 for j in range(RANKS)] for i in range(RANKS)]  # rank i sends rows[i][j] to rank j
        sent, received = rows[rank], [row[rank] for row in rows]
        dist.all_to_all_single(torch.empty(sum(received), 256), torch.randn(sum(sent), 256), received, sent)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2])
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "samples")
