"""Running and waiting replays on the screen: phases, the log as it grows, their place in the queue, a way to end them."""

from __future__ import annotations

from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.replay.progress import ReplayProgress
from commcanary_lab.views.markup import html, title_html
from commcanary_lab.views.theme import paper

from .replay_jobs import Job, ReplayJobs, may_operate

__all__ = ["LOG_CSS", "QueuePanel", "log_html", "phases_html"]

_PHASES = ("starting the ranks", "joining the group", "warm-up", "measuring", "probing", "done")
_WORDS = {"starting the ranks": "Start", "joining the group": "Join", "warm-up": "Warm-up", "measuring": "Measure", "probing": "Check data",
          "done": "Seal"}  # fmt: skip

_CSS = """
.cl .ph { display: flex; gap: 6px; margin-top: 12px; }
.cl .ph > div { flex: 1 1 0; min-width: 0; }
.cl .ph .w { font-size: 12px; color: var(--m); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; margin-bottom: 4px; }
.cl .ph .now .w { color: var(--t); font-weight: 500; }
.cl .ph .t { height: 7px; border-radius: 4px; background: var(--s); overflow: hidden; }
.cl .ph .t i { display: block; height: 100%; border-radius: 4px; background: var(--a); }
.cl .ph .t i.some { background: repeating-linear-gradient(-45deg, var(--a) 0 6px, color-mix(in srgb, var(--a) 55%, transparent) 6px 12px); }
"""

#: Of logs, also outside the queue.
LOG_CSS = """
.cl .fold { border: 1px solid var(--d); border-radius: 10px; background: var(--p); padding: 10px 20px; }
.cl .fold summary { cursor: pointer; font-weight: 700; font-size: 14.5px; }
.cl .log { margin-top: 12px; max-height: 190px; overflow: auto; display: flex; flex-direction: column-reverse; border: 1px solid var(--d);
  border-radius: 8px; background: var(--s); }
.cl .log pre { margin: 0; padding: 8px 12px; font-family: 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace; font-size: 12px;
  line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def phases_html(now: ReplayProgress, probe: bool, ending: bool = False) -> str:
    """Return one bar per phase: full, as far as it is, or empty.

    Examples
    --------
    >>> text = phases_html(ReplayProgress("measuring", 2, 5), probe=False)
    >>> text.count("width:100%"), "width:40%" in text, "Check data" in text
    (3, True, False)
    """
    phases = [p for p in _PHASES if probe or p != "probing"]
    at = phases.index(now.phase) if now.phase in phases else 0
    parts = []
    for i, phase in enumerate(phases):
        known = i == at and now.total > 0
        share = 100 if i < at else round(100 * now.done / now.total) if known else 100 if i == at else 0
        count = f" {now.done:,} of {now.total:,}" if known and now.total > 1 else ""
        some = " class=some" if i == at and not known else ""
        state = f'class="{"now" if i == at else ""}" role="progressbar" aria-label="{_WORDS[phase]}" aria-valuenow="{0 if some else share}"'
        bar = f'<div class="t"><i{some} style="width:{share}%"></i></div>'
        parts.append(f'<div {state}><div class="w">{_WORDS[phase]}{count}</div>{bar}</div>')
    return f'<div class="ph" style="opacity:{0.45 if ending else 1}">{"".join(parts)}</div>'


def log_html(text: str, title: str = "") -> str:
    """Return a log that stays at its end while it grows."""
    body = escape(text) or '<span class="muted">Nothing was said yet.</span>'
    return f'{title}<div class="log" tabindex="0" role="log" aria-label="Log"><pre>{body}</pre></div>'


class QueuePanel:
    """The cards of what runs and waits; `refresh` follows, in place.

    Parameters
    ----------
    jobs : ReplayJobs
        The server's.
    """

    def __init__(self, jobs: ReplayJobs) -> None:
        self._jobs = jobs
        self._cards: dict[str, _Card] = {}
        self.view = pn.Column(sizing_mode="stretch_width", margin=0, styles={"gap": "16px"}, visible=False)
        self.refresh()

    def refresh(self) -> None:
        """Show what there is now."""
        active = self._jobs.active()
        names = [j.name for j in active]
        if list(self._cards) != names:
            self._cards = {j.name: self._cards.get(j.name) or _Card(self._jobs, j) for j in active}
            self.view[:] = [c.view for c in self._cards.values()]
            self.view.visible = bool(names)
        for job in active:
            self._cards[job.name].show(job)


class _Card:
    def __init__(self, jobs: ReplayJobs, job: Job) -> None:
        self._jobs, self._name = jobs, job.name
        self._probe = "--probe" in job.command
        self._head, self._body = html(""), html("", stylesheets=[_CSS, LOG_CSS])
        self._cancel = pmui.Button(
            label="Cancel", variant="outlined", size="small", color="error", margin=0, width=96, disabled=not may_operate()
        )
        self._cancel.on_click(self._stop)
        row = pn.Row(self._head, self._cancel, sizing_mode="stretch_width", margin=0)
        self.view = paper(row, self._body)
        self.show(job)

    def show(self, job: Job) -> None:
        place = self._jobs.place(job) if job.state == "queued" else 0
        words = {
            "running": f"Runs on the {job.device}; it goes on when this page is closed",
            "ending": "Cancelled; its ranks are being ended",
            "queued": f"Waits: {place:,} replay{'s' * (place != 1)} on the {job.device} before it",
        }[job.state]
        self._head.object = f'<div class="cl">{title_html(job.title, words)}</div>'
        self._cancel.label = "Ending" if job.state == "ending" else "Cancel"
        self._cancel.disabled = job.state == "ending" or not may_operate()
        self._body.visible = job.state != "queued"
        if job.state != "queued":
            bars = phases_html(self._jobs.progress(job.name), self._probe, job.state == "ending")
            self._body.object = f'<div class="cl">{bars}{log_html(self._jobs.log(job.name))}</div>'

    def _stop(self, _: Any) -> None:
        if may_operate():  # whatever the browser says: a disabled button can be pressed, too
            self._cancel.disabled = True
            self._jobs.cancel(self._name)
