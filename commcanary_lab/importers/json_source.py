"""Decode a JSON source of any origin, repaired where its writer is known to damage it."""

from __future__ import annotations

import os
import re
import reprlib
from typing import TypeVar

import msgspec

from commcanary_lab.errors import FormatError
from commcanary_lab.importers._text import line_of, read_source
from commcanary_lab.importers.kineto_repair import repair_json, to_utf8
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["decode_json", "read_json", "shown"]

_T = TypeVar("_T")
_BYTE = re.compile(r"\(byte (\d+)\)")


def read_json(path: str | os.PathLike[str], type: type[_T], *, what: str, limits: Limits = DEFAULT) -> tuple[_T, list[str]]:
    """Read a file and decode it.

    Parameters
    ----------
    path : path-like
        The file, gzip or not.
    type : type
        What msgspec decodes to; a struct takes the fields that it names.
    what : str
        What the file should be, for messages.
    limits : Limits
        Resource limits.

    Returns
    -------
    value : object of that type
    warnings : list of str
        What was repaired.

    Raises
    ------
    FormatError
        If the text is no JSON even after repair (with the line), or has another shape.
    """
    source = read_source(path, limits)
    name = os.path.basename(str(path))
    warnings = [w.replace(str(path), name, 1) for w in source.warnings]
    value, repairs = decode_json(source.data, type, file=str(path), what=what)
    return value, warnings + repairs


def decode_json(data: bytes, type: type[_T], *, file: str, what: str) -> tuple[_T, list[str]]:
    """Decode a text; see `read_json`.

    Examples
    --------
    >>> decode_json(b'{"a": NaN}', dict, file="x.json", what="a dump")
    ({'a': None}, ['x.json: line 1: bare NaN read as null (1 repaired)'])
    """
    try:
        return msgspec.json.decode(data, type=type), []
    except msgspec.ValidationError as e:
        raise _other_shape(e, file, what) from None
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    text = to_utf8(data)
    repaired = repair_json(text.data)
    name = os.path.basename(file)
    try:
        return msgspec.json.decode(repaired.data, type=type), text.warnings(name) + repaired.warnings(name)
    except msgspec.ValidationError as e:
        raise _other_shape(e, file, what) from None
    except RecursionError:
        raise FormatError("not readable as JSON: nested too deeply", file=file, remedy=f"give {what}") from None
    except (msgspec.DecodeError, ValueError) as e:
        found = _BYTE.search(str(e))
        line = line_of(repaired.data, len(repaired.data) if found is None else int(found.group(1)))
        problem = _BYTE.sub("", str(e)).strip()
        remedy = "write the file again, or mend that line"
        raise FormatError(f"not readable as JSON: {problem}", file=file, line=line, remedy=remedy) from None


def _other_shape(error: Exception, file: str, what: str) -> FormatError:
    return FormatError(f"not the content of {what}: {str(error)[:200]}", file=file, remedy=f"give {what}")


class _Short(reprlib.Repr):
    """Bounded in depth and length, whatever the value holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = self.maxlong = 60

    def repr_int(self, x: int, level: int) -> str:
        return str(x) if x.bit_length() < 256 else f"a number of {x.bit_length()} bits"


_SHORT = _Short()


def shown(value: object, length: int = 40) -> str:
    """Return a value for messages, shortened.

    Examples
    --------
    >>> len(shown("x" * 90)), shown([[[[]]]]), shown(1 << 300)
    (40, '[[[...]]]', 'a number of 301 bits')
    """
    text = _SHORT.repr(value)
    return text if len(text) <= length else text[: length - 3] + "..."
