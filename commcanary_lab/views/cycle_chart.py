"""Measured times of settings under several rankings, with intervals, on one logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commcanary_lab.replay.ranking_rows import MethodRow
from commcanary_lab.units import format_us
from commcanary_lab.views.plot_frame import frame
from commcanary_lab.views.theme import NEUTRAL

__all__ = ["CYCLE_NOTE", "cycle_figure", "cycle_legend", "repetitions_csv"]

CYCLE_NOTE = (
    "Rankings of programs of different length stand apart; only the order within a ranking counts. Where the marks of a ranking move "
    "to the right from one row to the next, so should those of the others."
)

#: One colour per ranking, the reference first.
_COLORS = ("#4477aa", "#2f9e62", "#d3901a", "#b0478f", "#56b9d6", "#8d63b3")
_MARKERS = ("circle", "diamond", "square", "triangle", "hex", "inverted_triangle")
_ROW = 46


def _measured(rows: Sequence[MethodRow]) -> list[MethodRow]:
    return [m for m in rows if m.measured]


def _ticks(low: float, high: float) -> list[int]:
    """Return 1, 2 and 5 times the powers of ten between two times of at least a microsecond."""
    return [m * 10**e for e in range(12) for m in (1, 2, 5) if low <= m * 10**e <= high]


def cycle_legend(rows: Sequence[MethodRow]) -> str:
    """Return which colour is which ranking."""
    marks = {"circle": "border-radius:50%", "diamond": "transform:rotate(45deg) scale(.85)"}
    items = "".join(
        f'<span><i style="background:{_COLORS[i % len(_COLORS)]};{marks.get(_MARKERS[i % len(_MARKERS)], "")}"></i>{m.name}</span>'
        for i, m in enumerate(_measured(rows))
    )
    return f'<div class="lg" style="margin-top:8px">{items}</div>'


def repetitions_csv(rows: Sequence[MethodRow]) -> str:
    """Return every repetition of every setting under every ranking that is measured, as CSV."""
    import pandas as pd

    found = [(m.name, s, i, v) for m in _measured(rows) for s, of in m.repetitions_us.items() for i, v in enumerate(of)]
    return pd.DataFrame(found, columns=["ranking", "setting", "repetition", "cycle_us"]).to_csv(index=False)


def cycle_figure(rows: Sequence[MethodRow]) -> Any:
    """Return the chart as a Bokeh figure; settings from fast to slow by the reference, the fastest on top.

    Parameters
    ----------
    rows : sequence of MethodRow
        The reference first.
    """
    from bokeh.models import ColumnDataSource, CustomJSTickFormatter, FixedTicker, HoverTool, Range1d

    measured = _measured(rows)
    settings = sorted(measured[0].values_us, key=lambda s: measured[0].values_us[s], reverse=True)
    n = len(settings)
    every = [v for m in measured for of in m.repetitions_us.values() for v in of]
    left = 34 + int(6.4 * max(map(len, settings)))
    x_range = Range1d(min(every) / 1.25, max(every) * 1.25)
    f = frame(_ROW * n + 62, x_axis_type="log", x_range=x_range, y_range=Range1d(-0.6, n - 0.4), min_border_left=left)
    for i, m in enumerate(measured):
        color, shift = _COLORS[i % len(_COLORS)], 0.2 * ((len(measured) - 1) / 2 - i)
        data: dict[str, list[Any]] = {k: [] for k in ("x", "y", "x0", "x1", "setting", "text", "interval")}
        single: dict[str, list[float]] = {"x": [], "y": []}
        for y, s in enumerate(settings):
            interval = m.intervals_us[s]
            values = (m.values_us[s], y + shift, interval.low, interval.high, s, format_us(m.values_us[s]))
            for k, v in zip(data, (*values, f"{format_us(interval.low)} to {format_us(interval.high)}"), strict=True):
                data[k].append(v)
            single["x"] += m.repetitions_us[s]
            single["y"] += [y + shift] * len(m.repetitions_us[s])
        source = ColumnDataSource(data)
        f.segment(x0="x0", x1="x1", y0="y", y1="y", source=source, line_color=color, line_width=3, line_alpha=0.6)
        f.scatter(x="x", y="y", source=ColumnDataSource(single), marker="dash", angle=1.5708, size=9, line_color=color, line_alpha=0.6)
        f.line(x="x", y="y", source=source, line_color=color, line_alpha=0.28, line_width=1.5)
        dots = f.scatter(x="x", y="y", source=source, marker=_MARKERS[i % len(_MARKERS)], size=10, color=color)
        tips = [("", m.name), ("setting", "@setting"), ("median", "@text"), ("interval", "@interval")]
        f.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    f.yaxis.ticker = FixedTicker(ticks=list(range(n)))
    f.yaxis.formatter = CustomJSTickFormatter(args={"labels": settings}, code="return labels[tick] ?? ''")
    f.xaxis.ticker = FixedTicker(ticks=_ticks(x_range.start, x_range.end))
    f.xaxis.formatter = CustomJSTickFormatter(args={"labels": {str(t): format_us(t) for t in _ticks(x_range.start, x_range.end)}},
                                              code="return labels[String(tick)] ?? ''")  # fmt: skip
    f.xaxis.axis_label = "time of a cycle, logarithmic"
    f.ygrid.visible = False
    f.xgrid.grid_line_alpha = 0.5
    f.xgrid.grid_line_color = NEUTRAL
    return f
