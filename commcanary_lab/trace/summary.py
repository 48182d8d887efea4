"""What a trace holds at a glance: as a value, as text, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from commcanary_lab.trace.columns import Coded
from commcanary_lab.trace.model import ImportCoverage, Trace
from commcanary_lab.trace.timing import clock_ns, timing_mode
from commcanary_lab.units import format_bytes, format_count, format_us

__all__ = ["GroupSummary", "TraceSummary", "summarise", "summary_html", "summary_text"]

#: Groups listed before the rest is only counted.
MAX_GROUPS = 12

_TIMING_WORDS = {
    "start": "every event has a start time",
    "gap": "gaps between events",
    "compute_before": "compute time before each event",
    "none": "no times",
}


@dataclass(frozen=True)
class GroupSummary:
    """A process group and what it does in a trace.

    Attributes
    ----------
    label : str
        Name, size and ranks for people.
    size : int
        Number of ranks.
    events : int
        Events of the group.
    payload_bytes : int
        Sum of B over the group's records.
    """

    label: str
    size: int
    events: int
    payload_bytes: int


@dataclass(frozen=True)
class TraceSummary:
    """What a trace holds.

    Attributes
    ----------
    format : str
        Source format.
    events, records, ranks, groups : int
        Logical events; rank records behind them; distinct global ranks; groups in use.
    payload_bytes : int
        Sum of B over the records.
    ops, phases : mapping of str to int
        Events by operation and by phase, the most frequent first.
    group_table : tuple of GroupSummary
        Groups in use, the most bytes first.
    unsized_count : int
        Collectives without size or members: their time is kept, bytes are not invented.
    unsized_us : float
        Their time.
    coverage : ImportCoverage
        What the importer read, used and skipped.
    timing : str
        What orders the events: ``start``, ``gap``, ``compute_before`` or ``none``.
    duration_us : float or None
        From the first event to the latest known end (or start); None where the source has no times.
    unknown : mapping of str to int
        Events by field that the simulator needs and the source does not say.
    notes, warnings : tuple of str
        What the importer says.
    """

    format: str
    events: int
    records: int
    ranks: int
    groups: int
    payload_bytes: int
    ops: Mapping[str, int]
    phases: Mapping[str, int]
    group_table: tuple[GroupSummary, ...]
    unsized_count: int
    unsized_us: float
    coverage: ImportCoverage
    timing: str
    duration_us: float | None
    unknown: Mapping[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {
            "format": self.format,
            "events": self.events,
            "records": self.records,
            "ranks": self.ranks,
            "groups": self.groups,
            "payload_bytes": self.payload_bytes,
            "ops": dict(self.ops),
            "phases": dict(self.phases),
            "group_table": [
                {"group": g.label, "size": g.size, "events": g.events, "payload_bytes": g.payload_bytes} for g in self.group_table
            ],
            "unsized": {"count": self.unsized_count, "time_us": self.unsized_us},
            "import_coverage": {
                "read": self.coverage.read,
                "used": self.coverage.used,
                "skipped": dict(self.coverage.skipped),
                "ranks": list(self.coverage.ranks),
                "files": list(self.coverage.files),
            },
            "timing": self.timing,
            "duration_us": self.duration_us,
            "unknown": dict(self.unknown),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def summarise(trace: Trace) -> TraceSummary:
    """Summarise a trace.

    Examples
    --------
    >>> from commcanary_lab.trace import ProcessGroup
    >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32),
    ...                 size_bytes=np.array([8, 8]))
    >>> s = summarise(t)
    >>> s.events, s.records, s.payload_bytes, s.ops, s.unknown
    (2, 4, 32, {'all_reduce': 2}, {'overlap_us': 2})
    """
    groups = _groups(trace)
    timing = timing_mode(trace)
    return TraceSummary(
        format=trace.source_format,
        events=len(trace),
        records=trace.record_count,
        ranks=len(trace.ranks),
        groups=len(groups),
        payload_bytes=sum(g.payload_bytes for g in groups),
        ops=_counts(trace.op),
        phases=_counts(trace.phase),
        group_table=tuple(groups),
        unsized_count=len(trace.unsized),
        unsized_us=sum(row.time_ns for row in trace.unsized) / 1000.0,
        coverage=trace.coverage,
        timing=timing,
        duration_us=None if timing == "none" else _duration_us(trace),
        unknown=trace.unknown_fields,
        notes=trace.notes,
        warnings=trace.warnings,
    )


def _counts(column: Coded) -> dict[str, int]:
    """Events by text, the most frequent first, then by name."""
    column = column.normalised()
    counts = np.bincount(column.codes + 1, minlength=len(column.names) + 1)[1:].tolist()
    return dict(sorted(zip(column.names, counts, strict=True), key=lambda item: (-item[1], item[0])))


def _groups(trace: Trace) -> list[GroupSummary]:
    events = np.bincount(trace.group, minlength=len(trace.groups)).tolist()
    rows = [
        GroupSummary(g.label, g.size, count, total)
        for g, count, total in zip(trace.groups, events, _payload_by_group(trace), strict=True)
        if count
    ]
    return sorted(rows, key=lambda row: (-row.payload_bytes, -row.events))


def _payload_by_group(trace: Trace) -> list[int]:
    """Sum of B over the records of each group, exact whatever the sizes are."""
    out = [0] * len(trace.groups)
    if not len(trace):
        return out
    sizes, records = trace.size_bytes, trace.observer_counts
    fits = int(sizes.max()) * int(records.max()) * len(trace) < 1 << 63
    payload = (sizes if fits else sizes.astype(object)) * records
    order = np.argsort(trace.group, kind="stable")
    codes = trace.group[order]
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    for code, total in zip(codes[first].tolist(), np.add.reduceat(payload[order], first).tolist(), strict=True):
        out[code] = total
    for event in np.flatnonzero(trace.splits.lengths).tolist():
        out[int(trace.group[event])] += _split_payload(trace, event) - int(sizes[event]) * int(records[event])
    return out


def _split_payload(trace: Trace, event: int) -> int:
    """Sum of B over the records of an uneven all-to-all: each record's B is the larger of what its rank sent and received."""
    k, size = int(trace.group_sizes[event]), int(trace.size_bytes[event])
    rows = trace.splits.row(event).reshape(-1, 2 * k + 2).tolist()
    total = 0
    for sent, received, *cells in rows:
        known = [sum(part) for part in (cells[:k], cells[k:]) if min(part) >= 0]
        largest = max([sent, received, *known])
        total += largest if largest >= 0 else size
    return total


def _duration_us(trace: Trace) -> float:
    if not len(trace):
        return 0.0
    ends = clock_ns(trace) + trace.duration_max_ns.filled(0)
    return int(ends.max()) / 1000.0


def summary_text(trace: Trace) -> str:
    """Return the summary as plain text, a few lines."""
    s = summarise(trace)
    lines = [_headline(s), *(f"  {name:<10} {text}" for name, text in _facts(s))]
    lines += [f"  note       {note}" for note in s.notes]
    return "\n".join(lines)


def _headline(s: TraceSummary) -> str:
    return (
        f"{format_count(s.events)} event{'s' * (s.events != 1)} on {format_count(s.ranks)} rank{'s' * (s.ranks != 1)} in "
        f"{format_count(s.groups)} group{'s' * (s.groups != 1)}, from {s.format}"
    )


def _facts(s: TraceSummary) -> Iterable[tuple[str, str]]:
    """Rows of name and text that both forms show."""
    yield "payload", f"{format_bytes(s.payload_bytes)} in {format_count(s.records)} records"
    duration = "" if s.duration_us is None else f", {format_us(s.duration_us)} long"
    yield "timing", _TIMING_WORDS[s.timing] + duration
    if s.ops:
        yield "operations", _listed(s.ops)
    if s.phases:
        yield "phases", _listed(s.phases)
    for g in s.group_table[:MAX_GROUPS]:
        yield "group", f"{g.label}: {format_count(g.events)} events, {format_bytes(g.payload_bytes)}"
    if len(s.group_table) > MAX_GROUPS:
        yield "group", f"{format_count(len(s.group_table) - MAX_GROUPS)} more"
    if s.unsized_count:
        yield "unsized", f"{format_count(s.unsized_count)} collectives without size or members, {format_us(s.unsized_us)}"
    c = s.coverage
    skipped = f"; skipped {_listed(c.skipped)}" if c.skipped else ""
    yield "import", f"{format_count(c.used)} of {format_count(c.read)} source records used{skipped}"
    if s.unknown:
        yield "unknown", _listed(s.unknown) + f" (of {format_count(s.events)} events)"


def _listed(counts: Mapping[str, int], most: int = 10) -> str:
    shown = [f"{name} {format_count(n)}" for name, n in list(counts.items())[:most]]
    return ", ".join(shown + [f"{len(counts) - most} more"] * (len(counts) > most))


def summary_html(trace: Trace) -> str:
    """Return the summary as an HTML table for notebooks; all text that comes from files is escaped."""
    s = summarise(trace)
    rows = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th>{_cell(text)}</tr>" for name, text in _facts(s))
    return f"<div><p>{escape(_headline(s))}</p><table>{rows}</table>{_list_html('', s.notes)}{_list_html('warning: ', s.warnings)}</div>"


def _cell(text: str) -> str:
    return f"<td style='text-align:left'>{escape(text)}</td>"


def _list_html(prefix: str, items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{prefix}{escape(item)}</li>" for item in items) + "</ul>" if items else ""
