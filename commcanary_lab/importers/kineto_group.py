"""Who takes part: the members of an event's process group, from what the trace states and never from a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from commcanary_lab.importers.kineto_args import CommArgs, IntList, parse_int_list

if TYPE_CHECKING:
    from commcanary_lab.importers.layout_members import LaidOut

__all__ = ["GroupDirectory", "Members", "group_label"]

FROM_LIST = "complete rank lists on the events"
FROM_CONFIG = "distributedInfo.pg_config"
FROM_STRIDE = "global rank start and stride"
FROM_SELF = "a group of one is the rank itself"


@dataclass(frozen=True)
class Members:
    """Global ranks of a group in the group's own order, and where they came from.

    Examples
    --------
    >>> Members((2, 0), "test").ascending
    (0, 2)
    """

    in_order: tuple[int, ...]
    origin: str

    @property
    def ascending(self) -> tuple[int, ...]:
        """The ranks in ascending order."""
        return tuple(sorted(self.in_order))


def group_label(args: CommArgs) -> str | None:
    """Name of a communicator for people: the group's name, with its description where that adds something.

    Two groups with the same members and the same description stay apart, because the name comes first.
    """
    name, description = args.group_name, args.group_description
    if not description or description in ("undefined", name) or (name is not None and description == f"pg_{name}"):
        return name or None
    return f"{name}:{description}" if name else description


class GroupDirectory:
    """Finds the members of groups in one file.

    In this order: a complete rank list on the event; ``distributedInfo.pg_config``; an explicit start and stride; each only where it
    agrees with the group size, with the entries that the event shows, and contains the rank itself. A layout comes last, and is refused
    where it contradicts the others.

    Parameters
    ----------
    info : mapping
        The ``distributedInfo`` object.
    rank : int
        Global rank whose trace this is.
    world_size : int, optional
        Number of ranks of the job.
    config_name : str
        What the source calls its table of groups, for messages.
    unnamed : Members, optional
        Members of the group of events that name none: an assumption, which a layout of more ranks overrules.
    laid_out : LaidOut, optional
        What a layout says.

    Attributes
    ----------
    warnings : list of str
        Entries of ``pg_config`` that cannot be used.
    """

    def __init__(
        self,
        info: Mapping[str, object],
        rank: int,
        world_size: int | None,
        *,
        config_name: str = FROM_CONFIG,
        unnamed: Members | None = None,
        laid_out: LaidOut | None = None,
    ) -> None:
        self.rank = rank
        self.config_name = config_name
        self.unnamed = unnamed
        self.laid_out = laid_out
        self.world_size = world_size
        self.warnings: list[str] = []
        self._by_name: dict[str, tuple[int, ...] | None] = {}
        self._found: dict[tuple[object, ...], Members | str] = {}
        for key, entry in _entries(info.get("pg_config")):
            self._add(key, entry)

    def _add(self, key: str | None, entry: object) -> None:
        ranks: object = entry
        names: list[object] = [key]
        size: object = None
        if isinstance(entry, dict):
            ranks, size = entry.get("ranks"), entry.get("pg_size", entry.get("group_size"))
            names += [entry.get("pg_name"), entry.get("uid"), entry.get("pg_id")]
        members = _rank_tuple(ranks)
        if members == () and self.world_size is not None and size == self.world_size:
            members = tuple(range(self.world_size))  # torch writes an empty list where the group is the whole world
        distinct = {str(n) for n in names if isinstance(n, str | int) and not isinstance(n, bool)}
        if not members or not distinct or (isinstance(size, int) and size != len(members)) or len(set(members)) != len(members):
            self.warnings.append(
                f"{self.config_name}: the entry of group {', '.join(sorted(distinct)) or 'without a name'} "
                "has no usable rank list; it is not used"
            )
            return
        for name in distinct:
            if self._by_name.setdefault(name, members) != members:
                self._by_name[name] = None
                self.warnings.append(f"{self.config_name}: group {name} has two different rank lists; neither is used")

    def stated(self, name: str | None) -> tuple[int, ...] | None:
        """Return the ranks that the table of groups states for a name, in the group's order, whether or not they can be used."""
        return self._by_name.get(name) if name is not None else None

    def members(self, args: CommArgs) -> Members | str:
        """Return the members of the event's group, or why they are unknown.

        Raises
        ------
        InputError
            If a layout contradicts the source.
        RefusedError
            If several groups of a layout fit.
        """
        size = args.group_size if self.laid_out is None else self.laid_out.size(args)
        key = (args.group_name, size, args.group_ranks, args.rank_start, args.rank_stride)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._resolve(args) if self.laid_out is None else self._with_layout(args, self.laid_out)
        return found

    def _with_layout(self, args: CommArgs, laid_out: LaidOut) -> Members | str:
        found = self._resolve(args)
        assumed = isinstance(found, Members) and found is self.unnamed
        world = laid_out.groups.world
        if isinstance(found, Members) and not (assumed and world is not None and len(world) != len(found.in_order)):
            laid_out.check(args, found)
            return found
        other = laid_out.members(args)
        if isinstance(other, Members):
            return self._checked(other, args.group_size, args.group_ranks)
        return found if isinstance(found, str) and found != "members unknown" else other

    def _resolve(self, args: CommArgs) -> Members | str:
        size, shown = args.group_size, args.group_ranks
        if shown is not None and not shown.cut:
            return self._checked(Members(shown.values, FROM_LIST), size, None)
        if size == 1:
            return self._checked(Members((self.rank,), FROM_SELF), size, shown)
        problem = None
        config = self._by_name.get(args.group_name) if args.group_name is not None else None
        if config is not None:
            found = self._checked(Members(config, self.config_name), size, shown)
            if isinstance(found, Members):
                return found
            problem = found
        start, stride = args.rank_start, args.rank_stride
        if size and start is not None and stride is not None and start >= 0 and stride >= 1 and size <= 1 << 24:
            found = self._checked(Members(tuple(range(start, start + stride * size, stride)), FROM_STRIDE), size, shown)
            if isinstance(found, Members):
                return found
            problem = problem or found
        if problem is None and args.group_name is None and self.unnamed is not None:
            return self._checked(self.unnamed, size, shown)
        return problem or "members unknown"

    def _checked(self, members: Members, size: int | None, shown: IntList | None) -> Members | str:
        ranks = members.in_order
        distinct = set(ranks)
        if size is not None and size != len(ranks):
            return f"members unknown: the group size is {size}, but {members.origin} gives {len(ranks)} ranks"
        if len(distinct) != len(ranks) or min(ranks) < 0:
            return "members unknown: the rank list is not a list of distinct ranks"
        if shown is not None and not shown.agrees_with(ranks):
            return f"members unknown: {members.origin} contradicts the ranks that the event shows"
        if self.world_size is not None and max(ranks) >= self.world_size:
            return f"members unknown: rank {max(ranks)} is outside the world of {self.world_size}"
        if self.rank not in distinct:
            return f"members unknown: rank {self.rank} is not in its own group"
        return members


def _entries(config: object) -> list[tuple[str | None, object]]:
    """The entries of ``pg_config``: a list of objects, an object by group name, either perhaps as JSON text."""
    config = _unpacked(config)
    if isinstance(config, dict):
        if "ranks" in config:
            return [(None, config)]
        return [(str(k), _unpacked(v)) for k, v in config.items()]
    if isinstance(config, list):
        return [(None, _unpacked(v)) for v in config]
    return []


def _unpacked(value: object) -> object:
    if isinstance(value, str):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
    return value


def _rank_tuple(value: object) -> tuple[int, ...] | None:
    if isinstance(value, str):
        parsed = parse_int_list(value)
        return None if parsed is None or parsed.cut else parsed.values
    if isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 31 for v in value):
        return tuple(value)
    return None
