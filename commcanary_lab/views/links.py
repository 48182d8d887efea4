"""The links behind a heatmap, as a table and as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.traffic import TrafficMatrix
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.tables import TableColumn, table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Brush", "links_csv", "links_frame", "links_table", "selection_text"]

#: First and last position of the sending ranks, and of the receiving ones; inclusive.
Brush = tuple[tuple[int, int], tuple[int, int]]

#: Rows sent to the browser; the download has all of them.
MAX_ROWS = 2000


def _picked(m: TrafficMatrix, brush: Brush | None) -> npt.NDArray[np.intp]:
    """Cells inside a brush, by bytes, then source and destination."""
    c = m.cells
    inside = np.ones(len(c), np.bool_)
    if brush is not None:
        (top, bottom), (left, right) = brush
        inside = (c.src >= m.ranks[top]) & (c.src <= m.ranks[bottom]) & (c.dst >= m.ranks[left]) & (c.dst <= m.ranks[right])
    index = np.flatnonzero(inside)
    return index[np.lexsort((c.dst[index], c.src[index], -c.size_bytes[index]))]


def links_frame(m: TrafficMatrix, brush: Brush | None, top: int | None = MAX_ROWS) -> pd.DataFrame:
    """Return the links inside a brush, largest first: source, destination, bytes, and their share of the whole matrix."""
    import pandas as pd

    index = _picked(m, brush)[:top]
    c = m.cells
    total = m.sum_bytes or 1.0
    return pd.DataFrame({"src": c.src[index], "dst": c.dst[index], "bytes": c.size_bytes[index], "share": c.size_bytes[index] / total})


def links_table(frame: pd.DataFrame) -> Any:
    """Return the table of links."""
    columns = {
        "src": TableColumn("From rank", fmt.count_cell(), 70, right=True),
        "dst": TableColumn("To rank", fmt.count_cell(), 70, right=True),
        "bytes": TableColumn("Sent", fmt.bytes_cell(), 90, right=True),
        "share": TableColumn("Share", fmt.share_cell(), 80, right=True),
    }
    return table(
        frame,
        columns,
        page_size=15,
        empty="No traffic in the box. Draw it over coloured cells; a click outside clears it.",
        pagination="local",
    )


def links_csv(m: TrafficMatrix, brush: Brush | None) -> str:
    """Return all links inside a brush as CSV: ``src,dst,bytes``."""
    return links_frame(m, brush, None)[["src", "dst", "bytes"]].to_csv(index=False)


def selection_text(m: TrafficMatrix, brush: Brush | None, frame: pd.DataFrame) -> str:
    """Say in words what the table lists.

    The sum is taken over all links of the box, not only over the listed ones.
    """
    index = _picked(m, brush)
    total = float(m.cells.size_bytes[index].sum())
    text = f"{len(index):,} link{'s' if len(index) != 1 else ''}, {format_bytes(total)}"
    if m.sum_bytes:
        text += f" ({total / m.sum_bytes:.1%} of all)" if brush is not None else ""
    if brush is not None:
        (top, bottom), (left, right) = brush
        text = f"Ranks {_span(m, top, bottom)} to {_span(m, left, right)}: {text}"
    return text if len(frame) == len(index) else f"{text}; the largest {len(frame):,} are listed"


def _span(m: TrafficMatrix, first: int, last: int) -> str:
    a, b = int(m.ranks[first]), int(m.ranks[last])
    return str(a) if a == b else f"{a}-{b}"
