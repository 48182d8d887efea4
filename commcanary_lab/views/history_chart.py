"""The trend of a history: three quantiles, what the policy allows, and below each entry its decisions as signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from commcanary_lab.review.history import Entry, History
from commcanary_lab.review.html_parts import VERDICTS
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.plot_frame import frame, pane, redraw
from commcanary_lab.views.theme import FAIL, NEUTRAL

__all__ = ["HISTORY_LEGEND", "STRIP_LEGEND", "HistoryChart"]

#: Metric, figure, colour, dash and mark of each line: told apart without colour, too.
LINES = (
    ("p99", "p99_us", "#3a9cae", "solid", "triangle", 10),
    ("p95", "p95_us", "#a377c4", "dashed", "square", 8),
    ("median", "p50_us", NEUTRAL, "dotted", "circle", 8),
)
#: Mark and colour of each decision.
SIGNS = {
    "pass": ("circle", "#2f9e62"),
    "warn": ("triangle", "#d3901a"),
    "fail": ("x", FAIL),
    "inconclusive": ("diamond_cross", "#d3901a"),
    "incomparable": ("dash", NEUTRAL),
    "baseline": ("star", NEUTRAL),
    "approve": ("square_pin", "#2f9e62"),
    "reject": ("square_x", FAIL),
    "needs_data": ("square", "#d3901a"),
}
_OPEN = {"pass", "inconclusive", "needs_data", "approve"}
_ROWS = {
    "reports": (("verdict", "Verdict"), ("p99", "p99"), ("p95", "p95"), ("median", "p50"), ("hidden", "hidden share"),
                ("parts", "each part"), ("signoff", "sign-off")),
    "measured": (("verdict", "Verdict"), ("signoff", "sign-off")),
}  # fmt: skip


def _svg(kind: str, color: str) -> str:
    shape = {
        "circle": '<circle cx="7" cy="7" r="4" fill="none" stroke-width="2"/>',
        "triangle": '<path d="M2 12h10l-5 -9z" fill="currentColor"/>',
        "x": '<path d="M3 3l8 8M11 3l-8 8" stroke-width="2.6"/>',
        "dash": '<path d="M2 7h10" stroke-width="2.6"/>',
        "star": '<path d="M7 1l1.8 4.2 4.5.4-3.4 3 1 4.4-3.9-2.4-3.9 2.4 1-4.4-3.4-3 4.5-.4z" fill="currentColor" stroke="none"/>',
        "diamond_cross": '<path d="M7 1l5 6-5 6-5-6zM2 7h10M7 1v12" fill="none" stroke-width="1.4"/>',
        "square": '<rect x="2.5" y="2.5" width="9" height="9" fill="none" stroke-width="2"/>',
        "square_x": '<path d="M2.5 2.5h9v9h-9zl9 9m0-9l-9 9" fill="none" stroke-width="1.6"/>',
        "square_pin": '<path d="M2 2q5 3 10 0q-3 5 0 10q-5 -3 -10 0q3 -5 0 -10z" fill="none" stroke-width="1.8"/>',
    }[kind]
    return f'<svg width="14" height="14" viewBox="0 0 14 14" style="color:{color};stroke:{color}" aria-hidden="true">{shape}</svg>'


def _legend(names: tuple[tuple[str, str], ...]) -> str:
    return f'<div class="lg">{"".join(f"<span>{_svg(*SIGNS[n])}{words}</span>" for n, words in names)}</div>'


HISTORY_LEGEND = (
    '<div class="lg" style="margin-top:8px">'
    + "".join(
        f'<span><i style="border-top:3px {dash} {color};border-radius:0;height:0;width:20px"></i>'
        f"{_svg(mark if mark != 'square' else 'square', color)}{'p50' if m == 'median' else m}</span>"
        for m, _, color, dash, mark, _ in LINES
    )
    + f'<span><i style="border-top:2px dashed {FAIL};border-radius:0;height:0;width:20px"></i>the most that the policy allows</span></div>'
)
STRIP_LEGEND = _legend(
    (
        *((v, VERDICTS[v].lower()) for v in ("pass", "warn", "fail", "inconclusive", "baseline", "incomparable")),
        *(("approve", "approved"), ("reject", "rejected"), ("needs_data", "needs data; faded: stale")),
    )
)


class HistoryChart:
    """The chart; `show` follows another policy, selection or scale in place.

    Parameters
    ----------
    history : History
        What to show first; `show` takes the same entries.
    picked : callable, optional
        Called with the name of an entry that was clicked.
    """

    def __init__(self, history: History, picked: Callable[[str], None] | None = None) -> None:
        from bokeh.models import ColumnDataSource

        self.history, self._picked = history, picked
        self.relative = False
        self._lines = {m: ColumnDataSource() for m, *_ in LINES}
        self._marks = {m: ColumnDataSource() for m, *_ in LINES}
        self._limits, self._signs, self._band = ColumnDataSource(), ColumnDataSource(), ColumnDataSource()
        self.figure = self._trend_figure()
        self.strip = self._strip_figure()
        self.show(history, None, {})
        self.pane = pane(self.figure, self.strip, csv=lambda: self.history.df.to_csv(index=False))

    def show(self, history: History, selected: str | None, signed: Mapping[str, tuple[str, bool, str]]) -> None:
        """Draw a history.

        Parameters
        ----------
        history : History
        selected : str or None
            Entry that is marked.
        signed : mapping
            For names of entries: decision of the newest sign-off, whether it still holds, and its words.
        """
        self.history = history
        self._selected, self._signed = selected, signed
        entries = history.entries
        base = next((e for e in entries if e.verdict == "baseline"), entries[0])
        tops = [1e-9]
        limits: dict[str, list[Any]] = {"x0": [], "x1": [], "y": [], "color": []}
        for metric, name, color, *_ in LINES:
            whole = base.figure(name) if self.relative else 1.0

            def scaled(value: float, whole: float | None = whole) -> float:
                return 100 * (value / whole - 1) if self.relative and whole else value

            rows = [(i, e, v) for i, e in enumerate(entries) if (v := e.figure(name)) is not None and (e.comparable or not self.relative)]
            ys = [scaled(v) for _, _, v in rows]
            tops += ys
            redraw(self._marks[metric], self._points(metric, rows, ys))
            line = [(i, y) for (i, e, _), y in zip(rows, ys, strict=True) if e.comparable]
            redraw(self._lines[metric], {"x": [i for i, _ in line], "y": [y for _, y in line]})
            for i, e in enumerate(entries):
                if (limit := e.limit_us(metric)) is not None:
                    limits["x0"].append(i - 0.5)
                    limits["x1"].append(i + 0.5)
                    limits["y"].append(scaled(limit))
                    limits["color"].append(color)
        tops += limits["y"]
        redraw(self._limits, limits)
        redraw(self._signs, self._sign_rows())
        at = [i for i, e in enumerate(entries) if e.name == selected]
        redraw(self._band, {"left": [i - 0.5 for i in at], "right": [i + 0.5 for i in at]})
        self._scale(min([0.0, *tops]), max(tops))

    def scale(self, relative: bool) -> None:
        """Show times, or changes against the baseline."""
        self.relative = relative
        self.show(self.history, self._selected, self._signed)

    def _scale(self, low: float, high: float) -> None:
        room = 0.08 * ((high - low) or 1.0)
        self.figure.y_range.update(start=low - (room if low < 0 else 0), end=high + room)
        self.figure.yaxis.formatter = self._percent if self.relative else self._time
        self.figure.yaxis.axis_label = "change against the baseline" if self.relative else self._what()

    def _what(self) -> str:
        return "exposed latency" if self.history.kind == "reports" else "measured latency"

    @staticmethod
    def _points(metric: str, rows: list[tuple[int, Entry, float]], ys: list[float]) -> dict[str, list[Any]]:
        limits = [e.limit_us(metric) for _, e, _ in rows]
        return {
            "x": [i for i, _, _ in rows],
            "y": ys,
            "alpha": [1.0 if e.comparable else 0.3 for _, e, _ in rows],
            "name": [e.name for _, e, _ in rows],
            "value": [format_us(v) for _, _, v in rows],
            "limit": ["no limit" if v is None else format_us(v) for v in limits],
            "verdict": [VERDICTS[e.verdict].lower() for _, e, _ in rows],
            "metric": ["p50" if metric == "median" else metric] * len(rows),
        }

    def _sign_rows(self) -> dict[str, list[Any]]:
        rows = _ROWS[self.history.kind]
        out: dict[str, list[Any]] = {k: [] for k in ("x", "y", "marker", "color", "fill", "alpha", "words", "name", "row", "size")}
        for place, (row, words) in enumerate(rows):
            for i, e in enumerate(self.history.entries):
                sign, told, holds = self._sign(e, row)
                if sign is None:
                    continue
                marker, color = SIGNS[sign]
                fill, alpha, size = 0.0 if sign in _OPEN else 1.0, 1.0 if holds else 0.4, 13 if row == "verdict" else 11
                values = (i, len(rows) - 1 - place, marker, color, fill, alpha, told, e.name, words, size)
                for key, value in zip(out, values, strict=True):
                    out[key].append(value)
        return out

    def _sign(self, e: Entry, row: str) -> tuple[str | None, str, bool]:
        if row == "verdict":
            return e.verdict, VERDICTS[e.verdict].lower() + (f": {e.problem}" if e.problem else ""), True
        if row == "signoff":
            found = self._signed.get(e.name)
            return (None, "", True) if found is None else (found[0], found[2], found[1])
        result = e.result(row)
        return result, "" if result is None else VERDICTS[result].lower(), True

    def _trend_figure(self) -> Any:
        from bokeh.models import CustomJSTickFormatter, HoverTool, Range1d

        n = len(self.history.entries)
        self._time = fmt.time_ticks()
        self._percent = CustomJSTickFormatter(code="return (tick > 0 ? '+' : '') + tick.toLocaleString('en-US') + ' %'")
        f = frame(280, tools="save", x_range=Range1d(-0.5, n - 0.5), y_range=Range1d(0, 1), min_border_left=84)
        f.quad(left="left", right="right", top=1e12, bottom=-1e12, source=self._band, fill_color=NEUTRAL, fill_alpha=0.16, line_color=None)
        f.segment(x0="x0", x1="x1", y0="y", y1="y", source=self._limits, line_color=FAIL, line_width=1.6, line_dash=[5, 3], line_alpha=0.85)
        for metric, _, color, dash, mark, size in LINES:
            f.line(x="x", y="y", source=self._lines[metric], line_color=color, line_width=2.2, line_dash=dash)
            dots = f.scatter(x="x", y="y", source=self._marks[metric], marker=mark, size=size, fill_color=color, line_color=color,
                             fill_alpha="alpha", line_alpha="alpha")  # fmt: skip
            tips = [("", "@name"), ("@metric", "@value"), ("allowed", "@limit"), ("verdict", "@verdict")]
            f.add_tools(HoverTool(renderers=[dots], tooltips=tips))
        f.xaxis.visible = False
        f.xgrid.visible = False
        f.ygrid.grid_line_alpha = 0.5
        self._clickable(f)
        return f

    def _strip_figure(self) -> Any:
        from bokeh.models import CustomJSTickFormatter, FixedTicker, HoverTool, Range1d

        rows = _ROWS[self.history.kind]
        entries = self.history.entries
        f = frame(26 * len(rows) + 74, x_range=self.figure.x_range, y_range=Range1d(-0.6, len(rows) - 0.4), min_border_left=84)
        f.quad(left="left", right="right", top=1e3, bottom=-1e3, source=self._band, fill_color=NEUTRAL, fill_alpha=0.16, line_color=None)
        signs = f.scatter(x="x", y="y", marker="marker", size="size", source=self._signs, line_color="color", fill_color="color",
                          fill_alpha="fill", line_alpha="alpha", line_width=2)  # fmt: skip
        f.add_tools(HoverTool(renderers=[signs], tooltips=[("", "@name"), ("@row", "@words")]))
        every = max(1, -(-len(entries) // 14))
        f.xaxis.ticker = FixedTicker(ticks=[i for i in range(len(entries)) if (len(entries) - 1 - i) % every == 0])
        f.xaxis.formatter = CustomJSTickFormatter(args={"labels": [_short(e) for e in entries]}, code="return labels[tick] ?? ''")
        f.xaxis.major_label_orientation = 0.55 if len(entries) > 6 else "horizontal"
        f.yaxis.ticker = FixedTicker(ticks=list(range(len(rows))))
        labels = [words for _, words in rows][::-1]
        f.yaxis.formatter = CustomJSTickFormatter(args={"labels": labels}, code="return labels[tick] ?? ''")
        f.yaxis.major_label_text_font_size = "12px"
        f.xgrid.visible = False
        f.ygrid.grid_line_alpha = 0.35
        self._clickable(f)
        return f

    def _clickable(self, f: Any) -> None:
        from bokeh.events import Tap

        if self._picked is not None:
            f.on_event(Tap, self._tapped)

    def _tapped(self, event: Any) -> None:
        if event.x is None or self._picked is None:
            return
        at = round(event.x)
        if 0 <= at < len(self.history.entries):
            self._picked(self.history.entries[at].name)


def _short(e: Entry) -> str:
    text = e.date or e.name.removesuffix(".json").removesuffix(".report")
    return text if len(text) <= 18 else f"{text[:8]}\u2026{text[-9:]}"
