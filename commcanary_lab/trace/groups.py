"""Process groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

__all__ = ["GroupTable", "ProcessGroup", "ranks_text"]


def ranks_text(members: tuple[int, ...]) -> str:
    """Ranks in few characters: a range where they are consecutive, otherwise the first six.

    Examples
    --------
    >>> ranks_text((0, 1, 2, 3)), ranks_text((0, 4)), ranks_text((7,))
    ('0-3', '0,4', '7')
    """
    first, last = members[0], members[-1]
    if len(members) > 1 and last - first + 1 == len(members):
        return f"{first}-{last}"
    return ",".join(map(str, members[:6])) + (",..." if len(members) > 6 else "")


@dataclass(frozen=True)
class ProcessGroup:
    """A communicator: a name, where the source gave one, and its global ranks in ascending order.

    Examples
    --------
    >>> g = ProcessGroup("tp0", (0, 1, 2, 3))
    >>> g.size, g.label
    (4, 'tp0 (4 ranks: 0-3)')
    """

    name: str | None
    members: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of ranks, k."""
        return len(self.members)

    @cached_property
    def label(self) -> str:
        """Name, size and ranks for people."""
        return f"{self.name or 'unnamed'} ({self.size} rank{'s' if self.size != 1 else ''}: {ranks_text(self.members)})"

    def position(self, rank: int) -> int:
        """Return the rank inside the group of a global rank."""
        return self.members.index(rank)


class GroupTable:
    """Collects distinct process groups in order of first use.

    Examples
    --------
    >>> t = GroupTable()
    >>> t.code("tp0", (1, 0)), t.code("dp", (0, 1)), t.code("tp0", (0, 1))
    (0, 1, 0)
    """

    def __init__(self, groups: Iterable[ProcessGroup] = ()) -> None:
        self._codes: dict[ProcessGroup, int] = {}
        for group in groups:
            self._codes.setdefault(group, len(self._codes))

    def code(self, name: str | None, members: Iterable[int]) -> int:
        """Return the code of a group, adding it if it is new."""
        return self._codes.setdefault(ProcessGroup(name, tuple(sorted(members))), len(self._codes))

    @property
    def groups(self) -> tuple[ProcessGroup, ...]:
        """All groups in order of first use."""
        return tuple(self._codes)
