"""All minimisers in one table: what each keeps, every status in words, the tail, and the worst error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commcanary_lab.minimize.methods import MethodTable
from commcanary_lab.views import formatters as fmt
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import coverage_text, html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["methods", "methods_csv", "methods_frame", "methods_text"]

_STATUSES = ("timing", "coverage", "commitments", "bounds", "traffic", "ranking", "behavior", "claim")
#: Narrow cells: every status has its own column.
_CSS = """
.tabulator-row .tabulator-cell { padding: 6px 7px 6px 4px !important; }
.tabulator .tabulator-header .tabulator-col .tabulator-col-content { padding: 5px 7px 5px 4px !important; }
.tabulator .tabulator-cell, .tabulator .tabulator-cell * { font-size: 12.5px !important; }
"""


def methods(result: MethodTable) -> Any:
    """Show what every method keeps and loses.

    Parameters
    ----------
    result : MethodTable
        From `commcanary_lab.compare_methods`.

    Returns
    -------
    panel.viewable.Viewable
    """
    source = result.search.trace
    title = title_html(
        "All methods", methods_text(result), "model", coverage_text(source.coverage), f"cost model {result.search.protocol.model}"
    )
    head = panel().Row(html(title), download(lambda: methods_csv(result), "methods.csv"), sizing_mode="stretch_width", margin=0)
    seeds = "Baselines keep as many events as ddmin, and as many as the search's canary has records. Random choices have fixed seeds."
    note = html(f'<p class="muted" style="font-size:12.5px">{seeds} Tail recall is the smallest over backends and quantiles.</p>')
    return paper(head, _table(methods_frame(result)), note)


def methods_text(result: MethodTable) -> str:
    """Return which methods pass, in words."""
    full = [r.method for r in result.rows if r.claim == "verified"]
    part = sorted({r.method for r in result.rows if r.claim == "partial"})
    unsure = sorted({r.method for r in result.rows if r.claim == "unverified"})
    parts = [f"{', '.join(full)} passes for the whole source" if full else "No method passes for the whole source"]
    if part:
        parts.append(f"{', '.join(part)}: nothing fails, for the part of the source that they keep")
    if unsure:
        parts.append(f"{', '.join(unsure)}: nothing fails, on assumed values")
    refused = sum(r.claim == "refused" for r in result.rows)
    parts.append(f"{refused:,} of {len(result.rows):,} rows are refused")
    return "; ".join(parts)


def methods_frame(result: MethodTable) -> pd.DataFrame:
    """Return one row per method."""
    import pandas as pd

    def words(row: Any, name: str) -> str:
        if name == "ranking" and row.decisions_total:
            return f"{row.ranking}, {row.decisions_kept}/{row.decisions_total}"
        return str(getattr(row, name)).replace("_source", "").replace("_approximate", "").replace("_", " ")

    rows = [
        {
            "label": r.label,
            "method": r.method,
            "events": r.events,
            "records": r.canary_records,
            "bytes": float(r.canary_bytes),
            **{name: words(r, name) for name in _STATUSES},
            "recall": r.tail_recall,
            "error": r.worst_error,
        }
        for r in result.rows
    ]
    return pd.DataFrame(rows, columns=["label", "method", "events", "records", "bytes", *_STATUSES, "recall", "error"])


def methods_csv(result: MethodTable) -> str:
    """Return every figure of every method as CSV, statuses as they are spelled in files."""
    import pandas as pd

    return pd.DataFrame([r.to_json() for r in result.rows]).to_csv(index=False)


def _table(frame_: pd.DataFrame) -> Any:
    status = fmt.status_cell()
    columns = {
        "method": TableColumn("Method", None, 78, grow=2),
        "events": TableColumn("Events", fmt.count_cell(), 52, right=True),
        "bytes": TableColumn("Bytes", fmt.count_cell(), 58, right=True),
        "timing": TableColumn("Timing", status, 78),
        "coverage": TableColumn("Coverage", status, 66),
        "commitments": TableColumn("Commitments", status, 98),
        "bounds": TableColumn("Bounds", status, 98),
        "traffic": TableColumn("Traffic", status, 56),
        "ranking": TableColumn("Ranking", status, 92),
        "behavior": TableColumn("Behaviour", status, 66),
        "recall": TableColumn("Tail recall", fmt.share_cell(), 62, right=True),
        "error": TableColumn("Worst / tolerance", fmt.number_cell(), 66, right=True),
        "claim": TableColumn("Claim", status, 78),
    }
    out = table(frame_, columns, page_size=16, empty="No method was compared.")
    out.stylesheets = [*out.stylesheets, _CSS]
    return out
