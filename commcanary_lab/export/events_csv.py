"""The expanded events as a table: one row per event, units in the column names, nothing where a value is unknown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.fields import EventFields, assemble, split_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.export.folder import write_stream
from commcanary_lab.export.program import CHUNK, describe_source
from commcanary_lab.export.result import Export
from commcanary_lab.trace.columns import Coded, Column, Ragged

if TYPE_CHECKING:
    from commcanary_lab.trace.model import Trace

__all__ = ["COLUMNS", "export_events_csv"]

COLUMNS = (
    "event", "time_us", "gap_us", "op", "phase", "group", "group_ranks", "group_size", "size_bytes", "dtype", "reduction", "root_rank",
    "sender_rank", "receiver_rank", "tag", "channel", "message_sequence", "skew_us", "arrival_offsets_us", "compute_before_us",
    "overlap_us", "pressure", "concurrent_groups", "observed_exposed_us", "duration_us", "reporting_ranks", "splits_bytes",
)  # fmt: skip

_HEADER = (",".join(COLUMNS) + "\n").encode("ascii")


def export_events_csv(source: Canary | Trace, target: str | os.PathLike[str] | BinaryIO) -> Export:
    """Write the events as comma-separated values.

    Times are microseconds with three decimals: whole nanoseconds, exactly as the program has them. Lists are separated by semicolons.
    ``splits_bytes`` holds, per reporting rank: total sent, total received, sent to each member, received from each member; -1 where
    unknown.

    Parameters
    ----------
    source : Canary or Trace
        The events; those of a bounded canary have approximate times.
    target : path-like or binary stream
        A file (``.gz`` compresses), or a stream.

    Returns
    -------
    Export

    Raises
    ------
    RefusedError
        If the file exists and is no such table.
    InputError
        If it cannot be written.

    Examples
    --------
    >>> import io
    >>> import commcanary_lab as lab
    >>> out = io.BytesIO()
    >>> export_events_csv(lab.compile(lab.samples.adversarial()), out).entries
    100
    >>> out.getvalue().decode().splitlines()[1][:60]
    '0,0.000,1.000,all_reduce,decode,tp,0;1,2,1024,,,,,,,,,0.000,'
    """
    fields = source.fields if isinstance(source, Canary) else split_trace(source)
    durations = Column.absent(len(fields.signature)) if isinstance(source, Canary) else source.duration_max_ns
    about = describe_source(source)
    notes = list(about.notes)
    if about.timing == "bounded_approximate":
        notes.append("times are those of a bounded canary: approximate within its stated errors")
    files = write_stream(target, _HEADER, _rows(fields, durations, about.first_event))
    return Export("events-csv", files, about.events, about.events, _ranks(fields), notes=tuple(notes))


def _ranks(fields: EventFields) -> int:
    return len({r for g in fields.signatures.groups for r in g.members})


def _rows(fields: EventFields, durations: Column, first_event: int) -> Iterator[bytes]:
    n, elapsed = len(fields.signature), 0
    begin = int(fields.gap_ns[0]) if n else 0
    for low in range(0, n, CHUNK):
        part = slice(low, low + CHUNK)
        gaps = fields.gap_ns[part]
        times = elapsed + np.cumsum(gaps)
        elapsed = int(times[-1])
        t = assemble(
            replace(
                fields, signature=fields.signature[part], pattern=fields.pattern[part], gap_ns=gaps,
                scalars={k: v[part] for k, v in fields.scalars.items()}, arrival=fields.arrival.take(part),
            )
        )  # fmt: skip
        columns: list[list[str]] = [
            [str(first_event + i) for i in range(low, low + len(t))], _us(times - begin), _us(gaps), _text(t.op),
            _text(t.phase), *_groups(t), _plain(t.size_bytes), _text(t.dtype), _text(t.reduction),
            *(_optional(c, _plain) for c in (t.root, t.sender, t.receiver)), _text(t.tag), _text(t.channel),
            _optional(t.message_sequence, _plain), _optional(t.skew_ns, _us), _lists(t.arrival_ns, _us),
            _optional(t.compute_before_ns, _us), _optional(t.overlap_ns, _us), _optional(t.pressure, _floats),
            _optional(t.concurrent_groups, _plain), _optional(t.observed_exposed_ns, _us), _optional(durations.take(part), _us),
            _observers(t), _lists(t.splits, _plain),
        ]  # fmt: skip
        yield "".join([",".join(row) + "\n" for row in zip(*columns, strict=True)]).encode("utf-8")


def _us(ns: npt.NDArray[Any]) -> list[str]:
    """Microseconds with three decimals, without the rounding of floats."""
    return [f"{'-' if v < 0 else ''}{abs(v) // 1000}.{abs(v) % 1000:03d}" for v in ns.tolist()]


def _plain(values: npt.NDArray[Any]) -> list[str]:
    return [str(v) for v in values.tolist()]


def _floats(values: npt.NDArray[Any]) -> list[str]:
    return [repr(v) for v in values.tolist()]


def _text(column: Coded) -> list[str]:
    names = [*map(_quoted, column.names), ""]
    return [names[c] for c in column.codes.tolist()]


def _quoted(text: str) -> str:
    """Quote what would end a field or a line; the csv module leaves a carriage return bare that its reader then takes for the end."""
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def _optional(column: Column, write: Callable[[npt.NDArray[Any]], list[str]]) -> list[str]:
    if not column.known_count:
        return [""] * len(column)
    values = write(column.values)
    return values if column.all_known else [v if known else "" for v, known in zip(values, column.mask.tolist(), strict=True)]


def _lists(rows: Ragged, write: Callable[[npt.NDArray[Any]], list[str]]) -> list[str]:
    if rows.is_empty:
        return [""] * len(rows)
    values, pointers = write(rows.values), rows.pointers.tolist()
    return [";".join(values[a:b]) for a, b in pairwise(pointers)]


def _groups(t: Trace) -> list[list[str]]:
    names = [_quoted(g.name or "") for g in t.groups]
    ranks = [";".join(map(str, g.members)) for g in t.groups]
    codes = t.group.tolist()
    return [[names[g] for g in codes], [ranks[g] for g in codes], [str(t.groups[g].size) for g in codes]]


def _observers(t: Trace) -> list[str]:
    sets = [";".join(map(str, s)) for s in t.rank_sets]
    whole = [";".join(map(str, g.members)) for g in t.groups]
    return [whole[g] if o < 0 else sets[o] for g, o in zip(t.group.tolist(), t.observers.tolist(), strict=True)]
