"""Two ranks. Rank 0 enters a collective that rank 1 never enters: rank 1 leaves without a word once it is told to."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from commcanary_lab.capture import Recorder

rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=k)
with Recorder(sys.argv[1], flush_seconds=0.05) as rec:
    for _ in range(20):
        dist.all_reduce(torch.ones(100))
    if rank == 1:
        while not (Path(sys.argv[1]) / "go").exists():
            time.sleep(0.05)
        time.sleep(0.5)  # ten flushes
        os._exit(7)
    dist.all_reduce(torch.ones(123))
