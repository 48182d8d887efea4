"""Records of Inspector files as columns: codes for what repeats, numbers for the rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import LimitError
from commcanary_lab.importers.inspector_lines import Batch, LineFile
from commcanary_lab.importers.inspector_schema import Dump, Line, Step, Times
from commcanary_lab.limits import Limits

__all__ = ["COLUMNS", "HeaderKey", "Kind", "Part", "Process", "pack"]

astuple = msgspec.structs.astuple

#: Unix microseconds of 2001 and 2096: event times outside of them are those of another clock.
_UNIX_US = (10**15, 4 * 10**15)
_INT64_MAX = (1 << 63) - 1


class HeaderKey(NamedTuple):
    """A communicator as a header names it, and a rank in it."""

    rank: int
    n_ranks: int
    id: str
    comm_name: str
    nnodes: int


class Process(NamedTuple):
    """A process; where a source does not name its processes, its files stand for them."""

    hostname: str
    pid: int
    file: str = ""

    @property
    def label(self) -> str:
        """For messages."""
        return self.file if self.pid < 0 and not self.hostname else f"{self.hostname or 'a host'} pid {self.pid}"


class Kind(NamedTuple):
    """What repeats in a payload."""

    name: str
    clock: str
    algorithm: str
    protocol: str
    message: bool


#: Columns of a part, and what they hold.
COLUMNS = {
    "header": np.int32, "process": np.int32, "kind": np.int32, "sequence": np.int64, "size_bytes": np.int64, "peer": np.int64,
    "time_us": np.float64, "algbw_gb_s": np.float64, "busbw_gb_s": np.float64, "dump_us": np.int64, "start_us": np.int64,
    "line": np.int32,
}  # fmt: skip


@dataclass
class Part:
    """The records of one file.

    Parameters
    ----------
    file : str
        Its path.
    columns : dict of str to ndarray, shape (n,)
        As in `COLUMNS`: codes into the tables below; `peer`, `dump_us` and `start_us` are -1 and the other numbers NaN where there is
        none; sizes beyond int64 are its maximum.
    headers, processes, kinds : list
        What the codes mean.
    dumps : list of (int, int, Dump)
        Counts of the plugin, with the codes of header and process.
    wires : Counter
        Bytes of proxy operations by (header code, peer).
    foreign_starts : int
        Records whose event times are of another clock than the host's.
    torn, unknown : int
        Records that were cut short, and records without a payload that is known.
    """

    file: str
    columns: dict[str, npt.NDArray[Any]]
    headers: list[HeaderKey]
    processes: list[Process]
    kinds: list[Kind]
    dumps: list[tuple[int, int, Dump]] = field(default_factory=list)
    wires: Counter[tuple[int, int]] = field(default_factory=Counter)
    foreign_starts: int = 0
    torn: int = 0
    unknown: int = 0
    warnings: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.columns["header"])


def pack(path: str | os.PathLike[str], limits: Limits) -> Part:
    """Read one file into columns.

    Raises
    ------
    FormatError
        If a line is no record, or says what cannot be; names the line.
    LimitError
        If a limit is exceeded.
    """
    source = LineFile(path)
    packer = _Packer(source)
    for batch in source.batches(limits):
        packer.add(batch)
        limits.check_events(packer.count, str(path))
    return packer.part(limits)


class _Codes:
    """Numbers distinct values by first appearance."""

    def __init__(self) -> None:
        self.table: dict[Any, int] = {}

    def code(self, values: Sequence[Any]) -> npt.NDArray[np.int32]:
        try:
            return np.fromiter(map(self.table.__getitem__, values), np.int32, len(values))
        except KeyError:  # a value not seen before
            for value in dict.fromkeys(values):
                self.table.setdefault(value, len(self.table))
            return np.fromiter(map(self.table.__getitem__, values), np.int32, len(values))


class _Packer:
    def __init__(self, source: LineFile) -> None:
        self.source = source
        self.count = 0
        self._headers, self._processes, self._kinds = _Codes(), _Codes(), _Codes()
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in COLUMNS}
        self._dumps: list[tuple[int, int, Dump]] = []
        self._wires: Counter[tuple[int, int]] = Counter()
        self._unknown = self._foreign = 0

    def add(self, batch: Batch) -> None:
        """Pack the records of a batch."""
        rows, lines = batch.rows, batch.lines
        if not rows:
            return
        headers, metadata, collectives, messages, dumps = zip(*map(astuple, rows), strict=True)
        if None in collectives or any(messages) or any(dumps):
            keep = self._payloads(rows, lines)
            if keep:
                payloads = [_payload(rows[i]) for i in keep]
                is_message = [rows[i].p2p_perf is not None for i in keep]
                self._add([headers[i] for i in keep], [metadata[i] for i in keep], payloads, is_message, [lines[i] for i in keep])
        else:
            self._add(headers, metadata, list(map(astuple, collectives)), None, lines)

    def _payloads(self, rows: Sequence[Line], lines: Sequence[int]) -> list[int]:
        """Rows with a collective or message; the counts of the others are taken."""
        keep = []
        for i, row in enumerate(rows):
            given = [x for x in (row.coll_perf, row.p2p_perf, row.dump_stats) if x is not None]
            if len(given) > 1:
                raise self.source.error(lines[i], "a record with more than one payload")
            if not given:
                self._unknown += 1
            elif row.dump_stats is not None:
                if min(astuple(row.dump_stats)) < 0:
                    raise self.source.error(lines[i], "a count below 0", "dump_stats")
                header, process = self._headers.code([astuple(row.header)]), self._processes.code([self._process(row.metadata)])
                self._dumps.append((int(header[0]), int(process[0]), row.dump_stats))
            else:
                keep.append(i)
        return keep

    def _process(self, m: Any) -> tuple[Any, ...]:
        return ("", -1) if m is None else (m.hostname, m.pid)

    def _add(self, headers: Sequence[Any], metadata: Sequence[Any], payloads: Sequence[tuple[Any, ...]],
             is_message: Sequence[bool] | None, lines: Sequence[int]) -> None:  # fmt: skip
        n = len(payloads)
        name, sequence, size, time, clock, algbw, busbw, algorithm, protocol, times, steps, peer = zip(*payloads, strict=True)
        if None in metadata:
            process: Sequence[Any] = [self._process(m) for m in metadata]
            dumped: Sequence[int] = [-1 if m is None else m.dump_timestamp_us for m in metadata]
        else:
            host, pid, dumped = zip(*map(astuple, metadata), strict=True)
            process = list(zip(host, pid, strict=True))
        flags = repeat(False, n) if is_message is None else is_message
        header = self._headers.code(list(map(astuple, headers)))
        values: dict[str, npt.NDArray[Any]] = {
            "header": header,
            "process": self._processes.code(process),
            "kind": self._kinds.code(list(zip(name, clock, algorithm, protocol, flags, strict=True))),
            "sequence": self._integers(sequence, lines, "sn"),
            "size_bytes": self._sizes(size),
            "peer": np.full(n, -1) if is_message is None else self._integers([-1 if p is None else p for p in peer], lines, "p2p_peer"),
            "time_us": self._floats(time, lines, "exec_time_us"),
            "algbw_gb_s": self._floats(algbw, lines, "algobw_gbs"),
            "busbw_gb_s": self._floats(busbw, lines, "busbw_gbs"),
            "dump_us": self._integers(dumped, lines, "dump_timestamp_us"),
            "start_us": self._starts(times, steps),
            "line": np.fromiter(lines, np.int32, n),
        }
        for key, column in values.items():
            self._parts[key].append(column)
        if any(steps):
            self._add_wires(header, steps)
        self.count += n

    def _integers(self, values: Sequence[int], lines: Sequence[int], key: str) -> npt.NDArray[np.int64]:
        try:
            return np.fromiter(values, np.int64, len(values))
        except OverflowError:
            i = next(i for i, x in enumerate(values) if not -_INT64_MAX <= x <= _INT64_MAX)
            raise self.source.error(lines[i], f"{values[i]} is out of range", key) from None

    def _sizes(self, values: Sequence[int]) -> npt.NDArray[np.int64]:
        try:
            return np.fromiter(values, np.int64, len(values))
        except OverflowError:  # wrapped around 2^64
            return np.fromiter((max(-1, min(x, _INT64_MAX)) for x in values), np.int64, len(values))

    def _floats(self, values: Sequence[Any], lines: Sequence[int], key: str) -> npt.NDArray[np.float64]:
        try:
            return np.fromiter(values, np.float64, len(values))
        except ValueError:
            for value, line in zip(values, lines, strict=True):
                try:
                    float("nan" if value is None else value)
                except ValueError:
                    raise self.source.error(line, f"{value!r} is not a number", key) from None
            raise

    def _starts(self, times: Sequence[Times | None], steps: Sequence[list[Step] | None]) -> npt.NDArray[np.int64]:
        if not any(times) and not any(steps):
            return np.full(len(times), -1, np.int64)
        out = np.fromiter(map(_start_us, times, steps), np.int64, len(times))
        foreign = (out > 0) & ((out < _UNIX_US[0]) | (out > _UNIX_US[1]))
        self._foreign += int(np.count_nonzero(foreign))
        return np.where(foreign | (out <= 0), -1, out)

    def _add_wires(self, header: npt.NDArray[np.int32], steps: Sequence[list[Step] | None]) -> None:
        for code, found in zip(header.tolist(), steps, strict=True):
            for step in found or ():
                if step.proxy_direction == "Send" and step.proxy_peer >= 0 and 0 <= step.proxy_trans_size < _INT64_MAX:
                    self._wires[code, step.proxy_peer] += step.proxy_trans_size

    def part(self, limits: Limits) -> Part:
        """Return the columns, checked."""
        columns = {
            name: np.concatenate(parts) if (parts := self._parts.pop(name)) else np.zeros(0, dtype) for name, dtype in COLUMNS.items()
        }
        file = str(self.source.path)
        headers = [HeaderKey(*key) for key in self._headers.table]
        processes = [Process(host, pid, file if (host, pid) == ("", -1) else "") for host, pid in self._processes.table]
        kinds = [Kind(*key) for key in self._kinds.table]
        part = Part(file, columns, headers, processes, kinds, self._dumps, self._wires, self._foreign, self.source.torn, self._unknown,
                    self.source.warnings)  # fmt: skip
        _check(part, self.source, limits)
        return part


def _payload(row: Line) -> tuple[Any, ...]:
    """The collective or message of a record that has one."""
    if row.p2p_perf is not None:
        return row.p2p_perf.row()
    assert row.coll_perf is not None
    return astuple(row.coll_perf)


def _start_us(times: Times | None, steps: list[Step] | None) -> int:
    """When the first channel's kernel began, else when the host issued the operation; 0 where neither is known."""
    kernels = [k.kernel_start_ts for k in times.kernel_events if k.kernel_start_ts > 0] if times is not None else []
    kernels += [t.kernel_start_ts for s in steps or () if (t := s.event_trace_ts) is not None and t.kernel_start_ts > 0]
    issued = 0 if times is None else times.coll_start_ts or times.p2p_start_ts
    return min(min(kernels, default=issued), _INT64_MAX)


def _check(part: Part, source: LineFile, limits: Limits) -> None:
    """Refuse what cannot be: ranks outside of their communicator, negative counts."""
    c = part.columns
    for code, h in enumerate(part.headers):
        what = key = None
        if h.n_ranks < 1:
            what, key = f"a communicator of {h.n_ranks} ranks", "header.n_ranks"
        elif h.n_ranks > limits.max_ranks:
            raise LimitError(f"a communicator of {h.n_ranks} ranks exceeds the limit of {limits.max_ranks}", file=part.file,
                             remedy="raise it with COMMCANARY_LAB_MAX_RANKS")  # fmt: skip
        elif not 0 <= h.rank < h.n_ranks:
            what, key = f"rank {h.rank} of {h.n_ranks}", "header.rank"
        elif not 0 <= h.nnodes <= h.n_ranks:
            what, key = f"{h.n_ranks} ranks on {h.nnodes} nodes", "header.nnodes"
        elif max(len(h.id), len(h.comm_name)) > limits.max_text_bytes:
            what, key = "a name is too long", "header"
        if what is not None:
            at = np.flatnonzero(c["header"] == code)
            raise source.error(int(c["line"][at[0]]) if len(at) else 1, what, key)
    for code, kind in enumerate(part.kinds):
        if not kind.name.strip():
            raise source.error(int(c["line"][c["kind"] == code][0]), "an operation without a name", "coll")
    size = np.array([h.n_ranks for h in part.headers], np.int64)[c["header"]] if len(part) else np.zeros(0, np.int64)
    message = np.array([k.message for k in part.kinds], np.bool_)[c["kind"]] if len(part) else np.zeros(0, np.bool_)
    for bad, key, say in (
        (~message & (c["sequence"] < 0), "coll_sn", "sequence"),
        (message & ((c["peer"] < 0) | (c["peer"] >= size)), "p2p_peer", "peer"),
    ):
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise source.error(int(c["line"][i]), f"{say} {c[say][i]} in a communicator of {size[i]} ranks", key)
