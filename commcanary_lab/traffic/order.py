"""The order of ranks in rings and chains: assumed to be the group's, or stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commcanary_lab.errors import UsageError
from commcanary_lab.trace import ProcessGroup, Trace
from commcanary_lab.traffic.placement import Placement

__all__ = ["RingOrder", "stated_order"]


def stated_order(trace: Trace) -> dict[str, tuple[int, ...]] | None:
    """Return the ring orders that a trace's source states (``trace.extra["ring_order"]``), by group name; None where it states none.

    Only orders that name every member of a group once are taken.
    """
    stated = trace.extra.get("ring_order")
    if not isinstance(stated, Mapping):
        return None
    orders = {}
    for group in trace.groups:
        order = stated.get(group.name or "")
        if isinstance(order, (list, tuple)) and all(type(r) is int for r in order) and tuple(sorted(order)) == group.members:
            orders[group.name or ""] = tuple(order)
    used = {trace.groups[g].name for g in set(trace.group.tolist())}
    return {name: order for name, order in orders.items() if name in used} or None


@dataclass(frozen=True)
class RingOrder:
    """Which order the ring of each group has.

    Parameters
    ----------
    everywhere : tuple of int or None
        One order of ranks; every group takes its members from it.
    by_group : mapping of str to tuple of int
        Orders by group name.
    rails : Placement, optional
        Order every group by rail, then by node.
    """

    everywhere: tuple[int, ...] | None
    by_group: Mapping[str, tuple[int, ...]]
    rails: Placement | None = None

    @classmethod
    def along_rails(cls, placement: Placement) -> RingOrder:
        """Every ring visits all nodes on one rail, then all on the next.

        Examples
        --------
        >>> world = ProcessGroup("world", tuple(range(8)))
        >>> RingOrder.along_rails(Placement(4)).members(world)
        (0, 4, 1, 5, 2, 6, 3, 7)
        """
        return cls(None, {}, placement)

    @classmethod
    def of(cls, stated: Mapping[str, Sequence[int]] | Sequence[int] | None, groups: Sequence[ProcessGroup]) -> RingOrder:
        """Check what the user states.

        Raises
        ------
        UsageError
            If a rank occurs twice, a name is no group of the trace, or an order lacks a member of its group.

        Examples
        --------
        >>> world = ProcessGroup("world", (0, 1, 2, 3))
        >>> RingOrder.of([0, 2, 1, 3], [world]).members(world), RingOrder.of(None, [world]).members(world)
        ((0, 2, 1, 3), (0, 1, 2, 3))
        """
        if stated is None:
            return cls(None, {})
        if not isinstance(stated, Mapping):
            order = _distinct(stated, "the ring order")
            for group in groups:
                _complete(order, group)
            return cls(order, {})
        by_name = {name: _distinct(order, f"the ring order of {name!r}") for name, order in stated.items()}
        names = {g.name for g in groups if g.name is not None}
        for name in by_name:
            if name not in names:
                raise UsageError(
                    f"the ring order names a group {name!r} that the trace does not have",
                    remedy=f"it has: {', '.join(sorted(names)) or 'no named group'}",
                )
        for group in groups:
            if group.name in by_name:
                _complete(by_name[group.name], group)
        return cls(None, by_name)

    def states(self, group: ProcessGroup) -> bool:
        """Return True if the order of this group was stated."""
        return self.everywhere is not None or group.name in self.by_group

    @cached_property
    def _position(self) -> dict[int, int]:
        return {rank: i for i, rank in enumerate(self.everywhere or ())}

    def members(self, group: ProcessGroup) -> tuple[int, ...]:
        """Return the members in ring order."""
        if self.rails is not None:
            ranks = np.array(group.members, np.int64)
            return tuple(ranks[np.lexsort((ranks, self.rails.nodes(ranks), self.rails.rails(ranks)))].tolist())
        if self.everywhere is not None:
            return tuple(sorted(group.members, key=self._position.__getitem__))
        order = self.by_group.get(group.name or "")
        if order is None:
            return group.members
        wanted = set(group.members)
        return tuple(r for r in order if r in wanted)


def _distinct(order: Sequence[int], what: str) -> tuple[int, ...]:
    out = tuple(order)
    if len(set(out)) != len(out):
        twice = next(r for r in out if out.count(r) > 1)
        raise UsageError(f"{what} holds rank {twice} more than once", remedy="name every rank once")
    return out


def _complete(order: tuple[int, ...], group: ProcessGroup) -> None:
    missing = sorted(set(group.members) - set(order))
    if missing:
        raise UsageError(f"the ring order lacks rank {missing[0]} of {group.label}", remedy="name every member of the group once")
