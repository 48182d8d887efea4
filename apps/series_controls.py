"""The controls of a series: which reports, against what, and which entry is shown. Every choice goes into the address."""

from __future__ import annotations

from typing import Any

import panel as pn
import panel_material_ui as pmui

from .review_series import SeriesReview
from .session import Session, sidebar_label

__all__ = ["SeriesControls", "span_control"]

_OF = {"Reports": "reports", "Measured traces": "measured"}
_AGAINST = {"The first entry": "first", "The entry before": "previous"}


class SeriesControls:
    """The controls; a change makes the page anew, but for the entry, which `picked` shows in place.

    Parameters
    ----------
    session : Session
        Whose address keeps the choices.
    data : SeriesReview
        What is shown, and what could be chosen instead.
    picked : callable
        Called with the name of an entry.
    """

    def __init__(self, session: Session, data: SeriesReview, picked: Any) -> None:
        self._session, self._data = session, data
        asked = data.request
        names = [e.name for e in data.history.entries] if data.history is not None else list(asked.names or data.candidates)
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "size": "small", "variant": "outlined", "margin": (0, 0, 10, 0)}
        of = pmui.Select(label="Series of", options=_OF, value=asked.of, **wide)
        of.param.watch(lambda e: self._choose(of=(e.new,), work=(), series=(), against=(), entry=()), "value")
        self.view: list[Any] = [of]
        if len(data.works) > 1:
            work = pmui.Select(label="Work", options=dict(data.works), value=asked.work, **wide)
            work.param.watch(lambda e: self._choose(work=(e.new,), series=(), against=(), entry=()), "value")
            self.view.append(work)
        options = {**_AGAINST, **{n: n for n in names}}
        against = pmui.Select(
            label="Compared with", options=options, value=asked.baseline if asked.baseline in options.values() else "first", **wide
        )
        against.param.watch(lambda e: self._choose(against=(e.new,) if e.new != "first" else ()), "value")
        self.entry = pmui.Select(label="Entry shown below", options=names, value=asked.entry, disabled=data.history is None, **wide)
        self._filling = False
        self.entry.param.watch(lambda e: None if self._filling or not e.new else picked(e.new), "value")
        shown = [n for n in data.candidates if n in names]
        shown = [n for n in data.candidates if n in names]
        plain = {k: v for k, v in wide.items() if k != "size"}  # this one takes a number of rows by that name
        entries = pmui.MultiChoice(
            label="Entries", options=list(data.candidates), value=shown, value_label=f"{len(shown)} of {len(data.candidates)}",
            searchable=len(data.candidates) > 8, **plain,
        )  # fmt: skip
        entries.param.watch(lambda e: self._entries(tuple(e.new)), "value")
        every = pmui.Button(label="All of this work", variant="text", size="small", margin=0, disabled=not asked.names)
        every.on_click(lambda _: self._choose(series=(), entry=()))
        allow = pmui.Switch(label="Allow different work or protocol", value=asked.allow, size="small", margin=(0, 0, 4, 0))
        allow.param.watch(lambda e: self._choose(allow=("1",) if e.new else ()), "value")
        self.view += [against, self.entry, entries, pn.Row(every, margin=0)]
        if asked.of == "reports":
            self.view.append(allow)

    def follow(self, entry: str) -> None:
        """Show which entry is shown."""
        if self.entry.value != entry:
            self._filling = True
            try:
                self.entry.value = entry
            finally:
                self._filling = False

    def _entries(self, names: tuple[str, ...]) -> None:
        if names:
            self._choose(series=names)

    def _choose(self, **values: tuple[str, ...]) -> None:
        for name, chosen in values.items():
            self._session.choose(name, *chosen)
        self._session.param.trigger("page")


def span_control(session: Session, series: bool) -> list[Any]:
    """Return the choice between a pair and a series; the reports that are compared stay chosen."""
    options = {"A pair": "pair", "A series over time": "series"}
    span = pmui.RadioButtonGroup(
        label="", options=options, value="series" if series else "pair", margin=(0, 0, 14, 0), sizing_mode="stretch_width", size="small"
    )

    def changed(event: Any) -> None:
        session.choose("compare", *(("series",) if event.new == "series" else ()))
        session.choose("comparison")
        session.param.trigger("page")

    span.param.watch(changed, "value")
    return [sidebar_label("What is reviewed"), span]
