"""The Trace: columnar, immutable, one row per event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab._shown import Shown
from commcanary_lab.errors import UsageError
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import ProcessGroup

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ImportCoverage", "Trace", "UnsizedRow"]


@dataclass(frozen=True)
class UnsizedRow:
    """A collective that a source shows without its size or members: kept with its time, never counted as bytes.

    Parameters
    ----------
    name : str
        Operation or kernel name, as the source writes it.
    time_ns : int
        Time on the device or the CPU, 0 if the source gives none.
    reason : str
        Why it has no size or members.
    rank : int, optional
        The rank whose source shows it.
    start_ns : int, optional
        When it began, on that rank's clock.
    size_bytes : int, optional
        What the rank sent, where the size is known and the members are not: unattributed bytes.
    """

    name: str
    time_ns: int
    reason: str
    rank: int | None = None
    start_ns: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class ImportCoverage:
    """What an importer read, used, and skipped with its reason.

    Parameters
    ----------
    read : int
        Records of the source that describe communication.
    used : int
        Those that became events (or parts of events).
    skipped : mapping of str to int
        The others, by reason.
    ranks : tuple of int
        Ranks whose sources were read; empty when the source is not per rank.
    files : tuple of str
        Names of the files read.

    Examples
    --------
    >>> a = ImportCoverage(read=3, used=2, skipped={"wait": 1}, ranks=(0,))
    >>> b = a + ImportCoverage(read=1, used=1, ranks=(1,))
    >>> b.read, b.used, b.skipped, b.ranks, round(b.fraction, 2)
    (4, 3, {'wait': 1}, (0, 1), 0.75)
    """

    read: int = 0
    used: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def fraction(self) -> float:
        """Used over read; 1 when there was nothing to read."""
        return self.used / self.read if self.read else 1.0

    def __add__(self, other: ImportCoverage) -> ImportCoverage:
        skipped = dict(self.skipped)
        for reason, n in other.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + n
        return ImportCoverage(
            self.read + other.read, self.used + other.used, skipped, tuple(sorted({*self.ranks, *other.ranks})), self.files + other.files
        )


@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """An immutable, columnar communication trace in time order.

    Times are int64 nanoseconds. What is unknown is masked, never 0.

    Parameters
    ----------
    op, phase, dtype, reduction, tag, channel : Coded
        Text columns; ``op`` is never absent.
    group : ndarray of int32, shape (n,)
        Index into `groups`.
    groups : tuple of ProcessGroup
        Distinct process groups.
    size_bytes : ndarray of int64, shape (n,)
        B, the "size" of nccl-tests (see `docs/units`); 0 is a real size.
    custom_op : ndarray of bool, shape (n,)
        True for operations outside the vocabulary.
    root, sender, receiver, message_sequence : Column
        Global ranks and sequence numbers where they apply.
    start_ns, gap_ns, compute_before_ns, observed_exposed_ns : Column
        Times as the source gave them.
    overlap_ns : Column
        Compute that runs concurrently with the collective; masked where unknown.
    pressure : Column of float64
        Compute pressure; masked where the source gives none (the model's default applies).
    concurrent_groups : Column
        Groups active at the same time; masked where the source gives none (1 applies).
    arrival_ns : Ragged
        Per event: one offset per member (in member order), or a single value (the skew alone), or nothing.
    arrival_known : ndarray of bool, shape (n,)
        False where the arrival skew is unknown.
    splits : Ragged
        Uneven all-to-all, per observing rank: bytes sent in total, received in total, sent to each member, received from
        each member; -1 where unknown.
    observers : ndarray of int32, shape (n,)
        Which member ranks reported the event: index into `rank_sets`, -1 when all members did.
    duration_ns, rank_start_ns : Ragged
        Per observing rank: measured time of the collective on that rank, and its start on that rank's own
        (uncalibrated) clock; -1 where unknown.

    Notes
    -----
    ``len(trace)`` is the number of events. Traces compare by `equals`, column by column.
    """

    op: Coded
    phase: Coded
    dtype: Coded
    reduction: Coded
    tag: Coded
    channel: Coded
    group: npt.NDArray[np.int32]
    groups: tuple[ProcessGroup, ...]
    size_bytes: npt.NDArray[np.int64]
    custom_op: npt.NDArray[np.bool_]
    root: Column
    sender: Column
    receiver: Column
    message_sequence: Column
    start_ns: Column
    gap_ns: Column
    compute_before_ns: Column
    overlap_ns: Column
    observed_exposed_ns: Column
    pressure: Column
    concurrent_groups: Column
    arrival_ns: Ragged
    arrival_known: npt.NDArray[np.bool_]
    splits: Ragged
    observers: npt.NDArray[np.int32]
    rank_sets: tuple[tuple[int, ...], ...]
    duration_ns: Ragged
    rank_start_ns: Ragged
    ids: Ragged | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    coverage: ImportCoverage = field(default_factory=ImportCoverage)
    unsized: tuple[UnsizedRow, ...] = ()
    source_format: str = "commcanary.trace.v1"

    def __post_init__(self) -> None:
        for name in ("group", "size_bytes", "custom_op", "arrival_known", "observers"):
            array = getattr(self, name)
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)
        if self.ids is not None and self.ids.is_empty:
            object.__setattr__(self, "ids", None)

    # -- construction -------------------------------------------------------------------------------------------------

    @classmethod
    def build(cls, n: int, **columns: Any) -> Trace:
        """Build a trace of `n` events from the columns that a source has; the others are absent.

        Examples
        --------
        >>> t = Trace.build(2, op=Coded.constant(2, "all_reduce"), groups=(ProcessGroup("tp", (0, 1)),),
        ...                 group=np.zeros(2, np.int32), size_bytes=np.array([8, 8]))
        >>> len(t), t.ranks, t.overlap_ns.none_known
        (2, (0, 1), True)
        """
        defaults: dict[str, Any] = {}
        for f in fields(cls):
            if f.name in columns:
                continue
            if f.name in ("phase", "dtype", "reduction", "tag", "channel"):
                defaults[f.name] = Coded.constant(n, None)
            elif f.name in _COLUMNS:
                defaults[f.name] = Column.absent(n, np.float64 if f.name == "pressure" else np.int64)
            elif f.name in ("arrival_ns", "splits", "duration_ns", "rank_start_ns"):
                defaults[f.name] = Ragged.empty(n)
        defaults.setdefault("arrival_known", np.broadcast_to(np.True_, (n,)))
        defaults.setdefault("observers", np.broadcast_to(np.int32(-1), (n,)))
        defaults.setdefault("rank_sets", ())
        defaults.setdefault("custom_op", np.broadcast_to(np.False_, (n,)))
        return cls(**{**defaults, **columns})

    # -- simple facts -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.size_bytes)

    def __repr__(self) -> str:
        return (
            f"Trace({len(self):,} events, {len(self.ranks)} ranks, {len(self.groups)} groups, "
            f"{len(self.unsized)} unsized, from {self.source_format})"
        )

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All global ranks that are members of a group used by an event, or that the source covers."""
        used = np.flatnonzero(np.bincount(self.group, minlength=1)).tolist()
        out: set[int] = set(self.coverage.ranks)
        for g in used:
            out.update(self.groups[g].members)
        return tuple(sorted(out))

    @cached_property
    def group_sizes(self) -> npt.NDArray[np.int64]:
        """k of each event's group, shape (n,)."""
        return np.array([g.size for g in self.groups], np.int64)[self.group] if len(self) else np.zeros(0, np.int64)

    def observers_of(self, event: int) -> tuple[int, ...]:
        """Return the ranks that reported an event, ascending."""
        code = int(self.observers[event])
        return self.groups[self.group[event]].members if code < 0 else self.rank_sets[code]

    @cached_property
    def observer_counts(self) -> npt.NDArray[np.int64]:
        """How many ranks reported each event, shape (n,)."""
        sizes = np.array([len(s) for s in self.rank_sets] + [0], np.int64)
        return np.where(self.observers < 0, self.group_sizes, sizes[self.observers])

    @property
    def origin(self) -> str:
        """``synthetic`` where the trace says so of itself (`workload.origin` or `system.backend`), otherwise ``measured``.

        Examples
        --------
        >>> import commcanary_lab as lab
        >>> lab.samples.adversarial().origin, lab.samples.gloo4().origin
        ('synthetic', 'measured')
        """
        said = f"{self.workload.get('origin', '')} {self.system.get('backend', '')}".lower()
        return "synthetic" if "synthetic" in said or "simulated" in said else "measured"

    @property
    def record_count(self) -> int:
        """Rank records behind the events: one per event and reporting rank."""
        return int(self.observer_counts.sum())

    def id(self, event: int) -> str | None:
        """Return the id of an event, where the source has ids."""
        return None if self.ids is None else bytes(self.ids.row(event)).decode("utf-8")

    @cached_property
    def skew_ns(self) -> Column:
        """Arrival skew of each event: last minus first arrival; masked where unknown."""
        lengths = self.arrival_ns.lengths
        high = self.arrival_ns.reduce(np.maximum)
        low = np.where(lengths == 1, 0, self.arrival_ns.reduce(np.minimum))
        low = np.where((lengths == 1) & (self.group_sizes == 1), high, low)
        return Column(high - low, np.asarray(self.arrival_known))

    @cached_property
    def duration_max_ns(self) -> Column:
        """Longest measured time of each event over its reporting ranks; masked where none was measured."""
        longest = self.duration_ns.reduce(np.maximum, default=-1)
        return Column(np.maximum(longest, 0), longest >= 0)

    @cached_property
    def unknown_fields(self) -> dict[str, int]:
        """Fields that the simulator needs and that are unknown, with the number of events."""
        out = {"skew_us": len(self) - int(np.count_nonzero(self.arrival_known)), "overlap_us": len(self) - self.overlap_ns.known_count}
        return {name: n for name, n in out.items() if n}

    # -- derived traces -----------------------------------------------------------------------------------------------

    def take(self, index: npt.NDArray[np.intp] | slice) -> Trace:
        """Return the events at `index` as a trace; groups and notes stay.

        An event whose predecessor is left out keeps only the field that governs time: in a trace ordered by ``start_us`` its own
        gap no longer holds and is derived anew, in a trace ordered by gaps its ``start_us`` no longer agrees and is dropped.

        Examples
        --------
        >>> t = Trace.build(3, op=Coded.constant(3, "broadcast"), groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(3, np.int32),
        ...                 size_bytes=np.array([8, 4, 2]), start_ns=Column(np.array([0, 10, 30])), gap_ns=Column(np.array([0, 10, 20])))
        >>> t.take(np.array([0, 2])).gap_ns.mask.tolist()
        [True, False]
        """
        out = self.rows(index)
        if self.start_ns.none_known or self.gap_ns.none_known or (isinstance(index, slice) and index.step in (None, 1)):
            return out
        index = np.arange(len(self))[index]
        moved = np.zeros(len(index), np.bool_)
        moved[1:] = np.diff(index) != 1
        if not moved.any():
            return out
        if self.start_ns.all_known:
            return replace(out, gap_ns=out.gap_ns.without(moved))
        return replace(out, start_ns=out.start_ns.without(moved))

    def rows(self, index: npt.NDArray[np.intp] | slice) -> Trace:
        """Return the events at `index` with every column as it is, even where that contradicts itself."""
        changes: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, (Coded, Column, Ragged)):
                changes[f.name] = value.take(index)
            elif isinstance(value, np.ndarray):
                changes[f.name] = value[index]
        return replace(self, **changes)

    def with_notes(self, *notes: str) -> Trace:
        """Return the trace with notes added, each once."""
        return replace(self, notes=tuple(dict.fromkeys([*self.notes, *notes])))

    def filter(
        self,
        op: str | Iterable[str] | None = None,
        group: str | Iterable[str] | None = None,
        phase: str | Iterable[str] | None = None,
        window: tuple[float, float] | None = None,
    ) -> Trace:
        """Return the events that match all the given conditions.

        Parameters
        ----------
        op, group, phase : str or iterable of str, optional
            Names to keep.
        window : (float, float), optional
            Half-open time window in microseconds from the first event.

        Raises
        ------
        UsageError
            If a name does not occur in the trace.

        Examples
        --------
        >>> t = Trace.build(2, op=Coded.from_optional(["all_reduce", "broadcast"]), size_bytes=np.array([8, 4]),
        ...                 groups=(ProcessGroup("tp", (0, 1)),), group=np.zeros(2, np.int32))
        >>> t.filter(op="broadcast").size_bytes.tolist()
        [4]
        """
        keep = np.ones(len(self), np.bool_)
        for kind, wanted, column in (("op", op, self.op), ("phase", phase, self.phase)):
            if wanted is not None:
                names = {wanted} if isinstance(wanted, str) else set(wanted)
                _known_names(kind, names, column.names)
                codes = [i for i, name in enumerate(column.names) if name in names]
                keep &= np.isin(column.codes, codes)
        if group is not None:
            names = {group} if isinstance(group, str) else set(group)
            _known_names("group", names, [g.name or "unnamed" for g in self.groups])
            keep &= np.isin(self.group, [i for i, g in enumerate(self.groups) if (g.name or "unnamed") in names])
        if window is not None:
            from commcanary_lab.trace.timing import clock_ns

            clock = clock_ns(self)
            keep &= (clock >= window[0] * 1000.0) & (clock < window[1] * 1000.0)
        return self.take(np.flatnonzero(keep))

    # -- views --------------------------------------------------------------------------------------------------------

    @cached_property
    def df(self) -> pd.DataFrame:
        """The events as a pandas table; units are in the column names, unknown values are missing."""
        import pandas as pd

        from commcanary_lab.trace.timing import clock_ns, gaps_ns

        def us(column: Column) -> npt.NDArray[np.float64]:
            return np.where(column.mask, column.values / 1000.0, np.nan)

        def text(column: Coded) -> Any:
            clean = column.normalised()
            return pd.Categorical.from_codes(clean.codes, dtype=pd.CategoricalDtype(list(clean.names)))

        def integer(column: Column) -> pd.Series:
            return pd.Series(column.values, dtype="Int64").mask(~column.mask)

        names = Coded.from_optional([g.name for g in self.groups])
        frame = pd.DataFrame(
            {
                "time_us": clock_ns(self) / 1000.0,
                "gap_us": gaps_ns(self) / 1000.0,
                "op": text(self.op),
                "phase": text(self.phase),
                "group": text(Coded(names.codes[self.group], names.names)),
                "group_size": self.group_sizes,
                "size_bytes": self.size_bytes,
                "dtype": text(self.dtype),
                "reduction": text(self.reduction),
                "root": integer(self.root),
                "sender": integer(self.sender),
                "receiver": integer(self.receiver),
                "skew_us": us(self.skew_ns),
                "compute_before_us": us(self.compute_before_ns),
                "overlap_us": us(self.overlap_ns),
                "pressure": np.where(self.pressure.mask, self.pressure.values, np.nan),
                "concurrent_groups": integer(self.concurrent_groups),
                "observed_exposed_us": us(self.observed_exposed_ns),
                "duration_us": us(self.duration_max_ns),
                "observers": self.observer_counts,
            }
        )
        if self.ids is not None:
            frame.insert(0, "id", [self.id(i) for i in range(len(self))])
        return frame

    def _repr_html_(self) -> str:
        from commcanary_lab.trace.summary import summary_html

        return summary_html(self)

    # -- comparison ---------------------------------------------------------------------------------------------------

    def first_difference(self, other: Trace, ignore: Sequence[str] = ()) -> str | None:
        """Return the name of the first column that differs from `other`, or None when all are equal."""
        if len(self) != len(other):
            return "event count"
        for f in fields(self):
            if f.name in ignore or f.name in ("group", "groups", "observers", "rank_sets"):
                continue
            a, b = getattr(self, f.name), getattr(other, f.name)
            if isinstance(a, (Coded, Column, Ragged)):
                same = type(a) is type(b) and a.equals(b)  # type: ignore[arg-type]
            elif isinstance(a, np.ndarray):
                same = np.array_equal(a, b)
            else:
                same = a == b
            if not same:
                return f.name
        if "group" not in ignore and not _same_rows(self.group, self.groups, other.group, other.groups):
            return "group"
        if "observers" not in ignore and not _same_rows(self.observers, (*self.rank_sets, None), other.observers, (*other.rank_sets, None)):
            return "observers"
        return None

    def equals(self, other: Trace, ignore: Sequence[str] = ()) -> bool:
        """Exact equality of every column, table, note and coverage entry.

        Parameters
        ----------
        other : Trace
            The trace to compare with.
        ignore : sequence of str
            Fields to leave out.
        """
        return self.first_difference(other, ignore) is None


_COLUMNS = (
    "root",
    "sender",
    "receiver",
    "message_sequence",
    "start_ns",
    "gap_ns",
    "compute_before_ns",
    "overlap_ns",
    "observed_exposed_ns",
    "pressure",
    "concurrent_groups",
)


def _same_rows(a: npt.NDArray[np.int32], table_a: Sequence[Any], b: npt.NDArray[np.int32], table_b: Sequence[Any]) -> bool:
    width = len(table_b) + 1
    pairs = np.unique((a.astype(np.int64) + 1) * width + b + 1)  # -1 stands for the last entry
    return all(table_a[pair // width - 1] == table_b[pair % width - 1] for pair in pairs.tolist())


def _known_names(kind: str, names: set[str], known: Iterable[str]) -> None:
    missing = names - set(known)
    if missing:
        raise UsageError(
            f"the trace has no {kind} named {sorted(missing)[0]!r}", remedy=f"it has: {', '.join(sorted(set(known))) or 'none'}"
        )
