"""What an export writes: the distinct calls of a canary or a trace, and which event is which call at what time.

The program stays folded. An event is a number into the distinct calls plus a time, so that a million events take three arrays, and a writer
makes the text of a call once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.fields import EventFields, split_trace
from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import RefusedError
from commcanary_lab.trace.groups import GroupTable, ProcessGroup
from commcanary_lab.trace.numbering import positions
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.trace.signatures import factorize

if TYPE_CHECKING:
    from commcanary_lab.trace.model import Trace

__all__ = ["CHUNK", "Call", "Program", "Source", "describe_source"]

IntArray = npt.NDArray[np.int64]

#: Events that a writer looks at in one pass.
CHUNK = 1 << 16

_MESSAGES = frozenset({"send", "recv", "point_to_point"})


@dataclass(frozen=True)
class Call:
    """One distinct call of a collective or message.

    Parameters
    ----------
    op : str
        Canonical operation; ``point_to_point`` for messages, the source's name for operations outside the vocabulary.
    group : int
        Index into the program's groups; the pair of both ends for a message.
    members : tuple of int
        Global ranks of that group, ascending.
    size_bytes : int
        B, the "size" of nccl-tests.
    dtype, reduction, tag : str, optional
        None where unknown.
    root, sender, receiver : int, optional
        Global ranks; None where they do not apply or are unknown.
    cells : tuple of tuple of int, optional
        Uneven all-to-all: bytes from member i to member j, -1 where unknown.
    """

    op: str
    group: int
    members: tuple[int, ...]
    size_bytes: int
    dtype: str | None = None
    reduction: str | None = None
    tag: str | None = None
    root: int | None = None
    sender: int | None = None
    receiver: int | None = None
    cells: tuple[tuple[int, ...], ...] | None = None

    def position(self, rank: int) -> int:
        """Return the rank inside the group of a global rank."""
        return self.members.index(rank)

    def splits(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what a rank sends to and receives from each member, in bytes.

        Examples
        --------
        >>> Call("all_to_all_v", 0, (2, 5), 12, cells=((4, 8), (1, 0))).splits(5)
        ((1, 0), (8, 0))
        """
        if self.cells is None:
            raise ValueError("only uneven all-to-alls have splits")
        own = self.position(rank)
        return self.cells[own], tuple(row[own] for row in self.cells)


@dataclass(frozen=True)
class Source:
    """Where a program comes from, in words that every export repeats.

    Parameters
    ----------
    kind : str
        ``canary`` or ``trace``.
    events : int
        Events of the program.
    first_event : int
        Number of its first event in the source.
    timing : str
        ``lossless``, ``bounded_approximate``, or ``none`` where the source has no times.
    identity : str
        SHA-256 of the canary; empty for a trace.
    notes : tuple of str
        Notes of the source.
    """

    kind: str
    events: int
    first_event: int
    timing: str
    identity: str
    notes: tuple[str, ...]


def describe_source(source: Canary | Trace) -> Source:
    """Return where a program comes from.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> describe_source(lab.samples.adversarial()).timing, describe_source(lab.compile(lab.samples.adversarial())).kind
    ('lossless', 'canary')
    """
    if isinstance(source, Canary):
        timing = "none" if source.clock.governs == "none" else source.timing
        return Source("canary", source.event_count, source.source.start, timing, source.identity, source.notes)
    from commcanary_lab.trace.timing import timing_mode

    timing = "none" if timing_mode(source) == "none" else "lossless"
    return Source("trace", len(source), 0, timing, "", source.notes)


@dataclass(frozen=True, eq=False)
class Program:
    """The calls of a canary or a trace in order; every member of a group takes part in the group's calls.

    Attributes
    ----------
    about : Source
        Where it comes from.
    fields : EventFields
        The events in parts: signatures and timing.
    groups : tuple of ProcessGroup
        Groups that calls use, in order of first use; a message uses the pair of its two ends.
    code : ndarray of int64, shape (events,)
        Number of each event's distinct call; -1 for the receiving side of a message that a send event stands for already.
    first : ndarray of int64, shape (calls,)
        First event of each call.
    clock_ns : ndarray of int64, shape (events,)
        Time of each event from the start of a replay: the gaps, added up.
    """

    about: Source
    fields: EventFields
    groups: tuple[ProcessGroup, ...]
    code: IntArray
    first: IntArray
    clock_ns: IntArray
    _call_groups: IntArray = field(repr=False)

    @classmethod
    def of(cls, source: Canary | Trace) -> Program:
        """Return the program of a canary, or of a trace.

        Raises
        ------
        RefusedError
            If there is no event.

        Examples
        --------
        >>> import commcanary_lab as lab
        >>> program = Program.of(lab.compile(lab.samples.tp8_decode()))
        >>> len(program), len(program.first), program.call(0).op, program.call(0).size_bytes
        (2015, 4, 'all_reduce', 1048576)
        """
        fields = source.fields if isinstance(source, Canary) else split_trace(source)
        if not len(fields.signature):
            raise RefusedError("there is no event to export", remedy="check with `open` what the source holds")
        split = fields.scalars.get("split")
        has = np.array(["split" in p for p in fields.patterns], np.bool_)[fields.pattern]
        code, first = factorize([fields.signature, np.where(has, split, -1) if split is not None else np.zeros(len(has), np.int64)])
        code = np.where(_other_sides(fields), -1, code)
        groups, used = _groups(fields.signatures, fields.signature[first])
        return cls(describe_source(source), fields, groups, code, first, np.cumsum(fields.gap_ns), used)

    def __len__(self) -> int:
        return len(self.code)

    @property
    def timed(self) -> bool:
        """Whether the source has times."""
        return self.about.timing != "none"

    @cached_property
    def world_size(self) -> int:
        """Ranks of a job that runs the program: its highest rank and all below."""
        return 1 + max(g.members[-1] for g in self.groups)

    @cached_property
    def groups_of_rank(self) -> dict[int, list[int]]:
        """Indices of the groups that each rank is in."""
        out: dict[int, list[int]] = {}
        for i, group in enumerate(self.groups):
            for rank in group.members:
                out.setdefault(rank, []).append(i)
        return out

    @cached_property
    def partly_reported(self) -> int:
        """Events that only some of their members reported in the source."""
        s = self.fields.signatures
        message = np.array([s.op.text(i) in _MESSAGES for i in range(len(s))], np.bool_)
        partial = (s.observer_counts < s.group_sizes) & ~message
        return int(np.count_nonzero(partial[self.fields.signature]))

    def source_event(self, event: int) -> int:
        """Return the number in the source of an event of the program."""
        return event + self.about.first_event

    def call(self, code: int) -> Call:
        """Return a distinct call."""
        event = int(self.first[code])
        s, row = self.fields.signatures, int(self.fields.signature[event])
        group = int(self._call_groups[code])
        op = s.op.text(row) or ""
        message = op in _MESSAGES
        known = bool(s.sender.mask[row] and s.receiver.mask[row])
        return Call(
            op="point_to_point" if message else op,
            group=group,
            members=self.groups[group].members,
            size_bytes=int(s.size_bytes[row]),
            dtype=s.dtype.text(row),
            reduction=s.reduction.text(row),
            tag=s.tag.text(row),
            root=int(s.root.values[row]) if s.root.mask[row] and not message else None,
            sender=int(s.sender.values[row]) if message and known else None,
            receiver=int(s.receiver.values[row]) if message and known else None,
            cells=self._cells(event, row) if op == ALL_TO_ALL_V else None,
        )

    def calls(self) -> Iterator[tuple[int, Call]]:
        """Yield the distinct calls that events use, with their numbers."""
        for code in np.unique(self.code[self.code >= 0]).tolist():
            yield code, self.call(code)

    def _cells(self, event: int, row: int) -> tuple[tuple[int, ...], ...] | None:
        """Bytes between members: what senders say, and where they are silent, what receivers say."""
        if "split" not in self.fields.patterns[self.fields.pattern[event]]:
            return None
        s = self.fields.signatures
        members, observers = s.groups[s.group[row]].members, s.observers_of(row)
        k = len(members)
        values = self.fields.splits.row(int(self.fields.scalars["split"][event]))
        if len(values) != len(observers) * (2 + 2 * k):
            return None
        position = np.searchsorted(members, observers)
        lists = values.reshape(len(observers), 2 + 2 * k)
        cells = np.full((k, k), -1, np.int64)
        cells[:, position] = lists[:, 2 + k :].T
        cells[position] = np.where(lists[:, 2 : 2 + k] >= 0, lists[:, 2 : 2 + k], cells[position])
        return tuple(tuple(r) for r in cells.tolist())

    def without(self, codes: Sequence[int]) -> Program:
        """Return the program without some calls: their events get the number -1, and groups that no other call uses are dropped."""
        gone = np.zeros(len(self.first) + 1, np.bool_)
        gone[list(codes)] = True
        code = np.where(gone[self.code], -1, self.code)
        kept = np.unique(code[code >= 0])
        used = np.unique(self._call_groups[kept])
        new = np.full(len(self.groups) + 1, -1, np.int64)
        new[used] = np.arange(len(used))
        return replace(self, code=code, groups=tuple(self.groups[g] for g in used.tolist()), _call_groups=new[self._call_groups])

    def events_of(self, rank: int) -> npt.NDArray[np.intp]:
        """Return the events that a rank takes part in, in order."""
        mine = np.zeros(len(self.groups) + 1, np.bool_)  # the last one stands for groups that are dropped
        mine[self.groups_of_rank.get(rank, [])] = True
        takes_part = np.append(mine[self._call_groups], False)
        return np.flatnonzero(takes_part[self.code])

    def chunks_of(self, rank: int) -> Iterator[tuple[npt.NDArray[np.intp], list[int], list[int]]]:
        """Yield the events of a rank in passes: their indices, their calls, and their times in nanoseconds."""
        events = self.events_of(rank)
        for low in range(0, len(events), CHUNK):
            part = events[low : low + CHUNK]
            yield part, self.code[part].tolist(), self.clock_ns[part].tolist()


def _groups(signatures: Trace, rows: IntArray) -> tuple[tuple[ProcessGroup, ...], IntArray]:
    """Groups that calls use, and each call's; a message uses the pair of its ends."""
    table = GroupTable()
    codes = np.empty(len(rows), np.int64)
    sender, receiver = signatures.sender, signatures.receiver
    for i, row in enumerate(rows.tolist()):
        group = signatures.groups[signatures.group[row]]
        if signatures.op.text(row) in _MESSAGES and sender.mask[row] and receiver.mask[row]:
            pair = tuple(sorted({int(sender.values[row]), int(receiver.values[row])}))
            group = group if group.members == pair else ProcessGroup(group.name, pair)
        codes[i] = table.code(group.name, group.members)
    return table.groups, codes


def _other_sides(fields: EventFields) -> npt.NDArray[np.bool_]:
    """Whether an event is the receiving side of a message that a send event of the same ends and size stands for already."""
    s = fields.signatures
    names = np.array([s.op.text(i) for i in range(len(s))], object)
    ended = np.asarray(s.sender.mask & s.receiver.mask)
    out = np.zeros(len(fields.signature), np.bool_)
    send, receive = (names == "send") & ended, (names == "recv") & ended
    if not (send.any() and receive.any()):
        return out
    key, _ = factorize([s.sender.filled(-1), s.receiver.filled(-1), s.size_bytes])
    sends = np.bincount(key[fields.signature[send[fields.signature]]], minlength=int(key.max()) + 1)
    received = np.flatnonzero(receive[fields.signature])
    keys = key[fields.signature[received]]
    out[received] = positions(keys) < sends[keys]
    return out
