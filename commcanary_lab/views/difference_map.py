"""A difference of traffic matrices as a heatmap: one colour for bytes that are missing, another for bytes that are new."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.traffic.difference import TrafficDifference
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.plot_frame import frame, pane
from commcanary_lab.views.theme import DIFFERENCE, NEUTRAL, smooth

__all__ = ["blocks", "difference_map", "difference_text"]

#: Above so many ranks the cells of neighbouring ranks are added up.
MAX_CELLS = 512

_SIDE = 250
#: The colour scale reaches down to this part of its end before it becomes linear.
_DECADES = 300.0


def blocks(difference: TrafficDifference, cells: int = MAX_CELLS) -> tuple[npt.NDArray[np.float64], int]:
    """Return the signed difference, shape (k, k) with k at most `cells`, and how many ranks one row stands for.

    Signed cells of one block are added; blocks without a differing cell are NaN.
    """
    n = len(difference.ranks)
    width = max(1, -(-n // cells))
    side = -(-n // width)
    out = np.full((side, side), np.nan)
    c = difference.cells
    if len(c):
        row = np.searchsorted(difference.ranks, c.src) // width
        column = np.searchsorted(difference.ranks, c.dst) // width
        out[row, column] = 0.0
        np.add.at(out, (row, column), c.size_bytes)
    return out, width


def difference_text(difference: TrafficDifference, base: str = "in the source") -> str:
    """Return a difference of source minus result in words; `base` says where the source's bytes are."""
    if difference.is_zero:
        return "M is equal to the source's, cell by cell"
    if not len(difference.cells):
        return "only what passes switches differs"
    missing, new = difference.added_bytes, difference.removed_bytes
    parts = [f"{format_bytes(missing)} of {format_bytes(difference.left.sum_bytes)} missing"] if missing else []
    parts += [f"{format_bytes(new)} more than {base}"] if new else []
    return f"{' and '.join(parts)}, over {len(difference.cells):,} link{'s' * (len(difference.cells) != 1)}"


def difference_map(difference: TrafficDifference, top: float, *, label: str = "source - result") -> Any:
    """Show the difference of two matrices.

    Parameters
    ----------
    difference : TrafficDifference
        Source minus result.
    top : float
        Bytes at either end of the colour scale; give two maps the same to compare them.
    label : str
        What was subtracted from what, under the pointer.

    Returns
    -------
    panel.viewable.Viewable
    """
    import pandas as pd
    from bokeh.models import AdaptiveTicker, ColumnDataSource, FixedTicker, HoverTool, LinearColorMapper, Range1d

    image, width = blocks(difference)
    k = len(image)
    edge = k - 0.5
    labels = difference.ranks[::width].tolist()
    f = frame(
        _SIDE + 46,
        width=_SIDE + 230,
        sizing_mode="fixed",
        frame_width=_SIDE,
        frame_height=_SIDE,
        x_range=Range1d(-0.5, max(edge, 0.5)),
        y_range=Range1d(max(edge, 0.5), -0.5),
        tools="",
    )
    f.rect(x=edge / 2 - 0.25, y=edge / 2 - 0.25, width=k, height=k, line_color=NEUTRAL, line_alpha=0.6, fill_color=NEUTRAL, fill_alpha=0.06)
    if difference.is_zero:
        f.text(x=[edge / 2 - 0.25], y=[edge / 2 - 0.25], text=["equal"], text_align="center", text_baseline="middle", text_color=NEUTRAL)
    f.grid.visible = False
    f.xaxis.axis_label, f.yaxis.axis_label = "to rank", "from rank"
    for axis in (*f.xaxis, *f.yaxis):
        axis.formatter = fmt.rank_ticks(labels)
        sparse = AdaptiveTicker(base=2, mantissas=[1, 2], min_interval=1, desired_num_ticks=7)
        axis.ticker = FixedTicker(ticks=list(range(k))) if k <= 8 else sparse
    top = top or 1.0
    reach = _scaled(top, top)
    mapper = LinearColorMapper(palette=smooth(DIFFERENCE), low=-reach, high=reach, nan_color="rgba(0, 0, 0, 0)")
    # row 0 is drawn first, at y = -0.5; the axis runs downwards
    # tooltips write "NaN" before they ask a formatter, so the bytes to show are 0 where there are none
    data = ColumnDataSource({"image": [_scaled(image, top).astype(np.float32)], "bytes": [np.nan_to_num(image)]})
    drawn = f.image(image="image", x=-0.5, y=-0.5, dw=k, dh=k, color_mapper=mapper, source=data)
    f.add_tools(
        HoverTool(
            renderers=[drawn],
            tooltips=[("from rank", "$y{custom}"), ("to rank", "$x{custom}"), (label, "@bytes{custom}")],
            formatters={"$x": fmt.rank_hover(labels), "$y": fmt.rank_hover(labels), "@bytes": fmt.bytes_hover("equal", signed=True)},
        )
    )
    f.add_layout(_color_bar(mapper, top), "right")
    f.width = f.height = None  # the frame is fixed
    f.min_border_right = 130  # for the labels of the colour bar, which Bokeh measures before they are there
    cells = difference.cells
    out = pane(f, csv=lambda: pd.DataFrame({"src": cells.src, "dst": cells.dst, "bytes": cells.size_bytes}).to_csv(index=False))
    out[0].param.update(sizing_mode="fixed", width=_SIDE + 230, height=_SIDE + 50)
    out.param.update(sizing_mode="fixed", width=_SIDE + 230, height=_SIDE + 76)
    return out


def _scaled(size_bytes: Any, top: float) -> Any:
    """Place on the colour scale: about linear near 0 and logarithmic above, the same on both sides, so that small differences are seen."""
    return np.sign(size_bytes) * np.log10(1 + np.abs(size_bytes) * (_DECADES / top))


def _color_bar(mapper: Any, top: float) -> Any:
    from bokeh.models import ColorBar, CustomJSTickFormatter, FixedTicker

    values = [-top, -top / 10, 0.0, top / 10, top]
    code = fmt.BYTES_JS + f"const at = Math.sign(tick) * (10 ** Math.abs(tick) - 1) * {top / _DECADES!r}; return bytes(at)"
    return ColorBar(
        color_mapper=mapper,
        width=10,
        padding=8,
        ticker=FixedTicker(ticks=[float(_scaled(v, top)) for v in values]),
        formatter=CustomJSTickFormatter(code=code),
        bar_line_color=None,
        major_tick_line_color=None,
        background_fill_alpha=0,
        major_label_text_color=NEUTRAL,
    )
