"""Read the tables of nccl-tests: for calibration. A benchmark is no trace of a job, so opening one as a trace is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from commcanary_lab.errors import FormatError, RefusedError
from commcanary_lab.importers._text import read_source
from commcanary_lab.importers.nccl_log_patterns import OPERATION, TABLE_HEAD
from commcanary_lab.importers.nccl_tests_rows import Measurement, NcclTestsTable, Row, corrected, rank_interval
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.model import Trace

__all__ = ["FORMAT", "read", "read_table", "recognise"]

FORMAT = "nccl_tests"

_TAG = re.compile(r"^(?:> ?)?(?:\[\d+(?:,\d+)?\](?:<std\w+>:)? ?|<std\w+>:)?")
_HEAD = re.compile(r"^#? *size +count\b.* time +algbw +busbw")
_START = re.compile(rb"^.{0,40}?# (?:nccl-tests version \d|Collective test starting: \w+|nThread \d+ nGpus \d+ minBytes )", re.MULTILINE)
_IDENTIFIER = b'"nccl-tests structured output"'
_OPERATION = re.compile(OPERATION)
_WORD = re.compile(r"\S+")
_TEST = re.compile(r"Collective test starting: (\w+?)(?:_perf)?\b")
_RANK = re.compile(r"^# +Rank +(\d{1,7}) .*\bdevice\b")
_VERSION = re.compile(r"# nccl-tests version (\S+)")
_VERDICT = re.compile(r"Out of bounds values *: *(\d+) *(OK|FAILED)?")
_NAMES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv", "hypercube", "scatter", "gather", "reduce")
_HALF = ("time", "algbw", "busbw", "wrong")
_FRONT = {"size", "count", "type", "redop", "root"}
_MAX_BYTES = 1 << 62
_SHOWN = 20


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is such a table; a log with operations beside a table is a log.

    Examples
    --------
    >>> recognise(b"#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\\n"), recognise(b"size count")
    (True, False)
    """
    if head.lstrip().startswith(b"{"):
        return _IDENTIFIER in head
    return (TABLE_HEAD.search(head) or _START.search(head)) is not None and _OPERATION.search(head) is None


def read(paths: Sequence[str | os.PathLike[str]], *, limits: Limits = DEFAULT) -> Trace:
    """Refuse: a table holds times of one collective in a loop, not what a job did.

    Raises
    ------
    RefusedError
        Always; a table that is damaged raises its FormatError instead.
    """
    for path in paths:
        read_table(path, limits=limits)
    raise RefusedError(
        "an nccl-tests table is a benchmark of one collective, not a trace of a job: it says nothing about who sends what to whom",
        file=str(paths[0]),
        remedy="use it to calibrate a cost model (importers.nccl_tests.read_table)",
    )


def read_table(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> NcclTestsTable:
    """Read a table.

    Parameters
    ----------
    path : path-like
        Output of a test, also behind launcher tags or between NCCL's own lines; or its structured output (JSON).
    limits : Limits
        Resource limits.

    Returns
    -------
    NcclTestsTable
        Rows that are complete; torn ones are warnings.

    Raises
    ------
    FormatError
        If there is no table, or a field of a complete row is no number; names the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix="all_gather.txt") as f:
    ...     _ = f.write("#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error\\n"
    ...                 "  33554432  1048576  float  1000.0  29.36  29.36  0e+00  1000.0  29.36  29.36  N/A\\n")
    ...     f.flush()
    ...     table = read_table(f.name)
    >>> table.op, table.ranks, round(table.rows[0].out_of_place.algbw_gb_s, 2), table.rows[0].in_place.wrong
    ('all_gather', 8, 33.55, None)
    """
    source = read_source(path, limits)
    parsed = _Parsed(str(path))
    data = source.data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip().startswith(b"{"):
        _structured(data, parsed)
    else:
        _text(data.decode("utf-8", "replace"), parsed)
    limits.check_events(len(parsed.rows), str(path))
    return _table(parsed, source.warnings)


@dataclass
class _Parsed:
    file: str
    rows: list[Row] = field(default_factory=list)
    op: str | None = None
    version: str | None = None
    listed: set[int] = field(default_factory=set)
    failed: bool = False
    torn: list[int] = field(default_factory=list)
    heads: int = 0

    def error(self, what: str, line: int, name: str | None = None) -> FormatError:
        return FormatError(what, file=self.file, line=line or None, field=name, remedy="run the test again, or remove the line")


def _table(parsed: _Parsed, warnings: Sequence[str]) -> NcclTestsTable:
    notes: list[str] = []
    op = parsed.op
    if op is None:
        op = next((name for name in _NAMES if name in Path(parsed.file).name.replace("all_to_all", "alltoall")), None)
        if op is not None:
            notes.append(f"the operation, {op}, is taken from the name of the file")
    rows, changed = corrected(parsed.rows)
    if changed:
        notes.append(f"{changed} rows of an old version, which printed the bus bandwidth as algbw: algbw is size / time here")
    ranks = max(parsed.listed) + 1 if parsed.listed else None
    if ranks is None:
        ranks = _inferred(rows, op, notes)
    failed = parsed.failed or any(m.wrong for row in rows for m in row.halves)
    more = [f"{parsed.file}: the test FAILED: wrong results"] if failed else []
    torn = ", ".join(map(str, parsed.torn[:_SHOWN])) + (", ..." if len(parsed.torn) > _SHOWN else "")
    if parsed.torn:
        more.append(f"{parsed.file}: {len(parsed.torn)} rows are torn and were left out (line{'s' if len(parsed.torn) > 1 else ''} {torn})")
    return NcclTestsTable(
        op, rows, ranks, bool(parsed.listed), parsed.version, failed, parsed.file, tuple(notes), (*warnings, *more)
    )  # fmt: skip


def _inferred(rows: Sequence[Row], op: str | None, notes: list[str]) -> int | None:
    """Number of ranks from the bandwidths: the only one that fits, else the only power of two, else none."""
    bounds = rank_interval(rows, op)
    if bounds is None:
        return None
    low, high = bounds
    if low == high:
        notes.append(f"{low} ranks, inferred from busbw / algbw")
        return low
    powers = [1 << i for i in range(21) if low <= 1 << i <= high]
    if len(powers) == 1:
        notes.append(f"{powers[0]} ranks, inferred from busbw / algbw, which allows {low} to {high}: the only power of two")
        return powers[0]
    notes.append(f"busbw / algbw allows {low} to {high} ranks: their number is unknown")
    return None


# -- text -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """Columns of a table: names, and where each ends; which half is which."""

    names: tuple[str, ...]
    ends: tuple[int, ...]
    in_place_first: bool

    @property
    def front(self) -> int:
        """Columns before the halves."""
        return self.names.index("time")


def _text(text: str, parsed: _Parsed) -> None:
    layout, in_place_first = None, False
    for number, raw in enumerate(text.splitlines(), 1):
        line = _TAG.sub("", raw, count=1)
        if "in-place" in line and "out-of-place" in line:
            in_place_first = line.index("in-place") < line.index("out-of-place")
        elif _HEAD.match(line.strip()):
            layout = _layout(line, in_place_first, parsed, number)
        elif _is_row(line):
            if layout is None:
                parsed.torn.append(number)
            else:
                _row(line, layout, parsed, number)
        else:
            _remark(line, parsed)
    if not parsed.heads and not parsed.torn and not parsed.listed and parsed.version is None and parsed.op is None:
        raise FormatError(
            "no nccl-tests table in it", file=parsed.file, remedy="give the output of a test, with the line that names the columns"
        )


def _is_row(line: str) -> bool:
    words = line.split(None, 2)
    return len(words) > 1 and all(w.lstrip("-").isdigit() for w in words[:2])


def _remark(line: str, parsed: _Parsed) -> None:
    if (m := _TEST.search(line)) is not None:
        parsed.op = m.group(1)
    if (m := _VERSION.search(line)) is not None:
        parsed.version = m.group(1)
    if (m := _RANK.match(line)) is not None:
        parsed.listed.add(int(m.group(1)))
    if (m := _VERDICT.search(line)) is not None:
        parsed.failed |= int(m.group(1)) > 0 or m.group(2) == "FAILED"


def _layout(line: str, in_place_first: bool, parsed: _Parsed, number: int) -> _Layout:
    found = [(m.group().lower(), m.end()) for m in _WORD.finditer(line.replace("#wrong", " wrong").replace("#", " "))]
    names = tuple("wrong" if name == "error" else name for name, _ in found)
    front = names[: names.index("time")]
    halves = names[len(front) :]
    if halves not in (_HALF, _HALF * 2, _HALF[:3], _HALF[:3] * 2) or front[:2] != ("size", "count") or not set(front) <= _FRONT or len(
        set(front)
    ) < len(front):  # fmt: skip
        raise parsed.error(f"unknown columns: {' '.join(names)[:200]}", number)
    parsed.heads += 1
    return _Layout(names, tuple(end for _, end in found), in_place_first)


def _row(line: str, layout: _Layout, parsed: _Parsed, number: int) -> None:
    found = [(m.group(), m.end()) for m in _WORD.finditer(line)]
    words = [w for w, _ in found]
    width = (len(layout.names) - layout.front) // (2 if layout.names.count("time") == 2 else 1)
    halves: list[list[str] | None]
    if len(words) == len(layout.names):
        rest = words[layout.front :]
        halves = [rest[:width], rest[width:] or None]
    elif len(words) == layout.front + width:  # one half is blank: the columns say which
        second = found[layout.front][1] > (layout.ends[layout.front] + layout.ends[layout.front + width]) / 2
        halves = [None, words[layout.front :]] if second else [words[layout.front :], None]
    else:
        parsed.torn.append(number)
        return
    front = dict(zip(layout.names, words[: layout.front], strict=False))
    parts = [None if half is None else _measurement(half, parsed, number) for half in halves]
    if layout.in_place_first:
        parts.reverse()
    root = _integer(front["root"], "root", parsed, number, least=-1) if "root" in front else -1
    parsed.rows.append(
        Row(
            size_bytes=_integer(front["size"], "size", parsed, number),
            count=_integer(front["count"], "count", parsed, number),
            dtype=front.get("type"),
            redop=None if front.get("redop") in (None, "none") else front["redop"],
            root=None if root < 0 else root,
            out_of_place=parts[0],
            in_place=parts[1],
            line=number,
        )
    )


def _measurement(words: Sequence[str | float | None], parsed: _Parsed, number: int) -> Measurement:
    values = [_value(w, name, parsed, number) for w, name in zip(words, _HALF, strict=False)]
    return Measurement(values[0], values[1], values[2], values[3] if len(values) > 3 else None)


def _value(word: str | float | None, name: str, parsed: _Parsed, number: int) -> float | None:
    """A number, or None where the table has none."""
    if word is None or (isinstance(word, str) and word.lower().lstrip("-+") in ("n/a", "nan", "inf", "infinity")):
        return None
    try:
        value = float(word)
    except (TypeError, ValueError):
        raise parsed.error(f"{str(word)[:40]!r} is not a number", number, name) from None
    if isinstance(word, bool) or value < 0 or value != value or value == float("inf"):
        raise parsed.error(f"{str(word)[:40]} is not a number >= 0", number, name)
    return value


def _integer(word: str | int | None, name: str, parsed: _Parsed, number: int, least: int = 0) -> int:
    text = str(word)
    digits = text.removeprefix("-")
    if isinstance(word, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or not least <= int(text) < _MAX_BYTES:
        raise parsed.error(f"{text[:40]!r} is not a whole number >= {least}", number, name)
    return int(text)


# -- structured output ------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    """One size of the structured output; ``N/A`` and numbers as text occur."""

    count: int | str
    type: str | None = None
    redop: str | None = None
    root: int | str | None = None
    oop_time: float | str | None = None
    oop_algbw: float | str | None = None
    oop_busbw: float | str | None = None
    oop_error: float | str | None = None
    ip_time: float | str | None = None
    ip_algbw: float | str | None = None
    ip_busbw: float | str | None = None
    ip_error: float | str | None = None


class _Structured(msgspec.Struct):
    identifier: str
    benchmark: list[dict[str, _Entry]]
    version: str | None = None


def _structured(data: bytes, parsed: _Parsed) -> None:
    try:
        document = msgspec.json.decode(data, type=_Structured)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise FormatError(f"not a structured nccl-tests output: {e}", file=parsed.file, remedy="run the test again") from None
    if document.identifier != _IDENTIFIER.decode().strip('"'):
        raise FormatError(f"its identifier is {document.identifier[:60]!r}", file=parsed.file, remedy="give the output of nccl-tests")
    for sizes in document.benchmark:
        for size, entry in sizes.items():
            root = -1 if entry.root is None else _integer(entry.root, "root", parsed, 0, least=-1)
            out = _measurement((entry.oop_time, entry.oop_algbw, entry.oop_busbw, entry.oop_error), parsed, 0)
            own = _measurement((entry.ip_time, entry.ip_algbw, entry.ip_busbw, entry.ip_error), parsed, 0)
            parsed.rows.append(
                Row(_integer(size, "size", parsed, 0), _integer(entry.count, "count", parsed, 0), entry.type,
                    None if entry.redop == "none" else entry.redop, None if root < 0 else root,
                    out if out.time_us is not None else None, own if own.time_us is not None else None)
            )  # fmt: skip
    parsed.heads += 1
