"""A job that knows nothing of the recorder, as torchrun starts it."""

import sys
import time
from os import environ

import torch
import torch.distributed as dist
from torch.distributed import all_reduce as reduce_everywhere

dist.init_process_group("gloo")
for _ in range(10):
    reduce_everywhere(torch.ones(64))
dist.barrier()
print("hello from rank", dist.get_rank(), "chained" if environ.get("CHAINED") == "yes" else "")
if "hang" in sys.argv:
    time.sleep(600)
if "fail" in sys.argv and dist.get_rank() == 1:
    sys.exit(5)
dist.destroy_process_group()
