"""Two ranks. Rank 1 leaves in the middle without a word; with "hang" it sleeps instead, and rank 0 waits for it."""

import os
import sys
import time

import torch
import torch.distributed as dist

from commcanary_lab.capture import Recorder

rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=k)
with Recorder(sys.argv[1], flush_seconds=0.05) as rec:
    for _ in range(20):
        dist.all_reduce(torch.ones(100))
    if rank == 1:
        if "hang" in sys.argv:
            time.sleep(600)
        time.sleep(0.5)
        os._exit(7)
    dist.all_reduce(torch.ones(123))
