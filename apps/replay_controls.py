"""The controls of the page Replay. Every choice goes into the address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.views.markup import html, message

from .replay_jobs import may_operate
from .replay_request import Asked
from .replay_settings import BOUNDS, Settings, can_replay
from .session import Session, sidebar_label

__all__ = ["ReplayControls"]

_WIDE: dict[str, Any] = {"sizing_mode": "stretch_width", "size": "small"}


class ReplayControls:
    """The controls.

    Parameters
    ----------
    session : Session
        Whose address keeps the choices.
    given : Asked
        What is shown first.
    run : callable
        Starts a replay with the settings.
    another : callable
        Called after another program was chosen: the page is made anew.
    compare : callable
        Called after another model was chosen.
    """

    def __init__(
        self, session: Session, given: Asked, run: Callable[[Settings], None], another: Callable[[], None], compare: Callable[[], None]
    ) -> None:
        self.session, self._given = session, given
        self._run, self._another, self._compare = run, another, compare
        self.settings = given.settings
        self.view = [*self._what(), *self._how(), *self._check(), self._start(), *self._model()]

    # -- what runs ----------------------------------------------------------------------------------------------------

    def _what(self) -> list[Any]:
        open_ = {"Canary": self.session.canary, "Trace": self.session.trace}
        kinds = {label: label.lower() for label, name in open_.items() if name} or {"Canary": "canary"}
        of = pmui.RadioButtonGroup(
            label="", options=kinds, value=self.settings.of if self.settings.of in kinds.values() else next(iter(kinds.values())),
            margin=(0, 0, 8, 0), **_WIDE,
        )  # fmt: skip
        of.param.watch(lambda e: self._choose("of", e.new, "canary", self._another), "value")
        r = self._given.runnable
        text = "Nothing is open." if r is None else f"{r.size:,} ranks, {r.events:,} events" if r.size else "It cannot run."
        out = [sidebar_label("What runs"), of, html(f'<span class="muted" style="font-size:12px">{text}</span>', margin=(0, 0, 12, 0))]
        if r is not None and r.why_not:
            out.append(html(message("It cannot be replayed", r.why_not, "warn"), margin=(0, 0, 12, 0)))
        if r is not None and r.skippable:
            out.append(self._switch("skip", "Leave out what no backend runs", then=self._another))
        return out

    # -- how ----------------------------------------------------------------------------------------------------------

    def _how(self) -> list[Any]:
        size = max(1, self._given.runnable.size if self._given.runnable is not None else 1)
        ranks = self._number("ranks", f"Ranks (1 to {size:,})", end=size)
        self._crowded = html("", margin=(-4, 0, 10, 0))
        ranks.param.watch(lambda _: self._hint(), "value")
        self._hint()
        n = self._given.devices
        auto = (
            f"Automatic: {'NCCL' if self.settings.ran_by(n) == 'nccl' and n else 'Gloo'}"
            if self.settings.backend == "auto"
            else "Automatic"
        )
        backends = {auto: "auto", "Gloo, on the CPU": "gloo"}
        if n or self.settings.backend == "nccl":
            backends[f"NCCL, {n:,} GPU{'s' * (n != 1)} here"] = "nccl"
        backend = pmui.Select(
            label="Backend", options=backends, value=self.settings.backend, variant="outlined", margin=(0, 0, 12, 0), **_WIDE
        )
        backend.param.watch(lambda e: self._choose("backend", e.new, "auto"), "value")
        timing = pmui.RadioButtonGroup(
            label="", options={"Back to back": "back_to_back", "Gaps preserved": "preserve"}, value=self.settings.timing,
            margin=(0, 0, 12, 0), **_WIDE,
        )  # fmt: skip
        timing.param.watch(lambda e: self._choose("timing", e.new, "back_to_back"), "value")
        pair = pn.Row(
            self._number("iterations", "Iterations", margin=(0, 8, 12, 0)), self._number("warmup", "Warm-up", margin=(0, 0, 12, 0)),
            sizing_mode="stretch_width", margin=0,
        )  # fmt: skip
        overlap = self._switch("overlap", "Compute beside operations")
        return [
            ranks,
            self._crowded,
            backend,
            sidebar_label("Timing"),
            timing,
            pair,
            self._number("limit_s", "Time limit, seconds"),
            overlap,
        ]

    def _check(self) -> list[Any]:
        samples = pn.Row(
            self._number("epochs", "Epochs", margin=(0, 8, 12, 0)), self._number("replays", "Replays each", margin=(0, 0, 12, 0)),
            sizing_mode="stretch_width", margin=0, visible=self.settings.probe,
        )  # fmt: skip
        switch = self._switch("probe", "Check every byte")
        switch.param.watch(lambda e: setattr(samples, "visible", e.new), "value")
        return [switch, samples]

    def _start(self) -> Any:
        r = self._given.runnable
        able = r is not None and not r.why_not and can_replay() and may_operate()
        self.button = pmui.Button(label="Run", icon="play_arrow", variant="contained", disable_elevation=True, margin=(4, 0, 0, 0),
                                  disabled=not able, **_WIDE)  # fmt: skip
        self.button.on_click(lambda _: self._run(self.settings))
        self.session.visitor.limit(self.button)
        return self.button

    def _hint(self) -> None:
        import os

        cores = os.cpu_count() or 1
        text = ""
        if self.settings.ranks > cores and self.settings.ran_by(self._given.devices) == "gloo":
            text = f"More ranks than the {cores:,} cores here: latencies contain waiting for a core."
        self._crowded.object = f'<div class="cl"><span class="muted" style="font-size:12px">{text}</span></div>'
        self._crowded.visible = bool(text)

    # -- what it is compared with -------------------------------------------------------------------------------------

    def _model(self) -> list[Any]:
        given = self._given
        backend = pmui.Select(
            label="Simulated backend", options=[b.label for b in given.backends], value=given.backend.label, variant="outlined",
            margin=(0, 0, 10, 0), **_WIDE,
        )  # fmt: skip
        backend.param.watch(lambda e: self._simulate("model", e.new if e.new != given.backends[0].label else None), "value")
        out = [sidebar_label("Compared with the model", margin=(24, 0, 8, 0)), backend]
        result = given.shown.result if given.shown is not None else None
        if given.assume or (result is not None and getattr(result.source, "trace", result.source).unknown_fields):
            assume = pmui.Switch(label="Assume 0 where the source is silent", value=given.assume, size="small", margin=(0, 0, 4, 0))
            assume.param.watch(lambda e: self._simulate("assume", "0" if e.new else None), "value")
            out.append(assume)
        return out

    def _simulate(self, name: str, value: str | None) -> None:
        self.session.choose(name, *((value,) if value else ()))
        self._compare()

    # -- parts --------------------------------------------------------------------------------------------------------

    def _choose(self, name: str, value: Any, proposed: Any, then: Callable[[], None] | None = None) -> None:
        from dataclasses import replace

        self.settings = replace(self.settings, **{name: value})
        text = ("1" if value else "") if isinstance(value, bool) else str(value)
        self.session.choose(f"run_{name}", *((text,) if value != proposed and text else ()))
        if then is not None:
            then()

    def _number(self, name: str, label: str, *, end: int | None = None, margin: Any = (0, 0, 12, 0)) -> Any:
        low, high, proposed = BOUNDS[name]
        box = pmui.IntInput(
            label=label, value=getattr(self.settings, name), start=low, end=end or high, variant="outlined", margin=margin, **_WIDE
        )

        def changed(event: Any) -> None:
            if event.new is not None and low <= event.new <= (end or high):
                self._choose(name, int(event.new), proposed)

        box.param.watch(changed, "value")
        return box

    def _switch(self, name: str, label: str, then: Callable[[], None] | None = None) -> Any:
        switch = pmui.Switch(label=label, value=getattr(self.settings, name), size="small", margin=(0, 0, 8, 0))
        switch.param.watch(lambda e: self._choose(name, bool(e.new), False, then), "value")
        return switch
