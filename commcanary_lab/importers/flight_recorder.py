"""Import dumps of PyTorch's flight recorder, JSON or pickle, one file per rank.

A dump tells what each rank enqueued and what became of it. It has the host's time of enqueueing; when an operation really ran is written
only where ``duration_ms`` is there. Dumps that were taken in a hang hold operations that never completed: they are listed, and are events
only where another rank completed them.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers._text import read_source
from commcanary_lab.importers.comm_events import Refusal, Timed, base_name, implied_size
from commcanary_lab.importers.flight_recorder_entries import Entry, entry_of
from commcanary_lab.importers.json_source import decode_json, shown
from commcanary_lab.importers.kineto_args import CommArgs
from commcanary_lab.importers.kineto_group import GroupDirectory, Members
from commcanary_lab.importers.layout_members import LaidOut, LayoutGroups
from commcanary_lab.importers.rank_files import Claim, rank_in_name, ranks_of
from commcanary_lab.importers.rank_rows import RankRows, level_durations
from commcanary_lab.importers.safe_pickle import is_pickle, load_plain
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.merge import merge_captures
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.records import RankCapture

__all__ = ["FORMAT", "read", "recognise"]

FORMAT = "flight_recorder"

WHAT = "a flight recorder dump"
ISSUED = "starts are when the host enqueued the operation (time_created_ns), not when it ran: arrival skew is unknown"
NO_SPLITS = (
    "the flight recorder does not write split sizes: the division of all-to-all exchanges is unknown unless it kept one tensor per rank"
)

_JSON = re.compile(rb'"(?:pg_config|pg_status|nccl_comm_state|entries)"\s*:')
_ENTRY = re.compile(rb'"(?:profiling_name|collective_seq_id|record_id|pg_config)"\s*:')
_WORDS = (b"pg_config", b"entries", b"profiling_name", b"pg_status", b"nccl_comm_state")


@dataclass(frozen=True)
class _RankFile:
    path: str
    name: str
    version: str
    config: dict[str, object]
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...]


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is a dump of the flight recorder.

    Examples
    --------
    >>> recognise(b'{"version": "2.5", "pg_config": {}, "entries": [{"record_id": 0'), recognise(b'{"version": "2.5", "rows": []}')
    (True, False)
    """
    if is_pickle(head):
        return b"version" in head[:4096] and sum(word in head for word in _WORDS) > 1
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return head.startswith(b"{") and b'"version"' in head and _JSON.search(head) is not None and _ENTRY.search(head) is not None


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the dumps of a job, one file per rank, and merge them.

    Parameters
    ----------
    paths : sequence of path-like
        The files, any order; the rank is at the end of the name (``nccl_trace_rank_3``, also after a host name).
    ranks : mapping of str to int, optional
        Rank of each file whose name does not say it, by its path as given or its file name.
    layout : Layout, optional
        Members of groups that the dumps do not say.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events in the order of enqueueing.

    Raises
    ------
    FormatError
        If a file is no such dump, holds anything but plain values, or one of several has no rank.
    MergeError
        If the dumps contradict each other.
    InputError
        If the layout contradicts what a dump says.
    RefusedError
        If several groups of the layout fit one of a dump.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one dump")
    limits.check_files(len(paths), str(paths[0]))
    files = [_load(path, limits) for path in paths]
    limits.check_events(sum(len(f.entries) for f in files), "the files together")
    why = "neither the dump nor its name says which rank wrote it"
    numbers, warnings = ranks_of([Claim(p, named=rank_in_name(p, trailing_first=True), why_not=why) for p in paths], ranks)
    completed = _completed(files)
    laid = None if layout is None else LayoutGroups(layout)
    captures = [_capture(f, rank, completed, laid) for f, rank in zip(files, numbers, strict=True)]
    trace = merge_captures(level_durations(captures), source_format=FORMAT)
    # calibrated clocks would not help: these are times of enqueueing
    trace = replace(trace, notes=tuple(n for n in trace.notes if not n.startswith("clocks of the ranks are not calibrated")))
    notes = [ISSUED] if len(trace) else []
    if any(base_name(e.name).startswith("all_to_all") or base_name(e.name).startswith("alltoall") for f in files for e in f.entries):
        notes.append(NO_SPLITS)
    return replace(trace.with_notes(*notes), warnings=(*warnings, *trace.warnings))


def _load(path: str | os.PathLike[str], limits: Limits) -> _RankFile:
    source = read_source(path, limits)
    name = os.path.basename(str(path))
    warnings = [w.replace(str(path), name, 1) for w in source.warnings]
    if is_pickle(source.data):
        document = load_plain(source.data, file=str(path), what=WHAT)
    else:
        document, repairs = decode_json(source.data, Any, file=str(path), what=WHAT)
        warnings += repairs
    if not isinstance(document, dict) or not ({"entries", "pg_config"} & document.keys()):
        raise FormatError("neither entries nor pg_config in it", file=str(path), remedy=f"give {WHAT}")
    listed = document.get("entries", [])
    if not isinstance(listed, (list, tuple)):
        raise FormatError(f"entries is {shown(listed)}, not a list", file=str(path), remedy=f"give {WHAT}")
    limits.check_events(len(listed), str(path))
    config = document.get("pg_config")
    table = {str(k): v for k, v in config.items()} if isinstance(config, dict) else {}
    limits.check_groups(len(table), str(path))
    entries = tuple(entry_of(e) for e in listed)
    return _RankFile(
        str(path),
        name,
        str(document.get("version", "unknown"))[:40],
        {k: v for k, v in table.items() if _stated(v)},
        entries,
        tuple(warnings),
    )


def _stated(entry: object) -> bool:
    """Gloo writes an entry without name and ranks: it states nothing and is no reason to warn."""
    return not (isinstance(entry, dict) and entry.get("ranks") in ("[]", [], "", None) and not entry.get("name"))


def _identity(entry: Entry) -> tuple[object, ...] | None:
    """What identifies a collective across ranks; None for messages, which each end counts for itself."""
    args = entry.args
    if not isinstance(args, CommArgs) or args.sequence is None or entry.is_message:
        return None
    return (args.group_name, args.sequence)


def _completed(files: Sequence[_RankFile]) -> dict[tuple[object, ...], int]:
    """On how many ranks each collective completed."""
    out: Counter[tuple[object, ...]] = Counter()
    for f in files:
        for e in f.entries:
            key = _identity(e)
            if key is not None and e.completed:
                out[key] += 1
    return out


def _unlisted(f: _RankFile) -> dict[str, Members]:
    """Members of the default group where the dump has no ranks for it: all ranks, where its size is implied by a gather."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for e in f.entries:
        args = e.args
        if isinstance(args, CommArgs) and args.group_description == "default_pg" and args.group_name and (size := implied_size(args)):
            sizes[args.group_name].add(size)
    origin = "the default group: all ranks, as many as its gathers show"
    return {name: Members(tuple(range(found.pop())), origin) for name, found in sizes.items() if len(found) == 1 and max(found) <= 1 << 20}


def _capture(f: _RankFile, rank: int, completed: Mapping[tuple[object, ...], int], laid: LayoutGroups | None) -> RankCapture:
    table = {**f.config}
    for name, members in _unlisted(f).items():
        table.setdefault(name, {"pg_name": name, "ranks": list(members.in_order)})
    laid_out = None if laid is None else LaidOut(laid, rank, f.path)
    groups = GroupDirectory({"pg_config": table}, rank, None, config_name="pg_config", laid_out=laid_out)
    rows = RankRows(rank, f.name)
    pending: list[str] = []
    for i, entry in enumerate(f.entries):
        where = f"entry {i}"
        if base_name(entry.name) == "coalesced":
            rows.skip("marks the end of a batch: no communication of its own")
            continue
        if isinstance(entry.args, CommArgs) and not entry.completed:
            key = _identity(entry)
            others = completed.get(key, 0) if key is not None else 0
            pending.append(
                f"{where}: {entry.name}: not completed on rank {rank} ({entry.state})"
                + (f", completed on {others} other rank{'s' if others > 1 else ''}" if others else "")
            )
            if not others:
                size = "" if entry.args.dtype else "; no dtype in the dump, its size is unknown"
                refusal = Refusal(f"not completed: {entry.state}{size}", "not completed")
                rows.refuse(entry.name, refusal, where, Timed(entry.created_ns))
                continue
        args = entry.args if not isinstance(entry.args, CommArgs) else _with_peer(entry, entry.args, groups, rank)
        rows.add(entry.name, args, groups, where, timed=Timed(entry.created_ns, entry.duration_ns if entry.completed else None))
    if len(pending) > 20:
        pending = [*pending[:20], f"and {len(pending) - 20} more that did not complete"]
    rows.problems = [p for p in rows.problems if ": not completed: " not in p]
    warnings = [*f.warnings, *(f"{f.name}: {w}" for w in groups.warnings), *(f"{f.name}: {p}" for p in pending)]
    return rows.capture(f.path, "unix", warnings=warnings, notes=[f"flight recorder dump, version {f.version}"])


def _with_peer(entry: Entry, args: CommArgs, groups: GroupDirectory, rank: int) -> CommArgs:
    """The ends of a message as global ranks; the dump has them as ranks in the group."""
    if entry.ends is None:
        return args
    members = groups.members(args)
    if isinstance(members, str) or max(entry.ends) >= len(members.in_order):
        return args
    source, destination = (members.in_order[end] for end in entry.ends)
    return replace(args, source=source, destination=destination)
