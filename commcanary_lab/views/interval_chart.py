"""Measured changes with their bootstrap intervals, one row per operation, and the band within which nothing counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commcanary_lab.review.comparison import percent
from commcanary_lab.review.measured import MeasuredRow
from commcanary_lab.units import format_us
from commcanary_lab.views.group_labels import ranks_text
from commcanary_lab.views.plot_frame import frame, pane
from commcanary_lab.views.theme import FAIL, NEUTRAL

__all__ = ["INTERVAL_LEGEND", "MAX_ROWS", "IntervalChart", "row_labels"]

#: Operations with the largest share of the measured time are drawn; the rest is in the table.
MAX_ROWS = 20

_ROW = 28

#: Red is for what fails; what cannot be decided is hollow.
COLORS = {"regression": FAIL, "improvement": "#2f9e62", "unchanged": "#3a9cae", "inconclusive": "#d3901a"}

INTERVAL_LEGEND = (
    '<div class="lg" style="margin-top:8px">'
    + "".join(
        f'<span><i style="border-radius:50%;box-sizing:border-box;{style}"></i>{words}</span>'
        for style, words in (
            (f"background:{COLORS['regression']}", "slower than allowed"),
            (f"background:{COLORS['improvement']}", "faster"),
            (f"background:{COLORS['unchanged']}", "unchanged"),
            (f"border:2px solid {COLORS['inconclusive']}", "not decided"),
        )
    )
    + f'<span><i style="background:{NEUTRAL};opacity:.3;width:18px"></i>within this nothing counts</span></div>'
)


def row_labels(rows: Sequence[MeasuredRow]) -> list[str]:
    """Return a name for each row; groups of the same name are told apart by their ranks.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> gloo = lab.samples.gloo4()
    >>> row_labels(lab.compare(gloo, gloo).rows)[:2]
    ['all_reduce 256 KiB on tp (0-1)', 'all_reduce 256 KiB on tp (0-1)']
    """
    members: dict[str, set[tuple[int, ...]]] = {}
    for r in rows:
        members.setdefault(r.label, set()).add(r.members)
    return [f"{r.label} ({ranks_text(r.members)})" if len(members[r.label]) > 1 else r.label for r in rows]


class IntervalChart:
    """The chart of one quantile; `update` shows other rows of the same operations.

    Parameters
    ----------
    rows : sequence of MeasuredRow
        One quantile, the largest share first; `MAX_ROWS` of them are drawn.
    limit : float
        Allowed growth, percent.
    """

    def __init__(self, rows: Sequence[MeasuredRow], limit: float) -> None:
        from bokeh.models import BoxAnnotation, ColumnDataSource

        self.labels = row_labels(rows)[:MAX_ROWS]
        self._lines, self._dots, self._hollow = ColumnDataSource(), ColumnDataSource(), ColumnDataSource()
        self._band = BoxAnnotation(fill_color=NEUTRAL, fill_alpha=0.16, line_color=None)
        self.figure = self._figure()
        self.pane = pane(self.figure)
        self.update(rows, limit)

    def update(self, rows: Sequence[MeasuredRow], limit: float) -> None:
        """Show a quantile under a policy."""
        shown = rows[:MAX_ROWS]
        cap = _reach(shown, limit)
        self._band.update(left=-limit, right=limit)
        self.figure.x_range.update(start=-cap, end=cap * 1.12)
        drawn = [(r, len(shown) - 1 - i) for i, r in enumerate(shown) if r.change_pct is not None]
        spans = [(r, y, r.change_interval) for r, y in drawn if r.change_interval is not None]
        self._lines.data = {
            "x0": [_inside(i.low, cap) for _, _, i in spans], "x1": [_inside(i.high, cap) for _, _, i in spans],
            "y": [y for _, y, _ in spans], "color": [COLORS[r.verdict] for r, _, _ in spans],
            "dash": ["4 3" if r.verdict == "inconclusive" else "solid" for r, _, _ in spans],
        }  # fmt: skip
        for source, hollow in ((self._dots, False), (self._hollow, True)):
            source.data = _marks([d for d in drawn if (d[0].verdict == "inconclusive") == hollow], self.labels[::-1], cap)

    def _figure(self) -> Any:
        from bokeh.models import CustomJSTickFormatter, FixedTicker, HoverTool, Range1d, Span

        n = max(1, len(self.labels))
        short = [x if len(x) <= 38 else f"{x[:37]}…" for x in self.labels][::-1]
        left = 34 + int(6.4 * max(map(len, short), default=4))
        f = frame(_ROW * n + 62, x_range=Range1d(-1, 1), y_range=Range1d(-0.6, n - 0.4), min_border_left=left)
        f.add_layout(self._band)
        f.add_layout(Span(location=0, dimension="height", line_color=NEUTRAL, line_width=1))
        f.segment(x0="x0", x1="x1", y0="y", y1="y", source=self._lines, line_color="color", line_width=3, line_alpha=0.75, line_dash="dash")
        style = {"x": "x", "y": "y", "size": 10, "line_color": "color", "line_width": 2}
        dots = [f.scatter(source=self._dots, fill_color="color", **style), f.scatter(source=self._hollow, fill_alpha=0.0, **style)]
        words = {"text_baseline": "middle", "text_align": "right", "text_font_size": "12px", "text_color": NEUTRAL}
        for source in (self._dots, self._hollow):
            f.text(x="edge", y="y", text="words", source=source, **words)
        tips = [("", "@label"), ("baseline", "@before"), ("candidate", "@after"), ("change", "@words"), ("interval", "@interval"),
                ("", "@verdict: @reason"), ("share of the measured time", "@share")]  # fmt: skip
        f.add_tools(HoverTool(renderers=dots, tooltips=tips, mode="hline", point_policy="follow_mouse"))
        f.yaxis.ticker = FixedTicker(ticks=list(range(n)))
        f.yaxis.formatter = CustomJSTickFormatter(args={"labels": short}, code="return labels[tick] ?? ''")
        f.xaxis.formatter = CustomJSTickFormatter(code="return (tick > 0 ? '+' : '') + tick.toLocaleString('en-US') + ' %'")
        f.xaxis.axis_label = "change, with its bootstrap interval"
        f.ygrid.visible = False
        f.xgrid.grid_line_alpha = 0.5
        return f


def _inside(value: float, cap: float) -> float:
    return min(cap, max(-cap, value))


def _reach(rows: Sequence[MeasuredRow], limit: float) -> float:
    """One interval that is ten times as wide as the others must not flatten them: it leaves the frame."""
    sizes = []
    for r in rows:
        if r.change_pct is not None:
            ends = (r.change_interval.low, r.change_interval.high) if r.change_interval is not None else ()
            sizes.append(max(map(abs, (r.change_pct, *ends))))
    sizes.sort()
    usual = sizes[int(0.8 * (len(sizes) - 1))] if sizes else 0.0
    return max(1.5 * limit, min(sizes[-1] if sizes else 0.0, 1.6 * usual), 1.0) * 1.1


def _marks(placed: Sequence[tuple[MeasuredRow, int]], labels: Sequence[str], cap: float) -> dict[str, list[Any]]:
    rows = [r for r, _ in placed]
    changes = [r.change_pct or 0.0 for r in rows]
    intervals = [r.change_interval for r in rows]
    return {
        "x": [_inside(c, cap) for c in changes],
        "y": [y for _, y in placed],
        "edge": [cap * 1.1] * len(rows),
        "color": [COLORS[r.verdict] for r in rows],
        "label": [labels[y] for _, y in placed],
        "before": [f"{format_us(r.a_us or 0.0)} ({r.count_a:,} measured)" for r in rows],
        "after": [f"{format_us(r.b_us or 0.0)} ({r.count_b:,} measured)" for r in rows],
        "words": [percent(c) for c in changes],
        "interval": ["none" if i is None else f"{i.low:+.1f} % to {i.high:+.1f} %" for i in intervals],
        "verdict": ["not decided" if r.verdict == "inconclusive" else r.verdict for r in rows],
        "reason": [r.reason for r in rows],
        "share": [f"{r.share_pct:.1f} %" for r in rows],
    }
