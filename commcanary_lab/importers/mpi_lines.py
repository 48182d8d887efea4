"""The lines of a liballprof (PMPI) text trace: ``MPI_Fn:start:arguments...:end``, times in microseconds."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from commcanary_lab.errors import FormatError

__all__ = ["Call", "Comm", "Datatype", "RankFile", "parse"]

_ARRAY = "*"
_SEND, _RECV = "buf count type dest tag comm", "buf count type source tag comm"
_ALL = "sbuf rbuf count type op comm"
_PAIR = "sbuf scount stype rbuf rcount rtype"
#: Arguments in the order of the call; those with a star are arrays, which are written as an address and a list.
_BLOCKING = {
    "Send": _SEND, "Bsend": _SEND, "Ssend": _SEND, "Rsend": _SEND, "Recv": f"{_RECV} status", "Barrier": "comm",
    "Bcast": "buf count type root comm", "Reduce": "sbuf rbuf count type op root comm", "Allreduce": _ALL, "Scan": _ALL, "Exscan": _ALL,
    "Allgather": f"{_PAIR} comm", "Allgatherv": "sbuf scount stype rbuf *rcounts *displs rtype comm", "Gather": f"{_PAIR} root comm",
    "Gatherv": "sbuf scount stype rbuf *rcounts *displs rtype root comm", "Scatter": f"{_PAIR} root comm",
    "Scatterv": "sbuf *scounts *displs stype rbuf rcount rtype root comm", "Alltoall": f"{_PAIR} comm",
    "Alltoallv": "sbuf *scounts *sdispls stype rbuf *rcounts *rdispls rtype comm", "Reduce_scatter": "sbuf rbuf *rcounts type op comm",
    "Reduce_scatter_block": "sbuf rbuf rcount type op comm",
}  # fmt: skip
_OTHER = {
    "Irecv": f"{_RECV} request", "Send_init": f"{_SEND} request", "Bsend_init": f"{_SEND} request", "Ssend_init": f"{_SEND} request",
    "Rsend_init": f"{_SEND} request", "Recv_init": f"{_RECV} request", "Start": "request",
    "Sendrecv": "sbuf scount stype dest stag rbuf rcount rtype source rtag comm status",
    "Sendrecv_replace": "buf count type dest stag source rtag comm status", "Wait": "request status",
    "Waitall": "count requests statuses", "Comm_split": "comm color key newcomm", "Comm_dup": "comm newcomm", "Comm_rank": "comm rank",
    "Comm_size": "comm size",
}  # fmt: skip
_SIGNATURES: dict[str, tuple[str, ...]] = {
    **{name: tuple(spec.split()) for name, spec in {**_BLOCKING, **_OTHER}.items()},
    **{f"I{name.lower()}": (*spec.replace(" status", "").split(), "request") for name, spec in _BLOCKING.items() if name != "Recv"},
}
#: Calls that move data and that this format does not describe well enough, by reason.
_UNREAD = {
    "one-sided communication": re.compile(r"R?(?:Put|Get|Accumulate|Get_accumulate)|Fetch_and_op|Compare_and_swap"),
    "persistent requests started together": re.compile(r"Startall"),
    "datatypes that differ by rank": re.compile(r"I?alltoallw", re.IGNORECASE),
    "neighbourhood collective": re.compile(r"I?neighbor_\w+", re.IGNORECASE),
    "intercommunicator": re.compile(r"Intercomm_\w+|Comm_spawn\w*|Comm_accept|Comm_connect"),
}
_LINE = re.compile(r"MPI_(\w{1,40}):([^:]*):")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_TIME = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?")
_NAMED_INT = frozenset({"count", "scount", "rcount", "dest", "source", "root", "tag", "stag", "rtag", "op", "color", "key", "request",
                        "requests"})  # fmt: skip
_TYPES = frozenset({"type", "stype", "rtype"})
_SIZES = frozenset({"count", "scount", "rcount"})
_MAX = 1 << 62


class Comm(NamedTuple):
    """A communicator as a process sees it."""

    handle: int
    rank: int
    size: int


class Datatype(NamedTuple):
    """A datatype: its number in the tracer, and bytes per element."""

    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Parameters
    ----------
    name : str
        Without ``MPI_``.
    start_ns, end_ns : int
        When it began and returned, on the process' clock.
    numbers : dict of str to int
        Integer arguments.
    types : dict of str to Datatype
    arrays : dict of str to tuple of int
        One entry per rank of the communicator; absent where the tracer wrote the address only.
    comm : Comm or None
    line : int
    """

    name: str
    start_ns: int
    end_ns: int
    numbers: dict[str, int]
    types: dict[str, Datatype]
    arrays: dict[str, tuple[int, ...]]
    comm: Comm | None
    line: int


@dataclass
class RankFile:
    """The trace of one process."""

    file: str
    calls: list[Call] = field(default_factory=list)
    host: str | None = None
    clock_difference_s: float | None = None
    unread: Counter[str] = field(default_factory=Counter)
    finalized: bool = False
    rounded: int = 0
    warnings: list[str] = field(default_factory=list)
    lines: int = 0
    #: Datatypes and communicators as they are written; a trace repeats a few.
    known_types: dict[str, Datatype] = field(default_factory=dict)
    known_comms: dict[str, Comm] = field(default_factory=dict)

    def error(self, what: str, line: int, name: str | None = None) -> FormatError:
        return FormatError(what, file=self.file, line=line, field=name, remedy="record again, or remove the line")


def parse(text: str, file: str) -> RankFile:
    """Parse the trace of one process.

    Parameters
    ----------
    text : str
        The content.
    file : str
        Its name, for messages.

    Raises
    ------
    FormatError
        If a line is malformed; with its number. A cut last line is a warning.

    Examples
    --------
    >>> call = parse("MPI_Send:7.5:99:4500:11,8,8:2:3000:0,1,4:9.0\\n", "rank1.txt").calls[0]
    >>> call.name, call.start_ns, call.numbers["dest"], call.types["type"].size_bytes, call.comm
    ('Send', 7500, 2, 8, Comm(handle=0, rank=1, size=4))
    """
    out = RankFile(file)
    lines = text.split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line:
            continue
        out.lines = number
        if line.startswith("#"):
            _header(line, out)
            continue
        try:
            _call(line, number, out)
        except FormatError:
            if number < len(lines):  # only what stands behind the last newline can be a cut line
                raise
            out.warnings.append(f"{file}: line {number}: the last line is cut short and was left out")
    return out


def _header(line: str, out: RankFile) -> None:
    name, _, value = line.lstrip("# ").partition(":")
    if name in ("host", "hostname"):
        out.host = value.strip().removesuffix(".(none)") or None
    elif "clockdiff" in name:
        try:
            difference = float(value.split()[0])
        except (ValueError, IndexError):
            return
        if out.clock_difference_s is None:
            out.clock_difference_s = difference


def _call(line: str, number: int, out: RankFile) -> None:
    m = _LINE.match(line)
    if m is None:
        raise out.error(f"not a line of a PMPI trace: {line[:60]!r}", number)
    name = m.group(1)
    signature = _SIGNATURES.get(name)
    if signature is None:
        out.finalized |= name == "Finalize"
        reason = next((reason for reason, pattern in _UNREAD.items() if pattern.fullmatch(name)), None)
        if reason is not None:
            out.unread[reason] += 1
        return
    fields = line.split(":")
    start, end = _time(fields[1], out, number), _time(fields[-1], out, number)
    if end < start:
        raise out.error(f"MPI_{name} ends before it starts", number)
    out.calls.append(_arguments(name, signature, fields[2:-1], start, end, number, out))


def _arguments(name: str, signature: tuple[str, ...], fields: list[str], start: int, end: int, number: int, out: RankFile) -> Call:
    arrays = sum(a.startswith(_ARRAY) for a in signature)
    with_lists = arrays > 0 and len(fields) == len(signature) + arrays
    if len(fields) != len(signature) and not with_lists:
        raise out.error(f"MPI_{name} has {len(fields)} arguments, not {len(signature) + arrays}", number)
    call = Call(name, start, end, {}, {}, {}, None, number)
    comm: Comm | None = None
    rest = iter(fields)
    for argument in signature:
        value = next(rest)
        if argument.startswith(_ARRAY):
            if with_lists:
                call.arrays[argument[1:]] = _integers(next(rest), argument[1:], number, out)
        elif argument in _TYPES:
            kind = out.known_types.get(value)
            if kind is None:
                kind = out.known_types[value] = _datatype(value, argument, number, out)
            call.types[argument] = kind
        elif argument == "comm":
            comm = out.known_comms.get(value)
            if comm is None:
                comm = out.known_comms[value] = _comm(value, number, out)
        elif argument in _NAMED_INT:
            call.numbers[argument] = _integer(value, argument, number, out)
    if comm is not None:
        call = Call(name, start, end, call.numbers, call.types, call.arrays, comm, number)
        for argument, values in call.arrays.items():
            if len(values) != comm.size:
                raise out.error(f"{len(values)} values for {comm.size} ranks", number, argument)
    return call


def _time(text: str, out: RankFile, number: int) -> int:
    """Microseconds as whole nanoseconds."""
    m = _TIME.fullmatch(text)
    if m is None:
        raise out.error(f"{text[:40]!r} is not a time in microseconds", number, "time")
    digits = (m.group(2) or "").ljust(3, "0")
    if digits[3:].strip("0"):
        out.rounded += 1
    value = int(m.group(1)) * 1000 + int(digits[:3]) + (digits[3:4] >= "5")
    if value >= _MAX:
        raise out.error(f"{text[:40]} is out of range", number, "time")
    return value


def _integer(text: str, name: str, number: int, out: RankFile) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise out.error(f"{text[:40]!r} is not a whole number", number, name)
    value = int(text)
    if name in _SIZES and not 0 <= value < 1 << 40:
        raise out.error(f"{value} is not a number of elements", number, name)
    return value


def _integers(text: str, name: str, number: int, out: RankFile) -> tuple[int, ...]:
    values = tuple(_integer(x, name, number, out) for x in text.split(",")) if text else ()
    if name.endswith("counts") and any(not 0 <= x < 1 << 40 for x in values):
        raise out.error("a count is not a number of elements", number, name)
    return values


def _datatype(text: str, name: str, number: int, out: RankFile) -> Datatype:
    parts = text.split(",")
    if len(parts) != 3:
        raise out.error(f"{text[:40]!r} is not a datatype: number, size, extent", number, name)
    kind, size, _ = (_integer(x, name, number, out) for x in parts)
    if not 0 <= size < 1 << 20:
        raise out.error(f"{size} is not the size of a datatype", number, name)
    return Datatype(kind, size)


def _comm(text: str, number: int, out: RankFile) -> Comm:
    parts = text.split(",")
    if len(parts) != 3:
        raise out.error(f"{text[:40]!r} is not a communicator: handle, rank, size", number, "comm")
    handle, rank, size = (_integer(x, "comm", number, out) for x in parts)
    if not 0 <= rank < size or size > 1 << 24:
        raise out.error(f"rank {rank} of {size}", number, "comm")
    return Comm(handle, rank, size)
