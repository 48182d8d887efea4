"""Correctness of a replay: inputs change with every sample, and after each boundary the bytes are compared with a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UsageError
from commcanary_lab.replay.operations import Operation
from commcanary_lab.replay.pattern import Bytes, contributions, expected, inputs, rank_order_sum
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.spec import Fault, Mismatch

if TYPE_CHECKING:
    import torch

__all__ = ["Checked", "Probe", "boundary", "check_fault"]


def boundary(op: str, event: int) -> str:
    """Return the name of a boundary for people.

    Examples
    --------
    >>> boundary("all_reduce", 97)
    'all_reduce #98'
    """
    return f"{op} #{event + 1}"


def check_fault(program: Program, fault: Fault, samples: int) -> None:
    """Refuse damage that nobody could see, or that never happens.

    Raises
    ------
    UsageError
    """
    call = next((c for c in program.calls() if c.event == fault.event), None)
    if call is None or not 0 <= fault.sample < samples:
        raise UsageError(
            f"there is no event {fault.event} in sample {fault.sample} to damage", remedy=f"{program.events} events, {samples} samples"
        )
    step = program.steps[call.step]
    assert step is not None
    swappable = ("all_gather", "all_to_all", "all_to_all_v")
    if fault.kind == "swap" and step.op not in swappable:
        raise UsageError(f"parts cannot change places in a {step.op}", remedy=f"choose one of {', '.join(swappable)}, or another damage")
    if not step.size_bytes:
        raise UsageError(f"event {fault.event} moves no bytes to damage", remedy="choose another event")
    absent = set(fault.ranks) - set(step.participants)
    if absent:
        raise UsageError(f"rank {min(absent)} takes no part in event {fault.event}", remedy=f"ranks: {list(step.participants)}")


@dataclass
class Checked:
    """What was compared on this rank, and the first thing that was wrong."""

    samples: int = 0
    boundaries: int = 0
    size_bytes: int = 0
    mismatches: int = 0
    first: Mismatch | None = None


class Probe:
    """Checks one rank.

    Parameters
    ----------
    rank : int
        This rank.
    fault : Fault, optional
        Damage to do.
    """

    def __init__(self, rank: int, fault: Fault | None = None) -> None:
        self.rank, self.fault = rank, fault
        self.checked = Checked()

    def fill(self, operation: Operation, event: int, sample: int) -> None:
        """Give the operation the inputs of this sample; what it will receive is overwritten with something else first."""
        step, b = operation.step, operation.buffers
        if operation.got.numel():
            _bytes(operation.got).fill_(0xA5 if b.dtype != "bool" else 1)
        if b.sent[step.members.index(self.rank)]:
            _set(operation.given, inputs(step, b, self.rank, event, sample))

    def check(self, operation: Operation, event: int, sample: int) -> None:
        """Compare what this rank received with the reference."""
        step, b = operation.step, operation.buffers
        self.checked.boundaries += 1
        of = contributions(step, b, event, sample)
        reference = expected(step, b, self.rank, event, sample, of)
        if reference is None:
            return
        found = _get(operation.got)
        fault = self.fault
        if fault is not None and (fault.event, fault.sample) == (event, sample) and self.rank in (fault.ranks or (self.rank,)):
            found = _damaged(operation, found, fault, self.rank)
            _set(operation.got, found)
        self.checked.size_bytes += len(reference)
        if self._differs(step.op, event, sample, reference, found, "output"):
            return
        own = rank_order_sum(step, b, event, sample, of)
        if own is not None:
            total = _summed(operation, len(step.members))
            self.checked.size_bytes += len(own)
            self._differs(step.op, event, sample, own, total, "rank-order sum")

    def _differs(self, op: str, event: int, sample: int, reference: Bytes, found: Bytes, what: str) -> bool:
        wrong = np.flatnonzero(reference != found)
        if not len(wrong):
            return False
        self.checked.mismatches += 1
        if self.checked.first is None:
            at = int(wrong[0])
            self.checked.first = Mismatch(
                sample, event, boundary(op, event), at, int(reference[at]), int(found[at]), len(wrong), len(reference), what
            )
        return True


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.view(torch.uint8)


def _set(tensor: torch.Tensor, data: Bytes) -> None:
    import torch

    _bytes(tensor).copy_(torch.from_numpy(np.ascontiguousarray(data)))


def _get(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    # a CPU tensor shares its memory, and what is compared must not change meanwhile
    return np.array(_bytes(tensor).cpu().numpy())


def _summed(operation: Operation, k: int) -> Bytes:
    """Add what was gathered rank after rank, on the device, in its own type."""
    parts = operation.got.chunk(k)
    total = parts[0].clone()
    for p in parts[1:]:
        total += p
    return _get(total)


def _damaged(operation: Operation, found: Bytes, fault: Fault, rank: int) -> Bytes:
    step, b = operation.step, operation.buffers
    if fault.kind == "flip":
        out = found.copy()
        out[(fault.bit // 8) % len(out)] ^= np.uint8(1 << (fault.bit % 8))
        return out
    if fault.kind == "stale":
        before = expected(step, b, rank, fault.event, fault.sample - 1) if fault.sample else None
        return np.zeros_like(found) if before is None else before
    sizes = _part_bytes(operation, rank)
    parts = np.split(found, np.cumsum(sizes)[:-1])
    parts[0], parts[-1] = parts[-1], parts[0]
    return np.concatenate(parts)


def _part_bytes(operation: Operation, rank: int) -> list[Any]:
    step, b = operation.step, operation.buffers
    at = step.members.index(rank)
    if b.splits is not None:
        return [row[at] * b.width for row in b.splits]
    k = len(step.members)
    return [b.received[at] * b.width // k] * k
