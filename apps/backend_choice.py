"""Which backends a page simulates, and what it assumes where the source is silent: controls, and what the address says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import InputError, LimitError
from commcanary_lab.files import MAX_CONFIG_BYTES, read_file
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend, load_backends
from commcanary_lab.trace.model import Trace
from commcanary_lab.views.markup import html, message
from commcanary_lab.workspace import Workspace

from .page import Selection
from .session import Session, sidebar_label

__all__ = ["BackendControls", "Protocol", "Refresh", "known_backends", "protocol"]

_FIELD_WORDS = {"skew_us": "arrival skew", "overlap_us": "concurrent compute"}


@dataclass(frozen=True)
class Protocol:
    """What a page simulates.

    Parameters
    ----------
    known : tuple of Backend
        The built-in backends, and those of the workspace.
    chosen : tuple of Backend
        Those to simulate.
    unknown : mapping of str to int
        Fields that the trace lacks, with the number of events.
    assume : mapping of str to float
        Values for them; empty unless somebody asked for it.
    problems : tuple of str
        Files and names that were left out.
    """

    known: tuple[Backend, ...]
    chosen: tuple[Backend, ...]
    unknown: Mapping[str, int]
    assume: Mapping[str, float]
    problems: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names everything that a result of this protocol depends on."""
        return f"{self.chosen!r} {sorted(self.assume.items())!r}"

    @property
    def why_not(self) -> str:
        """Say why nothing can be simulated; empty if it can."""
        if not self.unknown or self.assume:
            return ""
        listed = " and ".join(f"{_FIELD_WORDS.get(name, name)} of {n:,} events" for name, n in self.unknown.items())
        return f"The source does not say the {listed}. Assume 0 for it with the switch at the left; every figure is then marked as assumed."

    @property
    def origin(self) -> str:
        """Origin of the figures: the model, or an assumption."""
        return f"assumed: {', '.join(f'{k} = {v:g}' for k, v in self.assume.items())}" if self.assume else "model"


def known_backends(folder: Path) -> tuple[tuple[Backend, ...], tuple[str, ...]]:
    """Return the built-in backends and those of the ``*.toml`` files of a folder, and what was left out and why.

    A file belongs to backends if it has a table ``[backends.NAME]``; other TOML files, such as policies, are passed over.
    """
    known = {b.label: b for b in DEFAULT_BACKENDS}
    problems = []
    for path in sorted(p for p in folder.glob("*.toml") if p.is_file() and not p.name.startswith(".")):
        if not path.resolve().is_relative_to(folder.resolve()):
            problems.append(f"{path.name}: the link leads out of the workspace; replace it by a copy")
            continue
        try:
            if b"[backends" not in read_file(path, max_bytes=MAX_CONFIG_BYTES):
                continue
            for backend in load_backends(path):
                if backend.label in known:
                    problems.append(f"{path.name}: the name {backend.label!r} is taken; rename the backend")
                else:
                    known[backend.label] = backend
        except (InputError, LimitError, OSError) as e:
            problems.append(str(e).replace(str(path), path.name))
    return tuple(known.values()), tuple(problems)


def protocol(workspace: Workspace, selection: Selection, trace: Trace) -> Protocol:
    """Return what the address asks for; the five built-in backends and no assumption if it does not say."""
    known, problems = known_backends(workspace.path)
    by_name = {b.label: b for b in known}
    names = selection.options.get("backends", tuple(b.label for b in DEFAULT_BACKENDS))
    lost = [f"The address names the backend {n!r}, which is not known here; it is left out." for n in names if n and n not in by_name]
    chosen = tuple(b for b in known if b.label in names)  # in one order, so that the same choice is the same result
    unknown = trace.unknown_fields
    assume = dict.fromkeys(unknown, 0.0) if selection.option("assume", "") == "0" else {}
    return Protocol(known, chosen, unknown, assume, (*problems, *lost))


class BackendControls:
    """The controls; a change goes into the address and then to `changed`.

    Parameters
    ----------
    session : Session
        Whose address keeps the choice.
    given : Protocol
        What is shown first.
    changed : callable
        Called after a change.
    """

    def __init__(self, session: Session, given: Protocol, changed: Callable[[], None]) -> None:
        self._session, self._changed = session, changed
        self._names = [b.label for b in given.known]
        self._boxes = pmui.CheckBoxGroup(
            label="", options=self._names, value=[b.label for b in given.chosen], size="small", margin=0, sizing_mode="stretch_width"
        )
        scroll = {"max-height": "300px", "overflow-y": "auto"}
        boxes = pn.Column(self._boxes, sizing_mode="stretch_width", margin=(0, 0, 10, 0), styles=scroll)
        self._boxes.param.watch(self._picked, "value")
        self.view: list[Any] = [sidebar_label("Backends"), boxes]
        if given.unknown:
            switch = pmui.Switch(label="Assume 0 where the source is silent", value=bool(given.assume), size="small", margin=(0, 0, 10, 0))
            switch.param.watch(lambda e: self._choose("assume", *(("0",) if e.new else ())), "value")
            self.view.append(switch)
        if given.problems:
            self.view.append(html(message("Left out", "\n".join(given.problems), "warn"), margin=(0, 0, 10, 0)))

    def _picked(self, event: Any) -> None:
        names = tuple(n for n in self._names if n in event.new)
        self._choose("backends", *(names if names != tuple(b.label for b in DEFAULT_BACKENDS) else ()), *(() if names else ("",)))

    def _choose(self, name: str, *values: str) -> None:
        self._session.choose(name, *values)
        self._changed()


class Refresh:
    """Computes a page anew when one of its controls changes: a newer request replaces an older one, and the controls stay.

    Parameters
    ----------
    session : Session
        Whose workers compute.
    gather : callable
        That of the page.
    show : callable
        Shows its result in place.
    failed : callable
        Shows a message.
    """

    def __init__(
        self, session: Session, gather: Callable[[Workspace, Selection], Any], show: Callable[[Any], None], failed: Callable[[str], None]
    ) -> None:
        self._session, self._gather, self._show, self._failed = session, gather, show, failed
        self._job: Any = None

    def __call__(self) -> None:
        """Start."""
        if self._job is not None:
            self._job.cancel()
        workspace, selection = self._session.workspace, self._session.selection
        self._job = self._session.jobs.start(lambda: self._gather(workspace, selection), self._show, self._failed)
