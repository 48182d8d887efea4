"""Turn the operations of a log into a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.importers.nccl_log_comms import Communicator, Communicators
from commcanary_lab.importers.nccl_log_lines import LogReader
from commcanary_lab.importers.nccl_log_match import IntArray, Matched, Rows, codes, match
from commcanary_lab.importers.nccl_log_ops import MESSAGES, Meaning, meaning
from commcanary_lab.importers.nccl_log_rings import RingOrders
from commcanary_lab.trace.columns import Coded, Column
from commcanary_lab.trace.groups import GroupTable, ranks_text
from commcanary_lab.trace.model import ImportCoverage, Trace, UnsizedRow
from commcanary_lab.trace.timing import check_timing

__all__ = ["assemble"]

_SHOWN = 20
_TORN = "torn line"
_SELF = "message of a rank to itself"


@dataclass(frozen=True, eq=False)
class _Table:
    """The operations of a log as columns; one entry each."""

    lines: LogReader
    comms: Communicators
    meanings: tuple[Meaning, ...]
    instance: IntArray
    call: IntArray
    comm: IntArray
    group_rank: IntArray
    nranks: IntArray
    peer: IntArray
    message: npt.NDArray[np.bool_]
    sends: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, lines: LogReader, comms: Communicators) -> _Table:
        instance = np.array(lines.rows_instance, np.int64)
        call = np.array(lines.rows_call, np.int64)
        meanings = tuple(meaning(c) for c in lines.calls)
        message = np.array([c.op in MESSAGES for c in lines.calls], np.bool_)
        sends = np.array([c.op == "Send" for c in lines.calls], np.bool_)
        peer = np.array([c.root if m.rooted else -1 for c, m in zip(lines.calls, meanings, strict=True)], np.int64)
        sizes = np.array([i.nranks for i in lines.instances], np.int64)
        comm, rank = np.array(comms.of_instance, np.int64)[instance], np.array(comms.rank_of_instance, np.int64)[instance]
        return cls(lines, comms, meanings, instance, call, comm, rank, sizes[instance], peer[call], message[call], sends[call])

    def size_bytes(self, rows: IntArray) -> IntArray:
        """B of each row."""
        part = np.array([m.part_bytes for m in self.meanings], np.int64)
        scaled = np.array([m.per_rank for m in self.meanings], np.bool_)
        call = self.call[rows]
        return part[call] * np.where(scaled[call], self.nranks[rows], 1)


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
    table = _Table.of(lines, comms)
    left = _Left()
    used = _usable(table, left)
    rows = _rows(table, used)
    matched = match(rows)
    _warn(table, used, rows, matched, left)
    columns, names = _columns(table, used, rows, matched)
    ranks = sorted(set(rows.rank.tolist()))
    read = len(lines.rows_call) + len(lines.torn)
    stated = {name: list(order) for name, order in rings.by_group.items() if name in names}
    trace = Trace.build(
        matched.count,
        **columns,
        coverage=ImportCoverage(read, len(used), dict(sorted(left.skipped.items())), tuple(ranks), files),
        unsized=tuple(left.unsized),
        notes=tuple(dict.fromkeys([*_notes(table, used, matched), *comms.notes, *rings.notes])),
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


def _usable(table: _Table, left: _Left) -> IntArray:
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


def _leave(table: _Table, row: int, no_size: bool, outside: bool, left: _Left) -> None:
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


def _rows(table: _Table, used: IntArray) -> Rows:
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


def _columns(table: _Table, used: IntArray, rows: Rows, matched: Matched) -> tuple[dict[str, Any], set[str]]:
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
    key, count = codes(comm, np.where(is_message, sender, -1), np.where(is_message, receiver, -1))
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


# -- what a reader must know ------------------------------------------------------------------------------------------


def _warn(table: _Table, used: IntArray, rows: Rows, matched: Matched, left: _Left) -> None:
    by_comm: Counter[int] = Counter(rows.comm[matched.desync[:, 0]].tolist())
    told: set[int] = set()
    for one, other in matched.desync.tolist():
        comm = int(rows.comm[one])
        if comm in told:
            continue
        told.add(comm)
        left.warnings.append(
            f"{table.comms.table[comm].label}: desync at opCount {rows.op_count[one]:x}: {_did(table, used, rows, matched, one)}, "
            f"{_did(table, used, rows, matched, other)}; {by_comm[comm]} operation{'s' if by_comm[comm] != 1 else ''} on which the ranks "
            "disagree, kept apart"
        )
    for comm in sorted(set(matched.short.tolist()) - told)[:_SHOWN]:
        left.warnings.append(
            f"{table.comms.table[comm].label}: the ranks in the log show different numbers of operations: it is cut; "
            "what a rank does not show is not counted for it"
        )
    if matched.unpaired:
        left.warnings.append(
            f"{matched.unpaired} messages are shown by one of their ends only, though the other end is in the log: it is cut, or the ends "
            "disagree about the size; each is counted once"
        )
    left.warnings += _suspected(table)


def _did(table: _Table, used: IntArray, rows: Rows, matched: Matched, row: int) -> str:
    call = table.lines.calls[table.call[used[row]]]
    ranks = tuple(sorted(rows.rank[matched.event == matched.event[row]].tolist()))
    many = len(ranks) > 1
    return f"rank{'s' if many else ''} {ranks_text(ranks)} call{'' if many else 's'} {_said(call.op, call.elements, call.datatype)}"


def _said(op: str, count: int, datatype: int) -> str:
    return f"{op} of {count} elements of datatype {datatype}"


def _suspected(table: _Table) -> list[str]:
    """What unattributed handles of one size would be together: logical operations, and where they disagree."""
    groups: dict[int, list[int]] = {}
    for code, c in enumerate(table.comms.table):
        handles = [i for i, at in enumerate(table.comms.of_instance) if at == code]
        if c.reason is not None and c.nranks > 1 and len(handles) > 1 and not c.instances:
            groups[code] = handles
    out = []
    for code, handles in list(groups.items())[:_SHOWN]:
        rows = np.flatnonzero(table.comm == code)
        if not len(rows):
            continue
        who = table.instance[rows]
        same, _ = codes(*(np.array(x, np.int64) for x in _said_columns(table, rows)))
        none = np.full(len(rows), -1, np.int64)
        together = match(Rows(np.zeros(len(rows), np.int64), who, np.array(table.lines.rows_op_count, np.int64)[rows], same, none, none,
                              np.zeros(len(rows), np.bool_)))  # fmt: skip
        nranks = table.comms.table[code].nranks
        out.append(
            f"{len(rows)} operations on communicators of {nranks} ranks: {together.count} logical ones, seen from {len(handles)} of "
            f"{nranks} ranks, if these are one communicator; no set-up line says so"
        )
        if len(together.desync):
            one, other = together.desync[0].tolist()
            a, b = (table.lines.calls[table.call[rows[x]]] for x in (one, other))
            at = table.lines.rows_op_count[rows[one]]
            out.append(
                f"desync at opCount {at:x}, if these are one communicator: {table.lines.instances[who[one]].label} calls {_said(*a[:3])}, "
                f"{table.lines.instances[who[other]].label} calls {_said(*b[:3])}"
            )
    return out


def _said_columns(table: _Table, rows: IntArray) -> tuple[list[int], list[int]]:
    """Operation and bytes of each row; messages stay apart per process."""
    names: Mapping[str, int] = {name: i for i, name in enumerate(sorted({m.op for m in table.meanings}))}
    calls = [table.meanings[c] for c in table.call[rows].tolist()]
    return [names[m.op] for m in calls], [m.part_bytes for m in calls]


def _notes(table: _Table, used: IntArray, matched: Matched) -> list[str]:
    out = []
    if len(used):
        out.append("the log has no times of operations: order only")
    if not len(table.call):
        out.append("the log has no operations: record with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL")
    lost = {c.reason for c in table.comms.table if c.reason is not None}
    if lost and len(used) < len(table.call):
        out.append("to attribute the rest, record all ranks with NCCL_DEBUG_SUBSYS=INIT,COLL, or give a layout of its groups")
    if table.lines.kernel_lines:
        out.append(f"{table.lines.kernel_lines} lines of RCCL's kernel trace (KL, KE) are not operations")
    custom = sorted({table.meanings[c].op for c in np.unique(table.call[used]).tolist() if table.meanings[c].custom})
    if custom:
        out.append(f"operations outside the vocabulary: {', '.join(custom)}")
    if matched.forced:
        out.append(f"the ranks contradict each other about the order of {matched.forced} of {matched.count} events")
    return out
