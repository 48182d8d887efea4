"""Ring orders that a log states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from commcanary_lab.importers.nccl_log_comms import Communicator, Communicators
from commcanary_lab.importers.nccl_log_parts import Instance

__all__ = ["RingOrders", "ring_orders"]


@dataclass(frozen=True)
class RingOrders:
    """What the log says about rings.

    Parameters
    ----------
    by_group : mapping of str to tuple of int
        Global ranks in ring order, for communicators whose channels all use one order.
    notes : tuple of str
        What could not be used.
    """

    by_group: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def ring_orders(instances: Sequence[Instance], communicators: Communicators) -> RingOrders:
    """Collect the ring orders of communicators whose members are known."""
    by_group: dict[str, tuple[int, ...]] = {}
    notes: list[str] = []
    for c in communicators.table:
        members = c.global_ranks
        if members is None or c.nranks < 3:  # a ring of two has one order
            continue
        orders, cut = _channels(c, instances)
        if len(orders) == 1:
            by_group[c.name] = tuple(members[r] for r in orders[0])
        elif orders:
            shown = "; ".join("-".join(str(members[r]) for r in order) for order in orders[:4])
            notes.append(
                f"{c.label}: its channels use {len(orders)} different rings ({shown}): no single order is stated; pass one as ring order"
            )
        elif cut:
            notes.append(f"{c.label}: the log states a part of its ring only")
    return RingOrders(by_group, tuple(notes))


def _channels(c: Communicator, instances: Sequence[Instance]) -> tuple[list[tuple[int, ...]], bool]:
    """Distinct complete orders of a communicator's channels, each from rank 0; and whether some channel is not complete."""
    links: dict[int, dict[int, int]] = {}
    for i in c.instances.values():
        for channel, own in instances[i].links.items():
            links.setdefault(channel, {}).update(own)
    orders = [_order(links[channel], c.nranks) for channel in sorted(links)]
    complete = list(dict.fromkeys(order for order in orders if order is not None))
    return complete, len(complete) < len(links)


def _order(links: Mapping[int, int], nranks: int) -> tuple[int, ...] | None:
    """The ring that links form, from rank 0; None where they do not form one. One link may be missing: it closes the ring.

    Examples
    --------
    >>> _order({0: 2, 2: 1, 1: 0}, 3), _order({1: 0, 0: 2}, 3), _order({0: 1}, 4)
    ((0, 2, 1), (0, 2, 1), None)
    """
    following = dict(links)
    if any(r >= nranks for pair in links.items() for r in pair):
        return None
    if len(following) == nranks - 1:
        (last,) = set(range(nranks)) - set(following)
        first = set(range(nranks)) - set(following.values())
        if len(first) != 1:
            return None
        following[last] = first.pop()
    order, at = [0], following.get(0)
    while at is not None and at != 0 and len(order) < nranks:
        order.append(at)
        at = following.get(at)
    return tuple(order) if at == 0 and len(order) == nranks == len(following) else None
