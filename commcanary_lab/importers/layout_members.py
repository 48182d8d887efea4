"""Members of named groups from a layout, where a source names a group and does not say who is in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from commcanary_lab.errors import InputError, RefusedError
from commcanary_lab.importers.comm_events import implied_size
from commcanary_lab.importers.kineto_args import CommArgs
from commcanary_lab.importers.kineto_group import Members, group_label
from commcanary_lab.layout import Layout
from commcanary_lab.trace.groups import ProcessGroup, ranks_text

__all__ = ["FROM_LAYOUT", "OTHER_JOB", "LaidOut", "LayoutGroups"]

FROM_LAYOUT = "the layout"
OTHER_JOB = "the layout is that of another job: correct its sizes or groups"
_SHOWN = 6


class LayoutGroups:
    """The groups of a layout by member, for all ranks of a job.

    Parameters
    ----------
    layout : Layout
        The groups that there are.

    Examples
    --------
    >>> groups = LayoutGroups(Layout(tp=2, dp=2))
    >>> [g.name for g in groups.of_rank(3)]
    ['TP Group 1', 'DP Group 1', 'world']
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @cached_property
    def _by_rank(self) -> Mapping[int, list[ProcessGroup]]:
        out: dict[int, list[ProcessGroup]] = defaultdict(list)
        groups = (*self.layout.all_groups, ProcessGroup("world", self.layout.ranks))
        for group in {g.members: g for g in reversed(groups)}.values():
            for rank in group.members:
                out[rank].append(group)
        return {rank: own[::-1] for rank, own in out.items()}

    def of_rank(self, rank: int) -> list[ProcessGroup]:
        """Return the groups that a rank is in, each set of ranks once."""
        return self._by_rank.get(rank, [])

    @property
    def world(self) -> tuple[int, ...] | None:
        """All ranks of the job, where the layout gives sizes; listed groups need not be all that there are."""
        return self.layout.ranks if self.layout.sized_world > 1 else None

    def check_world(self, world_size: int | None, file: str) -> None:
        """Refuse a layout of another number of ranks than the source states.

        Raises
        ------
        InputError
            With both numbers.
        """
        if world_size is not None and self.world is not None and len(self.world) != world_size:
            raise InputError(f"a job of {world_size} ranks, the layout of {len(self.world)}", file=file, remedy=OTHER_JOB)


class LaidOut:
    """What a layout says about the groups of one rank's file.

    Parameters
    ----------
    groups : LayoutGroups
        The layout.
    rank : int
        Global rank whose file it is.
    file : str
        The file, for messages.
    """

    def __init__(self, groups: LayoutGroups, rank: int, file: str) -> None:
        self.groups, self.rank, self.file = groups, rank, file

    def _named(self, args: CommArgs) -> ProcessGroup | None:
        """The group that the layout has under the name or description of the source's."""
        names = [n for n in (args.group_name, args.group_description) if n]
        return next((g for n in names if (g := self.groups.layout.group_named(n)) is not None), None)

    def size(self, args: CommArgs) -> int | None:
        """Return the size of the group as far as the metadata imply it."""
        return implied_size(args)

    def members(self, args: CommArgs) -> Members | str:
        """Return the members of an event's group, or why the layout does not say them.

        By the group's name, or else the only group of its size that has the rank.

        Raises
        ------
        RefusedError
            If more than one group of the layout fits; lists them.
        InputError
            If the layout has another group under the name.
        """
        size, named = self.size(args), self._named(args)
        if named is not None:
            if size not in (None, named.size) or self.rank not in named.members:
                source = f"{size} ranks, rank {self.rank} among them" if size is not None else f"rank {self.rank} among its ranks"
                self._refuse(args, f"has {source}", named)
            return Members(named.members, FROM_LAYOUT)
        if size is None:
            return "members unknown"
        found = [g for g in self.groups.of_rank(self.rank) if g.size == size]
        if len(found) > 1:
            could = " or ".join(f"{g.name or 'unnamed'} ({ranks_text(g.members)})" for g in found[:_SHOWN])
            raise RefusedError(
                f"group {group_label(args) or 'without a name'} ({size} ranks) of rank {self.rank} could be {could} of the layout",
                file=self.file,
                remedy="list its ranks under [groups] in the layout file, by its name (docs/formats/layout.md)",
            )
        if not found:
            return f"members unknown: no group of the layout has {size} ranks with rank {self.rank} among them"
        return Members(found[0].members, FROM_LAYOUT)

    def check(self, args: CommArgs, members: Members) -> None:
        """Refuse a layout that contradicts what the source says.

        Raises
        ------
        InputError
            With what both say.
        """
        named = self._named(args)
        says = f"joins {ranks_text(members.ascending)} ({members.origin})"
        if named is not None and named.members != members.ascending:
            self._refuse(args, says, named)
        world = self.groups.world
        whole = args.group_description == "default_pg"
        if world is not None and (members.ascending[-1] > world[-1] or (whole and members.ascending != world)):
            self._refuse(args, says, ProcessGroup("the whole job", world))

    def check_position(self, args: CommArgs, position: int, members: Members) -> None:
        """Refuse a layout under which the rank has another place in the group than the source says.

        Raises
        ------
        InputError
            With what both say.
        """
        if members.origin == FROM_LAYOUT and (position >= len(members.in_order) or members.in_order[position] != self.rank):
            self._refuse(args, f"has rank {self.rank} as its number {position}", ProcessGroup(group_label(args), members.ascending))

    def _refuse(self, args: CommArgs, source: str, layout: ProcessGroup) -> None:
        label = group_label(args) or "without a name"
        raise InputError(f"group {label} {source}; in the layout {layout.name or 'it'} is {ranks_text(layout.members)}", file=self.file,
                         field=args.group_name, remedy=OTHER_JOB)  # fmt: skip
