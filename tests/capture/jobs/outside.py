"""Two ranks: collectives that C++ issues, a ProcessGroup subclass, errors inside the recorder, reentrancy."""

import contextlib
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from commcanary_lab.capture import Recorder, measure
from commcanary_lab.errors import RefusedError, UsageError

warnings.simplefilter("ignore")
rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = sys.argv[1]
dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=k)
methods = dict(vars(dist.ProcessGroup))


def refused(kind, text, call):
    try:
        call()
    except kind as e:
        if text in str(e):
            return
        raise
    raise AssertionError(f"not refused: {text}")


class Own(dist.ProcessGroup):
    """Inherits everything: recording must neither see it nor loop."""


with contextlib.suppress(KeyError), Recorder(folder + "/raised"):
    dist.all_reduce(torch.ones(1))
    raise KeyError("the job's own error")
assert dict(vars(dist.ProcessGroup)) == methods

with Recorder(folder + "/outside") as rec:
    refused(UsageError, "already active", Recorder(folder + "/second").start)
    refused(RefusedError, "a process group exists", measure)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()  # buckets reduced in C++
    for _ in range(3):
        functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).wait()
    dist.all_reduce(torch.ones(2))
    own = Own(0, 1)
    with contextlib.suppress(RuntimeError):  # it has no backend
        own.allreduce([torch.ones(1)], dist.AllreduceOptions())
assert rec.summary.outside["default_pg"] >= 4, rec.summary
assert rec.summary.operations == 1, rec.summary

hooked = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8, bias=False))
hooked.register_comm_hook(None, default_hooks.allreduce_hook)
with Recorder(folder + "/hooked") as rec:
    hooked(torch.ones(2, 8)).sum().backward()
assert rec.summary.operations == 1, rec.summary

refused(UsageError, "used before", rec.start)
refused(UsageError, "already holds", Recorder(folder + "/hooked").start)
assert dict(vars(dist.ProcessGroup)) == methods

with Recorder(folder + "/bounded", max_rows=16, flush_seconds=3600) as rec:
    for _ in range(200):
        dist.all_reduce(torch.ones(1))
        assert rec._journal.buffered <= 17, rec._journal.buffered
assert rec.summary.operations == 200
dist.destroy_process_group()
