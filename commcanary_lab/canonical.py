"""Canonical JSON, SHA-256 and atomic writes.

Canonical JSON is UTF-8 with keys in code-point order, the separators ``,`` and ``:``, ASCII escapes and no NaN, so
that one value has one byte sequence and therefore one SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from commcanary_lab.errors import FormatError, InputError
from commcanary_lab.files import read_file
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["atomic_file", "canonical_bytes", "loads_strict", "read_document", "sha256_hex", "write_atomic"]


def canonical_bytes(value: Any) -> bytes:
    """Encode a JSON value canonically; arrays of int64 are lists, written without making Python's numbers.

    Raises
    ------
    InputError
        If the value holds NaN, an infinity or an object that JSON cannot say.

    Examples
    --------
    >>> canonical_bytes({"b": 1, "a": [0.5, None]})
    b'{"a":[0.5,null],"b":1}'
    """
    arrays: list[Any] = []
    mark = ""

    def placed(item: Any) -> str:
        nonlocal mark
        if getattr(item, "dtype", None) != "int64" or item.ndim != 1:
            raise TypeError(f"{type(item).__name__} is no JSON value")
        mark = mark or secrets.token_hex(16)  # no text of the document holds it
        arrays.append(item)
        return mark

    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=placed).encode("ascii")
    except (TypeError, ValueError) as e:
        raise InputError(f"not representable as canonical JSON: {e}") from None
    if not arrays:
        return text
    from commcanary_lab.number_text import int_list

    between = text.split(f'"{mark}"'.encode("ascii"))
    parts = [between[0]]
    for array, following in zip(arrays, between[1:], strict=True):
        parts += [int_list(array), following]
    return b"".join(parts)


_BOM = b"\xef\xbb\xbf"
#: Numbers that may be beyond the largest float, and escapes that may be half of a character.
_EXPONENT, _DIGITS = re.compile(r"[eE]\+?[0-9]{3}"), re.compile(r"[0-9]{309}")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
#: Where to look for what was refused.
_CONSTANT = re.compile(r"(?:^|[:\[,])\s*(?:NaN|-?Infinity)")
_LONE = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")


def _line(pattern: re.Pattern[str], text: bytes | str) -> int | None:
    """The line of the first match."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    found = pattern.search(plain)
    return None if found is None else plain.count("\n", 0, found.end()) + 1


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]}{'...' * (len(text) > 20)} is too large")
    return value


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def loads_strict(text: bytes | str, file: str | None = None) -> Any:
    """Decode JSON, refusing duplicate keys, NaN and infinities.

    Raises
    ------
    InputError
        With file and line where the text is not JSON.

    Examples
    --------
    >>> loads_strict('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    commcanary_lab.errors.InputError: the key 'a' occurs twice in one object; keep one of the two
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            if key in out:
                raise InputError(f"the key {key!r} occurs twice in one object", file=file, remedy="keep one of the two")
            out[key] = value
        return out

    def constant(name: str) -> Any:
        line = _line(_CONSTANT, text)
        raise InputError(f"{name} is not a JSON number", file=file, line=line, remedy="write a finite number or leave the field out")

    try:
        # decoded here because json.loads would also guess UTF-16 and UTF-32
        decoded = text.removeprefix(_BOM).decode("utf-8") if isinstance(text, bytes) else text
        # Python makes an infinity of 1e999: where a number could be that large, each is looked at
        number = _finite if _EXPONENT.search(decoded) or _DIGITS.search(decoded) else None
        value = json.loads(decoded, object_pairs_hook=pairs, parse_constant=constant, parse_float=number)
        if _HALF.search(decoded):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except json.JSONDecodeError as e:
        raise InputError(f"not JSON: {e.msg}", file=file, line=e.lineno, remedy="repair or re-export the file") from None
    except UnicodeDecodeError as e:
        raise InputError(f"not UTF-8 text (byte {e.start})", file=file, remedy="save the file as UTF-8") from None
    except UnicodeEncodeError:
        what = "a text holds half of a character (a lone surrogate)"
        raise InputError(what, file=file, line=_line(_LONE, text), remedy="repair or re-export the file") from None
    except InputError:
        raise
    except ValueError as e:  # an integer with thousands of digits
        raise InputError(f"not readable as JSON: {e}", file=file, remedy="repair or re-export the file") from None
    except RecursionError:
        raise InputError("nested too deeply", file=file, remedy="no known format nests this deep") from None


def read_document(path: str | os.PathLike[str], remedy: str, *, limits: Limits = DEFAULT) -> dict[str, Any]:
    """Read a JSON object strictly: no duplicate keys, no NaN, nothing but an object.

    Parameters
    ----------
    path : path-like
        The file.
    remedy : str
        What to give instead, for the message where it is something else.
    limits : Limits
        Bounds the size of the file.

    Raises
    ------
    InputError
        If the file cannot be read or is no JSON.
    FormatError
        If it holds something else than an object.
    """
    document = loads_strict(read_file(path, limits=limits), str(path))
    if not isinstance(document, dict):
        raise FormatError("is not an object", file=str(path), remedy=remedy)
    return document


def write_atomic(path: str | os.PathLike[str], chunks: bytes | Iterable[bytes]) -> int:
    """Write a file so that readers see the old content or the new one, never a part.

    The bytes go to a temporary file in the same directory, which is synced and then renamed.

    Parameters
    ----------
    path : path-like
        Where the file ends up.
    chunks : bytes or iterable of bytes
        The content.

    Returns
    -------
    int
        The number of bytes written.

    Raises
    ------
    InputError
        If the directory cannot be written.
    """
    count = 0
    with atomic_file(path) as f:
        for chunk in (chunks,) if isinstance(chunks, bytes) else chunks:
            count += f.write(chunk)
    return count


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when everything is written and synced.

    Raises
    ------
    InputError
        If the directory cannot be written.
    """
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
        _sync_directory(target.parent)
    except OSError as e:
        _remove(temporary)
        raise InputError(f"cannot be written: {e.strerror}", file=str(target), remedy="choose a writable place with free space") from None
    except BaseException:
        _remove(temporary)
        raise


def _sync_directory(path: Path) -> None:
    """Make a new name survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: str) -> None:
    if path and os.path.exists(path):
        os.unlink(path)
