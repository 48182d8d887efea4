"""Four ranks: tensor-parallel pairs, data-parallel pairs, a group in reverse order, phases, a late rank."""

import os
import sys
import time

import torch
import torch.distributed as dist

from commcanary_lab.capture import Recorder, phase

rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with Recorder(sys.argv[1], host="host-a") as rec:  # before the process group exists
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=k)
    tp = [dist.new_group(ranks, group_desc="tp") for ranks in ([0, 1], [2, 3])][rank // 2]
    dp = [dist.new_group(ranks, group_desc="dp") for ranks in ([0, 2], [1, 3])][rank % 2]
    twin = [dist.new_group(ranks, group_desc="tp") for ranks in ([0, 1], [2, 3])][rank // 2]  # same name, same ranks
    plain = dist.new_group([1, 3])
    x = torch.ones(256)
    with rec.phase("prefill"):
        for _ in range(3):
            dist.all_reduce(x, group=tp)
    with phase("decode"):
        for _ in range(5):
            dist.all_reduce(x, group=tp)
        dist.all_reduce(x, group=dp)
        with rec.phase("exchange"):
            splits = [[0, 1, 2, 3], [1, 0, 5, 2], [2, 5, 0, 1], [3, 2, 1, 0]]  # rank i sends splits[i][j] elements to rank j
            dist.all_to_all_single(torch.empty(sum(row[rank] for row in splits)), torch.ones(sum(splits[rank])),
                                   [row[rank] for row in splits], splits[rank])
        dist.all_reduce(x, group=twin)
    dist.broadcast(x, src=3, group=plain)  # ranks 0 and 2 are outside and do nothing
    dist.barrier()
    if rank == 2:
        time.sleep(0.02)
    dist.all_reduce(torch.ones(1000))  # rank 2 is late
    handle = dist.all_reduce(torch.ones(1001), async_op=True)
    time.sleep(0.03)  # work that hides the operation
    handle.wait()
    dist.destroy_process_group()
assert (rec.summary.problems, rec.summary.outside, rec.summary.unfinished) == ({}, {}, 0), rec.summary
