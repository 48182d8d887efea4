"""The forms that lines of NCCL and RCCL debug logs take."""

from __future__ import annotations

import re

from commcanary_lab.importers.nccl_log_ops import OP_NAMES
from commcanary_lab.importers.nccl_log_parts import Process

__all__ = [
    "CHAIN",
    "FIELD",
    "GLUED",
    "INDEX",
    "INIT",
    "KERNEL",
    "KNOWN_NAMES",
    "MARK",
    "NO_PROCESS",
    "OPERATION",
    "PLAIN",
    "PREFIX",
    "STAGE",
    "TABLE_HEAD",
    "WHOLE",
    "behind_launcher",
    "comm_of",
    "complete",
    "holder",
    "is_clock",
    "number_of",
    "text_of",
    "unquoted",
]

_HEX = rb"(?:0x[0-9a-fA-F]+|\(nil\))"
_CALL = rb"count (\d{1,20} datatype \d{1,9} op \d{1,9} root -?\d{1,9}) comm (0x[0-9a-fA-F]+ \[nranks=\d{1,9}\]) stream " + _HEX
_TASK = rb"(?: task \d+ globalrank (\d{1,9}))?"
#: An operation with nothing before its host:pid:tid, as NCCL writes it; most lines of a log.
PLAIN = re.compile(
    rb"([A-Za-z0-9][\w.-]*:\d{1,9}:\d{1,9} \[-?\d{1,5}\]) NCCL INFO (\w+): opCount ([0-9a-fA-F]{1,15}) "
    rb"sendbuff " + _HEX + rb" recvbuff " + _HEX + rb"(?: acc " + _HEX + rb")? " + _CALL + _TASK + rb"\s*\Z"
)  # fmt: skip
#: An operation anywhere in a line; newer versions may put further fields before the count.
_COLL = re.compile(
    rb"(\w+): opCount ([0-9a-fA-F]{1,15}) sendbuff " + _HEX + rb" recvbuff " + _HEX + rb"(?: \w+ [^\s:]+){0,3}? " + _CALL + _TASK
)  # fmt: skip
MARK = b": opCount "
#: The beginning of an operation, to search for.
OPERATION = rb"\w: opCount [0-9a-fA-F]+ sendbuff "
#: The head of a table of nccl-tests, which prints between the lines of a log.
TABLE_HEAD = re.compile(rb"^.{0,40}?#? *size +count\b[^\n]* time +algbw +busbw", re.MULTILINE)
KNOWN_NAMES = tuple(name.encode() for name in sorted(OP_NAMES, key=len, reverse=True))
PREFIX = re.compile(rb"(?<![\w.-])([A-Za-z0-9][\w.-]{0,254}):(\d{1,9}):(\d{1,9})(?: \[(-?\d{1,5})\])? NCCL [A-Z]+\b ?")
#: The same prefix behind the rest of another line, where no blank separates them.
GLUED = re.compile(rb"([A-Za-z][\w.-]{0,254}):(\d{1,9}):(\d{1,9})(?: \[(-?\d{1,5})\])? NCCL [A-Z]+\b ?")
NO_PROCESS = re.compile(rb"(?:\[(-?\d{1,5})\] )?NCCL [A-Z]+ ")
INDEX = re.compile(rb"\[\d+\] ")
INIT = re.compile(rb"comm (0x[0-9a-fA-F]+) rank (\d{1,9}) n[rR]anks (\d{1,9}) cudaDev (-?\d{1,5})\b")
STAGE = re.compile(rb"- ?(Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)")
FIELD = re.compile(rb"\b(parent|splitCount|childCount|color|key|commId|commHash) (-?\d{1,20}|0x[0-9a-fA-F]{1,32})(?=[\s-])")
CHAIN = re.compile(rb"Ring (\d{1,4}) : (\d{1,9}(?: -> \d{1,9}){1,})\s*\Z")
WHOLE = re.compile(rb"(?:Ring|Channel) (\d{1,4})(?:/\d{1,4})? :((?: +\d{1,9})+)\s*\Z")
KERNEL = re.compile(rb"## \[[\d.]+\] \[[\d:]+\] \w+ K[LE] ")
_CLOCK = re.compile(rb"(?:\d{4}-\d\d-\d\dT)?(\d{1,2})")
_ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


def unquoted(data: bytes) -> bytes:
    """Return a log as UTF-8 without colours.

    Examples
    --------
    >>> unquoted("\\ufeffa [0] NCCL INFO b".encode("utf-16-le")), unquoted(b"\\x1b[36m(pid=1)\\x1b[0m a")
    (b'a [0] NCCL INFO b', b'(pid=1) a')
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data[: len(data) & ~1].decode("utf-16", "replace").encode()
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data


def behind_launcher(line: bytes) -> int:
    """Where host:pid:tid begins in an operation that a launcher tagged; 0 where nothing stands before it, or the line looks torn.

    Examples
    --------
    >>> behind_launcher(b"[1,0]<stdout>:h1:7:8 [1] NCCL INFO AllReduce: opCount 0"), behind_launcher(b"2026-01-02 h:1:2 [0] NCCL INFO A")
    (14, 0)
    """
    end = line.find(b" NCCL INFO ")
    if end < 0 or line.find(MARK) < end:
        return 0
    start = line.rfind(b" ", 0, max(line.rfind(b" [", 0, end), 0)) + 1
    return max(start, line.rfind(b">:", start, end) + 2) if line.rfind(b">:", start, end) >= 0 else start


def complete(line: bytes) -> tuple[list[re.Match[bytes]], int]:
    """Complete operations of a line, and how many are cut."""
    found, cut = [], 0
    at = line.find(MARK)
    while at >= 0:
        start = at
        while start > 0 and (line[start - 1 : start].isalnum() or line[start - 1] == 95):
            start -= 1
        m = _COLL.match(line, start)
        if m is None:
            cut += start < at or b" sendbuff " in line[at : at + 40]
            at = line.find(MARK, at + 1)
        else:
            found.append(m)
            at = line.find(MARK, m.end())
    return found, cut


def holder(prefix: re.Match[bytes]) -> tuple[Process, int | None]:
    host, pid, _, device = prefix.groups()
    return Process(text_of(host), int(pid)), None if device is None else int(device)


def is_clock(host: bytes, pid: bytes, tid: bytes) -> bool:
    """A time of day in front of a line that lost its process looks like host:pid:tid."""
    return all((m := _CLOCK.fullmatch(x)) is not None and int(m.group(1)) < 60 for x in (host, pid, tid))


def comm_of(comm: bytes) -> tuple[str, int]:
    pointer, _, nranks = comm.partition(b" [nranks=")
    return text_of(pointer), int(nranks[:-1])


def number_of(text: str | None) -> int | None:
    return None if text is None else int(text, 16 if text.startswith("0x") else 10)


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
