"""Which handles of a log form one communicator, and which global ranks its members are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from commcanary_lab.importers.nccl_log_parts import Instance, Process
from commcanary_lab.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from commcanary_lab.importers.nccl_log_layout import Found
    from commcanary_lab.layout import Layout

__all__ = ["Communicator", "Communicators", "join"]

_Slot: TypeAlias = tuple[Process, int | None]

NO_INIT = "members unknown: no set-up line (NCCL_DEBUG_SUBSYS=INIT,COLL) describes its communicator"
PARTLY = "members unknown: the log does not show all ranks of its communicator"
NO_WORLD = "members unknown: no communicator of the log gives the global ranks"
CONTRADICTION = "members unknown: the set-up lines of its communicator contradict each other"


@dataclass(frozen=True)
class Communicator:
    """A communicator.

    Parameters
    ----------
    name : str
        The number that its ranks share, where the log has it; otherwise what it was split from, or an address.
    nranks : int
        Number of ranks.
    instances : mapping of int to int
        Rank inside the communicator -> index of the handle.
    members : tuple of int or None
        Global rank of each of its ranks; None where unknown.
    reason : str, optional
        Why the members are unknown.
    inferred : bool
        The log does not say that these handles belong together.
    """

    name: str
    nranks: int
    instances: Mapping[int, int]
    members: tuple[int | None, ...] = ()
    reason: str | None = None
    inferred: bool = False

    @property
    def global_ranks(self) -> tuple[int, ...] | None:
        """Global ranks in the communicator's own order, or None where one is unknown."""
        known = tuple(r for r in self.members if r is not None)
        return known if len(known) == self.nranks else None

    @property
    def label(self) -> str:
        """Name and size for people."""
        return f"communicator {self.name} ({self.nranks} rank{'s' if self.nranks != 1 else ''})"


@dataclass(frozen=True)
class Communicators:
    """All communicators of a log.

    Parameters
    ----------
    table : tuple of Communicator
        In order of appearance.
    of_instance : tuple of int
        Index into `table` per handle.
    rank_of_instance : tuple of int
        Rank of the handle inside its communicator; -1 where unknown.
    world_size : int, optional
        Number of ranks of the job, where a communicator spans it.
    hosts : mapping of str to list of int
        Global ranks of each host.
    notes, warnings : tuple of str
        What was assumed.
    """

    table: tuple[Communicator, ...]
    of_instance: tuple[int, ...]
    rank_of_instance: tuple[int, ...]
    world_size: int | None
    hosts: Mapping[str, list[int]]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def join(
    instances: Sequence[Instance],
    peers: Mapping[int, set[int]],
    given: Mapping[int, int],
    layout: Layout | None = None,
    limits: Limits = DEFAULT,
) -> Communicators:
    """Join handles to communicators and find the members.

    Parameters
    ----------
    instances : sequence of Instance
        Handles.
    peers : mapping of int to set of int
        Peers of the messages of each handle.
    given : mapping of int to int
        Global rank of each log file, where the user gives it.
    layout : Layout, optional
        The groups of the job.
    limits : Limits
        Resource limits.

    Returns
    -------
    Communicators

    Raises
    ------
    RefusedError
        If a layout is given, and more than one assignment fits it.
    InputError
        If none does.
    LimitError
        If there are too many communicators, or they have too many members.
    """
    groups = _grouped(instances)
    limits.check_groups(len(groups), "the logs together")
    table, ranks = _table(instances, groups, peers, given)
    limits.check_members(sum(c.nranks for c in table if c.instances), "the logs together")
    notes: list[str] = []
    warnings: list[str] = []
    slots, world = _world(instances, table, ranks, given, notes)
    if layout is None:
        table = [_with_members(c, instances, slots, world) for c in table]
    else:
        complete = slots if given or (world == layout.world_size == len(slots)) else {}
        found = _from_layout(instances, groups, complete, layout)
        groups, slots, world, notes = found.groups, found.slots, layout.world_size, list(found.notes)
        table, ranks = _table(instances, groups, peers, given)
        table = [_laid_out(c, i, found, instances) for i, c in enumerate(table)]
    inferred = [c for c in table if c.inferred and c.reason is None and c.nranks > 1]
    warnings += [_inference(c, instances) for c in inferred]
    for c in table:
        if c.reason == CONTRADICTION:
            warnings.append(f"{c.label}: two handles claim one rank, or a rank is outside of it; its operations are left out")
    hosts: dict[str, set[int]] = defaultdict(set)
    for (process, _), rank in slots.items():
        if process.pid >= 0:
            hosts[process.host].add(rank)
    of_instance = [-1] * len(instances)
    for code in range(len(table)):
        for i in groups[code]:
            of_instance[i] = code
    return Communicators(tuple(table), tuple(of_instance), tuple(ranks), world, {h: sorted(r) for h, r in sorted(hosts.items())},
                         tuple(notes), tuple(warnings))  # fmt: skip


def _from_layout(instances: Sequence[Instance], groups: Sequence[Sequence[int]], known: Mapping[_Slot, int], layout: Layout) -> Found:
    from commcanary_lab.importers.nccl_log_layout import resolve

    return resolve(instances, groups, known, layout)


def _laid_out(c: Communicator, index: int, found: Found, instances: Sequence[Instance]) -> Communicator:
    if index not in found.members:
        return c if c.reason is not None else replace(c, reason=NO_INIT)
    named = any(instances[i].comm_id is not None for i in c.instances.values())
    name = c.name if named else found.names.get(index, c.name)
    return replace(c, name=name, members=found.members[index], reason=None, inferred=False)


def _inference(c: Communicator, instances: Sequence[Instance]) -> str:
    shown = ", ".join(f"{instances[i].label} = {rank}" for rank, i in sorted(c.instances.items())[:4])
    shown += ", ..." if len(c.instances) > 4 else ""
    if all(instances[i].has_init for i in c.instances.values()):
        return f"{c.label}: this version gives no number to communicators: inferred, because each of its ranks occurs once ({shown})"
    if all(instances[i].stated_ranks for i in c.instances.values()):
        return f"{c.label}: no set-up lines: inferred from globalrank, each of which occurs once ({shown})"
    return (
        f"{c.label}: no set-up lines: inferred, because the log shows handles of {c.nranks} processes or devices; ranks in the order of "
        f"hosts and devices ({shown})"
    )


def _grouped(instances: Sequence[Instance]) -> list[list[int]]:
    """Handles that belong together, as far as the log says so."""
    groups: dict[Hashable, list[int]] = {}
    keys: dict[int, Hashable] = {}
    born: dict[Hashable, int] = defaultdict(int)
    for i, instance in enumerate(instances):
        key: Hashable
        if instance.comm_id is not None:
            key = ("id", instance.comm_id, instance.nranks)
        elif instance.parent is not None:
            key = ("split", keys[id(instance.parent)], instance.ordinal, instance.color, instance.nranks)
        elif instance.has_init:
            # versions without a number: the n-th communicator of this size that each process set up
            turn = (instance.slot, instance.nranks)
            key = ("size", instance.nranks, born[turn])
            born[turn] += 1
        else:
            key = ("alone", i)
        keys[id(instance)] = key
        groups.setdefault(key, []).append(i)
    return _of_equal_size(instances, list(groups.values()))


def _of_equal_size(instances: Sequence[Instance], groups: list[list[int]]) -> list[list[int]]:
    """Without any set-up line: the handles of one size, where each can be another rank of one communicator."""
    if any(i.has_init for i in instances):
        return groups
    by_size: dict[int, list[int]] = defaultdict(list)
    for group in groups:
        by_size[instances[group[0]].nranks] += group
    out = []
    for nranks, handles in by_size.items():
        slots = {instances[i].slot for i in handles}
        fits = len(slots) == len(handles) <= nranks and not any(instances[i].doubt for i in handles)
        out += [sorted(handles)] if fits else [[i] for i in handles]
    return sorted(out)


def _table(
    instances: Sequence[Instance], groups: Sequence[Sequence[int]], peers: Mapping[int, set[int]], given: Mapping[int, int]
) -> tuple[list[Communicator], list[int]]:
    ranks = [-1 if i.rank is None else i.rank for i in instances]
    table = []
    for group in groups:
        first = instances[group[0]]
        stated = all(instances[i].rank is not None for i in group)
        if not stated:
            _ranks_of_unstated(instances, group, peers, given, ranks)
        distinct = len({ranks[i] for i in group}) == len(group) and all(ranks[i] < first.nranks for i in group)
        known = all(ranks[i] >= 0 for i in group)
        reason = None
        if (doubt := next((instances[i].doubt for i in group if instances[i].doubt), None)) is not None:
            reason = doubt
        elif not known and first.nranks != 1:
            reason = NO_INIT
        elif known and not distinct:
            reason = CONTRADICTION
        inferred = not stated or (first.comm_id is None and first.parent is None)
        by_rank = {ranks[i]: i for i in group} if known and distinct else {}
        joined = inferred and len(group) > 1
        table.append(Communicator(_name(instances, group, ranks), first.nranks, by_rank, reason=reason, inferred=joined))
    return table, ranks


def _ranks_of_unstated(
    instances: Sequence[Instance], group: Sequence[int], peers: Mapping[int, set[int]], given: Mapping[int, int], ranks: list[int]
) -> None:
    """Ranks of handles that no set-up line describes: RCCL's globalrank, the ranks given, or the order of hosts and devices."""
    nranks = instances[group[0]].nranks
    stated = [next(iter(instances[i].stated_ranks)) if len(instances[i].stated_ranks) == 1 else -1 for i in group]
    if all(0 <= r < nranks for r in stated):
        for i, rank in zip(group, stated, strict=True):
            ranks[i] = rank
        return
    if len(group) != nranks:
        return
    hosts = list(dict.fromkeys(instances[i].process.host for i in group))

    def place(i: int) -> tuple[int, int, int]:
        at = instances[i]
        return hosts.index(at.process.host), -1 if at.device is None else at.device, at.process.pid

    if all(instances[i].file in given for i in group):
        order = sorted(group, key=lambda i: given[instances[i].file])
    else:
        order = sorted(group, key=place)
    if nranks == 2 and (peers.get(order[0]) == {0} or peers.get(order[1]) == {1}) and not (peers.get(order[0], set()) - {0}):
        order.reverse()  # it sends to rank 0, so it is rank 1
    for rank, i in enumerate(order):
        ranks[i] = rank


def _name(instances: Sequence[Instance], group: Sequence[int], ranks: Sequence[int]) -> str:
    first = instances[min(group, key=lambda i: (ranks[i], i))]
    if first.comm_id is not None:
        return first.comm_id
    if first.parent is not None:
        above = first.parent.comm_id or first.parent.pointer
        return f"{above} split {first.ordinal} color {first.color}"
    return f"{first.pointer} of {first.label}"


def _world(
    instances: Sequence[Instance], table: Sequence[Communicator], ranks: Sequence[int], given: Mapping[int, int], notes: list[str]
) -> tuple[dict[_Slot, int], int | None]:
    """Global rank of each process and device, and the size of the job."""
    usable = [c for c in table if c.instances and c.reason is None]
    size = max((c.nranks for c in usable), default=0)
    if any(i.nranks > size for i in instances if i.doubt is None):
        usable = []  # the largest communicator is not described
    # what was split from another communicator is not the whole job
    largest = [c for c in usable if c.nranks == size and all(instances[i].color is None for i in c.instances.values())]
    slots = _consistent(instances, largest)
    if given:
        slots = {i.slot: given[i.file] for i in instances if i.file in given}
        notes.append("global ranks are those given for the files")
        return slots, size if largest and max(slots.values(), default=0) < size else None
    described = any(i.has_init for i in instances)
    others = {i.slot for i in instances if i.has_init or not (described or i.doubt)} - set(slots or {})
    if slots is None or not largest or others:
        return {}, None
    shown = "all" if len(slots) == size else f"{len(slots)}"
    assumed = "" if len(slots) == size else "; taken as the whole job, because the log shows no larger one"
    notes.append(f"global ranks are the ranks of {largest[0].label}, the largest; the log shows {shown} of them{assumed}")
    return slots, size


def _consistent(instances: Sequence[Instance], largest: Sequence[Communicator]) -> dict[_Slot, int] | None:
    """Rank of each slot in communicators that all have the same ranks; None where they differ."""
    slots: dict[_Slot, int] = {}
    holders: dict[int, _Slot] = {}
    for c in largest:
        for rank, i in c.instances.items():
            slot = instances[i].slot
            if slots.setdefault(slot, rank) != rank or holders.setdefault(rank, slot) != slot:
                return None
    return slots


def _with_members(c: Communicator, instances: Sequence[Instance], slots: Mapping[_Slot, int], world: int | None) -> Communicator:
    if c.reason is not None or not c.instances:
        if c.reason is None and c.nranks == 1 and not c.instances:
            return replace(c, reason=NO_WORLD)
        return c
    if c.nranks == world:
        return replace(c, members=tuple(range(c.nranks)))
    members: list[int | None] = [None] * c.nranks
    for rank, i in c.instances.items():
        members[rank] = _rank_of(instances[i], slots)
    if None not in members:
        if len(set(members)) < c.nranks:
            return replace(c, reason=CONTRADICTION)
        return replace(c, members=tuple(members))
    return replace(c, members=tuple(members), reason=NO_WORLD if not slots else PARTLY)


def _rank_of(instance: Instance, slots: Mapping[_Slot, int]) -> int | None:
    if instance.slot in slots:
        return slots[instance.slot]
    mine = {rank for (process, _), rank in slots.items() if process == instance.process}
    return mine.pop() if len(mine) == 1 else None  # one device per process: the prefix may name it differently
