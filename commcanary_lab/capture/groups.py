"""Process groups as the recorder sees them: names, global ranks, sequence numbers, and what ran outside the recorder."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from commcanary_lab.capture.rows import GroupRow

__all__ = ["Group", "GroupRegistry"]


@dataclass
class Group:
    """One process group in use.

    Attributes
    ----------
    row : GroupRow
        What the shard says about it.
    own_rank : int
        This process's global rank.
    sequence : iterator of int
        Numbers of its collectives, the same on every rank because ranks issue them in the same order.
    calls, steps : dict
        Per method, how often it was recorded, and what one call adds to the backend's own count.
    """

    row: GroupRow
    own_rank: int
    sequence: Iterator[int] = field(default_factory=itertools.count)
    messages: dict[tuple[int, int, int], Iterator[int]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    def message_number(self, sender: int, receiver: int, tag: int) -> int:
        """Number of the next message of one direction and tag."""
        key = (sender, receiver, tag)
        counter = self.messages.get(key)
        if counter is None:
            counter = self.messages.setdefault(key, itertools.count())
        return next(counter)


class GroupRegistry:
    """Find the `Group` of a torch process group, and account for collectives that bypass the recorder.

    A backend counts every collective it runs. What one recorded call adds to that count is learned from the first call
    of its kind; the rest of the count are collectives issued inside C++ (gradient buckets of DistributedDataParallel,
    functional collectives), which no Python recorder sees.

    Parameters
    ----------
    announce : callable
        Takes the `GroupRow` of a group at its first use.
    """

    def __init__(self, announce: Callable[[GroupRow], None]) -> None:
        self._announce = announce
        self._by_id: dict[int, tuple[weakref.ref[Any], Group]] = {}
        self._groups: dict[tuple[str, tuple[int, ...]], Group] = {}
        self._base: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.outside: dict[str, int] = {}

    def find(self, group: Any) -> Group:
        """Return the registered group of a torch process group.

        Raises
        ------
        KeyError
            If torch does not know the process group.
        """
        known = self._by_id.get(id(group))
        if known is not None and known[0]() is group:
            return known[1]
        return self._register(group)

    def adopt(self, group: Any, entry: Group) -> None:
        """Register a group under an entry that the caller made."""
        self._by_id[id(group)] = (weakref.ref(group), entry)

    def _register(self, group: Any) -> Group:
        from torch.distributed import distributed_c10d as c10d

        position = c10d._world.pg_group_ranks[group]  # global rank -> rank in the group
        ranks = sorted(position, key=position.__getitem__)
        name = _label(group, frozenset(ranks), c10d._world.pg_group_ranks)
        key = (name, tuple(ranks))
        if self._in_use(self._groups.get(key), c10d._world.pg_map):  # an older group of the same name went, and the numbers moved up
            key = (name := f"{name}.{group.group_name}", tuple(ranks))
        found = self._groups.get(key)
        if found is None:  # a group made again after its destruction continues its numbers
            row = GroupRow(len(self._groups), name, ranks, group.group_name, c10d.get_backend(group))
            found = self._groups[key] = Group(row, c10d.get_rank())
            self._announce(row)
        self._by_id[id(group)] = (weakref.ref(group), found)
        return found

    def _in_use(self, entry: Group | None, living: Mapping[Any, object]) -> bool:
        return entry is not None and any(known is entry and ref() in living for ref, known in self._by_id.values())

    # -- what ran outside the recorder --------------------------------------------------------------------------------

    def take_base(self) -> None:
        """Remember the counts of all groups that exist when recording starts."""
        for group in _living_groups():
            count = _count(group)
            if count is not None:
                self._base[id(group)] = (weakref.ref(group), count)

    def account(self) -> None:
        """Update `outside` with the groups that exist now; called before they are destroyed and at the end."""
        for group in _living_groups():
            count = _count(group)
            if count is None:
                continue
            start = self._base.get(id(group))
            base = start[1] if start is not None and start[0]() is group else 0
            known = self._by_id.get(id(group))
            recorded = 0
            if known is not None and known[0]() is group:
                entry = known[1]
                recorded = sum(n * entry.steps.get(method, 1) for method, n in entry.calls.items())
                entry.calls.clear()
            self._base[id(group)] = (weakref.ref(group), count)
            if count - base - recorded > 0:
                name = known[1].row.name if known is not None else _plain_label(group)
                self.outside[name] = self.outside.get(name, 0) + count - base - recorded

    @staticmethod
    def count(group: Any) -> int | None:
        """Return the backend's own count of collectives of a group, None where it has none."""
        return _count(group)


def _living_groups() -> list[Any]:
    from torch.distributed import distributed_c10d as c10d

    return [g for g in c10d._world.pg_map if isinstance(g, c10d.ProcessGroup)] if c10d.is_initialized() else []


def _count(group: Any) -> int | None:
    try:
        return int(group._get_sequence_number_for_group())
    except Exception:  # a backend without a count, or none built yet
        return None


def _plain_label(group: Any) -> str:
    text = str(group.group_desc)
    return str(group.group_name) if text in ("", "undefined") else text


def _label(group: Any, ranks: frozenset[int], living: dict[Any, dict[int, int]]) -> str:
    """The description the job gave, numbered where older groups have the same one and the same ranks.

    Groups are created in the same order on all their ranks, so every rank forms the same label.
    """
    label = _plain_label(group)
    older = 0
    for other, position in living.items():
        if other is group:
            break
        older += frozenset(position) == ranks and _plain_label(other) == label
    return f"{label}.{older + 1}" if older else label
