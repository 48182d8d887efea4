"""The lines of NCCL and RCCL debug logs: operations, communicators and rings, in one pass."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from commcanary_lab.importers.nccl_log_handles import Handles
from commcanary_lab.importers.nccl_log_parts import Call, Instance, Process
from commcanary_lab.importers.nccl_log_patterns import (
    CHAIN,
    GLUED,
    INDEX,
    INIT,
    KERNEL,
    KNOWN_NAMES,
    MARK,
    NO_PROCESS,
    PLAIN,
    PREFIX,
    STAGE,
    WHOLE,
    behind_launcher,
    comm_of,
    complete,
    holder,
    is_clock,
    text_of,
    unquoted,
)

__all__ = ["LogReader"]

TORN = "process unknown: the line is torn"

_MAX_LINE = 1 << 18


class _Origin(NamedTuple):
    """Where a line without a certain process may come from."""

    row: int
    file: int
    line: int
    pointer: str
    nranks: int
    device: int | None
    #: Processes whose prefixes stand before it, nearest first, then those whose lines broke off before.
    near: tuple[tuple[Process, int | None], ...]
    broken: tuple[tuple[Process, int | None], ...]


class LogReader:
    """Reads logs one after another and collects what they say.

    Attributes
    ----------
    rows_instance, rows_call, rows_op_count, rows_line, rows_file : list of int
        One entry per operation in the order of the files: index into `instances` and `calls`, the operation count, the one-based line.
    handles : Handles
        Handles of communicators.
    calls : list of Call
        Distinct calls.
    torn : list of (int, int)
        File and line of operations that are cut and cannot be read.
    guessed : list of str
        How operations without a certain process were attributed.
    kernel_lines : int
        Lines of RCCL's kernel trace, which are no operations.
    nccl_lines : int
        Other lines of NCCL's.
    """

    def __init__(self) -> None:
        self.rows_instance: list[int] = []
        self.rows_call: list[int] = []
        self.rows_op_count: list[int] = []
        self.rows_line: list[int] = []
        self.rows_file: list[int] = []
        self.handles = Handles()
        self.calls: list[Call] = []
        self.torn: list[tuple[int, int]] = []
        self.guessed: list[str] = []
        self.kernel_lines = 0
        self.nccl_lines = 0
        self.lines = 0
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._owners: dict[tuple[str, int], dict[Process, int]] = {}
        self._doubts: list[_Origin] = []
        self._broken: list[tuple[Process, int | None]] = []
        self._cache: dict[tuple[bytes, bytes, bytes | None], int] = {}
        self._names: list[str] = []
        self._has_processes: Counter[int] = Counter()

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, data: bytes, name: str) -> None:
        """Read one log.

        Parameters
        ----------
        data : bytes
            The content.
        name : str
            The file, for messages.
        """
        file = len(self._names)
        self._names.append(name)
        self._cache, self._broken = {}, []
        plain, numbers = PLAIN.match, self._numbers
        add_instance, add_call = self.rows_instance.append, self.rows_call.append
        add_count, add_line = self.rows_op_count.append, self.rows_line.append
        before, number = len(self.rows_line), 0
        for number, line in enumerate(io.BytesIO(unquoted(data)), 1):
            m = plain(line)
            if m is None:
                start = behind_launcher(line)
                m = plain(line, start) if start else None
            if m is None:
                if len(line) <= _MAX_LINE:
                    self._other(line, file, number)
                elif MARK in line:  # whatever it is, no program writes such lines, and taking it apart takes forever
                    self.torn.append((file, number))
                continue
            prefix, op, op_count, blob, comm, stated = m.groups()
            instance = self._cache.get((prefix, comm, stated))
            if instance is None:
                instance = self._plain_instance(prefix, comm, stated, file)
                if instance is None:  # the prefix is a time of day
                    self._operations(line, file, number)
                    continue
            call = numbers.get((op, blob))
            if call is None:
                call = self._call(op, blob)
            add_instance(instance)
            add_call(call)
            add_count(int(op_count, 16))
            add_line(number)
        self.lines += number
        self.rows_file += [file] * (len(self.rows_line) - before)

    def finish(self) -> None:
        """Decide about what no single line decides: operations without a process, rings without a communicator."""
        for code, instance in enumerate(self.instances):
            self._own(code, instance)
        for doubt in self._doubts:
            self.rows_instance[doubt.row] = self._settle(doubt)
        self._doubts = []
        self.handles.finish()

    def place(self, file: int, line: int) -> str:
        """Return file and line, for messages."""
        return f"{self._names[file]}: line {line}"

    @property
    def instances(self) -> list[Instance]:
        """Handles of communicators in order of appearance."""
        return self.handles.instances

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(self._names)

    def peers(self) -> dict[int, set[int]]:
        """Peers of the messages of each handle."""
        messages = {code: call.root for code, call in enumerate(self.calls) if call.op in ("Send", "Recv")}
        out: dict[int, set[int]] = {}
        if messages:
            for instance, call in zip(self.rows_instance, self.rows_call, strict=True):
                if call in messages:
                    out.setdefault(instance, set()).add(messages[call])
        return out

    # -- operations ---------------------------------------------------------------------------------------------------

    def _call(self, op: bytes, blob: bytes) -> int:
        count, _, datatype, _, reduction, _, root = blob.split()
        self._numbers[(op, blob)] = code = len(self.calls)
        self.calls.append(Call(op.decode(), int(count), int(datatype), int(reduction), int(root)))
        return code

    def _plain_instance(self, prefix: bytes, comm: bytes, stated: bytes | None, file: int) -> int | None:
        text, _, device = prefix.partition(b" ")
        host, pid, tid = text.rsplit(b":", 2)
        if is_clock(host, pid, tid):
            return None
        self._has_processes[file] += 1
        code = self.handles.of_operation(Process(text_of(host), int(pid)), *comm_of(comm), int(device[1:-1]), stated, file)
        self._cache[(prefix, comm, stated)] = code
        return code

    def _other(self, line: bytes, file: int, number: int) -> None:
        """A line that is no plain operation."""
        if MARK in line:
            self._operations(line, file, number)
            return
        if b"NCCL" not in line:
            return
        self.nccl_lines += 1
        if b"- " in line and (stage := STAGE.search(line)) is not None and (m := INIT.search(line)) is not None:
            self._cache = {}
            self.handles.set_up(*self._holder_of(line, m.start(), file), line, m, stage, file)
        elif b" : " in line and (b"Ring " in line or b"Channel " in line):
            self._ring(line, file)
        elif b"## [" in line and KERNEL.search(line):
            self.kernel_lines += 1
        else:
            self._note_broken(line, file)

    def _operations(self, line: bytes, file: int, number: int) -> None:
        """Operations behind launcher tags, and torn lines."""
        found, cut = complete(line)
        if not found and not cut:
            return
        torn = cut > 0 or len(found) > 1
        prefixes = list((GLUED if torn else PREFIX).finditer(line, 0, len(line) if torn else found[0].start()))
        prefixes = [p for p in prefixes if not is_clock(*p.group(1, 2, 3))]
        self._has_processes[file] += len(prefixes)
        used = 0
        for m in found:
            before = [p for p in prefixes[used:] if p.end() <= m.start()]
            used += len(before)
            self._operation(m, line, before, file, number, torn)
        self._broken += [holder(p) for p in prefixes[used:]]
        self.torn += [(file, number)] * cut

    def _operation(self, m: re.Match[bytes], line: bytes, before: list[re.Match[bytes]], file: int, number: int, torn: bool) -> None:
        op, op_count, blob, comm, stated = m.groups()
        if torn:
            op = next((name for name in KNOWN_NAMES if op.endswith(name)), op)
        near = tuple(holder(p) for p in reversed(before))
        gap = line[before[-1].end() : m.start()] if before else b""
        pointer, nranks = comm_of(comm)
        if len(near) == 1 and not torn and (not gap or INDEX.fullmatch(gap)):
            code = self.handles.of_operation(near[0][0], pointer, nranks, near[0][1], stated, file)
        else:
            bare = NO_PROCESS.search(line, 0, m.start())
            device = int(bare.group(1)) if bare is not None and bare.group(1) is not None else None
            self._doubts.append(_Origin(len(self.rows_instance), file, number, pointer, nranks, device, near, tuple(self._broken[-4:])))
            self._broken += near[1:]
            code = -1
        self.rows_instance.append(code)
        self.rows_call.append(call if (call := self._numbers.get((op, blob))) is not None else self._call(op, blob))
        self.rows_op_count.append(int(op_count, 16))
        self.rows_line.append(number)

    def _settle(self, doubt: _Origin) -> int:
        """Attribute an operation whose process no line states for certain."""
        where = self.place(doubt.file, doubt.line)
        owners = self._owners.get((doubt.pointer, doubt.nranks), {})
        if doubt.near:  # torn: several prefixes before it, or something between prefix and operation
            near = [(_unglued(p, owners), d) for p, d in doubt.near]
            process, device = next(((p, d) for p, d in near if p in owners), near[0])
            self.guessed.append(f"{where}: a torn line: its operation is taken as one of {process.label}")
        else:
            hint = next((h for h in reversed(doubt.broken) if h[0] in owners), None)
            if hint is None and len(owners) == 1:
                hint = (next(iter(owners)), None)
            if hint is None:
                return self._unknown(doubt, where)
            process, device = hint
            self.guessed.append(f"{where}: no host:pid:tid: guessed as {process.label}, which has a communicator {doubt.pointer}")
        if process in owners:
            return owners[process]
        code = self.handles.new(Instance(process, doubt.pointer, doubt.nranks, doubt.file, device=device))
        self._own(code, self.instances[code])
        return code

    def _own(self, code: int, instance: Instance) -> None:
        if instance.process.pid >= 0:
            self._owners.setdefault((instance.pointer, instance.nranks), {})[instance.process] = code

    def _unknown(self, doubt: _Origin, where: str) -> int:
        """The handle of an operation whose process stays unknown."""
        nobody = Process(self._names[doubt.file], -1)
        code = self.handles.get(nobody, doubt.pointer, doubt.nranks)
        if code is None:
            code = self.handles.new(Instance(nobody, doubt.pointer, doubt.nranks, doubt.file, device=doubt.device))
        if self._has_processes[doubt.file]:  # other lines of the file have a process: this one is torn
            if not self.instances[code].has_init:
                self.instances[code].doubt = TORN
            perhaps = f"; perhaps {doubt.broken[-1][0].label}, whose line broke off before" if doubt.broken else ""
            self.guessed.append(f"{where}: no host:pid:tid: the process is unknown{perhaps}")
        return code

    def _note_broken(self, line: bytes, file: int) -> None:
        """Remember a prefix whose line broke off right behind it, as torn writes leave it."""
        prefixes = [p for p in PREFIX.finditer(line) if not is_clock(*p.group(1, 2, 3))]
        self._has_processes[file] += len(prefixes)
        rest = line[prefixes[-1].end() :].strip() if prefixes else b"x"
        self._broken += [holder(p) for p in (prefixes if not rest else prefixes[:-1])]

    # -- communicators ------------------------------------------------------------------------------------------------

    def _holder_of(self, line: bytes, end: int, file: int) -> tuple[Process, int]:
        """Process and thread that wrote a line."""
        prefixes = [p for p in PREFIX.finditer(line, 0, end) if not is_clock(*p.group(1, 2, 3))]
        if not prefixes:
            return Process(self._names[file], -1), 0
        self._has_processes[file] += 1
        host, pid, tid, _ = prefixes[-1].groups()
        return Process(text_of(host), int(pid)), int(tid)

    def _ring(self, line: bytes, file: int) -> None:
        chain = CHAIN.search(line)
        whole = None if chain is not None else WHOLE.search(line)
        m = chain or whole
        if m is None:
            return
        ranks = [int(x) for x in (m.group(2).split(b" -> ") if chain is not None else m.group(2).split())]
        self.handles.ring(*self._holder_of(line, m.start(), file), int(m.group(1)), ranks)


def _unglued(process: Process, known: Iterable[Process]) -> Process:
    """The process whose host name has the rest of another line in front of it."""
    return next((k for k in known if k.pid == process.pid and process.host.endswith(k.host)), process)
