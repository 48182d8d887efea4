"""The operation table, and where bytes and time go."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from commcanary_lab.inspect.table import OperationRow, OperationTable
from commcanary_lab.units import format_bytes, format_count, format_us
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import holoviews, panel
from commcanary_lab.views.group_labels import ranks_text
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.saving import savable
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import NEUTRAL, op_color, paper, plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["operation_shares", "operation_table", "ops", "ops_csv"]

#: Bars in the chart; smaller rows are in the table only.
MAX_BARS = 10


def ops(operations: OperationTable) -> Any:
    """Show an operation table: where bytes and time go, and every row.

    Parameters
    ----------
    operations : OperationTable
        From `commcanary_lab.inspect.ops`.

    Returns
    -------
    panel.viewable.Viewable
    """
    return panel().Column(shares_card(operations), table_card(operations), sizing_mode="stretch_width", styles={"gap": "16px"})


def shares_card(operations: OperationTable, **params: Any) -> Any:
    """Return the chart of shares as a card."""
    timed = operations.measured > 0
    what = "communication time, summed over reporting ranks" if timed else "bytes (B summed over events); the source measured no times"
    title = title_html(
        "Where the time goes" if timed else "Where the bytes go", f"Share of {what}", operations.origin, coverage_text(operations.coverage)
    )
    plot = panel().pane.HoloViews(operation_shares(operations), linked_axes=False, margin=0, sizing_mode="stretch_width")
    return paper(html(title), savable(plot, lambda: ops_csv(operations)), **params)


def table_card(operations: OperationTable, **params: Any) -> Any:
    """Return the table as a card with its download."""
    pn = panel()
    missing = operations.events - operations.measured
    timing = (
        "no event has a measured time" if not operations.measured else f"{missing:,} without a measured time" if missing else "all measured"
    )
    head = pn.Row(
        html(
            title_html(
                "Operations",
                f"{operations.events:,} events in {len(operations):,} row{'s' * (len(operations) != 1)} "
                f"(operation x size x group); {timing}",
            )
        ),
        download(lambda: ops_csv(operations), "operations.csv"),
        sizing_mode="stretch_width",
        margin=0,
    )
    return paper(head, operation_table(operations), **params)


def operation_table(operations: OperationTable) -> Any:
    """Return the rows; columns that no row fills are left out."""
    frame = _frame(operations)
    columns = {
        "op": TableColumn("Operation", None, 110, grow=2),
        "group": TableColumn("Group", None, 100, grow=2),
        "size": TableColumn("Size B", fmt.bytes_cell(), 72, right=True),
        "count": TableColumn("Events", fmt.count_cell(), 60, right=True),
        "total": TableColumn("Total", fmt.bytes_cell(), 72, right=True),
        "p50": TableColumn("p50", fmt.time_cell(), 70, right=True),
        "p95": TableColumn("p95", fmt.time_cell(), 70, right=True),
        "algbw": TableColumn("algbw", fmt.rate_cell(), 82, right=True),
        "busbw": TableColumn("busbw", fmt.rate_cell(), 82, right=True),
        "hidden": TableColumn("Hidden", fmt.time_cell(), 70, right=True),
        "exposed": TableColumn("Exposed", fmt.time_cell(), 72, right=True),
        "share": TableColumn("Share of time", fmt.share_cell(), 74, right=True),
    }
    always = ("op", "group", "size", "count", "total")
    columns = {name: c for name, c in columns.items() if name in always or frame[name].notna().any()}
    return table(frame, columns, empty="The trace has no collectives.")


def ops_csv(operations: OperationTable) -> str:
    """Return all columns as CSV, with units in the names."""
    frame = operations.df.copy()
    frame["members"] = [" ".join(map(str, r.members)) for r in operations.rows]
    return frame.to_csv(index=False)


def _frame(operations: OperationTable) -> pd.DataFrame:
    import pandas as pd

    def number(value: float | None) -> float | None:
        return None if value is None or math.isnan(value) else float(value)

    return pd.DataFrame(
        [
            {
                "op": r.op if r.sized else f"{r.op} (size unknown)",
                "group": _group(r),
                "size": number(r.size_bytes),
                "count": r.count,
                "total": float(r.total_bytes) if r.sized else None,
                "p50": number(r.p50_us),
                "p95": number(r.p95_us),
                "algbw": number(r.algbw_gb_s),
                "busbw": number(r.busbw_gb_s),
                "hidden": number(r.overlapped_us),
                "exposed": number(r.exposed_us),
                "share": number(r.share),
            }
            for r in operations.rows
        ],
        columns=["op", "group", "size", "count", "total", "p50", "p95", "algbw", "busbw", "hidden", "exposed", "share"],
    )


def _group(r: OperationRow) -> str:
    if not r.sized:
        return "members unknown"
    return f"{r.group or 'unnamed'} ({ranks_text(r.members)})"


def operation_shares(operations: OperationTable) -> Any:
    """Return the share of each operation and size, as HoloViews: of communication time where it was measured, of bytes otherwise."""
    hv = holoviews()
    timed = operations.measured > 0
    amounts: dict[tuple[str, str], float] = defaultdict(float)
    for r in operations.rows:
        value = (r.share * operations.communication_us if not math.isnan(r.share) else 0.0) if timed else float(r.total_bytes)
        size = "size unknown" if r.size_bytes is None else format_bytes(r.size_bytes)
        amounts[r.op, size] += value
    bars = [(k, v) for k, v in sorted(amounts.items(), key=lambda item: (-item[1], item[0])) if v > 0]
    rest = sum(v for _, v in bars[MAX_BARS:])
    bars = bars[:MAX_BARS]
    total = sum(v for _, v in bars) + rest or 1.0
    names = [f"{op}  {size}" for (op, size), _ in bars]
    words = [(format_us if timed else format_bytes)(v) for _, v in bars]
    if rest:
        bars.append((("other", f"{format_count(len(amounts) - MAX_BARS)} smaller rows"), rest))
        names.append(f"{format_count(len(amounts) - MAX_BARS)} smaller rows")
        words.append((format_us if timed else format_bytes)(rest))
    return _bars(hv, names, [v / total for _, v in bars], words, [op_color(op) if op != "other" else NEUTRAL for (op, _), _ in bars])


def _bars(hv: Any, names: list[str], shares: list[float], words: list[str], colors: list[str]) -> Any:
    from bokeh.models import HoverTool

    n = max(1, len(names))
    position = [n - 1 - i for i in range(len(names))]
    rows = {
        "x0": [0.0] * len(names), "y0": [p - 0.32 for p in position], "x1": shares, "y1": [p + 0.32 for p in position],
        "name": names, "words": words, "color": colors, "percent": [f"{s:.1%}" for s in shares],
    }  # fmt: skip
    bars = hv.Rectangles(rows, kdims=["x0", "y0", "x1", "y1"], vdims=["name", "words", "percent", "color"]).opts(
        color="color",
        line_color=None,
        line_alpha=0,
        default_tools=["save"],
        tools=[HoverTool(tooltips=[("operation", "@name"), ("amount", "@words"), ("share", "@percent")])],
    )
    labels = hv.Labels(
        {"x": shares, "y": position, "text": [f"{w}  {s:.1%}" for w, s in zip(words, shares, strict=True)]}, ["x", "y"], "text"
    ).opts(text_align="left", text_baseline="middle", xoffset=0.008, text_font_size="12px", text_color=NEUTRAL)
    top = max(shares, default=1.0)
    return (bars * labels).opts(
        hv.opts.Overlay(
            responsive=True,
            height=30 * n + 46,
            xlim=(0, top * 1.32),
            ylim=(-0.6, n - 0.4),
            xlabel="",
            ylabel="",
            title="",
            xaxis=None,
            toolbar=None,
            hooks=[plain],
            yticks=list(zip(position, names, strict=True)),
            show_grid=False,
            show_legend=False,
        )
    )
