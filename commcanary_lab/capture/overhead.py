"""What the recorder costs per operation: the bookkeeping alone, and recorded against bare calls.

``python -m commcanary_lab.capture`` measures both on this machine.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from commcanary_lab.capture.describe import METHODS
from commcanary_lab.capture.groups import Group, GroupRegistry
from commcanary_lab.capture.journal import Journal
from commcanary_lab.capture.patch import Session, recording
from commcanary_lab.capture.rows import GroupRow

__all__ = ["Overhead", "bookkeeping_ns", "measure"]


@dataclass(frozen=True)
class Overhead:
    """Time of one all_reduce of one element on one rank, where nearly all of it is call overhead.

    Parameters
    ----------
    operations : int
        Calls timed in each state.
    bare_ns, recorded_ns : int
        Median time of one call without and with the recorder.
    bookkeeping_ns : int
        Median time of the recorder's own code around one call, the call itself replaced by nothing.
    """

    operations: int
    bare_ns: int
    recorded_ns: int
    bookkeeping_ns: int

    @property
    def added_ns(self) -> int:
        """What recording adds to a call."""
        return self.recorded_ns - self.bare_ns


class _NoWork:
    """A handle with nothing to wait for."""

    def wait(self) -> None:
        """Return at once."""


class _NoGroup:
    """Stands where a process group would be; `allreduce` does nothing."""

    def allreduce(self, tensors: list[Any], options: Any) -> _NoWork:
        """Return a finished handle."""
        return _NO_WORK


_NO_WORK = _NoWork()


def bookkeeping_ns(operations: int = 256) -> int:
    """Return the median nanoseconds that recording adds to one call and its wait, by calling nothing.

    The recorder's own code runs on a real tensor and real options, with a method that does nothing in torch's place.

    Examples
    --------
    >>> 200 < bookkeeping_ns() < 1_000_000
    True
    """
    import torch
    import torch.distributed as dist

    journal = Journal(lambda rows: None, max_rows=1024)
    registry = GroupRegistry(journal.add)
    stand_in = _NoGroup()
    registry.adopt(stand_in, Group(GroupRow(0, "stand-in", [0], "0", "none"), 0))
    session = Session(journal, registry)
    method = recording("allreduce", _NoGroup.allreduce, METHODS["allreduce"], session, _NoGroup)
    tensors, options = [torch.zeros(1)], dist.AllreduceOptions()

    def bare() -> None:
        stand_in.allreduce(tensors, options).wait()

    def recorded() -> None:
        method(stand_in, tensors, options).wait()

    for call in (bare, recorded):
        _times(call, 32)  # warm up
    return max(0, round(statistics.median(_times(recorded, operations)) - statistics.median(_times(bare, operations))))


def _times(call: Callable[[], Any], repeats: int) -> list[int]:
    out = []
    for _ in range(repeats):
        start = perf_counter_ns()
        call()
        out.append(perf_counter_ns() - start)
    return out


def measure(operations: int = 1000, blocks: int = 5) -> Overhead:
    """Measure recorded against bare calls on a one-rank Gloo group, in alternating blocks.

    Parameters
    ----------
    operations : int
        Calls in each state, over all blocks.
    blocks : int
        Alternations, so that a change of the machine's speed meets both states.

    Raises
    ------
    UsageError
        If a recorder is active in this process.
    RefusedError
        If a process group exists already: this makes its own and must not disturb the job's.

    Examples
    --------
    >>> o = measure(operations=40, blocks=2)
    >>> o.operations, o.bare_ns > 0, o.recorded_ns > 0
    (40, True, True)
    """
    import torch
    import torch.distributed as dist

    from commcanary_lab.capture.recorder import Recorder
    from commcanary_lab.errors import RefusedError

    if dist.is_initialized():
        raise RefusedError("a process group exists in this process", remedy="measure the overhead in a process of its own")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = torch.zeros(1)

        def call() -> None:
            dist.all_reduce(x)

        _times(call, 50)
        bare: list[int] = []
        recorded: list[int] = []
        with tempfile.TemporaryDirectory() as directory:
            for block in range(blocks):
                bare += _times(call, operations // blocks)
                with Recorder(f"{directory}/{block}"):
                    _times(call, 10)
                    recorded += _times(call, operations // blocks)
    finally:
        dist.destroy_process_group()
    return Overhead(len(recorded), round(statistics.median(bare)), round(statistics.median(recorded)), bookkeeping_ns())
