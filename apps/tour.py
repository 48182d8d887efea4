"""The guided tour: one sentence per page on what to look at there. It stands above the page, and covers nothing."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import LabError
from commcanary_lab.views.markup import html
from commcanary_lab.views.theme import paper

from .session import Session

__all__ = ["STEPS", "TourBar", "TourStep"]


@dataclass(frozen=True)
class TourStep:
    """One step.

    Parameters
    ----------
    page : str
        Which page it is about.
    title : str
        Of the page.
    text : str
        What to look at there.
    """

    page: str
    title: str
    text: str


#: What is open at the start, where the workspace has it: the sample with a slow rank, late arrivals and pauses.
_TRACE = "tp8_decode.json"

STEPS = (
    TourStep("overview", "Overview",
             "The sentence at the top answers the page’s question. Below it: what of the source was used, which operations take the time, "
             "and what was made from what. A click on an artifact opens it."),
    TourStep("traffic", "Traffic & Fabric",
             "Bytes that each rank sends to each other rank. Drag a box over the heatmap: the table below then lists its links. "
             "The fabric verdict says whether a rail network would carry them."),
    TourStep("timeline", "Timeline",
             "Every collective in time, one lane per group. Drag to move, scroll to zoom; “Whole trace” goes back."),
    TourStep("canary", "Canary",
             "The small program that stands for the trace. Seven statuses say what it still answers like the trace; none is blended into "
             "another. Below: the largest error of each field, and what the canary reveals."),
    TourStep("ablation", "Ablation",
             "One preserved mechanism is removed at a time. Look at which ranking decisions flip: those rest on it."),
    TourStep("ranking", "Ranking",
             "Which of two configurations is better, for every pair and metric. Change a backend at the left and watch the decisions."),
    TourStep("minimise", "Minimise",
             "ddmin keeps the ranking decisions alone; the search also asks for behaviour. The contrast shows what each lost in the tail."),
    TourStep("replay", "Replay",
             "Runs a canary on real process groups on this machine, and lists recorded campaigns with decision and evidence."),
    TourStep("review", "Review",
             "Two reports under a policy: the verdict in a sentence, the checks behind it, and a page to hand on."),
)  # fmt: skip


class TourBar:
    """The bar above the page. Its state is the session's: another visitor, or another tab, has its own."""

    def __init__(self, session: Session, pages: tuple[str, ...]) -> None:
        self.session = session
        self.steps = tuple(s for s in STEPS if s.page in pages)
        self._text = html("", margin=0)
        small: dict[str, Any] = {"size": "small", "margin": (0, 0, 0, 8)}
        self._back = pmui.Button(label="Back", variant="text", **small)
        self._next = pmui.Button(label="Next", variant="contained", **small)
        self._end = pmui.Button(label="End the tour", variant="text", **small)
        self._back.on_click(lambda _: self._go(self.session.tour - 1))
        self._next.on_click(lambda _: self._go(self.session.tour + 1))
        self._end.on_click(lambda _: self._go(-1))
        buttons = pn.Row(self._back, self._next, self._end, margin=0, align="center")
        self.view = paper(
            pn.Row(self._text, buttons, sizing_mode="stretch_width", margin=0),
            visible=False,
            margin=(0, 0, 16, 0),
            sx={"padding": "12px 16px", "borderColor": "primary.main"},
        )
        self.button = pmui.Button(label="Tour", variant="text", size="small", margin=(0, 8, 0, 0), align="center")
        self.button.on_click(lambda _: self.start())
        session.param.watch(lambda *_: self._show(), ["tour", "page"])
        session.begin_tour = self.start

    def start(self) -> None:
        """Begin with the first step, on the sample made for it where the workspace has it."""
        if not self.steps:
            return
        try:
            if self.session.workspace.get(_TRACE).kind == "trace":
                self.session.open(_TRACE)
        except LabError:  # a workspace without that sample: the tour speaks of pages, not of it
            pass
        self._go(0)

    def _go(self, step: int) -> None:
        if not 0 <= step < len(self.steps):
            self.session.tour = -1
            return
        self.session.param.update(tour=step, page=self.steps[step].page)

    def _show(self) -> None:
        step = self.session.tour
        if not 0 <= step < len(self.steps):
            self.view.visible = False
            return
        s = self.steps[step]
        away = "" if self.session.page == s.page else ' <span class="muted">(you are on another page; Next goes on)</span>'
        self._text.object = (
            f'<div class="cl" role="region" aria-label="Guided tour"><div class="muted" style="font-size:12px">'
            f"Tour, step {step + 1} of {len(self.steps)}</div>"
            f'<div aria-live="polite"><b>{escape(s.title)}.</b> {escape(s.text)}{away}</div></div>'
        )
        self._back.disabled = step == 0
        self._next.label = "Finish" if step == len(self.steps) - 1 else "Next"
        self.view.visible = True
