"""Small traces with times, for figures by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commcanary_lab.trace import Coded, Column, ProcessGroup, Ragged, Trace


@dataclass(frozen=True)
class Event:
    """One event; times in nanoseconds."""

    op: str
    size: int
    members: tuple[int, ...] = (0, 1)
    group: str | None = None
    phase: str | None = None
    durations: tuple[int, ...] = ()
    overlap: int | None = None
    exposed: int | None = None
    arrivals: tuple[int, ...] = ()
    arrival_known: bool = True
    start: int | None = None
    observers: tuple[int, ...] | None = None


def trace_of(events: Sequence[Event], **more: object) -> Trace:
    """Build a trace of events."""
    groups = tuple(dict.fromkeys(ProcessGroup(e.group, e.members) for e in events))
    sets = tuple(dict.fromkeys(e.observers for e in events if e.observers is not None))
    return Trace.build(
        len(events),
        op=Coded.from_optional([e.op for e in events]),
        phase=Coded.from_optional([e.phase for e in events]),
        groups=groups,
        group=np.array([groups.index(ProcessGroup(e.group, e.members)) for e in events], np.int32),
        size_bytes=np.array([e.size for e in events], np.int64),
        duration_ns=Ragged.from_rows([e.durations for e in events]),
        overlap_ns=Column.from_optional([e.overlap for e in events]),
        observed_exposed_ns=Column.from_optional([e.exposed for e in events]),
        arrival_ns=Ragged.from_rows([e.arrivals for e in events]),
        arrival_known=np.array([e.arrival_known for e in events], np.bool_),
        start_ns=Column.from_optional([e.start for e in events]),
        rank_sets=sets,
        observers=np.array([-1 if e.observers is None else sets.index(e.observers) for e in events], np.int32),
        **more)
