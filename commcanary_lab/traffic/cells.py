"""Sparse cells of a matrix in canonical order: by source, then destination, each once, no zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.traffic.attribution import switch_name

__all__ = ["CellDifference", "Cells", "Link", "aligned", "between_ranks", "canonical", "ranked"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes from one global rank to another; signed in a difference."""

    src: int
    dst: int
    size_bytes: float


@dataclass(frozen=True)
class CellDifference:
    """The first cell in which two matrices differ.

    Examples
    --------
    >>> print(CellDifference(0, 4, 512.0, 0.0))
    0 -> 4: 512 bytes against 0 bytes
    """

    src: int
    dst: int
    left_bytes: float
    right_bytes: float

    def __str__(self) -> str:
        src, dst = (switch_name(end) if end < 0 else str(end) for end in (self.src, self.dst))
        return f"{src} -> {dst}: {self.left_bytes:.15g} bytes against {self.right_bytes:.15g} bytes"


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a matrix that are not 0.

    Parameters
    ----------
    src, dst : ndarray of int64, shape (n,)
        Labels (global ranks, nodes; switches below 0), in canonical order.
    size_bytes : ndarray of float64, shape (n,)
        Bytes from `src` to `dst`.
    """

    src: IntArray
    dst: IntArray
    size_bytes: FloatArray

    def __len__(self) -> int:
        return len(self.size_bytes)

    def where(self, mask: npt.NDArray[np.bool_]) -> Cells:
        """Return the cells that a mask of shape (n,) selects."""
        return Cells(self.src[mask], self.dst[mask], self.size_bytes[mask])

    def dense(self, labels: IntArray) -> FloatArray:
        """Return the full matrix over sorted labels, shape (len(labels), len(labels))."""
        out = np.zeros((len(labels), len(labels)))
        out[np.searchsorted(labels, self.src), np.searchsorted(labels, self.dst)] = self.size_bytes
        return out


def between_ranks(cells: Cells) -> npt.NDArray[np.bool_]:
    """Return which cells have a rank at both ends, shape (n,); switches are numbered below 0.

    Examples
    --------
    >>> between_ranks(Cells(np.array([0, 0]), np.array([-1, 1]), np.ones(2))).tolist()
    [False, True]
    """
    return (cells.src >= 0) & (cells.dst >= 0)


def canonical(part: IntArray, src: IntArray, dst: IntArray, size_bytes: FloatArray) -> tuple[IntArray, Cells]:
    """Sort contributions by (part, src, dst), add up equal ones and drop zeros.

    Returns
    -------
    part : ndarray of int64, shape (m,)
        Part of each cell.
    cells : Cells
        Canonical within each part.

    Examples
    --------
    >>> part, cells = canonical(np.array([0, 0, 0]), np.array([1, 0, 1]), np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]))
    >>> cells.src.tolist(), cells.dst.tolist(), cells.size_bytes.tolist()
    ([0, 1], [1, 0], [2.0, 4.0])
    """
    if len(src) == 0:
        return np.zeros(0, np.int64), Cells(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    low = min(0, int(min(src.min(), dst.min())))  # switches are numbered below 0
    top = int(max(src.max(), dst.max())) + 1 - low
    order: IntArray | slice = slice(None)
    if (int(part.max()) + 1) * top * top < 1 << 62:
        key = (part * top + (src - low)) * top + (dst - low)
        if not np.all(key[1:] > key[:-1]):
            order = np.argsort(key, kind="stable")
            key = key[order]
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    else:
        order = np.lexsort((dst, src, part))
        fresh = np.ones(len(src), np.bool_)
        fresh[1:] = (np.diff(part[order]) != 0) | (np.diff(src[order]) != 0) | (np.diff(dst[order]) != 0)
        starts = np.flatnonzero(fresh)
    size = np.add.reduceat(size_bytes[order], starts)
    starts, size = starts[size != 0], size[size != 0]
    return part[order][starts], Cells(src[order][starts], dst[order][starts], size)


def aligned(a: Cells, b: Cells) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return source, destination and both values of every cell that is in `a` or `b`, in canonical order.

    Examples
    --------
    >>> one = Cells(np.array([0]), np.array([1]), np.array([5.0]))
    >>> two = Cells(np.array([0]), np.array([2]), np.array([7.0]))
    >>> [x.tolist() for x in aligned(one, two)]
    [[0, 0], [1, 2], [5.0, 0.0], [0.0, 7.0]]
    """
    src, dst = np.concatenate([a.src, b.src]), np.concatenate([a.dst, b.dst])
    order = np.lexsort((dst, src))
    src, dst = src[order], dst[order]
    fresh = np.ones(len(src), np.bool_)
    fresh[1:] = (np.diff(src) != 0) | (np.diff(dst) != 0)
    cell = np.empty(len(src), np.int64)
    cell[order] = np.cumsum(fresh) - 1
    left, right = np.zeros(int(fresh.sum())), np.zeros(int(fresh.sum()))
    left[cell[: len(a)]] = a.size_bytes
    right[cell[len(a) :]] = b.size_bytes
    return src[fresh], dst[fresh], left, right


def ranked(cells: Cells, top: int | None) -> list[Link]:
    """Return links by the magnitude of their bytes, largest first, then source and destination."""
    order = np.lexsort((cells.dst, cells.src, -np.abs(cells.size_bytes)))[:top]
    return [Link(*row) for row in zip(cells.src[order].tolist(), cells.dst[order].tolist(), cells.size_bytes[order].tolist(), strict=True)]
