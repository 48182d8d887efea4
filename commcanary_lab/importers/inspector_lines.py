"""Lines of an Inspector file, decoded batch by batch and handed on; no more than one batch of objects exists at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from commcanary_lab.errors import FormatError, Problem
from commcanary_lab.importers._text import read_source
from commcanary_lab.importers.inspector_schema import Line
from commcanary_lab.limits import Limits

__all__ = ["Batch", "LineFile", "recognise"]

#: Bytes per batch: its objects stay in the cache.
_BATCH = 1 << 18
#: How much of a file shows whether its records end with their lines.
_HEAD = 1 << 20
_MAX_PROBLEMS = 20
_HEADER = re.compile(rb'"header"\s*:\s*\{')
_PAYLOAD = re.compile(rb'"(?:coll_perf|p2p_perf|dump_stats)"\s*:\s*\{')
#: What C prints for numbers that JSON has no words for.
_BARE = re.compile(rb"(?<=[:\s,\[])-?(?:nan|inf(?:inity)?)(?=[\s,}\]])", re.IGNORECASE)
#: What a file system leaves at the end of a file whose writer was killed.
_PADDING = b"\0 \t\r\n"
_BOM = b"\xef\xbb\xbf"

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is Inspector output: by its keys, never by a version.

    Examples
    --------
    >>> recognise(b'{"header": {"rank": 0, "n_ranks": 2}, "coll_perf": {"coll": "AllReduce"}}'), recognise(b'{"traceEvents": []}')
    (True, False)
    """
    begin = head.removeprefix(_BOM).lstrip()[:1]
    return begin in (b"{", b"[") and b'"n_ranks"' in head and bool(_HEADER.search(head)) and bool(_PAYLOAD.search(head))


@dataclass(frozen=True)
class Batch:
    """Some records of a file, and the line that each begins in."""

    rows: Sequence[Line]
    lines: Sequence[int]


@dataclass
class LineFile:
    """Reads one file.

    Parameters
    ----------
    path : path-like
        Plain or gzip.
    warnings : list of str
        What was wrong and could be passed over; complete when the batches have been read.
    torn : int
        Records that were cut short.
    """

    path: str | os.PathLike[str]
    warnings: list[str] = field(default_factory=list)
    torn: int = 0
    repaired: int = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.path).name

    def batches(self, limits: Limits) -> Iterator[Batch]:
        """Yield the records in the order of the file.

        Raises
        ------
        FormatError
            If a line is no record; names the line. A last line that is cut short is left out with a warning.
        """
        source = read_source(self.path, limits)
        self.warnings += source.warnings
        data = source.data.removeprefix(_BOM)
        if _is_document(data):
            yield from self._documents(data)
        else:
            yield from self._lines(data)
        if self.repaired:
            self.warnings.append(f"{self.name}: numbers written as bare nan or inf in {self.repaired} lines are taken as unknown")

    def error(self, line: int, what: str, key: str | None = None) -> FormatError:
        """Return an error about a line."""
        return FormatError(self._problem(line, what, key))

    def _problem(self, line: int, what: str, key: str | None = None) -> Problem:
        return Problem(what, file=str(self.path), line=line, field=key, remedy="remove the line, or record again")

    def _lines(self, data: bytes) -> Iterator[Batch]:
        at, number, view = 0, 1, memoryview(data)
        while at < len(data):
            end = data.find(b"\n", at + _BATCH) + 1 or len(data)
            count = data.count(b"\n", at, end) + (data[end - 1 : end] != b"\n")
            try:
                rows = _decoder.decode_lines(view[at:end])
                batch = Batch(rows, range(number, number + count)) if len(rows) == count else None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                batch = None
            yield batch or self._one_by_one(data[at:end], number, last=end == len(data))
            at, number = end, number + count

    def _one_by_one(self, text: bytes, number: int, last: bool) -> Batch:
        """Decode the lines of a batch in which something is wrong, or blank."""
        rows: list[Line] = []
        lines: list[int] = []
        problems: list[Problem] = []
        texts = text.rstrip(_PADDING).split(b"\n") if last else text.removesuffix(b"\n").split(b"\n")
        for i, line in enumerate(texts):
            if not line.strip():
                continue
            try:
                rows.append(self._decode(line))
                lines.append(number + i)
            except msgspec.ValidationError as e:
                problems.append(self._problem(number + i, *_explained(e)))
            except msgspec.DecodeError as e:
                if last and i == len(texts) - 1 and "truncated" in str(e):
                    self.torn += 1
                    self.warnings.append(f"{self.name}: line {number + i}: the last record is cut short and was left out")
                else:
                    problems.append(self._problem(number + i, f"not a line of JSON ({_first_lower(str(e))})"))
            except (UnicodeDecodeError, RecursionError) as e:
                what = "nested too deep" if isinstance(e, RecursionError) else "not UTF-8 text"
                problems.append(self._problem(number + i, f"not a line of JSON ({what})"))
            if len(problems) > _MAX_PROBLEMS:
                break
        if problems:
            raise FormatError(problems)
        return Batch(rows, lines)

    def _decode(self, line: bytes) -> Line:
        try:
            return _decoder.decode(line)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            text, count = _BARE.subn(b'"nan"', line)
            if not count:
                raise
            row = _decoder.decode(text)
            self.repaired += 1
            return row

    def _documents(self, data: bytes) -> Iterator[Batch]:
        """Records that stand over several lines, one after the other or in a list."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.error(data.count(b"\n", 0, e.start) + 1, "not UTF-8 text") from None
        decode, at, number = json.JSONDecoder().raw_decode, 0, 1
        found: list[tuple[object, int]] = []
        while at < len(text) and (begin := re.compile(r"[\s,]*").match(text, at)):
            number, at = number + text.count("\n", at, begin.end()), begin.end()
            if at == len(text):
                break
            try:
                value, end = decode(text, at)
            except (ValueError, RecursionError) as e:  # ValueError: also a number of thousands of digits
                if not (isinstance(e, json.JSONDecodeError) and found and _runs_out(text, e)):
                    line = e.lineno if isinstance(e, json.JSONDecodeError) else number
                    what = "nested too deep" if isinstance(e, RecursionError) else e.msg if isinstance(e, json.JSONDecodeError) else str(e)
                    raise self.error(line, f"not JSON ({what})") from None
                self.torn += 1
                self.warnings.append(f"{self.name}: line {number}: the last record is cut short and was left out")
                break
            found += [(item, number) for item in (value if isinstance(value, list) else [value])]
            number, at = number + text.count("\n", at, end), end
        rows = [self._converted(item, line) for item, line in found]
        yield Batch(rows, [line for _, line in found])

    def _converted(self, item: object, line: int) -> Line:
        try:
            return msgspec.convert(item, Line)
        except msgspec.ValidationError as e:
            raise FormatError(self._problem(line, *_explained(e))) from None
        except RecursionError:
            raise FormatError(self._problem(line, "nested too deep")) from None


def _is_document(data: bytes) -> bool:
    """Whether the first record does not end with its line."""
    head = data[:_HEAD].lstrip()
    if head.startswith(b"["):
        return True
    first, newline, rest = head.partition(b"\n")
    if not newline or not rest.strip():
        return False
    try:
        msgspec.json.decode(_BARE.sub(b'"nan"', first))
    except msgspec.DecodeError as e:
        return "truncated" in str(e) and not rest.lstrip().startswith(b'{"header"')
    except (UnicodeDecodeError, RecursionError):
        return False
    return False


def _runs_out(text: str, error: json.JSONDecodeError) -> bool:
    return error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated string")


def _explained(error: msgspec.ValidationError) -> tuple[str, str | None]:
    """The message and the key that it is about."""
    what, _, where = str(error).partition(" - at `$.")
    return _first_lower(what.replace("`", "")), where.rstrip("`") or None


def _first_lower(text: str) -> str:
    return text[:1].lower() + text[1:]
