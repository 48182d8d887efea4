"""Which global ranks form which communicator, for sources that number ranks inside each communicator only.

In this order: a layout names the communicator, by its id or its name; names such as "TP Group 1" imply a layout; a communicator that
joins all processes has their global ranks; and what is then known of some processes decides about their other communicators. Where more
than one assignment fits, none is chosen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from commcanary_lab.errors import InputError, Problem, RefusedError
from commcanary_lab.importers.membership_model import Communicator, Membership
from commcanary_lab.importers.membership_names import group_of_id, layout_of_names
from commcanary_lab.layout import Layout, kind_and_number
from commcanary_lab.trace.groups import ProcessGroup, ranks_text

__all__ = ["Communicator", "Membership", "resolve"]

#: How many assignments are tried before the answer is that it is not clear.
_MAX_TRIES = 256
_SHOWN = 6
_LAYOUT = "say which global ranks they join: --layout FILE, with sizes or with [groups] by name or id (docs/formats/layout.md)"


def resolve(
    communicators: Sequence[Communicator],
    processes: Sequence[str],
    *,
    layout: Layout | None = None,
    ranks: Mapping[int, int] | None = None,
) -> Membership:
    """Find the global ranks of communicators.

    Parameters
    ----------
    communicators : sequence of Communicator
        All of them.
    processes : sequence of str
        What the processes are called, by number.
    layout : Layout, optional
        The groups that there are.
    ranks : mapping of int to int, optional
        Global ranks of processes, where they are known.

    Returns
    -------
    Membership

    Raises
    ------
    RefusedError
        If more than one assignment fits, or nothing says which ranks a communicator joins; lists the candidates.
    InputError
        If none fits.

    Examples
    --------
    >>> found = resolve([Communicator("0xa", "TP Group 1", 2, 1, ((0, 0),))], ["n1 pid 7"], layout=Layout(tp=2, dp=2))
    >>> found.members, found.groups[0].label
    (((2, 3),), 'TP Group 1 (2 ranks: 2-3)')
    """
    notes: list[str] = []
    stated = layout
    if layout is None and (layout := layout_of_names([(c.name, c.size) for c in communicators])) is not None:
        sizes = ", ".join(f"{kind}={size}" for kind in ("tp", "cp", "ep", "dp", "pp") if (size := getattr(layout, kind)) > 1)
        notes.append(f"members of communicators: inferred from their names ({sizes or '1 rank'}; order {', '.join(layout.order)})")
    case = _Case(communicators, processes, layout)
    state = _State()
    try:
        for process, rank in (ranks or {}).items():
            case.know(state, process, rank)
        for i, c in enumerate(communicators):
            if (group := _stated(c, layout)) is not None:
                case.settle(state, i, group)
        if layout is None and (world := case.world(state)) is not None:
            case.settle(state, world, ProcessGroup(communicators[world].name, tuple(range(communicators[world].size))))
            notes.append(f"{communicators[world].label} is taken as the whole job: its ranks are the global ranks")
        case.spread(state, range(len(communicators)))
        case.cross(state)
    except _Conflict as e:
        raise InputError(str(e), remedy="open one run at a time, and with its own layout") from None
    if len(state.groups) < len(communicators):
        state = _only_one(case, state)
    if stated is not None:
        notes.append("members of communicators: from the layout")
    members = tuple(state.members[i] for i in range(len(communicators)))
    groups = tuple(ProcessGroup(c.name or state.groups[i] or c.id or None, tuple(sorted(members[i]))) for i, c in enumerate(communicators))
    return Membership(members, groups, tuple(notes))


def _stated(c: Communicator, layout: Layout | None) -> ProcessGroup | None:
    """The group that a layout states for a communicator, by its id or name."""
    if layout is None:
        return None
    group = group_of_id(layout, c.id, c.size) or (layout.group_named(c.name) if c.name else None)
    if group is not None and group.size != c.size:
        raise InputError(
            f"{c.label} is {group.label} in the layout",
            field=group.name,
            remedy="the layout is that of another job: correct its sizes or groups",
        )
    return group


@dataclass
class _State:
    """What is known so far."""

    rank_of: dict[int, int] = field(default_factory=dict)
    process_of: dict[int, int] = field(default_factory=dict)
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    groups: dict[int, str | None] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.rank_of), dict(self.process_of), dict(self.members), dict(self.groups))


class _Conflict(Exception):
    """An assignment does not fit."""


@dataclass(frozen=True)
class _Case:
    """The question."""

    communicators: Sequence[Communicator]
    processes: Sequence[str]
    layout: Layout | None

    @cached_property
    def shared(self) -> frozenset[int]:
        """Processes that hold several ranks of one communicator: which of them is meant elsewhere is not known."""
        out: set[int] = set()
        for c in self.communicators:
            own = Counter(p for _, p in c.seen)
            out.update(p for p, count in own.items() if count > 1)
        return frozenset(out)

    @cached_property
    def of_process(self) -> Mapping[int, list[int]]:
        """Communicators of each process."""
        out: dict[int, list[int]] = defaultdict(list)
        for i, c in enumerate(self.communicators):
            for _, process in c.seen:
                out[process].append(i)
        return out

    @cached_property
    def pools(self) -> tuple[Mapping[int, list[ProcessGroup]], Mapping[tuple[int, int], list[ProcessGroup]]]:
        """Groups of the layout by size, and by size and member; each set of ranks once."""
        by_size: dict[int, list[ProcessGroup]] = defaultdict(list)
        by_rank: dict[tuple[int, int], list[ProcessGroup]] = defaultdict(list)
        if self.layout is not None:
            sizes = {c.size for c in self.communicators}
            groups = (*self.layout.all_groups, ProcessGroup("world", self.layout.ranks))
            for group in {g.members: g for g in reversed(groups) if g.size in sizes}.values():
                by_size[group.size].append(group)
                for rank in group.members:
                    by_rank[group.size, rank].append(group)
        return {k: v[::-1] for k, v in by_size.items()}, {k: v[::-1] for k, v in by_rank.items()}

    def world(self, state: _State) -> int | None:
        """The largest communicator, if it joins all processes, contradicts no known rank, and its name does not speak of others."""
        largest = max((c.size for c in self.communicators), default=0)
        everybody = {p for c in self.communicators for _, p in c.seen}
        for i, c in enumerate(self.communicators):
            numbered = c.name is not None and kind_and_number(c.name) is not None
            if c.size == largest and not numbered and {p for _, p in c.seen} == everybody:
                return i if all(state.rank_of.get(p, position) == position for position, p in c.seen) else None
        return None

    # -- consequences -------------------------------------------------------------------------------------------------

    def know(self, state: _State, process: int, rank: int) -> bool:
        """Note the rank of a process; False where it was known."""
        other = state.process_of.setdefault(rank, process)
        if other != process:
            raise _Conflict(f"{self.processes[other]} and {self.processes[process]} would both be rank {rank}")
        if process in self.shared or state.rank_of.get(process) == rank:
            return False
        if process in state.rank_of:
            raise _Conflict(f"{self.processes[process]} would be both rank {state.rank_of[process]} and rank {rank}")
        state.rank_of[process] = rank
        return True

    def assign(self, state: _State, index: int, group: ProcessGroup, members: tuple[int, ...] | None = None) -> list[int]:
        """Give a communicator its ranks; returns the processes whose rank this tells."""
        ranks = group.members if members is None else members
        state.members[index], state.groups[index] = ranks, group.name
        return [process for position, process in self.communicators[index].seen if self.know(state, process, ranks[position])]

    def settle(self, state: _State, index: int, group: ProcessGroup) -> None:
        """Assign what a source or layout states."""
        try:
            self.assign(state, index, group)
        except _Conflict as e:
            label = self.communicators[index].label
            raise _Conflict(f"{label} as {group.label}: {e}") from None

    def candidates(self, state: _State, index: int) -> list[ProcessGroup]:
        """Groups that a communicator can be."""
        c = self.communicators[index]
        by_size, by_rank = self.pools
        known = [(position, state.rank_of[p]) for position, p in c.seen if p in state.rank_of]
        pool = by_rank.get((c.size, known[0][1]), []) if known else by_size.get(c.size, [])
        node = self.layout.gpus_per_node if self.layout is not None and c.nodes else None
        return [
            g
            for g in pool
            if all(g.members[position] == rank for position, rank in known)
            and (node is None or len({r // node for r in g.members}) == c.nodes)
            and all(state.process_of.get(g.members[position], p) == p for position, p in c.seen)
        ]

    def spread(self, state: _State, begin: Iterable[int]) -> None:
        """Follow what is known until nothing new comes out.

        Raises
        ------
        _Conflict
            If a communicator can be no group.
        """
        queue = list(dict.fromkeys(begin))
        for index in queue:
            if index in state.members:
                continue
            c = self.communicators[index]
            found = self.candidates(state, index)
            observed = {position: state.rank_of[p] for position, p in c.seen if p in state.rank_of}
            if not found and len(observed) == c.size:  # every member is known by its process
                ranks = tuple(observed[i] for i in range(c.size))
                new = self.assign(state, index, ProcessGroup(None, tuple(sorted(ranks))), ranks)
            elif not found and self.layout is not None:
                raise _Conflict(f"{c.label}, seen in {self._seen(c)}, is no group of the layout")
            elif len(found) == 1:
                new = self.assign(state, index, found[0])
            else:
                continue
            queue += [i for process in new for i in self.of_process[process] if i not in state.members]

    def cross(self, state: _State) -> None:
        """Find processes whose places in several communicators leave one rank only.

        Raises
        ------
        _Conflict
            If two processes would be one rank, or a communicator can be no group.
        """
        by_size, _ = self.pools
        places: dict[tuple[int, int], frozenset[int]] = {}
        common: dict[frozenset[tuple[int, int]], int | None] = {}
        told = []
        for process, own in self.of_process.items():
            if process in state.rank_of or process in self.shared:
                continue
            at = frozenset(
                (self.communicators[i].size, position) for i in own for position, p in self.communicators[i].seen if p == process
            )
            if at not in common:
                for size, position in at:
                    if (size, position) not in places:
                        places[size, position] = frozenset(g.members[position] for g in by_size.get(size, ()))
                ranks = frozenset.intersection(*(places[x] for x in at))
                common[at] = next(iter(ranks)) if len(ranks) == 1 else None
            if (rank := common[at]) is not None and self.know(state, process, rank):
                told.append(process)
        self.spread(state, [i for process in told for i in self.of_process[process]])

    def _seen(self, c: Communicator) -> str:
        names = [self.processes[p] for _, p in c.seen]
        return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _only_one(case: _Case, state: _State) -> _State:
    """The only assignment of what is open; refuses where there are more, or where it is not clear."""
    tries = [_MAX_TRIES]
    found = _assignments(case, state, tries) if case.layout is not None else []
    if len(found) == 1 and tries[0] > 0:
        return found[0]
    open_ = [i for i in range(len(case.communicators)) if i not in state.members]
    if case.layout is not None and not found and tries[0] > 0:
        labels = ", ".join(case.communicators[i].label for i in open_[:_SHOWN])
        raise InputError(f"no assignment of {labels} to groups of the layout fits", remedy="the layout is that of another job")
    if len(found) == 2:
        open_ = [i for i in open_ if found[0].members[i] != found[1].members[i]]
    problems = []
    for i in open_:
        could = [f"{g.name or 'unnamed'} ({ranks_text(g.members)})" for g in case.candidates(state, i)]
        listed = " or ".join(could[:_SHOWN]) + (f" or {len(could) - _SHOWN} more" if len(could) > _SHOWN else "")
        what = f"could be {listed}" if could else "does not say which global ranks it joins"
        problems.append(Problem(f"{case.communicators[i].label}, seen in {case._seen(case.communicators[i])}, {what}", remedy=_LAYOUT))
    raise RefusedError(problems)


def _assignments(case: _Case, state: _State, tries: list[int]) -> list[_State]:
    """Up to two assignments of everything that is open."""
    open_ = [i for i in range(len(case.communicators)) if i not in state.members]
    if not open_:
        return [state]
    index = min(open_[:_MAX_TRIES], key=lambda i: len(case.candidates(state, i)))
    found: list[_State] = []
    for group in case.candidates(state, index):
        if len(found) > 1 or tries[0] <= 0:
            break
        tries[0] -= 1
        branch = state.copy()
        try:
            new = case.assign(branch, index, group)
            case.spread(branch, [i for process in new for i in case.of_process[process]])
        except _Conflict:
            continue
        found += _assignments(case, branch, tries)
    return found[:2]
