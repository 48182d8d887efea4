"""A large traffic matrix on the screen: blocks of ranks are added up for the part in view, single cells once they are large enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.traffic import TrafficMatrix
from commcanary_lab.views.plot_frame import redraw
from commcanary_lab.views.range_follow import follow

__all__ = ["NOTHING", "MOST_BLOCKS", "BlockImage", "Blocks", "Follower"]

#: Blocks along one side: about one per pixel, so that the browser leaves none out.
MOST_BLOCKS = 470


Span = tuple[float, float]

#: In the place of a cell without traffic: below every colour scale, so it stays transparent. A NaN would be transparent, too, but Bokeh's
#: tooltips write "NaN" before any formatter is asked.
NOTHING = -1.0


@dataclass(frozen=True)
class BlockImage:
    """Blocks of a part of the matrix.

    Parameters
    ----------
    size_bytes : ndarray of float32, shape (rows, columns)
        Bytes per block; NaN where there are none.
    row, column : int
        Position of the first rank of the first block.
    width : int
        Ranks along each side of a block.
    """

    size_bytes: npt.NDArray[np.float32]
    row: int
    column: int
    width: int

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, low, right and high, on axes of positions."""
        rows, columns = self.size_bytes.shape
        return self.column - 0.5, self.row - 0.5, self.column + columns * self.width - 0.5, self.row + rows * self.width - 0.5

    @property
    def data(self) -> dict[str, list[Any]]:
        """Columns of the Bokeh image."""
        left, low, right, high = self.bounds
        return {"image": [self.size_bytes], "x": [left], "y": [low], "dw": [right - left], "dh": [high - low]}


class Blocks:
    """The cells of a matrix by position, ready to be added up.

    Parameters
    ----------
    matrix : TrafficMatrix
        The matrix.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> m = lab.traffic(lab.samples.tp8_decode())
    >>> blocks = Blocks(m)
    >>> whole, near = blocks.view(None, None, most=4), blocks.view((-0.5, 1.4), (-0.5, 1.4))
    >>> whole.width, whole.size_bytes.shape, float(whole.size_bytes.clip(0).sum()) == m.sum_bytes
    (2, (4, 4), True)
    >>> near.width, float(near.size_bytes[0, 1]) == m.value(0, 1)
    (1, True)
    """

    def __init__(self, matrix: TrafficMatrix) -> None:
        c = matrix.cells
        self.n = matrix.n
        self._row = np.searchsorted(matrix.ranks, c.src).astype(np.int32)
        self._column = np.searchsorted(matrix.ranks, c.dst).astype(np.int32)
        self._size = c.size_bytes

    def view(self, x: Span | None, y: Span | None, *, most: int = MOST_BLOCKS) -> BlockImage:
        """Add up what is in view.

        Blocks begin at multiples of their width, so that they stay where they are while the view pans.

        Parameters
        ----------
        x, y : (float, float) or None
            Ranges of the axes; None for all.
        most : int
            Blocks along a side, at most (one more where the view cuts a block at both ends).
        """
        left, right = self._snap(x)
        top, bottom = self._snap(y)
        width = max(1, -(-max(right - left, bottom - top) // most))
        left, top = left // width * width, top // width * width
        columns, rows = -(-(right - left) // width), -(-(bottom - top) // width)
        low, high = np.searchsorted(self._row, [top, top + rows * width])  # cells are in order of their rows
        row, column, size = self._row[low:high], self._column[low:high], self._size[low:high]
        if columns * width < self.n:
            inside = np.flatnonzero((column >= left) & (column < left + columns * width))
            row, column, size = row[inside], column[inside], size[inside]
        at = (row - np.int32(top)) // np.int32(width) * np.int32(columns) + (column - np.int32(left)) // np.int32(width)
        summed = np.bincount(at, weights=size, minlength=rows * columns).astype(np.float32)
        summed[summed == 0] = NOTHING
        return BlockImage(summed.reshape(rows, columns), top, left, width)

    def _snap(self, span: Span | None) -> tuple[int, int]:
        """First position in view, and the one after the last."""
        low, high = sorted(span) if span else (-0.5, self.n - 0.5)
        first = min(max(0, int(np.floor(low + 0.5))), self.n - 1)
        return first, min(max(first + 1, int(np.ceil(high + 0.5))), self.n)


class Follower:
    """Keeps the image of a figure to what is in view.

    Parameters
    ----------
    blocks : Blocks
        The matrix.
    on_width : callable, optional
        Called with the width of the blocks when it changes.
    """

    def __init__(self, blocks: Blocks, on_width: Callable[[int], None] | None = None) -> None:
        from bokeh.models import ColumnDataSource

        self.blocks = blocks
        self.image = blocks.view(None, None)
        #: For the pointer: which ranks a block stands for.
        self.step = ColumnDataSource({"width": [self.image.width]})
        #: The largest block of the whole matrix: where the colour scale ends.
        self.most_bytes = float(self.image.size_bytes.max(initial=0.0))
        self._on_width = on_width
        self._source: Any = None
        self._ranges: tuple[Any, Any] = (None, None)

    def rank_hover(self, labels: Sequence[int]) -> Any:
        """Return a hover formatter that names the rank, or the first and last rank of the block, under a coordinate."""
        from bokeh.models import CustomJSHover

        code = """const width = step.data.width[0], last = labels.length - 1;
const first = Math.max(0, Math.min(last, Math.floor(Math.round(value) / width) * width)), end = Math.min(last, first + width - 1);
return first === end ? labels[first] : labels[first] + ' to ' + labels[end]"""
        return CustomJSHover(args={"labels": [str(x) for x in labels], "step": self.step}, code=code)

    def attach(self, figure: Any, source: Any) -> None:
        """Follow the ranges of a figure; `source` holds its image."""
        if source is self._source:
            return
        self._source, self._ranges = source, (figure.x_range, figure.y_range)
        follow(self._ranges, self._draw)

    def _draw(self) -> None:
        x, y = ((float(span.start), float(span.end)) for span in self._ranges)
        self.show(x, y)

    def show(self, x: Span | None, y: Span | None) -> None:
        """Draw what is in view; nothing is sent where the image would cover the same blocks."""
        image, before = self.blocks.view(x, y), self.image
        if (image.bounds, image.width) == (before.bounds, before.width) or self._source is None:
            return
        self.image = image
        if image.width != before.width:
            redraw(self.step, {"width": [image.width]})
        redraw(self._source, image.data)
        if image.width != before.width and self._on_width is not None:
            self._on_width(image.width)
