"""The Canary: a program of loop nests over steps, each step with a signature and its timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab._shown import Shown
from commcanary_lab.canary.commit import Locator
from commcanary_lab.canary.fields import SCALAR_FIELDS, Clock, EventFields, assemble
from commcanary_lab.canary.grammar import Grammar, expand
from commcanary_lab.canary.streams import ERROR_FIELDS, BoundedStream, ExactStream, StepStream
from commcanary_lab.trace.columns import Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import stable_order

__all__ = ["Canary", "SourceStatement", "largest_errors"]


@dataclass(frozen=True)
class SourceStatement:
    """What a canary states about its source.

    Parameters
    ----------
    events : int
        Events of the source trace.
    start, stop : int
        The range of them that the canary stands for.
    size_bytes : int
        Size of that range as canonical v1 JSON.
    root : str
        Commitment to the range, 64 hexadecimal digits.
    locator : Locator
        Finds a single changed record.
    salted : bool
        True when the commitments need the owner's salt.
    format : str
        Format of the original source.
    records_read, records_used : int
        Import coverage of the source.
    derived_from : mapping, optional
        For a canary of reduced events: what they were derived from.
    """

    events: int
    start: int
    stop: int
    size_bytes: int
    root: str
    locator: Locator
    salted: bool = False
    format: str = "commcanary.trace.v1"
    records_read: int = 0
    records_used: int = 0
    derived_from: Mapping[str, Any] | None = None

    @property
    def is_whole(self) -> bool:
        """True when the canary stands for all events of the source."""
        return self.start == 0 and self.stop == self.events and self.derived_from is None


@dataclass(frozen=True, eq=False)
class Canary(Shown):
    """A small, model-free, replayable program distilled from a trace.

    Attributes
    ----------
    signatures : Trace
        One row per distinct signature, without timing.
    patterns : tuple of frozenset of str
        Which fields the events of each pattern have.
    program : Grammar
        Rule 0 is the program; terminals are step numbers.
    step_signature, step_pattern : ndarray of int64, shape (steps,)
        Signature and pattern of each step.
    streams : tuple of ExactStream or BoundedStream
        Timing of each step.
    splits : Ragged
        Distinct split lists of uneven all-to-alls.
    clock : Clock
        Which field governed time in the source.
    source : SourceStatement
        What the canary states about its source.
    errors : mapping of str to float
        Largest error of each field; nanoseconds, ``pressure`` in its own unit. ``clock_ns`` is the largest error of an event's time.
    notes : tuple of str
        Notes that travel from importer to report.
    """

    signatures: Trace
    patterns: tuple[frozenset[str], ...]
    program: Grammar
    step_signature: npt.NDArray[np.int64]
    step_pattern: npt.NDArray[np.int64]
    streams: tuple[StepStream, ...]
    splits: Ragged
    clock: Clock
    source: SourceStatement
    errors: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def timing(self) -> str:
        """``lossless`` or ``bounded_approximate``."""
        return "bounded_approximate" if any(isinstance(s, BoundedStream) for s in self.streams) else "lossless"

    @property
    def event_count(self) -> int:
        """Events that the program runs."""
        return self.source.stop - self.source.start

    @cached_property
    def records(self) -> int:
        """Timing records: intervals of bounded steps; for exact steps, the longest of their encoded fields."""
        return sum(s.records for s in self.streams)

    @property
    def event_ratio(self) -> float:
        """Events per record."""
        return self.event_count / self.records if self.records else 1.0

    @cached_property
    def canonical(self) -> bytes:
        """The canonical JSON of the canary."""
        from commcanary_lab.canary.document import to_bytes

        return to_bytes(self)

    @property
    def size_bytes(self) -> int:
        """Size of the canonical JSON."""
        return len(self.canonical)

    @property
    def byte_ratio(self) -> float:
        """Source bytes per canary byte."""
        return self.source.size_bytes / self.size_bytes

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the canonical JSON."""
        from commcanary_lab.canonical import sha256_hex

        return sha256_hex(self.canonical)

    @cached_property
    def step_of_event(self) -> npt.NDArray[np.int64]:
        """Step of each event in program order, shape (events,)."""
        return expand(self.program).astype(np.int64)

    @cached_property
    def by_step(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Events sorted by step (stable), and where each step begins, shape (steps + 1,)."""
        order = stable_order(self.step_of_event, len(self.streams))
        counts = np.bincount(self.step_of_event, minlength=len(self.streams))
        return order, np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def trace(self) -> Trace:
        """The program, expanded: one row per event, without ids. Source event i of the range is row i."""
        return assemble(self.fields, exact=self.timing == "lossless", notes=self.notes)

    @cached_property
    def fields(self) -> EventFields:
        """The program, expanded to the parts that `fields.split_trace` splits a trace into."""
        order, _ = self.by_step
        streams = [s.expanded() for s in self.streams]

        def scatter(values: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
            flat = np.concatenate(values) if values else np.zeros(0, np.int64)
            out = np.empty(len(flat), flat.dtype)
            out[order] = flat
            return out

        names = [n for n in SCALAR_FIELDS if any(n in s.scalars for s in streams)]
        scalars = {
            n: scatter([s.scalars.get(n, np.zeros(s.rows, np.float64 if n == "pressure" else np.int64)) for s in streams]) for n in names
        }
        step = self.step_of_event
        return EventFields(
            self.signatures,
            self.step_signature[step],
            self.patterns,
            self.step_pattern[step],
            scatter([s.gap_ns for s in streams]),
            scalars,
            _scatter_arrivals(streams, order),
            self.splits,
            self.clock,
        )

    def __len__(self) -> int:
        return self.event_count

    def __repr__(self) -> str:
        size = f"{self.size_bytes:,} of {self.source.size_bytes:,} bytes"
        return f"Canary({self.event_count:,} events in {self.records:,} records, {size}, {self.timing})"

    def _repr_html_(self) -> str:
        from commcanary_lab.canary.summary import summary_html

        return summary_html(self)


def _scatter_arrivals(streams: list[ExactStream], order: npt.NDArray[np.intp]) -> Ragged:
    widths = np.concatenate([np.full(s.rows, s.arrival_ns.shape[1], np.int64) for s in streams]) if streams else np.zeros(0, np.int64)
    if not widths.any():
        return Ragged.empty(len(widths))
    by_step = Ragged.from_lengths(np.concatenate([s.arrival_ns.reshape(-1) for s in streams]), widths)
    back = np.empty(len(order), np.intp)
    back[order] = np.arange(len(order))
    return by_step.take(back)


def largest_errors(streams: tuple[StepStream, ...]) -> dict[str, float]:
    """Return the largest error per field over the bounded streams; 0 for exact ones."""
    out: dict[str, float] = dict.fromkeys(ERROR_FIELDS, 0)
    for s in streams:
        if isinstance(s, BoundedStream):
            for name, values in s.errors.items():
                out[name] = max(out[name], values.max().item())
    return out
