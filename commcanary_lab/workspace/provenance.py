"""Which artifact was made from which, found by content and never by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Edge", "Node", "Provenance"]


@dataclass(frozen=True)
class Node:
    """An artifact, or one that others state and that is not in the workspace.

    Parameters
    ----------
    name : str
        Unique: the artifact's name, or for a missing one ``/`` with what identifies it (no artifact is called so).
    kind : str
        As in `Artifact`.
    summary : str
        As in `Artifact`; for a missing one, what is known of it.
    missing : bool
        Not in the workspace.
    """

    name: str
    kind: str
    summary: str
    missing: bool = False


@dataclass(frozen=True)
class Edge:
    """Something was made from something, or belongs to it.

    Parameters
    ----------
    parent, child : str
        Names of nodes.
    role : str
        What the child did with the parent: ``compiled from``, ``baseline``, ...
    known : str
        How that is known.
    """

    parent: str
    child: str
    role: str
    known: str


@dataclass(frozen=True)
class Provenance:
    """The graph of a workspace.

    Parameters
    ----------
    nodes : tuple of Node
        Artifacts by name, then missing ones.
    edges : tuple of Edge
        By child, then parent.
    unread : tuple of (str, str)
        Artifacts of which nothing is known, and why.
    """

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    @cached_property
    def parents(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by child."""
        return _by(self.edges, lambda e: e.child)

    @cached_property
    def children(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by parent."""
        return _by(self.edges, lambda e: e.parent)

    def family(self, name: str) -> Provenance:
        """Return the part of the graph that has to do with one node: what it was made from, what was made from it, and what that needs.

        Returns
        -------
        Provenance
            Empty when there is no such node.
        """
        names = {n.name for n in self.nodes}
        if name not in names:
            return Provenance()
        inside = self._reach(name, lambda n: [e.parent for e in self.parents.get(n, ())])
        below = self._reach(name, lambda n: [e.child for e in self.children.get(n, ())])
        beside = {e.parent for n in below for e in self.parents.get(n, ())}  # the other report of a comparison
        keep = inside | below | beside
        nodes = tuple(n for n in self.nodes if n.name in keep)
        return Provenance(nodes, tuple(e for e in self.edges if e.parent in keep and e.child in keep))

    @staticmethod
    def _reach(start: str, step: Callable[[str], Iterable[str]]) -> set[str]:
        found, todo = {start}, [start]
        while todo:
            for name in step(todo.pop()):
                if name not in found:
                    found.add(name)
                    todo.append(name)
        return found


def _by(edges: Iterable[Edge], key: Callable[[Edge], str]) -> dict[str, tuple[Edge, ...]]:
    out: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        out[key(edge)].append(edge)
    return {k: tuple(v) for k, v in out.items()}
