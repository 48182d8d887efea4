"""A report: exposed latency on one backend, its distribution, and which phases and operations it is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from commcanary_lab.simulate.report import LatencySummary, Report
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.latency_curves import slower_share
from commcanary_lab.views.markup import Figure, coverage_text, html, key_figures, rows_html, title_html
from commcanary_lab.views.plot_frame import frame, guide, pane
from commcanary_lab.views.saving import series_csv
from commcanary_lab.views.theme import OP_COLORS, paper

__all__ = ["report"]

_LINE = OP_COLORS["all_reduce"]
#: Parts that are listed; the rest is counted.
MAX_PARTS = 30


def report(result: Report) -> Any:
    """Show a report: key figures, the share of events at least as slow as a latency, phases and operations.

    Parameters
    ----------
    result : Report
        From `commcanary_lab.simulate`.

    Returns
    -------
    panel.viewable.Viewable
    """
    removed = f", without {', '.join(result.ablations)}" if result.ablations else ""
    covered = coverage_text(result.prepared.trace.coverage)
    head = title_html(f"Exposed latency on {result.backend.label}{removed}", f"Cost model {result.model}", result.origin, covered)
    parts = [html(head), html(key_figures(figures(result)), margin=(10, 0, 10, 0))]
    if len(result.samples.exposed_us):
        parts.append(pane(_curve(result), csv=lambda: series_csv({result.backend.label: result.samples.exposed_us}, "exposed_us")))
    tables = (("Phase", result.by_phase), ("Operation", result.by_op))
    parts += [html(_parts_html(name, by), margin=(10, 0, 0, 0)) for name, by in tables if by]
    return paper(*parts)


def figures(result: Report) -> list[Figure]:
    """Return the key figures of a report."""
    m = result.metrics
    wait = result.samples.wait_us
    assumed = ", ".join(f"{k} = {v:g} assumed" for k, v in result.assumptions.items())
    return [
        Figure("Median", format_us(m["median_us"]), assumed or f"{int(m['count']):,} events"),
        Figure("p99", format_us(m["p99_us"]), f"p95 {format_us(m['p95_us'])}"),
        Figure("Longest", format_us(m["max_us"]), f"mean {format_us(m['mean_us'])}"),
        Figure("Hidden under compute", f"{m['communication_hidden_pct']:.3g} %", "of the latency"),
        Figure("Longest queue wait", format_us(float(wait.max()) if len(wait) else 0.0), "a queue that does not keep up shows here"),
    ]


def _curve(result: Report) -> Any:
    from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, Range1d

    x, share = slower_share(result.samples.exposed_us)
    floor, top = 0.5 / len(result.samples.exposed_us), float(x[-1]) or 1.0
    f = frame(240, tools="xpan,xwheel_zoom,reset,save", active_scroll=None, y_axis_type="log",
              x_range=Range1d(-0.02 * top, 1.04 * top), y_range=Range1d(floor, 1.35))  # fmt: skip
    f.xaxis.axis_label, f.yaxis.axis_label = "exposed latency", "share of events at least as slow"
    f.xaxis.formatter = fmt.time_ticks()
    f.yaxis.formatter = CustomJSTickFormatter(code="return (tick * 100).toLocaleString('en-US', {maximumSignificantDigits: 3}) + ' %'")
    f.yaxis.ticker.mantissas = [1]
    f.ygrid.visible = f.xgrid.visible = False
    for part, name in ((0.05, "p95"), (0.01, "p99")):
        if part > floor:
            guide(f, "width", part, name, line_alpha=0.7)
    source = ColumnDataSource({
        "x": np.concatenate([[0.0], x, [x[-1]]]), "share": np.concatenate([[1.0], share, [floor]]),
        "words": [format_us(v) for v in (x[0], *x, x[-1])], "part": [*(f"{100 * s:.3g} %" for s in (1.0, *share)), "none slower"],
    })  # fmt: skip
    f.step(x="x", y="share", source=source, mode="before", line_color=_LINE, line_width=2)
    hit = f.scatter(x="x", y="share", source=source, size=7, fill_alpha=0, line_alpha=0)
    f.add_tools(HoverTool(renderers=[hit], tooltips=[("exposed", "@words"), ("at least as slow", "@part")]))
    return f


def _parts_html(name: str, by: Any) -> str:
    parts: list[tuple[str, LatencySummary]] = sorted(by.items(), key=lambda kv: -kv[1].p99_us)
    rows = [
        (part, f"{s.count:,}", *(format_us(v) for v in (s.median_us, s.p95_us, s.p99_us, s.max_us, s.mean_us)))
        for part, s in parts[:MAX_PARTS]
    ]
    if len(parts) > MAX_PARTS:
        rows.append((f"{len(parts) - MAX_PARTS:,} more", *[""] * 6))
    return rows_html([name, "Events", "Median", "p95", "p99", "Longest", "Mean"], rows, right=range(1, 7))
