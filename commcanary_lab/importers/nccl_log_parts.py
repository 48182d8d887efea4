"""What NCCL and RCCL debug logs speak of: processes, communicators and operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Call", "Instance", "Process"]


class Process(NamedTuple):
    """A process: a host name and a process number, or a file whose lines lost both."""

    host: str
    pid: int

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.host}:{self.pid}" if self.pid >= 0 else f"a process of {self.host}"


class Call(NamedTuple):
    """What an operation is, as the log writes it; equal calls share one."""

    op: str
    elements: int
    datatype: int
    reduction: int
    root: int


@dataclass
class Instance:
    """One process' handle of a communicator, from its set-up to its end.

    Parameters
    ----------
    process : Process
        Who holds it.
    pointer : str
        Its address, unique only inside the process while the communicator lives.
    nranks : int
        Ranks of the communicator.
    device : int, optional
        CUDA device.
    rank : int, optional
        Rank inside the communicator.
    comm_id : str, optional
        The number that all ranks of the communicator share.
    parent : Instance, optional
        What it was split from, with `color`, `key` and `ordinal` (the parent's count of splits).
    has_init : bool
        A set-up line describes it.
    doubt : str, optional
        Why its operations cannot be attributed: a torn line, or a contradiction.
    links : dict
        Ring links that this rank states: channel -> {rank: next rank}.
    """

    process: Process
    pointer: str
    nranks: int
    file: int
    device: int | None = None
    rank: int | None = None
    comm_id: str | None = None
    parent: Instance | None = None
    color: int | None = None
    key: int | None = None
    ordinal: int | None = None
    has_init: bool = False
    complete: bool = False
    doubt: str | None = None
    children: int = 0
    stated_ranks: set[int] = field(default_factory=set)
    links: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def slot(self) -> tuple[Process, int | None]:
        """Process and device: what holds one rank of a job."""
        return self.process, self.device

    @property
    def label(self) -> str:
        """For people."""
        device = "" if self.device is None else f" [{self.device}]"
        return f"{self.process.label}{device}"
