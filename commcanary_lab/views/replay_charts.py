"""Charts of a replay: measured latencies against the model's, and where each rank's time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.result import RankRow
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.latency_curves import slower_share
from commcanary_lab.views.plot_frame import frame, guide, pane, redraw
from commcanary_lab.views.saving import series_csv
from commcanary_lab.views.theme import NEUTRAL

__all__ = ["RANK_PARTS", "MeasuredCurves", "measured_legend", "parts_legend", "rank_parts"]

FloatArray = npt.NDArray[np.float64]

MEASURED, MODEL = "#2f9e62", "#4477aa"

#: Where the time of a rank goes, with its colour.
RANK_PARTS = {"in operations": "#4477aa", "waiting at barriers": "#d3ae2c", "between operations": NEUTRAL}

#: Up to so many ranks have a bar with a name each.
_NAMED = 16

_NOTHING: dict[str, Any] = {"x": [], "share": [], "words": [], "part": []}


class MeasuredCurves:
    """Two distributions on a logarithmic axis: real networks and models differ by factors, not by per cents."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource

        self._sources = {name: ColumnDataSource(dict(_NOTHING)) for name in ("measured", "model")}
        self.figure = self._figure()
        self._samples: dict[str, FloatArray] = {}
        self.pane = pane(self.figure, csv=lambda: series_csv(self._samples, "latency_us"))

    def show(self, measured_us: FloatArray, model_us: FloatArray | None) -> None:
        """Draw two samples, at least one latency each; without a model only the measured one."""
        self._samples = {"measured": measured_us} if model_us is None else {"measured": measured_us, "model": model_us}
        both = measured_us if model_us is None else np.concatenate([measured_us, model_us])
        positive = both[both > 0]
        low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
        low, high = low / 1.35, high * 1.35
        floor = 0.5 / max(len(measured_us), 2 if model_us is None else len(model_us))
        self.figure.x_range.update(start=low, end=high)
        self.figure.y_range.update(start=floor, end=1.35)
        for name, values in (("measured", measured_us), ("model", model_us)):
            redraw(self._sources[name], dict(_NOTHING) if values is None else self._columns(values, low, floor))

    @staticmethod
    def _columns(values: FloatArray, low: float, floor: float) -> dict[str, Any]:
        x, share = slower_share(np.maximum(values, low))
        words = [format_us(v) for v in x.tolist()]
        parts = [f"{s:.3g} %" for s in (100 * share).tolist()]
        return {
            "x": np.concatenate([[low], x, x[-1:]]),
            "share": np.concatenate([[1.0], share, [floor]]),
            "words": [words[0], *words, words[-1]],
            "part": [parts[0], *parts, "none is slower"],
        }

    def _figure(self) -> Any:
        from bokeh.models import CustomJSTickFormatter, HoverTool, Range1d

        ranges = {"x_range": Range1d(1, 10), "y_range": Range1d(0.001, 1.35)}
        f = frame(300, tools="xpan,xwheel_zoom,reset,save", active_scroll=None, x_axis_type="log", y_axis_type="log", **ranges)
        f.xaxis.axis_label = "latency: from the last rank's start to the last rank's end"
        f.yaxis.axis_label = "share of operations at least as slow"
        f.xaxis.formatter = CustomJSTickFormatter(code=fmt.TIME_JS + "return time(tick).replace(/(\\.\\d*?)0+ /, '$1 ').replace('. ', ' ')")
        f.xaxis.ticker.mantissas = [1, 2, 5]
        f.yaxis.formatter = CustomJSTickFormatter(code="return (tick * 100).toLocaleString('en-US', {maximumSignificantDigits: 3}) + ' %'")
        f.yaxis.ticker.mantissas = [1]
        f.xgrid.visible = f.ygrid.visible = False
        for share, name in ((0.5, "median"), (0.05, "p95"), (0.01, "p99")):
            guide(f, "width", share, name, line_alpha=0.6)
        for name, color, dash in (("model", MODEL, "dashed"), ("measured", MEASURED, "solid")):
            source = self._sources[name]
            f.step(x="x", y="share", source=source, mode="before", line_color=color, line_width=2.2, line_dash=dash)
            hit = f.scatter(x="x", y="share", source=source, size=7, fill_alpha=0, line_alpha=0)
            f.add_tools(HoverTool(renderers=[hit], tooltips=[("", name), ("latency", "@words"), ("at least as slow", "@part")]))
        return f


def measured_legend(model: str) -> str:
    """Return the legend of the curves as HTML; `model` names the modelled one, empty for none."""
    from html import escape

    second = (
        f'<span><i style="border-top:3px dashed {MODEL};border-radius:0;height:0;width:18px"></i>{escape(model)}</span>' if model else ""
    )
    first = f'<span><i style="background:{MEASURED};height:3px;width:18px"></i>measured</span>'
    return f'<div class="lg" style="margin-top:8px">{first}{second}</div>'


def parts_legend(parts: Sequence[str]) -> str:
    """Return the legend of the bars as HTML."""
    items = "".join(f'<span><i style="background:{RANK_PARTS[p]}"></i>{p}</span>' for p in parts)
    return f'<div class="lg" style="margin-top:8px">{items}</div>'


def rank_parts(rows: Sequence[RankRow], iterations: int) -> tuple[Any, list[str]]:
    """Return bars of the time of each rank in one iteration, on the average, and the parts that are known.

    Parameters
    ----------
    rows : sequence of RankRow
        At least one.
    iterations : int
        Measured ones.
    """
    import pandas as pd
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d

    times = {"in operations": [r.inside_us for r in rows], "waiting at barriers": [r.wait_us for r in rows]}
    if all(r.between_us == r.between_us for r in rows):
        times["between operations"] = [r.between_us for r in rows]
    per = {name: np.array(values) / max(1, iterations) for name, values in times.items()}
    n = len(rows)
    flat = n <= _NAMED  # lying bars, a name each
    ends = np.cumsum(list(per.values()), axis=0)
    top = float(ends[-1].max()) * 1.02 or 1.0
    place = np.arange(n)[::-1] if flat else np.arange(n)
    across, along = Range1d(-0.6, n - 0.4), Range1d(0, top)
    f = frame(26 * n + 66 if flat else 260, **({"x_range": along, "y_range": across} if flat else {"x_range": across, "y_range": along}))
    begin, whole = np.zeros(n), np.maximum(ends[-1], 1e-12)
    for (name, values), end in zip(per.items(), ends, strict=True):
        low, high = ("left", "right") if flat else ("bottom", "top")
        side_a, side_b = ("bottom", "top") if flat else ("left", "right")
        half = 0.34 if flat else 0.45
        source = ColumnDataSource({
            low: begin, high: end, side_a: place - half, side_b: place + half, "rank": [str(r.rank) for r in rows],
            "words": [format_us(v) for v in values.tolist()], "part": [f"{s:.3g} %" for s in (100 * values / whole).tolist()],
        })  # fmt: skip
        bars = f.quad(left="left", right="right", bottom="bottom", top="top", source=source, fill_color=RANK_PARTS[name], line_color=None)
        f.add_tools(HoverTool(renderers=[bars], tooltips=[("rank", "@rank"), (name, "@words"), ("of its time", "@part")]))
        begin = end
    time_axis, rank_axis = (f.xaxis, f.yaxis) if flat else (f.yaxis, f.xaxis)
    time_axis.formatter, time_axis.axis_label = fmt.time_ticks(), "per iteration"
    labels = [r.rank for r in rows]
    rank_axis.formatter, rank_axis.axis_label = fmt.rank_ticks(labels[::-1] if flat else labels), "rank"
    if flat:
        rank_axis.ticker = FixedTicker(ticks=list(range(n)))
    (f.ygrid if flat else f.xgrid).visible = False
    table = pd.DataFrame({"rank": labels, **{f"{name.replace(' ', '_')}_us": values for name, values in per.items()}})
    return pane(f, csv=lambda: table.to_csv(index=False)), list(per)
