"""Per-field error bounds of a canary: what is exact, and how far the rest may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from commcanary_lab.canary.model import Canary
from commcanary_lab.canary.streams import ERROR_FIELDS, BoundedStream
from commcanary_lab.units import format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import holoviews, panel
from commcanary_lab.views.group_labels import group_labels
from commcanary_lab.views.markup import html, rows_html, title_html
from commcanary_lab.views.saving import savable
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import NEUTRAL, op_color, paper, plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIELD_WORDS", "FieldBound", "error_chart", "errors", "field_bounds", "steps_card"]

#: Fields in the words of the user.
FIELD_WORDS = {
    "gap_ns": "gap",
    "prefix_gap_ns": "running sum of gaps",
    "skew_ns": "arrival skew",
    "arrival_ns": "arrival of a rank",
    "compute_before_ns": "compute before",
    "overlap_ns": "concurrent compute",
    "observed_exposed_ns": "observed exposed",
    "pressure": "pressure",
    "clock_ns": "time of an event",
}


@dataclass(frozen=True)
class FieldBound:
    """The error bound of one field.

    Parameters
    ----------
    field : str
        Name in the canary.
    largest : float
        Largest error; microseconds, pressure in its own unit.
    median : float
        Median over the intervals that have the field.
    intervals, inexact : int
        Intervals that have the field, and those whose error is not 0.
    """

    field: str
    largest: float
    median: float
    intervals: int
    inexact: int

    @property
    def words(self) -> str:
        """Name for people."""
        return FIELD_WORDS.get(self.field, self.field)

    @property
    def text(self) -> str:
        """Largest error for people."""
        if self.largest == 0:
            return "exact"
        return f"{self.largest:.3g}" if self.field == "pressure" else format_us(self.largest)


def field_bounds(canary: Canary) -> list[FieldBound]:
    """Return the bounds of every field that the canary has, in the order of the format."""
    out = []
    bounded = [s for s in canary.streams if isinstance(s, BoundedStream)]
    for name in (*ERROR_FIELDS, "clock_ns"):
        scale = 1.0 if name == "pressure" else 1e-3
        parts = [s.errors[name] for s in bounded if name in s.errors]
        values = np.concatenate(parts) * scale if parts else np.zeros(0)
        largest = float(canary.errors.get(name, 0)) * scale
        if len(values) or largest or name in ("gap_ns", "clock_ns"):
            out.append(
                FieldBound(name, largest, float(np.median(values)) if len(values) else 0.0, len(values), int(np.count_nonzero(values)))
            )
    return out


def errors(canary: Canary) -> Any:
    """Show the error bounds of a canary.

    Parameters
    ----------
    canary : Canary
        Lossless or bounded.

    Returns
    -------
    panel.viewable.Viewable
    """
    bounds = field_bounds(canary)
    if canary.timing == "lossless":
        body = '<p style="margin-top:10px"><b>Every field of every event is exact.</b> '
        body += "Expanding the program gives back the source columns, value for value.</p>"
        return paper(html(title_html("Error bounds", "Largest error per field", None, "lossless") + body))
    rows = [
        (
            b.words,
            b.text,
            "" if not b.intervals else "exact" if b.median == 0 else f"{b.median:.3g}" if b.field == "pressure" else format_us(b.median),
            f"{b.inexact:,} of {b.intervals:,}" if b.intervals else "derived",
        )
        for b in bounds
    ]
    title = title_html(
        "Error bounds",
        "Largest error per field over all intervals; pressure has its own unit and is in the table only",
        "measured",
        "recomputed by verify",
    )
    plot = panel().pane.HoloViews(error_chart(bounds), linked_axes=False, margin=0, sizing_mode="stretch_width")
    return paper(
        html(title),
        savable(plot, lambda: _csv(bounds)),
        html(rows_html(["Field", "Largest", "Median interval", "Intervals with an error"], rows, right=[1, 2, 3])),
    )


def _csv(bounds: list[FieldBound]) -> str:
    import pandas as pd

    return pd.DataFrame([vars(b) for b in bounds]).to_csv(index=False)


def error_chart(bounds: list[FieldBound]) -> Any:
    """Return the bars of the largest errors, as HoloViews; exact fields say so."""
    from bokeh.models import HoverTool

    hv = holoviews()
    shown = [b for b in bounds if b.field != "pressure"]
    n = len(shown)
    position = [n - 1 - i for i in range(n)]
    top = max((b.largest for b in shown), default=1.0) or 1.0
    rows = {
        "x0": [0.0] * n,
        "y0": [p - 0.3 for p in position],
        "x1": [b.largest for b in shown],
        "y1": [p + 0.3 for p in position],
        "name": [b.words for b in shown],
        "words": [b.text for b in shown],
    }
    bars = hv.Rectangles(rows, kdims=["x0", "y0", "x1", "y1"], vdims=["name", "words"]).opts(
        color="#4477aa",
        line_color=None,
        line_alpha=0,
        default_tools=["save"],
        tools=[HoverTool(tooltips=[("field", "@name"), ("largest error", "@words")])],
    )
    labels = hv.Labels({"x": [b.largest for b in shown], "y": position, "text": [b.text for b in shown]}, ["x", "y"], "text").opts(
        text_align="left", text_baseline="middle", xoffset=top * 0.012, text_font_size="12px", text_color=NEUTRAL
    )
    return (bars * labels).opts(
        hv.opts.Overlay(
            responsive=True,
            height=30 * n + 60,
            xlim=(0, top * 1.22),
            ylim=(-0.6, n - 0.4),
            xlabel="largest error",
            ylabel="",
            title="",
            toolbar=None,
            hooks=[plain],
            xformatter=fmt.time_ticks(),
            yticks=list(zip(position, [b.words for b in shown], strict=True)),
            show_grid=False,
            show_legend=False,
        )
    )


def steps_card(canary: Canary) -> Any:
    """Return the table of steps: what each runs, how often, in how many records, and its largest errors."""
    frame = steps_frame(canary)
    columns = {
        "op": TableColumn("Operation", None, 120, grow=2),
        "group": TableColumn("Group", None, 110, grow=2),
        "phase": TableColumn("Phase", None, 90),
        "size": TableColumn("Size B", fmt.bytes_cell(), 80, right=True),
        "runs": TableColumn("Runs", fmt.count_cell(), 65, right=True),
        "records": TableColumn("Records", fmt.count_cell(), 70, right=True),
        "gap": TableColumn("Gap error", fmt.time_cell(), 85, right=True),
        "skew": TableColumn("Skew error", fmt.time_cell(), 85, right=True),
        "overlap": TableColumn("Compute error", fmt.time_cell(), 85, right=True),
    }
    columns = {k: v for k, v in columns.items() if k not in ("phase", "gap", "skew", "overlap") or frame[k].replace("", None).notna().any()}
    head = panel().Row(
        html(title_html("Steps", "Positions of the program, each with its own timing")),
        download(lambda: frame.drop(columns="color").to_csv(index=False), "steps.csv"),
        sizing_mode="stretch_width",
        margin=0,
    )
    return paper(head, table(frame, columns))


def steps_frame(canary: Canary) -> pd.DataFrame:
    """Return one row per step."""
    import pandas as pd

    s = canary.signatures
    groups = group_labels(s.groups)
    rows = []
    for i, stream in enumerate(canary.streams):
        row = int(canary.step_signature[i])
        bounded = isinstance(stream, BoundedStream)

        def worst(name: str, stream: Any = stream, bounded: bool = bounded) -> float | None:
            return float(stream.errors[name].max()) / 1000 if bounded and name in stream.errors and len(stream.errors[name]) else None

        op = s.op.text(row) or ""
        rows.append(
            {
                "op": op,
                "group": groups[s.groups[s.group[row]]],
                "phase": s.phase.text(row) or "",
                "size": float(s.size_bytes[row]),
                "runs": stream.rows,
                "records": stream.records,
                "gap": worst("gap_ns"),
                "skew": worst("skew_ns"),
                "overlap": worst("overlap_ns"),
                "color": op_color(op),
            }
        )
    return pd.DataFrame(rows, columns=["op", "group", "phase", "size", "runs", "records", "gap", "skew", "overlap", "color"])
