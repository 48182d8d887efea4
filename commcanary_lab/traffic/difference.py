"""The difference of two traffic matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commcanary_lab.inspect.html import table_html
from commcanary_lab.traffic.cells import Cells, FloatArray, IntArray, Link, aligned, ranked
from commcanary_lab.traffic.matrix import TrafficMatrix
from commcanary_lab.units import format_bytes

__all__ = ["TrafficDifference"]

_RTOL = 1e-12


@dataclass(frozen=True, eq=False)
class TrafficDifference:
    """left - right, cell by cell, signed; cells that agree within relative 1e-12 count as equal.

    Parameters
    ----------
    left, right : TrafficMatrix
        The two matrices.
    """

    left: TrafficMatrix
    right: TrafficMatrix

    @cached_property
    def ranks(self) -> IntArray:
        """Global ranks of either matrix, ascending."""
        return np.union1d(self.left.ranks, self.right.ranks)

    @cached_property
    def cells(self) -> Cells:
        """Signed cells that differ, in canonical order."""
        src, dst, left, right = aligned(self.left.cells, self.right.cells)
        differs = np.abs(left - right) > _RTOL * np.maximum(np.abs(left), np.abs(right))
        return Cells(src[differs], dst[differs], (left - right)[differs])

    @property
    def is_zero(self) -> bool:
        """True when the matrices are equal, and what passes switches beside them too."""
        return self.left.first_difference(self.right, _RTOL) is None

    @property
    def sum_bytes(self) -> float:
        """Net difference: the sum of all signed cells."""
        return float(self.cells.size_bytes.sum())

    @property
    def added_bytes(self) -> float:
        """What left has more than right."""
        return float(self.cells.size_bytes[self.cells.size_bytes > 0].sum())

    @property
    def removed_bytes(self) -> float:
        """What left has less than right, as a positive number."""
        return abs(float(self.cells.size_bytes[self.cells.size_bytes < 0].sum()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What makes the two hard to compare, then the notes of both."""
        out = []
        for what in ("algorithm", "ring_order", "source"):
            a, b = getattr(self.left, what), getattr(self.right, what)
            if a != b:
                out.append(f"{what.replace('_', ' ')} differs: {a} against {b}")
        return tuple(dict.fromkeys([*out, *self.left.notes, *self.right.notes]))

    @property
    def origin(self) -> str:
        """``model`` if either matrix is."""
        return "measured" if self.left.origin == self.right.origin == "measured" else "model"

    def links(self, top: int | None = None) -> list[Link]:
        """Return the differing links by the magnitude of the difference, largest first."""
        return ranked(self.cells, top)

    def dense(self) -> FloatArray:
        """Return the signed difference, shape (n, n)."""
        return self.cells.dense(self.ranks)

    def by(self, what: str) -> dict[str, TrafficDifference]:
        """Take the difference apart by ``op``, ``group`` or ``phase`` (of either matrix)."""
        left, right = self.left.by(what), self.right.by(what)
        return {
            key: TrafficDifference(left.get(key) or self.left.only([]), right.get(key) or self.right.only([]))
            for key in sorted({*left, *right})
        }

    def __repr__(self) -> str:
        return (
            f"TrafficDifference({len(self.ranks)} ranks, {len(self.cells):,} links differ, +{format_bytes(self.added_bytes)}, "
            f"-{format_bytes(self.removed_bytes)})"
        )

    def _repr_html_(self) -> str:
        title = (
            f"{len(self.cells):,} links differ: {format_bytes(self.added_bytes)} more, "
            f"{format_bytes(self.removed_bytes)} less ({self.origin})"
        )
        rows = [(link.src, link.dst, link.size_bytes) for link in self.links(top=30)]
        return table_html(title, ["from rank", "to rank", "difference (bytes)"], rows, len(self.cells), self.notes)
