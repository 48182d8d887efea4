"""Families of process groups: groups of one shape that do the same, with what can be said about them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commcanary_lab.inspect.grouping import group_codes, sums, text_codes
from commcanary_lab.trace import ProcessGroup, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V

__all__ = ["Family", "families", "stated_kind"]

_MESSAGES = frozenset({"send", "recv", "point_to_point"})
_EXCHANGES = frozenset({"all_to_all", ALL_TO_ALL_V})
#: Words in the names of communicators; the first that matches counts.
_WORDS = {
    "ep": r"ep|expert|moe|expert_?model_?parallel",
    "cp": r"cp|context(_?parallel)?",
    "pp": r"pp|pipe|pipeline(_?model)?(_?parallel)?",
    "tp": r"tp|tensor(_?model)?(_?parallel)?|mp|model_?parallel",
    "dp": r"dp|ddp|fsdp|hsdp|data(_?parallel)?|replica(te)?|shard",
    "world": r"world|default|default_?pg",
}


def stated_kind(name: str | None) -> str | None:
    """Return the kind that a communicator's name says, or None.

    Examples
    --------
    >>> [stated_kind(n) for n in ("TP Group 1", "3:expert_model_parallel", "default_pg", "0xa000", None)]
    ['tp', 'ep', 'world', None, None]
    """
    name = re.sub(r"^\d+:", "", name or "")  # a profiler's number in front of the description
    text = re.sub(r"(group|comm|mesh|[\s_\-:.]*\d+)+$", "", name.strip().lower().removeprefix("mesh_")).strip(" _-:.")
    return next((kind for kind, words in _WORDS.items() if re.fullmatch(words, text)), None)


@dataclass(frozen=True)
class Family:
    """Groups of one shape that do the same.

    Parameters
    ----------
    groups : tuple of ProcessGroup
        In order of their ranks.
    calls : mapping of str to float
        Events per group by operation.
    sizes : tuple of int
        Distinct B of the events, the most bytes first.
    payload_bytes : int
        Sum of B over the events.
    pairs : frozenset of (int, int)
        Sender and receiver positions of messages inside a group.
    stated : str or None
        Kind that the names say.
    """

    groups: tuple[ProcessGroup, ...]
    calls: dict[str, float]
    sizes: tuple[int, ...]
    payload_bytes: int
    pairs: frozenset[tuple[int, int]]
    stated: str | None

    @property
    def size(self) -> int:
        """k."""
        return self.groups[0].size

    @cached_property
    def stride(self) -> int | None:
        """Distance of successive ranks, where it is one number."""
        steps = set(np.diff(self.groups[0].members).tolist())
        return steps.pop() if len(steps) == 1 else None

    @cached_property
    def ranks(self) -> frozenset[int]:
        """All members."""
        return frozenset(r for g in self.groups for r in g.members)

    @property
    def disjoint(self) -> bool:
        """Whether no rank is in two groups."""
        return len(self.ranks) == sum(g.size for g in self.groups)

    @property
    def total_calls(self) -> float:
        """Events per group."""
        return sum(self.calls.values())

    @property
    def mean_bytes(self) -> float:
        """Mean B of an event."""
        events = self.total_calls * len(self.groups)
        return self.payload_bytes / events if events else 0.0

    @property
    def message_share(self) -> float:
        """Share of the events that are messages."""
        return sum(n for op, n in self.calls.items() if op in _MESSAGES) / self.total_calls if self.total_calls else 0.0

    @property
    def dense(self) -> bool:
        """Whether messages go between three quarters of the pairs of a group of more than two; a pipeline of three has two thirds."""
        return self.size > 2 and 4 * len(self.pairs) >= 3 * self.size * (self.size - 1)

    @property
    def exchanges(self) -> bool:
        """Whether it exchanges tokens: all-to-alls, or messages between most pairs."""
        return any(op in _EXCHANGES for op in self.calls) or (self.message_share > 0 and self.dense)

    @property
    def chained(self) -> bool:
        """Whether messages go between neighbours, as in a pipeline."""
        return bool(self.pairs) and all(abs(a - b) in (1, self.size - 1) for a, b in self.pairs)


def families(trace: Trace) -> list[Family]:
    """Return the families of a trace, those of most bytes first; groups of one rank are left out."""
    found: dict[tuple[str | None, tuple[int, ...], frozenset[str]], list[ProcessGroup]] = {}
    facts = _facts(trace)
    for group, fact in facts.items():
        shape = tuple(m - group.members[0] for m in group.members)
        found.setdefault((stated_kind(group.name), shape, frozenset(fact.calls)), []).append(group)
    out = [_family(sorted(groups, key=lambda g: g.members), facts, kind) for (kind, _, _), groups in found.items()]
    return sorted(out, key=lambda f: (-f.payload_bytes, f.groups[0].members))


@dataclass
class _Fact:
    calls: dict[str, int]
    sizes: dict[int, int]
    pairs: set[tuple[int, int]]


def _family(groups: list[ProcessGroup], facts: dict[ProcessGroup, _Fact], kind: str | None) -> Family:
    calls: dict[str, float] = {}
    sizes: dict[int, int] = {}
    pairs: set[tuple[int, int]] = set()
    for g in groups:
        for op, n in facts[g].calls.items():
            calls[op] = calls.get(op, 0) + n / len(groups)
        for size, n in facts[g].sizes.items():
            sizes[size] = sizes.get(size, 0) + n
        pairs |= facts[g].pairs
    ordered = tuple(sorted(sizes, key=lambda s: (-s * sizes[s], s)))
    return Family(tuple(groups), calls, ordered, sum(s * n for s, n in sizes.items()), frozenset(pairs), kind)


def _facts(trace: Trace) -> dict[ProcessGroup, _Fact]:
    """What each group does; pairs of ranks that only exchange messages are joined to the chains that they form."""
    group, groups = group_codes(trace)
    op, names = text_codes(trace.op)
    lower = np.array([(n or "").strip().lower() for n in names], object)
    message = np.array([n in _MESSAGES for n in lower], np.bool_)[op] if len(trace) else np.zeros(0, np.bool_)
    ends = message & trace.sender.mask & trace.receiver.mask
    collective = np.zeros(len(groups), np.bool_)
    collective[np.unique(group[~message])] = True
    # pairs that only exchange messages say nothing by themselves: the world's name on them is that of the communicator they use
    lone = np.array([g.size == 2 and stated_kind(g.name) in (None, "world") for g in groups], np.bool_) & ~collective
    home: dict[int, ProcessGroup] = {}
    for i, g in enumerate(groups):
        home[i] = g
    for chain in _components([groups[i].members for i in np.flatnonzero(lone).tolist()]):
        for i in np.flatnonzero(lone).tolist():
            if groups[i].members[0] in chain:
                home[i] = ProcessGroup(None if len(chain) > 2 else groups[i].name, tuple(sorted(chain)))
    out: dict[ProcessGroup, _Fact] = {}
    for code in np.unique(group).tolist():
        if groups[code].size < 2:
            continue
        fact = out.setdefault(home[code], _Fact({}, {}, set()))
        rows = np.flatnonzero(group == code)
        for o in np.unique(op[rows]).tolist():
            fact.calls[lower[o]] = fact.calls.get(lower[o], 0) + int(np.count_nonzero(op[rows] == o))
        values, code_of = np.unique(trace.size_bytes[rows], return_inverse=True)
        for value, n in zip(values.tolist(), sums(code_of, np.ones(len(rows), np.int64), len(values)).tolist(), strict=True):
            fact.sizes[value] = fact.sizes.get(value, 0) + n
        at = {r: i for i, r in enumerate(home[code].members)}
        picked = rows[ends[rows]]
        pairs = np.unique(np.stack([trace.sender.values[picked], trace.receiver.values[picked]]), axis=1).T.tolist()
        fact.pairs |= {(at[a], at[b]) for a, b in pairs if a in at and b in at and a != b}
    return out


def _components(pairs: Iterable[tuple[int, ...]]) -> list[set[int]]:
    """Connected ranks."""
    parent: dict[int, int] = {}

    def root(r: int) -> int:
        while parent.setdefault(r, r) != r:
            parent[r] = parent[parent[r]]
            r = parent[r]
        return r

    for first, *others in pairs:
        for other in others:
            parent[root(other)] = root(first)
    found: dict[int, set[int]] = {}
    for rank in list(parent):
        found.setdefault(root(rank), set()).add(rank)
    return list(found.values())
