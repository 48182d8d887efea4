"""The traffic matrix: a heatmap with a brush, the links under it, and what each rank sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic import TrafficMatrix, build_matrix
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import holoviews, panel
from commcanary_lab.views.heatmap_blocks import NOTHING, Blocks, Follower
from commcanary_lab.views.links import links_csv, links_frame, links_table, selection_text
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.plot_frame import redraw
from commcanary_lab.views.rank_bars import RANK_LEGEND, rank_bars, ranks_csv
from commcanary_lab.views.saving import savable
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
        from bokeh.models import ColumnDataSource

        self.matrix = matrix
        self.log = log
        self.gpus_per_node = gpus_per_node
        self.brush: Brush | None = None
        self._handles: list[dict[str, Any]] = []
        self._borders = ColumnDataSource({"at": node_borders(matrix, gpus_per_node)})
        self._plot = pn.pane.HoloViews(None, linked_axes=False, margin=0)
        self._bars = pn.pane.HoloViews(None, linked_axes=False, margin=0, sizing_mode="stretch_width")
        self._table = links_table(links_frame(matrix, None))
        self._caption = html("", margin=0)
        self._title = html("")
        plot = savable(self._plot, lambda: links_csv(matrix, None))
        self.heatmap_card = paper(self._title, plot, styles={"flex": f"0 0 {_FRAME + 190}px"})
        head = pn.Row(self._caption, download(lambda: links_csv(matrix, self.brush), "links.csv"), sizing_mode="stretch_width", margin=0)
        self.links_card = paper(head, self._table, sx={"minWidth": "280px"})
        self._bars_title = html("")
        self.bars_card = paper(self._bars_title, savable(self._bars, lambda: ranks_csv(matrix)))
        self._follower = Follower(Blocks(matrix), lambda _: self._describe()) if matrix.n > RAW_RANKS else None
        self._describe()
        self._plot.object = heatmap(
            matrix, log=log, on_brush=self.select, borders=self._borders, handles=self._handles, follower=self._follower
        )
        self._bars.object = rank_bars(matrix, self._borders)
        self.select(None)

    def update(self, *, log: bool | None = None, gpus_per_node: int | None = -1) -> None:
        """Change the colour scale or the node borders, in place: nothing else moves."""
        if log is not None and log != self.log:
            self.log = log
            with panel().io.unlocked():  # a click may arrive while Panel writes, see `plot_frame.redraw`
                for handles in self._handles:
                    _recolor(handles, self.matrix, log, self._follower)
            self._describe()
        if gpus_per_node != -1 and gpus_per_node != self.gpus_per_node:
            self.gpus_per_node = gpus_per_node
            redraw(self._borders, {"at": node_borders(self.matrix, gpus_per_node)})

    def _describe(self) -> None:
        m = self.matrix
        origin = origin_text(m)
        order = f"ring order {m.ring_order}" if any(name in ("ring", "chain") for _, name in m.algorithms) else ""
        scale = "logarithmic" if self.log else "linear"
        text = f"Row sends, column receives; {scale} colour. Drag a box to list its links."
        if self._follower is not None:
            width = self._follower.image.width
            text += f" A cell adds up {width} x {width} ranks; zoom in for single ones." if width > 1 else " A cell is one link."
        self._title.object = _cl(title_html("Bytes between ranks", text, origin, coverage_text(m.coverage), order))
        bars = title_html("Bytes per rank", "What each rank sends and receives", origin, coverage_text(m.coverage))
        self._bars_title.object = _cl(bars + RANK_LEGEND)

    def select(self, brush: Brush | None) -> None:
        """List the links inside a brush: ((first, last) sending, (first, last) receiving) positions; None for all."""
        self.brush = brush
        frame = links_frame(self.matrix, brush)
        self._table.value = frame
        self._caption.object = _cl(title_html("Links" if brush is None else "Links in the box", selection_text(self.matrix, brush, frame)))


def _cl(content: str) -> str:
    return f'<div class="cl">{content}</div>'


def heatmap(
    matrix: TrafficMatrix,
    *,
    log: bool = True,
    gpus_per_node: int | None = None,
    on_brush: Any = None,
    frame: int = _FRAME,
    borders: Any = None,
    handles: list[dict[str, Any]] | None = None,
    follower: Follower | None = None,
) -> Any:
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
    borders : bokeh ColumnDataSource, optional
        Node borders that the caller changes later; instead of `gpus_per_node`.
    handles : list, optional
        Receives the Bokeh handles of what is drawn.
    follower : Follower, optional
        Draws blocks of what is in view, for more than `RAW_RANKS` ranks; made here if it is not given.
    """
    from bokeh.models import ColumnDataSource

    if borders is None:
        borders = ColumnDataSource({"at": node_borders(matrix, gpus_per_node)})
    hv = holoviews()
    if follower is None and matrix.n > RAW_RANKS:
        follower = Follower(Blocks(matrix))
    image = (_image(hv, matrix) if follower is None else _first_blocks(hv, follower)).opts(**_image_options(matrix, log, follower))
    if on_brush is not None:
        bounds = hv.streams.BoundsXY(source=image)
        bounds.add_subscriber(lambda bounds: on_brush(brush_of(bounds, matrix.n)))
    span = (-0.5, matrix.n - 0.5)
    return image.opts(
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
        show_grid=False,
        hooks=[_finish(matrix, borders, handles, follower)],
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
    """Every cell as float32; cells without traffic stay transparent."""
    dense = m.dense().astype(np.float32)
    dense[dense == 0] = NOTHING
    edge = m.n - 0.5
    return hv.Image(dense[::-1], kdims=["dst", "src"], vdims="bytes", bounds=(-0.5, -0.5, edge, edge))


def _first_blocks(hv: Any, follower: Follower) -> Any:
    """Return the whole matrix in blocks, as it is drawn first."""
    image = follower.image
    return hv.Image(image.size_bytes[::-1], kdims=["dst", "src"], vdims="bytes", bounds=image.bounds)


def _limits(m: TrafficMatrix, log: bool, follower: Follower | None) -> tuple[float, float]:
    values = m.cells.size_bytes
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 2.0)
    if follower is not None and len(values):
        high = max(high, follower.most_bytes)
    return ((low if low < high else high / 2) if log else 0.0), high


def _image_options(m: TrafficMatrix, log: bool, follower: Follower | None) -> dict[str, Any]:
    from bokeh.models import FixedTicker, HoverTool

    low, high = _limits(m, log, follower)
    labels = m.ranks.tolist()
    rank = fmt.rank_hover(labels) if follower is None else follower.rank_hover(labels)
    hover = HoverTool(
        tooltips=[("from rank", "$y{custom}"), ("to rank", "$x{custom}"), ("sent", "@image{custom}")],
        formatters={"$x": rank, "$y": rank, "@image": fmt.bytes_hover()},
    )
    ticker = FixedTicker(ticks=fmt.byte_tick_values(low, high, log=log))
    bar = {"formatter": fmt.bytes_ticks(), "ticker": ticker, "width": 10, "bar_line_color": None, "padding": 8, "title": ""}
    return {
        "cmap": smooth(AMOUNT),
        "cnorm": "log" if log else "linear",
        "clim": (low, high),
        "clipping_colors": {"min": (0, 0, 0, 0), "NaN": (0, 0, 0, 0)},
        "colorbar": True,
        "clabel": " ",
        "colorbar_opts": {**bar, "major_tick_line_color": None},
        "tools": [hover, "box_select"],
        "default_tools": ["pan", "wheel_zoom", "box_zoom", "reset", "save"],
    }


def _recolor(handles: dict[str, Any], m: TrafficMatrix, log: bool, follower: Follower | None) -> None:
    """Exchange the colour mapper of what is drawn."""
    from bokeh.models import FixedTicker, LinearColorMapper, LogColorMapper

    low, high = _limits(m, log, follower)
    kind = LogColorMapper if log else LinearColorMapper
    mapper = kind(palette=smooth(AMOUNT), low=low, high=high, low_color="rgba(0, 0, 0, 0)")
    handles["color_mapper"] = mapper
    handles["glyph"].color_mapper = mapper
    handles["colorbar"].update(color_mapper=mapper, ticker=FixedTicker(ticks=fmt.byte_tick_values(low, high, log=log)))


def node_borders(m: TrafficMatrix, gpus_per_node: int | None) -> list[float]:
    """Return where nodes end, as positions between ranks; nothing where lines would hide the cells.

    Examples
    --------
    >>> from commcanary_lab.traffic.cells import Cells
    >>> m = TrafficMatrix(np.arange(6), (), np.zeros(0, np.int64), Cells(np.zeros(0, int), np.zeros(0, int), np.zeros(0)), "example")
    >>> node_borders(m, 2), node_borders(m, None)
    ([1.5, 3.5], [])
    """
    if not gpus_per_node or gpus_per_node >= m.n:
        return []
    cuts: list[float] = (np.flatnonzero(np.diff(m.ranks // gpus_per_node)) + 0.5).tolist()
    return cuts if len(cuts) <= 128 else []


def _finish(m: TrafficMatrix, borders: Any, kept: list[dict[str, Any]] | None, follower: Follower | None) -> Any:
    """Whole positions labelled with global ranks, node borders, a box that stays where it was drawn."""

    def apply(plot: Any, element: Any) -> None:
        from bokeh.models import AdaptiveTicker, BoxSelectTool, FixedTicker, Range1d

        figure = plot.state
        if kept is not None and not any(k is plot.handles for k in kept):
            kept.append(plot.handles)
        if follower is not None:
            follower.attach(figure, plot.handles["source"])
        labels = m.ranks.tolist()
        for axis in (*figure.xaxis, *figure.yaxis):
            axis.formatter = fmt.rank_ticks(labels)
            sparse = AdaptiveTicker(base=2, mantissas=[1, 2], min_interval=1, desired_num_ticks=9)
            axis.ticker = FixedTicker(ticks=list(range(m.n))) if m.n <= 16 else sparse
        for span in (figure.x_range, figure.y_range):
            if isinstance(span, Range1d):
                span.bounds = (-0.5, m.n - 0.5)
        for tool in figure.tools:
            if isinstance(tool, BoxSelectTool):
                tool.persistent = True
                tool.overlay.update(
                    fill_color=NEUTRAL, fill_alpha=0.18, line_color=NEUTRAL, line_alpha=1, line_width=1.5, line_dash="solid"
                )
        if not figure.select({"name": "node borders"}):
            style = {"source": borders, "line_color": NEUTRAL, "line_width": 1, "line_alpha": 0.8, "name": "node borders"}
            figure.vspan(x="at", **style)
            figure.hspan(y="at", **style)
        figure.toolbar.autohide = True
        figure.min_border_bottom = 54  # for the name of the axis, which Bokeh measures before it is there
        plain(plot, element)

    return apply


def origin_text(matrix: TrafficMatrix) -> str:
    """Return where the cells come from: measured, or the algorithms that attribute them."""
    names = sorted({name.replace("_", "/") for _, name in matrix.algorithms})
    return matrix.origin if matrix.origin == "measured" else f"model: {', '.join(names)}"
