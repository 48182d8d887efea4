"""The traffic matrix: bytes that each global rank sends to each other one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from commcanary_lab._shown import Shown
from commcanary_lab.errors import LimitError, UsageError
from commcanary_lab.inspect.html import table_html
from commcanary_lab.trace import ImportCoverage, ProcessGroup
from commcanary_lab.traffic.calls import CallTable
from commcanary_lab.traffic.cells import CellDifference, Cells, FloatArray, IntArray, Link, aligned, between_ranks, canonical, ranked
from commcanary_lab.traffic.nodes import NodeMatrix
from commcanary_lab.traffic.order import RingOrder
from commcanary_lab.traffic.parts import Part, joined, part_keys
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.units import format_bytes

if TYPE_CHECKING:
    import scipy.sparse as sp

    from commcanary_lab.traffic.difference import TrafficDifference

__all__ = ["CellDifference", "TrafficMatrix"]

#: Attributions that follow from what the source says, without a model of an algorithm.
_MEASURED = frozenset({"send_recv", "splits"})
_MAX_DENSE_BYTES = 1 << 33


@dataclass(frozen=True, eq=False)
class TrafficMatrix(Shown):
    """M: bytes between global ranks, send side, the chunk that a rank keeps excluded; the diagonal is 0.

    Cells are kept per part (operation, group, phase), so that `by` can take M apart. Build one with `build_matrix`.

    Parameters
    ----------
    ranks : ndarray of int64, shape (n,)
        Global ranks, ascending; they label rows and columns and need not be 0..n-1.
    parts : tuple of Part
        What contributes.
    part : ndarray of int64, shape (m,)
        Index into `parts` of each cell.
    part_cells : Cells
        Cells in order of (part, source, destination).
    source : str
        Format that the trace was read from.
    algorithms : tuple of (str, str)
        Operation and the algorithm that attributed it.
    algorithm_origin : {"assumed", "stated", "asked", "mixed"}
        Whether the algorithms of collectives are the defaults, what the source states, or what the caller asked for.
    ring_order : {"assumed", "stated"}
        Whether the order of ranks in rings and chains is the group's, or was given.
    coverage : ImportCoverage
        What the importer read and used.
    notes : tuple of str
        What a reader of M must know.
    unsized_bytes : int
        Bytes of source records whose members are unknown; in no part.
    calls : CallTable
        What collectives the parts consist of, for `reattributed`.
    placement : Placement, optional
        Ranks on nodes, where it was given.

    Notes
    -----
    Algorithms that reduce inside the network send to switches. A switch is no rank: what passes one stands in `switch_cells`, beside M.
    """

    ranks: IntArray
    parts: tuple[Part, ...]
    part: IntArray
    part_cells: Cells
    source: str
    algorithms: tuple[tuple[str, str], ...] = ()
    algorithm_origin: str = "assumed"
    ring_order: str = "assumed"
    coverage: ImportCoverage = field(default_factory=ImportCoverage)
    notes: tuple[str, ...] = ()
    unsized_bytes: int = 0
    calls: CallTable = field(default_factory=CallTable.none)
    placement: Placement | None = None

    def __repr__(self) -> str:
        return (
            f"TrafficMatrix({len(self.ranks)} ranks, {len(self.cells):,} links, {format_bytes(self.sum_bytes)}, "
            f"{self.algorithm}{self._algorithm_said}, ring order {self.ring_order}, from {self.source})"
        )

    # -- figures ------------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @cached_property
    def all_cells(self) -> Cells:
        """The cells of M and of the traffic through switches, in canonical order."""
        zero = np.zeros(len(self.part), np.int64)
        return canonical(zero, self.part_cells.src, self.part_cells.dst, self.part_cells.size_bytes)[1]

    @cached_property
    def cells(self) -> Cells:
        """The cells of M in canonical order."""
        return self.all_cells.where(between_ranks(self.all_cells))

    @cached_property
    def switch_cells(self) -> Cells:
        """What passes switches, in canonical order; switches are numbered below 0 (`attribution.switch_of`)."""
        return self.all_cells.where(~between_ranks(self.all_cells))

    @cached_property
    def sum_bytes(self) -> float:
        """Sum of all cells of M."""
        return float(self.part_cells.size_bytes[between_ranks(self.part_cells)].sum())

    @cached_property
    def to_switches_bytes(self) -> float:
        """Bytes that ranks send to switches; not in M."""
        return float(self.switch_cells.size_bytes[self.switch_cells.dst < 0].sum())

    @cached_property
    def from_switches_bytes(self) -> float:
        """Bytes that switches send to ranks; not in M."""
        return float(self.switch_cells.size_bytes[self.switch_cells.src < 0].sum())

    @property
    def events(self) -> int:
        """Logical events counted."""
        return sum(p.events for p in self.parts)

    @property
    def records(self) -> int:
        """Rank records counted: one per event and reporting rank."""
        return sum(p.records for p in self.parts)

    @property
    def payload_bytes(self) -> int:
        """Sum of B over the records."""
        return sum(p.payload_bytes for p in self.parts)

    @property
    def unattributed_bytes(self) -> int:
        """Bytes that were sent and whose destination is unknown; never divided among ranks."""
        return sum(p.unattributed_bytes for p in self.parts) + self.unsized_bytes

    @property
    def unattributed_received_bytes(self) -> int:
        """Bytes that were received and whose source is unknown; not to be added to `unattributed_bytes`."""
        return sum(p.unattributed_received_bytes for p in self.parts)

    @property
    def algorithm(self) -> str:
        """The algorithm, or every operation with its algorithm if there are several."""
        names = sorted({name for _, name in self.algorithms})
        return (names or ["none"])[0] if len(names) < 2 else ", ".join(f"{op} {name}" for op, name in self.algorithms)

    @property
    def _algorithm_said(self) -> str:
        return f" ({self.algorithm_origin})" if self.algorithm_origin in ("stated", "mixed") else ""

    @property
    def origin(self) -> str:
        """``measured`` where sources state who sent to whom, ``model`` where an algorithm decides."""
        return "measured" if all(name in _MEASURED for _, name in self.algorithms) else "model"

    # -- content ------------------------------------------------------------------------------------------------------

    def links(self, top: int | None = None) -> list[Link]:
        """Return the links by bytes, largest first, then source and destination; at most `top` of them."""
        return ranked(self.cells, top)

    def switch_links(self, top: int | None = None) -> list[Link]:
        """Return the links to and from switches by bytes; `attribution.switch_name` names the ends below 0."""
        return ranked(self.switch_cells, top)

    def value(self, src: int, dst: int) -> float:
        """Return the bytes that one rank sends to another."""
        c = self.cells
        low, high = np.searchsorted(c.src, src), np.searchsorted(c.src, src, "right")
        i = low + np.searchsorted(c.dst[low:high], dst)
        return float(c.size_bytes[i]) if i < high and c.dst[i] == dst else 0.0

    def dense(self) -> FloatArray:
        """Return M as an array of shape (n, n); row i is what ``ranks[i]`` sends.

        Raises
        ------
        LimitError
            Above 8 GiB.
        """
        if self.n * self.n * 8 > _MAX_DENSE_BYTES:
            raise LimitError(
                f"a dense matrix of {self.n:,} ranks takes {format_bytes(self.n * self.n * 8)}",
                remedy="use links(), csr() or group_by_node()",
            )
        return self.cells.dense(self.ranks)

    def csr(self) -> sp.csr_matrix:
        """Return M as a scipy sparse matrix of shape (n, n)."""
        from scipy.sparse import csr_matrix

        c = self.cells
        index = (np.searchsorted(self.ranks, c.src), np.searchsorted(self.ranks, c.dst))
        return csr_matrix((c.size_bytes, index), shape=(self.n, self.n))

    def egress(self) -> FloatArray:
        """Return the bytes that each rank sends, shape (n,)."""
        return np.bincount(np.searchsorted(self.ranks, self.cells.src), weights=self.cells.size_bytes, minlength=self.n).astype(np.float64)

    def ingress(self) -> FloatArray:
        """Return the bytes that each rank receives, shape (n,)."""
        return np.bincount(np.searchsorted(self.ranks, self.cells.dst), weights=self.cells.size_bytes, minlength=self.n).astype(np.float64)

    def by(self, what: str) -> dict[str, TrafficMatrix]:
        """Take M apart by ``op``, ``group`` or ``phase``; the parts sum to M.

        Groups are keyed by name where names are unique, by name, size and ranks otherwise.

        Raises
        ------
        UsageError
            If `what` is something else.
        """
        keys = part_keys(self.parts, what)
        table: dict[str, int] = {}
        code = np.array([table.setdefault(k, len(table)) for k in keys], np.int64)
        return {key: self.only(np.flatnonzero(code == table[key]).tolist()) for key in sorted(table)}

    def only(self, kept: Sequence[int]) -> TrafficMatrix:
        """Return the matrix of the parts at the given positions."""
        new = np.full(len(self.parts), -1, np.int64)
        new[kept] = np.arange(len(kept))
        parts = tuple(self.parts[i] for i in kept)
        picked = new[self.part] >= 0
        ops = {p.op for p in parts}
        return replace(self, parts=parts, part=new[self.part[picked]], part_cells=self.part_cells.where(picked), unsized_bytes=0,
                       algorithms=tuple(a for a in self.algorithms if a[0] in ops), calls=self.calls.remapped(new))  # fmt: skip

    def where(self, *, op: str | Iterable[str] | None = None, group: str | Iterable[str] | None = None,
              phase: str | Iterable[str] | None = None) -> TrafficMatrix:  # fmt: skip
        """Return the part of M that matches all conditions; names are those of `by`.

        Raises
        ------
        UsageError
            If a name does not occur.
        """
        kept = np.ones(len(self.parts), np.bool_)
        for what, wanted in (("op", op), ("group", group), ("phase", phase)):
            if wanted is not None:
                names = {wanted} if isinstance(wanted, str) else set(wanted)
                keys = part_keys(self.parts, what)
                for name in sorted(names - set(keys)):
                    raise UsageError(f"there is no {what} {name!r}", remedy=f"there is: {', '.join(sorted(set(keys))[:20]) or 'nothing'}")
                kept &= np.array([key in names for key in keys], np.bool_)
        return self.only(np.flatnonzero(kept).tolist())

    def without_switches(self) -> TrafficMatrix:
        """Return M alone, without what passes switches beside it."""
        kept = between_ranks(self.part_cells)
        return replace(self, part=self.part[kept], part_cells=self.part_cells.where(kept))

    def reattributed(self, *, algorithm: str | Mapping[str, str] | None = None, order: RingOrder | None = None,
                     placement: Placement | None = None) -> TrafficMatrix:  # fmt: skip
        """Attribute the collectives again; messages and uneven all-to-alls stay as they are.

        Parameters
        ----------
        algorithm : str or mapping of str to str, optional
            As in `build_matrix`; operations that it leaves out keep the algorithms they have, and what no algorithm attributed stays so.
        order : RingOrder, optional
            Order of ranks; default: that of the groups.
        placement : Placement, optional
            Ranks on nodes; default: the one that M has.

        Raises
        ------
        UsageError, RefusedError
            As `build_matrix`.
        """
        from commcanary_lab.traffic.reattribute import reattribute

        return reattribute(self, algorithm, order, placement)

    def group_by_node(self, gpus_per_node: int) -> NodeMatrix:
        """Return the matrix between nodes, where rank r is on node ``r // gpus_per_node``."""
        return NodeMatrix.of(self.ranks, self.cells, gpus_per_node)

    # -- arithmetic and comparison ------------------------------------------------------------------------------------

    def __add__(self, other: TrafficMatrix) -> TrafficMatrix:
        """Add the traffic of another job or of other ranks' sources; equal parts are joined."""
        if not isinstance(other, TrafficMatrix):
            return NotImplemented
        table: dict[tuple[str, ProcessGroup, str | None], Part] = {}
        for p in (*self.parts, *other.parts):
            key = (p.op, p.group, p.phase)
            table[key] = joined(table[key], p) if key in table else p
        position = {key: i for i, key in enumerate(table)}
        codes = [position[p.op, p.group, p.phase] for p in (*self.parts, *other.parts)]
        part = np.array(codes, np.int64)[np.concatenate([self.part, other.part + len(self.parts)])]
        a, b = self.part_cells, other.part_cells
        part, cells = canonical(
            part, np.concatenate([a.src, b.src]), np.concatenate([a.dst, b.dst]), np.concatenate([a.size_bytes, b.size_bytes])
        )
        return TrafficMatrix(
            np.union1d(self.ranks, other.ranks),
            tuple(table.values()),
            part,
            cells,
            source=self.source if self.source == other.source else f"{self.source} + {other.source}",
            algorithms=tuple(sorted({*self.algorithms, *other.algorithms})),
            algorithm_origin=self.algorithm_origin if self.algorithm_origin == other.algorithm_origin else "mixed",
            ring_order=self.ring_order if self.ring_order == other.ring_order else "assumed",
            coverage=self.coverage + other.coverage,
            notes=tuple(dict.fromkeys([*self.notes, *other.notes])),
            unsized_bytes=self.unsized_bytes + other.unsized_bytes,
            calls=self.calls.remapped(np.array(codes[: len(self.parts)], np.int64))
            + other.calls.remapped(np.array(codes[len(self.parts) :], np.int64)),
            placement=self.placement if self.placement == other.placement else None,
        )

    def __sub__(self, other: TrafficMatrix) -> TrafficDifference:
        """Return what this matrix has more, and less, than another."""
        from commcanary_lab.traffic.difference import TrafficDifference

        return TrafficDifference(self, other) if isinstance(other, TrafficMatrix) else NotImplemented

    def first_difference(self, other: TrafficMatrix, rtol: float = 1e-12) -> CellDifference | None:
        """Return the first cell, by source and destination, that differs by more than `rtol` of the larger value."""
        src, dst, left, right = aligned(self.all_cells, other.all_cells)
        differs = np.flatnonzero(np.abs(left - right) > rtol * np.maximum(np.abs(left), np.abs(right)))
        if not len(differs):
            return None
        i = differs[0]
        return CellDifference(int(src[i]), int(dst[i]), float(left[i]), float(right[i]))

    def equals(self, other: TrafficMatrix, rtol: float = 1e-12) -> bool:
        """Return True if every cell agrees within `rtol`; ranks without traffic do not matter."""
        return self.first_difference(other, rtol) is None

    # -- output -------------------------------------------------------------------------------------------------------

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write by suffix: .csv, .npz, .parquet or .txt (see `commcanary_lab.traffic.write`); returns the bytes written."""
        from commcanary_lab.traffic.write import write_matrix

        return write_matrix(self, path)

    def to_csv(self, path: str | os.PathLike[str]) -> int:
        """Write the links as CSV: ``src,dst,bytes``."""
        return self._write_as(path, ".csv")

    def to_npz(self, path: str | os.PathLike[str]) -> int:
        """Write a scipy sparse matrix with the rank labels; ``scipy.sparse.load_npz`` reads it."""
        return self._write_as(path, ".npz")

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the contributions as Parquet: op, group, phase, src, dst, bytes."""
        return self._write_as(path, ".parquet")

    def to_txt(self, path: str | os.PathLike[str]) -> int:
        """Write the dense matrix of whole bytes that all-to-all-v benchmarks read."""
        return self._write_as(path, ".txt")

    def _write_as(self, path: str | os.PathLike[str], suffix: str) -> int:
        from commcanary_lab.traffic.write import write_matrix

        return write_matrix(self, path, suffix)

    def _repr_html_(self) -> str:
        title = (
            f"{self.n} ranks, {self.records:,} records: payload {format_bytes(self.payload_bytes)}, "
            f"matrix sum {format_bytes(self.sum_bytes)}, unattributed {format_bytes(self.unattributed_bytes)} "
            f"({self.origin}: {self.algorithm}{self._algorithm_said}, ring order {self.ring_order}; from {self.source}, "
            f"{self.coverage.used:,} of {self.coverage.read:,} source records used)"
        )
        rows = [(link.src, link.dst, format_bytes(link.size_bytes), link.size_bytes) for link in self.links(top=30)]
        return table_html(title, ["from rank", "to rank", "amount", "bytes"], rows, len(self.cells), self.notes)
