"""Import NCCL and RCCL debug logs (``NCCL_DEBUG=INFO``, subsystems INIT and COLL).

A log says which operations each process issued, in which order, and how large they are. It does not say when they ran: the times in
front of lines are those of the launcher or of the issue. Members come from the set-up lines: process and address of a communicator ->
its number -> all ranks that share it. Where they do not say it, operations stay unattributed, with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.importers._text import read_source
from commcanary_lab.importers.nccl_log_comms import Communicators, join
from commcanary_lab.importers.nccl_log_lines import LogReader
from commcanary_lab.importers.nccl_log_patterns import OPERATION, TABLE_HEAD, unquoted
from commcanary_lab.importers.nccl_log_rings import ring_orders
from commcanary_lab.importers.nccl_log_trace import assemble
from commcanary_lab.importers.rank_files import asked_rank
from commcanary_lab.layout import Layout
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.trace.model import Trace

__all__ = ["FORMAT", "NcclLog", "read", "read_log", "recognise"]

FORMAT = "nccl_log"

#: A line of NCCL's own; JSON around it is another format, and behind a word and a blank it is prose about such logs.
_LINE = re.compile(rb'^[^{"\n]{0,400}?\b(?<![a-z,;] )NCCL (?:INFO|WARN|TRACE|ERROR) ', re.MULTILINE)
_OPERATION = re.compile(rb'^[^{"\n]{0,400}?' + OPERATION, re.MULTILINE)


def recognise(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is such a log.

    Parameters
    ----------
    head : bytes
        The first 64 KiB or so.

    Examples
    --------
    >>> recognise(b"epoch 1\\nn1:10:11 [0] NCCL INFO Channel 00/02 : 0 1\\n"), recognise(b'{"log": "n1:10:11 [0] NCCL INFO x"}')
    (True, False)
    >>> recognise(b"rows torn by NCCL INFO TUNING lines"), recognise(b"[0] NCCL INFO Using eth0")
    (False, True)
    """
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    head = unquoted(head)
    # with operations beside an nccl-tests table the file is a log all the same
    if _OPERATION.search(head):
        return True
    return _LINE.search(head) is not None and TABLE_HEAD.search(head) is None


@dataclass(frozen=True)
class NcclLog:
    """What logs say, before operations become events.

    Parameters
    ----------
    lines : LogReader
        Operations as the lines have them.
    communicators : Communicators
        Who belongs together.
    files : tuple of str
        Names of the files.
    warnings : tuple of str
        What was wrong with the files themselves.
    """

    lines: LogReader
    communicators: Communicators
    files: tuple[str, ...]
    warnings: tuple[str, ...]


def read_log(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> NcclLog:
    """Read the lines of logs and join communicators.

    Parameters
    ----------
    paths : sequence of path-like
        The logs of one job; one may hold all ranks.
    ranks : mapping of str to int, optional
        Global rank of each file that holds one process, by its path as given or its file name.
    layout : Layout, optional
        The groups of the job, where the set-up lines alone do not say the global ranks.
    limits : Limits
        Resource limits.

    Raises
    ------
    FormatError
        If a file cannot be read.
    UsageError
        If a rank is given to a file of several processes.
    LimitError
        If a limit is exceeded.
    """
    if not paths:
        raise UsageError("no file to read", remedy="give at least one log")
    limits.check_files(len(paths), str(paths[0]))
    lines = LogReader()
    warnings: list[str] = []
    for path in paths:
        source = read_source(path, limits)
        warnings += source.warnings
        lines.read(source.data, Path(path).name)
        limits.check_events(len(lines.rows_line), str(path))
    lines.finish()
    given = _given(paths, ranks or {}, lines)
    return NcclLog(lines, join(lines.instances, lines.peers(), given, layout, limits), lines.names, tuple(warnings))


def read(
    paths: Sequence[str | os.PathLike[str]],
    *,
    ranks: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Trace:
    """Read the logs of a job.

    Parameters
    ----------
    paths : sequence of path-like
        One log with all ranks, or several.
    ranks : mapping of str to int, optional
        Global rank of each file that holds one process, by its path as given or its file name.
    layout : Layout, optional
        The groups of the job, where the set-up lines alone do not say the global ranks.
    limits : Limits
        Resource limits.

    Returns
    -------
    Trace
        Events without times, in an order that agrees with that of every rank. Operations whose members the logs do not say are
        unsized rows with their bytes. ``extra["ring_order"]`` holds the ring orders that the logs state, by group name.

    Raises
    ------
    FormatError
        If a file cannot be read, or no line of any file comes from NCCL.
    RefusedError
        If more than one assignment of communicators to the groups of a layout fits.
    UsageError
        If a rank is given to a file of several processes.
    LimitError
        If a limit is exceeded.
    """
    log = read_log(paths, ranks=ranks, layout=layout, limits=limits)
    if not log.lines.instances and not log.lines.torn and not log.lines.nccl_lines:
        raise FormatError(
            "; ".join(["no line of it is one of NCCL's or RCCL's", *(w.partition(": ")[2] for w in log.warnings[:1])]),
            file=str(paths[0]),
            remedy="record with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL",
        )
    return assemble(log.lines, log.communicators, ring_orders(log.lines.instances, log.communicators), log.files, log.warnings, FORMAT)


def _given(paths: Sequence[str | os.PathLike[str]], ranks: Mapping[str, int], lines: LogReader) -> dict[int, int]:
    """Rank of each file by its number, checked."""
    given: dict[int, int] = {}
    for number, path in enumerate(paths):
        rank = asked_rank(path, ranks)
        if rank is None:
            continue
        slots = {i.slot for i in lines.instances if i.file == number}
        if len(slots) > 1:
            raise UsageError(
                f"holds {len(slots)} processes or devices, not one rank",
                file=str(path),
                remedy="give no rank: the set-up lines of the log say which rank each of them is",
            )
        if rank in given.values():
            raise UsageError(f"rank {rank} is given to two files", file=str(path), remedy="give each file its own rank")
        given[number] = rank
    return given
