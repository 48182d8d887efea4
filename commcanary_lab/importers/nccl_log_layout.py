"""Members of a log's communicators from a layout, where the set-up lines alone do not say them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from commcanary_lab.importers import membership
from commcanary_lab.importers.nccl_log_parts import Instance, Process
from commcanary_lab.layout import Layout

__all__ = ["Found", "resolve"]


@dataclass(frozen=True)
class Found:
    """Communicators whose members a layout gives.

    Parameters
    ----------
    groups : list of list of int
        Handles of each communicator; those without a rank are left as they were, alone.
    members : dict of int to tuple of int
        Index into `groups` -> global ranks in the communicator's own order.
    names : dict of int to str
        Name in the layout, for communicators without a number.
    slots : dict
        Global rank of each process and device.
    notes : tuple of str
        Where members are known from.
    """

    groups: list[list[int]]
    members: dict[int, tuple[int, ...]]
    names: dict[int, str]
    slots: dict[tuple[Process, int | None], int]
    notes: tuple[str, ...]


def resolve(
    instances: Sequence[Instance], groups: Sequence[Sequence[int]], known: Mapping[tuple[Process, int | None], int], layout: Layout
) -> Found:
    """Find members from a layout.

    Parameters
    ----------
    instances : sequence of Instance
        Handles.
    groups : sequence of sequence of int
        Handles that the log joins.
    known : mapping
        Global ranks that the log or the user states.
    layout : Layout
        The groups that there are.

    Raises
    ------
    RefusedError
        If more than one assignment fits; lists the candidates.
    InputError
        If none fits.
    """
    pieces = _pieces(instances, groups)
    usable = [p for p in pieces if all(_rank(instances[i]) is not None and instances[i].doubt is None for i in p)]
    slots = list(dict.fromkeys(instances[i].slot for p in usable for i in p))
    number = {slot: n for n, slot in enumerate(slots)}
    asked = [
        membership.Communicator(
            instances[p[0]].comm_id or "",
            None,
            instances[p[0]].nranks,
            len({instances[i].process.host for i in p}) if len(p) == instances[p[0]].nranks else 0,
            tuple(sorted((_rank(instances[i]) or 0, number[instances[i].slot]) for i in p)),
        )
        for p in usable
    ]
    labels = [f"{process.label} [{device}]" for process, device in slots]
    ranks = {number[slot]: rank for slot, rank in known.items() if slot in number}
    found = membership.resolve(asked, labels, layout=layout, ranks=ranks)
    joined: dict[Hashable, list[int]] = {}
    facts: dict[Hashable, int] = {}
    turn: dict[Hashable, int] = defaultdict(int)
    for n, p in enumerate(usable):
        key: Hashable = ("own", n)
        if len(p) < asked[n].size and asked[n].id == "":  # handles of one group, the n-th that each process set up for it
            own = (found.members[n], instances[p[0]].slot)
            key = (found.members[n], turn[own])
            turn[own] += 1
        joined.setdefault(key, []).extend(p)
        facts.setdefault(key, n)
    rest = [p for p in pieces if p not in usable]
    global_ranks = {}
    for n, p in enumerate(usable):
        for i in p:
            global_ranks[instances[i].slot] = found.members[n][_rank(instances[i]) or 0]
    keys = list(joined)
    return Found(
        [*joined.values(), *rest],
        {at: found.members[facts[key]] for at, key in enumerate(keys)},
        {at: name for at, key in enumerate(keys) if (name := found.groups[facts[key]].name) is not None},
        global_ranks,
        found.notes,
    )


def _rank(instance: Instance) -> int | None:
    """Rank of a handle in its communicator: from its set-up line, or RCCL's globalrank, which is that and not a rank of the job."""
    if instance.rank is not None or len(instance.stated_ranks) != 1:
        return instance.rank
    (stated,) = instance.stated_ranks
    return stated if stated < instance.nranks else None


def _pieces(instances: Sequence[Instance], groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """The log's communicators; those without a number that hold a rank twice fall apart into handles."""
    out = []
    for group in groups:
        first = instances[group[0]]
        ranks = [_rank(instances[i]) for i in group]
        apart = first.comm_id is None and first.parent is None and (len(set(ranks)) < len(ranks) or len(ranks) < first.nranks)
        out += [[i] for i in group] if apart else [list(group)]
    return out
