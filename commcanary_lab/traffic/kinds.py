"""What kind of parallelism a family of groups looks like: evidence with weights, and how sure it leaves one.

The weights are a judgement, not a measurement: each says how strongly a fact separates the kinds in jobs laid out as Megatron-LM and its
like do (tensor parallelism inside nodes and called in every layer; pipelines between far ranks; gradients rare and large; experts
exchange tokens).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commcanary_lab.layout import KINDS
from commcanary_lab.traffic.families import Family
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.units import format_bytes

__all__ = ["LIKELY", "MARGIN", "POSSIBLE", "Judgement", "judge"]

#: Points from which the best kind is likely, and by how many it must lead; and from which it is possible.
LIKELY, MARGIN, POSSIBLE = 5, 2, 3
#: Times that a group is called more often, or with larger messages, before that counts.
_FACTOR = 4

_COLLECTIVES = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


@dataclass(frozen=True)
class Judgement:
    """What a family looks like.

    Parameters
    ----------
    kind, confidence, evidence, alternatives, nodes
        As in `infer.InferredGroups`.
    points : dict of str to int
        Weight per kind.
    """

    kind: str
    confidence: str
    evidence: tuple[str, ...]
    alternatives: tuple[str, ...]
    nodes: int | None
    points: dict[str, int]


def judge(family: Family, among: list[Family], placement: Placement | None) -> Judgement:
    """Weigh the evidence for one family against the others of the trace.

    Parameters
    ----------
    family : Family
        The family.
    among : list of Family
        All families of the trace.
    placement : Placement or None
        Ranks on nodes, where they are known.
    """
    facts = _Facts()
    nodes = _span(family, placement)
    _shape(family, facts, nodes)
    _calls(family, [f for f in among if f is not family], facts)
    everyone = frozenset(r for f in among for r in f.ranks)
    evidence = tuple(facts.words)
    if family.stated is not None and (family.stated != "world" or (len(family.groups) == 1 and family.ranks == everyone)):
        name = family.groups[0].name
        return Judgement(family.stated, "stated", (f"named {name!r}", *evidence), (), nodes, facts.points)
    if len(family.groups) == 1 and family.ranks == everyone and any(f.size > 1 for f in among if f is not family):
        return Judgement("world", "likely", ("holds every rank, beside smaller groups", *evidence), (), nodes, facts.points)
    ranked = sorted(KINDS, key=lambda k: -facts.points[k])
    best, lead = ranked[0], facts.points[ranked[0]] - facts.points[ranked[1]]
    near = tuple(k for k in ranked[1:] if facts.points[k] >= POSSIBLE and facts.points[ranked[0]] - facts.points[k] < MARGIN)
    if facts.points[best] < POSSIBLE:
        return Judgement("unknown", "unknown", evidence, (), nodes, facts.points)
    alone = not family.exchanges and not family.chained and not [f for f in among if f is not family and f.total_calls]
    sure = facts.points[best] >= LIKELY and lead >= MARGIN and not alone
    if alone:
        evidence = (*evidence, "there is no other group to compare with")
    return Judgement(best, "likely" if sure else "possible", evidence, near, nodes, facts.points)


class _Facts:
    """Points per kind, and the words for them."""

    def __init__(self) -> None:
        self.points = dict.fromkeys(KINDS, 0)
        self.words: list[str] = []

    def add(self, words: str, **points: int) -> None:
        self.words.append(words)
        for kind, weight in points.items():
            self.points[kind] += weight


def _span(family: Family, placement: Placement | None) -> int | None:
    if placement is None:
        return None
    return max(len(np.unique(placement.nodes(np.array(g.members, np.int64)))) for g in family.groups)


def _shape(family: Family, facts: _Facts, nodes: int | None) -> None:
    k = family.size
    if family.stride == 1:
        facts.add(f"{k} consecutive ranks", tp=2, cp=1)
    elif family.stride is not None:
        facts.add(f"{k} ranks at stride {family.stride}", dp=1, pp=1, ep=1)
    else:
        facts.add(f"{k} ranks without one stride")
    if nodes is not None:
        if nodes == 1:
            facts.add("inside one node", tp=2, cp=1)
        else:
            facts.add(f"spans {nodes} nodes", tp=-3, dp=1, pp=1)
    if k & (k - 1) or k > 16:
        facts.add(f"{k} is no usual tensor-parallel size", tp=-2)


def _calls(family: Family, others: list[Family], facts: _Facts) -> None:
    ops = ", ".join(f"{op} x {n:g}" for op, n in sorted(family.calls.items(), key=lambda x: (-x[1], x[0]))[:3])
    if family.exchanges:
        facts.add(f"exchanges with every member ({ops})", ep=6)
    elif family.chained and family.message_share > 0.5:
        cyclic = family.size > 2 and {(0, family.size - 1), (family.size - 1, 0)} & family.pairs
        facts.add(f"messages between neighbours only ({ops})", pp=4 if cyclic else 6, cp=3 if cyclic else 0)
    elif set(family.calls) <= _COLLECTIVES | {"broadcast", "barrier", "reduce"}:
        facts.add(f"collectives ({ops})", tp=1, dp=1)
    else:
        facts.add(f"operations: {ops}")
    if len(family.sizes) <= 3:
        facts.add(f"{len(family.sizes)} size{'s' if len(family.sizes) > 1 else ''}, mostly {format_bytes(family.sizes[0])}")
    else:
        facts.add(f"{len(family.sizes)} sizes, mostly {format_bytes(family.sizes[0])}", dp=1)
    rivals = [f for f in others if not f.exchanges and f.message_share < 0.5 and f.size > 1]
    if not rivals or family.message_share > 0.5:
        return
    calls, size = max(f.total_calls for f in rivals), max(f.mean_bytes for f in rivals)
    if family.total_calls >= _FACTOR * calls:
        facts.add(f"called {family.total_calls / calls:.0f} times as often as any other group", tp=2)
    elif _FACTOR * family.total_calls <= calls:
        facts.add(f"called {calls / family.total_calls:.0f} times less often than another group", dp=2)
    if family.mean_bytes >= _FACTOR * size and size:
        facts.add(f"messages {family.mean_bytes / size:.0f} times as large as any other group's", dp=1)
