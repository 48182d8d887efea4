"""One step on one rank of a torch.distributed group: its buffers, and the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commcanary_lab.replay.buffers import Buffers, buffers
from commcanary_lab.replay.program import MESSAGES, Program, Step

if TYPE_CHECKING:
    import torch

__all__ = ["Arena", "Operation", "prepare", "rebind", "torch_dtype"]

#: Starts the operation; the handle is waited for, None means that it is done.
Start = Callable[[], Any]


class Arena:
    """Memory that all operations of a rank share, since only one of them runs at a time.

    Parameters
    ----------
    device : torch.device
        Where it lies.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._given: torch.Tensor | None = None
        self._got: torch.Tensor | None = None

    def reserve(self, given_bytes: int, got_bytes: int) -> None:
        """Make room for the largest operation."""
        import torch

        self._given = torch.zeros(max(given_bytes, 8), dtype=torch.uint8, device=self.device)
        self._got = torch.zeros(max(got_bytes, 8), dtype=torch.uint8, device=self.device)

    def views(self, dtype: torch.dtype, given: int, got: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first elements of both memories."""
        assert self._given is not None and self._got is not None
        width = dtype.itemsize
        return self._given[: given * width].view(dtype), self._got[: got * width].view(dtype)


@dataclass(frozen=True, eq=False)
class Operation:
    """A step, ready to run on this rank.

    Attributes
    ----------
    step, buffers : Step, Buffers
        What it is.
    given, got : torch.Tensor
        What this rank gives and gets; one tensor where the operation works in place.
    start : callable
        Starts it and returns torch's handle.
    payload_bytes : int
        B of this rank, from the tensors.
    group : ProcessGroup, optional
        torch's group; None is the group of all ranks.
    """

    step: Step
    buffers: Buffers
    given: torch.Tensor
    got: torch.Tensor
    start: Start
    payload_bytes: int
    group: Any = None

    @property
    def collective(self) -> bool:
        """False for a message."""
        return self.step.op not in MESSAGES


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's dtype of a canonical name."""
    import torch

    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def prepare(program: Program, rank: int, backend: str, arena: Arena, groups: Mapping[tuple[int, ...], Any]) -> list[Operation | None]:
    """Return the operation of each step on this rank; None where the rank takes no part.

    Parameters
    ----------
    program : Program
        What runs.
    rank : int
        This rank.
    backend : str
        ``gloo`` or ``nccl``.
    arena : Arena
        The memory; it is reserved here.
    groups : mapping of tuple of int to ProcessGroup
        torch's group of each set of members.
    """
    mine = [s if s is not None and rank in s.participants else None for s in program.steps]
    shapes = [None if s is None else buffers(s, backend) for s in mine]
    sizes = [(b.width * b.sent[s.members.index(rank)], b.width * b.received[s.members.index(rank)])
             for s, b in zip(mine, shapes, strict=True) if s is not None and b is not None]  # fmt: skip
    arena.reserve(max((max(given, got) for given, got in sizes), default=0), max((got for _, got in sizes), default=0))
    return [None if s is None or b is None else _operation(s, b, rank, arena, groups) for s, b in zip(mine, shapes, strict=True)]


def _operation(step: Step, b: Buffers, rank: int, arena: Arena, groups: Mapping[tuple[int, ...], Any]) -> Operation:
    return _bind(step, b, rank, arena, None if step.op in MESSAGES else groups[step.members])


def rebind(operation: Operation, rank: int, arena: Arena) -> Operation:
    """Return the same operation on other memory."""
    return _bind(operation.step, operation.buffers, rank, arena, operation.group)


def _bind(step: Step, b: Buffers, rank: int, arena: Arena, group: Any) -> Operation:
    at = step.members.index(rank)
    kind = torch_dtype(b.dtype)
    given, got = arena.views(kind, b.sent[at], b.received[at])
    if step.op in ("all_reduce", "reduce", "broadcast"):  # in place
        given = got = arena.views(kind, max(b.sent[at], b.received[at]), 0)[0]
    make = _message if step.op in MESSAGES else _COLLECTIVES[step.op]
    start = make(step, b, rank, given, got, group)
    return Operation(step, b, given, got, start, _payload(step, given, got), group)


def _payload(step: Step, given: torch.Tensor, got: torch.Tensor) -> int:
    k = len(step.members)
    if step.op == "gather":
        return given.nbytes * k
    if step.op == "scatter":
        return got.nbytes * k
    return max(given.nbytes, got.nbytes)


def _reduce_op(name: str) -> Any:
    import torch.distributed as dist

    return getattr(dist.ReduceOp, {"sum": "SUM", "avg": "AVG", "min": "MIN", "max": "MAX", "product": "PRODUCT"}[name])


def _named(*names: str) -> Any:
    """The first function of torch.distributed with one of these names: some were renamed in torch 2.13."""
    import torch.distributed as dist

    return next(getattr(dist, n) for n in names if hasattr(dist, n))


def _all_reduce(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    op = _reduce_op(b.reduction)
    return lambda: dist.all_reduce(got, op, group=group, async_op=True)


def _reduce(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    op, root = _reduce_op(b.reduction), step.root
    return lambda: dist.reduce(got, root, op, group=group, async_op=True)


def _broadcast(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    root = step.root
    return lambda: dist.broadcast(got, root, group=group, async_op=True)


def _all_gather(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    call = _named("all_gather_single", "all_gather_into_tensor")
    return lambda: call(got, given, group=group, async_op=True)


def _reduce_scatter(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    call, op = _named("reduce_scatter_single", "reduce_scatter_tensor"), _reduce_op(b.reduction)
    return lambda: call(got, given, op, group=group, async_op=True)


def _all_to_all(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    if b.splits is None:
        return lambda: dist.all_to_all_single(got, given, group=group, async_op=True)
    at = step.members.index(rank)
    sends, gets = list(b.splits[at]), [row[at] for row in b.splits]
    return lambda: dist.all_to_all_single(got, given, gets, sends, group=group, async_op=True)


def _parts(whole: torch.Tensor, k: int) -> list[torch.Tensor]:
    n = whole.numel() // k
    return [whole[i * n : (i + 1) * n] for i in range(k)]


def _gather(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    parts = _parts(got, len(step.members)) if rank == step.root else None
    root = step.root
    return lambda: dist.gather(given, parts, root, group=group, async_op=True)


def _scatter(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    parts = _parts(given, len(step.members)) if rank == step.root else None
    root = step.root
    return lambda: dist.scatter(got, parts, root, group=group, async_op=True)


def _barrier(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    return lambda: dist.barrier(group=group, async_op=True)


def _message(step: Step, b: Buffers, rank: int, given: torch.Tensor, got: torch.Tensor, group: Any) -> Start:
    import torch.distributed as dist

    sender, receiver = step.sender, step.receiver
    if rank == sender:
        return lambda: dist.isend(given, receiver)
    return lambda: dist.irecv(got, sender)


_COLLECTIVES: dict[str, Callable[..., Start]] = {
    "all_reduce": _all_reduce, "reduce": _reduce, "broadcast": _broadcast, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all, "all_to_all_v": _all_to_all, "gather": _gather, "scatter": _scatter, "barrier": _barrier,
    "monitored_barrier": _barrier,
}  # fmt: skip
