"""The controls of a review: how to compare, and what with what. Every choice goes into the address."""

from __future__ import annotations

from typing import Any

import panel as pn
import panel_material_ui as pmui

from .policy_panel import policy_values
from .review_request import MODES, Review
from .series_controls import span_control
from .session import Session, sidebar_label

__all__ = ["ReviewControls"]

_WORDS = {"reports": "Reports", "measured": "Measured", "simulated": "Simulated"}
_NOTHING = "/"


class ReviewControls:
    """The controls; a change makes the page anew.

    Parameters
    ----------
    session : Session
        Whose address keeps the choices.
    data : Review
        What is shown, and what could be chosen instead.
    """

    def __init__(self, session: Session, data: Review) -> None:
        self._session, self._data = session, data
        asked = data.request
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "size": "small"}
        mode = pmui.RadioButtonGroup(label="", options={_WORDS[m]: m for m in MODES}, value=asked.mode, margin=(0, 0, 14, 0), **wide)
        mode.param.watch(lambda e: self._choose(compare=e.new, baseline=None, candidate=None), "value")
        self.view: list[Any] = [*span_control(session, False), sidebar_label("What is compared"), mode]
        for side, chosen, backend in (("baseline", asked.baseline, 0), ("candidate", asked.candidate, 1)):
            options = {n: n for n in (*data.artifacts, *([chosen] if chosen and chosen not in data.artifacts else []))} or {
                "none": _NOTHING
            }
            select = pmui.Select(
                label=side.capitalize(), options=options if chosen else {"none": _NOTHING, **options}, value=chosen or _NOTHING,
                disabled=not data.artifacts, variant="outlined", margin=(0, 0, 10, 0), **wide,
            )  # fmt: skip
            select.param.watch(lambda e, side=side: self._pick(side, e.new), "value")
            self.view.append(select)
            if asked.mode == "simulated":
                label = asked.backends[backend]
                names = [*data.backends, *([label] if label not in data.backends else [])]
                on = pmui.Select(
                    label=f"{side.capitalize()} on", options=names, value=label, variant="outlined", margin=(0, 0, 14, 0), **wide
                )
                on.param.watch(lambda e, side=side: self._choose(**{f"{side}_backend": e.new}), "value")
                self.view.append(on)
        swap = pmui.Button(
            label="Swap", variant="text", size="small", margin=(0, 0, 4, 0), disabled=not (asked.baseline and asked.candidate)
        )
        swap.on_click(lambda _: self._swap())
        self.view.append(pn.Row(swap, margin=0))
        if asked.mode != "measured":
            allow = pmui.Switch(label="Allow different work or protocol", value=asked.allow, size="small", margin=(0, 0, 4, 0))
            allow.param.watch(lambda e: self._choose(allow="1" if e.new else None), "value")
            self.view.append(allow)
        if data.unknown:
            assume = pmui.Switch(label="Assume 0 where the source is silent", value=asked.assume, size="small", margin=(0, 0, 4, 0))
            assume.param.watch(lambda e: self._choose(assume="0" if e.new else None), "value")
            self.view.append(assume)

    def _pick(self, side: str, name: str | None) -> None:
        if name and name != _NOTHING:
            self._choose(**{side: name})

    def _swap(self) -> None:
        asked = self._data.request
        backends = {} if asked.mode != "simulated" else {"baseline_backend": asked.backends[1], "candidate_backend": asked.backends[0]}
        self._choose(baseline=asked.candidate, candidate=asked.baseline, **backends)

    def _choose(self, **values: str | None) -> None:
        """Keep what is shown and change one thing; a saved comparison is left behind, its policy is not."""
        asked, shown = self._data.request, {}
        if self._data.saved is not None:
            shown = {"compare": asked.mode, "baseline": asked.baseline, "candidate": asked.candidate, "comparison": None}
            self._session.choose("policy", *policy_values(asked.policy))
        elif "compare" not in values:
            shown = {"baseline": asked.baseline, "candidate": asked.candidate}
        for name, value in {**shown, **values}.items():
            self._session.choose(name, *((value,) if value else ()))
        self._session.param.trigger("page")
