"""Plain HTML tables for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["table_html"]

#: Rows shown before the rest is only counted.
MAX_ROWS = 30


def table_html(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]], total_rows: int, notes: Sequence[str] = ()) -> str:
    """Return a titled table; text is escaped, numbers are right aligned, NaN and None show as a dash.

    Parameters
    ----------
    title : str
        One sentence above the table.
    headers : sequence of str
        Column names with units.
    rows : iterable of sequences
        The rows to show, at most `MAX_ROWS` of them are.
    total_rows : int
        How many rows the result has.
    notes : sequence of str
        Shown below the table.

    Examples
    --------
    >>> "&lt;b&gt;" in table_html("t", ["op"], [["<b>"]], 1)
    True
    """
    out = [f"<div><p>{escape(title)}</p><table><thead><tr>", *(f"<th>{escape(h)}</th>" for h in headers), "</tr></thead><tbody>"]
    for i, row in enumerate(rows):
        if i >= MAX_ROWS:
            break
        out += ["<tr>", *(_cell(value) for value in row), "</tr>"]
    out.append("</tbody></table>")
    if total_rows > MAX_ROWS:
        out.append(f"<p>{total_rows - MAX_ROWS:,} more rows</p>")
    if notes:
        out += ["<ul>", *(f"<li>{escape(note)}</li>" for note in notes), "</ul>"]
    return "".join([*out, "</div>"])


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<td style='text-align:right'>-</td>"
    if isinstance(value, (int, float)):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
        return f"<td style='text-align:right; font-variant-numeric:tabular-nums'>{text}</td>"
    return f"<td style='text-align:left'>{escape(str(value))}</td>"
