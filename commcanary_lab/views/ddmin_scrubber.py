"""The steps of ddmin under a slider: how small the trace got, which rankings held, and what its behaviour had become by then."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from commcanary_lab.minimize.ddmin import Reduction, Step
from commcanary_lab.verify.model import Tolerances
from commcanary_lab.views.extra import material, panel
from commcanary_lab.views.latency_curves import LEFT
from commcanary_lab.views.markup import coverage_text, html, percent, title_html
from commcanary_lab.views.plot_frame import error_height, frame, guide, pane, redraw
from commcanary_lab.views.tables import download
from commcanary_lab.views.theme import NEUTRAL, THEME_CONFIG, paper

__all__ = ["DdminScrubber", "ddmin", "decision_table", "kept_share", "step_text"]

#: Places of the strip that shows where the tested events are in the source.
_PLACES = 400
#: Relative tolerance of behaviour verification; the axis of errors is about linear below it and logarithmic above.
_TOLERANCE_PERCENT = 100 * Tolerances().relative
_PERCENT = (0, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000)

_P50, _P99, _TAIL = "#4477aa", "#b0478f", "#2f9e62"

_CSS = """
.cl table.held { width: auto; font-size: 12.5px; } .cl table.held td, .cl table.held th { padding: 3px 12px 3px 0; white-space: nowrap; }
.cl table.held td.y, .cl table.held td.n { text-align: center; }
.cl table.held td.y { color: color-mix(in srgb, #2f9e62 80%, var(--t)); } .cl table.held td.n { color: var(--e); font-weight: 700; }
"""


def ddmin(result: Reduction) -> Any:
    """Show the ledger of a reduction, one step at a time.

    Parameters
    ----------
    result : Reduction
        From `commcanary_lab.reduce`.

    Returns
    -------
    panel.viewable.Viewable
    """
    return DdminScrubber(result).view


class DdminScrubber:
    """A slider over the steps; a click into the charts chooses a step, too.

    Parameters
    ----------
    result : Reduction
        What to show.
    step : int, optional
        The step to begin with; by default the last accepted one.
    on_step : callable, optional
        Called with the number of a step when it is chosen; not while the slider is still moving.
    """

    def __init__(self, result: Reduction, step: int | None = None, on_step: Callable[[int], None] | None = None) -> None:
        from bokeh.models import ColumnDataSource

        self.result, self._on_step = result, on_step
        self.accepted = [i for i, s in enumerate(result.steps) if s.accepted]
        last = len(result.steps) - 1
        first = self.accepted[-1] if step is None or not 0 <= step <= last else step
        ui = material()
        self.slider = ui.IntSlider(
            label=f"Step (0 is the whole trace, {last:,} the last test)", start=0, end=max(1, last), value=first, disabled=last < 1,
            sizing_mode="stretch_width", margin=(4, 14, 0, 14), theme_config=THEME_CONFIG, size="small",
        )  # fmt: skip
        style = {"variant": "outlined", "size": "small", "margin": (0, 8, 0, 0), "width": 170, "theme_config": THEME_CONFIG}
        self._before, self._after = (ui.Button(label=f"{which} accepted step", **style) for which in ("Previous", "Next"))
        self._before.on_click(lambda _: self._jump(-1))
        self._after.on_click(lambda _: self._jump(1))
        self.text, self._decisions = html(""), html("", stylesheets=[_CSS])
        self._at = ColumnDataSource({"at": [first]})
        self._strip = ColumnDataSource({"left": [], "right": [], "share": []})
        self.size, self.error, self.strip = self._size_figure(), self._error_figure(), self._strip_figure()
        self.slider.param.watch(lambda e: self.show(e.new), "value")
        self.slider.param.watch(lambda _: self._told(self.step), "value_throttled")  # its own value may be late
        self.view = self._layout()
        self.show(first)

    @property
    def step(self) -> int:
        """The step that is shown."""
        return int(min(self.slider.value, len(self.result.steps) - 1))

    def show(self, number: int) -> None:
        """Show a step."""
        number = max(0, min(number, len(self.result.steps) - 1))
        step = self.result.steps[number]
        self.text.object = f'<div class="cl"><p data-testid="ddmin-step">{step_text(self.result, number)}</p></div>'
        self._decisions.object = f'<div class="cl">{decision_table(self.result, step)}</div>'
        redraw(self._at, {"at": [number]})
        left, right, share = kept_share(step, len(self.result.source))
        redraw(self._strip, {"left": left, "right": right, "share": share})
        self._before.disabled = not any(i < number for i in self.accepted)
        self._after.disabled = not any(i > number for i in self.accepted)

    def _told(self, number: int) -> None:
        if self._on_step is not None:
            self._on_step(number)

    def _jump(self, direction: int) -> None:
        now = self.step
        found = [i for i in self.accepted if (i - now) * direction > 0]
        if found:
            self._choose(found[0] if direction > 0 else found[-1])

    def _choose(self, number: int) -> None:
        self.slider.value = number
        self._told(number)

    def _tapped(self, event: Any) -> None:
        if event.x is not None:
            self._choose(int(max(0, min(len(self.result.steps) - 1, round(event.x)))))

    # -- charts -------------------------------------------------------------------------------------------------------

    def _layout(self) -> Any:
        r = self.result
        pn = panel()
        subtitle = f"{r.oracle_calls:,} oracle calls of at most {r.protocol.budget:,}, {r.oracle_evaluations:,} simulated; {stop_text(r)}"
        title = title_html("ddmin, step by step", subtitle, "model", coverage_text(r.source.coverage), f"cost model {r.protocol.model}")
        head = pn.Row(html(title), download(lambda: ledger_csv(r), "ddmin_steps.csv"), sizing_mode="stretch_width", margin=0)
        control = pn.Row(self._before, self._after, sizing_mode="stretch_width", margin=(4, 0, 8, 0))
        words = pn.Column(self.text, control, self._decisions, margin=(0, 0, 0, 20), styles={"flex": "2 1 0px", "min-width": "330px"})
        steps = pane(self.size, self.error, self.strip, csv=lambda: ledger_csv(r))
        charts = pn.Column(html(_legend()), steps, margin=0, styles={"flex": "3 1 0px", "min-width": "0"})
        return paper(head, self.slider, pn.Row(charts, words, sizing_mode="stretch_width", margin=0))

    def _figure(self, height: int, **params: Any) -> Any:
        from bokeh.events import Tap
        from bokeh.models import Range1d

        last = max(1, len(self.result.steps) - 1)
        f = frame(
            height, x_range=Range1d(-0.03 * last - 0.2, 1.03 * last + 0.2), tools="tap", min_border_left=64, min_border_right=14, **params
        )
        f.toolbar_location = None
        f.vspan(x="at", source=self._at, line_color=NEUTRAL, line_width=1.5)
        f.on_event(Tap, self._tapped)
        f.xgrid.visible = False
        return f

    def _size_figure(self) -> Any:
        from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter

        n = len(self.result.source)
        f = self._figure(170, y_axis_type="log" if n > 20 else "linear")
        steps = self.result.steps
        reached = np.minimum.accumulate([s.events if s.accepted else n for s in steps])
        f.step(x=list(range(len(steps))), y=reached.tolist(), mode="after", line_color=LEFT, line_width=2)
        for accepted, fill_alpha in ((True, 1.0), (False, 0.0)):
            chosen = [i for i, s in enumerate(steps) if s.accepted == accepted]
            rows = ColumnDataSource(
                {
                    "x": chosen,
                    "y": [max(steps[i].events, 1) for i in chosen],
                    "words": [_test_words(steps[i]) for i in chosen],
                    "held": [f"{steps[i].decisions_held} of {len(self.result.decisions)}" for i in chosen],
                }
            )
            color = LEFT if accepted else NEUTRAL
            dots = f.scatter(x="x", y="y", source=rows, size=7, fill_color=color, fill_alpha=fill_alpha, line_color=color)
            name = "accepted" if accepted else "rejected"
            f.add_tools(HoverTool(renderers=[dots], tooltips=[("step", "@x"), (name, "@words"), ("decisions held", "@held")]))
        f.yaxis.axis_label = "events"
        if n > 20:
            f.yaxis.ticker = FixedTicker(ticks=[m * 10**k for k in range(9) for m in (1, 2, 5) if m * 10**k <= 2 * n][-8:])
        f.yaxis.formatter = NumeralTickFormatter(format="0,0")
        f.xaxis.major_label_text_font_size = "0px"
        return f

    def _error_figure(self) -> Any:
        from bokeh.models import ColumnDataSource, CustomJSTickFormatter, FixedTicker, HoverTool, Range1d

        steps = self.result.steps
        series = {
            "p50 off by": (_P50, [s.p50_error for s in steps]),
            "p99 off by": (_P99, [s.p99_error for s in steps]),
            "p99 tail lost": (_TAIL, [1 - s.tail_recall if s.accepted else np.nan for s in steps]),
        }
        top = max([v for _, values in series.values() for v in values if np.isfinite(v)] + [1.0])
        ticks = {t: f"{p:,g} %" for t, p in ((error_height(p / _TOLERANCE_PERCENT), p) for p in _PERCENT) if p <= 125 * top}
        f = self._figure(190, y_range=Range1d(-0.06, error_height(100 * top / _TOLERANCE_PERCENT) * 1.08))
        guide(f, "width", error_height(1.0))
        for name, (color, values) in series.items():
            heights = [error_height(100 * v / _TOLERANCE_PERCENT) if np.isfinite(v) else np.nan for v in values]
            # what the smallest accepted subset so far had become: it lasts until the next accepted one
            reached = [*self.accepted, len(steps) - 1]
            f.step(x=reached, y=[heights[i] for i in [*self.accepted, self.accepted[-1]]], mode="after", line_color=color, line_width=2)
            keep = [i for i, h in enumerate(heights) if np.isfinite(h)]
            alpha = [1.0 if steps[i].accepted else 0.25 for i in keep]
            words = [f"{100 * values[i]:,.3g} %" for i in keep]
            rows = ColumnDataSource({"x": keep, "y": [heights[i] for i in keep], "alpha": alpha, "words": words})
            dots = f.scatter(x="x", y="y", source=rows, size=6, color=color, alpha="alpha")
            f.add_tools(HoverTool(renderers=[dots], tooltips=[("step", "@x"), (name, "@words")]))
        f.yaxis.axis_label = "behaviour"
        f.yaxis.ticker = FixedTicker(ticks=list(ticks))
        f.yaxis.formatter = CustomJSTickFormatter(
            args={"at": list(ticks), "labels": list(ticks.values())},
            code="const i = at.findIndex((x) => Math.abs(x - tick) < 1e-9); return i < 0 ? '' : labels[i]",
        )
        f.xaxis.axis_label = "oracle calls"
        return f

    def _strip_figure(self) -> Any:
        from bokeh.models import Range1d

        n = max(1, len(self.result.source))
        f = frame(74, x_range=Range1d(0, n), y_range=Range1d(0, 1), min_border_left=64, min_border_right=14)
        f.quad(left=0, right=n, bottom=0, top=1, fill_color=NEUTRAL, fill_alpha=0.12, line_color=None)
        f.quad(left="left", right="right", bottom=0, top=1, fill_alpha="share", fill_color=LEFT, line_color=None, source=self._strip)
        f.yaxis.visible = f.grid.visible = False
        f.xaxis.axis_label = "events of the source; coloured: in the subset tested"
        return f


def _legend() -> str:
    items = [(LEFT, "events kept so far"), (_P50, "p50 off by"), (_P99, "p99 off by"), (_TAIL, "p99 tail lost")]
    colors = "".join(f'<span><i style="background:{c}"></i>{t}</span>' for c, t in items)
    return f'<div class="lg" style="margin:8px 0 2px">{colors}<span>hollow and pale: rejected tests; dashed: tolerance</span></div>'


def kept_share(step: Step, events: int) -> tuple[list[float], list[float], list[float]]:
    """Return left ends, right ends and the share of tested events of each part of the source that has any.

    Examples
    --------
    >>> step = Step("chunk", 2, 0, 2, True, np.ones(1, bool), 0.0, 0.0, 1.0, np.array([0, 3]))
    >>> kept_share(step, 4)
    ([0.0, 3.0], [1.0, 4.0], [1.0, 1.0])
    """
    places = max(1, min(events, _PLACES))
    edges = np.linspace(0, max(1, events), places + 1)
    counts = np.histogram(step.kept + 0.5, edges)[0]
    # whole numbers of events lie in each part, so that a full part is exactly full
    room = np.maximum(1, np.histogram(np.arange(events) + 0.5, edges)[0])
    some = np.flatnonzero(counts)
    share = np.maximum(0.25, counts[some] / room[some])
    # neighbours of the same share are one piece: seams between them would be seen
    first = np.flatnonzero(np.append(True, (np.diff(some) != 1) | (np.diff(share) != 0))) if len(some) else some
    last = np.append(first[1:], len(some)) - 1
    return edges[some[first]].tolist(), edges[some[last] + 1].tolist(), share[first].tolist()


def step_text(result: Reduction, number: int) -> str:
    """Return a step as a sentence in HTML."""
    step, total = result.steps[number], len(result.decisions)
    if step.kind == "whole":
        return f"<b>Step 0: the whole trace</b>, {step.events:,} events; it sets the {total} ranking decisions."
    verdict = "accepted" if step.accepted else "rejected"
    first = f"<b>Step {number:,}: {verdict}.</b> {_test_words(step).capitalize()} of {len(result.source):,}."
    held = f"All {total} decisions hold" if step.decisions_held == total else f"{total - step.decisions_held} of {total} decisions flip"
    if not np.isfinite(step.p99_error):
        return f"{first} It <b>cannot be simulated</b>, which counts as rejected."
    errors = f"p50 is off by <b>{_off(step.p50_error)}</b>, p99 by <b>{_off(step.p99_error)}</b> on the worst backend"
    if not step.accepted:
        return f"{first} {held}. {errors}."
    tail = f"<b>{percent(step.tail_recall)}</b> of the p99 tail is left" if step.tail_recall else "<b>nothing</b> is left of the p99 tail"
    return f"{first} {held}. Meanwhile {errors}, and {tail}."


def _off(error: float) -> str:
    return "0\u00a0%" if error == 0 else f"{100 * error:,.3g}\u00a0%"


def _test_words(step: Step) -> str:
    events = f"{step.events:,} event{'s' * (step.events != 1)}"
    if step.kind == "whole":
        return f"the whole trace, {events}"
    return f"{'chunk' if step.kind == 'chunk' else 'all but chunk'} {step.part + 1} of {step.parts}: {events}"


def stop_text(result: Reduction) -> str:
    """Return why a reduction stopped, in words."""
    return {
        "minimal": "stopped because no chunk and no complement keeps all rankings",
        "budget": "stopped because its budget was spent",
        "cancelled": "cancelled",
    }.get(result.stopped, result.stopped)


def decision_table(result: Reduction, step: Step) -> str:
    """Return which decisions held as an HTML table: pairs of backends by metrics."""
    pairs: dict[str, dict[str, bool]] = {}
    for label, held in zip(result.decisions, step.held.tolist(), strict=True):
        pair, _, metric = label.rpartition(": ")
        pairs.setdefault(pair, {})[metric] = held
    metrics = list(dict.fromkeys(m for row in pairs.values() for m in row))
    names = "".join(f"<th>{escape(m.removesuffix('_us'))}</th>" for m in metrics)
    rows = []
    for pair, row in pairs.items():
        cells = "".join(f'<td class="{"y" if row[m] else "n"}">{"✓" if row[m] else "✕ flips"}</td>' for m in metrics)
        rows.append(f"<tr><td>{escape(pair)}</td>{cells}</tr>")
    return f'<table class="held"><thead><tr><th>Ranking of</th>{names}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def ledger_csv(result: Reduction) -> str:
    """Return every step as CSV."""
    import pandas as pd

    rows = [
        (
            i,
            s.kind,
            s.parts,
            s.part,
            s.events,
            s.accepted,
            s.decisions_held,
            s.p50_error,
            s.p99_error,
            s.tail_recall if s.accepted else None,
        )
        for i, s in enumerate(result.steps)
    ]
    names = ["step", "kind", "parts", "part", "events", "accepted", "decisions_held", "p50_error", "p99_error", "tail_recall"]
    return pd.DataFrame(rows, columns=names).to_csv(index=False)
