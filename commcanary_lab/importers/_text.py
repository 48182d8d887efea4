"""Read a source file: gzip by its magic bytes, bounded while decompressing, cut or damaged streams reported."""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from dataclasses import dataclass

from commcanary_lab.errors import FormatError, LimitError
from commcanary_lab.files import open_regular, read_file
from commcanary_lab.limits import DEFAULT, Limits

__all__ = ["HEAD_BYTES", "PACKERS", "LineIndex", "SourceBytes", "line_of", "peek", "read_source", "refuse_archive"]

#: How much of the decompressed file the recognisers look at.
HEAD_BYTES = 64 << 10

_CHUNK = 1 << 24
#: How much comes out of the decompressor at a time, and the expansion that is refused: by how much, beyond how many bytes.
_PIECE = 1 << 25
_MAX_RATIO, _FREE_BYTES = 300, 1 << 28
_GZIP = b"\x1f\x8b"
#: Packers whose files are refused by name, by their first bytes.
PACKERS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"\x04\x22\x4d\x18": "lz4"}


@dataclass(frozen=True)
class SourceBytes:
    """The decompressed content of a file.

    Parameters
    ----------
    data : bytes
        The content.
    warnings : tuple of str
        What was wrong with the compressed stream, each naming the file.
    cut : bool
        True where the stream ended early or is damaged, so that the end of the content is missing.
    """

    data: bytes
    warnings: tuple[str, ...] = ()
    cut: bool = False


def read_source(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> SourceBytes:
    """Read a file, decompressing it if it is gzip (by its first bytes, whatever its name).

    Parameters
    ----------
    path : path-like
        The file.
    limits : Limits
        ``max_file_bytes`` bounds both the file and what it decompresses to.

    Raises
    ------
    InputError
        If the file cannot be read.
    FormatError
        If it is empty, or packed by something other than gzip.
    LimitError
        If it is, or decompresses to, more than the limit, or expands like a bomb.

    Examples
    --------
    >>> import gzip, tempfile
    >>> with tempfile.NamedTemporaryFile() as f:
    ...     _ = f.write(gzip.compress(b"[]")); f.flush()
    ...     read_source(f.name)
    SourceBytes(data=b'[]', warnings=(), cut=False)
    """
    name = str(path)
    raw = read_file(path, limits=limits)
    if not raw:
        raise FormatError("the file is empty", file=name, remedy="record it again, or leave it out")
    for magic, packer in PACKERS.items():
        if raw.startswith(magic):
            raise FormatError(f"the file is packed with {packer}", file=name, remedy="unpack it first; plain files and gzip are read")
    source = _gunzip(raw, name, limits) if raw.startswith(_GZIP) else SourceBytes(raw)
    if not source.data:
        raise FormatError("the file is empty inside its gzip", file=name, remedy="record it again, or leave it out")
    refuse_archive(source.data, name)
    return source


def refuse_archive(head: bytes, file: str) -> None:
    """Refuse a tar archive by its first bytes: its members are the sources, and they have names that matter.

    Raises
    ------
    FormatError
        If it is one.
    """
    if head[257:262] == b"ustar":
        raise FormatError("the file is a tar archive", file=file, remedy="extract it first, and give the files or their directory")


def _gunzip(raw: bytes, name: str, limits: Limits) -> SourceBytes:
    """Decompress all members of a gzip file; keep what came out before the first damage."""
    parts: list[bytes] = []
    at = total = 0
    problem = None
    while at < len(raw) and problem is None:
        if not raw.startswith(_GZIP, at):  # padding after the last member is legal, other bytes are not part of the content
            if raw[at:].strip(b"\0"):
                problem = f"{len(raw) - at} bytes after the end of the gzip data are ignored"
            break
        unpack = zlib.decompressobj(31)
        step = _CHUNK
        while not unpack.eof and at < len(raw):
            before = unpack.copy()
            try:
                part = unpack.decompress(memoryview(raw)[at : at + step], _PIECE)
            except zlib.error as e:
                unpack = before
                if step == 1:
                    problem = f"the gzip data is damaged ({str(e).rsplit(': ', 1)[-1]})"
                    break
                step = max(1, step >> 6)  # come as close to the damage as possible
                continue
            parts.append(part)
            total += len(part)
            at += min(step, len(raw) - at) - len(unpack.unused_data if unpack.eof else unpack.unconsumed_tail)
            _check_expansion(total, at, name, limits)
        while problem is None and not unpack.eof and len(parts[-1]) == _PIECE:  # what was taken in and has not come out yet
            parts.append(unpack.decompress(b"", _PIECE))
            total += len(parts[-1])
            _check_expansion(total, at, name, limits)
        if problem is None and not unpack.eof:
            problem = "the gzip data ends early"
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if problem is None:
        return SourceBytes(data)
    cut = not problem.endswith("ignored")
    if cut and not data:
        raise FormatError(problem, file=name, remedy="copy the file again")
    return SourceBytes(data, (f"{name}: {problem}" + (f"; read {len(data)} decompressed bytes up to there" if cut else ""),), cut)


def _check_expansion(total: int, consumed: int, name: str, limits: Limits) -> None:
    """Refuse what expands beyond the limit, or like nothing that was ever recorded: logs and traces shrink to a tenth or a fiftieth."""
    limits.check_bytes(total, name)
    if total > _FREE_BYTES and total > _MAX_RATIO * consumed:
        raise LimitError(
            f"the gzip data expands to more than {_MAX_RATIO} times its size ({total} bytes so far)",
            file=name,
            remedy="a file that is nothing but repetition is no trace; if it is one, unpack it first",
        )


def peek(path: str | os.PathLike[str], size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of the decompressed file; fewer where the file is short or damaged.

    Parameters
    ----------
    path : path-like
        The file.
    size : int
        How many bytes at most.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    with open_regular(path) as f:
        raw = f.read(max(size, HEAD_BYTES))
    if not raw.startswith(_GZIP):
        return raw[:size]
    try:
        return zlib.decompressobj(31).decompress(raw, size)
    except zlib.error:
        return b""


def line_of(data: bytes, position: int) -> int:
    """Return the one-based line of a byte position.

    Examples
    --------
    >>> line_of(b"a\\nb\\nc", 2)
    2
    """
    return data.count(b"\n", 0, max(position, 0)) + 1


class LineIndex:
    """Answers many line questions about one text.

    Examples
    --------
    >>> LineIndex(b"a\\nb\\nc")(4)
    3
    """

    def __init__(self, data: bytes) -> None:
        self._ends: list[int] = []
        at = data.find(b"\n")
        while at >= 0:
            self._ends.append(at)
            at = data.find(b"\n", at + 1)

    def __call__(self, position: int) -> int:
        return bisect_right(self._ends, position - 1) + 1
