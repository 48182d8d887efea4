"""Import MLCommons Chakra execution traces: protobuf (``.et``) and the JSON form that Chakra's feeder reads, one file per NPU.

``comm_size`` is what one NPU puts in, in bytes (so ASTRA-sim's collectives and Chakra's PyTorch converter take it): an all-gather of k
ranks has B = k * comm_size, everything else B = comm_size. A collective that names no group is over all NPUs of the system. Nodes that
only dispatch a collective on the host, beside the device node that runs it, are no communication of their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from commcanary_lab.errors import FormatError, InputError, UsageError
from commcanary_lab.importers._text import read_source
from commcanary_lab.importers.chakra_schema import CommType, Node, NodeType, Value, decode_metadata, decode_node, messages
from commcanary_lab.importers.comm_events import Refusal, Timed
from commcanary_lab.importers.json_source import decode_json, shown
from commcanary_lab.importers.kineto_args import parse_int_list
from commcanary_lab.importers.layout_members import OTHER_JOB
from commcanary_lab.importers.protobuf_wire import Damaged
from commcanary_lab.importers.rank_files import Claim, rank_in_name, ranks_of
from commcanary_lab.importers.rank_rows import RankRows, level_durations
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.groups import ranks_text
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["FORMAT", "read", "recognise"]

FORMAT = "chakra_et"

WHAT = "a Chakra execution trace"
ORDER_ONLY = "nodes carry no start: the order is the file's, and arrival skew and overlap are unknown"

_VERSION = re.compile(r"\d+(\.\d+)+\S{0,40}")
_FEEDER = re.compile(rb'"workload_graph"\s*:\s*\[')
_GROUPS = "## process_group:init ##"
_MAX = 1 << 62
_OPS = {
    CommType.ALL_REDUCE: "all_reduce", CommType.REDUCE: "reduce", CommType.ALL_GATHER: "all_gather", CommType.GATHER: "gather",
    CommType.SCATTER: "scatter", CommType.BROADCAST: "broadcast", CommType.ALL_TO_ALL: "all_to_all",
    CommType.REDUCE_SCATTER: "reduce_scatter", CommType.REDUCE_SCATTER_BLOCK: "reduce_scatter", CommType.BARRIER: "barrier",
}  # fmt: skip
_CUSTOM = frozenset({"reduce", "gather", "scatter", "barrier"})


class _FeederNode(msgspec.Struct):
    Id: Any = None
    Name: Any = None
    NodeType: Any = None
    runtime: Any = None
    start_time: Any = None
    is_cpu_op: Any = None
    comm_type: Any = None
    comm_size: Any = None
    comm_src: Any = None
    comm_dst: Any = None
    comm_tag: Any = None
    pg_name: Any = None


class _Feeder(msgspec.Struct):
    workload_graph: list[_FeederNode] | None = None
    ngpus: Any = None


@dataclass(frozen=True)
class _NpuFile:
    path: str
    name: str
    nodes: tuple[Node, ...]
    groups: dict[str, tuple[int, ...]]
    npus: int | None
    warnings: tuple[str, ...]


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of the decompressed file whether it is such a trace.

    Examples
    --------
    >>> from commcanary_lab.importers.chakra_schema import Metadata, Node, NodeType, encode_trace
    >>> data = encode_trace(Metadata("0.0.4"), [Node(0, "sync", NodeType.COMM_COLL)])
    >>> recognise(data), recognise(b"hello\\n"), recognise(b'{"workload_graph": [')
    (True, False, True)
    """
    text = head.lstrip()
    if text.startswith(b"{"):
        return _FEEDER.search(head) is not None
    bounds = messages(head)
    try:
        metadata = decode_metadata(head, *next(bounds))
    except (Damaged, StopIteration):
        return False
    if not (_VERSION.fullmatch(metadata.version) or metadata.attributes):
        return False
    try:
        first = next(bounds, None)
        return first is None or bool(decode_node(head, *first).type)
    except Damaged:
        return len(head) > 1024  # a first node that goes on beyond the head


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the traces of a system, one file per NPU, and merge them.

    Parameters
    ----------
    paths : sequence of path-like
        The files, any order; the NPU is the number at the end of the name (``all_reduce.3.et``).
    ranks : mapping of str to int, optional
        NPU of each file whose name does not say it, by its path as given or its file name.
    layout : Layout, optional
        Members of groups that the traces only name, and all NPUs of the system where they do not say how many there are.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace

    Raises
    ------
    FormatError
        If a file is no such trace, is damaged, or one of several has no number.
    MergeError
        If the files contradict each other.
    InputError
        If the layout contradicts what a trace says.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one trace")
    limits.check_files(len(paths), str(paths[0]))
    files = [_load(path, limits) for path in paths]
    limits.check_events(sum(len(f.nodes) for f in files), "the files together")
    why = "neither the trace nor its name says which NPU it is of"
    claims = [Claim(p, named=rank_in_name(p, trailing_first=True), why_not=why) for p in paths]
    numbers, warnings = ranks_of(claims, ranks)
    whole, how = _whole(files, numbers, layout, limits)
    captures = [_capture(f, rank, whole, how, layout) for f, rank in zip(files, numbers, strict=True)]
    trace = merge_captures(level_durations(captures), source_format=FORMAT)
    if len(trace) and trace.start_ns.none_known:
        trace = trace.with_notes(ORDER_ONLY)
    return replace(trace, warnings=(*warnings, *trace.warnings))


# -- reading ----------------------------------------------------------------------------------------------------------


def _load(path: str | os.PathLike[str], limits: Limits) -> _NpuFile:
    source = read_source(path, limits)
    name = os.path.basename(str(path))
    warnings = [w.replace(str(path), name, 1) for w in source.warnings]
    npus = None
    if source.data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        feeder, repairs = decode_json(source.data, _Feeder, file=str(path), what=WHAT)
        if feeder.workload_graph is None:
            raise FormatError("there is no workload_graph", file=str(path), remedy=f"give {WHAT}")
        nodes, warnings = [_from_feeder(n) for n in feeder.workload_graph], warnings + repairs
        npus = feeder.ngpus if type(feeder.ngpus) is int and 0 < feeder.ngpus <= limits.max_ranks else None
    else:
        nodes = _decode(source.data, str(path), limits)
    groups: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        if node.name == _GROUPS:
            groups.update(_groups(node, name, warnings))
    kept = tuple(n for n in nodes if n.type in (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL))
    return _NpuFile(str(path), name, kept, groups, npus, tuple(warnings))


def _decode(data: bytes, path: str, limits: Limits) -> list[Node]:
    nodes: list[Node] = []
    try:
        bounds = messages(data)
        decode_metadata(data, *next(bounds))
        for at, end in bounds:
            nodes.append(decode_node(data, at, end))
            limits.check_events(len(nodes), path)
    except StopIteration:
        raise FormatError("the file is empty", file=path, remedy=f"give {WHAT}") from None
    except Damaged as e:
        where = f" (after {len(nodes)} nodes)" if nodes else ""
        raise FormatError(f"not readable as a Chakra trace: {e}{where}", file=path, remedy="copy or write the file again") from None
    return nodes


def _from_feeder(n: _FeederNode) -> Node:
    names = ("is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name")
    values = {name: getattr(n, name) for name in names}
    attributes: dict[str, Value] = {k: v if isinstance(v, bool | int | str) else shown(v) for k, v in values.items() if v is not None}
    number = n.NodeType if type(n.NodeType) is int else 0
    start, runtime = (v if type(v) is int and 0 <= v < _MAX // 1000 else 0 for v in (n.start_time, n.runtime))
    return Node(n.Id if type(n.Id) is int else -1, str(n.Name)[:256], number, start_us=start, duration_us=runtime, attributes=attributes)


def _groups(node: Node, file: str, warnings: list[str]) -> dict[str, tuple[int, ...]]:
    """Process groups that a converter kept: JSON text inside a printed list."""
    text = node.inputs
    try:
        table = json.loads(text[text.index("[{") : text.rindex("}]") + 2])
    except (ValueError, RecursionError):
        warnings.append(f"{file}: node {node.id}: the table of process groups is not readable; it is not used")
        return {}
    out = {}
    for entry in table if isinstance(table, list) else ():
        ranks = entry.get("ranks") if isinstance(entry, dict) else None
        size = entry.get("group_size", entry.get("pg_size")) if isinstance(entry, dict) else None
        if ranks == [] and type(size) is int and 0 < size <= 1 << 20:
            ranks = list(range(size))  # an empty list stands for the whole world
        if isinstance(ranks, list) and ranks and all(type(r) is int and 0 <= r < 1 << 31 for r in ranks) and len(set(ranks)) == len(ranks):
            out[str(entry.get("pg_name"))] = tuple(ranks)
    return out


# -- meaning ----------------------------------------------------------------------------------------------------------


def _whole(files: Sequence[_NpuFile], numbers: Sequence[int], layout: Layout | None, limits: Limits) -> tuple[tuple[int, ...] | str, str]:
    """All NPUs of the system and how they are known, or why they are unknown."""
    stated = {f.npus for f in files if f.npus is not None}
    if layout is not None and layout.sized_world > 1:
        for f, number in zip(files, numbers, strict=True):
            if number >= layout.world_size or f.npus not in (None, layout.world_size):
                what = f"the file of NPU {number}" if f.npus in (None, layout.world_size) else f"a system of {f.npus} NPUs"
                raise InputError(f"{what}, the layout has {layout.world_size} ranks", file=f.path, remedy=OTHER_JOB)
        return layout.ranks, "from the layout"
    if len(stated) == 1:
        return tuple(range(stated.pop())), "as stated"
    if len(files) > 1 and sorted(numbers) == list(range(len(files))):
        return tuple(range(len(files))), "one per file"
    limits.check_members(len(files), files[0].path)
    if len(files) == 1:
        return "members unknown: the collective is over all NPUs, and this is the file of one: give the files of all", ""
    return "members unknown: the collective is over all NPUs, and the files are not those of NPUs 0, 1, ... without a gap", ""


def _capture(f: _NpuFile, rank: int, whole: tuple[int, ...] | str, how: str, layout: Layout | None) -> RankCapture:
    rows = RankRows(rank, f.name)
    on_device = any(n.attributes.get("is_cpu_op") is False for n in f.nodes)
    for node in f.nodes:
        if on_device and node.attributes.get("is_cpu_op") is True and "comm_size" not in node.attributes:
            rows.skip("dispatches on the host what a device node runs")
            continue
        timed = Timed(node.start_us * 1000 or None, node.duration_us * 1000 or None)
        found = _record(node, f, rank, whole, layout, timed)
        if isinstance(found, Refusal):
            rows.refuse(node.name[:256] or "?", found, f"node {node.id}", timed)
        else:
            rows.keep(found)
    notes = (
        [f"collectives without a group are over all {len(whole)} NPUs of the system ({how})"]
        if isinstance(whole, tuple) and f.nodes
        else []
    )
    return rows.capture(f.path, "clock of the trace", world_size=len(whole) if isinstance(whole, tuple) else None, warnings=f.warnings,
                        notes=notes)  # fmt: skip


def _record(node: Node, f: _NpuFile, rank: int, whole: tuple[int, ...] | str, layout: Layout | None, timed: Timed) -> Record | Refusal:
    size = node.attributes.get("comm_size")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < _MAX):
        return Refusal(f"metadata not readable: comm_size is {shown(size)}", "metadata not readable")
    if node.type != NodeType.COMM_COLL:
        return _message(node, rank, whole, size, timed)
    kind = node.attributes.get("comm_type")
    if isinstance(kind, bool) or not isinstance(kind, int) or kind not in list(CommType):
        what = "comm_type is missing" if kind is None else f"comm_type is {shown(kind)}"
        return Refusal(f"operation unknown: {what}", "operation unknown", size)
    op = _OPS[CommType(kind)]
    if size is None and op != "barrier":
        return Refusal("size missing: comm_size", "size missing")
    members, group = _members(node, f, whole, layout)
    if isinstance(members, str):
        return Refusal(members, "members unknown", size)
    if rank not in members:
        return Refusal(f"members unknown: NPU {rank} is not in its own group", "members unknown", size)
    total = (size or 0) * (len(members) if op == "all_gather" else 1)
    if total >= _MAX:
        return Refusal("size out of range", "size out of range")
    root = node.attributes.get("root", node.attributes.get("comm_root"))
    return Record(
        rank=rank,
        op=op,
        size_bytes=0 if op == "barrier" else total,
        members=tuple(sorted(members)),
        group=group,
        custom_op=op in _CUSTOM,
        root=root if type(root) is int and root in members and op in ("broadcast", "reduce", "gather", "scatter") else None,
        start_ns=timed.start_ns,
        duration_ns=timed.duration_ns,
    )


def _members(node: Node, f: _NpuFile, whole: tuple[int, ...] | str, layout: Layout | None) -> tuple[tuple[int, ...] | str, str | None]:
    """Members and name of a collective's group."""
    stated = node.attributes.get("pg_name", node.attributes.get("comm_group"))
    if isinstance(stated, tuple):
        return tuple(int(v) for v in stated), None
    if stated is not None and str(stated) != "":
        listed = parse_int_list(str(stated))
        if listed is not None and not listed.cut and listed.values:
            return listed.values, None
        found = f.groups.get(str(stated))
        named = layout.group_named(str(stated)) if layout is not None else None
        if found is not None and named is not None and tuple(sorted(found)) != named.members:
            both = f"joins {ranks_text(tuple(sorted(found)))}; in the layout it is {ranks_text(named.members)}"
            raise InputError(f"group {str(stated)[:40]} {both}", file=f.path, field=str(stated), remedy=OTHER_JOB)
        if found is None and named is not None:
            return named.members, str(stated)
        if found is None:
            return f"members unknown: the file does not say who is in group {str(stated)[:40]}", None
        return found, str(stated)
    dimensions = node.attributes.get("involved_dim")
    if isinstance(dimensions, tuple) and not all(dimensions):
        return "members unknown: the collective is over some dimensions of the topology, which is not in the file", None
    return whole, None


def _message(node: Node, rank: int, whole: tuple[int, ...] | str, size: int | None, timed: Timed) -> Record | Refusal:
    sends = node.type == NodeType.COMM_SEND
    if size is None:
        return Refusal("size missing: comm_size", "size missing")
    ends = []
    for name, own in (("comm_src", sends), ("comm_dst", not sends)):
        value = node.attributes.get(name, rank if own else None)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            return Refusal(f"peer unknown: {name} is {shown(value)}", "peer unknown", size if sends else None)
        ends.append(value)
    source, destination = ends
    if rank != (source if sends else destination):
        return Refusal(f"peer unknown: a message from {source} to {destination} in the trace of NPU {rank}", "peer unknown")
    if source == destination:
        return Refusal("message of an NPU to itself", "message of an NPU to itself")
    members = whole if isinstance(whole, tuple) and max(ends) < len(whole) else tuple(sorted(ends))
    tag = node.attributes.get("comm_tag")
    return Record(
        rank=rank,
        op="point_to_point",
        size_bytes=size,
        members=members,
        sender=source,
        receiver=destination,
        tag=str(tag)[:64] if tag not in (None, 0, "") else None,
        start_ns=timed.start_ns,
        duration_ns=timed.duration_ns,
    )
