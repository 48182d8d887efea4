"""The open trace's matrix against those of other artifacts: the choice at the left, and the card that follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.errors import LabError
from commcanary_lab.traffic import TrafficMatrix, build_matrix
from commcanary_lab.traffic.sources import SourceComparison, compare_sources
from commcanary_lab.views.markup import html, message, title_html
from commcanary_lab.views.sources_table import sources
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact, Workspace

from ..deferred import Progress, deferred
from ..jobs import Job
from ..page import Selection
from ..session import Session, sidebar_label
from ..timers import after

__all__ = ["Against", "AgainstCard", "Compared", "compare", "gather_against", "matrix_of", "offered"]

#: Artifacts up to this size together are compared at once; larger ones in the background, where nobody waits for them.
_AT_ONCE_BYTES = 16 << 20
#: Those that the page itself may wait for.
_WITH_PAGE_BYTES = 2 << 20
_SETTLE_S = 0.35


@dataclass(frozen=True)
class Compared:
    """Sources that have a matrix, and why others have none."""

    sources: SourceComparison
    failed: Mapping[str, str]


@dataclass(frozen=True)
class Against:
    """What can be compared with the open trace, what is chosen, and the comparison where it took no time."""

    name: str
    matrix: TrafficMatrix
    workspace: Workspace
    offered: tuple[str, ...]
    chosen: tuple[str, ...]
    compared: Compared | None


def gather_against(workspace: Workspace, selection: Selection, name: str, matrix: TrafficMatrix) -> Against:
    """List what can be compared, and compare what the address names where that is small; runs in a worker."""
    listed = offered(name, workspace.list())
    chosen = tuple(n for n in dict.fromkeys(selection.options.get("against", ())) if n != name)
    lost = tuple(n for n in chosen if n not in listed)  # stays on the list, so that it can be taken off
    quick = bool(chosen) and _size(workspace, chosen) <= _WITH_PAGE_BYTES
    found = compare(workspace, name, matrix, chosen) if quick else None
    return Against(name, matrix, workspace, (*lost, *listed), chosen, found)


def offered(name: str, artifacts: list[Artifact]) -> tuple[str, ...]:
    """Return traces and canaries to compare a trace with: its canaries, its other sources, other traces, other canaries.

    Examples
    --------
    >>> kinds = {"a.canary.json": "canary", "b.json": "trace", "b.report.json": "report", "c.json": "trace", "c.x.canary.json": "canary"}
    >>> offered("c.json", [Artifact(n, k, 1, "") for n, k in kinds.items()])
    ('c.x.canary.json', 'b.json', 'a.canary.json')
    """
    stem = name.split(".")[0]

    def place(artifact: Artifact) -> tuple[bool, bool]:
        other = artifact.name.split(".")[0] != stem
        return (other, (artifact.kind == "trace") == (not other))

    found = [a for a in artifacts if a.kind in ("trace", "canary") and a.name != name]
    return tuple(a.name for a in sorted(found, key=place))


def matrix_of(workspace: Workspace, name: str) -> TrafficMatrix:
    """Return the matrix of a trace, or of the program of a canary, with the default algorithms.

    Raises
    ------
    LabError
        If there is none of that name, it is damaged, or nothing of it can be attributed.
    """

    def matrix() -> TrafficMatrix:
        if workspace.get(name).kind == "canary":
            m = replace(build_matrix(workspace.canary(name).trace), source="program of a canary")
        else:
            m = build_matrix(workspace.trace(name))
        _ = m.cells, m.sum_bytes  # computed here, not while a page is drawn
        return m

    return workspace.derived(name, "matrix", matrix)


def compare(
    workspace: Workspace, name: str, matrix: TrafficMatrix, chosen: tuple[str, ...], tell: Callable[[str, int, int], None] | None = None
) -> Compared:
    """Build the matrices of what is chosen and compare them with that of the open trace; one that has none says why."""
    matrices, failed = {name: matrix}, {}
    for done, other in enumerate(chosen):
        if tell is not None:
            tell(f"Attributing the traffic of {other}", done, len(chosen))
        try:
            matrices[other] = matrix_of(workspace, other)
        except LabError as e:
            failed[other] = str(e)
    found = compare_sources(matrices)
    for row in found.rows:
        _ = row.difference.cells  # likewise
    return Compared(found, failed)


def _size(workspace: Workspace, names: tuple[str, ...]) -> int:
    sizes = {a.name: a.size_bytes for a in workspace.list()}
    return sum(sizes.get(n, 0) for n in names)


class AgainstCard:
    """The choice and the card.

    Parameters
    ----------
    given : Against
        From `gather_against`.
    session : Session
        Whose address keeps the choice, and whose workers compare.
    """

    def __init__(self, given: Against, session: Session) -> None:
        self._given, self._session = given, session
        self._job: Job | None = None
        self._put_at, self._latest = 0.0, 0
        self._boxes = pmui.CheckBoxGroup(
            label="", options=list(given.offered), value=list(given.chosen), size="small", margin=0, sizing_mode="stretch_width"
        )
        self.view = pn.Column(sizing_mode="stretch_width", margin=0, visible=False)
        self.invitation = self._invitation()
        scroll = {"max-height": "260px", "overflow-y": "auto"}
        boxes = pn.Column(self._boxes, sizing_mode="stretch_width", margin=(0, 0, 10, 0), styles=scroll)
        self.controls: list[Any] = [sidebar_label("Compare with", margin=(14, 0, 4, 0)), boxes] if given.offered else []
        if given.compared is not None:
            self._show(given.compared)
        else:
            self._start(given.chosen)
        self._boxes.param.watch(lambda e: self._picked(tuple(n for n in given.offered if n in e.new)), "value")

    def _picked(self, chosen: tuple[str, ...]) -> None:
        self._session.choose("against", *chosen)
        self._start(chosen)

    def _start(self, chosen: tuple[str, ...]) -> None:
        """Compare; a newer choice replaces an older one."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        if not chosen:
            self._put(None)
            return
        g = self._given
        if _size(g.workspace, chosen) <= _AT_ONCE_BYTES:
            self._job = self._session.jobs.start(lambda: compare(g.workspace, g.name, g.matrix, chosen), self._show, self._failed)
            return

        def work(progress: Progress) -> Compared:
            def tell(text: str, done: int, total: int) -> None:
                progress.check()
                progress.tell(text, done, total)

            return compare(g.workspace, g.name, g.matrix, chosen, tell)

        stamps = [(a.name, a.stamp) for a in g.workspace.list() if a.name in (g.name, *chosen)]
        part = deferred(
            self._session, f"against {stamps!r} {chosen!r}", "Against other sources",
            "These sources are large: their traffic is attributed in the background.", "Compare them", work, _card,
        )  # fmt: skip
        part.start()
        self._put(part.view)

    def _show(self, found: Compared) -> None:
        self._put(_card(found))

    def _failed(self, text: str) -> None:
        self._put(paper(html(message("This was not compared", text, "err"))))

    def _put(self, card: Any) -> None:
        """Exchange the card, but never while the browser may still be building the last one: then children get lost."""
        self._latest = mine = self._latest + 1
        wait_s = self._put_at + _SETTLE_S - time.monotonic()
        if wait_s <= 0:
            self._exchange(card)
        else:
            after(int(1000 * wait_s) + 1, lambda: self._exchange(card) if self._latest == mine else None)

    def _exchange(self, card: Any) -> None:
        self._put_at = time.monotonic()
        self.view[:] = [] if card is None else [card]
        self.view.visible, self.invitation.visible = card is not None, card is None

    def _invitation(self) -> Any:
        offered = self._given.offered
        text = (
            f"Does another source of this job, or a canary, send the same? Choose at the left what to compare with, such as {offered[0]}."
            if offered
            else "The workspace has no other trace and no canary to compare with. Upload one on the Overview page, or compile one."
        )
        return paper(html(title_html("Against other sources", text)))


def _card(found: Compared) -> Any:
    return sources(found.sources, failed=found.failed)
