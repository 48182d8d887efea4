"""Columns of a trace from packed ``commcanary.trace.v1`` events.

Everything here checks whole columns. What does not fit raises `Odd`, and the slow checker of `check_v1` then explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from commcanary_lab.errors import Problem
from commcanary_lab.limits import Limits
from commcanary_lab.trace.columns import Coded, Column, Ragged
from commcanary_lab.trace.events_v1 import EventColumns
from commcanary_lab.trace.groups import GroupTable
from commcanary_lab.trace.ops import OPS, REDUCTION_OPS
from commcanary_lab.units import us_to_ns

__all__ = ["Odd", "Times", "arrivals", "check_ops", "groups", "ids", "integers", "observers", "optional_times", "overlap",
           "sizes", "texts"]  # fmt: skip

_IntArray = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]


class Odd(Exception):
    """A column holds something that the slow checker must explain."""


@dataclass
class Times:
    """Converts time columns to nanoseconds; remembers what rounding changed, or what is not a whole nanosecond."""

    file: str
    accept: bool
    largest_us: float = 0.0
    problems: list[Problem] = field(default_factory=list)

    def ns(
        self, name: str | Callable[[int], str], floats: npt.NDArray[np.float64], rows: npt.NDArray[np.integer] | None = None
    ) -> _IntArray:
        """Convert; `name` is the field (or gives it by position), `rows` the event of each value."""
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
        return _column(self.ns(name, c.numbers(name)), c, name)


def _column(values: npt.NDArray[Any], c: EventColumns, name: str) -> Column:
    return Column(values, c.given(name) if c.missing(name) else None)


def integers(c: EventColumns, name: str, dtype: npt.DTypeLike = np.int64) -> Column:
    """Return a numeric field as a column."""
    return Column.absent(len(c), dtype) if c.none(name) else _column(c.numbers(name), c, name)


def texts(c: EventColumns, name: str, allowed: frozenset[str] | None = None, beyond: str | None = None) -> Coded:
    """Return a text field; `allowed` is its vocabulary, `beyond` the field that holds what is outside of it."""
    coded = c.coded(name)
    if allowed is not None and not set(coded.names) <= allowed:
        raise Odd
    if beyond is None or c.none(beyond):
        return coded
    if (c.given(name) & c.given(beyond)).any():
        raise Odd
    return Coded.from_optional([x or y for x, y in zip(coded.to_list(), c.coded(beyond).to_list(), strict=True)])


def sizes(c: EventColumns) -> _IntArray:
    """Return B; ``lab_bytes: 0`` on ``bytes: 1`` is a zero size."""
    out = c.numbers("bytes")
    zero = c.given("lab_bytes")
    if (zero & (out != 1)).any():
        raise Odd
    return np.where(zero, 0, out) if zero.any() else out


def groups(c: EventColumns, world: Any, file: str, limits: Limits) -> tuple[npt.NDArray[np.int32], GroupTable]:
    """Return the group code of each event and the table of groups; `world` is the world size, ``UNSET`` where it is not given."""
    if world is not UNSET and (type(world) is not int or world < 1):
        raise Odd
    table = GroupTable()
    pairs, keys = c.group_keys()
    codes: list[int] = []
    total = 0
    for name, members in keys:
        total += members if isinstance(members, int) else len(members)
        limits.check_members(total, file)
        distinct = tuple(range(members)) if isinstance(members, int) else members
        if not distinct or len(set(distinct)) != len(distinct) or (world is not UNSET and max(distinct) >= world):
            raise Odd
        codes.append(table.code(None if name is UNSET else name, distinct))
        limits.check_groups(len(codes), file)
    out = np.array(codes, np.int32)[pairs]
    if not c.none("rank_count"):
        sized = np.array([g.size for g in table.groups], np.int64)
        if (c.given("rank_count") & (c.numbers("rank_count") != sized[out])).any():
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
        values = times.ns("arrival_skew_us", c.numbers("arrival_skew_us")[alone], np.flatnonzero(alone))
        return Ragged.from_lengths(values, alone.astype(np.int64)), known
    rows = _arrival_rows(c, group, table, alone)
    owner = np.repeat(np.arange(n), rows.lengths)
    flat = times.ns(lambda i: "arrival_skew_us" if alone[owner[i]] else "rank_arrival_us", rows.values, owner)
    ragged = Ragged(flat, rows.pointers)
    both = np.flatnonzero(skew_given & map_given)
    if len(both):
        spread = (ragged.reduce(np.maximum) - ragged.reduce(np.minimum))[both]
        if (np.abs(spread - times.ns("arrival_skew_us", c.numbers("arrival_skew_us")[both], both)) > 1).any():
            raise Odd
    return ragged, known


def _no_skew_alone(c: EventColumns, alone: _BoolArray, group: npt.NDArray[np.int32], table: GroupTable) -> None:
    """One rank arrives once: a skew other than 0 on a group of one is a contradiction."""
    single = np.array([g.size == 1 for g in table.groups] or [False], np.bool_)
    if single.any() and alone.any() and (alone & single[group] & (c.numbers("arrival_skew_us") != 0)).any():
        raise Odd


def _arrival_rows(c: EventColumns, group: npt.NDArray[np.int32], table: GroupTable, alone: _BoolArray) -> Ragged:
    """Return the arrivals of each event in member order, or its skew where it has that `alone`, in microseconds."""
    shapes, keys = c.arrival_shapes()
    pairs, ranks = c.group_keys()
    listed = c.lists("rank_arrival_us")
    lengths = np.where(alone, 1, listed.lengths)
    out = Ragged.from_lengths(np.zeros(int(lengths.sum())), lengths)
    values = np.zeros(len(out.values))
    values[out.pointers[:-1][alone]] = c.numbers("arrival_skew_us")[alone] if alone.any() else 0
    # all events with the same keys in the same group are put in order together
    kinds, kind = np.unique(np.stack([shapes, pairs]), axis=1, return_inverse=True)
    rows_by_kind = np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind, minlength=kinds.shape[1]))[:-1])
    for (shape, pair), rows in zip(kinds.T.tolist(), rows_by_kind, strict=True):
        if shape < 0:
            continue
        members = table.groups[group[rows[0]]].members
        named = keys[shape]
        order = _listed(ranks[pair][1], members) if named is None else _order(named, members)
        if (listed.lengths[rows] != len(members)).any():
            raise Odd
        values[out.pointers[rows][:, None] + np.arange(len(members))] = listed.values[listed.pointers[rows][:, None] + order]
    return Ragged(values, out.pointers)


def _order(keys: tuple[str, ...], members: tuple[int, ...]) -> _IntArray:
    """Positions of the members' values in an arrival map."""
    where = {key: i for i, key in enumerate(keys)}
    if len(keys) != len(members):
        raise Odd
    try:
        return np.array([where[str(m)] for m in members], np.int64)
    except KeyError:
        raise Odd from None


def _listed(ranks: tuple[int, ...] | int, members: tuple[int, ...]) -> _IntArray:
    """Positions of the members' values in an arrival list, which follows the order in which the file lists the ranks."""
    return np.arange(len(members)) if isinstance(ranks, int) else np.argsort(ranks)


def observers(
    c: EventColumns, group: npt.NDArray[np.int32], table: GroupTable
) -> tuple[npt.NDArray[np.int32], tuple[tuple[int, ...], ...]]:
    """Return the code of the reporting ranks of each event (-1: all members) and the table of rank sets."""
    n = len(c)
    if c.none("lab_observers"):
        return np.broadcast_to(np.int32(-1), (n,)), ()
    codes, ordered = c.rank_sets("lab_observers")
    if any(tuple(sorted(set(s))) != s for s in ordered):
        raise Odd
    members_of = [frozenset(g.members) for g in table.groups]
    for code, g in np.unique(np.stack([codes, group]), axis=1).T.tolist():
        if code >= 0 and not members_of[g].issuperset(ordered[code]):
            raise Odd
    return codes, ordered


def overlap(c: EventColumns, times: Times) -> tuple[Column, int]:
    """Return the overlap, and on how many events the file neither gives nor disclaims it, so that the format's default 0 applies."""
    unknown, given = c.flag("compute_overlap_unknown"), c.given("compute_overlap_us")
    if (unknown & given).any():
        raise Odd
    if not c.missing("compute_overlap_us"):
        return times.column(c, "compute_overlap_us"), 0
    if unknown.all() and len(c):
        return Column.absent(len(c)), 0
    values = times.ns("compute_overlap_us", c.numbers("compute_overlap_us") if given.any() else np.zeros(len(c)))
    return Column(values, ~unknown), int(np.count_nonzero(~unknown & ~given))


def optional_times(c: EventColumns, name: str, times: Times) -> Ragged:
    """Return a field of lists of times, -1 for null."""
    if c.none(name):
        return Ragged.empty(len(c))
    rows = c.lists(name)
    null = np.isnan(rows.values)
    ns = times.ns(name, np.where(null, 0.0, rows.values), np.repeat(np.arange(len(rows)), rows.lengths))
    return Ragged(np.where(null, -1, ns), rows.pointers)


def ids(c: EventColumns) -> Ragged | None:
    """Return the ids as UTF-8, empty where an event has none; None where no event has one."""
    if c.none("id"):
        return None
    names, distinct = c.ids()
    if not distinct:
        raise Odd
    return names
