"""Bytes that each rank sends and receives."""

from __future__ import annotations

from typing import Any

import numpy as np

from commcanary_lab.traffic import TrafficMatrix
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import holoviews
from commcanary_lab.views.theme import NEUTRAL, plain

__all__ = ["RANK_LEGEND", "rank_bars", "ranks_csv"]

#: Above this many ranks single bars are thinner than a pixel, and steps are drawn.
MAX_BARS = 192

_EGRESS, _INGRESS = "#4477aa", "#d3ae2c"

#: The legend, as HTML above the chart: inside it would cover bars.
RANK_LEGEND = (
    f'<div class="lg" style="margin-top:8px"><span><i style="background:{_EGRESS}"></i>sends (egress)</span>'
    f'<span><i style="background:{_INGRESS}"></i>receives (ingress)</span></div>'
)


def rank_bars(m: TrafficMatrix, borders: Any) -> Any:
    """Return egress and ingress per rank, as HoloViews.

    Parameters
    ----------
    m : TrafficMatrix
        What to show.
    borders : bokeh ColumnDataSource
        Positions ``at`` of borders between nodes.
    """
    hv = holoviews()
    egress, ingress = m.egress(), m.ingress()
    top = float(max(egress.max(initial=0), ingress.max(initial=0))) or 1.0
    sides = (("sent (egress)", egress, _EGRESS, -0.38, 0.0), ("received (ingress)", ingress, _INGRESS, 0.0, 0.38))
    layers = [_bars(hv, m, *side) if m.n <= MAX_BARS else _steps(hv, *side[:3]) for side in sides]
    return hv.Overlay(layers).opts(
        hv.opts.Overlay(
            responsive=True,
            height=230,
            xlim=(-0.5, m.n - 0.5),
            ylim=(0, top * 1.06),
            xlabel="rank",
            ylabel="",
            title="",
            toolbar="above",
            yformatter=fmt.bytes_ticks(),
            hooks=[_axes(m, top, borders)],
            show_grid=False,
            show_legend=False,
            active_tools=[],
        )
    )


def ranks_csv(m: TrafficMatrix) -> str:
    """Return what each rank sends and receives as CSV."""
    import pandas as pd

    return pd.DataFrame({"rank": m.ranks, "sent_bytes": m.egress(), "received_bytes": m.ingress()}).to_csv(index=False)


def _bars(hv: Any, m: TrafficMatrix, name: str, values: Any, color: str, left: float, right: float) -> Any:
    from bokeh.models import HoverTool

    position = np.arange(m.n)
    rows = {
        "x0": position + left,
        "y0": np.zeros(m.n),
        "x1": position + right,
        "y1": values,
        "rank": m.ranks.astype(str),
        "words": [format_bytes(v) for v in values.tolist()],
    }
    hover = HoverTool(tooltips=[("rank", "@rank"), (name, "@words")])
    return hv.Rectangles(rows, kdims=["x0", "y0", "x1", "y1"], vdims=["rank", "words"], label=name).opts(
        color=color, line_color=None, line_alpha=0, tools=[hover], default_tools=["save"]
    )


def _steps(hv: Any, name: str, values: Any, color: str) -> Any:
    return hv.Curve((np.arange(len(values)), values), "rank", "bytes", label=name).opts(
        interpolation="steps-mid", color=color, line_width=1.5, default_tools=["xwheel_zoom", "xpan", "reset", "save"]
    )


def _axes(m: TrafficMatrix, top: float, borders: Any) -> Any:
    def apply(plot: Any, element: Any) -> None:
        from bokeh.models import AdaptiveTicker, FixedTicker

        axis = plot.state.xaxis[0]
        axis.formatter = fmt.rank_ticks(m.ranks.tolist())
        axis.ticker = (
            FixedTicker(ticks=list(range(m.n)))
            if m.n <= 32
            else AdaptiveTicker(base=2, mantissas=[1, 2], min_interval=1, desired_num_ticks=12)
        )
        plot.state.yaxis[0].ticker = FixedTicker(ticks=fmt.byte_tick_values(0.0, top))
        if not plot.state.select({"name": "node borders"}):
            plot.state.vspan(x="at", source=borders, line_color=NEUTRAL, line_width=1, line_alpha=0.6, name="node borders")
        plot.state.toolbar.autohide = True
        plot.state.toolbar_inner = True
        plain(plot, element)
        plot.state.ygrid.grid_line_alpha = 1
        plot.state.ygrid.visible = True

    return apply
