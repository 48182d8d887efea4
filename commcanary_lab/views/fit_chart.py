"""A latency-bandwidth fit: time against size with its interval, residuals below, and the sizes as a table."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from commcanary_lab.replay.calibration.fit import Fit
from commcanary_lab.replay.calibration.fit_file import fit_document
from commcanary_lab.units import format_bytes, format_rate, format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import Figure, html, key_figures, message, title_html
from commcanary_lab.views.plot_frame import frame, guide, pane
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import NEUTRAL, paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fit", "fit_answer", "fit_figures", "fit_frame", "residual_figure", "time_figure"]

_LINE, _DOT, _PIECE = "#4477aa", "#2f9e62", "#b0478f"
_CURVE_POINTS = 160
_LEFT = 76

_LEGEND = (
    '<div class="lg" style="margin-top:8px">'
    f'<span><i style="background:{_DOT};border-radius:50%"></i>what was fitted, with its interval</span>'
    f'<span><i style="background:{NEUTRAL};width:3px;opacity:.5"></i>10 % to 90 % of the repetitions</span>'
    f'<span><i style="background:{_LINE};height:3px;width:16px"></i>fit, with its interval</span>'
)
_PIECES = f'<span><i style="background:{_PIECE};height:3px;width:16px"></i>two lines, which describe the times better</span>'


def fit(result: Fit) -> Any:
    """Show a fit: key figures, time against size, residuals, table.

    Parameters
    ----------
    result : Fit
        From `commcanary_lab.replay.calibration.fit`.

    Returns
    -------
    panel.viewable.Viewable
    """
    pn = panel()
    s = result.samples
    head = title_html(
        f"{result.cost.op} on {s.ranks} ranks: time against size",
        f"{s.ran_on}; {result.cost.algorithm}, {_fitted(result)}",
        s.origin,
        f"{len(s.size_bytes)} sizes, {sum(map(len, s.latencies_us)):,} latencies",
        "line: model",
    )
    times, below = time_figure(result), residual_figure(result)
    below.x_range = times.x_range
    legend = _LEGEND + (_PIECES if result.goodness.pieces else "") + "</div>"
    notes = "".join(f"<li>{_escaped(n)}</li>" for n in s.notes)
    note = f'<div class="muted" style="font-size:12.5px;margin-top:6px"><ul>{notes}</ul></div>' if notes else ""
    chart = paper(html(head + legend), pane(times, below, csv=lambda: fit_frame(result).to_csv(index=False)), html(note))
    rows = fit_frame(result)
    bar = pn.Row(
        html(title_html("Sizes", "What was measured and what the fit says")),
        download(lambda: rows.to_csv(index=False), "sweep.csv"),
        download(lambda: json.dumps(fit_document(result), indent=1), "fit.json", "JSON"),
        sizing_mode="stretch_width",
        margin=0,
    )
    answer = html(f'<p class="answer">{_escaped(fit_answer(result))}</p>')
    warning = [] if result.verdict == "fits" else [html(message(_verdict_title(result), "\n".join(result.reasons), "warn"))]
    keys = html(key_figures(fit_figures(result)))
    body = [answer, *warning, keys, chart, paper(bar, _table(rows))]
    return pn.Column(*body, sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})


def fit_answer(result: Fit) -> str:
    """Return in one sentence which messages are bound by latency."""
    if result.verdict == "inconclusive":
        return "These samples do not determine latency and bandwidth; the figures below are not to be used."
    if result.verdict == "misfit":
        return "One latency and one bandwidth do not describe these times."
    return (
        f"Below {format_bytes(result.half_size_bytes)} a call is bound by latency, above it by bandwidth: "
        f"{format_us(result.alpha_us)} per step, {format_rate(result.bandwidth_gb_s)} on the busiest link."
    )


def fit_figures(result: Fit) -> list[Figure]:
    """Return the key figures, each with its interval."""
    alpha, rate, half = result.alpha_interval_us, result.bandwidth_interval_gb_s, result.half_size_interval_bytes
    g = result.goodness
    return [
        Figure("alpha, one step", format_us(result.alpha_us), f"{format_us(alpha.low)} to {format_us(alpha.high)}"),
        Figure("bandwidth", _rate(result.bandwidth_gb_s), f"{_rate(rate.low)} to {_rate(rate.high)}"),
        Figure("half-performance size", _size(result.half_size_bytes), f"{_size(half.low)} to {_size(half.high)}"),
        Figure("residuals", f"{g.rms_relative:.1%}".replace("%", " % rms"), f"at most {g.worst_relative:.1%}"),
    ]


def _verdict_title(result: Fit) -> str:
    return {"inconclusive": "Inconclusive", "misfit": "The model does not fit"}[result.verdict]


def _fitted(result: Fit) -> str:
    n = result.samples.repetitions
    what = "one time per size" if n == 1 else f"{result.statistic} of {n} repetitions"
    return f"{what}, {result.terms.confidence:.0%} intervals from resampled {result.uncertainty}"


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def _rate(rate_gb_s: float) -> str:
    return format_rate(rate_gb_s) if math.isfinite(rate_gb_s) else "unlimited"


def _size(size_bytes: float) -> str:
    return format_bytes(size_bytes) if math.isfinite(size_bytes) else "none"


def _x_range(result: Fit) -> tuple[float, float]:
    sizes = [s for s in result.samples.size_bytes if s > 0]  # an empty message has no place on a logarithmic axis
    return min(sizes) / 1.5, max(sizes) * 1.5


def _curve(low: float, high: float) -> list[float]:
    return [float(x) for x in np.geomspace(low, high, _CURVE_POINTS)]


def _axis(f: Any, result: Fit) -> None:
    from bokeh.models import FixedTicker

    low, high = _x_range(result)
    f.xaxis.ticker = FixedTicker(ticks=fmt.byte_tick_values(low, high, log=True, count=9))
    f.xaxis.formatter = fmt.bytes_ticks()


def time_figure(result: Fit) -> Any:
    """Return time against size, both logarithmic, as a Bokeh figure."""
    from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d

    low, high = _x_range(result)
    f = frame(340, tools="pan,box_zoom,reset,save", x_axis_type="log", y_axis_type="log", x_range=Range1d(low, high), min_border_left=_LEFT)
    x = _curve(low, high)
    band = result.band_us(x)
    f.varea(x=x, y1=[max(i.low, 1e-6) for i in band], y2=[max(i.high, 1e-6) for i in band], fill_color=_LINE, fill_alpha=0.22)
    line = [result.time_us(v) for v in x]
    f.line(x=x, y=[max(v, 1e-6) for v in line], line_color=_LINE, line_width=2)
    for p in result.goodness.pieces:
        part = _curve(max(p.low_bytes, low), p.high_bytes)
        per_byte = 1e-3 / p.bandwidth_gb_s if p.bandwidth_gb_s > 0 else 0.0
        y = [result.cost.steps * p.alpha_us + result.cost.wire_bytes(v) * per_byte for v in part]
        f.line(x=part, y=y, line_color=_PIECE, line_width=2, line_dash="dashed")
    rows = [(r, s) for r, s in zip(result.residuals, result.samples.spreads, strict=True) if r.size_bytes > 0]
    spread = {"x": [r.size_bytes for r, _ in rows], "low": [s.p10_us for _, s in rows], "high": [s.p90_us for _, s in rows]}
    f.segment(x0="x", x1="x", y0="low", y1="high", source=ColumnDataSource(spread), line_color=NEUTRAL, line_width=2, line_alpha=0.5)
    sure = [r for r, _ in rows if r.interval_us is not None]
    f.segment(
        x0=[r.size_bytes for r in sure], x1=[r.size_bytes for r in sure],
        y0=[r.interval_us.low for r in sure if r.interval_us], y1=[r.interval_us.high for r in sure if r.interval_us],
        line_color=_DOT, line_width=4, line_alpha=0.8,
    )  # fmt: skip
    dots = ColumnDataSource(
        {
            "x": [r.size_bytes for r, _ in rows],
            "y": [r.time_us for r, _ in rows],
            "size": [f"{format_bytes(r.size_bytes)} ({r.size_bytes:,} bytes)" for r, _ in rows],
            "time": [format_us(r.time_us) for r, _ in rows],
            "spread": [f"{format_us(s.min_us)}, {format_us(s.median_us)}, {format_us(s.p90_us)} of {s.count:,}" for _, s in rows],
            "fit": [f"{format_us(r.predicted_us)} ({-r.relative:+.1%})" for r, _ in rows],
        }
    )
    marks = f.scatter(x="x", y="y", source=dots, size=9, color=_DOT, line_color="white")
    tips = [("B", "@size"), ("fitted to", "@time"), ("min, median, p90", "@spread"), ("fit", "@fit")]
    f.add_tools(HoverTool(renderers=[marks], tooltips=tips))
    if math.isfinite(result.half_size_bytes) and low < result.half_size_bytes < high:
        guide(f, "height", result.half_size_bytes)
        _half_label(f, result)
    _axis(f, result)
    f.yaxis.ticker = FixedTicker(ticks=[m * 10.0**e for e in range(-3, 10) for m in (1, 2, 5)])
    f.yaxis.formatter = _log_time_ticks()
    f.xaxis.visible = False
    return f


def _half_label(f: Any, result: Fit) -> None:
    from bokeh.models import Label

    text = f"half-performance size {format_bytes(result.half_size_bytes)}"
    f.add_layout(
        Label(x=result.half_size_bytes, y=8, y_units="screen", text=text, text_color=NEUTRAL, text_font_size="11px", x_offset=6)
    )  # fmt: skip


def _log_time_ticks() -> Any:
    from bokeh.models import CustomJSTickFormatter

    return CustomJSTickFormatter(code=fmt.TIME_JS + "return time(tick).replace(/(\\.\\d*?)0+ /, '$1 ').replace('. ', ' ')")


def residual_figure(result: Fit) -> Any:
    """Return the residuals over the measured time, percent, against size."""
    from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, Range1d, Span

    low, high = _x_range(result)
    rows = [r for r in result.residuals if r.size_bytes > 0]
    reach = max(5.0, 125 * max(abs(r.relative) for r in rows))
    f = frame(150, x_axis_type="log", x_range=Range1d(low, high), y_range=Range1d(-reach, reach), min_border_left=_LEFT)
    f.add_layout(Span(location=0, dimension="width", line_color=_LINE, line_width=2))
    source = ColumnDataSource(
        {
            "x": [r.size_bytes for r in rows],
            "y": [100 * r.relative for r in rows],
            "zero": [0.0] * len(rows),
            "size": [format_bytes(r.size_bytes) for r in rows],
            "words": [f"{format_us(abs(r.residual_us))} {'slower' if r.residual_us > 0 else 'faster'} than the fit" for r in rows],
        }
    )
    f.segment(x0="x", x1="x", y0="zero", y1="y", source=source, line_color=_DOT, line_width=1.5)
    dots = f.scatter(x="x", y="y", source=source, size=8, color=_DOT, line_color="white")
    f.add_tools(HoverTool(renderers=[dots], tooltips=[("B", "@size"), ("residual", "@y{+0.0} %"), ("", "@words")]))
    f.yaxis.formatter = CustomJSTickFormatter(code="return (tick > 0 ? '+' : '') + tick + ' %'")
    f.yaxis.ticker.desired_num_ticks = 4
    f.xaxis.axis_label = "message size B; above: time of a call, below: residual over the measured time"
    _axis(f, result)
    return f


def fit_frame(result: Fit) -> pd.DataFrame:
    """Return one row per size."""
    import pandas as pd

    rows = []
    for r, s in zip(result.residuals, result.samples.spreads, strict=True):
        rows.append(
            {
                "size_bytes": r.size_bytes,
                "count": s.count,
                "min_us": s.min_us,
                "p10_us": s.p10_us,
                "median_us": s.median_us,
                "p90_us": s.p90_us,
                "fitted_us": r.time_us,
                "predicted_us": r.predicted_us,
                "residual_us": r.residual_us,
                "relative_pct": 100 * r.relative,
            }
        )
    return pd.DataFrame(rows)


def _table(rows: pd.DataFrame) -> Any:
    time = fmt.time_cell()
    columns = {
        "size_bytes": TableColumn("B", fmt.bytes_cell(), 90, right=True),
        "count": TableColumn("Repetitions", fmt.count_cell(), 90, right=True),
        "min_us": TableColumn("Minimum", time, 90, right=True),
        "p10_us": TableColumn("p10", time, 80, right=True),
        "median_us": TableColumn("Median", time, 80, right=True),
        "p90_us": TableColumn("p90", time, 80, right=True),
        "predicted_us": TableColumn("Fit", time, 80, right=True),
        "residual_us": TableColumn("Residual", time, 90, right=True),
        "relative_pct": TableColumn("Residual, %", fmt.number_cell(), 90, right=True),
    }
    return table(rows, columns, page_size=12, empty="No size was measured.")
