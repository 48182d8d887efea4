"""The bars of an ablation: grouped by mechanism, one per backend; what cannot act is hatched, what flips a ranking is marked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commcanary_lab.simulate.ablation import AblationRow, AblationTable
from commcanary_lab.simulate.backend import ABLATIONS, DEFAULT_BACKENDS
from commcanary_lab.verify.ranking import METRICS
from commcanary_lab.views.ablation_words import MECHANISM_WORDS, amount, short, signed, unit_of
from commcanary_lab.views.extra import panel
from commcanary_lab.views.ranked_pairs import METRIC_WORDS
from commcanary_lab.views.theme import NEUTRAL

__all__ = ["MARK", "AblationBars", "SignedLog", "backend_colors", "flips_of", "wants_log"]

#: One colour per backend, none of them red: the built-in ones in their order, then custom ones.
_COLORS = (
    "#4477aa", "#56b9d6", "#2f9e62", "#d3ae2c", "#b0478f", "#dd8a2b",
    "#8d63b3", "#2a9d8f", "#8a94a3", "#a58b76", "#7d8c5c", "#95729c",
)  # fmt: skip

#: Colour of the mark of a flipped decision.
MARK = "#c9781c"

#: What a bar says under the pointer; the browser escapes the inserted text.
_TIP = """<div style="font: 12.5px/1.5 Roboto, 'Helvetica Neue', Arial, sans-serif; max-width: 340px; white-space: normal">
<b>Without @mechanism, on @backend</b><br>@says<br>@flips</div>"""

_SPREAD = 50.0
_WIDTH = 0.84


def backend_colors(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of each backend; a built-in one always has the same.

    Examples
    --------
    >>> backend_colors(["congested", "mine"]) == {"congested": "#b0478f", "mine": "#dd8a2b"}
    True
    """
    built_in = [b.label for b in DEFAULT_BACKENDS]
    custom = [n for n in names if n not in built_in]
    return {n: _COLORS[(built_in.index(n) if n in built_in else len(built_in) + custom.index(n)) % len(_COLORS)] for n in names}


@dataclass(frozen=True)
class SignedLog:
    """A signed logarithmic axis; linear where `unit` is 0.

    Parameters
    ----------
    unit : float
        Below it the axis is about linear.

    Examples
    --------
    >>> axis = SignedLog(1.0)
    >>> round(axis(99.0), 9), round(axis(-99.0), 9), axis(0.0), SignedLog(0.0)(5.0)
    (2.0, -2.0, 0.0, 5.0)
    """

    unit: float

    def __call__(self, value: float) -> float:
        if not self.unit:
            return value
        return math.copysign(math.log10(1 + abs(value) / self.unit), value)

    def ticks(self, low: float, high: float, count: int = 5) -> list[float]:
        """Return round values within [low, high], 0 among them, far enough apart to be labelled."""
        out = [0.0]
        for side in (self._side(high, count), [-v for v in self._side(-low, count)]):
            near, least = 0.0, 0.07 * (self(high) - self(low))
            for value in sorted(side, key=abs):
                if abs(self(value) - near) >= least:
                    out.append(value)
                    near = self(value)
        return sorted(out)

    def _side(self, top: float, count: int) -> list[float]:
        if top <= 0:
            return []
        if not self.unit:
            raw = top / count
            step = next(m * 10.0 ** math.floor(math.log10(raw)) for m in (1, 2, 5, 10) if m * 10.0 ** math.floor(math.log10(raw)) >= raw)
            return [k * step for k in range(1, int(top / step + 1e-9) + 1)]
        first, last = math.ceil(math.log10(self.unit) - 1e-9), math.floor(math.log10(top) + 1e-9)
        every = max(1, -(-(last - first + 1) // count))
        return [10.0**k for k in range(last, first - 1, -every)]


def wants_log(result: AblationTable, metric: str) -> bool:
    """Say whether the changes of a metric are too different for a linear axis."""
    sizes = [abs(r.delta) for r in result.rows if r.metric == metric and r.delta]
    return bool(sizes) and max(sizes) / min(sizes) > _SPREAD


def flips_of(result: AblationTable, mechanism: str, metric: str) -> tuple[int, int, frozenset[str]]:
    """Return how many decisions flip without a mechanism, of how many, and on which backends.

    A metric that ranks nothing shows the flips of all that do.
    """
    ranked = metric in METRICS
    own = [f for f in result.flips(mechanism) if f.metric == metric or not ranked]
    total = result.decisions_total // len(METRICS) if ranked else result.decisions_total
    return len(own), total, frozenset(name for f in own for name in (f.left, f.right))


class AblationBars:
    """The figure; it is made once, and `show` exchanges what it draws.

    Parameters
    ----------
    height : int
        Pixels.
    """

    def __init__(self, height: int = 370) -> None:
        from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d, Span
        from bokeh.plotting import figure

        self._slots, self._marks = ColumnDataSource(), ColumnDataSource()
        f = figure(
            height=height,
            sizing_mode="stretch_width",
            x_range=Range1d(-0.5, len(ABLATIONS) - 0.5),
            y_range=Range1d(0, 1),
            tools=[],
            toolbar_location=None,
            output_backend="canvas",
            min_border_left=84,
            min_border_right=12,
        )
        f.outline_line_color = None
        f.xgrid.visible = False
        edges = {"left": "left", "right": "right", "source": self._slots}
        f.quad(bottom=0, top="top", fill_color="color", line_color=None, **edges)
        f.quad(bottom="hatch_low", top="hatch_high", fill_color=NEUTRAL, fill_alpha=0.1, line_color=None, hatch_pattern="/",
               hatch_color=NEUTRAL, hatch_alpha=0.3, hatch_scale=10, hatch_weight=1, **edges)  # fmt: skip
        hit = f.quad(bottom="low", top="high", fill_alpha=0, line_alpha=0, **edges)
        f.scatter("x", "y", source=self._marks, marker="diamond", size=11, fill_color=MARK, line_color=None)
        f.add_layout(Span(location=0, dimension="width", line_color=NEUTRAL, line_width=1))
        f.add_tools(HoverTool(renderers=[hit], tooltips=_TIP, mode="mouse", point_policy="follow_mouse"))
        f.xaxis.ticker = FixedTicker(ticks=list(range(len(ABLATIONS))))
        f.xaxis.major_tick_line_color = f.xaxis.axis_line_color = None
        f.yaxis.ticker = FixedTicker(ticks=[])
        f.yaxis.axis_line_color = f.yaxis.minor_tick_line_color = None
        self.figure = f
        self.pane = panel().pane.Bokeh(f, sizing_mode="stretch_width", margin=0)

    def show(self, result: AblationTable, metric: str, log: bool) -> None:
        """Draw one metric of a result."""
        rows = {(r.ablation, r.backend): r for r in result.rows if r.metric == metric}
        changes = [r.delta for r in rows.values() if r.delta is not None]
        sizes = [abs(d) for d in changes if d]
        axis = SignedLog(10.0 ** math.floor(math.log10(max(min(sizes), max(sizes) * 1e-6))) if log and sizes else 0.0)
        low, high = axis(min(0.0, *changes, 0.0)), axis(max(0.0, *changes, 0.0))
        margin = 0.09 * ((high - low) or 1.0)
        bounds = (low - margin if low < 0 else -0.02 * (high or 1.0), high + margin if high > 0 else margin)
        self._slots.data = _slots(result, metric, rows, axis, bounds)
        self._marks.data = _marks(result, metric, rows, axis, margin)
        self._axes(result, metric, axis, (min(0.0, *changes, 0.0), max(0.0, *changes, 0.0)), bounds)

    def _axes(self, result: AblationTable, metric: str, axis: SignedLog, span: tuple[float, float], bounds: tuple[float, float]) -> None:
        f, unit = self.figure, unit_of(metric)
        f.y_range.update(start=bounds[0], end=bounds[1])
        ticks = axis.ticks(*span)
        f.yaxis.ticker.ticks = [axis(t) for t in ticks]
        f.yaxis.major_label_overrides = {axis(t): short(signed(t, unit)) if t else "0" for t in ticks}
        labels = {k: "\n".join((MECHANISM_WORDS.get(m, m), *_under(result, m, metric))) for k, m in enumerate(ABLATIONS)}
        f.xaxis.major_label_overrides = labels


def _under(result: AblationTable, mechanism: str, metric: str) -> tuple[str, str]:
    """What stands under the name of a mechanism: flips under all metrics, and under the one that is shown."""
    if mechanism not in result.applicable:
        return "not applicable", " "
    if not result.decisions_total:
        return " ", " "
    every = len(result.flips(mechanism))
    if not every or metric not in METRICS:
        return f"{every} of {result.decisions_total} flip", " "
    here = flips_of(result, mechanism, metric)[0]
    return f"{every} of {result.decisions_total} flip", f"{here or 'none'} under {METRIC_WORDS[metric]}"


def _slots(
    result: AblationTable, metric: str, rows: Mapping[tuple[str, str], AblationRow], axis: SignedLog, bounds: tuple[float, float]
) -> dict[str, list[Any]]:
    """One slot per mechanism and backend: its bar, or its hatching, and what the pointer says."""
    colors, width = backend_colors(result.backends), _WIDTH / len(result.backends)
    why = {(m.ablation, m.backend): m.reason for m in result.mechanisms}
    gap = min(0.08 * width, 0.01)
    slots: list[dict[str, Any]] = []
    for k, mechanism in enumerate(ABLATIONS):
        flipped, total, backends = flips_of(result, mechanism, metric)
        for i, backend in enumerate(result.backends):
            row, left = rows.get((mechanism, backend)), k - _WIDTH / 2 + i * width
            delta = row.delta if row is not None else None
            taking_part = "some" if backend in backends else "none"
            slots.append(
                {
                    "left": left if delta is None else left + gap,
                    "right": left + width if delta is None else left + width - gap,
                    "top": 0.0 if delta is None else axis(delta),
                    "hatch_low": bounds[0] if delta is None else 0.0,
                    "hatch_high": bounds[1] if delta is None else 0.0,
                    "low": bounds[0],
                    "high": bounds[1],
                    "color": colors[backend],
                    "mechanism": MECHANISM_WORDS.get(mechanism, mechanism),
                    "backend": backend,
                    "says": _absent(why.get((mechanism, backend), "")) if row is None or delta is None else _change(row),
                    "flips": f"{flipped} of {total} decisions flip, {taking_part} of them with this backend"
                    if flipped
                    else "No decision flips",
                }
            )
    return {name: [slot[name] for slot in slots] for name in slots[0]}


def _change(row: AblationRow) -> str:
    unit = unit_of(row.metric)
    share = f" ({100 * row.delta / row.unablated:+,.1f} %)".replace("-", "−") if row.delta and row.unablated else ""
    return f"{amount(row.unablated, unit)} with it, {amount(row.value, unit)} without: {signed(row.delta, unit)}{share}"


def _absent(reason: str) -> str:
    return f"Not applicable: {reason}" if reason else "Nothing is left to read"


def _marks(
    result: AblationTable, metric: str, rows: Mapping[tuple[str, str], AblationRow], axis: SignedLog, margin: float
) -> dict[str, list[float]]:
    """A mark beyond the bar of every backend whose rank against another one flips."""
    width = _WIDTH / len(result.backends)
    out: dict[str, list[float]] = {"x": [], "y": []}
    for k, mechanism in enumerate(ABLATIONS):
        for i, backend in enumerate(result.backends):
            row = rows.get((mechanism, backend))
            if row is not None and row.delta is not None and backend in flips_of(result, mechanism, metric)[2]:
                end = axis(row.delta)
                out["x"].append(k - _WIDTH / 2 + (i + 0.5) * width)
                out["y"].append(end + (0.45 if end >= 0 else -0.45) * margin)
    return out
