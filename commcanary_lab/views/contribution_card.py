"""What each phase and operation brings to a changed quantile: ranked sentences, bars, and the figures behind them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.contributions import Contributions, contributions
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import material, panel
from commcanary_lab.views.markup import html, rows_html, title_html
from commcanary_lab.views.plot_frame import frame, pane, redraw
from commcanary_lab.views.theme import NEUTRAL, paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ContributionCard", "contribution_frame"]

_METRICS = {"p99": "p99", "p95": "p95", "p50": "median", "mean": "mean"}
#: What adds and what takes off; neither is a failure, and the sign stands beside each bar.
_ADDS, _TAKES = "#b3731a", "#2a6fad"
_ROW = 30


class ContributionCard:
    """The card; `None` as `card` where a report holds no samples or the work differs.

    Parameters
    ----------
    result : Comparison
        Of two reports; the card does not depend on its policy.
    """

    def __init__(self, result: Comparison) -> None:
        self._found = {m: f for m in _METRICS.values() if (f := contributions(result, m)) is not None}
        self.card: Any = None
        if not self._found:
            return
        from bokeh.models import ColumnDataSource

        self._bars = ColumnDataSource()
        self._labels = [p.label for p in self._found["p99"].parts]
        self._words, self._rows = html(""), html("")
        self.figure = self._figure()
        self._show("p99")
        pick = material().RadioButtonGroup(label="", options=_METRICS, value="p99", size="small", margin=0, align="start", width=230)
        pick.param.watch(lambda e: self._show(e.new), "value")
        n = len(result.base.exposed_us) if result.base.exposed_us is not None else 0
        subtitle = "Contributions add up to the whole change: each part exchanged alone, averaged over all orders"
        title = html(title_html("What changed, by phase and operation", subtitle, "model", f"{n:,} samples a side"))
        head = panel().Row(title, pick, sizing_mode="stretch_width", margin=0)
        chart = pane(self.figure, csv=lambda: contribution_frame(self._found).to_csv(index=False))
        self.card = paper(head, self._words, chart, self._rows)

    def _show(self, metric: str) -> None:
        found = self._found[metric]
        items = "".join(f"<li>{escape(s)}</li>" for s in found.sentences)
        self._words.object = f'<div class="cl"><ul style="margin-top:4px;font-size:14px">{items}</ul></div>'
        rows = [
            (p.label, f"{p.samples:,}", _signed(p.delta_us), _share(p.delta_us, found.delta_us), _signed(p.exposed_us)) for p in found.parts
        ]
        rows.append(("all together", f"{sum(p.samples for p in found.parts):,}", _signed(found.delta_us), "", _signed(_whole(found))))
        name = "p50" if metric == "median" else metric
        heads = ["Phase and operation", "Samples", f"Brings to {name}", "Of the change", "To all exposed time"]
        self._rows.object = f'<div class="cl">{rows_html(heads, rows, right=[1, 2, 3, 4])}</div>'
        labels = [p.label for p in found.parts]
        y = list(range(len(labels)))[::-1]
        values = [p.delta_us for p in found.parts]
        reach = max(*(abs(v) for v in values), 1e-9)
        data = {
            "left": [min(0.0, v) for v in values],
            "right": [max(0.0, v) for v in values],
            "top": [p + 0.3 for p in y],
            "bottom": [p - 0.3 for p in y],
            "color": [_ADDS if v > 0 else _TAKES for v in values],
            "words": [_signed(v) for v in values],
            "at": [max(0.0, v) + 0.012 * reach for v in values],
            "y": y,
            "label": labels,
            "samples": [f"{p.samples:,}" for p in found.parts],
        }
        redraw(self._bars, data)
        low, high = min(0.0, *values), max(0.0, *values)
        with panel().io.unlocked():
            self.figure.x_range.update(start=low - 0.04 * reach, end=high + 0.22 * reach)
            self.figure.yaxis.formatter.update(args={"labels": [_short(x) for x in labels[::-1]]})
            self.figure.xaxis.axis_label = f"brings to {name} of the exposed latency"

    def _figure(self) -> Any:
        from bokeh.models import CustomJSTickFormatter, FixedTicker, HoverTool, Range1d, Span

        n = len(self._labels)
        left = 30 + 7 * max(len(_short(x)) for x in self._labels)
        f = frame(_ROW * n + 60, x_range=Range1d(0, 1), y_range=Range1d(-0.6, n - 0.4), min_border_left=left)
        f.add_layout(Span(location=0, dimension="height", line_color=NEUTRAL, line_width=1))
        bars = f.quad(left="left", right="right", top="top", bottom="bottom", source=self._bars, fill_color="color", line_color=None)
        f.text(x="at", y="y", text="words", source=self._bars, text_baseline="middle", text_font_size="12.5px", text_color=NEUTRAL)
        f.add_tools(HoverTool(renderers=[bars], tooltips=[("", "@label"), ("brings", "@words"), ("samples", "@samples")], mode="hline"))
        f.yaxis.ticker = FixedTicker(ticks=list(range(n)))
        f.yaxis.formatter = CustomJSTickFormatter(args={"labels": []}, code="return labels[tick] ?? ''")
        f.yaxis.major_label_text_font_size = "12.5px"
        f.xaxis.formatter = fmt.time_ticks()
        f.ygrid.visible = False
        f.xgrid.grid_line_alpha = 0.5
        return f


def contribution_frame(found: dict[str, Contributions]) -> pd.DataFrame:
    """Return one row per metric and part, microseconds.

    Parameters
    ----------
    found : dict of str to Contributions
        By metric.
    """
    import pandas as pd

    rows = [(m, p.phase, p.operation, p.samples, round(p.delta_us, 3), round(p.exposed_us, 3)) for m, f in found.items() for p in f.parts]
    return pd.DataFrame(rows, columns=["metric", "phase", "operation", "samples", "brings_us", "exposed_us"])


def _whole(found: Contributions) -> float:
    return sum(p.exposed_us for p in found.parts)


def _signed(time_us: float) -> str:
    sign = "+" if time_us > 0 else "\u2212"
    return "0 us" if abs(time_us) < 0.0005 else f"{sign}{format_us(abs(time_us))}"


def _share(part_us: float, whole_us: float) -> str:
    return "" if abs(whole_us) < 0.0005 or abs(part_us) < 0.0005 else f"{100 * part_us / whole_us:.0f} %"


def _short(label: str) -> str:
    return label if len(label) <= 26 else f"{label[:25]}\u2026"
