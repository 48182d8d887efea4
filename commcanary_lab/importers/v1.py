"""Open a trace in the interchange JSON ``commcanary.trace.v1``, plain or gzip."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from commcanary_lab.errors import FormatError
from commcanary_lab.files import open_regular
from commcanary_lab.importers._text import HEAD_BYTES, read_source
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.check_v1 import check_document
from commcanary_lab.trace.json_v1 import read_json_bytes
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.schema_v1 import FORMAT

__all__ = ["FORMAT", "read", "recognise", "stated_format"]

_STATED = re.compile(rb'"format"\s*:\s*"' + re.escape(FORMAT).encode() + rb'"')


def recognise(head: bytes) -> bool:
    """Tell by the format that a part of the file states; keys may come in any order, so that its end can say it too.

    Examples
    --------
    >>> recognise(b'{"format": "commcanary.trace.v1", "events": ['), recognise(b'],"format":"commcanary.trace.v1"}')
    (True, True)
    """
    return _STATED.search(head) is not None


class _Stated(msgspec.Struct):
    format: object = None


def stated_format(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> str | None:
    """Return the ``format`` that a JSON object states at its top level, wherever it stands; None where it states none.

    Looks at the last bytes first, where canonical files have it, and decodes the whole file otherwise.

    Raises
    ------
    FormatError
        If the file is not a JSON object; with the line.
    """
    if _STATED.search(_tail(path)):
        return FORMAT
    source = read_source(path, limits)
    data = source.data.removeprefix(b"\xef\xbb\xbf")
    try:
        stated = msgspec.json.decode(data, type=_Stated).format
    except (msgspec.DecodeError, RecursionError) as e:
        if recognise(data):
            return FORMAT  # reading it will say what is wrong, and where
        # loads it once more to name the line; a document that only msgspec refuses keeps msgspec's message
        check_document(data, str(path))
        raise FormatError(f"not JSON: {e}", file=str(path), remedy="repair or re-export the file") from None
    return stated if isinstance(stated, str) else None


def _tail(path: str | os.PathLike[str]) -> bytes:
    with open_regular(path) as f:
        f.seek(max(0, os.fstat(f.fileno()).st_size - HEAD_BYTES))
        return f.read()


def read(paths: Sequence[str | os.PathLike[str]], *, check: bool = False, round_ns: bool = False, limits: Limits = DEFAULT) -> Trace:
    """Read one JSON trace; see `trace.json_v1.read_json`.

    Raises
    ------
    FormatError
        If the gzip data are cut or damaged: a part of a trace is not a trace.
    """
    (path,) = paths
    source = read_source(path, limits)
    if source.cut:
        what = source.warnings[0].removeprefix(f"{path}: ").partition(";")[0]
        raise FormatError(what, file=str(path), remedy="copy or export the file again")
    trace = read_json_bytes(source.data, file=str(path), check=check, round_ns=round_ns, limits=limits)
    return replace(trace, warnings=(*trace.warnings, *source.warnings)) if source.warnings else trace
