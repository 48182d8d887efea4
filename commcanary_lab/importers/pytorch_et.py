"""Import PyTorch execution traces (schema 1.0.1 to 1.1.x, with or without Chakra's marks), one file per rank.

An execution trace says what a rank communicated and in which order, not when: times stay unknown, and the ranks' orders are merged.
``wait`` records, and records inside another one that they implement, are no communication of their own.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers.comm_events import base_name, implied_size
from commcanary_lab.importers.json_source import read_json, shown
from commcanary_lab.importers.kineto_args import CommArgs, Unreadable
from commcanary_lab.importers.kineto_group import GroupDirectory, Members
from commcanary_lab.importers.layout_members import LaidOut, LayoutGroups
from commcanary_lab.importers.pytorch_et_nodes import COMMS, GROUPS, Call, Node, call_of, parent_of
from commcanary_lab.importers.rank_files import Claim, rank_in_name, ranks_of
from commcanary_lab.importers.rank_rows import RankRows
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.records import RankCapture

__all__ = ["FORMAT", "read", "recognise"]

FORMAT = "pytorch_et"

WHAT = "a PyTorch execution trace"
#: One name for all ranks: without times there is nothing to align.
NO_CLOCK = "no clock"
ORDER_ONLY = "an execution trace has no times: durations, arrival skew and overlap are unknown, and the order is the ranks' own"

_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d+\.\d+')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_NODE = re.compile(rb'"(?:ctrl_deps|parent|rf_id)"\s*:')
_MAX_DEPTH = 64


class _File(msgspec.Struct):
    schema: Any = None
    nodes: list[Node] | None = None


@dataclass
class _RankFile:
    """What one file says."""

    path: str
    name: str
    calls: list[Call]
    config: list[object]
    waits: int = 0
    inner: int = 0
    warnings: list[str] = field(default_factory=list)


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of the decompressed file whether it is an execution trace.

    Examples
    --------
    >>> recognise(b'{"schema": "1.0.1", "pid": 1, "nodes": [{"name": "a", "id": 2, "rf_id": 0}')
    True
    >>> recognise(b'{"schema": "1.0", "rows": []}')
    False
    """
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return head.startswith(b"{") and _SCHEMA.search(head) is not None and _NODES.search(head) is not None and _NODE.search(head) is not None


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the execution traces of a job, one file per rank, and merge them.

    Parameters
    ----------
    paths : sequence of path-like
        The files, any order.
    ranks : mapping of str to int, optional
        Rank of each file that does not say its own, by its path as given or its file name.
    layout : Layout, optional
        Members of groups that the traces do not say.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in an order that agrees with every rank's.

    Raises
    ------
    FormatError
        If a file is no execution trace, or one of several does not say its rank.
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
    files = [_load(path, limits) for path in paths]
    limits.check_events(sum(len(f.calls) for f in files), "the files together")
    why = "the file does not say which rank wrote it"
    claims = [Claim(path, _stated_rank(f), rank_in_name(path), why) for path, f in zip(paths, files, strict=True)]
    numbers, warnings = ranks_of(claims, ranks)
    laid = None if layout is None else LayoutGroups(layout)
    captures = [_capture(f, rank, laid, limits) for f, rank in zip(files, numbers, strict=True)]
    trace = merge_captures(captures, source_format=FORMAT).with_notes(ORDER_ONLY)
    return replace(trace, warnings=(*warnings, *trace.warnings))


def _load(path: str | os.PathLike[str], limits: Limits) -> _RankFile:
    document, warnings = read_json(path, _File, what=WHAT, limits=limits)
    nodes = document.nodes
    out = _RankFile(str(path), os.path.basename(str(path)), [], [], warnings=warnings)
    if nodes is None:
        raise FormatError("there is no list of nodes", file=str(path), remedy=f"give {WHAT}")
    comms = {id(node): node for node in nodes if node.name == COMMS}
    inside = _inside_others(nodes, list(comms.values()))
    for node in nodes:
        if node.name == GROUPS:
            out.config += _groups(node, out)
        elif id(node) in comms:
            call = call_of(node)
            if base_name(call.name) in ("wait", "init"):
                out.waits += 1
            elif id(node) in inside:
                out.inner += 1
            else:
                out.calls.append(call)
    return out


def _inside_others(nodes: Sequence[Node], comms: Sequence[Node]) -> set[int]:
    """Identities of the communication nodes that another one encloses."""
    if len(comms) < 2:
        return set()
    by_id = {node.id: node for node in nodes if type(node.id) is int}
    inside = set()
    for node in comms:
        above = _get(by_id, parent_of(node))
        for _ in range(_MAX_DEPTH):
            if above is None or above is node:
                break
            if above.name == COMMS:
                inside.add(id(node))
                break
            above = _get(by_id, parent_of(above))
    return inside


def _get(by_id: Mapping[int, Node], key: object) -> Node | None:
    return by_id.get(key) if isinstance(key, int) else None


def _groups(node: Node, out: _RankFile) -> list[object]:
    """The table of process groups that a node holds as JSON text."""
    try:
        found = msgspec.json.decode(node.inputs)
        values = found.get("values") if isinstance(found, dict) else found
        table = msgspec.json.decode(values[0]) if isinstance(values, list) and values and isinstance(values[0], str) else None
    except (msgspec.DecodeError, RecursionError, ValueError):
        table = None
    if not isinstance(table, list):
        out.warnings.append(f"{out.name}: node {shown(node.id)}: the table of process groups is not readable; it is not used")
        return []
    return [_entry(e) for e in table]


def _entry(entry: object) -> object:
    """An entry of the table; old versions write ranks as an object from global rank to rank in the group."""
    if isinstance(entry, dict) and isinstance(ranks := entry.get("ranks"), dict):
        try:
            pairs = sorted((int(position), int(rank)) for rank, position in ranks.items())
        except (TypeError, ValueError):
            return entry
        return {**entry, "ranks": [rank for _, rank in pairs]}
    return entry


# -- groups and ranks -------------------------------------------------------------------------------------------------


def _names_of_backends(f: _RankFile) -> dict[int, str]:
    """Names of the groups that calls know only by an address of their backend."""
    out = {}
    for entry in f.config:
        if isinstance(entry, dict) and type(entry.get("backend_id")) is int and isinstance(entry.get("pg_name"), str | int):
            out[entry["backend_id"]] = str(entry["pg_name"])
    return out


def _world_size(f: _RankFile) -> int | None:
    """Size of the group that the table gives without ranks, which is the whole job's; else of the default group."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for entry in f.config:
        if isinstance(entry, dict):
            size, ranks = entry.get("pg_size", entry.get("group_size")), entry.get("ranks")
            if type(size) is int and 0 < size < 1 << 24:
                kind = "default" if entry.get("pg_desc") == "default_pg" else "whole" if ranks in ([], None) else ""
                sizes[kind].add(size)
    found = sizes["default"] or sizes["whole"]
    return max(found) if found else None


def _unnamed(f: _RankFile) -> Members | None:
    """Members of the only group of a file that names none: its ranks, numbered as in the group, where its size is implied."""
    if f.config or any(isinstance(c.args, CommArgs) and c.args.group_name is not None for c in f.calls):
        return None
    if len({c.backend for c in f.calls if c.backend is not None}) > 1:
        return None
    sizes = Counter(s for c in f.calls if isinstance(c.args, CommArgs) and (s := implied_size(c.args)))
    # a single call that contradicts the others is refused on its own
    common = sizes.most_common(2)
    if not common or (len(common) == 2 and common[0][1] == common[1][1]) or common[0][0] > 1 << 24:
        return None
    return Members(tuple(range(common[0][0])), "the file's only group: its ranks are numbered as in the group")


def _named(call: Call, names: Mapping[int, str]) -> Call:
    """The call with the name of its group, where only the backend is known."""
    if isinstance(call.args, CommArgs) and call.args.group_name is None and call.backend is not None and call.backend in names:
        return replace(call, args=replace(call.args, group_name=names[call.backend]))
    return call


def _stated_rank(f: _RankFile) -> int | None:
    """The global rank that the calls imply: the own rank in the group, mapped by the group's ranks; None where they disagree."""
    directory = GroupDirectory({"pg_config": f.config}, -1, _world_size(f))
    names = _names_of_backends(f)
    unnamed = _unnamed(f)
    found: Counter[int] = Counter()
    for call in (_named(c, names) for c in f.calls):
        args, own = call.args, call.group_rank
        if not isinstance(args, CommArgs) or own is None:
            continue
        members = directory.stated(args.group_name)
        strided = args.rank_start is not None and args.rank_stride is not None and (args.rank_stride >= 1 or own == 0)
        if members is None and strided:
            assert args.rank_start is not None and args.rank_stride is not None
            found[args.rank_start + args.rank_stride * own] += 1
        elif members is None and args.group_name is None and unnamed is not None:
            members = unnamed.in_order
        if members is not None and own < len(members):
            found[members[own]] += 1
    return next(iter(found)) if len(found) == 1 else None


# -- records ----------------------------------------------------------------------------------------------------------


def _capture(f: _RankFile, rank: int, laid: LayoutGroups | None, limits: Limits) -> RankCapture:
    world = _world_size(f)
    if world is not None and rank >= world:
        f.warnings.append(f"{f.name}: rank {rank} is outside the world of {world}; the world size is not used")
        world = None
    limits.check_groups(len(f.config), f.path)
    if laid is not None:
        laid.check_world(world, f.path)
    laid_out = None if laid is None else LaidOut(laid, rank, f.path)
    groups = GroupDirectory({"pg_config": f.config}, rank, world, config_name=GROUPS, unnamed=_unnamed(f), laid_out=laid_out)
    names = _names_of_backends(f)
    rows = RankRows(rank, f.name)
    rows.skip("wait or set-up record: no communication of its own", f.waits)
    rows.skip("implements the collective around it", f.inner)
    for call in (_named(c, names) for c in f.calls):
        if laid_out is not None and isinstance(call.args, CommArgs) and call.group_rank is not None:
            members = groups.members(call.args)
            if isinstance(members, Members):
                laid_out.check_position(call.args, call.group_rank, members)
        rows.add(call.name, _with_peer(call, groups), groups, f"node {shown(call.node)}", group_root=call.group_root)
    notes = () if f.calls else ("no collective in the trace",)
    warnings = [*f.warnings, *(f"{f.name}: {w}" for w in groups.warnings)]
    return rows.capture(f.path, NO_CLOCK, world_size=world, warnings=warnings, notes=notes)


def _with_peer(call: Call, groups: GroupDirectory) -> CommArgs | Unreadable:
    """The arguments with the other end of a message as a global rank; the inputs have it as a rank in the group."""
    args, peer = call.args, call.group_peer
    if not isinstance(args, CommArgs) or peer is None or args.source is not None or args.destination is not None:
        return args
    members = groups.members(args)
    if isinstance(members, str) or peer >= len(members.in_order):
        return args
    other = members.in_order[peer]
    return replace(args, destination=other) if base_name(args.name) in ("send", "isend") else replace(args, source=other)
