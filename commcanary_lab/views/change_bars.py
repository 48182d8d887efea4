"""Relative changes as bars from 0, with the limit of each drawn across it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from commcanary_lab.review.comparison import percent
from commcanary_lab.review.evaluate import Evaluation
from commcanary_lab.units import format_us
from commcanary_lab.views.plot_frame import frame, pane
from commcanary_lab.views.theme import FAIL, NEUTRAL

__all__ = ["CHANGE_LEGEND", "ChangeBar", "ChangeBars", "bar_of"]

#: Bars within the policy, bars that warn, and bars outside it; red is for what fails.
COLORS = {"pass": "#3a9cae", "warn": "#d3901a", "fail": FAIL}

_ROW = 34

CHANGE_LEGEND = (
    '<div class="lg" style="margin-top:8px">'
    + "".join(
        f'<span><i style="background:{COLORS[k]}"></i>{words}</span>'
        for k, words in (("pass", "within the policy"), ("warn", "close to its limit"), ("fail", "outside the policy"))
    )
    + f'<span><i style="background:{NEUTRAL};width:4px;height:14px"></i>limit</span>'
    + f'<span><i style="border-left:2px dashed {NEUTRAL};border-radius:0;width:0;height:14px"></i>warns from here</span></div>'
)


@dataclass(frozen=True)
class ChangeBar:
    """One change.

    Parameters
    ----------
    label : str
        Name of the row.
    change : float or None
        Percent, or points; growth is positive. None where there is no baseline.
    limit, warn : float or None
        Largest change that the policy allows, and from where it warns, in the same unit.
    unit : str
        ``%`` or ``points``.
    before, after, allowed : str
        In words, for the pointer.
    result : str
        ``pass``, ``warn`` or ``fail``.
    """

    label: str
    change: float | None
    limit: float | None
    warn: float | None
    unit: str
    before: str
    after: str
    allowed: str
    result: str


def bar_of(e: Evaluation, warn_fraction: float, label: str = "") -> ChangeBar:
    """Return the bar of an evaluation; its limit is where *both* thresholds are exceeded.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> found = lab.compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))
    >>> bar = bar_of(found.evaluations[2], found.policy.warn_fraction)
    >>> bar.label, round(bar.change, 2), bar.limit, bar.warn, bar.result
    ('p99', 18.35, 15.0, 7.5, 'fail')
    """
    if e.is_hidden_share:
        before, after = e.baseline or 0.0, e.candidate or 0.0
        allowed = f"a drop of {e.threshold:g} points"
        words = f"{before:.2f} %", f"{after:.2f} %", allowed
        marks = e.threshold, e.threshold * warn_fraction
        return ChangeBar(label or "hidden share, drop", before - after, *marks, "points", *words, e.threshold_result)
    values = ["absent" if v is None else format_us(v) for v in (e.baseline, e.candidate)]
    allowed = f"+{e.threshold:g} %, and up to {format_us(e.absolute_threshold_us or 0.0)} whatever the share"
    limit = max(e.threshold, 100 * (e.absolute_threshold_us or 0.0) / e.baseline) if e.baseline else None
    warn = None if limit is None else limit * warn_fraction
    return ChangeBar(label or e.label, e.change, limit, warn, "%", values[0], values[1], allowed, e.threshold_result)


class ChangeBars:
    """The chart; `update` moves bars and limits without building it anew.

    Parameters
    ----------
    bars : sequence of ChangeBar
        From top to bottom; updates have the same rows.
    axis : str
        Title of the axis.
    """

    def __init__(self, bars: Sequence[ChangeBar], axis: str = "change") -> None:
        from bokeh.models import ColumnDataSource

        self.labels = [b.label for b in bars]
        self._bars, self._limits, self._warns = ColumnDataSource(), ColumnDataSource(), ColumnDataSource()
        self.update(bars, first=True)
        self.figure = self._figure(axis)
        self.pane = pane(self.figure)
        self._range(bars)

    def update(self, bars: Sequence[ChangeBar], *, first: bool = False) -> None:
        """Show other values of the same rows."""
        y = list(range(len(bars)))[::-1]
        known = [(b, p) for b, p in zip(bars, y, strict=True)]
        value = [b.change or 0.0 for b in bars]
        self._bars.data = {
            "left": [min(0.0, v) for v in value], "right": [max(0.0, v) for v in value],
            "top": [p + 0.27 for p in y], "bottom": [p - 0.27 for p in y], "color": [COLORS[b.result] for b in bars],
            "at": [0.0] * len(bars), "y": y, "label": self.labels, "before": [b.before for b in bars],
            "after": [b.after for b in bars], "allowed": [b.allowed for b in bars], "result": [b.result for b in bars],
            "words": ["not defined" if b.change is None else percent(b.change, f" {b.unit}") for b in bars],
        }  # fmt: skip
        for source, name, half in ((self._limits, "limit", 0.4), (self._warns, "warn", 0.3)):
            marks = [(getattr(b, name), p) for b, p in known if getattr(b, name) is not None]
            source.data = {"x": [m for m, _ in marks], "y0": [p - half for _, p in marks], "y1": [p + half for _, p in marks]}
        if not first:
            self._range(bars)

    def _range(self, bars: Sequence[ChangeBar]) -> None:
        """Everything is in view, but a limit far beyond every change does not flatten the bars."""
        values = [b.change for b in bars if b.change is not None]
        limits = sorted(b.limit for b in bars if b.limit is not None)
        reach = max([*values, *limits[:1], 1.0])
        top = max([reach, *(x for x in limits if x <= 2.5 * reach)])
        low = min([0.0, *values])
        start, end = low - (0.05 * (top - low) if low < 0 else 0.0), top + 0.24 * (top - low)
        self.figure.x_range.update(start=start, end=end)
        self._bars.data = {**self._bars.data, "at": [end - 0.01 * (end - start)] * len(bars)}  # in a column of their own

    def _figure(self, axis: str) -> Any:
        from bokeh.models import CustomJSTickFormatter, FixedTicker, HoverTool, Range1d, Span

        n = max(1, len(self.labels))
        left = 34 + 7 * max(map(len, self._short), default=4)
        f = frame(_ROW * n + 62, x_range=Range1d(0, 1), y_range=Range1d(-0.6, n - 0.4), min_border_left=left)
        f.add_layout(Span(location=0, dimension="height", line_color=NEUTRAL, line_width=1))
        bars = f.quad(
            left="left", right="right", top="top", bottom="bottom", source=self._bars, fill_color="color", fill_alpha=0.92, line_color=None
        )
        f.segment(x0="x", x1="x", y0="y0", y1="y1", source=self._warns, line_color=NEUTRAL, line_width=2, line_dash=[3, 2])
        f.segment(x0="x", x1="x", y0="y0", y1="y1", source=self._limits, line_color=NEUTRAL, line_width=4)
        f.text(
            x="at", y="y", text="words", source=self._bars, text_align="right", text_baseline="middle", text_font_size="12.5px",
            text_font_style="bold", text_color=NEUTRAL,
        )  # fmt: skip
        names = {"baseline": "@before", "candidate": "@after", "change": "@words", "allowed": "@allowed", "result": "@result"}
        tips = [("", "@label"), *names.items()]
        f.add_tools(HoverTool(renderers=[bars], tooltips=tips, mode="hline", point_policy="follow_mouse"))
        f.yaxis.ticker = FixedTicker(ticks=list(range(n)))
        f.yaxis.formatter = CustomJSTickFormatter(args={"labels": self._short[::-1]}, code="return labels[tick] ?? ''")
        f.yaxis.major_label_text_font_size = "12.5px"
        f.xaxis.axis_label = axis
        f.ygrid.visible = False
        f.xgrid.grid_line_alpha = 0.5
        return f

    @property
    def _short(self) -> list[str]:
        return [x if len(x) <= 22 else f"{x[:21]}…" for x in self.labels]
