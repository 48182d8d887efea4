"""PyTorch execution traces that PARAM's ``comm_replay --trace-type et`` replays: ``rank-<r>.json``, without times.

A node that lists every process group, then one ``record_param_comms`` node per call, in schema 1.1.1-chakra.0.0.4.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.export.elements import ASSUMABLE, ROOTED, Elements, completed, elements, why_not_elements
from commcanary_lab.export.program import CHUNK, Call, Program
from commcanary_lab.export.rank_files import write_rank_files
from commcanary_lab.export.result import Export, check_assumptions, supported
from commcanary_lab.trace.groups import ProcessGroup
from commcanary_lab.trace.numbering import positions
from commcanary_lab.trace.ops import ALL_TO_ALL_V, DTYPE_BYTES

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.trace.model import Trace

__all__ = ["export_param_et"]

_SCHEMA = "1.1.1-chakra.0.0.4"
#: Names of element types that PARAM and readers of execution traces share.
_DTYPES = {
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double", "int8": "Int8", "uint8": "UInt8", "int32": "Int",
    "int64": "Long", "bool": "Bool",
}  # fmt: skip
#: The same in the types of inputs.
_C_TYPES = {
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double", "int8": "signed char",
    "uint8": "unsigned char", "int32": "int", "int64": "long int", "bool": "bool",
}  # fmt: skip
_NAMES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather_base", "reduce_scatter": "reduce_scatter_base", "all_to_all": "alltoall_base",
    ALL_TO_ALL_V: "all_to_allv", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "barrier": "barrier", "point_to_point": "send",
}  # fmt: skip
_OPS = frozenset(_NAMES)
#: Ids of the nodes before the first call: process, thread, groups.
_FIRST_NODE = 4


def export_param_et(
    source: Canary | Trace,
    directory: str | os.PathLike[str],
    *,
    skip_unsupported: bool = False,
    assume: Mapping[str, str] | None = None,
) -> Export:
    """Write a program as PyTorch execution traces for PARAM.

    Parameters
    ----------
    source : Canary or Trace
        The program; all members of a group take part in its calls, whoever reported them.
    directory : path-like
        Where ``rank-0.json``, ``rank-1.json``, ... go; it is made.
    skip_unsupported : bool
        Leave out calls that the format cannot say, and list them.
    assume : mapping of str to str, optional
        As in `export_param`.

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
    ...     done = export_param_et(lab.compile(lab.samples.tp8_decode()), folder)
    ...     print(done.entries, lab.open(folder))
    16120 Trace(2,015 events, 8 ranks, 1 groups, 0 unsized, from pytorch_et)
    """
    assumptions = check_assumptions(assume, ASSUMABLE)
    program, skipped = supported(
        Program.of(source),
        lambda call: why_not_elements(completed(call, assumptions), _DTYPES, _OPS),
        what="an execution trace",
        skip=skip_unsupported,
    )
    sequence = _sequences(program)
    notes = ["an execution trace has no times: the canary's gaps are not in it"] if program.timed else []
    return write_rank_files(
        "param-et", program, Path(directory), name=lambda rank: f"rank-{rank}.json",
        content=lambda rank: _file(program, rank, sequence, assumptions), skipped=skipped, assumptions=assumptions, notes=notes,
    )  # fmt: skip


def _sequences(program: Program) -> npt.NDArray[np.int64]:
    """Number of each event in its group, the same on all its ranks; shape (events,)."""
    groups = np.full(len(program.first) + 1, -1, np.int64)
    for code, call in program.calls():
        groups[code] = call.group
    return positions(groups[program.code])


def _file(program: Program, rank: int, sequence: npt.NDArray[np.int64], assumptions: Mapping[str, str]) -> Iterator[bytes]:
    """The file of a rank, in passes: one node per line."""
    groups = [
        {
            "pg_name": str(i),
            "pg_desc": _description(program, g),
            "backend_config": "undefined",
            "pg_size": g.size,
            "group_size": g.size,
            "group_count": len(program.groups),
            "ranks": list(g.members),
        }
        for i, g in enumerate(program.groups)
    ]
    table = {"values": [json.dumps(groups)], "shapes": [[]], "types": ["String"], "strides": [[]]}
    before = [
        _node(1, "[pytorch|profiler|execution_trace|process]", 1, _NOTHING, _NOTHING),
        _node(2, "[pytorch|profiler|execution_trace|thread]", 1, _NOTHING, _NOTHING),
        _node(3, "## process_group:init ##", 2, table, _NOTHING),
    ]
    head = {"schema": _SCHEMA, "pid": rank + 1, "time": "1970-01-01 00:00:00", "start_ts": 0}
    yield (_text(head)[:-1] + ',"nodes":[\n' + ",\n".join(_text(n) for n in before)).encode("ascii")
    halves: dict[int, tuple[str, str]] = {}
    number = _FIRST_NODE
    for events, codes, _ in program.chunks_of(rank):
        if len(halves) > CHUNK:
            halves.clear()
        for code in set(codes) - halves.keys():
            halves[code] = _halves(program, completed(program.call(code), assumptions), rank)
        lines = [
            f'{{"id":{i},{halves[code][0]}{seq}{halves[code][1]}'
            for i, code, seq in zip(range(number, number + len(codes)), codes, sequence[events].tolist(), strict=True)
        ]
        number += len(codes)
        yield (",\n" + ",\n".join(lines)).encode("ascii")
    yield b'],\n"finish_ts":0}\n'


_NOTHING: Mapping[str, Any] = {"values": [], "shapes": [], "types": [], "strides": []}


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _description(program: Program, group: ProcessGroup) -> str:
    """Name of a group; ``default_pg`` is for the whole job only."""
    whole = group.size == program.world_size
    return "undefined" if not group.name or (group.name == "default_pg" and not whole) else group.name


def _node(number: int, name: str, above: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: list[Any] | None = None) -> Any:
    usual = [_attr("rf_id", "uint64", number), _attr("fw_parent", "uint64", 0), _attr("seq_id", "int64", -1), _attr("scope", "uint64", 0),
             _attr("tid", "uint64", 1), _attr("fw_tid", "uint64", 0), _attr("op_schema", "string", "")]  # fmt: skip
    return {"id": number, "name": name, "ctrl_deps": above, "inputs": inputs, "outputs": outputs, "attrs": [*usual, *(attrs or [])]}


def _attr(name: str, kind: str, value: object) -> dict[str, object]:
    return {"name": name, "type": kind, "value": value}


def _halves(program: Program, call: Call, rank: int) -> tuple[str, str]:
    """The text of a call's node before and after its sequence number, without its id."""
    mark = -(1 << 60)
    text = _text(_call_node(program, call, rank, mark))
    before, after = text.split(str(mark))
    return before.removeprefix('{"id":0,'), after


def _call_node(program: Program, call: Call, rank: int, sequence: int) -> Any:
    name = "recv" if call.op == "point_to_point" and rank == call.receiver else _NAMES[call.op]
    group, name_of_group = program.groups[call.group], str(call.group)
    description = _description(program, group)
    start, stride, size = call.members[0], _stride(call.members), len(call.members)
    own = Elements(0, 0) if call.op == "barrier" else elements(call, rank)
    splits = (list(own.sent_splits), list(own.received_splits))
    sent, received = _tensor(call, 0, own.sent), _tensor(call, 1, own.received)
    stated: list[tuple[Any, Any, str, Any]] = [
        sent,
        ([sequence, call.op == "point_to_point"], [[], []], "Tuple[Int,Bool]", [[], []]),
        ([name_of_group, description], [[], []], "Tuple[String,String]", [[], []]),
        (_special(call, rank), [], "Int", []),
        (name, [], "String", []),
        *((s, [[]] * len(s), f"GenericList[{','.join(['Int'] * len(s))}]", [[]] * len(s)) for s in splits),
        *((n, [], "Int", []) for n in (start, stride, size)),
    ]
    return _node(0, "record_param_comms", 2, _side(stated), _side([received]), [
        _attr("collective_name", "string", name), _attr("dtype", "string", _DTYPES.get(call.dtype or "", "Byte")),
        _attr("in_msg_nelems", "uint64", own.sent), _attr("out_msg_nelems", "uint64", own.received),
        _attr("in_split_size", "string", _text(splits[0])), _attr("out_split_size", "string", _text(splits[1])),
        _attr("global_rank_start", "uint64", start), _attr("global_rank_stride", "uint64", stride),
        _attr("pg_name", "string", name_of_group), _attr("pg_desc", "string", description), _attr("pg_size", "uint64", size),
    ])  # fmt: skip


def _side(stated: list[tuple[Any, Any, str, Any]]) -> Mapping[str, Any]:
    """Inputs or outputs from values, shapes, types and strides."""
    return {name: [item[i] for item in stated] for i, name in enumerate(("values", "shapes", "types", "strides"))}


def _tensor(call: Call, end: int, count: int) -> tuple[Any, Any, str, Any]:
    """One tensor in a list, or none for a barrier."""
    if call.dtype is None or call.op == "barrier":
        return [], [], "GenericList[]", []
    tensor = [10 + end, 20 + end, 0, count, DTYPE_BYTES[call.dtype], "cpu"]
    return [tensor], [[count]], f"GenericList[Tensor({_C_TYPES[call.dtype]})]", [[1]]


def _special(call: Call, rank: int) -> int:
    """What stands before the operation's name, as ranks in the group: the other end of a message, the root, or the own rank."""
    if call.op == "point_to_point":
        other = call.receiver if rank == call.sender else call.sender
    else:
        other = call.root if call.op in ROOTED else rank
    return call.position(rank if other is None else other)


def _stride(members: tuple[int, ...]) -> int:
    """Distance of consecutive ranks; 0 where there is no one distance."""
    steps = {b - a for a, b in pairwise(members)}
    return steps.pop() if len(steps) == 1 else 0 if steps else 1
