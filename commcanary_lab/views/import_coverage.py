"""What the importer read, used and skipped, and what the trace does not know."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_ns
from commcanary_lab.views.markup import rows_html, title_html

__all__ = ["coverage_html", "notes_html"]

#: Reasons and names that are listed; the rest is counted.
MAX_LISTED = 8


def coverage_html(trace: Trace) -> str:
    """Return import coverage as HTML: read, used, skipped with reasons, unsized rows with their time."""
    c = trace.coverage
    skipped = sum(c.skipped.values())
    files = f"{len(c.files)} file{'s' if len(c.files) != 1 else ''}, " if c.files else ""
    ranks = f"sources of {len(c.ranks)} rank{'s' if len(c.ranks) != 1 else ''}, " if c.ranks else ""
    out = [
        title_html(
            "Import coverage",
            f"{ranks}{files}format {trace.source_format}",
            None,
            "all used" if c.used == c.read else f"{c.fraction:.1%} used",
        )
    ]
    used = 100 * c.fraction
    out.append(
        f'<div class="bar" role="img" aria-label="{c.used} of {c.read} records used">'
        f'<i style="width:{used:.2f}%;background:var(--a)"></i></div>'
    )
    rows = [("Records read", f"{c.read:,}"), ("Used", f"{c.used:,}"), ("Skipped", f"{skipped:,}")]
    reasons = sorted(c.skipped.items(), key=lambda kv: (-kv[1], kv[0]))
    rows += [(f"  {reason}", f"{n:,}") for reason, n in reasons[:MAX_LISTED]]
    if len(reasons) > MAX_LISTED:
        rows.append((f"  {len(reasons) - MAX_LISTED} more reasons", f"{sum(n for _, n in reasons[MAX_LISTED:]):,}"))
    out.append(rows_html(["", "Records"], rows, right=[1]))
    if trace.unsized:
        out.append(_unsized(trace))
    unknown = trace.unknown_fields
    if unknown:
        named = {"skew_us": "arrival skew", "overlap_us": "compute overlap"}
        out.append(
            '<p class="muted" style="margin-top:8px">Unknown: '
            + escape("; ".join(f"{named.get(k, k)} on {n:,} events" for k, n in unknown.items()))
            + ".</p>"
        )
    return "".join(out)


def _unsized(trace: Trace) -> str:
    by_name: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in trace.unsized:
        by_name[row.name, row.reason].append(row.time_ns)
    rows = sorted(((name, reason, len(t), sum(t)) for (name, reason), t in by_name.items()), key=lambda r: (-r[3], r[0]))
    listed = [(name, reason, f"{n:,}", format_ns(t)) for name, reason, n, t in rows[:MAX_LISTED]]
    if len(rows) > MAX_LISTED:
        listed.append(
            (
                f"{len(rows) - MAX_LISTED} more",
                "",
                f"{sum(r[2] for r in rows[MAX_LISTED:]):,}",
                format_ns(sum(r[3] for r in rows[MAX_LISTED:])),
            )
        )
    total = sum(r[3] for r in rows)
    head = title_html(
        "Unsized collectives", f"{len(trace.unsized):,} without size or members, {format_ns(total)}: counted as time, never as bytes"
    )
    return f'<div style="margin-top:14px">{head}{rows_html(["Name", "Why", "Rows", "Time"], listed, right=[2, 3])}</div>'


def notes_html(notes: tuple[str, ...], warnings: tuple[str, ...]) -> str:
    """Return notes and warnings as HTML; empty when there are none."""
    out = []
    if warnings:
        out.append(f'<div class="box warn" style="margin-bottom:10px"><div class="bt">Warnings</div><ul>{_items(warnings)}</ul></div>')
    if notes:
        out.append(f'<div class="tt" style="font-weight:700;margin-bottom:4px">Notes</div><ul>{_items(notes)}</ul>')
    return "".join(out)


def _items(texts: tuple[str, ...]) -> str:
    more = f"<li>{len(texts) - 20} more</li>" if len(texts) > 20 else ""
    return "".join(f"<li>{escape(t)}</li>" for t in texts[:20]) + more
