"""Turn the operations of a log into a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.nccl_log_comms import Communicator, Communicators
from commcanary_lab.importers.nccl_log_lines import LogReader
from commcanary_lab.importers.nccl_log_match import IntArray, Matched, Rows, match
from commcanary_lab.importers.nccl_log_notes import notes_of, warnings_of
from commcanary_lab.importers.nccl_log_ops import MESSAGES
from commcanary_lab.importers.nccl_log_rings import RingOrders
from commcanary_lab.importers.nccl_log_table import Table
from commcanary_lab.trace.columns import Coded, Column
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.numbering import number_rows
from commcanary_lab.trace.timing import check_timing

__all__ = ["assemble"]

_SHOWN = 20
_TORN = "torn line"
_SELF = "message of a rank to itself"


@dataclass
class _Left:
    """What does not become an event."""

    skipped: Counter[str] = field(default_factory=Counter)
    unsized: list[UnsizedRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def assemble(
    lines: LogReader, comms: Communicators, rings: RingOrders, files: tuple[str, ...], file_warnings: tuple[str, ...], source_format: str
) -> Trace:
    """Make the trace.

    Parameters
    ----------
    lines : LogReader
        Operations.
    comms : Communicators
        Who belongs together.
    rings : RingOrders
        Ring orders that the log states.
    files, file_warnings : tuple of str
        Names of the files, and what was wrong with them.
    source_format : str
        Name of the format.

    Returns
    -------
    Trace
    """
    table = Table.of(lines, comms)
    left = _Left()
    used = _usable(table, left)
    rows = _rows(table, used)
    matched = match(rows)
    left.warnings += warnings_of(table, used, rows, matched)
    columns, names = _columns(table, used, rows, matched)
    ranks = sorted(set(rows.rank.tolist()))
    read = len(lines.rows_call) + len(lines.torn)
    stated = {name: list(order) for name, order in rings.by_group.items() if name in names}
    trace = Trace.build(
        matched.count,
        **columns,
        coverage=ImportCoverage(read, len(used), dict(sorted(left.skipped.items())), tuple(ranks), files),
        unsized=tuple(left.unsized),
        notes=tuple(dict.fromkeys([*notes_of(table, used, matched), *comms.notes, *rings.notes])),
        warnings=(*file_warnings, *comms.warnings, *left.warnings),
        source_format=source_format,
        system=_system(comms),
        extra={"ring_order": stated} if stated else {},
    )
    check_timing(trace)
    return trace


def _system(comms: Communicators) -> dict[str, Any]:
    out: dict[str, Any] = {} if comms.world_size is None else {"world_size": comms.world_size}
    return {**out, "hosts": dict(comms.hosts)} if comms.hosts else out


# -- what is left out -------------------------------------------------------------------------------------------------


def _usable(table: Table, left: _Left) -> IntArray:
    """Rows that become events; the others are counted, and kept with their bytes where only the members are missing."""
    no_size = np.array([m.reason is not None for m in table.meanings], np.bool_)[table.call]
    part = np.array([m.part_bytes for m in table.meanings], np.float64)[table.call]
    no_size |= part * table.nranks >= 2.0**62
    lost = np.array([c.reason is not None for c in table.comms.table], np.bool_)[table.comm] if len(table.comm) else no_size
    rooted = np.array([m.rooted for m in table.meanings], np.bool_)[table.call]
    outside = rooted & ((table.peer < 0) | (table.peer >= table.nranks))
    itself = table.message & ~lost & ~outside & (table.peer == table.group_rank)
    bad = no_size | lost | outside
    for row in np.flatnonzero(bad & ~itself).tolist():
        _leave(table, row, bool(no_size[row]), bool(outside[row]), left)
    if itself.any():
        left.skipped[_SELF] += int(np.count_nonzero(itself))
    if table.lines.torn:
        left.skipped[_TORN] += len(table.lines.torn)
        shown = [table.lines.place(*at) for at in table.lines.torn[:_SHOWN]]
        left.warnings += [f"{place}: an operation is cut and cannot be read" for place in shown]
        _more(left.warnings, len(table.lines.torn), "operations that are cut")
    left.warnings += table.lines.guessed[:_SHOWN]
    _more(left.warnings, len(table.lines.guessed), "torn lines")
    return np.flatnonzero(~(bad | itself))


def _leave(table: Table, row: int, no_size: bool, outside: bool, left: _Left) -> None:
    call, what = table.lines.calls[table.call[row]], table.meanings[table.call[row]]
    nranks = int(table.nranks[row])
    comm = table.comms.table[table.comm[row]]
    size: int | None = None
    if no_size:
        reason = kind = what.reason or "size out of range"
    elif comm.reason is not None:
        kind = comm.reason
        reason = f"{kind} ({table.lines.instances[table.instance[row]].pointer}, {nranks} ranks)"
        size = what.sent_bytes(nranks, call.op == "Recv")
    else:
        kind = "peer outside of the communicator" if call.op in MESSAGES else "root outside of the communicator"
        reason = f"{kind}: {call.root} of {nranks} ranks"
    left.skipped[kind] += 1
    rank = comm.members[table.group_rank[row]] if comm.members and 0 <= table.group_rank[row] < nranks else None
    left.unsized.append(UnsizedRow(call.op, 0, reason, rank, None, size))


def _more(warnings: list[str], count: int, what: str) -> None:
    if count > _SHOWN:
        warnings.append(f"and {count - _SHOWN} more {what}")


# -- events -----------------------------------------------------------------------------------------------------------


def _rows(table: Table, used: IntArray) -> Rows:
    offsets, flat = _flat_members(table.comms.table)
    base = offsets[table.comm[used]] if len(used) else np.zeros(0, np.int64)
    rank = flat[base + table.group_rank[used]]
    message, sends = table.message[used], table.sends[used]
    peer = flat[base + np.maximum(table.peer[used], 0)]
    call = table.call[used]
    pairs = [(m.op, m.part_bytes, m.dtype, m.reduction, c.root if m.rooted and c.op not in MESSAGES else None)
             for m, c in zip(table.meanings, table.lines.calls, strict=True)]  # fmt: skip
    number = {p: i for i, p in enumerate(dict.fromkeys(pairs))}
    same = np.array([number[p] for p in pairs], np.int64)
    return Rows(
        comm=table.comm[used],
        rank=rank,
        op_count=np.array(table.lines.rows_op_count, np.int64)[used],
        meaning=same[call],
        sender=np.where(message, np.where(sends, rank, peer), -1),
        receiver=np.where(message, np.where(sends, peer, rank), -1),
        sends=sends,
    )


def _flat_members(table: Sequence[Communicator]) -> tuple[IntArray, IntArray]:
    """Global ranks of all communicators behind each other, and where each begins."""
    sizes, parts = [], []
    for c in table:
        members = c.global_ranks or ()
        sizes.append(len(members))
        parts.append(np.array(members, np.int64))
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])[:-1].astype(np.int64)
    return offsets, np.concatenate([*parts, np.zeros(1, np.int64)])


def _columns(table: Table, used: IntArray, rows: Rows, matched: Matched) -> tuple[dict[str, Any], set[str]]:
    """Columns of the trace, and the names of the communicators in it."""
    n = matched.count
    first = np.zeros(n, np.int64)
    first[matched.event[::-1]] = np.arange(len(used))[::-1]  # the first row of each event
    call = table.call[used[first]]
    peer = table.peer[used[first]]
    comm = rows.comm[first]
    sender, receiver = rows.sender[first], rows.receiver[first]
    is_message = sender >= 0
    offsets, flat = _flat_members(table.comms.table)
    rooted = np.array([m.rooted for m in table.meanings], np.bool_)[call] & ~is_message
    root = flat[(offsets[comm] if n else comm) + np.maximum(peer, 0)]
    groups = GroupTable()
    key, count = number_rows(comm, np.where(is_message, sender, -1), np.where(is_message, receiver, -1))
    one = np.zeros(count, np.int64)
    one[key[::-1]] = np.arange(n)[::-1]
    own = np.zeros(count, np.int32)
    for code in np.argsort(one, kind="stable").tolist():
        e = int(one[code])
        c = table.comms.table[comm[e]]
        members = {int(sender[e]), int(receiver[e])} if is_message[e] else c.global_ranks or ()
        own[code] = groups.code(c.name, members)
    observers, rank_sets = _observers(rows, matched, np.where(is_message, 2, table.nranks[used[first]]))
    columns = dict(
        op=_coded(call, [m.op for m in table.meanings]),
        dtype=_coded(call, [m.dtype for m in table.meanings]),
        reduction=_coded(call, [m.reduction for m in table.meanings]),
        custom_op=np.array([m.custom for m in table.meanings], np.bool_)[call],
        group=own[key] if n else np.zeros(0, np.int32),
        groups=groups.groups,
        size_bytes=table.size_bytes(used[first]),
        root=Column(np.where(rooted, root, 0), rooted),
        sender=Column(np.maximum(sender, 0), is_message),
        receiver=Column(np.maximum(receiver, 0), is_message),
        arrival_known=np.zeros(n, np.bool_),
        observers=observers,
        rank_sets=rank_sets,
    )
    return columns, {g.name for g in groups.groups if g.name is not None}


def _coded(call: IntArray, names: Sequence[str | None]) -> Coded:
    texts = sorted({x for x in names if x is not None})
    number = {x: i for i, x in enumerate(texts)}
    return Coded(np.array([-1 if x is None else number[x] for x in names], np.int32)[call], tuple(texts))


def _observers(rows: Rows, matched: Matched, expected: IntArray) -> tuple[npt.NDArray[np.int32], tuple[tuple[int, ...], ...]]:
    """Which ranks reported each event; -1 where all did."""
    seen = np.bincount(matched.event, minlength=matched.count)
    out = np.full(matched.count, -1, np.int32)
    partial = seen < expected
    if not partial.any():
        return out, ()
    order = np.lexsort((rows.rank, matched.event))
    ends = np.cumsum(seen)
    ranks = rows.rank[order]
    sets: dict[tuple[int, ...], int] = {}
    single = partial & (seen == 1)
    alone, code = np.unique(ranks[ends[single] - 1], return_inverse=True)
    for rank in alone.tolist():
        sets[(rank,)] = len(sets)
    out[single] = code.astype(np.int32)
    for event in np.flatnonzero(partial & ~single).tolist():
        key = tuple(ranks[ends[event] - seen[event] : ends[event]].tolist())
        out[event] = sets.setdefault(key, len(sets))
    return out, tuple(sets)
