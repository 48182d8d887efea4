"""The candidates of a behaviour search: canonical bytes against worst error, the chosen one marked, and why the others were not chosen."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commcanary_lab.minimize.candidates import Candidate
from commcanary_lab.minimize.search import Search
from commcanary_lab.units import format_bytes
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.plot_frame import error_height, error_text, error_ticks, frame, guide, pane
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import FAIL, NEUTRAL, paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHOSEN", "PASSED", "candidate_frame", "error_axes", "search", "search_figure"]

PASSED, CHOSEN = "#2f9e62", "#0f7285"

#: Where candidates stand that were not simulated: below the axis of errors.
_ASIDE = -0.13

_LEGEND = (
    f'<div class="lg" style="margin-top:8px"><span><i style="background:{CHOSEN};transform:rotate(45deg)"></i>chosen</span>'
    f'<span><i style="background:{PASSED};border-radius:50%"></i>passes, but larger</span>'
    f'<span><i style="border:1.5px solid {FAIL};border-radius:50%"></i>a check fails</span>'
    f'<span><i style="background:{NEUTRAL};width:3px"></i>not simulated: larger than the chosen one</span></div>'
)


def search(result: Search) -> Any:
    """Show the candidates of a search: a chart and the ledger as a table.

    Parameters
    ----------
    result : Search
        From `commcanary_lab.search`.

    Returns
    -------
    panel.viewable.Viewable
    """
    pn = panel()
    distinct, same = _distinct(result.candidates)
    judged = sum(c.judgement is not None for c in distinct)
    subtitle = f"{len(result.candidates):,} candidates, {len(distinct):,} distinct, {judged:,} simulated, {result.accepted:,} passed; "
    subtitle += _stopped(result)
    title = title_html(
        "Candidates", subtitle, "model", coverage_text(result.trace.coverage), f"cost model {result.protocol.model}"
    )  # fmt: skip
    chart = paper(html(title + _LEGEND), pane(search_figure(distinct, same), csv=lambda: candidate_frame(result).to_csv(index=False)))
    frame_ = candidate_frame(result)
    ledger = title_html("Ledger", "Every candidate with the reason why it is not the chosen one; the JSON is what verify-ledger checks")
    head = pn.Row(
        html(ledger),
        download(lambda: frame_.to_csv(index=False), "candidates.csv"),
        download(lambda: json.dumps(result.ledger(), indent=1), "search_ledger.json", "JSON"),
        sizing_mode="stretch_width",
        margin=0,
    )
    return pn.Column(chart, paper(head, _table(frame_)), sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})


def _stopped(result: Search) -> str:
    return {
        "complete": "every step of the refinement was tried",
        "budget": "stopped by its budget: the refinement had more to try",
        "cancelled": "cancelled",
    }.get(result.stopped, result.stopped)


def _distinct(candidates: Sequence[Candidate]) -> tuple[list[Candidate], dict[int, int]]:
    """Candidates that are different canaries, and how many recipes gave the same canary as each."""
    by_hash: dict[str, int] = {}
    same: dict[int, int] = defaultdict(int)
    out = []
    for c in candidates:
        if c.sha256 in by_hash:
            same[by_hash[c.sha256]] += 1
        else:
            by_hash[c.sha256] = c.index
            out.append(c)
    return out, same


def search_figure(candidates: Sequence[Candidate], same: dict[int, int]) -> Any:
    """Return the scatter as a Bokeh figure."""
    from bokeh.models import ColumnDataSource, HoverTool

    errors = [c.worst_error for c in candidates if c.worst_error is not None]
    f = error_axes([c.size_bytes for c in candidates], errors, 340, aside=any(c.worst_error is None for c in candidates))
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("skipped", {"marker": "dash", "angle": 1.5708, "size": 9, "color": NEUTRAL}),
        ("rejected", {"marker": "circle", "size": 9, "line_color": FAIL, "fill_alpha": 0, "line_width": 1.5}),
        ("accepted", {"marker": "circle", "size": 9, "color": PASSED}),
        ("selected", {"marker": "diamond", "size": 17, "color": CHOSEN, "line_color": "white"}),
    )
    for status, style in kinds:
        chosen = [c for c in candidates if c.status == status]
        if not chosen:
            continue
        rows = {
            "x": [c.size_bytes for c in chosen],
            "y": [_ASIDE if c.worst_error is None else error_height(c.worst_error) for c in chosen],
            "size": [f"{c.size_bytes:,} bytes" for c in chosen],
            "error": [error_text(c.worst_error) for c in chosen],
            "recipe": [str(c.recipe) for c in chosen],
            "reason": [c.reason or "smallest that passes" for c in chosen],
            "same": [f"{same.get(c.index, 0):,} other recipes" for c in chosen],
        }
        dots = f.scatter(x="x", y="y", source=ColumnDataSource(rows), **style)
        tips = [("recipe", "@recipe"), ("size", "@size"), ("worst error", "@error"), ("why", "@reason"), ("the same canary", "@same")]
        f.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    return f


def error_axes(sizes: Sequence[int], errors: Sequence[float], height: int, *, aside: bool = False) -> Any:
    """Return a figure with axes of canonical bytes and of errors over their tolerance; above the dashed line a check fails.

    Parameters
    ----------
    sizes : sequence of int
        Bytes, for the range.
    errors : sequence of float
        Over their tolerance, for the range.
    height : int
        Pixels.
    aside : bool
        Leave room below the axis for what has no error.
    """
    from bokeh.models import CustomJSTickFormatter, FixedTicker, NumeralTickFormatter, Range1d

    low, high = min(sizes, default=1), max(sizes, default=2)
    wide = high > 6 * low
    room = 0.06 * (high - low) or 0.1 * high
    span = (low / 1.15, high * 1.15) if wide else (low - room, high + room)
    ticks = error_ticks(max([*(e for e in errors if e < 1e5), 1.5], default=1.5))
    top = max([error_height(e) for e in errors] + [error_height(1.5)])
    f = frame(
        height,
        tools="xpan,xwheel_zoom,reset,save",
        active_scroll=None,
        x_axis_type="log" if wide else "linear",
        x_range=Range1d(*span),
        y_range=Range1d(_ASIDE * 1.6 if aside else -0.06 * top, top * 1.1),
    )
    f.xaxis.axis_label = "canary, canonical bytes"
    f.xaxis.formatter = fmt.bytes_ticks() if wide else NumeralTickFormatter(format="0,0")
    if wide:
        f.xaxis.ticker = FixedTicker(ticks=fmt.byte_tick_values(span[0], span[1], log=True, count=8))
    f.yaxis.axis_label = "worst error over its tolerance"
    f.yaxis.ticker = FixedTicker(ticks=list(ticks))
    f.yaxis.formatter = CustomJSTickFormatter(
        args={"at": list(ticks), "labels": list(ticks.values())},
        code="const i = at.findIndex((x) => Math.abs(x - tick) < 1e-9); return i < 0 ? '' : labels[i]",
    )
    f.xgrid.visible = False
    guide(f, "width", error_height(1.0), "above: a check fails", line_color=FAIL)
    return f


def candidate_frame(result: Search) -> pd.DataFrame:
    """Return one row per candidate; the chosen one first, then what was simulated, then the rest."""
    import pandas as pd

    place = {"selected": 0, "accepted": 1, "rejected": 2, "skipped": 3, "duplicate": 4}
    rows = [
        {
            "candidate": c.index,
            "status": c.status,
            "recipe": str(c.recipe),
            "stage": c.stage,
            "canary_records": c.canary_records,
            "canary_bytes": float(c.size_bytes),
            "worst_error": c.worst_error,
            "decisions": "" if c.judgement is None else f"{c.judgement.decisions_kept} of {c.judgement.decisions_total}",
            "reason": c.reason or "smallest that passes",
        }
        for c in sorted(result.candidates, key=lambda c: (place.get(c.status, 9), c.size_bytes, c.index))
    ]
    names = ["candidate", "status", "recipe", "stage", "canary_records", "canary_bytes", "worst_error", "decisions", "reason"]
    return pd.DataFrame(rows, columns=names)


def _table(frame_: pd.DataFrame) -> Any:
    columns = {
        "candidate": TableColumn("No.", fmt.count_cell(), 50, right=True),
        "status": TableColumn("Outcome", None, 85),
        "recipe": TableColumn("Made with", None, 150, grow=2),
        "canary_bytes": TableColumn("Bytes", fmt.count_cell(), 75, right=True),
        "canary_records": TableColumn("Records", fmt.count_cell(), 70, right=True),
        "worst_error": TableColumn("Worst error / tolerance", fmt.number_cell(), 90, right=True),
        "decisions": TableColumn("Rankings", None, 80, right=True),
        "reason": TableColumn("Why", fmt.long_text_cell(), 240, grow=5),
    }
    return table(frame_, columns, page_size=10, empty="No candidate was made.", pagination="local")


def chosen_text(result: Search) -> str:
    """Return the chosen canary in words."""
    if result.canary is None or result.selected is None:
        return "no canary passed before the search was cancelled"
    return f"{format_bytes(result.canary.size_bytes)}, {result.selected.recipe}"
