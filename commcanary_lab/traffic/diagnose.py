"""Diagnosis: uneven routing (load balancing) against a fabric that does not fit (placement), both with their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from commcanary_lab.errors import UsageError
from commcanary_lab.inspect.html import table_html
from commcanary_lab.layout import Layout
from commcanary_lab.trace import ProcessGroup, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.traffic.attribution import BoolArray, FloatArray, IntArray
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.traffic.crossing import Crossing
from commcanary_lab.traffic.fabric import fabric
from commcanary_lab.traffic.fabric_verdict import DEPENDS, SATURATES, FabricVerdict
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.parts import group_names
from commcanary_lab.traffic.placement import Placement

__all__ = ["MAX_IMBALANCE", "Diagnosis", "GroupDiagnosis", "diagnose"]

#: Largest over mean column of an exchange above which its routing is called uneven.
MAX_IMBALANCE = 1.25
#: Messages of a group that cover this share of its pairs are an exchange; fewer are a pipeline or a halo.
EXCHANGE_SHARE = 0.75

_EXCHANGES = frozenset({"all_to_all", ALL_TO_ALL_V})
_MESSAGES = frozenset({"send", "recv", "point_to_point"})


@dataclass(frozen=True)
class GroupDiagnosis:
    """One group that exchanges tokens: every member sends to the others what its routing says.

    Parameters
    ----------
    name : str
        The group.
    group : ProcessGroup
        Its ranks.
    size_bytes : float
        Bytes of its exchanges in M.
    imbalance : float
        Largest column (bytes that a member receives) over the mean column; 1 is even.
    hottest_rank : int
        The member of that column.
    senders : int
        Members whose sends are known; with fewer than all, columns are the part that these send.
    inter_node_bytes, cross_rail_fraction : float
        Of the group's exchanges.
    """

    name: str
    group: ProcessGroup
    size_bytes: float
    imbalance: float
    hottest_rank: int
    senders: int
    inter_node_bytes: float
    cross_rail_fraction: float


@dataclass(frozen=True)
class Diagnosis:
    """Whether routing, the fabric, both or neither is the problem.

    Parameters
    ----------
    groups : tuple of GroupDiagnosis
        Groups that exchange, the least even first.
    fabric : FabricVerdict
        The fabric side.
    max_imbalance : float
        Above it routing counts as uneven.
    notes : tuple of str
        What is not known.
    """

    groups: tuple[GroupDiagnosis, ...]
    fabric: FabricVerdict
    max_imbalance: float
    notes: tuple[str, ...]

    @property
    def imbalance(self) -> float:
        """The routing number: largest column over mean column in the least even group; NaN where no group exchanges."""
        return self.groups[0].imbalance if self.groups else math.nan

    @property
    def cross_rail_fraction(self) -> float:
        """The fabric number: share of the inter-node bytes that needs the spine."""
        return self.fabric.cross_rail_fraction

    @property
    def rail_congestion(self) -> float:
        """Cross-rail fraction over the spine fraction."""
        return self.fabric.rail_congestion

    @property
    def routing_problem(self) -> bool:
        """Whether columns inside a group are uneven: a matter of load balancing, wherever the ranks sit."""
        return bool(self.groups) and self.imbalance > self.max_imbalance

    @property
    def fabric_problem(self) -> bool | None:
        """Whether the traffic needs more spine than there is, however even it is: a matter of placement. None: depends on ring order."""
        return None if self.fabric.verdict == DEPENDS else self.fabric.verdict == SATURATES

    @property
    def verdict(self) -> str:
        """``routing problem``, ``fabric problem``, ``both``, ``neither``, or what holds where the fabric depends on ring order."""
        if self.fabric_problem is None:
            return "routing problem, fabric depends on ring order" if self.routing_problem else "fabric depends on ring order"
        named = {(False, False): "neither", (True, False): "routing problem", (False, True): "fabric problem", (True, True): "both"}
        return named[self.routing_problem, self.fabric_problem]

    @property
    def advice(self) -> str:
        """What to look at next."""
        routing = "balance what is sent to whom (router loss, capacity factor, expert placement)" if self.routing_problem else ""
        place = "place groups on rails or inside nodes, or build more spine" if self.fabric_problem else ""
        order = "state the ring order" if self.fabric_problem is None else ""
        return "; ".join(x for x in (routing, place, order) if x) or "nothing stands out in the traffic: look at times (stragglers)"

    def _repr_html_(self) -> str:
        number = "no exchange" if math.isnan(self.imbalance) else f"largest over mean column {self.imbalance:.2f}"
        title = f"{self.verdict}: {number}, cross-rail fraction {self.cross_rail_fraction:.2f}, congestion {self.rail_congestion:.2f}"
        rows = [(g.name, g.group.size, f"{g.imbalance:.2f}", g.hottest_rank, f"{g.cross_rail_fraction:.2f}") for g in self.groups[:30]]
        headers = ["group", "ranks", "largest / mean column", "hottest rank", "cross-rail"]
        return table_html(title, headers, rows, len(self.groups), (self.advice, *self.fabric.limits, *self.notes))


def diagnose(
    source: TrafficMatrix | Trace,
    *,
    gpus_per_node: int | None = None,
    spine: float = 0.1,
    pxn: bool = False,
    layout: Layout | None = None,
    placement: Placement | None = None,
    max_imbalance: float = MAX_IMBALANCE,
) -> Diagnosis:
    """Separate a routing problem from a fabric problem.

    Routing: inside one group some members receive far more than others (hot experts). It is judged on exchanges only: all-to-alls, and
    messages that cover three quarters of the pairs of a group; rings, trees and pipelines are uneven by nature or even by construction.
    Fabric: bytes that change rails between nodes, however even they are, need more spine than there is. Both numbers are always given.

    Parameters
    ----------
    source : TrafficMatrix or Trace
        The traffic.
    gpus_per_node, spine, pxn, layout, placement
        As in `fabric`.
    max_imbalance : float
        Largest over mean column above which routing counts as uneven.

    Raises
    ------
    UsageError
        As `fabric`; or if `max_imbalance` is less than 1.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> found = lab.diagnose(lab.samples.gloo4(), gpus_per_node=4)
    >>> found.verdict, round(found.imbalance, 2), found.cross_rail_fraction
    ('neither', 1.01, 0.0)
    """
    if not max_imbalance >= 1:
        raise UsageError(f"{max_imbalance} is no imbalance: an even exchange has 1", remedy="give 1 or more, for example 1.25")
    if isinstance(source, TrafficMatrix):
        m = source
    else:
        m = build_matrix(source, gpus_per_node=gpus_per_node, layout=layout, placement=placement)
    judged = fabric(m, gpus_per_node=gpus_per_node, spine=spine, pxn=pxn, layout=layout, placement=placement)
    place = placement or Placement.of(gpus_per_node, layout) or m.placement
    assert place is not None
    found = list(_groups(m, place, pxn))
    groups = sorted((g for g in found if g is not None), key=lambda g: (-g.imbalance, g.name))
    return Diagnosis(tuple(groups), judged, max_imbalance, _notes(m, groups, found.count(None)))


def _groups(m: TrafficMatrix, place: Placement, pxn: bool) -> Iterable[GroupDiagnosis | None]:
    """Groups that exchange; None for one of which no member's sends are known."""
    by_group: dict[ProcessGroup, tuple[list[int], list[int]]] = {}
    for i, p in enumerate(m.parts):
        if p.group.size > 2 and (p.op in _EXCHANGES or p.op in _MESSAGES):
            by_group.setdefault(p.group, ([], []))[p.op in _MESSAGES].append(i)
    names = group_names({p.group: None for p in m.parts})
    for group, (collectives, messages) in by_group.items():
        kept = collectives + (messages if _covers(m.only(messages), group) else [])
        found = m.only(kept) if kept else None
        if found is not None and len(found.cells):
            yield _one(found, names[group], group, place, pxn)


def _covers(m: TrafficMatrix, group: ProcessGroup) -> bool:
    pairs = group.size * (group.size - 1)
    return len(m.cells) >= EXCHANGE_SHARE * pairs


def _one(m: TrafficMatrix, name: str, group: ProcessGroup, place: Placement, pxn: bool) -> GroupDiagnosis | None:
    members = np.array(group.members, np.int64)
    known = _known(m, members)
    if not known.any():
        return None
    # what a reporting rank received from others says nothing about their other sends
    cells = m.cells.where(np.isin(m.cells.src, members[known]))
    columns: FloatArray = np.zeros(len(members))
    np.add.at(columns, np.searchsorted(members, cells.dst), cells.size_bytes)
    # a member does not send to itself: where few senders are known, their own columns lack one of them
    possible = int(known.sum()) - known
    level = columns / np.maximum(possible, 1)
    mean = columns.sum() / possible.sum()
    hottest = int(np.argmax(level))
    crossing = Crossing.of(m, place, pxn=pxn)
    return GroupDiagnosis(
        name,
        group,
        m.sum_bytes,
        float(level[hottest] / mean) if mean else 1.0,
        int(members[hottest]),
        int(known.sum()),
        crossing.inter_node_bytes,
        crossing.spine_share,
    )


def _known(m: TrafficMatrix, members: IntArray) -> BoolArray:
    """Members whose whole row is known: they report everything, or all others do and say what they received."""
    known = np.ones(len(members), np.bool_)
    for part in m.parts:
        if part.reporters is not None:
            own = np.isin(members, part.reporters)
            known &= own | (int(own.sum()) == len(members) - 1)
    return known


def _notes(m: TrafficMatrix, groups: list[GroupDiagnosis], blank: int) -> tuple[str, ...]:
    out = []
    if blank:
        out.append(f"{blank} group{'s' if blank > 1 else ''} not judged: no rank reports nearly all of the exchanges")
    elif not groups:
        out.append("no group exchanges tokens (all-to-all, or messages between most of its pairs): there is no routing to judge")
    blind = [g for g in groups if g.senders < g.group.size]
    if blind:
        out.append(f"{len(blind)} of {len(groups)} groups are judged by the part of their members whose sends are known")
    even = sum(p.op == "all_to_all" for p in m.parts)
    if even:
        out.append("an all_to_all is even by definition: uneven routing shows only where sources give split lists or messages")
    return (*out, *m.notes)
