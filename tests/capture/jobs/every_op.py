"""Every operation once on two ranks, with sizes that tell them apart. What it checks itself, it checks by assertion."""

import contextlib
import os
import sys
import warnings

import torch
import torch.distributed as dist

from commcanary_lab.capture import Recorder

warnings.simplefilter("ignore")
rank, k = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=k)
peer = 1 - rank
before = {name: getattr(dist, name) for name in dir(dist) if callable(getattr(dist, name))}
methods = dict(vars(dist.ProcessGroup))
early = dist.P2POp(dist.isend, torch.ones(5), peer)  # made before the recorder, used under it


def f32(n, value=1.0):
    return torch.full((n,), value)


with Recorder(sys.argv[1], host="host-a", notes=["every operation once"]) as rec:
    x = f32(10, rank + 1.0)
    dist.all_reduce(x)  # 0: 40
    assert x.eq(3).all()
    dist.all_reduce(torch.ones(3, dtype=torch.int64), op=dist.ReduceOp.MAX)  # 1: 24
    dist.all_reduce(torch.ones(7, dtype=torch.bfloat16), op=dist.ReduceOp.PRODUCT)  # 2: 14
    dist.broadcast(torch.ones(6, dtype=torch.uint8), 1)  # 3: 6
    dist.reduce(f32(4), 1, op=dist.ReduceOp.MIN)  # 4: 16
    gathered = [torch.empty(5) for _ in range(k)]
    dist.all_gather(gathered, f32(5, float(rank)))  # 5: 2 * 20
    assert gathered[1].eq(1).all()
    dist.all_gather_into_tensor(torch.empty(k * 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))    # 6: 2 * 24
    dist.reduce_scatter(torch.empty(2), [f32(2) for _ in range(k)])  # 7: 2 * 8
    dist.reduce_scatter_tensor(torch.empty(4), f32(4 * k), op=dist.ReduceOp.SUM)  # 8: 2 * 16
    dist.all_to_all([torch.empty(3) for _ in range(k)], [f32(3) for _ in range(k)])  # 9: 2 * 12
    dist.all_to_all_single(torch.empty(8), f32(8))  # 10: 32
    # rank 0 sends (1, 2) and receives (1, 3) rows of two floats; rank 1 sends (3, 4) and receives (2, 4)
    sent, received = ([1, 2], [1, 3]) if rank == 0 else ([3, 4], [2, 4])
    dist.all_to_all_single(torch.empty(sum(received), 2), torch.ones(sum(sent), 2), received, sent)  # 11: splits * 8
    # even on rank 0 by coincidence (2, 2 both ways), uneven on rank 1
    sent, received = ([2, 2], [2, 2]) if rank == 0 else ([2, 5], [2, 5])
    dist.all_to_all_single(torch.empty(sum(received)), torch.ones(sum(sent)), received, sent)  # 12: splits * 4
    dist.all_to_all_single(torch.empty(4), torch.ones(4), [2, 2], [2, 2])  # 13: 16, even though splits are given
    dist.gather(f32(3), [torch.empty(3) for _ in range(k)] if rank == 1 else None, 1)  # 14: 2 * 12
    dist.scatter(torch.empty(6), [f32(6) for _ in range(k)] if rank == 0 else None, 0)  # 15: 2 * 24
    dist.barrier()  # 16
    if rank == 0:
        dist.send(f32(11), 1)  # 0 -> 1: 44
        assert dist.recv(torch.empty(12)) == 1  # 1 -> 0: 48, any source
    else:
        dist.recv(torch.empty(11), 0)
        dist.send(f32(12), 0)
    out = torch.empty(13)
    handles = [dist.isend(f32(13), peer, tag=4), dist.irecv(out, peer, tag=4)]  # both ways: 52, tag 4
    for h in handles:
        assert isinstance(h, dist.Work)
        h.wait()
    late = dist.P2POp(dist.irecv, torch.empty(5), peer)
    for h in dist.batch_isend_irecv([early, late]):  # both ways: 20
        h.wait()
    h = dist.all_reduce(f32(20), async_op=True)  # 17: 80
    assert isinstance(h, dist.Work)
    h.wait()
    h.wait()
    dist.all_gather_object([None] * k, {"rank": rank})  # 18, 19: two all_gathers
    with dist._coalescing_manager():  # 20, 21: one call, two operations
        dist.all_reduce(f32(30))
        dist.all_reduce(f32(31))
    handle = dist.all_reduce(f32(40), async_op=True)  # 22: finish by polling
    while not handle.is_completed():
        pass
    dist.all_reduce(f32(41), async_op=True).get_future().wait()  # 23: finish by future
    dist.all_reduce(torch.view_as_complex(torch.ones(9, 2)))  # 24: 72, complex as real
    dist.broadcast(torch.empty(0), 0)  # 25: 0 bytes
    with contextlib.suppress(RuntimeError):
        dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn))  # 26: Gloo refuses fp8
    dist.monitored_barrier()  # 27
    world, two = dist.group.WORLD, [torch.empty(5), torch.empty(5)]  # the methods that torch.distributed calls, in their other forms
    world.allreduce(f32(50)).wait()  # 28
    world.allreduce([f32(51)], dist.ReduceOp.MAX).wait()  # 29
    world.broadcast(f32(52), root=1).wait()  # 30
    world.reduce(f32(53), 0, op=dist.ReduceOp.SUM).wait()  # 31
    world.allgather(two, f32(5)).wait()  # 32: 40
    world.gather([two] if rank == 0 else [], [f32(5)], dist.GatherOptions()).wait()  # 33: 40
    world.reduce_scatter(torch.empty(4), [f32(4), f32(4)]).wait()  # 34: 32
    world.alltoall_base(torch.empty(6), f32(6), [], []).wait()  # 35: 24
    world.barrier().wait()  # 36
    dist.all_reduce_coalesced([f32(8), f32(9)])  # 37, 38

assert {name: getattr(dist, name) for name in before} == before
assert dict(vars(dist.ProcessGroup)) == methods
assert (rec.summary.problems, rec.summary.outside, rec.summary.unfinished) == ({}, {}, 0), rec.summary
for h in dist.batch_isend_irecv([early, late]):  # still good after the recorder
    h.wait()
dist.destroy_process_group()
