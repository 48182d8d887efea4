"""The frontier of canonical bytes against worst behavioural error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commcanary_lab.minimize.pareto import Frontier, Point
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.plot_frame import error_height, error_text, pane
from commcanary_lab.views.search_scatter import CHOSEN, error_axes
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import NEUTRAL, paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LIMITS", "frontier_frame", "pareto", "pareto_figure"]

_FRONT = "#4477aa"

#: What the frontier does not say; stated below every drawing of it.
LIMITS = (
    "It is the frontier of the candidates that were tried: record budgets, multiples of the error scales, with and without loop nests, "
    "and the steps of the refinement. Nothing proves that no better canary exists.",
    "The error is the maximum over all checks, each against its tolerance: it says how far the worst check is off, not how many are.",
    "Behaviour is that of the cost model on the backends compared; it is no measurement.",
)

_LEGEND = (
    f'<div class="lg" style="margin-top:8px"><span><i style="background:{_FRONT};border-radius:50%"></i>on the frontier</span>'
    f'<span><i style="border:1.5px solid {NEUTRAL};border-radius:50%"></i>another candidate is at least as small and as true</span>'
    f'<span><i style="background:{CHOSEN};transform:rotate(45deg)"></i>what the search chose</span></div>'
)


def pareto(result: Frontier) -> Any:
    """Show a frontier, what the search chose, and the limits of the method.

    Parameters
    ----------
    result : Frontier
        From `commcanary_lab.pareto`.

    Returns
    -------
    panel.viewable.Viewable
    """
    pn = panel()
    points = len(result.points)
    title = title_html(
        "Bytes against behaviour",
        f"{points:,} of {result.evaluated:,} distinct candidates are on the frontier; all of them were simulated",
        "model",
        coverage_text(result.search.trace.coverage),
        f"cost model {result.search.protocol.model}",
    )
    limits = "".join(f"<li>{text}</li>" for text in LIMITS)
    note = f'<div class="muted" style="font-size:12.5px;margin-top:6px"><b>Limits of the method</b><ul>{limits}</ul></div>'
    chart = paper(html(title + _LEGEND), pane(pareto_figure(result), csv=lambda: all_points(result).to_csv(index=False)), html(note))
    frame_ = frontier_frame(result)
    head = pn.Row(
        html(title_html("Frontier", "Smallest first; each next one is larger and truer")),
        download(lambda: all_points(result).to_csv(index=False), "frontier.csv"),
        sizing_mode="stretch_width",
        margin=0,
    )
    return pn.Column(chart, paper(head, _table(frame_)), sizing_mode="stretch_width", margin=0, styles={"gap": "16px"})


def pareto_figure(result: Frontier) -> Any:
    """Return the chart as a Bokeh figure."""
    from bokeh.models import ColumnDataSource, HoverTool

    points = result.all_points
    f = error_axes([p.canary_bytes for p in points], [p.worst_error for p in points], 360)
    front = result.points
    if front:
        # what is not yet reached at a size keeps the error of the next smaller point
        last = max(p.canary_bytes for p in points)
        f.step(
            x=[*(p.canary_bytes for p in front), max(last, front[-1].canary_bytes)],
            y=[*(error_height(p.worst_error) for p in front), error_height(front[-1].worst_error)],
            mode="after", line_color=_FRONT, line_width=1.5,
        )  # fmt: skip
    kinds: tuple[tuple[list[Point], dict[str, Any]], ...] = (
        (
            [p for p in points if not p.on_frontier and not p.selected],
            {"size": 8, "line_color": NEUTRAL, "fill_alpha": 0, "line_width": 1.5},
        ),
        ([p for p in points if p.on_frontier and not p.selected], {"size": 9, "color": _FRONT}),
        ([p for p in points if p.selected], {"marker": "diamond", "size": 18, "color": CHOSEN, "line_color": "white"}),
    )
    for chosen, style in kinds:
        if not chosen:
            continue
        rows = {
            "x": [p.canary_bytes for p in chosen],
            "y": [error_height(p.worst_error) for p in chosen],
            "size": [f"{p.canary_bytes:,} bytes, {p.canary_records:,} records" for p in chosen],
            "error": [error_text(p.worst_error) for p in chosen],
            "recipe": [p.recipe for p in chosen],
            "number": [p.candidate for p in chosen],
        }
        dots = f.scatter(x="x", y="y", source=ColumnDataSource(rows), **style)
        tips = [("recipe", "@recipe"), ("size", "@size"), ("worst error", "@error"), ("candidate", "@number")]
        f.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    return f


def frontier_frame(result: Frontier) -> pd.DataFrame:
    """Return one row per point of the frontier, smallest first."""
    frame_ = all_points(result)
    return frame_[frame_["on_frontier"]].reset_index(drop=True)


def all_points(result: Frontier) -> pd.DataFrame:
    """Return one row per simulated candidate."""
    import pandas as pd

    rows = [
        {
            "candidate": p.candidate,
            "recipe": p.recipe,
            "canary_bytes": float(p.canary_bytes),
            "canary_records": p.canary_records,
            "worst_error": p.worst_error,
            "outcome": "chosen by the search" if p.selected else "passes" if p.worst_error <= 1 else "a check fails",
            "on_frontier": p.on_frontier,
        }
        for p in result.all_points
    ]
    names = ["candidate", "recipe", "canary_bytes", "canary_records", "worst_error", "outcome", "on_frontier"]
    return pd.DataFrame(rows, columns=names)


def _table(frame_: pd.DataFrame) -> Any:
    columns = {
        "candidate": TableColumn("No.", fmt.count_cell(), 50, right=True),
        "recipe": TableColumn("Made with", None, 220, grow=4),
        "canary_bytes": TableColumn("Bytes", fmt.count_cell(), 80, right=True),
        "canary_records": TableColumn("Records", fmt.count_cell(), 80, right=True),
        "worst_error": TableColumn("Worst error / tolerance", fmt.number_cell(), 110, right=True),
        "outcome": TableColumn("Outcome", None, 150, grow=2),
    }
    return table(frame_, columns, page_size=10, empty="No candidate was simulated.")
