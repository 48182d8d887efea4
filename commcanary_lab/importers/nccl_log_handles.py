"""Handles of communicators while logs are read: which one a pointer stands for at each line."""

from __future__ import annotations

import itertools
import re
from typing import TypeAlias

from commcanary_lab.importers.nccl_log_parts import Instance, Process
from commcanary_lab.importers.nccl_log_patterns import FIELD, number_of, text_of

__all__ = ["Handles"]

OTHER_SIZE = "members unknown: the number of ranks is not that of the set-up line"

_Scope: TypeAlias = tuple[Process, str]


class Handles:
    """Keeps the handles of communicators.

    A pointer is unique only inside its process, and only until its communicator is destroyed.

    Attributes
    ----------
    instances : list of Instance
        Every handle in order of appearance.
    """

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self._live: dict[_Scope, int] = {}
        self._starting: dict[tuple[Process, int], Instance] = {}
        self._rings: dict[tuple[Process, int], list[tuple[int, list[int]]]] = {}

    def get(self, process: Process, pointer: str, nranks: int) -> int | None:
        """Return the handle that a pointer stands for now."""
        code = self._live.get((process, pointer))
        return code if code is not None and self.instances[code].nranks == nranks else None

    def of_operation(self, process: Process, pointer: str, nranks: int, device: int | None, stated: bytes | None, file: int) -> int:
        """The handle that an operation names; the first operation makes it where no set-up line did."""
        code = self._live.get((process, pointer))
        if code is None or self.instances[code].nranks != nranks:
            if code is not None and self.instances[code].has_init:
                return self._odd(process, pointer, nranks, file)
            code = self.new(Instance(process, pointer, nranks, file, device=device))
        if stated is not None:
            self.instances[code].stated_ranks.add(int(stated))
        return code

    def _odd(self, process: Process, pointer: str, nranks: int, file: int) -> int:
        """The handle of operations that contradict the set-up line of their communicator: digits of the line may be torn."""
        scope = (process, f"{pointer} of {nranks}")
        code = self._live.get(scope)
        if code is None:
            code = self._live[scope] = len(self.instances)
            self.instances.append(Instance(process, pointer, nranks, file, doubt=OTHER_SIZE))
        return code

    def new(self, instance: Instance) -> int:
        """Add a handle; returns its index."""
        code = self._live[(instance.process, instance.pointer)] = len(self.instances)
        self.instances.append(instance)
        return code

    def set_up(self, process: Process, thread: int, line: bytes, m: re.Match[bytes], stage: re.Match[bytes], file: int) -> None:
        """Note a set-up line: `m` and `stage` are what `INIT` and `STAGE` found in it."""
        pointer, rank, nranks, device = text_of(m.group(1)), int(m.group(2)), int(m.group(3)), int(m.group(4))
        what = stage.group(1)
        if not what.startswith(b"Init"):
            self._live.pop((process, pointer), None)
            return
        fields = {text_of(name): text_of(value) for name, value in FIELD.findall(line, m.end())}
        comm_id = fields.get("commId") or fields.get("commHash")
        code = self._live.get((process, pointer))
        old = None if code is None else self.instances[code]
        if old is None or not _same(old, rank, nranks, comm_id):
            old = Instance(process, pointer, nranks, file)
            self.new(old)
        if not old.has_init:
            old.rank, old.device, old.comm_id, old.has_init = rank, device, comm_id, True
            self._descend(old, fields)
        old.comm_id = old.comm_id or comm_id
        if what == b"Init START":
            self._starting[(process, thread)] = old
            return
        old.complete = True
        self._starting.pop((process, thread), None)
        for channel, chain in self._rings.pop((process, thread), []):
            _link(old, channel, chain)

    def _descend(self, child: Instance, fields: dict[str, str]) -> None:
        """Tie a split communicator to its parent."""
        code = self._live.get((child.process, fields.get("parent", "")))
        child.color = number_of(fields.get("color"))
        child.key = number_of(fields.get("key"))
        count = number_of(fields.get("splitCount") or fields.get("childCount"))
        if code is not None and self.instances[code] is not child:
            child.parent = self.instances[code]
            child.ordinal = child.parent.children if count is None else count
            child.parent.children += 1

    def ring(self, process: Process, thread: int, channel: int, chain: list[int]) -> None:
        """Note ranks that follow each other in a ring, as a thread that sets up a communicator writes them."""
        starting = self._starting.get((process, thread))
        if starting is not None:
            _link(starting, channel, chain)
        else:  # older versions announce the communicator only when it is complete
            self._rings.setdefault((process, thread), []).append((channel, chain))

    def finish(self) -> None:
        """Give rings that no set-up line follows to the only communicator of their process."""
        for (process, _), rings in self._rings.items():
            mine = [i for i in self.instances if i.process == process]
            if len(mine) == 1:
                for channel, chain in rings:
                    _link(mine[0], channel, chain)
        self._rings = {}


def _same(old: Instance, rank: int, nranks: int, comm_id: str | None) -> bool:
    """Does a set-up line speak of the communicator that its pointer already stands for?"""
    if not old.has_init:
        return old.nranks == nranks
    if (old.rank, old.nranks) != (rank, nranks):
        return False
    if comm_id is not None and old.comm_id is not None:
        return comm_id == old.comm_id
    return not old.complete


def _link(instance: Instance, channel: int, chain: list[int]) -> None:
    links = instance.links.setdefault(channel, {})
    links.update(itertools.pairwise(chain))
