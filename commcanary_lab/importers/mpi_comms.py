"""Which global ranks the communicators of PMPI traces have: the world, and what is made from it by split and dup."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commcanary_lab.importers.mpi_lines import Call, Comm

__all__ = ["Group", "memberships"]

#: Communicators made from communicators made from ... the world.
_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Group:
    """A communicator.

    Parameters
    ----------
    members : tuple of int
        Global ranks in the communicator's own order.
    name : str or None
        Tells communicators of the same ranks apart.
    """

    members: tuple[int, ...]
    name: str | None


_Known = dict[int, dict[Comm, Group]]
#: Creations per rank: (call index, members or None where they cannot be computed).
_Made = dict[int, list[tuple[int, tuple[int, ...] | None]]]


def memberships(calls: Mapping[int, Sequence[Call]], size: int) -> _Known:
    """Return the communicators of each rank whose members are known.

    Parameters
    ----------
    calls : mapping of int to sequence of Call
        Calls by global rank.
    size : int
        Ranks of the job.

    Returns
    -------
    dict
        Global rank -> {communicator as the rank sees it -> Group}.
    """
    known: _Known = {rank: {} for rank in calls}
    for rank, own in calls.items():
        world = next((c.comm for c in own if c.comm is not None and c.comm.size == size), None)
        if world is not None:
            known[rank][world] = Group(tuple(range(size)), "world")
        for call in own:
            if call.comm is not None and call.comm.size == 1:
                known[rank].setdefault(call.comm, Group((rank,), None))
    for _ in range(_DEPTH):
        before = sum(map(len, known.values()))
        made = _created(calls, known)
        for rank, own in calls.items():
            _assign(rank, own, made.get(rank, []), known[rank], size)
        if sum(map(len, known.values())) == before:
            break
    _spanning(calls, known, size)
    return known


def _created(calls: Mapping[int, Sequence[Call]], known: _Known) -> _Made:
    """What each rank's splits and dups of known communicators make."""
    steps: dict[tuple[Group, int], dict[int, tuple[Call, int]]] = defaultdict(dict)
    for rank, own in calls.items():
        turn: dict[Group, int] = defaultdict(int)
        for i, call in enumerate(own):
            if call.name in ("Comm_split", "Comm_dup") and call.comm in known[rank]:
                parent = known[rank][call.comm]
                steps[(parent, turn[parent])][rank] = (call, i)
                turn[parent] += 1
    made: _Made = defaultdict(list)
    for (parent, _), by_rank in steps.items():
        whole = set(by_rank) == set(parent.members) and len({c.name for c, _ in by_rank.values()}) == 1
        for rank, (call, i) in by_rank.items():
            if call.name == "Comm_dup":
                made[rank].append((i, parent.members))
            elif not whole:
                made[rank].append((i, None))
            elif call.numbers["color"] >= 0:
                same = [r for r in parent.members if by_rank[r][0].numbers["color"] == call.numbers["color"]]
                made[rank].append((i, tuple(sorted(same, key=lambda r: (by_rank[r][0].numbers["key"], parent.members.index(r))))))
    return {rank: sorted(rows, key=lambda row: row[0]) for rank, rows in made.items()}


def _assign(rank: int, calls: Sequence[Call], made: list[tuple[int, tuple[int, ...] | None]], known: dict[Comm, Group], size: int) -> None:
    """Give each communicator that a rank uses the creation that it comes from, where only one fits."""
    taken: list[int] = []
    for group in list(known.values())[1:]:
        match = next((i for i, members in made if members == group.members and i not in taken), None)
        if match is not None:
            taken.append(match)
    for i, call in enumerate(calls):
        comm = call.comm
        if comm is None or comm in known:
            continue
        fits = [
            (at, members)
            for at, members in made
            if at < i and at not in taken and (members is None or (len(members) == comm.size and members[comm.rank] == rank))
        ]
        if not fits or len({members for _, members in fits}) > 1 or fits[0][1] is None:
            continue
        taken.append(fits[0][0])
        known[comm] = Group(fits[0][1], _name(fits[0][1], known, size))


def _name(members: tuple[int, ...], known: Mapping[Comm, Group], size: int) -> str | None:
    earlier = sum(sorted(g.members) == sorted(members) for g in known.values())  # another order is another communicator too
    base = "world" if len(members) == size else None
    return base if not earlier else f"{base or 'communicator'} #{earlier + 1}"


def _spanning(calls: Mapping[int, Sequence[Call]], known: _Known, size: int) -> None:
    """A communicator of all ranks that nothing explains (a grid, say): where every rank shows its place in it, that is its order."""
    unknown = {
        rank: list(dict.fromkeys(c.comm for c in own if c.comm is not None and c.comm.size == size and c.comm not in known[rank]))
        for rank, own in calls.items()
    }
    if len(unknown) < size or len({len(x) for x in unknown.values()}) != 1:
        return
    for row in zip(*unknown.values(), strict=True):
        by_place = {comm.rank: rank for rank, comm in zip(unknown, row, strict=True)}
        if len(by_place) != size:
            return
        members = tuple(by_place[i] for i in range(size))
        for rank, comm in zip(unknown, row, strict=True):
            known[rank][comm] = Group(members, _name(members, known[rank], size))
