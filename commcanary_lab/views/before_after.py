"""Two latency distributions on one axis: how large a share of the events is at least as slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.latency_curves import slower_share
from commcanary_lab.views.plot_frame import frame, guide, pane
from commcanary_lab.views.theme import NEUTRAL

__all__ = ["BeforeAfter", "SIDES_LEGEND"]

#: The baseline is neutral, the candidate has the colour of the policy's good bars.
AFTER = "#3a9cae"

SIDES_LEGEND = (
    f'<div class="lg" style="margin-top:8px"><span><i style="background:{NEUTRAL};height:5px;width:18px;opacity:.7"></i>baseline</span>'
    f'<span><i style="background:{AFTER};height:4px;width:18px"></i>candidate</span></div>'
)

FloatArray = npt.NDArray[np.float64]


class BeforeAfter:
    """The chart; `show` exchanges both samples.

    Parameters
    ----------
    before, after : ndarray of float64
        Latencies, microseconds; at least one each.
    what : str
        Name of the axis, such as ``exposed latency``.
    """

    def __init__(self, before: FloatArray, after: FloatArray, what: str) -> None:
        from bokeh.models import ColumnDataSource

        self._before, self._after = ColumnDataSource(), ColumnDataSource()
        self.figure = self._figure(what)
        self.pane = pane(self.figure)
        self.show(before, after)

    def show(self, before: FloatArray, after: FloatArray) -> None:
        """Draw two samples."""
        top = max(float(before.max()), float(after.max()), 1e-6)
        floor = 0.5 / max(len(before), len(after))
        self.figure.x_range.update(start=-0.02 * top, end=1.04 * top)
        self.figure.y_range.update(start=floor, end=1.35)
        for source, values in ((self._before, before), (self._after, after)):
            x, share = slower_share(values)
            words = [format_us(v) for v in x.tolist()]
            parts = [f"{s:.3g} %" for s in (100 * share).tolist()]
            source.data = {
                "x": np.concatenate([[0.0], x, x[-1:]]),
                "share": np.concatenate([[1.0], share, [floor]]),
                "words": [words[0], *words, words[-1]],
                "part": [parts[0], *parts, "none is slower"],
            }

    def _figure(self, what: str) -> Any:
        from bokeh.models import CustomJSTickFormatter, HoverTool, Range1d

        ranges = {"x_range": Range1d(0, 1), "y_range": Range1d(0.001, 1.35)}
        f = frame(290, tools="xpan,xwheel_zoom,reset,save", active_scroll=None, y_axis_type="log", **ranges)
        f.xaxis.axis_label = what
        f.yaxis.axis_label = "share of events at least as slow"
        f.xaxis.formatter = fmt.time_ticks()
        f.yaxis.formatter = CustomJSTickFormatter(code="return (tick * 100).toLocaleString('en-US', {maximumSignificantDigits: 3}) + ' %'")
        f.yaxis.ticker.mantissas = [1]
        f.xgrid.visible = f.ygrid.visible = False
        for share, name in ((0.5, "median"), (0.05, "p95"), (0.01, "p99")):
            guide(f, "width", share, name, line_alpha=0.6)
        sides = ((self._before, "baseline", NEUTRAL, 5, 0.6), (self._after, "candidate", AFTER, 2.2, 1.0))
        for source, name, color, width, alpha in sides:
            f.step(x="x", y="share", source=source, mode="before", line_color=color, line_width=width, line_alpha=alpha)
            hit = f.scatter(x="x", y="share", source=source, size=7, fill_alpha=0, line_alpha=0)
            f.add_tools(HoverTool(renderers=[hit], tooltips=[("", name), ("latency", "@words"), ("at least as slow", "@part")]))
        return f
