"""Import PARAM's "basic" communication traces: a JSON list of operations per rank, sizes in elements.

An operation whose counts contradict each other is refused with a message, and the rest of the file is read. Splits are never cut, filled
or spread evenly: an uneven exchange without split lists has an unknown division.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers.comm_events import UNREADABLE, Refusal, Timed, base_name, row_total
from commcanary_lab.importers.json_source import read_json, shown
from commcanary_lab.importers.kineto_args import CommArgs, IntList
from commcanary_lab.importers.kineto_group import GroupDirectory, Members
from commcanary_lab.importers.layout_members import LaidOut, LayoutGroups
from commcanary_lab.importers.rank_files import Claim, rank_in_name, ranks_of
from commcanary_lab.importers.rank_rows import RankRows
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.records import RankCapture

__all__ = ["FORMAT", "read", "recognise"]

FORMAT = "param_basic"

WHAT = "a basic PARAM communication trace"
REPLAY_TIMES = "times are the starts that the trace asks a replay to keep: durations, arrival skew and overlap are unknown"

_START = re.compile(rb"\A\s*\[\s*\{")
_COMMS = re.compile(rb'"comms"\s*:\s*"')
_SIZES = re.compile(rb'"(?:in_msg_size|world_size|global_ranks|req|dtype)"\s*:')
_SENDS, _RECEIVES = frozenset({"send", "isend"}), frozenset({"recv", "irecv"})
_MAX = 1 << 62


class _Bad(Exception):
    """A field that cannot be used."""


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of the decompressed file whether it is such a trace.

    Examples
    --------
    >>> recognise(b'[{"comms": "all_reduce", "in_msg_size": 4, "world_size": 2}]'), recognise(b'[{"name": "x", "ph": "X"}]')
    (True, False)
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    return _START.match(head) is not None and _COMMS.search(head) is not None and _SIZES.search(head) is not None


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the traces of a job, one file per rank, and merge them.

    Parameters
    ----------
    paths : sequence of path-like
        The files, any order; the rank is in the name (``3.json``, ``rank3.json``).
    ranks : mapping of str to int, optional
        Rank of each file whose name does not say it, by its path as given or its file name.
    layout : Layout, optional
        Members of groups that the traces do not say; entries without a group are over all ranks only where their number is the layout's.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace

    Raises
    ------
    FormatError
        If a file is no such trace, or one of several has no rank.
    MergeError
        If the files contradict each other.
    InputError
        If the layout contradicts what a trace says.
    RefusedError
        If several groups of the layout fit one of the trace.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one trace")
    limits.check_files(len(paths), str(paths[0]))
    documents = [read_json(path, list[Any], what=WHAT, limits=limits) for path in paths]
    limits.check_events(sum(len(entries) for entries, _ in documents), "the files together")
    why = "neither the file nor its name says which rank wrote it"
    claims = [Claim(path, named=rank_in_name(path), why_not=why) for path in paths]
    fitting = _fitting(documents[0][0]) if len(claims) == 1 and claims[0].named is None and not ranks else None
    if fitting and fitting[0] > 0:
        named = ", ".join(map(str, fitting[:8])) + (", ..." if len(fitting) > 8 else "")
        numbers, warnings = (
            [fitting[0]],
            [f"{os.path.basename(str(paths[0]))}: {why}: taken as rank {fitting[0]} (its splits fit rank {named})"],
        )
    else:
        numbers, warnings = ranks_of(claims, ranks)
    laid = None if layout is None else LayoutGroups(layout)
    captures = [
        _capture(path, entries, rank, problems, laid, limits)
        for path, (entries, problems), rank in zip(paths, documents, numbers, strict=True)
    ]
    trace = merge_captures(captures, source_format=FORMAT)
    trace = trace if trace.start_ns.none_known else trace.with_notes(REPLAY_TIMES)
    return replace(trace, warnings=(*warnings, *trace.warnings))


def _fitting(entries: list[Any]) -> list[int] | None:
    """Ranks whose exchanges give themselves what they get from themselves; None where no entry tells."""
    fitting: set[int] | None = None
    for e in entries:
        sent, received = (e.get("in_split"), e.get("out_split")) if isinstance(e, dict) and e.get("pg_id") is None else (None, None)
        if isinstance(sent, list) and isinstance(received, list) and sent and len(sent) == len(received) == e.get("world_size"):
            own = {i for i, (a, b) in enumerate(zip(sent, received, strict=True)) if a == b}
            fitting = own if fitting is None else fitting & own
    return None if fitting is None else sorted(fitting)


def _capture(
    path: str | os.PathLike[str], entries: list[Any], rank: int, problems: list[str], laid: LayoutGroups | None, limits: Limits
) -> RankCapture:
    name = os.path.basename(str(path))
    if entries and not any(isinstance(e, dict) and "comms" in e for e in entries):
        raise FormatError("no entry has comms", file=str(path), remedy=f"give {WHAT}")
    groups = _Groups(entries, rank, name, None if laid is None else LaidOut(laid, rank, str(path)))
    limits.check_groups(groups.count, str(path))
    rows = RankRows(rank, name)
    times = _use_times(entries)
    for i, entry in enumerate(entries):
        where = f"entry {i}"
        if not isinstance(entry, dict):
            rows.refuse("?", Refusal(f"{UNREADABLE}: the entry is {shown(entry)}", UNREADABLE), where)
        elif "comms" not in entry and "compute" in entry:
            rows.skip("computation")
        elif not isinstance(entry.get("comms"), str) or not entry["comms"]:
            rows.refuse("?", Refusal(f"{UNREADABLE}: comms is {shown(entry.get('comms'))}", UNREADABLE), where)
        elif base_name(entry["comms"]) in ("wait", "init", "batch_isend_irecv") or _sets_group(entry):
            rows.skip("wait or set-up entry: no communication of its own")
        else:
            _add(entry, rank, groups, rows, where, times)
    return rows.capture(str(path), "start of the replay", world_size=groups.world, warnings=[*problems, *groups.warnings])


def _sets_group(entry: dict[str, Any]) -> bool:
    """An empty operation that `export param` writes before a barrier, for the program that replays it."""
    return entry.get("sets_group") is True and entry.get("in_msg_size") == 0


def _add(entry: dict[str, Any], rank: int, groups: _Groups, rows: RankRows, where: str, times: bool) -> None:
    name = entry["comms"][:256]
    try:
        args = _arguments(entry, name, rank)
        timed = Timed(_number(entry, "startTime_ns") if times else None)
        root = _number(entry, "root")
    except _Bad as e:
        rows.refuse(name, Refusal(f"{UNREADABLE}: {e}", UNREADABLE), where)
        return
    directory = groups.of(args)
    members = directory.members(args)
    wrong = _wrong_splits(args, len(members.in_order)) if isinstance(members, Members) else None
    if wrong is not None:
        rows.refuse(name, Refusal(f"splits contradict: {wrong}", "splits contradict", row_total(args)), where, timed)
        return
    group_root = None
    if root is not None and isinstance(members, Members) and base_name(name) not in _SENDS | _RECEIVES:
        group_root = members.in_order.index(root) if root in members.in_order else len(members.in_order)
    rows.add(name, args, directory, where, timed=timed, group_root=group_root)


def _arguments(entry: dict[str, Any], name: str, rank: int) -> CommArgs:
    group = entry.get("pg_id")
    if group is not None and (isinstance(group, bool) or not isinstance(group, int | str)):
        raise _Bad(f"pg_id is {shown(group)}")
    source, destination = _number(entry, "src_rank"), _number(entry, "dst_rank")
    kind = base_name(name)
    own = source if kind in _SENDS else destination if kind in _RECEIVES else None
    if own is not None and own != rank:
        raise _Bad(f"{name} of rank {own} in the file of rank {rank}")
    dtype = entry.get("dtype")
    if dtype is not None and not isinstance(dtype, str):
        raise _Bad(f"dtype is {shown(dtype)}")
    return CommArgs(
        name=name,
        dtype=dtype or "",
        in_elements=_number(entry, "in_msg_size"),
        out_elements=_number(entry, "out_msg_size"),
        group_size=_number(entry, "world_size"),
        group_name=None if group is None else str(group),
        group_description=None,
        group_ranks=None,
        rank_start=None,
        rank_stride=None,
        in_splits=_splits(entry, "in_split"),
        out_splits=_splits(entry, "out_split"),
        sequence=None,  # seqnum counts a rank's entries of all groups
        source=source,
        destination=destination,
        in_rows=None,
    )


def _wrong_splits(args: CommArgs, k: int) -> str | None:
    """Why the split lists of an exchange cannot be used; None where they can."""
    for field, splits, total in (("in_split", args.in_splits, args.in_elements), ("out_split", args.out_splits, args.out_elements)):
        if splits is None:
            continue
        if len(splits.values) != k:
            return f"{field} has {len(splits.values)} entries in a group of {k} ranks"
        if total is not None and sum(splits.values) != total:
            return f"{field} adds up to {sum(splits.values)} elements of {total}"
    return None


class _Groups:
    """Members of groups: from the ``init`` entries, and all ranks of ``world_size`` where an operation names no group."""

    def __init__(self, entries: list[Any], rank: int, name: str, laid_out: LaidOut | None) -> None:
        table: list[object] = []
        for entry in entries:
            if isinstance(entry, dict) and entry.get("comms") == "init":
                ranks = entry.get("global_ranks")
                table.append({"pg_name": entry.get("pg_id", "0"), "ranks": ranks})
        self.count = len(table)
        self._table, self._rank, self._laid_out = {"pg_config": table}, rank, laid_out
        self._by_size: dict[int | None, GroupDirectory] = {}
        own = self.of(None)
        self.warnings = [f"{name}: {w}" for w in own.warnings]
        sizes = [e.get("world_size") for e in entries if isinstance(e, dict) and e.get("pg_id") is None]
        whole = {s for s in sizes if type(s) is int and s > rank}
        self.world = whole.pop() if len(whole) == 1 and not table else None
        if laid_out is not None and laid_out.groups.world is not None:
            self.world = len(laid_out.groups.world)

    def of(self, args: CommArgs | None) -> GroupDirectory:
        """The directory to ask for an operation's members."""
        size = None if args is None or args.group_name is not None else args.group_size
        if size not in self._by_size:
            usable = size is not None and 0 < size <= 1 << 24
            whole = Members(tuple(range(size)), "world_size (the default group)") if usable and size is not None else None
            self._by_size[size] = GroupDirectory(
                self._table, self._rank, None, config_name="init entries", unnamed=whole, laid_out=self._laid_out
            )
        return self._by_size[size]


def _use_times(entries: list[Any]) -> bool:
    """Starts are used only where they tell the entries apart: writers leave zeros where they have no times."""
    starts = [e.get("startTime_ns") for e in entries if isinstance(e, dict) and "comms" in e]
    return bool(starts) and all(type(s) is int and s >= 0 for s in starts) and any(starts)


def _number(entry: dict[str, Any], key: str) -> int | None:
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or value == -1:
        return None
    if type(value) is not int or not 0 <= value < _MAX:
        raise _Bad(f"{key} is {shown(value)}")
    return value


def _splits(entry: dict[str, Any], key: str) -> IntList | None:
    value = entry.get(key)
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(type(v) is int and 0 <= v < _MAX for v in value):
        raise _Bad(f"{key} is {shown(value)}")
    return IntList(tuple(value))
