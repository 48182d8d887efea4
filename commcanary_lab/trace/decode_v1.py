"""Columns of a trace from decoded ``commcanary.trace.v1`` events.

Everything here checks whole columns. What does not fit raises `Odd`, and the slow checker of `check_v1` then explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from commcanary_lab.errors import Problem
from commcanary_lab.limits import Limits
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.ops import OPS, REDUCTION_OPS
from commcanary_lab.trace.schema_v1 import EventV1
from commcanary_lab.units import us_to_ns

__all__ = ["EventColumns", "Odd", "Times", "arrivals", "check_ops", "groups", "ids", "integers", "observers", "optional_times", "overlap",
           "ragged_integers", "sizes", "texts"]  # fmt: skip

_IntArray = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]


class Odd(Exception):
    """A column holds something that the slow checker must explain."""


class EventColumns:
    """The decoded events by field. A field that no event has is one shared tuple of ``UNSET``, never collected from the events.

    Parameters
    ----------
    events : list of EventV1
        The events.
    counts : mapping of str to int, optional
        How many events have each field, for those that some event has; None where that is not known.
    """

    def __init__(self, events: list[EventV1], counts: Mapping[str, int] | None = None) -> None:
        self._events = events
        self._present = None if counts is None else frozenset(counts)
        self._unset: tuple[Any, ...] = (UNSET,) * len(events)
        self._cache: dict[str, Sequence[Any]] = {}
        self._missing: dict[str, int] = {} if counts is None else {name: len(events) - n for name, n in counts.items()}

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, name: str) -> Sequence[Any]:
        if self._present is not None and name not in self._present:
            return self._unset
        if name not in self._cache:
            self._cache[name] = list(map(attrgetter(name), self._events))
        return self._cache[name]

    def missing(self, name: str) -> int:
        """How many events lack the field."""
        if name not in self._missing:
            values = self[name]
            self._missing[name] = len(values) if values is self._unset else values.count(UNSET)
        return self._missing[name]

    def none(self, name: str) -> bool:
        """True when no event has the field."""
        return self.missing(name) == len(self._events)

    def given(self, name: str) -> _BoolArray:
        """Which events have the field, shape (n,)."""
        if self.none(name):
            return np.broadcast_to(np.False_, (len(self),))
        if not self.missing(name):
            return np.broadcast_to(np.True_, (len(self),))
        return np.fromiter((x is not UNSET for x in self[name]), np.bool_, len(self))

    def flag(self, name: str) -> _BoolArray:
        """Which events say ``true``, shape (n,)."""
        if self.none(name):
            return np.broadcast_to(np.False_, (len(self),))
        return np.fromiter((x is True for x in self[name]), np.bool_, len(self))


@dataclass
class Times:
    """Converts time columns to nanoseconds; remembers what rounding changed, or what is not a whole nanosecond."""

    file: str
    accept: bool
    largest_us: float = 0.0
    problems: list[Problem] = field(default_factory=list)

    def ns(self, name: str | Callable[[int], str], values: Sequence[Any], rows: npt.NDArray[np.integer] | None = None) -> _IntArray:
        """Convert; `name` is the field (or gives it by position), `rows` the event of each value."""
        floats = np.array(values, np.float64)
        out, exact = us_to_ns(floats)
        if exact.all():
            return out
        wrong = np.flatnonzero(~exact)
        if self.accept:
            self.largest_us = max(self.largest_us, float(np.abs(out[wrong] / 1000.0 - floats[wrong]).max()))
            return out
        for i in wrong.tolist():
            self.problems.append(
                Problem(
                    f"{float(floats[i])!r} us is not a whole number of nanoseconds",
                    file=self.file,
                    record=int(i if rows is None else rows[i]),
                    field=name if isinstance(name, str) else name(i),
                    remedy="round it to 3 decimals, or accept rounding with --round-ns",
                )
            )
        return out

    def column(self, c: EventColumns, name: str) -> Column:
        """Convert a field of the events."""
        if c.none(name):
            return Column.absent(len(c))
        if not c.missing(name):
            return Column(self.ns(name, c[name]))
        return Column(self.ns(name, [0.0 if x is UNSET else x for x in c[name]]), c.given(name))


def integers(c: EventColumns, name: str, dtype: npt.DTypeLike = np.int64) -> Column:
    """Return a numeric field as a column."""
    if c.none(name):
        return Column.absent(len(c), dtype)
    items = c[name]
    return Column.from_optional([None if x is UNSET else x for x in items] if c.missing(name) else items, dtype)


def texts(c: EventColumns, name: str, allowed: frozenset[str] | None = None, beyond: str | None = None) -> Coded:
    """Return a text field; `allowed` is its vocabulary, `beyond` the field that holds what is outside of it."""
    items = c[name]
    if c.missing(name):
        items = [None if x is UNSET else x for x in items]
    coded = Coded.from_optional(items)
    if allowed is not None and not set(coded.names) <= allowed:
        raise Odd
    if beyond is None or c.none(beyond):
        return coded
    if (c.given(name) & c.given(beyond)).any():
        raise Odd
    return Coded.from_optional([x if y is UNSET else y for x, y in zip(items, c[beyond], strict=True)])


def sizes(c: EventColumns) -> _IntArray:
    """Return B; ``lab_bytes: 0`` on ``bytes: 1`` is a zero size."""
    out = np.array(c["bytes"], np.int64)
    zero = c.given("lab_bytes")
    if (zero & (out != 1)).any():
        raise Odd
    return np.where(zero, 0, out) if zero.any() else out


def groups(c: EventColumns, world: Any, file: str, limits: Limits) -> tuple[npt.NDArray[np.int32], GroupTable]:
    """Return the group code of each event and the table of groups; `world` is the world size, ``UNSET`` where it is not given."""
    if world is not UNSET and (type(world) is not int or world < 1):
        raise Odd
    table = GroupTable()
    keys = list(zip(c["group"], [m if type(m) is int else tuple(m) for m in c["ranks"]], strict=True))
    codes: dict[tuple[Any, Any], int] = {}
    total = 0
    for name, members in dict.fromkeys(keys):
        total += members if isinstance(members, int) else len(members)
        limits.check_members(total, file)
        distinct = tuple(range(members)) if isinstance(members, int) else members
        if not distinct or len(set(distinct)) != len(distinct) or (world is not UNSET and max(distinct) >= world):
            raise Odd
        codes[name, members] = table.code(None if name is UNSET else name, distinct)
        limits.check_groups(len(codes), file)
    out = np.fromiter(map(codes.__getitem__, keys), np.int32, len(keys))
    if not c.none("rank_count"):
        sized = table.groups
        if any(count is not UNSET and count != sized[g].size for count, g in set(zip(c["rank_count"], out.tolist(), strict=True))):
            raise Odd
    return out, table


def check_ops(op: Coded, custom: _BoolArray, c: EventColumns) -> None:
    """Refuse names outside the vocabulary that are not declared custom, and reductions of operations that do not reduce."""
    known = np.array([name in OPS for name in op.names] or [True], np.bool_)
    reduces = np.array([name in REDUCTION_OPS for name in op.names] or [True], np.bool_)
    if len(op) and (not (known[op.codes] | custom).all() or not (reduces[op.codes] | ~c.given("reduction_op")).all()):
        raise Odd


def arrivals(c: EventColumns, group: npt.NDArray[np.int32], table: GroupTable, times: Times) -> tuple[Ragged, _BoolArray]:
    """Return arrival offsets per event (one per member, or the skew alone, or nothing), and where the skew is known."""
    n = len(c)
    known = ~c.flag("arrival_skew_unknown")
    if c.flag("partial_rank_arrival").any():
        raise Odd
    skew_given, map_given = c.given("arrival_skew_us"), c.given("rank_arrival_us")
    if ((skew_given | map_given) & ~known).any():
        raise Odd
    alone = skew_given & ~map_given
    _no_skew_alone(c, alone, group, table)
    if not map_given.any():
        if not skew_given.any():
            return Ragged.empty(n), known
        values = times.ns("arrival_skew_us", [x for x in c["arrival_skew_us"] if x is not UNSET], np.flatnonzero(alone))
        return Ragged.from_lengths(values, alone.astype(np.int64)), known
    rows = _arrival_rows(c, group, table)
    lengths = np.fromiter(map(len, rows), np.int64, n)
    owner = np.repeat(np.arange(n), lengths)
    flat = times.ns(lambda i: "arrival_skew_us" if alone[owner[i]] else "rank_arrival_us", list(chain.from_iterable(rows)), owner)
    ragged = Ragged.from_lengths(flat, lengths)
    both = np.flatnonzero(skew_given & map_given)
    if len(both):
        spread = (ragged.reduce(np.maximum) - ragged.reduce(np.minimum))[both]
        skews = c["arrival_skew_us"]
        if (np.abs(spread - times.ns("arrival_skew_us", [skews[i] for i in both.tolist()], both)) > 1).any():
            raise Odd
    return ragged, known


def _no_skew_alone(c: EventColumns, alone: _BoolArray, group: npt.NDArray[np.int32], table: GroupTable) -> None:
    """One rank arrives once: a skew other than 0 on a group of one is a contradiction."""
    single = np.array([g.size == 1 for g in table.groups] or [False], np.bool_)
    if single.any():
        skews = c["arrival_skew_us"]
        if any(skews[i] != 0 for i in np.flatnonzero(alone & single[group]).tolist()):
            raise Odd


def _arrival_rows(c: EventColumns, group: npt.NDArray[np.int32], table: GroupTable) -> list[Sequence[float]]:
    rows: list[Sequence[float]] = []
    orders: dict[tuple[int, tuple[str, ...]], list[int] | None] = {}
    members_of = [g.members for g in table.groups]
    ranks = c["ranks"]
    for i, (arrival, skew, code) in enumerate(zip(c["rank_arrival_us"], c["arrival_skew_us"], group.tolist(), strict=True)):
        if arrival is UNSET:
            rows.append(() if skew is UNSET else (skew,))
        elif type(arrival) is dict:
            key = (code, tuple(arrival))
            if key not in orders:
                orders[key] = _order(key[1], members_of[code])
            order = orders[key]
            values = list(arrival.values())
            rows.append(values if order is None else [values[j] for j in order])
        else:
            rows.append(_listed(arrival, ranks[i], members_of[code]))
    return rows


def _order(keys: tuple[str, ...], members: tuple[int, ...]) -> list[int] | None:
    """Positions of the members' values in an arrival map; None when the map is already in member order."""
    where = {key: i for i, key in enumerate(keys)}
    if len(keys) != len(members):
        raise Odd
    try:
        order = [where[str(m)] for m in members]
    except KeyError:
        raise Odd from None
    return None if order == list(range(len(order))) else order


def _listed(arrival: list[float], ranks: Any, members: tuple[int, ...]) -> list[float]:
    """Values in member order of an arrival list, which follows the order in which the file lists the ranks."""
    if len(arrival) != len(members):
        raise Odd
    if isinstance(ranks, int) or list(members) == ranks:
        return arrival
    where = {r: i for i, r in enumerate(ranks)}
    return [arrival[where[m]] for m in members]


def observers(
    c: EventColumns, group: npt.NDArray[np.int32], table: GroupTable
) -> tuple[npt.NDArray[np.int32], tuple[tuple[int, ...], ...]]:
    """Return the code of the reporting ranks of each event (-1: all members) and the table of rank sets."""
    n = len(c)
    if c.none("lab_observers"):
        return np.broadcast_to(np.int32(-1), (n,)), ()
    sets: dict[tuple[int, ...], int] = {}
    codes = [-1 if x is UNSET else sets.setdefault(tuple(x), len(sets)) for x in c["lab_observers"]]
    ordered = tuple(sets)
    if any(tuple(sorted(set(s))) != s for s in ordered):
        raise Odd
    members_of = [frozenset(g.members) for g in table.groups]
    if any(code >= 0 and not members_of[g].issuperset(ordered[code]) for code, g in set(zip(codes, group.tolist(), strict=True))):
        raise Odd
    return np.array(codes, np.int32), ordered


def overlap(c: EventColumns, times: Times) -> tuple[Column, int]:
    """Return the overlap, and on how many events the file neither gives nor disclaims it, so that the format's default 0 applies."""
    unknown, given = c.flag("compute_overlap_unknown"), c.given("compute_overlap_us")
    if (unknown & given).any():
        raise Odd
    if not c.missing("compute_overlap_us"):
        return times.column(c, "compute_overlap_us"), 0
    if unknown.all() and len(c):
        return Column.absent(len(c)), 0
    values = times.ns("compute_overlap_us", [0.0 if x is UNSET else x for x in c["compute_overlap_us"]])
    return Column(values, ~unknown), int(np.count_nonzero(~unknown & ~given))


def optional_times(c: EventColumns, name: str, times: Times) -> Ragged:
    """Return a field of lists of times, -1 for null."""
    if c.none(name):
        return Ragged.empty(len(c))
    rows = [() if x is UNSET else x for x in c[name]]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = list(chain.from_iterable(rows))
    ns = times.ns(name, [0.0 if x is None else x for x in flat], np.repeat(np.arange(len(rows)), lengths))
    return Ragged.from_lengths(np.where(np.array([x is None for x in flat], np.bool_), -1, ns), lengths)


def ragged_integers(c: EventColumns, name: str) -> Ragged:
    """Return a field of lists of integers."""
    return Ragged.empty(len(c)) if c.none(name) else Ragged.from_rows([() if x is UNSET else x for x in c[name]])


def ids(c: EventColumns) -> Ragged | None:
    """Return the ids as UTF-8, empty where an event has none; None where no event has one."""
    missing = c.missing("id")
    if c.none("id"):
        return None
    items = c["id"]
    names = ["" if x is UNSET else x for x in items] if missing else items
    if len(set(names)) != len(names) - max(0, missing - 1):
        raise Odd
    joined = "".join(names)
    if not joined.isascii():
        encoded = [t.encode() for t in names]
        return Ragged.from_lengths(np.frombuffer(b"".join(encoded), np.uint8), list(map(len, encoded)))
    return Ragged.from_lengths(np.frombuffer(joined.encode(), np.uint8), np.fromiter(map(len, names), np.int64, len(names)))
