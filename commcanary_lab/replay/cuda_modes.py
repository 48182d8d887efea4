"""Probes of captured execution on CUDA: the whole program as one graph, or only the kernels between the collectives.

In both modes every event has buffers of its own that the caller keeps, because a graph replays addresses, not values. A guard compares
the addresses before each replay: a buffer that moved would let the graph read memory that nobody fills any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.operations import Arena, Operation, rebind
from commcanary_lab.replay.probe import Checked, Probe
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.progress import ProgressFile
from commcanary_lab.replay.spec import ProbeAsked

if TYPE_CHECKING:
    import torch

__all__ = ["IdentityGuard", "run_captured"]

#: Capturing a longer program would keep a buffer per event; above this it is refused with the number.
_MOST_EVENTS = 20_000
_WARM_UPS = 3


class IdentityGuard:
    """Remembers where tensors are, and refuses when one of them has moved or changed its form.

    Parameters
    ----------
    tensors : sequence of Tensor
        What a captured graph reads and writes.

    Examples
    --------
    >>> import torch
    >>> kept = [torch.zeros(4)]
    >>> guard = IdentityGuard(kept)
    >>> guard.check(kept)
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._known = [_identity(t) for t in tensors]

    def check(self, tensors: Sequence[torch.Tensor]) -> None:
        """Compare.

        Raises
        ------
        RefusedError
            Names the first tensor that differs.
        """
        for number, (t, known) in enumerate(zip(tensors, self._known, strict=True)):
            if _identity(t) != known:
                raise RefusedError(
                    f"buffer {number} is not the one that was captured: it was {known}, it is {_identity(t)}",
                    remedy="keep the buffers of a captured program, and copy into them",
                )


def _identity(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], str]:
    return tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype)


def run_captured(program: Program, rank: int, operations: Sequence[Operation | None], asked: ProbeAsked, progress: ProgressFile) -> Checked:
    """Check the data of a captured program on this rank.

    Parameters
    ----------
    program, rank, operations
        What runs, and how on this rank.
    asked : ProbeAsked
        ``graph``: one capture of the whole program, collectives included. ``segmented``: collectives run eagerly on persistent buffers,
        and the kernels that consume their results are captured, one graph per collective.
    progress : ProgressFile
        Told per sample.

    Raises
    ------
    RefusedError
        If the program is too long to keep a buffer per event.
    """
    import torch

    events: list[tuple[int, Operation]] = []
    for call in program.calls():
        known = operations[call.step]
        if known is not None:
            if len(events) == _MOST_EVENTS:
                raise RefusedError(
                    f"a captured program keeps a buffer per event, and there are more than {_MOST_EVENTS:,}", remedy="probe it eagerly"
                )
            events.append((call.event, _with_own_buffers(known, rank)))
    kept = [t for _, o in events for t in (o.given, o.got)]
    guard = IdentityGuard(kept)
    run = _capture_all(events) if asked.mode == "graph" else _capture_segments(events)
    probe = Probe(rank, asked.fault)
    for sample in range(asked.samples):
        progress.tell("probing", sample, asked.samples)
        for event, operation in events:
            probe.fill(operation, event, sample)
        guard.check(kept)
        run()
        torch.cuda.synchronize()
        for event, operation in events:
            probe.check(operation, event, sample)
        probe.checked.samples += 1
    return probe.checked


def _with_own_buffers(operation: Operation, rank: int) -> Operation:
    b, at = operation.buffers, operation.step.members.index(rank)
    arena = Arena(operation.given.device)
    arena.reserve(b.width * max(b.sent[at], b.received[at]), b.width * b.received[at])
    return rebind(operation, rank, arena)


def _capture_all(events: Sequence[tuple[int, Operation]]) -> Callable[[], None]:
    import torch

    def program() -> None:
        for _, operation in events:
            work = operation.start()
            if work is not None:
                work.wait()

    side: Any = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # communicators are made at the first call, which cannot be captured
        for _ in range(_WARM_UPS):
            program()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program()
    return graph.replay


def _capture_segments(events: Sequence[tuple[int, Operation]]) -> Callable[[], None]:
    """Between two collectives runs a kernel that consumes what the first one brought: an exact copy there and back, captured."""
    import torch

    graphs = []
    for _, operation in events:
        work = operation.start()
        if work is not None:
            work.wait()
        torch.cuda.synchronize()
        scratch = torch.empty_like(operation.got)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scratch.copy_(operation.got)
            operation.got.copy_(scratch)
        graphs.append((graph, scratch))

    def run() -> None:
        for (_, operation), (graph, _scratch) in zip(events, graphs, strict=True):
            work = operation.start()
            if work is not None:
                work.wait()
            graph.replay()

    return run
