"""Charts of a comparison as inline SVG, written by hand: no script, no outside file, colours from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

__all__ = ["Bar", "Pair", "Span", "cumulative", "deltas", "nice_ticks", "pairs", "spans"]

FloatArray = npt.NDArray[np.float64]

_WIDTH = 760
_LEFT, _RIGHT, _TOP, _ROW, _FOOT = 190, 96, 12, 30, 40
#: Rows of one chart before the rest is only counted.
MAX_ROWS = 24


@dataclass(frozen=True)
class Pair:
    """A value before and after, and the largest that is allowed."""

    label: str
    before: float
    after: float
    limit: float | None = None
    result: str = "pass"


@dataclass(frozen=True)
class Bar:
    """A relative change in percent of one part; the threshold is that of the chart."""

    label: str
    value: float | None
    result: str = "pass"


@dataclass(frozen=True)
class Span:
    """A relative change in percent with its interval."""

    label: str
    value: float
    low: float | None
    high: float | None
    verdict: str


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers that cover a range.

    Examples
    --------
    >>> nice_ticks(0, 152.7), nice_ticks(-3, 17)
    ([0.0, 50.0, 100.0, 150.0, 200.0], [-5.0, 0.0, 5.0, 10.0, 15.0, 20.0])
    """
    span = max(high - low, 1e-3)  # values have 3 decimals
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if raw <= m * power * 1.0001)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [round(k * step, 9) + 0.0 for k in range(first, last + 1)]


class _Plot:
    """A horizontal axis with rows above it."""

    def __init__(self, low: float, high: float, rows: int, unit: str, title: str) -> None:
        self.ticks = nice_ticks(low, high)
        self.low, self.high = self.ticks[0], self.ticks[-1]
        self.rows, self.unit = rows, unit
        self.height = _TOP + rows * _ROW + _FOOT
        self.out = [
            f'<svg viewBox="0 0 {_WIDTH} {self.height}" role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">',
            f"<title>{escape(title)}</title>",
        ]
        bottom = _TOP + rows * _ROW
        for t in self.ticks:
            x = self.x(t)
            kind = "axis" if t == 0 else "grid"
            self.out.append(f'<line class="{kind}" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>')
            self.text(x, bottom + 16, _number(t), "tick", "middle")
        self.text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 34, unit, "unit", "middle")

    def x(self, value: float) -> float:
        """Position of a value."""
        return round(_LEFT + (value - self.low) / (self.high - self.low) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, row: int) -> float:
        """Middle of a row."""
        return _TOP + row * _ROW + _ROW / 2

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        """Write words."""
        self.out.append(f'<text class="{kind}" x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}">{escape(words)}</text>')

    def label(self, row: int, words: str, kind: str = "label") -> None:
        """Write the name of a row, shortened to its room; the whole name shows when pointed at."""
        short = words if len(words) <= 29 else f"{words[:28]}…"
        inside = f"{escape(short)}<title>{escape(words)}</title>"
        self.out.append(f'<text class="{kind}" x="{_LEFT - 12}" y="{self.y(row) + 4}" text-anchor="end">{inside}</text>')

    def svg(self) -> str:
        """Return the chart."""
        return "".join([*self.out, "</svg>"])


def pairs(rows: Sequence[Pair], unit: str, title: str) -> str:
    """Draw values before and after, joined, with a mark at the largest allowed one.

    Examples
    --------
    >>> '<circle class="after fail"' in pairs([Pair("p99", 100.0, 140.0, 115.0, "fail")], "us", "p99")
    True
    """
    top = max([*(r.before for r in rows), *(r.after for r in rows), *(r.limit or 0.0 for r in rows), 1e-6])
    plot = _Plot(0.0, top, len(rows), unit, title)
    for i, r in enumerate(rows):
        y, a, b = plot.y(i), plot.x(r.before), plot.x(r.after)
        plot.label(i, r.label)
        plot.out.append(f'<line class="join {r.result}" x1="{a}" y1="{y}" x2="{b}" y2="{y}"/>')
        if r.limit is not None:
            x = plot.x(r.limit)
            plot.out.append(f'<line class="limit" x1="{x}" y1="{y - 9}" x2="{x}" y2="{y + 9}"/>')
        plot.out.append(f'<circle class="before" cx="{a}" cy="{y}" r="5"/><circle class="after {r.result}" cx="{b}" cy="{y}" r="5"/>')
        plot.text(_WIDTH - 4, y + 4, f"{_value(r.before)} → {_value(r.after)}", "value", "end")
    return plot.svg()


def deltas(rows: Sequence[Bar], limit: float, title: str) -> str:
    """Draw relative changes as bars from 0, with the threshold as a line.

    Examples
    --------
    >>> '<rect class="bar fail"' in deltas([Bar("decode", 41.5, "fail")], 15.0, "by phase")
    True
    """
    known = [r.value for r in rows if r.value is not None]
    plot = _Plot(min([0.0, *known]), max([limit * 1.2, *known]), len(rows), "change of p99 (%)", title)
    zero = plot.x(0.0)
    for i, r in enumerate(rows):
        y = plot.y(i)
        plot.label(i, r.label)
        if r.value is None:
            plot.text(zero + 6, y + 4, "not defined (the baseline is 0 or absent)", "tick")
            continue
        x = plot.x(r.value)
        box = f'x="{min(x, zero)}" y="{y - 8}" width="{round(abs(x - zero), 1)}" height="16" rx="2"'
        plot.out.append(f'<rect class="bar {r.result}" {box}/>')
        plot.text(_WIDTH - 4, y + 4, f"{r.value:+.1f} %", f"value {r.result}", "end")
    _threshold(plot, limit)
    return plot.svg()


def spans(rows: Sequence[Span], limit: float, title: str) -> str:
    """Draw changes with their intervals, and the band within which nothing counts.

    Examples
    --------
    >>> '<line class="span regression"' in spans([Span("all_reduce", 30.0, 11.3, 50.8, "regression")], 8.0, "medians")
    True
    """
    shown = rows[:MAX_ROWS]
    # one interval that is ten times as wide as the others must not flatten them: it leaves the frame, with an arrow
    reach = sorted(abs(r.value) for r in shown)
    cap = max(4 * limit, 3 * reach[int(0.8 * (len(reach) - 1))] if reach else 0.0)
    ends = [v for r in shown for v in (r.low, r.high, r.value) if v is not None and abs(v) <= cap]
    plot = _Plot(min([-limit * 1.2, *ends]), max([limit * 1.2, *ends]), len(shown), "change of the median (%), interval", title)
    left, right = plot.x(-limit), plot.x(limit)
    plot.out.append(f'<rect class="band" x="{left}" y="{_TOP}" width="{round(right - left, 1)}" height="{len(shown) * _ROW}"/>')
    for i, r in enumerate(shown):
        y = plot.y(i)
        plot.label(i, r.label)
        if r.low is not None and r.high is not None:
            a, b = (plot.x(min(max(v, plot.low), plot.high)) for v in (r.low, r.high))
            plot.out.append(f'<line class="span {r.verdict}" x1="{a}" y1="{y}" x2="{b}" y2="{y}"/>')
            for out, x, step in ((r.low < plot.low, a, 7), (r.high > plot.high, b, -7)):
                if out:
                    plot.out.append(f'<path class="arrow {r.verdict}" d="M{x} {y}l{step} -5v10z"/>')
        if plot.low <= r.value <= plot.high:
            plot.out.append(f'<circle class="dot {r.verdict}" cx="{plot.x(r.value)}" cy="{y}" r="4.5"/>')
        plot.text(_WIDTH - 4, y + 4, f"{r.value:+.1f} %", f"value {r.verdict}", "end")
    return plot.svg()


def _threshold(plot: _Plot, limit: float) -> None:
    x = plot.x(limit)
    plot.out.append(f'<line class="limit dashed" x1="{x}" y1="{_TOP - 4}" x2="{x}" y2="{_TOP + plot.rows * _ROW}"/>')


def cumulative(before: FloatArray, after: FloatArray, unit: str, title: str) -> str:
    """Draw the share of events up to each latency, before and after.

    Parameters
    ----------
    before, after : ndarray of float64
        Samples; at least one value each.

    Examples
    --------
    >>> cumulative(np.array([1.0, 2.0]), np.array([2.0, 3.0]), "us", "t").count("<path")
    2
    """
    top = max(float(before.max()), float(after.max()), 1e-6)
    plot = _Plot(0.0, top, 8, unit, title)
    low, high = _TOP + 8 * _ROW, _TOP + 6
    for share in (0.0, 0.25, 0.5, 0.75, 0.95):
        y = round(low - share * (low - high), 1)
        plot.out.append(f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>')
        plot.text(_LEFT - 12, y + 4, f"{share:.0%}".replace("%", " %"), "tick", "end")
    plot.text(_LEFT - 64, (low + high) / 2 + 4, "share of events", "unit", "end")
    for values, kind in ((before, "before"), (after, "after")):
        plot.out.append(f'<path class="curve {kind}" d="{_steps(plot, values, low, high)}"/>')
        x = plot.x(float(np.quantile(values, 0.5)))
        plot.out.append(f'<circle class="{kind}" cx="{x}" cy="{round((low + high) / 2, 1)}" r="4.5"/>')
    return plot.svg()


def _steps(plot: _Plot, values: FloatArray, low: float, high: float) -> str:
    ordered = np.sort(values)
    points = min(len(ordered), 400)
    index = np.unique(np.linspace(0, len(ordered) - 1, points).round().astype(int))
    path = [f"M{plot.x(0.0)} {low}"]
    for i in index.tolist():
        y = round(low - (i + 1) / len(ordered) * (low - high), 1)
        path.append(f"H{plot.x(float(ordered[i]))}V{y}")
    return "".join([*path, f"H{plot.x(plot.high)}"])


def _number(value: float) -> str:
    """A tick."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _value(value: float) -> str:
    """A value beside a row: three or four digits."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"
