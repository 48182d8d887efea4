"""Placement: which node a rank is on, and which GPU (rail) it has there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.layout import Layout
from commcanary_lab.traffic.attribution import IntArray

__all__ = ["Placement"]


@dataclass(frozen=True)
class Placement:
    """Global ranks on GPUs: rank r takes slot r unless `slots` says otherwise; slot s is GPU ``s % gpus_per_node`` of node
    ``s // gpus_per_node``.

    Parameters
    ----------
    gpus_per_node : int
        GPUs of every node; the index of a GPU in its node is its rail.
    slots : mapping of int to int
        Slots of ranks that are not at their own number.

    Raises
    ------
    UsageError
        If `gpus_per_node` is not positive.
    InputError
        If two listed ranks share a slot.

    Examples
    --------
    >>> place = Placement(4, {0: 5, 5: 0})
    >>> place.nodes(np.array([0, 1, 5])).tolist(), place.rails(np.array([0, 1, 5])).tolist()
    ([1, 0, 0], [1, 1, 0])
    """

    gpus_per_node: int
    slots: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpus_per_node < 1:
            raise UsageError(f"{self.gpus_per_node} GPUs per node is not a positive number", remedy="give 1 or more")
        if len(set(self.slots.values())) < len(self.slots):
            raise InputError("the placement puts two ranks on one GPU", remedy="give every rank its own slot")

    @classmethod
    def of(cls, gpus_per_node: int | None = None, layout: Layout | None = None) -> Placement | None:
        """Return the placement that a number of GPUs or a layout gives, or None.

        Raises
        ------
        UsageError
            If both say something, and not the same.
        """
        stated = layout.gpus_per_node if layout is not None else None
        if gpus_per_node is not None and stated is not None and gpus_per_node != stated:
            raise UsageError(f"{gpus_per_node} GPUs per node are given, the layout says {stated}", remedy="give one of the two")
        found = gpus_per_node if gpus_per_node is not None else stated
        return None if found is None else cls(found)

    @cached_property
    def _moved(self) -> tuple[IntArray, IntArray]:
        ranks = np.array(sorted(self.slots), np.int64)
        return ranks, np.array([self.slots[r] for r in ranks.tolist()], np.int64)

    def positions(self, ranks: IntArray) -> IntArray:
        """Return the slot of each rank."""
        moved, slots = self._moved
        if not len(moved):
            return ranks
        at = np.minimum(np.searchsorted(moved, ranks), len(moved) - 1)
        return np.where(moved[at] == ranks, slots[at], ranks)

    def nodes(self, ranks: IntArray) -> IntArray:
        """Return the node of each rank."""
        return self.positions(ranks) // self.gpus_per_node

    def rails(self, ranks: IntArray) -> IntArray:
        """Return the rail of each rank: the index of its GPU in the node."""
        return self.positions(ranks) % self.gpus_per_node

    def node_count(self, ranks: IntArray) -> int:
        """Return on how many nodes the ranks are."""
        return len(np.unique(self.nodes(ranks)))
