"""Import NCCL Inspector and RCCL Inspector output (JSON lines).

A record is one collective or message of one rank of one communicator, with its size and measured time. It does not say when it ran,
unless the plugin is verbose, and names ranks inside the communicator only: `membership` finds the global ranks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers.inspector_algorithms import algorithms_of
from commcanary_lab.importers.inspector_files import read_parts
from commcanary_lab.importers.inspector_lines import recognise
from commcanary_lab.importers.inspector_loss import dropped_of, is_sample, losses_of
from commcanary_lab.importers.inspector_table import Table, communicators_of
from commcanary_lab.importers.inspector_values import WRAPPED, Values, values_of
from commcanary_lab.importers.membership import Communicator, Membership, resolve
from commcanary_lab.importers.rank_files import asked_rank
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge_columns import Origin, merge_columns
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.record_columns import RecordColumns

__all__ = ["FORMAT", "read", "recognise", "trace_of"]

FORMAT = "nccl_inspector"

_SHOWN = 20
_SAMPLE = "one collective per communicator and dump: this plugin writes the latest one only; the records are a sample, not a log"
_ORDER = "no event times: events are in the order of each rank's file; between communicators that is the order of the dumps"
_START = "starts are those of the first kernel channel as its host saw it, else when the host issued the operation"


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    layout: Layout | None = None,
    ranks: Mapping[str, int] | None = None,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the files of one job.

    Parameters
    ----------
    paths : sequence of path-like
        Files of any number of ranks each.
    layout : Layout, optional
        Which global ranks form which communicator. Without it, names of communicators or a communicator of all ranks must say it.
    ranks : mapping of str to int, optional
        Global rank of files that hold one process, by path or file name.
    clock_offsets_ns : mapping of int to int, optional
        Nanoseconds to add to each rank's clock; for verbose records.
    align_ends : bool
        Estimate the offsets from matched ends; for verbose records.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Durations where measured; starts only from verbose records. ``extra["inspector"]`` holds gaps, drops and wire
        edges, ``extra["algorithms"]`` the algorithms that the records state, for attribution.

    Raises
    ------
    FormatError
        If a line is no record; names file and line.
    RefusedError
        If it is not clear which ranks a communicator joins; lists the candidates.
    InputError
        If the layout does not fit.
    MergeError
        If records contradict each other.
    LimitError
        If a limit is exceeded.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one file")
    limits.check_files(len(paths), str(paths[0]))
    table = Table.of(read_parts(paths, limits))
    limits.check_events(len(table), "the files together")
    if not len(table) and not table.dumps and not any(p.unknown for p in table.parts):
        raise FormatError("no record in it is complete", file=str(paths[0]), remedy="record again, or leave the file out")
    return trace_of(table, layout=layout, ranks=ranks, clock_offsets_ns=clock_offsets_ns, align_ends=align_ends, limits=limits)


def trace_of(
    table: Table,
    *,
    layout: Layout | None = None,
    ranks: Mapping[str, int] | None = None,
    clock_offsets_ns: Mapping[int, int] | None = None,
    align_ends: bool = False,
    limits: Limits = DEFAULT,
) -> Trace:
    """Make a trace of records that have been read; parameters and errors are those of `read`."""
    communicators, of_header = communicators_of(table)
    limits.check_groups(len(communicators), "the files together")
    limits.check_members(sum(c.size for c in communicators), "the files together")
    known = _ranks_of_processes(table, ranks or {})
    membership = resolve(communicators, [p.label for p in table.processes], layout=layout, ranks=known)
    values = values_of(table)
    ends = _Ends.of(table, values, of_header, membership)
    records = RecordColumns(
        rank=ends.rank,
        communicator=ends.communicator,
        op=values.op,
        size_bytes=values.size_bytes,
        sequence=table.columns["sequence"],
        sender=ends.sender,
        receiver=ends.receiver,
        start_ns=_starts_ns(table),
        duration_ns=values.time_ns,
        communicators=membership.groups,
        ops=values.ops,
        custom=values.custom,
        sequence_per_op=True,
    )
    origin = _origin(table, values, ends, communicators, of_header, membership, layout)
    kept = records if values.kept.all() else records.take(np.flatnonzero(values.kept))
    return merge_columns(kept, origin, lossy=True, clock_offsets_ns=clock_offsets_ns, align_ends=align_ends)


def _ranks_of_processes(table: Table, ranks: Mapping[str, int]) -> dict[int, int]:
    """Global rank of the process of each file that is given one."""
    out: dict[int, int] = {}
    for number, part in enumerate(table.parts):
        rank = asked_rank(part.file, ranks)
        if rank is None:
            continue
        own = np.unique(table.columns["process"][table.file == number]).tolist()
        if len(own) != 1:
            raise UsageError(f"holds {len(own)} processes, not one rank", file=part.file, remedy="give a layout instead of ranks")
        out[own[0]] = rank
    return out


@dataclass(frozen=True, eq=False)
class _Ends:
    """Global ranks of each record: whose it is, and the ends of messages."""

    communicator: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    sender: npt.NDArray[np.int64]
    receiver: npt.NDArray[np.int64]
    #: Global ranks of all communicators behind each other, and where each begins.
    flat: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, table: Table, values: Values, of_header: npt.NDArray[np.int64], membership: Membership) -> _Ends:
        flat = np.array([r for m in membership.members for r in m] or [0], np.int64)
        offsets = np.concatenate([[0], np.cumsum([len(m) for m in membership.members])]).astype(np.int64)
        communicator = of_header[table.columns["header"]] if len(table) else np.zeros(0, np.int64)
        base = offsets[communicator]
        rank = flat[base + table.of_header("rank")]
        if not values.message.any():
            none = np.broadcast_to(np.int64(-1), rank.shape)
            return cls(communicator, rank, none, none, flat, offsets)
        peer = flat[base + np.maximum(table.columns["peer"], 0)]
        sender = np.where(values.message, np.where(values.sends, rank, peer), -1)
        receiver = np.where(values.message, np.where(values.sends, peer, rank), -1)
        return cls(communicator, rank, sender, receiver, flat, offsets)


def _starts_ns(table: Table) -> npt.NDArray[np.int64]:
    start = table.columns["start_us"]
    return np.where(start >= 0, start * 1000, -1) if np.any(start >= 0) else start


# -- what is said beside the records ----------------------------------------------------------------------------------


def _origin(
    table: Table,
    values: Values,
    ends: _Ends,
    communicators: Sequence[Communicator],
    of_header: npt.NDArray[np.int64],
    membership: Membership,
    layout: Layout | None,
) -> Origin:
    losses, dropped = losses_of(table, communicators, of_header), dropped_of(table)
    warnings = [w for part in table.parts for w in part.warnings]
    warnings += [loss.text for loss in losses[:_SHOWN]]
    if len(losses) > _SHOWN:
        warnings.append(f"and {len(losses) - _SHOWN} more communicators and collectives with missing sequence numbers")
    warnings += [text for text in (dropped.text, *values.warnings) if text]
    inspector: dict[str, Any] = {}
    if losses:
        inspector["loss"] = [{"communicator": x.communicator, "op": x.op, "expected": x.expected, "lost": x.lost} for x in losses]
    if table.dumps:
        inspector["dropped"] = {"collectives": dropped.collectives, "messages": dropped.messages}
    if wires := _wires(table, ends, of_header):
        inspector["wires"] = wires
    stated, contradictions = algorithms_of(table, values, ends.communicator, membership.groups)
    extra = {**({"algorithms": stated} if stated else {}), **({"inspector": inspector} if inspector else {})}
    return Origin(
        FORMAT,
        _files(table, ends),
        "unix",
        coverage=_coverage(table, values, ends, dropped.collectives, dropped.messages),
        unsized=_unsized(table, values, ends),
        notes=(*membership.notes, *values.notes, *_notes(table, bool(losses))),
        warnings=(*warnings, *contradictions[:_SHOWN]),
        system={"world_size": layout.world_size} if layout is not None else {},
        extra=extra,
    )


def _notes(table: Table, gaps: bool) -> list[str]:
    out = []
    if gaps and is_sample(table):
        out.append(_SAMPLE)
    if table.wires:
        out.append('proxy operations name edges of the wire: extra["inspector"]["wires"]')
    starts = table.columns["start_us"] >= 0
    if starts.any():
        out.append(_START)
    elif len(table):
        out.append(_ORDER)
    if foreign := sum(p.foreign_starts for p in table.parts):
        out.append(f"event times of {foreign:,} of {len(table):,} records are not of the host's clock: left out")
    return out


def _files(table: Table, ends: _Ends) -> dict[int, str]:
    ranks, first = np.unique(ends.rank, return_index=True)
    return {rank: table.parts[table.file[row]].file for rank, row in zip(ranks.tolist(), first.tolist(), strict=True)}


def _coverage(table: Table, values: Values, ends: _Ends, collectives: int, messages: int) -> ImportCoverage:
    skipped = dict(values.skipped)
    for reason, count in (
        ("cut short", sum(p.torn for p in table.parts)),
        ("no payload that is known", sum(p.unknown for p in table.parts)),
        ("collective dropped by the plugin (dump_stats)", collectives),
        ("message dropped by the plugin (dump_stats)", messages),
    ):
        if count:
            skipped[reason] = count
    used = int(np.count_nonzero(values.kept))
    files = tuple(Path(p.file).name for p in table.parts)
    return ImportCoverage(used + sum(skipped.values()), used, dict(sorted(skipped.items())), tuple(np.unique(ends.rank).tolist()), files)


def _unsized(table: Table, values: Values, ends: _Ends) -> tuple[UnsizedRow, ...]:
    rows = np.flatnonzero(values.wrapped).tolist()
    kind = table.columns["kind"]
    return tuple(UnsizedRow(table.kinds[kind[i]].name, max(0, int(values.time_ns[i])), WRAPPED, int(ends.rank[i])) for i in rows)


def _wires(table: Table, ends: _Ends, of_header: npt.NDArray[np.int64]) -> list[list[int]]:
    """Bytes that proxies sent, by global source and destination."""
    out: dict[tuple[int, int], int] = {}
    for header, peer, size in table.wires:
        h, base = table.headers[header], ends.offsets[of_header[header]]
        if peer < h.n_ranks:
            pair = (int(ends.flat[base + h.rank]), int(ends.flat[base + peer]))
            out[pair] = out.get(pair, 0) + size
    return [[src, dst, size] for (src, dst), size in sorted(out.items())]
