"""Tables of a comparison: every value against its limit, and what was compared under which policy."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from commcanary_lab.review.comparison import Comparison, with_sign
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.units import format_us
from commcanary_lab.views.extra import panel
from commcanary_lab.views.markup import html, rows_html, title_html
from commcanary_lab.views.tables import TableColumn, download, table
from commcanary_lab.views.theme import paper

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ValuesTable", "result_cell", "sides_html"]

_COLUMNS = {
    "scope": "Scope", "name": "Name", "metric": "Value", "baseline": "Baseline", "candidate": "Candidate", "change": "Change",
    "allowed": "Allowed", "result": "Result",
}  # fmt: skip


def result_cell() -> Any:
    """Return a cell formatter for results: red for what fails, amber for what warns or is not decided."""
    from bokeh.models import HTMLTemplateFormatter

    return HTMLTemplateFormatter(
        template="""<% const bad = ['fail', 'regression'].includes(value), open = ['warn', 'inconclusive'].includes(value);
const color = bad ? 'var(--mui-palette-error-main, #c93a32)' : open ? 'color-mix(in srgb, #d3901a 80%, var(--cl-t))' : 'inherit';
%><span style="color:<%= color %>;font-weight:<%= bad || open ? 700 : 400 %>"><%- value %></span>"""
    )


class ValuesTable:
    """Every value of both reports against its limit, as a card with a download.

    Parameters
    ----------
    result : Comparison
        What to show first.
    """

    def __init__(self, result: Comparison) -> None:
        self.result = result
        columns = {
            "scope": TableColumn(_COLUMNS["scope"], None, 90),
            "name": TableColumn(_COLUMNS["name"], None, 120, grow=2),
            "metric": TableColumn(_COLUMNS["metric"], None, 100),
            "baseline": TableColumn(_COLUMNS["baseline"], None, 95, right=True),
            "candidate": TableColumn(_COLUMNS["candidate"], None, 95, right=True),
            "change": TableColumn(_COLUMNS["change"], None, 95, right=True),
            "allowed": TableColumn(_COLUMNS["allowed"], None, 150, right=True),
            "result": TableColumn(_COLUMNS["result"], result_cell(), 80),
        }
        self._table = table(_frame(result), columns, page_size=14)
        self._title = html("")
        save = download(lambda: self.result.df.to_csv(index=False), "comparison.csv")
        self.card = paper(panel().Row(self._title, save, sizing_mode="stretch_width", margin=0), self._table)
        self.update(result)

    def update(self, result: Comparison) -> None:
        """Show the same values under another policy."""
        self.result = result
        counts = {r: sum(e.threshold_result == r for e in result.evaluations) for r in ("fail", "warn", "pass")}
        words = ", ".join(f"{n:,} {r}" for r, n in counts.items())
        text = f"{len(result.evaluations):,} values against their limits: {words}; a latency fails where it exceeds both its limits"
        self._title.object = f'<div class="cl">{title_html("Every value", text)}</div>'
        frame = _frame(result)
        if not frame.equals(self._table.value):
            self._table.value = frame


def _frame(result: Comparison) -> pd.DataFrame:
    import pandas as pd

    rows = []
    order = {"fail": 0, "warn": 1, "pass": 2}
    for e in sorted(result.evaluations, key=lambda e: order[e.threshold_result]):
        unit = " %" if e.is_hidden_share else " us"
        values = ["" if v is None else f"{v:,.2f} %" if e.is_hidden_share else format_us(v) for v in (e.baseline, e.candidate)]
        change = "absent" if e.relative_status == "absent" else with_sign(e.change, " points" if unit == " %" else " %")
        allowed = f"−{e.threshold:g} points" if e.is_hidden_share else f"+{e.threshold:g} % and {format_us(e.absolute_threshold_us or 0.0)}"
        metric = "hidden share" if e.is_hidden_share else e.metric
        rows.append([e.scope, e.name or "whole workload", metric, *values, change, allowed, e.threshold_result])
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def sides_html(c: Comparison, names: tuple[str, str]) -> str:
    """Return what was compared: how both sides differ, what they share, and the notes of the sources."""
    a, b = _described(c.base), _described(c.candidate)
    rows = [(k, a[k], b[k]) for k in a if a[k] != b[k]]
    shared = ", ".join(f"{k} {a[k]}" for k in a if a[k] == b[k])
    title = title_html("What was compared", f"{len(rows)} of {len(a)} properties differ")
    table_ = rows_html(["", "Baseline", "Candidate"], rows, right=[1, 2]) if rows else ""
    notes = [f"{names[0]}: {n}" for n in c.base.notes] + [f"{names[1]}: {n}" for n in c.candidate.notes if n not in c.base.notes]
    listed = "".join(f"<li>{escape(n)}</li>" for n in notes)
    same = f'<p class="muted" style="margin-top:8px;font-size:12.5px;overflow-wrap:anywhere">The same on both sides: {escape(shared)}.</p>'
    return f'{title}<div style="height:6px"></div>{table_}{same}' + (f'<ul style="margin-top:8px">{listed}</ul>' if listed else "")


def _described(r: ReportFile) -> dict[str, str]:
    words = {"label": "configuration", "bandwidth_gbps": "bandwidth, Gbit/s", "latency_floor_us": "latency floor, us"}
    backend = {words.get(k, k.replace("_", " ")): f"{v:g}" if isinstance(v, float) else str(v) for k, v in asdict(r.backend).items()}
    return backend | {
        "cost model": r.model,
        "ablations": ", ".join(r.ablations) or "none",
        "assumed": ", ".join(f"{k} = {v:g}" for k, v in r.assumptions.items()) or "nothing",
        "events": f"{r.events:,}",
        "workload SHA-256": r.workload_sha256[:16],
        "report SHA-256": r.sha256[:16],
    }
