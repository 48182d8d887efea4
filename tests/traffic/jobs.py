"""Small jobs whose traffic is known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace

MIB = 1 << 20


@dataclass(frozen=True)
class Event:
    """One event of a test trace."""

    op: str
    members: tuple[int, ...]
    size: int
    group: str | None = None
    phase: str | None = None
    root: int | None = None
    sender: int | None = None
    receiver: int | None = None
    observers: tuple[int, ...] | None = None
    splits: tuple[int, ...] = ()


def trace_of(events: Sequence[Event], **more: object) -> Trace:
    """Build a trace of events."""
    groups = tuple(dict.fromkeys(ProcessGroup(e.group, tuple(sorted(e.members))) for e in events))
    sets = tuple(dict.fromkeys(e.observers for e in events if e.observers is not None))
    return Trace.build(
        len(events),
        op=Coded.from_optional([e.op for e in events]),
        phase=Coded.from_optional([e.phase for e in events]),
        groups=groups,
        group=np.array([groups.index(ProcessGroup(e.group, tuple(sorted(e.members)))) for e in events], np.int32),
        size_bytes=np.array([e.size for e in events], np.int64),
        root=Column.from_optional([e.root for e in events]),
        sender=Column.from_optional([e.sender for e in events]),
        receiver=Column.from_optional([e.receiver for e in events]),
        rank_sets=sets,
        observers=np.array([-1 if e.observers is None else sets.index(e.observers) for e in events], np.int32),
        splits=Ragged.from_rows([e.splits for e in events]),
        **more)


def eight_ranks() -> Trace:
    """2 nodes of 4: per rank 24 tensor-parallel all-reduces of 64 MiB in the node and a data-parallel one of 512 MiB across nodes."""
    events = []
    for layer in range(24):
        for node in (0, 1):
            events.append(Event("all_reduce", tuple(range(4 * node, 4 * node + 4)), 64 * MIB, f"TP Group {node}",
                                "forward" if layer < 12 else "backward"))
    events += [Event("all_reduce", (rail, rail + 4), 512 * MIB, f"DP Group {rail}", "step") for rail in range(4)]
    return trace_of(events)


def row(total_sent: int, total_received: int, sent: Sequence[int], received: Sequence[int]) -> tuple[int, ...]:
    """Split lists of one reporting rank."""
    return (total_sent, total_received, *sent, *received)
