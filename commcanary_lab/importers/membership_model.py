"""Communicators as sources show them, and the global ranks that were found for them."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.trace.groups import ProcessGroup

__all__ = ["Communicator", "Membership"]


@dataclass(frozen=True)
class Communicator:
    """A communicator as a source shows it.

    Parameters
    ----------
    id : str
        What the source calls it; ``""`` where it has no id.
    name : str, optional
        Its name.
    size : int
        How many ranks it has.
    nodes : int
        How many nodes they are on; 0 where unknown.
    seen : tuple of (int, int)
        Rank in the communicator and process, of each member that the source shows.
    """

    id: str
    name: str | None
    size: int
    nodes: int = 0
    seen: tuple[tuple[int, int], ...] = ()

    @property
    def label(self) -> str:
        """For messages.

        Examples
        --------
        >>> Communicator("0xa0", None, 4, 1).label
        'communicator 0xa0 (4 ranks, 1 node)'
        """
        nodes = f", {self.nodes} node{'s' if self.nodes != 1 else ''}" if self.nodes else ""
        names = " ".join(filter(None, [self.id, self.name and f'"{self.name}"'])) or "without id"
        return f"communicator {names} ({self.size} rank{'s' if self.size != 1 else ''}{nodes})"


@dataclass(frozen=True)
class Membership:
    """Global ranks of communicators.

    Parameters
    ----------
    members : tuple of tuple of int
        By communicator: the global rank of each of its ranks.
    groups : tuple of ProcessGroup
        By communicator: name and members.
    notes : tuple of str
        Where it is known from.
    """

    members: tuple[tuple[int, ...], ...]
    groups: tuple[ProcessGroup, ...]
    notes: tuple[str, ...]
