"""A canary at a glance: its size, its program, and how far its timing is off."""

from __future__ import annotations

from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.units import format_bytes
from commcanary_lab.views.commitments import disclosure_card
from commcanary_lab.views.error_bounds import errors
from commcanary_lab.views.extra import panel
from commcanary_lab.views.loop_nest import program
from commcanary_lab.views.markup import Figure, html, key_figures

__all__ = ["canary"]


def canary(artifact: Canary) -> Any:
    """Show a canary: key figures, the program, the error bounds and what it reveals.

    Parameters
    ----------
    artifact : Canary
        From `commcanary_lab.compile`.

    Returns
    -------
    panel.viewable.Viewable
    """
    gap = {"margin": (0, 0, 16, 0), "sizing_mode": "stretch_width"}
    parts = [html(key_figures(figures(artifact))), program(artifact), errors(artifact), disclosure_card(artifact)]
    return panel().Column(*(panel().Column(part, **gap) for part in parts), sizing_mode="stretch_width")


def figures(artifact: Canary) -> list[Figure]:
    """Return the key figures of a canary."""
    s = artifact.source
    return [
        Figure("Events", f"{artifact.event_count:,}", f"of {s.events:,} source events"),
        Figure("Records", f"{artifact.records:,}", f"{artifact.event_ratio:.3g} event{'s' * (artifact.event_ratio != 1)} per record"),
        Figure("Size", format_bytes(artifact.size_bytes), f"source {format_bytes(s.size_bytes)}, {artifact.byte_ratio:.3g} times as much"),
        Figure("Timing", artifact.timing.replace("_", "\u00a0"), "largest errors below"),
    ]
