"""Timeline: when collectives run, who arrives late, what compute runs beside them."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import panel_material_ui as pmui

from commcanary_lab.errors import LabError
from commcanary_lab.inspect import Iterations, OverlapShares, StragglerTable, iterations, overlap_shares, stragglers
from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_us
from commcanary_lab.views.lane_data import LaneData, lane_data
from commcanary_lab.views.lanes import Lanes, legend_html
from commcanary_lab.views.late_ranks import late_ranks_card
from commcanary_lab.views.markup import Figure, coverage_text, html, message, percent, title_html
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Workspace

from ..page import Built, PageSpec, Selection, empty, head
from ..session import Session

__all__ = ["PAGE"]


@dataclass(frozen=True)
class Data:
    """What the page shows."""

    name: str
    trace: Trace
    lanes: LaneData
    late: StragglerTable | str
    overlap: OverlapShares
    iterations: Iterations | None


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Compute the columns of the timeline."""
    name = str(selection.trace)
    trace = workspace.trace(name)

    def compute() -> Data:
        try:
            late: StragglerTable | str = stragglers(trace)
        except LabError as e:
            late = str(e)
        return Data(name, trace, lane_data(trace), late, overlap_shares(trace, "op"), iterations(trace) if len(trace) <= 200_000 else None)

    return workspace.derived(name, "timeline", compute)


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    top = head(f"{data.name} · {data.trace.source_format}", _answer(data), _figures(data))
    if not len(data.lanes):
        return Built([top, empty("Nothing to draw", "The trace has no event with known members.")])
    lanes = Lanes(data.lanes)
    title = title_html(
        "Collectives in time" if not data.lanes.ordered_only else "Collectives in order (the source has no times)",
        lanes.subtitle,
        data.trace.origin,
        coverage_text(data.trace.coverage),
    )
    card = paper(html(title + legend_html(data.lanes)), lanes.status, lanes.pane)
    late = (
        late_ranks_card(data.late)
        if isinstance(data.late, StragglerTable)
        else paper(
            html(
                title_html("Late ranks", "Which rank keeps the others waiting")
                + f'<div style="height:10px"></div>{message("Not known for this trace", data.late)}'
            )
        )
    )
    return Built([top, card, late], _controls(data, lanes))


def _controls(data: Data, lanes: Lanes) -> list[Any]:
    """Windows to jump to: one iteration at a time, the first ones, everything."""
    d = data.lanes
    span = d.end_us or 1.0
    style = {"size": "small", "variant": "outlined", "sizing_mode": "stretch_width", "margin": (0, 0, 8, 0)}
    first = pmui.Button(label="First events", **style)
    everything = pmui.Button(label="Whole trace", **style)
    first.on_click(lambda _: lanes.show(*d.first_view))
    everything.on_click(lambda _: lanes.show(-0.012 * span, 1.012 * span))
    out: list[Any] = [first, everything]
    rows = data.iterations.rows if data.iterations is not None and data.iterations.period > 1 else ()
    known = [r for r in rows if not np.isnan(r.start_us) and not np.isnan(r.duration_us)]
    if len(known) > 1 and not d.ordered_only:
        choice = pmui.IntInput(
            label=f"Iteration (0 to {len(known) - 1})",
            value=0,
            start=0,
            end=len(known) - 1,
            size="small",
            variant="outlined",
            sizing_mode="stretch_width",
            margin=(8, 0, 0, 0),
        )

        def jump(event: Any) -> None:
            if event.new is not None and 0 <= event.new < len(known):
                row = known[event.new]
                margin = 0.02 * row.duration_us
                lanes.show(row.start_us - margin, row.start_us + row.duration_us + margin)

        choice.param.watch(jump, "value")
        out.append(choice)
    out.append(
        html(
            '<p class="muted" style="font-size:12px;margin-top:10px">Drag to pan; choose the wheel tool above the chart to zoom. '
            "The box in the strip above the lanes is the view.</p>"
        )
    )
    return out


def _answer(data: Data) -> str:
    d = data.lanes
    if not len(d):
        return "The trace has <b>no event to place in time</b>."
    if d.ordered_only:
        return "The source has <b>no times</b>: only the order of its collectives is known."
    parts = []
    if isinstance(data.late, StragglerTable) and data.late.rows and data.late.waiting_us > 0:
        worst = data.late.rows[0]
        caused = worst.waiting_caused_us / data.late.waiting_us
        parts.append(
            f"Rank <b>{worst.rank}</b> arrives last in {percent(worst.last_fraction)} of its collectives "
            f"and causes {percent(caused)} of all waiting."
        )
    else:
        skew = d.skew_us[np.isfinite(d.skew_us)]
        if len(skew):
            parts.append(
                f"The last rank arrives <b>{format_us(float(np.median(skew)))}</b> after the first in the median collective, "
                f"{format_us(float(np.quantile(skew, 0.99)))} at p99."
            )
        else:
            parts.append("<b>Arrival skew is unknown</b>: the source shows no arrivals per rank.")
    known = [r for r in data.overlap.rows if r.known and r.time_us > 0]
    if known:
        hidden = sum(r.overlapped_us for r in known) / sum(r.time_us for r in known)
        parts.append(f"Compute hides <b>{percent(hidden)}</b> of the measured communication.")
    elif np.isfinite(d.overlap_us).any():
        share = float(np.mean(d.overlap_us[np.isfinite(d.overlap_us)] > 0))
        parts.append(f"Compute runs beside {percent(share)} of the collectives; durations were not measured.")
    return " ".join(parts)


def _figures(data: Data) -> list[Figure]:
    d = data.lanes
    skew, timed = d.skew_us[np.isfinite(d.skew_us)], d.duration_us[np.isfinite(d.duration_us)]
    origin = data.late.origin if isinstance(data.late, StragglerTable) else data.trace.origin
    out = [
        Figure("Events", f"{len(d):,}", f"in {len(d.lanes):,} process group{'s' * (len(d.lanes) != 1)}"),
        Figure(
            "Span",
            "unknown" if d.ordered_only else format_us(d.end_us),
            data.trace.origin if not d.ordered_only else "the source has no times",
        ),
        Figure(
            "Skew p95",
            format_us(float(np.quantile(skew, 0.95))) if len(skew) else "unknown",
            f"{origin}, {len(skew):,} events" if len(skew) else "no arrivals per rank",
        ),
        Figure(
            "Duration p95",
            format_us(float(np.quantile(timed, 0.95))) if len(timed) else "unknown",
            f"{data.trace.origin}, {len(timed):,} events" if len(timed) else "not measured",
        ),
    ]
    if data.iterations is not None and data.iterations.period > 1:
        median = data.iterations.median_us
        text = f"{len(data.iterations):,} of {data.iterations.period:,} events each" + (
            f", median {format_us(median)}" if not np.isnan(median) else ""
        )
        out.append(Figure("Iterations", f"{len(data.iterations):,}", escape(text.split(" of ", 1)[1])))
    return out


PAGE = PageSpec("timeline", "Timeline", "trace", gather, build, first=2)
