"""What if ranks sat elsewhere: relabel ranks to GPUs, best of a small search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UsageError
from commcanary_lab.inspect.html import table_html
from commcanary_lab.traffic.attribution import FloatArray, IntArray
from commcanary_lab.traffic.crossing import Crossing
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.units import format_bytes

__all__ = ["PlacementSearch", "search_placement"]


@dataclass(frozen=True)
class PlacementSearch:
    """The best placement that was found.

    Parameters
    ----------
    before, after : Crossing
        Where the bytes travel.
    placement : Placement
        The best one; the given one where nothing better was found.
    evaluations : int
        Placements that were looked at.
    seed : int
        Of the random swaps.
    notes : tuple of str
        What the result does not say.
    """

    before: Crossing
    after: Crossing
    placement: Placement
    evaluations: int
    seed: int
    notes: tuple[str, ...]

    @property
    def moved_ranks(self) -> int:
        """Ranks that sit elsewhere than their number says."""
        return sum(rank != slot for rank, slot in self.placement.slots.items())

    @property
    def improved(self) -> bool:
        """Whether anything better was found."""
        return _hops(self.after) < _hops(self.before)

    def _repr_html_(self) -> str:
        title = f"Placement search: {'improved' if self.improved else 'nothing better found'}; {self.evaluations:,} placements looked at"
        rows = [
            (when, format_bytes(c.inter_node_bytes), format_bytes(c.on_rail_bytes), format_bytes(c.cross_rail_bytes))
            for when, c in (("before", self.before), ("after", self.after))
        ]
        return table_html(title, ["", "between nodes", "on rail", "cross-rail"], rows, len(rows), self.notes)


def search_placement(m: TrafficMatrix, placement: Placement, *, evaluations: int = 2000, seed: int = 7) -> PlacementSearch:
    """Search a placement of the ranks that sends fewer bytes over the network: swaps of two ranks that help are kept.

    What is minimised: inter-node bytes, cross-rail ones twice, for they pass the rail switches and the spine. M itself stays: rings keep
    their order of ranks. The search starts from the given placement and from one that puts ranks which exchange most onto one node.

    Parameters
    ----------
    m : TrafficMatrix
        The traffic.
    placement : Placement
        Where ranks sit now; only slots in use are used.
    evaluations : int
        Most placements to look at.
    seed : int
        Seed of the swaps; the same seed gives the same result.

    Raises
    ------
    UsageError
        If `evaluations` is less than 1.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> found = search_placement(lab.traffic(lab.samples.gloo4()), Placement(2, {1: 2, 2: 1}), evaluations=50)
    >>> found.improved, found.after.inter_node_bytes < found.before.inter_node_bytes
    (True, True)
    """
    if evaluations < 1:
        raise UsageError(f"{evaluations} evaluations are none", remedy="give 1 or more")
    ranks, slots = m.ranks, placement.positions(m.ranks).copy()
    pairs = _Pairs.of(m, placement.gpus_per_node)
    best, best_cost, used = slots.copy(), pairs.cost(slots), 1
    for start in (slots, _clustered(m, slots, placement.gpus_per_node)):
        if used >= evaluations:
            break
        budget = (evaluations - used) // 2 if start is slots else evaluations - used
        found, cost, looked = _climb(pairs, start.copy(), max(1, budget), seed)
        used += looked
        if cost < best_cost:
            best, best_cost = found, cost
    chosen = Placement(placement.gpus_per_node, dict(zip(ranks.tolist(), best.tolist(), strict=True)))
    notes = (
        "a local search: there may be a better placement",
        "M is kept: rings keep their order of ranks, which a library would choose anew",
    )
    before = Crossing.of(m, placement)
    after = before if best_cost >= pairs.cost(slots) else Crossing.of(m, chosen)
    return PlacementSearch(before, after, placement if after is before else chosen, used, seed, notes)


def _hops(c: Crossing) -> float:
    return c.on_rail_bytes + 2 * c.cross_rail_bytes


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Cells by position of their ranks, and the cells that touch each rank."""

    src: npt.NDArray[np.intp]
    dst: npt.NDArray[np.intp]
    size: FloatArray
    gpus_per_node: int
    touching: npt.NDArray[np.intp]  # cells by rank
    starts: IntArray

    @classmethod
    def of(cls, m: TrafficMatrix, gpus_per_node: int) -> _Pairs:
        src, dst = np.searchsorted(m.ranks, m.cells.src), np.searchsorted(m.ranks, m.cells.dst)
        ends = np.concatenate([src, dst])
        order = np.argsort(ends, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=m.n))])
        return cls(src, dst, m.cells.size_bytes, gpus_per_node, order % max(1, len(src)), starts)

    def cost(self, slots: IntArray, cells: npt.NDArray[np.intp] | slice = slice(None)) -> float:
        a, b = slots[self.src[cells]], slots[self.dst[cells]]
        inter = a // self.gpus_per_node != b // self.gpus_per_node
        cross = inter & (a % self.gpus_per_node != b % self.gpus_per_node)
        return float((self.size[cells] * (inter.astype(np.float64) + cross)).sum())

    def of_ranks(self, i: int, j: int) -> npt.NDArray[np.intp]:
        rows = [self.touching[self.starts[r] : self.starts[r + 1]] for r in (i, j)]
        return np.unique(np.concatenate(rows))


def _climb(pairs: _Pairs, slots: IntArray, budget: int, seed: int) -> tuple[IntArray, float, int]:
    """Keep swaps that lower the cost."""
    random = np.random.Generator(np.random.PCG64(seed))
    cost, n = pairs.cost(slots), len(slots)
    if n < 2:
        return slots, cost, 1
    for i, j in random.integers(0, n, (budget - 1, 2)).tolist():
        if i == j:
            continue
        cells = pairs.of_ranks(i, j)
        old = pairs.cost(slots, cells)
        slots[i], slots[j] = slots[j], slots[i]
        new = pairs.cost(slots, cells)
        if new < old:
            cost += new - old
        else:
            slots[i], slots[j] = slots[j], slots[i]
    return slots, pairs.cost(slots), budget


def _clustered(m: TrafficMatrix, slots: IntArray, gpus_per_node: int) -> IntArray:
    """Fill node after node with the ranks that exchange most with those already there."""
    both = m.csr()
    both = (both + both.T).tocsr()
    free = np.ones(m.n, np.bool_)
    order: list[int] = []
    for width in np.bincount(np.unique(slots // gpus_per_node, return_inverse=True)[1]).tolist():
        pull = np.zeros(m.n)
        for _ in range(width):
            pick = int(np.argmax(np.where(free, pull, -1.0)))
            free[pick] = False
            order.append(pick)
            row = slice(both.indptr[pick], both.indptr[pick + 1])
            pull[both.indices[row]] += both.data[row]
    out = np.empty(m.n, np.int64)
    out[order] = np.sort(slots)
    return out
