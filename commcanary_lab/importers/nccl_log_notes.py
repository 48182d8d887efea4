"""What a reader of a log's trace must know: ranks that disagree, logs that are cut, what stays unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from commcanary_lab.importers.nccl_log_match import IntArray, Matched, Rows, match
from commcanary_lab.importers.nccl_log_table import Table
from commcanary_lab.trace.groups import ranks_text
from commcanary_lab.trace.numbering import number_rows

__all__ = ["notes_of", "warnings_of"]

_SHOWN = 20


def warnings_of(table: Table, used: IntArray, rows: Rows, matched: Matched) -> list[str]:
    """Return what is wrong with the log: ranks that disagree, operations and messages that it does not show everywhere.

    Parameters
    ----------
    table : Table
        All operations.
    used : ndarray of int64
        Those that became events.
    rows : Rows
        The same, as they were matched.
    matched : Matched
        The events.
    """
    out: list[str] = []
    by_comm: Counter[int] = Counter(rows.comm[matched.desync[:, 0]].tolist())
    told: set[int] = set()
    for one, other in matched.desync.tolist():
        comm = int(rows.comm[one])
        if comm in told:
            continue
        told.add(comm)
        out.append(
            f"{table.comms.table[comm].label}: desync at opCount {rows.op_count[one]:x}: {_did(table, used, rows, matched, one)}, "
            f"{_did(table, used, rows, matched, other)}; {by_comm[comm]} operation{'s' if by_comm[comm] != 1 else ''} on which the ranks "
            "disagree, kept apart"
        )
    for comm in sorted(set(matched.short.tolist()) - told)[:_SHOWN]:
        out.append(
            f"{table.comms.table[comm].label}: the ranks in the log show different numbers of operations: it is cut; "
            "what a rank does not show is not counted for it"
        )
    if matched.unpaired:
        out.append(
            f"{matched.unpaired} messages are shown by one of their ends only, though the other end is in the log: it is cut, or the ends "
            "disagree about the size; each is counted once"
        )
    return out + _suspected(table)


def _did(table: Table, used: IntArray, rows: Rows, matched: Matched, row: int) -> str:
    call = table.lines.calls[table.call[used[row]]]
    ranks = tuple(sorted(rows.rank[matched.event == matched.event[row]].tolist()))
    many = len(ranks) > 1
    return f"rank{'s' if many else ''} {ranks_text(ranks)} call{'' if many else 's'} {_said(call.op, call.elements, call.datatype)}"


def _said(op: str, count: int, datatype: int) -> str:
    return f"{op} of {count} elements of datatype {datatype}"


def _suspected(table: Table) -> list[str]:
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
        same, _ = number_rows(*(np.array(x, np.int64) for x in _said_columns(table, rows)))
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


def _said_columns(table: Table, rows: IntArray) -> tuple[list[int], list[int]]:
    """Operation and bytes of each row; messages stay apart per process."""
    names: Mapping[str, int] = {name: i for i, name in enumerate(sorted({m.op for m in table.meanings}))}
    calls = [table.meanings[c] for c in table.call[rows].tolist()]
    return [names[m.op] for m in calls], [m.part_bytes for m in calls]


def notes_of(table: Table, used: IntArray, matched: Matched) -> list[str]:
    """Return what the log does not say, and how to record more; arguments as for `warnings_of`."""
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
