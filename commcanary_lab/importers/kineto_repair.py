"""One repair pass over JSON that profilers write wrongly; every change is reported with its line.

What is repaired, and nothing else:

- a byte order mark is dropped; UTF-16 is transcoded;
- bytes that are not UTF-8 become U+FFFD;
- bare ``NaN``, ``inf``, ``-nan(ind)``, ``1.#INF`` become ``null``;
- inside strings: control characters and raw newlines are escaped, a backslash that starts no escape is doubled, half a
  surrogate pair becomes U+FFFD;
- a comma before a closing bracket is dropped;
- a file that ends inside the event list is closed after its last complete event (`close_cut_file`).
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from commcanary_lab.importers._text import LineIndex

__all__ = ["Repair", "close_cut_file", "drop_comma", "repair_json", "to_utf8"]

#: How many lines one warning lists before it only counts the rest.
_LISTED = 5
_UTF8_STEP = 1 << 24

_ESCAPE = (
    rb'\\(?:["\\/bfnrt]|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
_PLAIN = rb'[^"\\\x00-\x1f]++'
# possessive: each byte is looked at once, whatever the input
_GOOD = re.compile(rb'(?:[ \t\r\n\d{}\[\]:,.eE+\-]++|"(?:' + _PLAIN + rb"|" + _ESCAPE + rb')*+"|true|false|null)*+')
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRING_PART = re.compile(rb"(" + _PLAIN + rb"|" + _ESCAPE + rb")|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(\\)|([\x00-\x1f])")
_NOT_A_NUMBER = re.compile(rb"(?:nan(?:\([a-z]*\))?|inf(?:inity)?|#(?:inf|ind|qnan|snan))(?![\w#])", re.IGNORECASE)
_SIGN = re.compile(rb"[-+0-9.]*\Z")
_COMMA = re.compile(rb",[ \t\r\n]*\Z")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass
class Repair:
    """A repaired text and what was changed, as kind -> lines of the original."""

    data: bytes
    changes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def warnings(self, name: str) -> list[str]:
        """One line per kind of change, with the file and the lines."""
        out = []
        for kind, lines in self.changes.items():
            distinct = list(dict.fromkeys(lines))
            shown = ", ".join(map(str, distinct[:_LISTED]))
            more = f" and {len(distinct) - _LISTED} more" if len(distinct) > _LISTED else ""
            out.append(f"{name}: line{'s' if len(distinct) > 1 else ''} {shown}{more}: {kind} ({len(lines)} repaired)")
        return out


def to_utf8(data: bytes) -> Repair:
    """Drop a byte order mark and replace what is not UTF-8.

    Examples
    --------
    >>> r = to_utf8(b'{"a": "\\xff"}')
    >>> r.data.decode(), r.warnings("t.json")
    ('{"a": "\ufffd"}', ['t.json: line 1: bytes that are not UTF-8 replaced by U+FFFD (1 repaired)'])
    """
    fixed = Repair(data)
    for mark, encoding in ((codecs.BOM_UTF8, None), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if data.startswith(mark):
            fixed.changes["byte order mark dropped" if encoding is None else "UTF-16 transcoded"].append(1)
            data = data[len(mark) :] if encoding is None else data.decode(encoding, "replace").encode()
    fixed.data = data
    if data.isascii() or _is_utf8(data):
        return fixed
    lines = LineIndex(data)
    bad: list[int] = []

    def replace(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        bad.append(error.start)
        return "\ufffd", error.end

    codecs.register_error("commcanary_lab.report", replace)
    fixed.data = data.decode("utf-8", "commcanary_lab.report").encode()
    fixed.changes["bytes that are not UTF-8 replaced by U+FFFD"] = [lines(p) for p in bad]
    return fixed


def _is_utf8(data: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), _UTF8_STEP):
            decoder.decode(data[at : at + _UTF8_STEP])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def repair_json(data: bytes) -> Repair:
    """Repair what the module names, in one pass over the text; what it cannot repair stays as it is.

    Parameters
    ----------
    data : bytes
        UTF-8 text.

    Examples
    --------
    >>> r = repair_json(b'{"bw": inf,\\n "file": "torch\\\\_utils.py"}')
    >>> r.data.decode()
    '{"bw": null,\\n "file": "torch\\\\\\\\_utils.py"}'
    >>> [w.split(": ", 1)[1] for w in r.warnings("t.json")]
    ['line 1: bare inf read as null (1 repaired)', 'line 2: backslashes that start no escape doubled (1 repaired)']
    """
    fixed = Repair(data)
    out: list[bytes] = []
    lines: LineIndex | None = None
    done = at = 0
    while True:
        match = _GOOD.match(data, at)
        assert match is not None
        at = match.end()
        if at >= len(data):
            break
        lines = lines or LineIndex(data)
        end, start, text = _one_repair(data, done, at, fixed, lines)
        if end is None:
            break
        out += (data[done:start], text)
        done = at = end
    if out:
        out.append(data[done:])
        fixed.data = b"".join(out)
    return fixed


def _one_repair(data: bytes, done: int, at: int, fixed: Repair, lines: LineIndex) -> tuple[int | None, int, bytes]:
    """Repair what stops the scan at `at`: (end of the bad part or None, its start, its replacement)."""
    if data[at : at + 1] == b'"':
        string = _STRING.match(data, at)
        if string is None:
            return None, at, b""
        return string.end(), at, _repaired_string(string.group(), at, fixed, lines)
    word = _NOT_A_NUMBER.match(data, at)
    if word is None:
        return None, at, b""
    before = _SIGN.search(data, max(done, at - 16), at)
    start = before.start() if before else at
    fixed.changes[f"bare {data[start : word.end()].decode()} read as null"].append(lines(at))
    return word.end(), start, b"null"


def _repaired_string(text: bytes, offset: int, fixed: Repair, lines: LineIndex) -> bytes:
    parts = [b'"']
    at, end = 1, len(text) - 1
    while at < end:
        m = _STRING_PART.match(text, at, end)
        if m is None:  # a lone quote cannot occur here; keep the byte and let the decoder judge
            parts.append(text[at : at + 1])
            at += 1
            continue
        good, surrogate, backslash, control = m.groups()
        if good is not None:
            parts.append(good)
        elif surrogate is not None:
            parts.append(b"\\ufffd")
            fixed.changes["half a surrogate pair replaced by U+FFFD"].append(lines(offset + at))
        elif backslash is not None:
            parts.append(b"\\\\")
            fixed.changes["backslashes that start no escape doubled"].append(lines(offset + at))
        else:
            parts.append(b"\\u%04x" % control[0])
            kind = "raw newline in a string escaped" if control in b"\r\n" else "control character in a string escaped"
            fixed.changes[kind].append(lines(offset + at))
        at = m.end()
    parts.append(b'"')
    return b"".join(parts)


def drop_comma(data: bytes, position: int) -> bytes | None:
    """Return the text without a comma that stands before the closing bracket at `position`, or None."""
    if data[position : position + 1] not in (b"]", b"}"):
        return None
    comma = _COMMA.search(data, max(0, position - 4096), position)
    return None if comma is None else data[: comma.start()] + data[comma.start() + 1 :]


def close_cut_file(data: bytes, accept: Callable[[bytes], bool], attempts: int = 12) -> bytes | None:
    """Close a text that ends inside its event list after the last complete event.

    Parameters
    ----------
    data : bytes
        The text; a bare list of events, or an object with ``traceEvents``.
    accept : callable
        Tells whether a candidate decodes.
    attempts : int
        How many closing braces to try from the end.

    Returns
    -------
    bytes or None
        The closed text, or None where the text does not end inside an event list.

    Examples
    --------
    >>> close_cut_file(b'{"traceEvents": [{"ph": "X"}, {"ph"', lambda text: text.endswith(b"}]}"))
    b'{"traceEvents": [{"ph": "X"}]}'
    """
    if data.lstrip()[:1] == b"[":
        start, tail = data.index(b"[") + 1, b"]"
    else:
        match = _EVENTS.search(data)
        if match is None:
            return None
        start, tail = match.end(), b"]}"
    end = len(data)
    for _ in range(attempts):
        end = data.rfind(b"}", start, end)
        if end < 0:
            break
        candidate = data[: end + 1] + tail
        if accept(candidate):
            return candidate
    candidate = data[:start] + tail
    return candidate if end < 0 and accept(candidate) else None
