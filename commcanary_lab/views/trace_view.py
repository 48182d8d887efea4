"""A trace at a glance: what was read, where the time goes, and when."""

from __future__ import annotations

from typing import Any

from commcanary_lab.inspect import ops
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.summary import summarise
from commcanary_lab.units import format_bytes, format_us
from commcanary_lab.views.extra import panel
from commcanary_lab.views.import_coverage import coverage_html, notes_html
from commcanary_lab.views.lanes import timeline
from commcanary_lab.views.markup import Figure, coverage_text, html, key_figures
from commcanary_lab.views.operations import table_card
from commcanary_lab.views.theme import paper

__all__ = ["trace"]


def trace(source: Trace) -> Any:
    """Show a trace: key figures, import coverage with notes, the timeline and the operation table.

    Parameters
    ----------
    source : Trace
        The events.

    Returns
    -------
    panel.viewable.Viewable
    """
    notes = notes_html(source.notes, source.warnings)
    covered = coverage_html(source) + (f'<div style="height:14px"></div>{notes}' if notes else "")
    parts = [html(key_figures(figures(source))), paper(html(covered))]
    if len(source):
        parts += [timeline(source), table_card(ops(source))]
    gap = {"margin": (0, 0, 16, 0), "sizing_mode": "stretch_width"}
    return panel().Column(*(panel().Column(part, **gap) for part in parts), sizing_mode="stretch_width")


def figures(source: Trace) -> list[Figure]:
    """Return the key figures of a trace."""
    s = summarise(source)
    span = (
        Figure("Span", "unknown", "the source has no times")
        if s.duration_us is None
        else Figure("Span", format_us(s.duration_us), source.origin)
    )
    return [
        Figure("Events", f"{s.events:,}", coverage_text(s.coverage)),
        Figure("Ranks", f"{s.ranks:,}", f"in {s.groups:,} process group{'s' * (s.groups != 1)}"),
        Figure("Payload", format_bytes(s.payload_bytes), f"B summed over {s.records:,} records"),
        span,
    ]
