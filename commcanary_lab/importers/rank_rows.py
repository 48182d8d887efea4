"""Collects what one rank's file amounts to: records, unsized rows, what was skipped and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from commcanary_lab.importers.comm_events import Described, Refusal, Timed, describe, distinct_sequences
from commcanary_lab.importers.kineto_args import CommArgs, Unreadable
from commcanary_lab.importers.kineto_group import GroupDirectory
from commcanary_lab.trace.model import ImportCoverage, UnsizedRow
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["RankRows", "level_durations"]

_EXPECTED_CUSTOM = frozenset({"barrier", ALL_TO_ALL_V, "reduce"})
_MAX_WARNED = 20


@dataclass
class RankRows:
    """What one rank's file amounts to, while it is read.

    Parameters
    ----------
    rank : int
        Global rank.
    file : str
        Last component of the file's name, for warnings.

    Examples
    --------
    >>> rows = RankRows(0, "rank0.json")
    >>> rows.skip("wait", 2); rows.refuse("gather", Refusal("dtype unknown: q", "dtype unknown"), "entry 3")
    >>> rows.capture("rank0.json", "no clock").warnings
    ('rank0.json: entry 3: gather: dtype unknown: q',)
    """

    rank: int
    file: str
    records: list[Record] = field(default_factory=list)
    unsized: list[UnsizedRow] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _origins: set[str] = field(default_factory=set)
    _notes: list[str] = field(default_factory=list)
    _custom: set[str] = field(default_factory=set)

    def skip(self, reason: str, count: int = 1) -> None:
        """Count rows of the source that are no communication of their own."""
        if count:
            self.skipped[reason] += count

    def add(
        self,
        name: str,
        args: CommArgs | Unreadable,
        groups: GroupDirectory,
        where: str,
        *,
        timed: Timed = Timed(),  # noqa: B008 - frozen
        group_root: int | None = None,
    ) -> None:
        """Add a collective or message as a record, or as an unsized row where it cannot be one.

        Parameters
        ----------
        name : str
            The operation, as the source writes it.
        args, groups, timed, group_root
            As in `comm_events.describe`.
        where : str
            Its place in the file, for warnings.
        """
        found = describe(args, groups, self.rank, timed, group_root=group_root)
        if isinstance(found, Described) and (wrong := _contradicts_itself(found.record)) is not None:
            found = Refusal(f"splits contradict: {wrong}", "splits contradict", found.record.sent_bytes)
        if isinstance(found, Refusal):
            self.refuse(name, found, where, timed)
            return
        self._origins.add(found.origin)
        self._notes += found.notes
        self.keep(found.record)

    def keep(self, record: Record) -> None:
        """Add a record."""
        self.records.append(record)
        if record.custom_op and record.op not in _EXPECTED_CUSTOM:
            self._custom.add(record.op)

    def refuse(self, name: str, refusal: Refusal, where: str, timed: Timed = Timed()) -> None:  # noqa: B008 - frozen
        """Add an unsized row, with a warning that says where and why."""
        self.skipped[refusal.kind] += 1
        self.unsized.append(UnsizedRow(name, timed.duration_ns or 0, refusal.reason, self.rank, timed.start_ns, refusal.size_bytes))
        self.problems.append(f"{self.file}: {where}: {name}: {refusal.reason}")

    def capture(
        self, path: str, clock: str, *, world_size: int | None = None, warnings: Iterable[str] = (), notes: Iterable[str] = ()
    ) -> RankCapture:
        """Return everything as a capture."""
        own = list(dict.fromkeys(self._notes))
        if self._origins:
            own.insert(0, f"group members come from: {'; '.join(sorted(self._origins))}")
        if self._custom:
            own.append(f"operations outside the vocabulary, kept as custom operations: {', '.join(sorted(self._custom))}")
        problems = self.problems[:_MAX_WARNED]
        if len(self.problems) > _MAX_WARNED:
            problems.append(f"{self.file}: and {len(self.problems) - _MAX_WARNED} more such problems")
        read = len(self.records) + sum(self.skipped.values())
        return RankCapture(
            rank=self.rank,
            records=distinct_sequences(self.records),
            file=path,
            clock=clock,
            world_size=world_size,
            unsized=tuple(self.unsized),
            notes=(*own, *notes),
            warnings=(*warnings, *problems),
            coverage=ImportCoverage(read, len(self.records), dict(sorted(self.skipped.items())), (self.rank,), (self.file,)),
        )


def _contradicts_itself(record: Record) -> str | None:
    """Why the splits cannot be this rank's: it must get from itself what it keeps for itself."""
    if record.sent_splits is None or record.received_splits is None:
        return None
    own = record.members.index(record.rank)
    kept, got = record.sent_splits[own], record.received_splits[own]
    if kept == got or min(kept, got) < 0:
        return None
    return f"rank {record.rank} keeps {kept} bytes for itself and gets {got} from itself"


def level_durations(captures: list[RankCapture]) -> list[RankCapture]:
    """Drop the time of an event that only some of its ranks measured: a latency over a part of them would be wrong."""
    known: dict[tuple[object, ...], set[bool]] = defaultdict(set)
    counts: list[list[tuple[object, ...]]] = []
    for c in captures:
        positions: Counter[tuple[object, ...]] = Counter()
        keys: list[tuple[object, ...]] = []
        for r in c.records:
            message = (r.members, r.group, r.sender, r.receiver, r.tag)
            numbered = r.sender is None and r.sequence is not None
            key = (*message, numbered, r.sequence if numbered else positions[message])
            if not numbered:
                positions[message] += 1
            keys.append(key)
            known[key].add(r.duration_ns is None)
        counts.append(keys)
    if all(len(states) == 1 for states in known.values()):
        return captures
    return [
        replace(c, records=[replace(r, duration_ns=None) if len(known[k]) > 1 else r for r, k in zip(c.records, keys, strict=True)])
        for c, keys in zip(captures, counts, strict=True)
    ]
