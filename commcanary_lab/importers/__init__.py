"""Importers: one file per source format.

A format is a module with ``FORMAT`` (its name), ``recognise(head)`` (do the first bytes of the decompressed file look like it?) and
``read(paths, *, ..., limits)`` (make a `Trace`), and one line in `FORMATS`. Modules are imported when they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from commcanary_lab.errors import UsageError
from commcanary_lab.trace.model import Trace

__all__ = ["FORMATS", "Format", "format_named", "known_formats"]


#: Options of formats with one file per rank whose groups a layout may complete.
_RANKS_LAYOUT = frozenset({"ranks", "layout"})


@dataclass(frozen=True)
class Format:
    """A source format.

    Parameters
    ----------
    name : str
        The module's ``FORMAT``.
    module : str
        Module inside this package.
    about : str
        What it is, in a few words.
    aliases : tuple of str
        Other names that ``--format`` takes.
    per_rank : bool
        True where several files are the ranks of one job; False where one file holds a whole trace.
    options : frozenset of str
        Which options of `open_trace` the module's ``read`` takes, besides ``limits``.
    mark : bytes
        What the first bytes of every such file hold: without it the module need not be imported to be asked.
    """

    name: str
    module: str
    about: str
    aliases: tuple[str, ...] = ()
    per_rank: bool = True
    options: frozenset[str] = frozenset({"ranks", "clock_offsets_ns", "align_ends"})
    mark: bytes = b""

    def recognise(self, head: bytes) -> bool:
        """Return True where the first bytes of a (decompressed) file look like this format."""
        return self.mark in head and bool(self._load().recognise(head))

    def read(self, paths: Sequence[str | os.PathLike[str]], **options: Any) -> Trace:
        """Read files of this format; `options` must be among those that it takes."""
        trace: Trace = self._load().read(paths, **options)
        return trace

    def _load(self) -> Any:
        return import_module(f"{__name__}.{self.module}")


#: Every format, in the order in which they are asked whether they recognise a file.
FORMATS = (
    Format("commcanary_lab.trace.parquet.v1", "parquet", "Parquet trace", ("parquet",), per_rank=False, options=frozenset(), mark=b"PAR1"),
    Format(
        "commcanary.trace.v1",
        "v1",
        "JSON trace",
        ("json", "v1"),
        per_rank=False,
        options=frozenset({"check", "round_ns"}),
        mark=b"commcanary.trace.v1",
    ),
    Format(
        "commcanary_lab.shard.v1",
        "shards",
        "recorder shards",
        ("shard", "shards"),
        options=frozenset({"clock_offsets_ns", "align_ends"}),
        mark=b"commcanary_lab.shard.v1",
    ),
    Format(
        "nccl_inspector",
        "inspector",
        "NCCL or RCCL Inspector JSON lines",
        ("inspector", "rccl_inspector"),
        options=frozenset({"ranks", "clock_offsets_ns", "align_ends", "layout"}),
        mark=b'"n_ranks"',
    ),
    Format(
        "kineto",
        "kineto",
        "PyTorch profiler trace",
        ("pytorch", "chrome"),
        options=frozenset({"ranks", "clock_offsets_ns", "align_ends", "layout"}),
    ),
    Format("mpi_text", "mpi_text", "MPI trace of liballprof (PMPI)", ("mpi", "pmpi", "liballprof"), mark=b"MPI_"),
    Format("nccl_tests", "nccl_tests", "nccl-tests table, for calibration", ("nccl-tests",), options=frozenset(), mark=b"algbw"),
    Format("nccl_log", "nccl_log", "NCCL or RCCL debug log", ("nccl", "rccl", "rccl_log"), options=_RANKS_LAYOUT),
    Format(
        "pytorch_et",
        "pytorch_et",
        "PyTorch execution trace",
        ("et", "execution_trace"),
        options=_RANKS_LAYOUT,
        mark=b'"nodes"',
    ),
    Format("param_basic", "param_basic", "PARAM basic trace", ("param",), options=_RANKS_LAYOUT, mark=b'"comms"'),
    Format(
        "flight_recorder",
        "flight_recorder",
        "PyTorch flight recorder dump",
        ("fr",),
        options=_RANKS_LAYOUT,
        mark=b"version",
    ),
    Format(
        "nccl_inspector_prometheus", "inspector_prom", "NCCL Inspector Prometheus text", ("prometheus",), options=frozenset(), mark=b"nccl_"
    ),
    Format(
        "nsys_sqlite", "nsys_sqlite", "nsys report exported to SQLite", ("nsys",), options=frozenset({"layout"}), mark=b"SQLite format 3\0"
    ),
    Format("chakra_et", "chakra_et", "Chakra execution trace", ("chakra",), options=_RANKS_LAYOUT),
)


def known_formats() -> str:
    """Return the known formats in one line, for messages.

    Examples
    --------
    >>> "kineto (PyTorch profiler trace)" in known_formats()
    True
    """
    return ", ".join(f"{f.name} ({f.about})" for f in FORMATS)


def format_named(name: str) -> Format:
    """Return a format by its name or an alias.

    Raises
    ------
    UsageError
        If there is no such format.

    Examples
    --------
    >>> format_named("json").name
    'commcanary.trace.v1'
    """
    names = {n: f for f in FORMATS for n in (f.name, *f.aliases)}
    if name not in names:
        nearest = get_close_matches(name, names, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise UsageError(f"there is no format {name!r}", remedy=f"{hint}known: {known_formats()}")
    return names[name]
