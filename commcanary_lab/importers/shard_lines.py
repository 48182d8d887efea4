"""The lines of a shard and their decoding (``commcanary_lab.shard.v1``), one file at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec

from commcanary_lab.errors import FormatError, LimitError
from commcanary_lab.files import read_file
from commcanary_lab.limits import Limits

__all__ = ["FORMAT", "End", "Group", "Header", "Op", "Pending", "Shard", "load", "recognise"]

FORMAT = "commcanary_lab.shard.v1"


#: Sizes, times and numbers of which sums stay within 64 bits.
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class Header(msgspec.Struct, tag_field="kind", tag="header"):
    """First line."""

    format: str
    rank: _Int
    world_size: _Int
    host: str
    boot_id: str
    clock: str
    pid: _Int
    started_unix_ns: _Int
    started_clock_ns: _Int
    versions: dict[str, str]
    overhead_ns: _Int
    notes: list[str] = []


class Group(msgspec.Struct, tag_field="kind", tag="group"):
    """A process group; global ranks in the group's own order."""

    id: _Int
    name: str
    ranks: list[_Rank]
    torch_name: str
    backend: str


class Op(msgspec.Struct, tag_field="kind", tag="op", gc=False):
    """An operation that finished or failed."""

    n: _Int
    group: _Int
    op: str
    arrival_ns: _Int
    seq: _Int | None = None
    size_bytes: _Size | None = None
    dtype: str | None = None
    reduction: str | None = None
    phase: str | None = None
    root: _Rank | None = None
    sender: _Rank | None = None
    receiver: _Rank | None = None
    tag: _Int | None = None
    sent_splits: list[_Size] | None = None
    received_splits: list[_Size] | None = None
    is_async: bool | None = None
    device: str | None = None
    issued_ns: _Int | None = None
    wait_ns: _Int | None = None
    finish_ns: _Int | None = None
    error: str | None = None


class Pending(msgspec.Struct, tag_field="kind", tag="pending", gc=False):
    """An operation that had arrived and not finished when it was written."""

    n: _Int
    group: _Int
    op: str
    arrival_ns: _Int
    seq: _Int | None = None
    size_bytes: _Size | None = None
    dtype: str | None = None
    phase: str | None = None
    sender: _Rank | None = None
    receiver: _Rank | None = None
    tag: _Int | None = None
    device: str | None = None


class End(msgspec.Struct, tag_field="kind", tag="end"):
    """Last line of a closed shard."""

    operations: _Int
    unfinished: _Int
    stopped_clock_ns: _Int
    overhead_ns: _Int | None
    outside: dict[str, _Int]
    problems: dict[str, _Int]


Line: TypeAlias = Header | Group | Op | Pending | End

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


@dataclass(frozen=True)
class Shard:
    """A decoded file: operations in the order they were issued, pending ones only where no finished line replaced them."""

    file: str
    header: Header
    groups: dict[int, Group]
    ops: list[Op | Pending]
    end: End | None
    warnings: tuple[str, ...]


def recognise(head: bytes) -> bool:
    """Return True if a file that begins with `head` is a shard.

    Examples
    --------
    >>> recognise(b'{"kind":"header","format":"commcanary_lab.shard.v1","rank":0,'), recognise(b'{"traceEvents":[')
    (True, False)
    """
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"commcanary_lab.shard.v1"' in line


def load(path: str | os.PathLike[str], limits: Limits) -> Shard:
    """Decode one file.

    Raises
    ------
    FormatError
        If it is not a shard or a line is malformed; names file and line.
    LimitError
        If a limit is exceeded.
    """
    file = str(path)
    data = read_file(path, limits=limits).removeprefix(b"\xef\xbb\xbf")
    lines = data.split(b"\n")
    torn = lines.pop().strip()  # what follows the last newline: nothing, or a line cut short
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    header = _header(lines[0] if lines else torn, file, complete=bool(lines))
    if header.world_size > limits.max_ranks:
        what = f"a world of {header.world_size} ranks exceeds the limit of {limits.max_ranks}"
        raise LimitError(what, file=file, line=1, field="world_size", remedy="raise it with COMMCANARY_LAB_MAX_RANKS")
    body = _Body(header, file)
    for number, text in enumerate(lines[1:], 2):
        body.add(_decode(text, file, number), number)
    limits.check_events(len(body.done) + len(body.pending), file)
    limits.check_groups(len(body.groups), file)
    warnings = []
    if torn:
        warnings.append(f"{os.path.basename(file)}: the last line is cut short and was left out")
    if body.end is None:
        warnings.append(
            f"{os.path.basename(file)}: rank {header.rank} did not close its shard: "
            "the process ended early, its last operations may be missing"
        )
    return Shard(file, header, body.groups, body.operations(), body.end, tuple(warnings))


class _Body:
    """The lines after the header, checked against each other."""

    def __init__(self, header: Header, file: str) -> None:
        self.header = header
        self.file = file
        self.groups: dict[int, Group] = {}
        self.done: dict[int, Op] = {}
        self.pending: dict[int, Pending] = {}
        self.end: End | None = None

    def add(self, line: Line, number: int) -> None:
        """Take one decoded line."""
        if isinstance(line, Op):
            if line.n in self.done:
                raise FormatError(
                    f"operation {line.n} occurs twice", file=self.file, line=number, remedy="the shard was edited or joined; record again"
                )
            self.done[line.n] = line
        elif isinstance(line, Pending):
            self.pending[line.n] = line
        elif isinstance(line, Group):
            self.groups[line.id] = _checked(line, self.header, self.file, number)
        elif isinstance(line, End):
            if line.operations != len(self.done):
                raise FormatError(
                    f"the last line counts {line.operations} operations, the file holds {len(self.done)}",
                    file=self.file,
                    line=number,
                    remedy="lines were lost or added; record again",
                )
            self.end = line
        else:
            raise FormatError("a second header", file=self.file, line=number, remedy="one file holds one shard; split it")

    def operations(self) -> list[Op | Pending]:
        """Return operations in the order they were issued."""
        left: list[Op | Pending] = [p for n, p in self.pending.items() if n not in self.done]
        ops = sorted([*self.done.values(), *left], key=lambda row: row.n)
        for row in ops:
            if row.group not in self.groups:
                raise FormatError(
                    f"operation {row.n} names group {row.group}, which no line describes",
                    file=self.file,
                    remedy="the shard is incomplete; record again",
                )
        return ops


def _header(text: bytes, file: str, complete: bool) -> Header:
    if not recognise(text):
        raise FormatError(f"the first line is not a header of {FORMAT}", file=file, line=1, remedy="name a file that the recorder wrote")
    if not complete:
        raise FormatError(
            "the header is cut short: the process was killed while it started", file=file, line=1, remedy="leave this file out"
        )
    line = _decode(text, file, 1)
    if not isinstance(line, Header) or line.format != FORMAT:
        raise FormatError(f"the first line is not a header of {FORMAT}", file=file, line=1, remedy="name a file that the recorder wrote")
    if not 0 <= line.rank < line.world_size:
        raise FormatError(f"rank {line.rank} of {line.world_size}", file=file, line=1, field="rank", remedy="record again")
    return line


def _decode(text: bytes, file: str, number: int) -> Line:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:  # a ValidationError is one
        raise FormatError(f"malformed line: {e}", file=file, line=number, remedy="remove the line or record again") from None


def _checked(group: Group, header: Header, file: str, number: int) -> Group:
    if len(set(group.ranks)) != len(group.ranks) or header.rank not in group.ranks:
        raise FormatError(
            f"group {group.name} has ranks {group.ranks}",
            file=file,
            line=number,
            field="ranks",
            remedy="ranks must be distinct and include the shard's own",
        )
    if not all(0 <= r < header.world_size for r in group.ranks):
        raise FormatError(
            f"group {group.name} has a rank outside the world of {header.world_size}",
            file=file,
            line=number,
            field="ranks",
            remedy="record again",
        )
    return group
