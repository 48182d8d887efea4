"""Turn the calls of one MPI process into messages, records and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from commcanary_lab.importers.mpi_comms import Group
from commcanary_lab.importers.mpi_lines import Call, Comm, Datatype, RankFile
from commcanary_lab.importers.mpi_messages import ANY, Message
from commcanary_lab.trace.model import ImportCoverage, UnsizedRow
from commcanary_lab.trace.ops import ALL_TO_ALL_V, REDUCTION_OPS
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["RankReader"]

NO_MEMBERS = "members unknown: nothing in the files says which ranks its communicator has"
NO_PEER = "message to or from no process"
ITSELF = "message of a rank to itself"
NO_SEND = "receive that matches no send"
PEER_OUTSIDE = "peer outside of the communicator"
NO_COUNTS = "size missing: the counts of the ranks are not in the trace"
TOO_LARGE = "size out of range"
CLOCK = "unix"

#: Number in the tracer -> dtype; only where the size agrees.
_DTYPES = {1: "int32", 2: "int32", 3: "int64", 4: "int16", 5: "uint32", 6: "uint64", 7: "uint16", 8: "float32", 9: "float32",
           10: "float64", 11: "float64", 13: "uint8"}  # fmt: skip
_WIDTHS = {"int32": 4, "int64": 8, "int16": 2, "uint32": 4, "uint64": 8, "uint16": 2, "float32": 4, "float64": 8, "uint8": 1}
_REDUCTIONS = {1: "min", 2: "max", 3: "sum", 4: "product"}
_SENDS = frozenset({"Send", "Bsend", "Ssend", "Rsend"})
_NONBLOCKING_SENDS = frozenset(f"I{name.lower()}" for name in _SENDS)
_PERSISTENT_SENDS = frozenset(f"{name}_init" for name in _SENDS)
_COLLECTIVES = {
    "barrier": "barrier", "bcast": "broadcast", "reduce": "reduce", "allreduce": "all_reduce", "scan": "scan", "exscan": "exscan",
    "allgather": "all_gather", "allgatherv": "all_gather", "gather": "gather", "gatherv": "gather", "scatter": "scatter",
    "scatterv": "scatter", "alltoall": "all_to_all", "alltoallv": ALL_TO_ALL_V, "reduce_scatter": "reduce_scatter",
    "reduce_scatter_block": "reduce_scatter",
}  # fmt: skip
_STANDARD = frozenset({"broadcast", "all_reduce", "all_gather", "all_to_all", "reduce_scatter"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_MAX_BYTES = 1 << 62


@dataclass
class _Pending:
    """A non-blocking message until a call waits for it."""

    message: Message
    returned_ns: int


class RankReader:
    """Reads the calls of one process.

    Parameters
    ----------
    rank : int
        Global rank.
    file : RankFile
        Its calls.
    groups : mapping of Comm to Group
        Communicators whose members are known.
    empty : frozenset of int
        Peers that mean "no process".
    """

    def __init__(self, rank: int, file: RankFile, groups: Mapping[Comm, Group], empty: frozenset[int]) -> None:
        self.rank, self.file, self.groups, self.empty = rank, file, groups, empty
        self.messages: list[Message] = []
        self._rows: list[Record | Message] = []
        self._skipped: Counter[str] = Counter()
        self._unsized: list[UnsizedRow] = []
        self._pending: dict[int, _Pending] = {}
        self._prepared: dict[int, Call] = {}
        self._uneven = 0
        self._count = 0

    def read(self) -> None:
        """Read all calls."""
        for call in self.file.calls:
            name = call.name
            if name in _SENDS or name == "Recv":
                self._message(call, name in _SENDS, blocking=True)
            elif name in _NONBLOCKING_SENDS or name == "Irecv":
                self._start(call, call, name in _NONBLOCKING_SENDS)
            elif name in _PERSISTENT_SENDS or name == "Recv_init":
                self._prepared[call.numbers["request"]] = call
            elif name == "Start":
                prepared = self._prepared.get(call.numbers["request"])
                if prepared is None:
                    self._count += 1
                    self._skipped["persistent request that nothing prepared"] += 1
                else:
                    self._start(call, prepared, prepared.name in _PERSISTENT_SENDS)
            elif name in ("Sendrecv", "Sendrecv_replace"):
                self._both(call)
            elif name in ("Wait", "Waitall"):
                self._wait(call)
            elif (op := _COLLECTIVES.get(_plain(name))) is not None:
                self._collective(call, op)
        for reason, count in self.file.unread.items():
            self._count += count
            self._skipped[reason] += count

    def capture(self, world_size: int) -> RankCapture:
        """Return what the process says; after messages are matched."""
        records = []
        for row in self._rows:
            if isinstance(row, Record):
                records.append(row)
            elif row.dropped:
                self._skipped[NO_SEND] += 1
            else:
                records.append(_record(row))
        notes = [f"{self._uneven} collectives of uneven parts: attributed as if they were even"] if self._uneven else []
        return RankCapture(
            rank=self.rank,
            records=records,
            file=self.file.file,
            clock=CLOCK,
            world_size=world_size,
            coverage=ImportCoverage(
                self._count, len(records), dict(sorted(self._skipped.items())), (self.rank,), (Path(self.file.file).name,)
            ),
            unsized=tuple(self._unsized),
            notes=tuple(notes),
            warnings=tuple(self.file.warnings),
        )

    # -- messages -----------------------------------------------------------------------------------------------------

    def _message(self, call: Call, sends: bool, *, blocking: bool) -> Message | None:
        peer, tag = call.numbers["dest" if sends else "source"], call.numbers["tag"]
        return self._add(call, sends, peer, tag, call.numbers["count"], call.types["type"], blocking)

    def _both(self, call: Call) -> None:
        """One call, two messages: its time is that of both together, so neither gets it."""
        n, t = call.numbers, call.types
        second = "scount" not in n
        self._add(call, True, n["dest"], n["stag"], n["count" if second else "scount"], t["type" if second else "stype"], False)
        self._add(call, False, n["source"], n["rtag"], n["count" if second else "rcount"], t["type" if second else "rtype"], False)

    def _add(self, call: Call, sends: bool, peer: int, tag: int, count: int, kind: Datatype, blocking: bool) -> Message | None:
        self._count += 1
        assert call.comm is not None
        group = self.groups.get(call.comm)
        size = count * kind.size_bytes
        if peer in self.empty or (sends and peer < 0):
            self._skipped[NO_PEER] += 1
            return None
        if group is None:
            self._leave(call, NO_MEMBERS, size if sends else None)
            return None
        if peer >= len(group.members):
            self._leave(call, PEER_OUTSIDE, size if sends else None)
            return None
        if size >= _MAX_BYTES:
            self._leave(call, TOO_LARGE, None)
            return None
        other = group.members[peer] if peer >= 0 else ANY
        if other == self.rank:
            self._skipped[ITSELF] += 1
            return None
        message = Message(
            self.rank, sends, other, max(tag, ANY), size, group, _dtype(kind), call.start_ns,
            call.end_ns - call.start_ns if blocking else None, 0 if blocking else None, posted=not sends,
        )  # fmt: skip
        self.messages.append(message)
        self._rows.append(message)
        return message

    def _start(self, call: Call, described: Call, sends: bool) -> None:
        message = self._message(replace(described, start_ns=call.start_ns, end_ns=call.end_ns), sends, blocking=False)
        if message is not None:
            self._pending[call.numbers["request"]] = _Pending(message, call.end_ns)

    def _wait(self, call: Call) -> None:
        """The messages that a call waited for end with it. The trace has the address of the first request; its neighbours follow."""
        if call.name == "Wait":
            done = [call.numbers["request"]]
        else:
            base, count = call.numbers["requests"], call.numbers["count"]
            if count > len(self._pending):
                return
            # requests take 8 or 4 bytes, depending on the library
            rows = [[base + i * step for i in range(count)] for step in (8, 4)]
            done = next((row for row in rows if all(request in self._pending for request in row)), [])
        for request in done:
            pending = self._pending.pop(request, None)
            if pending is not None:
                pending.message.duration_ns = call.end_ns - pending.message.start_ns
                pending.message.overlap_ns = max(0, call.start_ns - pending.returned_ns)

    # -- collectives --------------------------------------------------------------------------------------------------

    def _collective(self, call: Call, op: str) -> None:
        self._count += 1
        assert call.comm is not None
        size = _size(call, op)
        group = self.groups.get(call.comm)
        if size is None:
            self._leave(call, NO_COUNTS, None)
            return
        if group is None:
            self._leave(call, NO_MEMBERS, size if op != "barrier" and call.comm.size > 1 else 0)
            return
        if size >= _MAX_BYTES:
            self._leave(call, TOO_LARGE, None)
            return
        root = call.numbers.get("root")
        if root is not None and not 0 <= root < len(group.members):
            self._leave(call, "root outside of the communicator", size)
            return
        blocking = "request" not in call.numbers
        self._uneven += any(len(set(counts)) > 1 for name, counts in call.arrays.items() if name.endswith("counts")) and op != ALL_TO_ALL_V
        kind = call.types.get("type") or call.types.get("stype")
        record = Record(
            rank=self.rank,
            op=op,
            size_bytes=size,
            members=tuple(sorted(group.members)),
            group=group.name,
            custom_op=op not in _STANDARD,
            dtype=None if kind is None or op == "barrier" else _dtype(kind),
            reduction=_REDUCTIONS.get(call.numbers["op"]) if op in REDUCTION_OPS else None,
            root=group.members[root] if root is not None and op in _ROOTED else None,
            start_ns=call.start_ns,
            duration_ns=call.end_ns - call.start_ns if blocking else None,
            overlap_ns=0 if blocking else None,
        )
        self._rows.append(_with_splits(record, call, group) if op == ALL_TO_ALL_V else record)

    def _leave(self, call: Call, reason: str, size: int | None) -> None:
        self._skipped[reason] += 1
        where = "" if call.comm is None else f" (handle {call.comm.handle}, {call.comm.size} ranks)"
        self._unsized.append(UnsizedRow(f"MPI_{call.name}", call.end_ns - call.start_ns, reason + where, self.rank, call.start_ns, size))


def _plain(name: str) -> str:
    """Name of a collective without the I of the non-blocking form."""
    lower = name.lower()
    return lower[1:] if lower.startswith("i") and lower[1:] in _COLLECTIVES else lower


def _size(call: Call, op: str) -> int | None:
    """B; None where the tracer did not write the counts."""
    n, t, k = call.numbers, call.types, call.comm.size if call.comm is not None else 1
    counts, name = call.arrays, _plain(call.name)
    if op == "barrier":
        return 0
    if op == ALL_TO_ALL_V:
        rows = [sum(counts[a]) * t[b].size_bytes for a, b in (("scounts", "stype"), ("rcounts", "rtype")) if a in counts]
        return max(rows) if len(rows) == 2 else None
    if name == "scatterv":
        return sum(counts["scounts"]) * t["stype"].size_bytes if "scounts" in counts else None
    if name in ("allgatherv", "gatherv"):
        return sum(counts["rcounts"]) * t["rtype"].size_bytes if "rcounts" in counts else None
    if name == "reduce_scatter":
        return sum(counts["rcounts"]) * t["type"].size_bytes if "rcounts" in counts else None
    if name == "reduce_scatter_block":
        return k * n["rcount"] * t["type"].size_bytes
    if op in ("all_gather", "all_to_all", "gather"):
        # MPI_IN_PLACE leaves the send side without meaning; the receive side counts one rank's part
        inside = n["scount"] * t["stype"].size_bytes or n["rcount"] * t["rtype"].size_bytes
        return k * inside
    if op == "scatter":
        return k * (n["rcount"] * t["rtype"].size_bytes or n["scount"] * t["stype"].size_bytes)
    return n["count"] * t["type"].size_bytes


def _with_splits(record: Record, call: Call, group: Group) -> Record:
    order = sorted(range(len(group.members)), key=group.members.__getitem__)
    sent, received = (
        tuple(call.arrays[counts][i] * call.types[kind].size_bytes for i in order)
        for counts, kind in (("scounts", "stype"), ("rcounts", "rtype"))
    )
    return replace(record, sent_splits=sent, received_splits=received, sent_bytes=sum(sent), received_bytes=sum(received))


def _record(m: Message) -> Record:
    sender, receiver = m.ends
    return Record(
        rank=m.rank,
        op="send" if m.sends else "recv",
        size_bytes=m.size_bytes,
        members=tuple(sorted(m.group.members)),
        group=m.group.name,
        dtype=m.dtype,
        sender=sender,
        receiver=receiver,
        tag=str(m.tag),
        start_ns=m.start_ns,
        duration_ns=m.duration_ns,
        overlap_ns=m.overlap_ns,
    )


def _dtype(kind: Datatype) -> str | None:
    name = _DTYPES.get(kind.number)
    return name if name is not None and _WIDTHS[name] == kind.size_bytes else None
