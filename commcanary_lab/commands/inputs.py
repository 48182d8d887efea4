"""What commands read: paths, options that several verbs share, and artifacts recognised by content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commcanary_lab.commands.output import busy, warn
from commcanary_lab.errors import InputError, UsageError

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.simulate.backend import Backend
    from commcanary_lab.trace.model import Trace

__all__ = [
    "Assume",
    "BackendsFile",
    "Format",
    "Json",
    "Paths",
    "SaltFile",
    "load_artifact",
    "load_backends_file",
    "load_trace",
    "parse_offsets",
    "parse_range",
    "read_salt",
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")]
Paths = Annotated[list[Path], typer.Argument(help="A file, several files, or a directory with one file per rank.", show_default=False)]
Format = Annotated[str | None, typer.Option("--format", help="Format of the input; recognised by content by default.")]
SaltFile = Annotated[Path | None, typer.Option("--salt-file", help="The owner's salt for the commitments.")]
Assume = Annotated[str | None, typer.Option("--assume", metavar="F=V,...", help="Values for unknown fields, e.g. skew_us=0,overlap_us=0.")]
BackendsFile = Annotated[Path | None, typer.Option("--backends", help="TOML file with backends instead of the five defaults.")]


def load_trace(
    paths: list[Path],
    *,
    format: str | None = None,
    clock_offsets: str | None = None,
    align_ends: bool = False,
    round_ns: bool = False,
    check: bool = False,
    ranks: list[str] | None = None,
) -> Trace:
    """Open a trace and print its warnings."""
    from commcanary_lab.importers.open import open_trace

    with busy(f"reading {paths[0]}"):
        trace = open_trace(
            paths[0] if len(paths) == 1 else paths,
            format=format,
            clock_offsets_ns=parse_offsets(clock_offsets),
            align_ends=align_ends,
            round_ns=round_ns,
            check=check,
            ranks=_parse_ranks(ranks),
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
    from commcanary_lab.canary.document import FORMAT

    if not path.exists():
        raise InputError("does not exist", file=str(path), remedy="check the path")
    if path.is_file():
        with path.open("rb") as f:
            head = f.read(1 << 16)
            f.seek(max(0, path.stat().st_size - (1 << 16)))
            tail = f.read()
        if FORMAT.encode() in head or FORMAT.encode() in tail:
            from commcanary_lab.canary.read import read_canary

            with busy(f"reading {path}"):
                return read_canary(path)
    return load_trace([path])


def load_backends_file(path: Path | None) -> tuple[Backend, ...]:
    """Return the backends of a file, or the defaults."""
    from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, load_backends

    return DEFAULT_BACKENDS if path is None else load_backends(path)


def parse_offsets(text: str | None) -> dict[int, int] | None:
    """Parse ``0=0,1=-1250.5`` (rank = microseconds to add), or a file with one such pair per line."""
    if text is None:
        return None
    if Path(text).is_file():
        text = ",".join(Path(text).read_text(encoding="utf-8").split())
    out = {}
    for part in filter(None, text.split(",")):
        rank, _, offset = part.partition("=")
        try:
            out[int(rank)] = round(float(offset) * 1000)
        except ValueError:
            raise UsageError(f"{part!r} is not RANK=MICROSECONDS", remedy="write for example --clock-offsets 0=0,1=-12.5") from None
    return out


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
    try:
        salt = path.read_bytes()
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", file=str(path)) from None
    if len(salt) < 16:
        raise InputError(
            f"holds {len(salt)} bytes", file=str(path), remedy="use at least 16 random bytes, e.g. from `head -c 32 /dev/urandom`"
        )
    return salt
