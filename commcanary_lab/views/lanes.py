"""The timeline: one lane per process group, collectives in time, arrival skew and concurrent compute beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_bytes, format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.lane_data import LaneData, lane_data
from commcanary_lab.views.markup import badges, coverage_text, html, title_html
from commcanary_lab.views.plot_frame import redraw
from commcanary_lab.views.range_follow import follow
from commcanary_lab.views.saving import savable
from commcanary_lab.views.theme import NEUTRAL, op_color, paper

__all__ = ["DETAIL_EVENTS", "Lanes", "legend_html", "timeline"]

#: Up to this many events in view each is drawn; above, the lanes show which operations fill them (Datashader).
DETAIL_EVENTS = 4000

_PIXELS = 1400
_MINIMAP_BINS = 500
_EMPTY: dict[str, list[Any]] = {}


def timeline(trace: Trace) -> Any:
    """Show a trace in time.

    Parameters
    ----------
    trace : Trace
        The events.

    Returns
    -------
    panel.viewable.Viewable
        Pan and zoom redraw what is in view; a long trace opens on its first iterations.
    """
    data = lane_data(trace)
    lanes = Lanes(data)
    title = title_html(
        "Collectives in time" if not data.ordered_only else "Collectives in order (the source has no times)",
        lanes.subtitle,
        trace.origin,
        coverage_text(trace.coverage),
    )
    return paper(html(title + legend_html(data)), lanes.status, lanes.pane)


def legend_html(data: LaneData) -> str:
    """Return the legend: a colour per operation that occurs, and the two strips."""
    from html import escape

    used = [data.op_names[i] for i in np.unique(data.op).tolist() if i >= 0]
    items = [f'<span><i style="background:{op_color(n)}"></i>{escape(n)}</span>' for n in used[:10]]
    if np.isfinite(data.skew_us).any():
        items.append(f'<span><i style="background:{NEUTRAL};height:5px;width:16px"></i>first to last arrival</span>')
    if np.isfinite(data.overlap_us).any():
        items.append(f'<span><i style="background:{NEUTRAL};opacity:.42;height:5px;width:16px"></i>concurrent compute</span>')
    return f'<div class="lg" style="margin-top:10px">{"".join(items)}</div>'


class Lanes:
    """The figure of one timeline; it redraws what is in view.

    Parameters
    ----------
    data : LaneData
        From `lane_data`.
    """

    def __init__(self, data: LaneData) -> None:
        from bokeh.layouts import column
        from bokeh.models import ColumnDataSource

        self.data = data
        self.status = html("")
        self._sources = {name: ColumnDataSource(self._blank(name)) for name in ("overlap", "bars", "skew", "starts", "density")}
        self._left = 34 + int(6.4 * max((len(_short(n)) for n in data.lanes), default=4))  # both figures begin at the same pixel
        self._drawn: tuple[float, float] | None = None
        self.figure = self._figure()
        self._draw(*data.first_view)
        parts = [self.figure]
        if len(data) > 60:
            parts.insert(0, self._minimap())
        both = panel().pane.Bokeh(column(*parts, sizing_mode="stretch_width", spacing=4), sizing_mode="stretch_width", margin=0)
        self.pane = savable(both, self.csv)

    @property
    def subtitle(self) -> str:
        """What a bar is, in words."""
        if self.data.ordered_only:
            return "One lane per process group; a mark per event"
        if np.isfinite(self.data.duration_us).any():
            return "One lane per process group; a bar lasts as long as the collective was measured, on its slowest rank"
        return "One lane per process group; the source measured no durations, so a tick marks the first arrival"

    def csv(self) -> str:
        """Return the events in view as CSV; what the source does not say is empty."""
        import pandas as pd

        d = self.data
        part = d.inside(float(self.figure.x_range.start), float(self.figure.x_range.end))
        columns = {
            "event": np.arange(part.start, part.stop),
            "op": np.array(d.op_names, object)[d.op[part]],
            "size_bytes": d.size_bytes[part],
            "group": np.array(d.lanes, object)[d.lane[part]],
            "phase": np.array([*d.phases, ""], object)[d.phase[part]],
            "start_us": d.start_us[part] if not d.ordered_only else np.nan,
            "duration_us": d.duration_us[part],
            "skew_us": d.skew_us[part],
            "overlap_us": d.overlap_us[part],
        }
        return pd.DataFrame(columns).to_csv(index=False)

    def show(self, low_us: float, high_us: float) -> None:
        """Move the view."""
        with panel().io.unlocked():  # a click may arrive while Panel writes, see `plot_frame.redraw`
            self.figure.x_range.update(start=low_us, end=high_us)
        self._draw(low_us, high_us)

    # -- figures ------------------------------------------------------------------------------------------------------

    def _figure(self) -> Any:
        from bokeh.models import (
            BoxZoomTool,
            CustomJSTickFormatter,
            FixedTicker,
            HoverTool,
            PanTool,
            Range1d,
            ResetTool,
            SaveTool,
            WheelZoomTool,
        )
        from bokeh.plotting import figure

        d = self.data
        count = max(1, len(d.lanes))
        height = int(min(760, max(150, 46 * count))) + 64
        low, high = d.first_view
        width = (d.end_us or 1.0) * 0.02
        wheel = WheelZoomTool(dimensions="width")
        f = figure(
            height=height,
            sizing_mode="stretch_width",
            x_range=Range1d(low, high, bounds=(min(-width, low), max(d.end_us + width, high)), min_interval=0.01),
            y_range=Range1d(count - 0.5, -0.5),
            tools=[PanTool(dimensions="width"), wheel, BoxZoomTool(dimensions="width"), ResetTool(), SaveTool()],
            active_scroll=None,
            toolbar_location="above",
            output_backend="canvas",
            min_border_left=self._left,
            min_border_right=18,
        )
        f.toolbar.autohide = True
        f.toolbar_inner = True
        f.toolbar.logo = None
        f.outline_line_color = None
        f.image_rgba(image="image", x="x", y="y", dw="dw", dh="dh", source=self._sources["density"])
        f.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            source=self._sources["overlap"],
            fill_color=NEUTRAL,
            fill_alpha=0.35,
            line_color=None,
        )
        bars = f.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            source=self._sources["bars"],
            fill_color="color",
            fill_alpha=0.85,
            line_color="color",
            line_width=0.6,
        )
        f.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            source=self._sources["skew"],
            fill_color=NEUTRAL,
            fill_alpha=1.0,
            line_color=None,
        )
        f.segment(x0="left", x1="left", y0="top", y1="bottom", source=self._sources["starts"], line_color="color", line_width=2)
        hit = f.scatter(x="left", y="y", source=self._sources["starts"], size=11, fill_alpha=0, line_alpha=0)
        rows = [
            ("operation", "@op"),
            ("size B", "@size"),
            ("group", "@group"),
            ("starts", "@at"),
            ("measured", "@duration"),
            ("arrival skew", "@skew"),
            ("concurrent compute", "@overlap"),
            ("phase", "@phase"),
            ("event", "@event"),
        ]
        f.add_tools(HoverTool(renderers=[bars, hit], tooltips=rows, mode="mouse", point_policy="follow_mouse"))
        step = max(1, -(-count // 30))
        f.yaxis.ticker = FixedTicker(ticks=list(range(0, count, step)))
        f.yaxis.formatter = CustomJSTickFormatter(args={"labels": [_short(n) for n in d.lanes]}, code="return labels[tick] ?? ''")
        f.xaxis.formatter = (
            CustomJSTickFormatter(code="return Number.isInteger(tick) ? tick.toLocaleString('en-US') : ''")
            if d.ordered_only
            else fmt.time_ticks()
        )
        f.xaxis.axis_label = "event" if d.ordered_only else "time from the first event"
        f.ygrid.visible = False
        follow([f.x_range], self._redraw)
        return f

    def _minimap(self) -> Any:
        """How many events start where, over the whole trace; its box is the view."""
        from bokeh.models import Range1d, RangeTool
        from bokeh.plotting import figure

        d = self.data
        counts, edges = np.histogram(d.start_us, bins=min(_MINIMAP_BINS, max(20, len(d) // 4)), range=(0.0, d.end_us or 1.0))
        width = (d.end_us or 1.0) * 0.012
        f = figure(
            height=58,
            sizing_mode="stretch_width",
            x_range=Range1d(-width, d.end_us + width),
            y_range=Range1d(0, max(1, counts.max()) * 1.1),
            tools="",
            toolbar_location=None,
            min_border_left=self._left,
            min_border_right=18,
            min_border_top=2,
            min_border_bottom=2,
        )
        f.quad(left=edges[:-1], right=edges[1:], bottom=0, top=counts, fill_color=NEUTRAL, fill_alpha=0.5, line_color=None)
        tool = RangeTool(x_range=self.figure.x_range)
        tool.overlay.update(fill_color=NEUTRAL, fill_alpha=0.16, line_color=NEUTRAL, line_width=1, line_alpha=1, line_dash="solid")
        f.add_tools(tool)
        f.yaxis.visible = f.xaxis.visible = f.grid.visible = False
        f.outline_line_color = None
        return f

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _redraw(self) -> None:
        span = self.figure.x_range
        self._draw(float(span.start), float(span.end))

    def _draw(self, low: float, high: float) -> None:
        if self._drawn == (low, high):
            return
        self._drawn = (low, high)
        part = self.data.inside(low, high)
        count = part.stop - part.start
        detail = count <= DETAIL_EVENTS
        columns = self._detail(part) if detail else {name: self._blank(name) for name in ("overlap", "bars", "skew", "starts")}
        columns["density"] = self._blank("density") if detail else self._density(part, low, high)
        for name, values in columns.items():
            if any(map(len, values.values())) or any(map(len, self._sources[name].data.values())):
                redraw(self._sources[name], values)
        view = f"{high - low:,.0f} events" if self.data.ordered_only else format_us(max(0.0, min(high, self.data.end_us) - max(low, 0.0)))
        how = "each drawn" if detail else "drawn as density; zoom in for single events"
        self.status.object = f'<div class="cl">{badges(None, f"{count:,} of {len(self.data):,} events in view", view, how)}</div>'

    @staticmethod
    def _blank(name: str) -> dict[str, Any]:
        if name == "density":
            return {"image": [], "x": [], "y": [], "dw": [], "dh": []}
        quad: dict[str, Any] = {"left": [], "right": [], "top": [], "bottom": []}
        if name in ("bars", "starts"):
            quad |= {k: [] for k in ("color", "y", "op", "size", "group", "at", "duration", "skew", "overlap", "phase", "event")}
        return quad

    def _detail(self, part: slice) -> dict[str, dict[str, Any]]:
        d = self.data
        start, lane = d.start_us[part], d.lane[part].astype(np.float64)
        duration, skew, overlap = d.duration_us[part], d.skew_us[part], d.overlap_us[part]
        timed = np.isfinite(duration)
        words = self._words(part)
        bars = {"left": start, "right": start + np.nan_to_num(duration), "top": lane - 0.22, "bottom": lane + 0.22, "y": lane, **words}
        starts = {"left": start, "right": start, "top": lane - 0.22, "bottom": lane + 0.22, "y": lane, **words}
        return {
            "bars": {k: v[timed] for k, v in bars.items()},
            "starts": {k: v[~timed] for k, v in starts.items()},
            "skew": _strip(start, skew, lane - 0.40, lane - 0.30),
            "overlap": _strip(start, overlap, lane + 0.30, lane + 0.40),
        }

    def _words(self, part: slice) -> dict[str, npt.NDArray[Any]]:
        """Hover texts; Bokeh's tooltips escape them."""
        d = self.data

        def texts(values: Any) -> npt.NDArray[Any]:
            return np.array(values, dtype=object)

        def times(values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
            return texts([format_us(v) for v in values.tolist()])

        op = d.op[part].tolist()
        sizes = {v: format_bytes(v) for v in np.unique(d.size_bytes[part]).tolist()}
        return {
            "color": texts([op_color(d.op_names[i]) for i in op]),
            "op": texts([d.op_names[i] for i in op]),
            "size": texts([sizes[v] for v in d.size_bytes[part].tolist()]),
            "group": texts([d.lanes[i] for i in d.lane[part].tolist()]),
            "at": times(d.start_us[part]) if not d.ordered_only else texts([""] * (part.stop - part.start)),
            "duration": times(d.duration_us[part]),
            "skew": times(d.skew_us[part]),
            "overlap": times(d.overlap_us[part]),
            "phase": texts([d.phases[i] if i >= 0 else "none" for i in d.phase[part].tolist()]),
            "event": texts([f"{i:,}" for i in range(part.start, part.stop)]),
        }

    def _density(self, part: slice, low: float, high: float) -> dict[str, Any]:
        """One row per lane: which operation fills each pixel, and how much, from Datashader's counts by category."""
        import datashader as ds
        import pandas as pd

        d = self.data
        count = len(d.lanes)
        ops = pd.Categorical.from_codes(d.op[part], dtype=pd.CategoricalDtype(list(d.op_names)))
        frame = pd.DataFrame({"x": d.start_us[part], "y": d.lane[part], "op": ops})
        canvas = ds.Canvas(plot_width=_PIXELS, plot_height=count, x_range=(low, high), y_range=(-0.5, count - 0.5))
        counts: npt.NDArray[Any] = canvas.points(frame, "x", "y", agg=ds.by("op", ds.count())).values.astype(np.float64)
        total = counts.sum(axis=2)
        colors = np.array([[int(op_color(n)[i : i + 2], 16) for i in (1, 3, 5)] for n in d.op_names], np.float64)
        mixed = counts @ colors / np.maximum(total, 1)[:, :, None]
        rgba = np.zeros((count, _PIXELS, 4), np.uint8)
        rgba[:, :, :3] = np.rint(mixed)
        rgba[:, :, 3] = np.where(total > 0, 90 + 165 * np.sqrt(total / max(1.0, total.max())), 0).astype(np.uint8)
        rows = np.zeros((count, 9, _PIXELS, 4), np.uint8)  # two of nine rows stay empty: the gap between lanes
        rows[:, 1:8] = rgba[:, None]
        image = np.ascontiguousarray(rows.reshape(count * 9, _PIXELS, 4)).view(np.uint32).reshape(count * 9, _PIXELS)
        return {"image": [image], "x": [low], "y": [-0.5], "dw": [high - low], "dh": [count]}


def _strip(
    start: npt.NDArray[np.float64], width: npt.NDArray[np.float64], top: npt.NDArray[np.float64], bottom: npt.NDArray[np.float64]
) -> dict[str, Any]:
    shown = np.isfinite(width) & (width > 0)
    return {"left": start[shown], "right": (start + np.nan_to_num(width))[shown], "top": top[shown], "bottom": bottom[shown]}


def _short(name: str, length: int = 24) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"
