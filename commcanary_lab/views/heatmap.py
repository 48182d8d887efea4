"""The traffic matrix: a heatmap with a brush, the links under it, and what each rank sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import TrafficMatrix, build_matrix
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import holoviews, panel
from commcanary_lab.views.links import links_csv, links_frame, links_table, selection_text
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.rank_bars import RANK_LEGEND, rank_bars
from commcanary_lab.views.tables import download
from commcanary_lab.views.theme import AMOUNT, NEUTRAL, paper, plain, smooth

if TYPE_CHECKING:
    from commcanary_lab.views.links import Brush

__all__ = ["RAW_RANKS", "TrafficView", "heatmap", "traffic"]

#: Up to this many ranks every cell is sent to the browser; above, blocks of ranks are summed for the visible part.
RAW_RANKS = 512

_FRAME = 470


def traffic(source: Trace | TrafficMatrix, *, log: bool = True, gpus_per_node: int | None = None) -> Any:
    """Show a traffic matrix: heatmap, links under the brush, bytes per rank.

    Parameters
    ----------
    source : Trace or TrafficMatrix
        A trace is attributed with the default algorithms.
    log : bool
        Logarithmic colour scale.
    gpus_per_node : int, optional
        Rule the borders between nodes.

    Returns
    -------
    panel.viewable.Viewable
    """
    view = TrafficView(source if isinstance(source, TrafficMatrix) else build_matrix(source), log=log, gpus_per_node=gpus_per_node)
    return panel().Column(
        panel().FlexBox(view.heatmap_card, view.links_card, flex_wrap="wrap", gap="16px"),
        view.bars_card,
        sizing_mode="stretch_width",
        styles={"gap": "16px"},
    )


class TrafficView:
    """The figures of one matrix, tied together by the brush.

    Parameters
    ----------
    matrix : TrafficMatrix
        What to show.
    log : bool
        Logarithmic colour scale.
    gpus_per_node : int, optional
        Rule the borders between nodes.
    """

    def __init__(self, matrix: TrafficMatrix, *, log: bool = True, gpus_per_node: int | None = None) -> None:
        pn = panel()
        self.matrix = matrix
        self.log = log
        self.gpus_per_node = gpus_per_node
        self.brush: Brush | None = None
        self._plot = pn.pane.HoloViews(None, linked_axes=False, margin=0, width=_FRAME + 150)
        self._bars = pn.pane.HoloViews(None, linked_axes=False, margin=0, sizing_mode="stretch_width")
        self._table = links_table(links_frame(matrix, None))
        self._caption = html("", margin=0)
        self._title = html("")
        self.heatmap_card = paper(self._title, self._plot, sizing_mode="fixed", width=_FRAME + 190)
        head = pn.Row(self._caption, download(lambda: links_csv(matrix, self.brush), "links.csv"), sizing_mode="stretch_width", margin=0)
        self.links_card = paper(head, self._table, sx={"minWidth": "280px"})
        self._bars_title = html("")
        self.bars_card = paper(self._bars_title, self._bars)
        self.redraw()
        self.select(None)

    def update(self, *, log: bool | None = None, gpus_per_node: int | None = -1) -> None:
        """Change the colour scale or the node borders."""
        self.log = self.log if log is None else log
        self.gpus_per_node = self.gpus_per_node if gpus_per_node == -1 else gpus_per_node
        self.redraw()

    def redraw(self) -> None:
        """Draw the figures anew."""
        m = self.matrix
        origin = origin_text(m)
        order = f"ring order {m.ring_order}" if any(name in ("ring", "chain") for _, name in m.algorithms) else ""
        self._title.object = _cl(
            title_html(
                "Bytes between ranks",
                f"Row sends, column receives; {'logarithmic' if self.log else 'linear'} colour. Drag a box to list its links.",
                origin,
                coverage_text(m.coverage),
                order,
            )
        )
        self._bars_title.object = _cl(
            title_html("Bytes per rank", "What each rank sends and receives", origin, coverage_text(m.coverage)) + RANK_LEGEND
        )
        self._plot.object = heatmap(m, log=self.log, gpus_per_node=self.gpus_per_node, on_brush=self.select)
        self._bars.object = rank_bars(m, self.gpus_per_node)

    def select(self, brush: Brush | None) -> None:
        """List the links inside a brush: ((first, last) sending, (first, last) receiving) positions; None for all."""
        self.brush = brush
        frame = links_frame(self.matrix, brush)
        self._table.value = frame
        self._caption.object = _cl(title_html("Links" if brush is None else "Links in the box", selection_text(self.matrix, brush, frame)))


def _cl(content: str) -> str:
    return f'<div class="cl">{content}</div>'


def heatmap(matrix: TrafficMatrix, *, log: bool = True, gpus_per_node: int | None = None, on_brush: Any = None, frame: int = _FRAME) -> Any:
    """Return the heatmap alone, as HoloViews.

    Parameters
    ----------
    matrix : TrafficMatrix
        What to show.
    log : bool
        Logarithmic colour scale.
    gpus_per_node : int, optional
        Rule the borders between nodes.
    on_brush : callable, optional
        Called with ((first row, last row), (first column, last column)) when a box is drawn, None when it is cleared.
    frame : int
        Width and height of the matrix, pixels.
    """
    hv = holoviews()
    small = matrix.n <= RAW_RANKS
    image = (
        _image(hv, matrix)
        if small
        else hv.DynamicMap(
            lambda x_range, y_range: _blocks(hv, matrix, x_range, y_range),
            streams=[hv.streams.RangeXY(x_range=(-0.5, matrix.n - 0.5), y_range=(-0.5, matrix.n - 0.5))],
        )
    )
    image = image.opts(**_image_options(matrix, log))
    if on_brush is not None:
        bounds = hv.streams.BoundsXY(source=image)
        bounds.add_subscriber(lambda bounds: on_brush(brush_of(bounds, matrix.n)))
    out = image * _borders(hv, matrix, gpus_per_node)
    span = (-0.5, matrix.n - 0.5)
    return out.opts(
        hv.opts.Overlay(
            frame_width=frame,
            frame_height=frame,
            xlim=span,
            ylim=span,
            invert_yaxis=True,
            xlabel="to rank",
            ylabel="from rank",
            title="",
            toolbar="above",
            active_tools=["box_select"],
            hooks=[_rank_axes(matrix)],
            show_grid=False,
            show_legend=False,
        )
    )


def brush_of(bounds: tuple[float, float, float, float] | None, n: int) -> Brush | None:
    """Return the rank positions inside a drawn box, or None where there are none.

    Examples
    --------
    >>> brush_of((-0.4, 0.7, 2.2, 3.4), 4), brush_of((8, 8, 9, 9), 4)
    (((1, 3), (0, 2)), None)
    """
    if bounds is None:
        return None
    left, low, right, high = bounds
    low, high = sorted((low, high))
    columns = (max(0, int(np.floor(left + 0.5))), min(n - 1, int(np.ceil(right - 0.5))))
    rows = (max(0, int(np.floor(low + 0.5))), min(n - 1, int(np.ceil(high - 0.5))))
    return (rows, columns) if columns[0] <= columns[1] and rows[0] <= rows[1] else None


def _image(hv: Any, m: TrafficMatrix) -> Any:
    """Every cell as float32; no traffic is not a number and stays transparent."""
    dense = m.dense().astype(np.float32)
    dense[dense == 0] = np.nan
    edge = m.n - 0.5
    return hv.Image(dense[::-1], kdims=["dst", "src"], vdims="bytes", bounds=(-0.5, -0.5, edge, edge))


def _blocks(hv: Any, m: TrafficMatrix, x_range: Any, y_range: Any) -> Any:
    """Blocks of ranks, summed over the visible part with Datashader: exact cells once fewer than `RAW_RANKS` ranks are visible."""
    import datashader as ds
    import pandas as pd

    x, y = _snap(x_range, m.n), _snap(y_range, m.n)
    c = m.cells
    cells = pd.DataFrame({"dst": np.searchsorted(m.ranks, c.dst), "src": np.searchsorted(m.ranks, c.src), "bytes": c.size_bytes})
    canvas = ds.Canvas(plot_width=min(RAW_RANKS, round(x[1] - x[0])), plot_height=min(RAW_RANKS, round(y[1] - y[0])), x_range=x, y_range=y)
    summed: npt.NDArray[Any] = canvas.points(cells, "dst", "src", agg=ds.sum("bytes")).values.astype(np.float32)
    summed[summed == 0] = np.nan
    return hv.Image(summed[::-1], kdims=["dst", "src"], vdims="bytes", bounds=(x[0], y[0], x[1], y[1]))


def _snap(span: tuple[float, float] | None, n: int) -> tuple[float, float]:
    """Whole ranks, so that blocks do not crawl while the view pans."""
    low, high = sorted(span) if span else (-0.5, n - 0.5)
    low, high = max(0, int(np.floor(low + 0.5))), min(n, int(np.ceil(high + 0.5)))
    return low - 0.5, max(high, low + 1) - 0.5


def _image_options(m: TrafficMatrix, log: bool) -> dict[str, Any]:
    from bokeh.models import FixedTicker, HoverTool

    values = m.cells.size_bytes
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 2.0)
    if m.n > RAW_RANKS:
        high = float(high * max(1, m.n // RAW_RANKS))  # blocks add up
    low = (low if low < high else high / 2) if log else 0.0
    hover = HoverTool(
        tooltips=[("from rank", "$y{custom}"), ("to rank", "$x{custom}"), ("sent", "@image{custom}")],
        formatters={"$x": fmt.rank_hover(m.ranks.tolist()), "$y": fmt.rank_hover(m.ranks.tolist()), "@image": fmt.bytes_hover()},
    )
    return {
        "cmap": smooth(AMOUNT), "cnorm": "log" if log else "linear", "clim": (low, high),
        "colorbar": True, "clipping_colors": {"NaN": (0, 0, 0, 0)},
        "clabel": " ",
        "colorbar_opts": {"formatter": fmt.bytes_ticks(), "ticker": FixedTicker(ticks=fmt.byte_tick_values(low, high, log=log)), "width": 10,
                          "bar_line_color": None, "padding": 8, "title": "", "major_tick_line_color": None},
        "tools": [hover, "box_select"], "default_tools": ["pan", "wheel_zoom", "box_zoom", "reset", "save"], "hooks": [_smooth_off],
    }  # fmt: skip


def _smooth_off(plot: Any, element: Any) -> None:
    """The box stays where it was drawn, in the neutral colour of marks."""
    from bokeh.models import BoxSelectTool

    for tool in plot.state.tools:
        if isinstance(tool, BoxSelectTool):
            tool.persistent = True
            tool.overlay.update(fill_color=NEUTRAL, fill_alpha=0.18, line_color=NEUTRAL, line_alpha=1, line_width=1.5, line_dash="solid")


def _borders(hv: Any, m: TrafficMatrix, gpus_per_node: int | None) -> Any:
    cuts: list[float] = []
    if gpus_per_node and gpus_per_node < m.n:
        cuts = (np.flatnonzero(np.diff(m.ranks // gpus_per_node)) + 0.5).tolist()
    if len(cuts) > 128:
        cuts = []
    style = {"color": NEUTRAL, "line_width": 1, "alpha": 0.75, "apply_ranges": False}
    return hv.VLines(cuts).opts(**style) * hv.HLines(cuts).opts(**style)


def _rank_axes(m: TrafficMatrix) -> Any:
    """Positions are whole; the labels are global ranks."""

    def apply(plot: Any, element: Any) -> None:
        from bokeh.models import AdaptiveTicker, FixedTicker, Range1d

        labels = m.ranks.tolist()
        for axis in (*plot.state.xaxis, *plot.state.yaxis):
            axis.formatter = fmt.rank_ticks(labels)
            axis.ticker = (
                FixedTicker(ticks=list(range(m.n)))
                if m.n <= 16
                else AdaptiveTicker(base=2, mantissas=[1, 2], min_interval=1, desired_num_ticks=9)
            )
        for span in (plot.state.x_range, plot.state.y_range):
            if isinstance(span, Range1d):
                span.bounds = (-0.5, m.n - 0.5)
        plot.state.toolbar.autohide = True
        plain(plot, element)

    return apply


def origin_text(matrix: TrafficMatrix) -> str:
    """Return where the cells come from: measured, or the algorithms that attribute them."""
    names = sorted({name.replace("_", "/") for _, name in matrix.algorithms})
    return matrix.origin if matrix.origin == "measured" else f"model: {', '.join(names)}"
