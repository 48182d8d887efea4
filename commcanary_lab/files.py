"""Open and read regular files: named pipes cannot hang a reader, devices cannot feed it for ever, and sizes are limited."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any

from commcanary_lab.errors import InputError, LimitError
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["MAX_CONFIG_BYTES", "open_regular", "parse_toml", "read_file", "read_toml"]

#: Largest configuration file (TOML, clock offsets, salt); the largest sensible one is a layout that lists a million ranks.
MAX_CONFIG_BYTES = 16 << 20

#: No configuration nests deeper. The parser takes quadratic time for longer dotted keys, so they are looked for before it runs.
_MAX_DEPTH = 32
_LONG_KEY = re.compile(
    rb"""(?:^|[{,])[ \t]*+\[*+[ \t]*+(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % _MAX_DEPTH, re.MULTILINE
)
_BOM = b"\xef\xbb\xbf"

_CHECK = "check the path and its permissions"
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def open_regular(path: str | os.PathLike[str], *, remedy: str = _CHECK) -> Iterator[BufferedReader]:
    """Open a regular file for reading, and nothing else; opening never waits.

    Parameters
    ----------
    path : path-like
        The file; links are followed.
    remedy : str
        What to do where it cannot be read.

    Raises
    ------
    InputError
        If there is no such file, it may not be read, or it is a directory, a pipe, a socket or a device.

    Examples
    --------
    >>> with open_regular("/dev/null") as f:
    ...     f.read()
    Traceback (most recent call last):
    commcanary_lab.errors.InputError: /dev/null: is a device, not a file; write its content to a file
    """
    file = os.fspath(path)
    try:
        # a pipe without a writer would keep open() waiting
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    except OSError as e:
        if _is_directory(file):
            raise InputError("is a directory, not a file", file=file, remedy="name a file in it") from None
        raise InputError(f"cannot be read: {e.strerror or e}", file=file, remedy=remedy) from None
    except ValueError as e:
        raise InputError(f"is no path: {e}", file=file.replace("\0", "\\0"), remedy=remedy) from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        what = next((words for test, words in _KINDS if test(mode)), "something else")
        instead = "name a file in it" if stat.S_ISDIR(mode) else "write its content to a file"
        raise InputError(f"is {what}, not a file", file=file, remedy=instead)
    with os.fdopen(handle, "rb") as f:
        yield f


def _is_directory(path: str) -> bool:
    """Whether a path is a directory; False where that cannot be told."""
    try:
        return os.path.isdir(path)
    except ValueError:
        return False


def read_file(path: str | os.PathLike[str], *, remedy: str = _CHECK, limits: Limits = DEFAULT, max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path : path-like
        The file.
    remedy : str
        What to do where it cannot be read.
    limits : Limits
        ``max_file_bytes`` bounds its size.
    max_bytes : int, optional
        A smaller bound, for files that are never large.

    Raises
    ------
    InputError
        As `open_regular`.
    LimitError
        If the file is larger than the limit; nothing of it is read.

    Examples
    --------
    >>> import tempfile
    >>> read_file(tempfile.gettempdir())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    commcanary_lab.errors.InputError: ...: is a directory, not a file; name a file in it
    """
    with open_regular(path, remedy=remedy) as f:
        size = os.fstat(f.fileno()).st_size
        limits.check_bytes(size, os.fspath(path))
        if max_bytes is not None and size > max_bytes:
            raise LimitError(f"{size} bytes exceed the limit of {max_bytes} for this kind of file", file=os.fspath(path), remedy=remedy)
        try:
            return f.read()
        except OSError as e:
            raise InputError(f"cannot be read: {e.strerror or e}", file=os.fspath(path), remedy=remedy) from None


def read_toml(path: str | os.PathLike[str], remedy: str) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    path : path-like
        The file, at most 16 MiB.
    remedy : str
        What to write or give instead.

    Raises
    ------
    InputError
        If the file cannot be read or is not TOML; the message has the line where the parser says it.
    LimitError
        If it is larger than any configuration.
    """
    return parse_toml(read_file(path, max_bytes=MAX_CONFIG_BYTES), os.fspath(path), remedy)


def parse_toml(data: bytes, file: str | None, remedy: str) -> dict[str, Any]:
    """Parse the bytes of a TOML file; a byte order mark is skipped. Raises like `read_toml`.

    Examples
    --------
    >>> parse_toml(b"tp = 4", "layout.toml", "write sizes")
    {'tp': 4}
    >>> parse_toml(b"a = " + b"[" * 9999, "layout.toml", "write sizes")
    Traceback (most recent call last):
    commcanary_lab.errors.InputError: layout.toml: not TOML: nested too deeply; write sizes
    """
    try:
        text = data.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise InputError(f"not UTF-8 text (byte {e.start})", file=file, line=line, remedy="save the file as UTF-8") from None
    if (found := _LONG_KEY.search(data)) is not None:
        line = data.count(b"\n", 0, found.start()) + 1
        raise InputError(f"a key of more than {_MAX_DEPTH} parts", file=file, line=line, remedy=remedy)
    try:
        document = tomllib.loads(text)
    except ValueError as e:  # TOMLDecodeError, and integers of thousands of digits
        raise InputError(f"not TOML: {e}", file=file, remedy=remedy) from None
    except RecursionError:
        raise InputError("not TOML: nested too deeply", file=file, remedy=remedy) from None
    if _too_deep(document):
        raise InputError(f"nested deeper than {_MAX_DEPTH} levels", file=file, remedy=remedy)
    return document


def _too_deep(document: object) -> bool:
    level = [document]
    for _ in range(_MAX_DEPTH):
        inside = [list(x.values()) if isinstance(x, dict) else x for x in level if isinstance(x, (dict, list))]
        level = [y for values in inside for y in values if isinstance(y, (dict, list))]
        if not level:
            return False
    return True
