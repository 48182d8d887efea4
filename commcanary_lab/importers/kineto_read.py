"""Decode a profiler trace: only the fields that the import needs, times as their exact text; repaired where that is possible."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

import msgspec

from commcanary_lab.errors import FormatError, Problem
from commcanary_lab.importers._text import line_of, read_source
from commcanary_lab.importers.kineto_batches import decode_batches
from commcanary_lab.importers.kineto_kinds import ABSENT, Event, Needed
from commcanary_lab.importers.kineto_repair import close_cut_file, drop_comma, repair_json, to_utf8
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["Document", "Event", "read_document"]

_BYTE = re.compile(r"\(byte (\d+)\)")
_MAX_COMMAS = 8
_MAX_REPORTED = 5
#: Larger files are decoded in batches, and hold what the import needs only.
_LARGE_BYTES = 64 << 20
_BATCH_BYTES = 8 << 20


class _File(msgspec.Struct):
    traceEvents: list[Event] | None = None
    distributedInfo: msgspec.Raw = msgspec.Raw()
    baseTimeNanoseconds: msgspec.Raw = msgspec.Raw()


class _LooseFile(msgspec.Struct):
    traceEvents: msgspec.Raw = msgspec.Raw()
    distributedInfo: msgspec.Raw = msgspec.Raw()
    baseTimeNanoseconds: msgspec.Raw = msgspec.Raw()


_FILE = msgspec.json.Decoder(_File)
_LOOSE_FILE = msgspec.json.Decoder(_LooseFile)
_LIST = msgspec.json.Decoder(list[Event])
_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(Event)


@dataclass(frozen=True)
class Document:
    """A decoded trace file.

    Parameters
    ----------
    path : str
        The file, as the user named it.
    name : str
        Its last component, for notes and warnings.
    events : list of Event
        In file order; in a large file those that no import needs are `ABSENT`.
    distributed_info : dict
        The ``distributedInfo`` object; empty where the file has none.
    base_ns : int, optional
        ``baseTimeNanoseconds``.
    warnings : tuple of str
        What was repaired or left out.
    cut : bool
        True where the end of the event list is missing.
    """

    path: str
    name: str
    events: list[Event]
    distributed_info: dict[str, object]
    base_ns: int | None
    warnings: tuple[str, ...]
    cut: bool


def read_document(path: str | os.PathLike[str], *, salvage: bool = True, limits: Limits = DEFAULT) -> Document:
    """Read and decode a profiler trace.

    Parameters
    ----------
    path : path-like
        A Chrome trace as the PyTorch profiler writes it: an object with ``traceEvents``, or a bare list of events; gzip or not.
    salvage : bool
        Repair what `kineto_repair` names, with a warning; otherwise refuse it.
    limits : Limits
        Bound on the decompressed size.

    Raises
    ------
    FormatError
        If the file is not such a trace, or is damaged beyond the repairs; with the line.
    """
    source = read_source(path, limits)
    name = os.path.basename(str(path))
    warnings = [w.replace(str(path), name, 1) for w in source.warnings]
    if source.cut and not salvage:
        raise FormatError(Problem(source.warnings[0].removeprefix(f"{path}: "), file=str(path), remedy="copy the file again"))
    data, parsed, cut = _decode(source.data, str(path), name, salvage, warnings)
    _one_event_list(data, str(path))
    events = parsed.traceEvents
    if events is None:
        raise FormatError("there is no traceEvents", file=str(path), remedy="give a trace that the PyTorch profiler exported")
    return Document(
        str(path),
        name,
        events,
        _distributed_info(parsed.distributedInfo, name, warnings),
        _base(parsed.baseTimeNanoseconds, name, warnings),
        tuple(warnings),
        cut or source.cut,
    )


def _decode(data: bytes, path: str, name: str, salvage: bool, warnings: list[str]) -> tuple[bytes, _File, bool]:
    """Decode as it is, else after repair, else after closing a cut file."""
    text = to_utf8(data)
    if text.changes:
        if not salvage:
            raise FormatError(text.warnings(name)[0].removeprefix(f"{name}: "), file=path, remedy="allow repairs (salvage=True)")
        warnings += text.warnings(name)
        data = text.data
    try:
        return data, _parse(data, path, name, warnings), False
    except msgspec.DecodeError as e:
        if not salvage:
            raise _refused(e, data, path) from None
    repaired = repair_json(data)
    warnings += repaired.warnings(name)
    data = repaired.data
    for _ in range(_MAX_COMMAS):
        try:
            return data, _parse(data, path, name, warnings), False
        except msgspec.DecodeError as e:
            error = e
        position = _position(error)
        shorter = None if position is None else drop_comma(data, position)
        if shorter is None:
            break
        warnings.append(f"{name}: line {line_of(data, position or 0)}: comma before a closing bracket dropped")
        data = shorter
    if "truncated" in str(error):
        closed = close_cut_file(data, _decodes)
        if closed is not None:
            parsed = _parse(closed, path, name, warnings)
            count = len(parsed.traceEvents or ())
            warnings.append(
                f"{name}: line {line_of(data, len(data))}: the file ends early; the {count} complete events before are used, "
                "the rest is missing"
            )
            return closed, parsed, True
    raise _refused(error, data, path)


def _first_byte(data: bytes) -> bytes:
    """The first byte that is no white space (without copying the text)."""
    return data[:4096].lstrip()[:1] or data.lstrip()[:1]


def _decodes(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        (_LIST if _first_byte(data) == b"[" else _LOOSE_FILE).decode(data)
    except msgspec.ValidationError:
        return True
    except msgspec.DecodeError:
        return False
    return True


def _position(error: Exception) -> int | None:
    found = _BYTE.search(str(error))
    return None if found is None else int(found.group(1))


def _refused(error: Exception, data: bytes, path: str) -> FormatError:
    position = _position(error)
    what = _BYTE.sub("", str(error)).strip()
    line = line_of(data, len(data) if position is None else position)
    return FormatError(f"not readable as JSON: {what}", file=path, line=line, remedy="export the trace again, or mend that line")


def _parse(data: bytes, path: str, name: str, warnings: list[str]) -> _File:
    """Decode; events that are not what an event must be are left out with a warning."""
    try:
        is_list = _first_byte(data) == b"["
        if len(data) > _LARGE_BYTES and not is_list and (parsed := _parse_batches(data)) is not None:
            return parsed
        try:
            return _File(_LIST.decode(data)) if is_list else _FILE.decode(data)
        except msgspec.ValidationError as e:
            error = e
        if not is_list and _first_byte(data) != b"{":
            raise FormatError(
                "the file is JSON, but neither an object nor a list of events",
                file=path,
                line=1,
                remedy="give a trace that the PyTorch profiler exported",
            )
        loose = _LooseFile(msgspec.Raw(data)) if is_list else _LOOSE_FILE.decode(data)
        try:
            raws = _RAW_LIST.decode(loose.traceEvents)
        except msgspec.ValidationError:
            raise FormatError(
                f"traceEvents is not a list ({error})",
                file=path,
                line=line_of(data, data.find(b'"traceEvents"')),
                remedy="give a trace that the PyTorch profiler exported",
            ) from None
        return _File(_one_by_one(raws, name, warnings), loose.distributedInfo, loose.baseTimeNanoseconds)
    except RecursionError:
        raise FormatError("JSON nested too deeply", file=path, remedy="give a trace that the PyTorch profiler exported") from None


def _parse_batches(data: bytes) -> _File | None:
    """Decode a large file; None where it is not plain enough for that."""
    loose = _LOOSE_FILE.decode(data)
    text = memoryview(loose.traceEvents)
    if bytes(text[:1]) != b"[":
        return None
    events = decode_batches(text, _LIST, Needed(), ABSENT, _BATCH_BYTES)
    return None if events is None else _File(events, loose.distributedInfo, loose.baseTimeNanoseconds)


def _one_by_one(raws: list[msgspec.Raw], name: str, warnings: list[str]) -> list[Event]:
    events, bad = [], []
    for i, raw in enumerate(raws):
        try:
            events.append(_EVENT.decode(raw))
        except (msgspec.DecodeError, RecursionError) as e:
            events.append(Event())  # keeps the numbering of the others
            bad.append(f"{i} ({str(e).split(' - at')[0]})")
    if bad:
        shown = ", ".join(bad[:_MAX_REPORTED]) + (f" and {len(bad) - _MAX_REPORTED} more" if len(bad) > _MAX_REPORTED else "")
        warnings.append(f"{name}: entries of traceEvents that are not events are left out: {shown}")
    return events


def _one_event_list(data: bytes, path: str) -> None:
    """Refuse a file whose event list occurs twice: JSON readers would keep the last one and lose the other without a word."""
    if data.count(b'"traceEvents"') < 2:
        return

    def count(pairs: list[tuple[str, object]]) -> int:
        return sum(key == "traceEvents" and isinstance(value, list) for key, value in pairs)

    try:
        top = json.loads(data, object_pairs_hook=count)
    except (ValueError, RecursionError):
        return
    if isinstance(top, int) and top > 1:
        second = data.find(b'"traceEvents"', data.find(b'"traceEvents"') + 1)
        raise FormatError(
            f"traceEvents occurs {top} times", file=path, line=line_of(data, second), remedy="split the file, one event list each"
        )


def _distributed_info(raw: msgspec.Raw, name: str, warnings: list[str]) -> dict[str, object]:
    if not bytes(raw):
        return {}
    try:
        info = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        info = None
    if isinstance(info, str):  # some exporters write the object as a JSON string
        try:
            info = msgspec.json.decode(info)
        except (msgspec.DecodeError, RecursionError):
            info = None
    if not isinstance(info, dict):
        warnings.append(f"{name}: distributedInfo is not an object; it is not used")
        return {}
    return info


def _base(raw: msgspec.Raw, name: str, warnings: list[str]) -> int | None:
    text = bytes(raw).strip(b'" ')
    if not text or text == b"null":
        return None
    if not text.isdigit() or len(text) > 19 or int(text) >= 1 << 63:
        warnings.append(f"{name}: baseTimeNanoseconds is {text[:40].decode(errors='replace')}, not a time; it is not used")
        return None
    return int(text)
