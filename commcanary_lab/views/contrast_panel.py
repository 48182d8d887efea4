"""Two minimised results side by side: what each kept, how each answers, and what each lost."""

from __future__ import annotations

from html import escape
from typing import Any

from commcanary_lab.minimize.contrast import Contrast
from commcanary_lab.minimize.sides import Side
from commcanary_lab.trace.measure import canonical_size
from commcanary_lab.units import format_bytes
from commcanary_lab.views.difference_map import difference_map, difference_text
from commcanary_lab.views.extra import material, panel
from commcanary_lab.views.latency_curves import LatencyCurves
from commcanary_lab.views.loop_nest import _CSS as TREE_CSS
from commcanary_lab.views.loop_nest import program_html
from commcanary_lab.views.lost_events import lost_csv, lost_frame, lost_table, lost_text
from commcanary_lab.views.markup import Figure as KeyFigure
from commcanary_lab.views.markup import coverage_text, html, key_figures, percent, title_html
from commcanary_lab.views.plot_frame import error_text
from commcanary_lab.views.status_chips import chip_row
from commcanary_lab.views.tables import download
from commcanary_lab.views.theme import THEME_CONFIG, fill, paper

__all__ = ["ContrastPanel", "contrast"]

_GAP = 16
_SIDE_CSS = """
.cl .tree { max-height: 240px; } .cl .keys { grid-template-columns: repeat(4, minmax(0, 1fr)); margin: 10px 0; border-radius: 8px; }
.cl .key { padding: 8px 12px; } .cl .key .n { font-size: 18px; }
"""


def contrast(result: Contrast) -> Any:
    """Show two minimised results of one source side by side.

    Parameters
    ----------
    result : Contrast
        From `commcanary_lab.contrast`.

    Returns
    -------
    panel.viewable.Viewable
    """
    return ContrastPanel(result).view


class ContrastPanel:
    """The cards of a contrast; one choice of backend governs the distributions and the lost events.

    Parameters
    ----------
    result : Contrast
        What to show.
    """

    def __init__(self, result: Contrast) -> None:
        pn = panel()
        self.result = result
        self.curves = LatencyCurves(result)
        self.backend = material().Select(
            label="Backend",
            options=self.curves.backends,
            value=self.curves.backends[0],
            size="small",
            variant="outlined",
            width=200,
            margin=(0, 0, 12, 0),
            theme_config=THEME_CONFIG,
        )
        self._lost_title = html("")
        self._lost = lost_table(lost_frame(result, self.backend.value))
        self.view = pn.Column(
            self._sides(), self._distributions(), self._traffic(), self._lost_card(), sizing_mode="stretch_width", margin=0,
            styles={"gap": f"{_GAP}px"},
        )  # fmt: skip
        self.backend.param.watch(lambda e: self.show(e.new), "value")
        self._describe(self.backend.value)

    def show(self, backend: str) -> None:
        """Show another backend; nothing but its numbers changes."""
        self.curves.show(backend)
        self._lost.value = lost_frame(self.result, backend)
        self._describe(backend)

    def _describe(self, backend: str) -> None:
        title = title_html("Tail events that were lost", lost_text(self.result, backend), "model")
        self._lost_title.object = f'<div class="cl">{title}</div>'

    def _sides(self) -> Any:
        cards = [side_card(self.result, side) for side in (self.result.a, self.result.b)]
        for card in cards:
            fill(card, flex="1 1 0px", **{"min-width": "0"})
        cards[0].margin = (0, _GAP, 0, 0)
        return panel().Row(*cards, sizing_mode="stretch_width", margin=0, styles={"align-items": "stretch"})

    def _distributions(self) -> Any:
        pn = panel()
        scale = "Logarithmic; fully hidden events stand at the left end" if self.curves.log else "The tail is at the lower right"
        title = title_html(
            "Exposed latency", f"Source and results on one axis, the same for every backend. {scale}", "model", self._cover(),
            f"cost model {self.result.a.verification.model}",
        )  # fmt: skip
        self.curves.pane.styles = {"flex": "3 1 0px", "min-width": "0"}
        side = pn.Column(self.backend, self.curves.table, margin=(0, 0, 0, 20), styles={"flex": "2 1 0px", "min-width": "330px"})
        body = pn.Row(self.curves.pane, side, sizing_mode="stretch_width", margin=0)
        return paper(html(title), self.curves.legend, body)

    def _cover(self) -> str:
        return coverage_text(self.result.source.coverage)

    def _traffic(self) -> Any:
        pn = panel()
        left, right = self.result.matrices
        top = max((float(abs(d.cells.size_bytes).max()) for d in (left, right) if len(d.cells)), default=0.0)
        origin = left.origin if left.origin == "measured" else f"model, ring order {left.left.ring_order}"
        title = title_html(
            "Traffic that is missing",
            "M of the source minus M of each result, on one colour scale (logarithmic on both sides of 0)",
            origin,
            self._cover(),
        )
        parts = []
        for side, difference in ((self.result.a, left), (self.result.b, right)):
            words = html(title_html(side.label, difference_text(difference)))
            part = pn.Column(words, difference_map(difference, top), margin=0, styles={"flex": "1 1 0px", "min-width": "0"})
            parts.append(part)
        return paper(html(title), pn.Row(*parts, sizing_mode="stretch_width", margin=0))

    def _lost_card(self) -> Any:
        lost = download(lambda: lost_csv(self.result), "lost_tail_events.csv", "Lost events")
        kept = download(self.result.kept_csv, "kept_events.csv", "Kept events")
        for button in (lost, kept):
            button.width = 122
        return paper(panel().Row(self._lost_title, kept, lost, sizing_mode="stretch_width", margin=0), self._lost)


def side_card(result: Contrast, side: Side) -> Any:
    """Return one result as a card: its size, its statuses, its program."""
    check, canary = side.verification, side.canary
    source_bytes = canonical_size(result.source)
    sizes = f"{format_bytes(canary.size_bytes)} of {format_bytes(source_bytes)}, canonical JSON"
    lost = len(result.lost(side.label))
    recall = "not compared" if side.tail_recall is None else percent(side.tail_recall)
    figures = [
        KeyFigure("Events", f"{canary.event_count:,}", f"of {len(result.source):,}"),
        KeyFigure("Bytes", format_bytes(canary.size_bytes), f"of {format_bytes(source_bytes)}"),
        KeyFigure("Tail lost", percent(lost / result.tail_total) if result.tail_total else "none", f"recall {recall}"),
        KeyFigure(
            "Worst check",
            error_text(side.worst_error).replace("\u00a0", " ").removesuffix(" tolerance"),
            f"{len(check.failures):,} of {len(check.checks):,} fail",
        ),
    ]
    reason = f"Claim: {check.claim}. {check.claim_reason[:1].upper()}{check.claim_reason[1:]}."
    body = f"{title_html(side.label, sizes, 'model', check.claim)}{key_figures(figures)}{chip_row(check)}"
    note = f'<p class="muted" style="font-size:12.5px;margin:8px 0 6px;overflow-wrap:anywhere">{escape(reason)}</p>'
    return paper(html(body + note + program_html(canary), stylesheets=[TREE_CSS, _SIDE_CSS]))
