"""The records of all Inspector files, and the communicators that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import MergeError, Problem
from commcanary_lab.importers.inspector_pack import COLUMNS, HeaderKey, Kind, Part, Process
from commcanary_lab.importers.inspector_schema import Dump
from commcanary_lab.importers.membership import Communicator
from commcanary_lab.trace.numbering import first_rows, number_rows

__all__ = ["Table", "communicators_of"]

#: Digits of an id from which the last one may be missing.
_CUT_ID = len("0x") + 15


@dataclass(frozen=True, eq=False)
class Table:
    """Records of a job.

    Parameters
    ----------
    parts : tuple of Part
        The files; their columns are empty, they are here.
    columns : dict of str to ndarray, shape (n,)
        As in `inspector_pack.COLUMNS`.
    file : ndarray of int32, shape (n,)
        Index into `parts`.
    headers, processes, kinds : tuple
        What the codes mean.
    dumps : tuple of (int, int, Dump)
        Counts of the plugin, with the codes of header and process.
    wires : tuple of (int, int, int)
        Header, peer, and bytes of proxy operations between them.
    """

    parts: tuple[Part, ...]
    columns: dict[str, npt.NDArray[Any]]
    file: npt.NDArray[np.int32]
    headers: tuple[HeaderKey, ...]
    processes: tuple[Process, ...]
    kinds: tuple[Kind, ...]
    dumps: tuple[tuple[int, int, Dump], ...]
    wires: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Table:
        """Put the records of files behind each other; takes their columns."""
        codes: dict[str, dict[Any, int]] = {"header": {}, "process": {}, "kind": {}}
        dumps, wires = [], []
        file = np.repeat(np.arange(len(parts), dtype=np.int32), [len(p) for p in parts])
        for part in parts:
            new = {}
            for name, own in (("header", part.headers), ("process", part.processes), ("kind", part.kinds)):
                new[name] = np.array([codes[name].setdefault(key, len(codes[name])) for key in own], np.int32)
                part.columns[name] = new[name][part.columns[name]] if own else part.columns[name]
            dumps += [(int(new["header"][h]), int(new["process"][p]), dump) for h, p, dump in part.dumps]
            wires += [(int(new["header"][h]), peer, size) for (h, peer), size in sorted(part.wires.items())]
        columns = {name: np.concatenate([part.columns.pop(name) for part in parts]) for name in COLUMNS}
        tables = [tuple(codes[name]) for name in ("header", "process", "kind")]
        return cls(tuple(parts), columns, file, tables[0], tables[1], tables[2], tuple(dumps), tuple(wires))

    def __len__(self) -> int:
        return len(self.file)

    def place(self, row: int) -> tuple[str, int]:
        """File and line of a record."""
        return self.parts[self.file[row]].file, int(self.columns["line"][row])

    def of_header(self, name: str) -> npt.NDArray[np.int64]:
        """A number of each record's header, shape (n,)."""
        values = np.array([getattr(h, name) for h in self.headers], np.int64)
        return values[self.columns["header"]] if len(self) else np.zeros(0, np.int64)

    def of_kind(self, values: Sequence[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A value of each record's kind, shape (n,)."""
        return np.array(values, dtype)[self.columns["kind"]] if len(self) else np.zeros(0, dtype)


def communicators_of(table: Table) -> tuple[list[Communicator], npt.NDArray[np.int64]]:
    """Return the communicators that have records, and which of them each header belongs to (-1 for none).

    Raises
    ------
    MergeError
        If two processes are one rank of a communicator: two runs, or two communicators with one id.
    """
    used = np.zeros(len(table.headers), np.bool_)
    used[table.columns["header"]] = True
    numbers: dict[tuple[str, str, int], int] = {}
    nodes: dict[int, int] = {}
    of_header = np.full(len(table.headers), -1, np.int64)
    for code in np.flatnonzero(used).tolist():
        h = table.headers[code]
        number = numbers.setdefault((h.id, _name(h), h.n_ranks), len(numbers))
        nodes[number] = max(h.nnodes, nodes.get(number, 0))
        of_header[code] = number
    pair, count = number_rows(table.columns["header"], table.columns["process"])
    one = first_rows(pair, count)
    seen: list[dict[int, int]] = [{} for _ in numbers]
    problems = []
    for row in one.tolist():
        header, process = int(table.columns["header"][row]), int(table.columns["process"][row])
        h, number = table.headers[header], int(of_header[header])
        other = seen[number].setdefault(h.rank, process)
        if other != process:
            file, line = table.place(row)
            both = f"{table.processes[other].label} and {table.processes[process].label}"
            what = f"{both} are both rank {h.rank} of communicator {h.id or _name(h) or 'without id'}"
            problems.append(Problem(what, file=file, line=line, remedy=_two(h)))
    if problems:
        raise MergeError(problems)
    found = [
        Communicator(identity, name or None, size, nodes[i], tuple(sorted(seen[i].items())))
        for (identity, name, size), i in numbers.items()
    ]
    return found, of_header


def _name(h: HeaderKey) -> str:
    return "" if h.comm_name.strip().lower() in ("", "unknown") else h.comm_name


def _two(h: HeaderKey) -> str:
    if len(h.id) == _CUT_ID:
        return "open one run at a time; or these are two communicators whose ids differ in the digit that the plugin cuts: give them names"
    return "open the files of one run at a time"
