"""PARAM's basic communication trace: ``<rank>.json``, a JSON array per rank, sizes in elements.

Every file declares every group, in the same order. A message is a send in the file of its sender and a recv in the file of its receiver, on
the group of the two. Starts are nanoseconds from the beginning of a replay.

PARAM runs a barrier on whatever group the rank used last, not on the one that the entry names. Where a member used another one last, an
all-reduce of no elements on the right group stands before the barrier, marked ``"sets_group": true``: readers that know the mark skip it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.export.elements import ASSUMABLE, ROOTED, completed, elements, why_not_elements
from commcanary_lab.export.program import CHUNK, Call, Program
from commcanary_lab.export.rank_files import write_rank_files
from commcanary_lab.export.result import Export, check_assumptions, supported
from commcanary_lab.trace.ops import ALL_TO_ALL_V

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.trace.model import Trace

__all__ = ["export_param"]

#: PARAM's names of element types.
_DTYPES = {
    "float16": "half", "bfloat16": "bfloat16", "float32": "float", "float64": "double", "int8": "int8", "uint8": "uint8",
    "int32": "int", "int64": "long", "bool": "bool",
}  # fmt: skip
#: PARAM's names of operations.
_COMMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather_base", "reduce_scatter": "reduce_scatter_base", "all_to_all": "all_to_all",
    ALL_TO_ALL_V: "all_to_allv", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "barrier": "barrier", "point_to_point": "send",
}  # fmt: skip
_OPS = frozenset(_COMMS)


def export_param(
    source: Canary | Trace,
    directory: str | os.PathLike[str],
    *,
    skip_unsupported: bool = False,
    assume: Mapping[str, str] | None = None,
) -> Export:
    """Write a program as PARAM's basic communication trace.

    Parameters
    ----------
    source : Canary or Trace
        The program; all members of a group take part in its calls, whoever reported them.
    directory : path-like
        Where ``0.json``, ``1.json``, ... go; it is made.
    skip_unsupported : bool
        Leave out calls that the format cannot say, and list them.
    assume : mapping of str to str, optional
        ``dtype="uint8"``: calls of an unknown type are exported as bytes; ``root="first"``: unknown roots are the group's first rank.

    Returns
    -------
    Export

    Raises
    ------
    RefusedError
        If a call is not a whole number of elements, or its type or operation has no equivalent; it names the events.
    LimitError
        On a job of more ranks than files make sense.

    Examples
    --------
    >>> import tempfile
    >>> import commcanary_lab as lab
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = export_param(lab.compile(lab.samples.tp8_decode()), folder)
    ...     print(done.entries, done.ranks, (Path(folder) / "3.json").read_text().splitlines()[1][:76])
    16120 8 {"comms":"all_reduce","pg_id":0,"world_size":8,"in_msg_size":524288,"out_msg
    """
    assumptions = check_assumptions(assume, ASSUMABLE)
    program, skipped = supported(
        Program.of(source),
        lambda call: why_not_elements(completed(call, assumptions), _DTYPES, _OPS),
        what="PARAM's basic trace",
        skip=skip_unsupported,
    )
    moved = _moved_barriers(program)
    count = int(np.count_nonzero(moved))
    barriers = f"{count} barrier" if count == 1 else f"{count} barriers"
    notes = [f"before {barriers} an all-reduce of no elements sets the group: PARAM runs a barrier on the group used last"]
    return write_rank_files(
        "param", program, Path(directory), name=lambda rank: f"{rank}.json",
        content=lambda rank: _file(program, rank, moved, assumptions), skipped=skipped, assumptions=assumptions,
        notes=notes if count else (),
    )  # fmt: skip


def _moved_barriers(program: Program) -> npt.NDArray[np.bool_]:
    """Which events are barriers on another group than one of their members used last, shape (events,)."""
    out = np.zeros(len(program), np.bool_)
    barrier = np.zeros(len(program.first) + 1, np.bool_)
    group = np.full(len(program.first) + 1, -1, np.int64)
    for code, call in program.calls():
        barrier[code], group[code] = call.op == "barrier", call.group
    if barrier.any():
        for rank in program.groups_of_rank:
            events = program.events_of(rank)
            codes = program.code[events]
            before = np.append(-1, group[codes][:-1])
            out[events[barrier[codes] & (before != group[codes])]] = True
    return out


def _file(program: Program, rank: int, moved: npt.NDArray[np.bool_], assumptions: Mapping[str, str]) -> Iterator[bytes]:
    """The file of a rank, in passes: one entry per line."""
    inits = [_text({"comms": "init", "pg_id": i, "global_ranks": list(g.members)}) for i, g in enumerate(program.groups)]
    yield ("[" + ",\n".join(inits)).encode("ascii")
    heads: dict[int, str] = {}
    for events, codes, times in program.chunks_of(rank):
        if len(heads) > CHUNK:
            heads.clear()
        for code in set(codes) - heads.keys():
            heads[code] = _text(_entry(completed(program.call(code), assumptions), rank))[:-1]
        if program.timed:
            lines = [f'{heads[code]},"startTime_ns":{time}}}' for code, time in zip(codes, times, strict=True)]
        else:
            lines = [heads[code] + "}" for code in codes]
        for i in np.flatnonzero(moved[events]).tolist():
            start = f',"startTime_ns":{times[i]}' if program.timed else ""
            lines[i] = f"{_text(_set_group(program.call(codes[i])))[:-1]}{start}}},\n{lines[i]}"
        yield (",\n" + ",\n".join(lines)).encode("ascii")
    yield b"]\n"


def _text(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _set_group(call: Call) -> dict[str, Any]:
    size = {"in_msg_size": 0, "out_msg_size": 0, "dtype": "uint8"}
    return {"comms": "all_reduce", "pg_id": call.group, "world_size": len(call.members), **size, "sets_group": True}


def _entry(call: Call, rank: int) -> dict[str, Any]:
    name = _COMMS[call.op] if call.op != "point_to_point" or rank == call.sender else "recv"
    entry: dict[str, Any] = {"comms": name, "pg_id": call.group, "world_size": len(call.members)}
    if call.op == "barrier":
        return entry
    own = elements(call, rank)
    entry |= {"in_msg_size": own.sent, "out_msg_size": own.received, "dtype": _DTYPES[call.dtype or ""]}
    if call.op == ALL_TO_ALL_V:
        entry |= {"in_split": list(own.sent_splits), "out_split": list(own.received_splits)}
    if call.op in ROOTED:
        entry["root"] = call.root
    if call.op == "point_to_point":
        entry |= {"src_rank": call.sender, "dst_rank": call.receiver, "use_batch": False}
    return entry
