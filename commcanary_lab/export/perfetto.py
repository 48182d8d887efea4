"""A timeline that ui.perfetto.dev opens: Chrome's trace event format, one process per rank, one thread per group.

Where every slice's time comes from stands in its category, in the names of the processes and in ``otherData.origin``: ``measured`` on the
ranks that reported an event, or ``simulated`` by the model. The two never stand in one file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.export.folder import write_stream
from commcanary_lab.export.program import CHUNK, Program
from commcanary_lab.export.result import Export, usual_notes
from commcanary_lab.trace.columns import Ragged
from commcanary_lab.units import format_bytes

if TYPE_CHECKING:
    from commcanary_lab.simulate.backend import Backend
    from commcanary_lab.trace.model import Trace

__all__ = ["export_perfetto"]

IntArray = npt.NDArray[np.int64]

_MARK = b'{"displayTimeUnit":"ns","otherData":{"written_by":"commcanary_lab export perfetto",'
_DRAWN = {
    "simulated": "slices are drawn from the start of a call to its end; where arrivals are known per rank, waiting is a row of its own",
    "measured": "slices are drawn from each rank's arrival to its finish: waiting for others is part of them",
}


def export_perfetto(
    source: Canary | Trace,
    target: str | os.PathLike[str] | BinaryIO,
    *,
    times: str = "auto",
    backend: Backend | None = None,
    assume: Mapping[str, float] | None = None,
) -> Export:
    """Write a timeline of all ranks.

    Parameters
    ----------
    source : Canary or Trace
        The events.
    target : path-like or binary stream
        A file (``.gz`` compresses), or a stream.
    times : str
        ``measured`` (a trace with measured durations), ``simulated``, or ``auto``: measured where there are any.
    backend : Backend, optional
        The simulated configuration; ``baseline`` by default, and always one iteration.
    assume : mapping of str to float, optional
        Values of unknown fields for the simulation: ``skew_us``, ``overlap_us``.

    Returns
    -------
    Export
        ``entries`` counts the slices of collectives and messages.

    Raises
    ------
    RefusedError
        If measured times are asked for and there are none, or the file exists and is no such timeline.
    UnknownValueError
        If the simulation needs a field that is unknown and not assumed.
    UsageError
        If there is no such choice of times.

    Examples
    --------
    >>> import io
    >>> import commcanary_lab as lab
    >>> out = io.BytesIO()
    >>> export_perfetto(lab.compile(lab.samples.adversarial()), out).entries
    200
    >>> timeline = json.loads(out.getvalue())
    >>> timeline["otherData"]["origin"], timeline["traceEvents"][0]["args"]["name"]
    ('simulated', 'rank 0 (simulated: baseline)')
    """
    if times not in ("auto", "measured", "simulated"):
        raise UsageError(f"there are no {times!r} times", remedy="auto, measured or simulated")
    measured = not isinstance(source, Canary) and not source.duration_ns.is_empty
    if times == "measured" and not measured:
        remedy = "give the measured trace, or --times simulated"
        raise RefusedError("no times were measured" + (": a canary has none" if isinstance(source, Canary) else ""), remedy=remedy)
    if times == "measured" or (times == "auto" and measured):
        assert not isinstance(source, Canary)
        found, label = _measured(source), "measured"
    else:
        found, label = _simulated(source, backend, assume)
    program = Program.of(source)
    if found.origin == "measured":
        # a replay's clock counts from before the first gap, a measured one from the first event
        program = replace(program, clock_ns=program.clock_ns - program.clock_ns[0])
    writer = _Writer(program, found, label)
    files = write_stream(target, _MARK, writer.text())
    notes = (*usual_notes(program, (), {}), *found.notes, _DRAWN[found.origin])
    events = int(np.count_nonzero(program.code >= 0))
    return Export("perfetto", files, writer.slices, events, program.world_size, assumptions=found.assumptions, notes=notes)


@dataclass(frozen=True, eq=False)
class _Times:
    """When events ran.

    Attributes
    ----------
    origin : str
        ``measured`` or ``simulated``.
    arrival_ns : Ragged
        Arrival offset per member; empty rows where unknown.
    counters : mapping of str to ndarray
        Values per event.
    first_ns, start_ns, end_ns : ndarray of int64, shape (events,), optional
        First arrival, start and end of every event, on all ranks alike (simulated).
    durations : Trace, optional
        Has the durations per rank (measured).
    """

    origin: str
    arrival_ns: Ragged
    counters: Mapping[str, npt.NDArray[np.float64]]
    notes: tuple[str, ...]
    assumptions: Mapping[str, str]
    first_ns: IntArray | None = None
    start_ns: IntArray | None = None
    end_ns: IntArray | None = None
    durations: Trace | None = None


def _measured(trace: Trace) -> _Times:
    known = int(trace.duration_max_ns.known_count)
    notes = [] if known == len(trace) else [f"{len(trace) - known} of {len(trace)} events have no measured time and are drawn as instants"]
    unknown = int(np.count_nonzero(~trace.arrival_known))
    if unknown:
        notes.append(f"the arrival skew of {unknown} events is unknown: all their ranks are drawn from the first arrival")
    counters = {"skew_us": np.where(trace.skew_ns.mask, trace.skew_ns.values / 1000.0, np.nan)}
    return _Times("measured", trace.arrival_ns, counters, tuple(notes), {}, durations=trace)


def _simulated(source: Canary | Trace, backend: Backend | None, assume: Mapping[str, float] | None) -> tuple[_Times, str]:
    from commcanary_lab.simulate.backend import DEFAULT_BACKENDS
    from commcanary_lab.simulate.prepare import prepare
    from commcanary_lab.simulate.report import simulate_prepared

    chosen = replace(backend or DEFAULT_BACKENDS[0], iterations=1)
    report = simulate_prepared(prepare(source.trace if isinstance(source, Canary) else source, dict(assume or {})), chosen)
    s = report.samples
    first, start, end = (np.rint(v * 1000.0).astype(np.int64) for v in (s.first_us, s.start_us, s.completion_us))
    trace = report.prepared.trace
    counters = {"exposed_us": s.exposed_us, "queue_wait_us": s.wait_us, "skew_us": s.skew_us}
    assumed = {name: f"{value:g}" for name, value in report.assumptions.items()}
    notes = [f"simulated on backend {chosen.label} with {report.model}: a model, not a measurement"]
    notes += [f"assumed where unknown: {name} = {value}" for name, value in assumed.items()]
    return _Times("simulated", trace.arrival_ns, counters, tuple(notes), assumed, first, start, end), f"simulated: {chosen.label}"


@dataclass
class _Writer:
    """The text of a timeline."""

    program: Program
    times: _Times
    label: str
    slices: int = 0
    _told: dict[int, tuple[int, str]] = field(default_factory=dict)

    def text(self) -> Iterator[bytes]:
        p = self.program
        about: dict[str, Any] = {"origin": self.times.origin, "times": self.label, "events": len(p), "source": p.about.kind}
        about |= {"timing": p.about.timing, "sha256": p.about.identity, "notes": list(p.about.notes)}
        yield (_json(about)[1:] + ',"traceEvents":[\n').encode("ascii")
        first = True
        for rank in sorted(p.groups_of_rank):
            for lines in self._rank(rank):
                if lines:
                    yield (("" if first else ",\n") + ",\n".join(lines)).encode("ascii")
                    first = False
        for lines in self._counters():
            yield (",\n" + ",\n".join(lines)).encode("ascii")
        yield b"\n]}\n"

    def _rank(self, rank: int) -> Iterator[list[str]]:
        p = self.program
        yield [
            _meta(rank, None, "process_name", {"name": f"rank {rank} ({self.label})"}),
            _meta(rank, None, "process_sort_index", {"sort_index": rank}),
        ]
        tracks = _Tracks()
        for events, codes, _ in p.chunks_of(rank):
            lines: list[str] = []
            for event, code, (arrived, start, end) in zip(events.tolist(), codes, self._spans(rank, events), strict=True):
                if code not in self._told:
                    self._told[code] = self._describe(code)
                group, told = self._told[code]
                tid = tracks.lane(group, start, max(end, start))
                where = f'"pid":{rank},"tid":{tid},"ts":{_us(start)},"cat":"{self.times.origin}"'
                common = f'{where},{told},"event":{p.source_event(event)}'
                if end < 0:
                    lines.append(f'{{"ph":"i","s":"t",{common}}}}}')
                else:
                    lines.append(f'{{"ph":"X","dur":{_us(end - start)},{common},"waited_us":{_us(max(0, start - arrived))}}}}}')
                    self.slices += 1
                if start > arrived:
                    wait = f'"cat":"{self.times.origin}","name":"waiting","id":{event},"pid":{rank},"tid":0'
                    lines.append(f'{{"ph":"b",{wait},"ts":{_us(arrived)}}}')
                    lines.append(f'{{"ph":"e",{wait},"ts":{_us(start)}}}')
            yield lines
        yield [
            _meta(rank, tid, "thread_name", {"name": p.groups[group].label + (f", lane {lane + 1}" if lane else "")})
            for (group, lane), tid in tracks.tids.items()
        ]

    def _spans(self, rank: int, events: npt.NDArray[np.intp]) -> Iterator[tuple[int, int, int]]:
        """Arrival, start and end (-1 where unknown) of a rank's events, in nanoseconds."""
        t = self.times
        signature = self.program.fields.signature[events].tolist()
        table = self.program.fields.signatures
        pointers = t.arrival_ns.pointers
        for event, row in zip(events.tolist(), signature, strict=True):
            members = table.groups[table.group[row]].members
            low, high = int(pointers[event]), int(pointers[event + 1])
            each = high - low == len(members) and rank in members
            offset = int(t.arrival_ns.values[low + members.index(rank)]) if each else None
            if t.start_ns is not None and t.end_ns is not None and t.first_ns is not None:
                start = int(t.start_ns[event])
                arrived = start if offset is None else min(start, int(t.first_ns[event]) + offset)
                yield arrived, start, int(t.end_ns[event])
                continue
            start = int(self.program.clock_ns[event]) + (offset or 0)
            yield start, start, self._measured_end(event, rank, start)

    def _measured_end(self, event: int, rank: int, start: int) -> int:
        trace = self.times.durations
        assert trace is not None
        durations, observers = trace.duration_ns.row(event), trace.observers_of(event)
        if rank not in observers or len(durations) != len(observers) or (own := int(durations[observers.index(rank)])) < 0:
            return -1
        return start + own

    def _describe(self, code: int) -> tuple[int, str]:
        """Group of a call, and its name and arguments as text that takes further arguments."""
        call = self.program.call(code)
        row = int(self.program.fields.signature[self.program.first[code]])
        phase = self.program.fields.signatures.phase.text(row)
        args: dict[str, object] = {"op": call.op, "size_bytes": call.size_bytes, "size": format_bytes(call.size_bytes)}
        args |= {"group": self.program.groups[call.group].label, "origin": self.label}
        given = {"dtype": call.dtype, "reduction": call.reduction, "phase": phase, "root": call.root, "sender": call.sender,
                 "receiver": call.receiver}  # fmt: skip
        args |= {k: v for k, v in given.items() if v is not None}
        return call.group, f'"name":{_json(f"{call.op} {format_bytes(call.size_bytes)}")},"args":{_json(args)[:-1]}'

    def _counters(self) -> Iterator[list[str]]:
        """One process more, with values per event; the times are those of the starts."""
        pid = self.program.world_size
        yield [
            _meta(pid, None, "process_name", {"name": f"per event ({self.label})"}),
            _meta(pid, None, "process_sort_index", {"sort_index": -1}),
        ]
        starts = self.program.clock_ns if self.times.start_ns is None else self.times.start_ns
        for low in range(0, len(starts), CHUNK):
            part = slice(low, low + CHUNK)
            for name, values in self.times.counters.items():
                lines = [
                    f'{{"ph":"C","pid":{pid},"name":"{name}","ts":{_us(t)},"args":{{"{name}":{round(v, 3)!r}}}}}'
                    for t, v in zip(starts[part].tolist(), values[part].tolist(), strict=True)
                    if v == v
                ]
                if lines:
                    yield lines


@dataclass
class _Tracks:
    """Threads of a process: one per group, and further lanes where slices of one group would overlap."""

    tids: dict[tuple[int, int], int] = field(default_factory=dict)
    _ends: dict[int, list[int]] = field(default_factory=dict)

    def lane(self, group: int, start: int, end: int) -> int:
        ends = self._ends.setdefault(group, [])
        lane = next((i for i, busy in enumerate(ends) if busy <= start), len(ends))
        if lane == len(ends):
            ends.append(end)
        else:
            ends[lane] = end
        return self.tids.setdefault((group, lane), len(self.tids) + 1)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _meta(pid: int, tid: int | None, name: str, args: dict[str, object]) -> str:
    thread = "" if tid is None else f'"tid":{tid},'
    return f'{{"ph":"M","pid":{pid},{thread}"name":"{name}","args":{_json(args)}}}'


def _us(ns: int) -> str:
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
