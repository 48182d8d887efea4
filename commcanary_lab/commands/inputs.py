"""What commands read: paths, options that several verbs share, and artifacts recognised by content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.output import busy, warn
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.files import MAX_CONFIG_BYTES, open_regular, read_file

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.layout import Layout
    from commcanary_lab.simulate.backend import Backend
    from commcanary_lab.trace.model import Trace

__all__ = [
    "Assume",
    "BackendsFile",
    "Format",
    "Json",
    "LayoutFile",
    "Paths",
    "SaltFile",
    "check_output",
    "is_canary",
    "load_artifact",
    "load_backends_file",
    "load_events",
    "load_layout",
    "load_trace",
    "parse_offsets",
    "parse_range",
    "read_salt",
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")]
Paths = Annotated[list[Path], typer.Argument(help="A file, several files, or a directory with one file per rank.", show_default=False)]
Format = Annotated[str | None, typer.Option("--format", help="Format of the input; recognised by content by default.")]
LayoutFile = Annotated[
    Path | None, typer.Option("--layout", help="Layout file (TOML): which ranks form which communicator, GPUs per node.")
]
SaltFile = Annotated[Path | None, typer.Option("--salt-file", help="The owner's salt for the commitments.")]
Assume = Annotated[str | None, typer.Option("--assume", metavar="F=V,...", help="Values for unknown fields, e.g. skew_us=0,overlap_us=0.")]
BackendsFile = Annotated[Path | None, typer.Option("--backends", help="TOML file with backends instead of the five defaults.")]


#: Clock offsets: ranks as everywhere, and a hundred years.
_MAX_RANK, _MAX_OFFSET_NS = 1 << 31, 100 * 366 * 86_400 * 10**9


def load_trace(
    paths: list[Path],
    *,
    format: str | None = None,
    clock_offsets: str | None = None,
    align_ends: bool = False,
    round_ns: bool = False,
    check: bool = False,
    ranks: list[str] | None = None,
    layout: Path | None = None,
) -> Trace:
    """Open a trace and print its warnings."""
    from commcanary_lab.importers.open import open_trace

    if format is None and len(paths) == 1 and is_canary(paths[0]):
        raise InputError(
            "is a canary, not a trace",
            file=str(paths[0]),
            remedy="give the trace that it was compiled from; simulate and traffic take both",
        )
    with busy(f"reading {paths[0]}"):
        trace = open_trace(
            paths[0] if len(paths) == 1 else paths,
            format=format,
            clock_offsets_ns=parse_offsets(clock_offsets),
            align_ends=align_ends,
            round_ns=round_ns,
            check=check,
            ranks=_parse_ranks(ranks),
            layout=load_layout(layout),
        )
    warn(trace.warnings)
    return trace


def _parse_ranks(items: list[str] | None) -> dict[str, int] | None:
    if not items:
        return None
    out = {}
    for item in items:
        name, _, rank = item.rpartition("=")
        if not name or not rank.isdigit():
            raise UsageError(f"--rank {item!r} is not FILE=RANK", remedy="write for example --rank trace.json=0")
        out[name] = int(rank)
    return out


def load_artifact(path: Path) -> Canary | Trace:
    """Open a canary or a trace, recognised by content."""
    if not path.exists():
        raise InputError("does not exist", file=str(path), remedy="check the path")
    if is_canary(path):
        from commcanary_lab.canary.read import read_canary

        with busy(f"reading {path}"):
            return read_canary(path)
    return load_trace([path])


def load_layout(path: Path | None) -> Layout | None:
    """Read a layout file, if there is one."""
    if path is None:
        return None
    from commcanary_lab.layout import read_layout

    return read_layout(path)


def load_events(paths: list[Path], *, format: str | None = None, layout: Path | None = None, **options: Any) -> Trace:
    """Open a trace, or the program of a canary as one; notes say so where its times are approximate."""
    if format is not None or len(paths) != 1 or any(options.values()) or not is_canary(paths[0]):
        return load_trace(paths, format=format, layout=layout, **options)
    from dataclasses import replace

    from commcanary_lab.canary.document import FORMAT
    from commcanary_lab.canary.read import read_canary
    from commcanary_lab.trace.model import ImportCoverage

    with busy(f"reading {paths[0]}"):
        canary = read_canary(paths[0])
        trace = canary.trace
    note = "program of a canary: times are exact" if canary.timing == "lossless" else "program of a canary: times are approximate"
    count = trace.record_count
    return replace(trace, source_format=FORMAT, notes=(*trace.notes, note), coverage=ImportCoverage(count, count))


#: How a canary begins, however it is spaced (keys are sorted), and how its format is spelled wherever it stands.
_CANARY = (re.compile(rb'\s*\{\s*"(bounded|clock)"\s*:'), re.compile(rb'"format"\s*:\s*"commcanary_lab\.canary\.v'))


def is_canary(path: Path) -> bool:
    """Whether the first or last bytes of a file are those of a canary; the format itself may stand anywhere between them."""
    try:
        with open_regular(path) as f:
            head = f.read(1 << 16)
            f.seek(max(0, os.fstat(f.fileno()).st_size - (1 << 16)))
            tail = f.read()
    except InputError:  # a directory, or for the importers to say
        return False
    begins, names = _CANARY
    return bool(begins.match(head) or names.search(head) or names.search(tail))


def check_output(output: Path | None, *inputs: Path) -> None:
    """Refuse to write over what is read; a profile or a trace may be the only copy.

    Raises
    ------
    UsageError
        If `output` is one of the inputs.
    """
    for path in inputs:
        if output is not None and output.exists() and path.exists() and output.samefile(path):
            raise UsageError(f"{output} is the input", remedy="write to another file")


def load_backends_file(path: Path | None) -> tuple[Backend, ...]:
    """Return the backends of a file, or the defaults."""
    from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, load_backends

    return DEFAULT_BACKENDS if path is None else load_backends(path)


def parse_offsets(text: str | None) -> dict[int, int] | None:
    """Parse ``0=0,1=-1250.5`` (rank = microseconds to add), or a file with one such pair per line."""
    if text is None:
        return None
    if "=" not in text or _exists(text):
        return _offsets_file(text)
    return _offsets(filter(None, text.split(",")))


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a path
        return False


def _offsets_file(file: str) -> dict[int, int]:
    remedy = "write one RANK=MICROSECONDS per line"
    try:
        text = read_file(file, remedy=remedy, max_bytes=MAX_CONFIG_BYTES).removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as e:
        raise InputError(f"not UTF-8 text (byte {e.start})", file=file, remedy=remedy) from None
    out: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            more = _offsets(part for part in line.replace(",", " ").split())
        except UsageError as e:
            raise InputError(e.problems[0].what, file=file, line=number, remedy=remedy) from None
        if twice := sorted(out.keys() & more.keys()):
            raise InputError(f"rank {twice[0]} has two offsets", file=file, line=number, remedy="keep one of them")
        out |= more
    if not out:
        raise InputError("says no offset", file=file, remedy=remedy)
    return out


def _offsets(parts: Iterable[str]) -> dict[int, int]:
    out: dict[int, int] = {}
    for part in parts:
        rank, _, offset = part.partition("=")
        try:
            number, added = int(rank), round(float(offset) * 1000)
        except (OverflowError, ValueError):
            raise UsageError(f"{_short(part)} is not RANK=MICROSECONDS", remedy="write for example --clock-offsets 0=0,1=-12.5") from None
        if not 0 <= number < _MAX_RANK or abs(added) > _MAX_OFFSET_NS:
            raise UsageError(f"{_short(part)} is no rank and offset", remedy="give a rank >= 0 and an offset of less than 100 years")
        if number in out:
            raise UsageError(f"rank {number} has two offsets", remedy="keep one of them")
        out[number] = added
    return out


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def parse_range(text: str | None, option: str) -> tuple[int, int] | None:
    """Parse ``LO:HI``."""
    if text is None:
        return None
    low, _, high = text.partition(":")
    try:
        return int(low), int(high)
    except ValueError:
        raise UsageError(f"{option} {text!r} is not LO:HI", remedy=f"write for example {option} 0:1000") from None


def read_salt(path: Path | None) -> bytes:
    """Read the salt; an empty file is refused."""
    if path is None:
        return b""
    salt = read_file(path, max_bytes=MAX_CONFIG_BYTES)
    if len(salt) < 16:
        raise InputError(
            f"holds {len(salt)} bytes", file=str(path), remedy="use at least 16 random bytes, e.g. from `head -c 32 /dev/urandom`"
        )
    return salt
