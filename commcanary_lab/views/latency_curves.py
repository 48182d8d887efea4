"""Exposed-latency distributions of a source and its two results, on the same axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.minimize.contrast import QUANTILES, Contrast
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.markup import html, rows_html
from commcanary_lab.views.plot_frame import frame, guide, pane, redraw
from commcanary_lab.views.saving import series_csv
from commcanary_lab.views.theme import NEUTRAL

__all__ = ["LEFT", "RIGHT", "LatencyCurves", "slower_share"]

#: Colours of the two results; the source is neutral.
LEFT, RIGHT = "#dd8a2b", "#4477aa"

#: Points of a curve; more cannot be told apart.
_POINTS = 1500
#: A longest latency of more than so many medians needs a logarithmic axis.
_LONG = 40

_NAMES = ("source", "a", "b")

FloatArray = npt.NDArray[np.float64]


def slower_share(exposed_us: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return latencies and the share of events that take at least as long, ascending in latency.

    Long samples are thinned in the middle; the tail keeps every event.

    Examples
    --------
    >>> x, share = slower_share(np.array([3.0, 1.0, 1.0, 2.0]))
    >>> x.tolist(), share.tolist()
    ([1.0, 2.0, 3.0], [1.0, 0.5, 0.25])
    """
    ordered = np.sort(exposed_us)
    n = len(ordered)
    values, first = np.unique(ordered, return_index=True)
    share = (n - first) / n
    if len(values) > _POINTS:
        even = np.linspace(0, len(values) - 1, _POINTS // 2).astype(np.int64)
        tail = np.arange(len(values) - _POINTS // 2, len(values))
        chosen = np.unique(np.concatenate([even, tail]))
        values, share = values[chosen], share[chosen]
    return values, share


class LatencyCurves:
    """The chart of one backend at a time, and its quantiles as a table.

    Parameters
    ----------
    result : Contrast
        What to show.
    """

    def __init__(self, result: Contrast) -> None:
        from bokeh.models import ColumnDataSource

        self.result = result
        self.backends = [d.backend for d in result.distributions]
        self._reports = (result.reports, result.a.reports, result.b.reports)
        samples = [r.samples.exposed_us for reports in self._reports for r in reports]
        whole = np.concatenate([s for s in samples if len(s)] or [np.zeros(1)])
        positive = whole[whole > 0]
        self._top = float(whole.max()) or 1.0
        self.log = bool(len(positive)) and self._top > _LONG * float(np.median(positive))
        #: On a logarithmic axis fully hidden events stand at its left end.
        self._low = float(positive.min()) * 0.7 if self.log else 0.0
        self._floor = 0.5 / max(len(s) for s in samples) if any(len(s) for s in samples) else 0.5
        self._sources = {name: ColumnDataSource({"x": [], "share": [], "words": [], "part": []}) for name in _NAMES}
        self.figure = self._figure()
        self._shown = 0
        self.pane = pane(self.figure, csv=self.csv)
        self.table = html("")
        self.legend = html(self._legend())
        self.show(self.backends[0])

    @property
    def labels(self) -> tuple[str, str, str]:
        """Names of source and results."""
        return "source", self.result.a.label, self.result.b.label

    def show(self, backend: str) -> None:
        """Draw one backend; the axes stay."""
        self._shown = i = self.backends.index(backend)
        for name, reports in zip(_NAMES, self._reports, strict=True):
            redraw(self._sources[name], self._columns(reports[i].samples.exposed_us))
        self.table.object = f'<div class="cl">{quantile_rows(self.result, i)}</div>'

    def csv(self) -> str:
        """Return the samples of the backend in view as CSV."""
        return series_csv({n: r[self._shown].samples.exposed_us for n, r in zip(self.labels, self._reports, strict=True)}, "exposed_us")

    def _columns(self, exposed_us: FloatArray) -> dict[str, Any]:
        x, share = slower_share(exposed_us)
        if not len(x):
            return {"x": [], "share": [], "words": [], "part": []}
        words = [format_us(v) for v in x.tolist()]
        drawn = np.concatenate([[self._low], np.maximum(x, self._low), [max(float(x[-1]), self._low)]])
        part = [f"{s:.3g} %" for s in (100 * share).tolist()]
        return {
            "x": drawn,
            "share": np.concatenate([[1.0], share, [self._floor]]),
            "words": [words[0], *words, words[-1]],
            "part": [part[0], *part, "none slower"],
        }

    def _figure(self) -> Any:
        from bokeh.models import CustomJSTickFormatter, HoverTool, Range1d

        f = frame(
            300,
            tools="xpan,xwheel_zoom,reset,save",
            active_scroll=None,
            x_axis_type="log" if self.log else "linear",
            y_axis_type="log",
            x_range=Range1d(self._low if self.log else -0.02 * self._top, self._top * (1.3 if self.log else 1.04)),
            y_range=Range1d(self._floor, 1.35),
        )
        f.xaxis.axis_label = "exposed latency"
        f.yaxis.axis_label = "share of events at least as slow"
        f.xaxis.formatter = _each_in_its_unit() if self.log else fmt.time_ticks()
        f.yaxis.formatter = CustomJSTickFormatter(code="return (tick * 100).toLocaleString('en-US', {maximumSignificantDigits: 3}) + ' %'")
        f.yaxis.ticker.mantissas = [1]
        f.ygrid.visible = f.xgrid.visible = False
        for share, name in ((0.05, "p95"), (0.01, "p99")):
            if share > self._floor:
                guide(f, "width", share, name, line_alpha=0.7)
        styles: tuple[tuple[str, dict[str, Any]], ...] = (
            ("source", {"line_color": NEUTRAL, "line_width": 6, "line_alpha": 0.5}),
            ("a", {"line_color": LEFT, "line_width": 2}),
            ("b", {"line_color": RIGHT, "line_width": 2}),
        )
        for (name, style), label in zip(styles, self.labels, strict=True):
            f.step(x="x", y="share", source=self._sources[name], mode="before", **style)
            hit = f.scatter(x="x", y="share", source=self._sources[name], size=7, fill_alpha=0, line_alpha=0)
            f.add_tools(HoverTool(renderers=[hit], tooltips=[("", label), ("exposed", "@words"), ("at least as slow", "@part")]))
        return f

    def _legend(self) -> str:
        from html import escape

        colors = (NEUTRAL, LEFT, RIGHT)
        items = [
            f'<span><i style="background:{c};height:4px;width:18px"></i>{escape(t)}</span>'
            for c, t in zip(colors, self.labels, strict=True)
        ]
        return f'<div class="lg" style="margin-top:8px">{"".join(items)}</div>'


def _each_in_its_unit() -> Any:
    from bokeh.models import CustomJSTickFormatter

    return CustomJSTickFormatter(code=fmt.TIME_JS + "return time(tick).replace(/(\\.\\d*?)0+ /, '$1 ').replace('. ', ' ')")


def quantile_rows(result: Contrast, i: int) -> str:
    """Return quantiles of one backend as an HTML table: source, and each result with how far it is off."""
    d = result.distributions[i]
    rows = []
    for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "longest")):
        k = QUANTILES.index(q)
        rows.append((name, format_us(d.source_us[k]), *(_against(x[k], d.source_us[k]) for x in (d.a_us, d.b_us))))
    return rows_html(["Exposed latency", "Source", result.a.label, result.b.label], rows, right=[1, 2, 3])


def _against(value: float, source: float) -> str:
    if value == source:
        return f"{format_us(value)} (equal)"
    if not source:
        return format_us(value)
    off = 100 * (value / source - 1)
    return f"{format_us(value)} ({'+' if off > 0 else '−'}{abs(off):,.3g} %)"
