"""MLCommons Chakra execution traces: ``canary.<rank>.et``, one per rank.

The gaps are computation: a chain of COMP nodes carries the clock, and every call depends on the node at its time and on the call before it
in its group. Sizes are what one NPU puts in, in bytes, as the schema's readers take them. The protobuf schema is our own
(`importers.chakra_schema`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from commcanary_lab.export.elements import ROOTED
from commcanary_lab.export.program import Call, Program
from commcanary_lab.export.rank_files import write_rank_files
from commcanary_lab.export.result import Export, supported
from commcanary_lab.importers.chakra_schema import CommType, Metadata, Node, NodeType, Value, encode_metadata, encode_node
from commcanary_lab.importers.protobuf_wire import delimited

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.trace.model import Trace

__all__ = ["export_chakra"]

_TYPES = {
    "all_reduce": CommType.ALL_REDUCE, "reduce": CommType.REDUCE, "all_gather": CommType.ALL_GATHER, "gather": CommType.GATHER,
    "scatter": CommType.SCATTER, "broadcast": CommType.BROADCAST, "all_to_all": CommType.ALL_TO_ALL,
    "reduce_scatter": CommType.REDUCE_SCATTER, "barrier": CommType.BARRIER,
}  # fmt: skip
_GROUPS = "## process_group:init ##"
#: The schema's 0 means "no start stated", so the clock begins at 1.
_BEGIN_US = 1
_MICROSECONDS = "times are whole microseconds and begin at 1 (0 means that none is stated); rounding does not add up"


def export_chakra(source: Canary | Trace, directory: str | os.PathLike[str], *, skip_unsupported: bool = False) -> Export:
    """Write a program as Chakra execution traces.

    Parameters
    ----------
    source : Canary or Trace
        The program; all members of a group take part in its calls, whoever reported them.
    directory : path-like
        Where ``canary.0.et``, ``canary.1.et``, ... go; it is made.
    skip_unsupported : bool
        Leave out calls that the format cannot say, and list them: uneven all-to-alls have no type, an all-gather must divide evenly.

    Returns
    -------
    Export

    Raises
    ------
    RefusedError
        If a call cannot be said; it names the events.
    LimitError
        On a job of more ranks than files make sense.

    Examples
    --------
    >>> import tempfile
    >>> import commcanary_lab as lab
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = export_chakra(lab.compile(lab.samples.tp8_decode()), folder)
    ...     print(done.entries, lab.open(folder))
    16120 Trace(2,015 events, 8 ranks, 1 groups, 0 unsized, from chakra_et)
    """
    program, skipped = supported(Program.of(source), _why_not, what="a Chakra trace", skip=skip_unsupported)
    return write_rank_files(
        "chakra", program, Path(directory), name=lambda rank: f"canary.{rank}.et",
        content=lambda rank: _RankFile(program, rank).messages(), skipped=skipped, assumptions={},
        notes=[_MICROSECONDS] if program.timed else [],
    )  # fmt: skip


def _why_not(call: Call) -> str | None:
    """Why the schema cannot say a call."""
    if call.op == "point_to_point":
        if call.sender is None or call.receiver is None:
            return "peer unknown"
        return "message of a rank to itself" if call.sender == call.receiver else None
    if call.op not in _TYPES:
        return f"operation without equivalent: {call.op}"
    if call.op == "barrier" and call.size_bytes:
        return f"barrier with bytes: {call.size_bytes}"
    if call.op == "all_gather" and call.size_bytes % len(call.members):
        return f"not divisible: {call.size_bytes} bytes among {len(call.members)} ranks"
    if call.root is not None and call.root not in call.members:
        return f"root outside the group: {call.root}"
    return None


@dataclass
class _RankFile:
    """Messages of one rank's file."""

    program: Program
    rank: int
    _number: int = 0
    _clock: int | None = None
    _clock_us: int = 0
    _last: dict[int, int] = field(default_factory=dict)
    _calls: dict[int, Call] = field(default_factory=dict)

    def messages(self) -> Iterator[bytes]:
        groups = [
            {"pg_name": str(i), "pg_desc": g.name or "undefined", "group_size": g.size, "ranks": list(g.members)}
            for i, g in enumerate(self.program.groups)
        ]
        table = Node(0, _GROUPS, NodeType.METADATA, inputs=f"['{json.dumps(groups)}']")
        yield delimited(encode_metadata(Metadata("0.0.4", {"rank": self.rank, "world_size": self.program.world_size})))
        yield delimited(encode_node(table))
        for _, codes, times in self.program.chunks_of(self.rank):
            yield b"".join(delimited(encode_node(n)) for code, time in zip(codes, times, strict=True) for n in self._nodes(code, time))

    def _nodes(self, code: int, time_ns: int) -> Iterator[Node]:
        if code not in self._calls:
            self._calls[code] = self.program.call(code)
        call, now_us = self._calls[code], (time_ns + 500) // 1000
        if self.program.timed and (self._clock is None or now_us > self._clock_us):
            if now_us > self._clock_us:
                before = () if self._clock is None else (self._clock,)
                self._number += 1
                yield Node(self._number, "gap", NodeType.COMP, data_deps=before, start_us=self._clock_us + _BEGIN_US,
                           duration_us=now_us - self._clock_us, attributes={"is_cpu_op": False})  # fmt: skip
                self._clock = self._number
            self._clock_us = now_us
        deps = tuple(sorted({d for d in (self._clock, self._last.get(call.group)) if d is not None}))
        self._number += 1
        self._last[call.group] = self._number
        yield self._call(call, self._number, deps, now_us + _BEGIN_US if self.program.timed else 0)

    def _call(self, call: Call, number: int, deps: tuple[int, ...], start_us: int) -> Node:
        attributes: dict[str, Value] = {"is_cpu_op": False}
        if call.op == "point_to_point":
            sends = self.rank == call.sender
            attributes |= {"comm_size": call.size_bytes, "comm_src": call.sender or 0, "comm_dst": call.receiver or 0, "comm_tag": 0}
            name, kind = ("send", NodeType.COMM_SEND) if sends else ("recv", NodeType.COMM_RECV)
            return Node(number, name, kind, data_deps=deps, start_us=start_us, attributes=attributes)
        own = call.size_bytes // len(call.members) if call.op == "all_gather" else call.size_bytes
        attributes |= {"comm_type": int(_TYPES[call.op]), "comm_size": own, "pg_name": str(call.group)}
        if call.op in ROOTED and call.root is not None:
            attributes["root"] = call.root
        return Node(number, call.op, NodeType.COMM_COLL, data_deps=deps, start_us=start_us, attributes=attributes)
