"""Upload on the screen: where files are dropped, and what became of each, with what the importer read, used and skipped."""

from __future__ import annotations

from html import escape
from typing import Any

import panel as pn
import panel_material_ui as pmui

from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_bytes
from commcanary_lab.views.import_coverage import coverage_html, notes_html
from commcanary_lab.views.markup import html, message, rows_html
from commcanary_lab.workspace import Outcome, Staging
from commcanary_lab.workspace.upload import MAX_FILES, MAX_UPLOAD_BYTES

from .drop_zone import DropZone, Receiver
from .session import Session

__all__ = ["UploadPanel", "outcome_html"]

#: Traces whose import coverage is written out; of more, one line each.
_MAX_SHOWN = 4


class UploadPanel:
    """The place for files and the outcome of the last upload."""

    def __init__(self, session: Session) -> None:
        self.session = session
        limits = (
            f"Traces, profiles of any rank, canaries, reports, ledgers. Up to {format_bytes(MAX_UPLOAD_BYTES)} each, {MAX_FILES} at once."
        )
        self._receiver = Receiver(session.workspace, lambda m: self.zone._send_msg(m), self._arrived)
        self.zone = DropZone(self._receiver.received, hint=limits, sizing_mode="stretch_width", margin=0)
        self.together = pmui.Checkbox(
            label="Files of several ranks become one trace, where they merge",
            value=True,
            size="small",
            margin=(4, 0, 0, -8),
        )
        self._outcome = html("", margin=(10, 0, 0, 0), visible=False)
        why = session.visitor.why_not
        place = [html(f'<p class="muted">Uploads are for operators. {escape(why)}.</p>')] if why else [self.zone, self.together]
        self.view = pn.Column(*place, self._outcome, sizing_mode="stretch_width", margin=(6, 0, 0, 0))
        if pn.state.curdoc is not None:
            pn.state.on_session_destroyed(lambda _: self._receiver.close())

    def _arrived(self, staging: Staging | None, refused: list[Outcome]) -> None:
        if staging is None:
            self._done(refused)
            return
        together = bool(self.together.value)
        self.session.jobs.start(
            lambda: staging.commit(together=together),
            lambda outcomes: self._done([*outcomes, *refused]),
            lambda text: self._done([Outcome(tuple(staging.names), problem=text), *refused]),
            long=True,
        )

    def _done(self, outcomes: list[Outcome]) -> None:
        self._receiver.finished()
        self._tell(outcome_html(outcomes))
        added = [o for o in outcomes if o.name]
        if added:
            self.session.open(added[0].name)
            self.session.changed()

    def clear(self) -> None:
        """Forget the outcome."""
        self._tell("")

    def _tell(self, content: str) -> None:
        """One pane whose text changes: exchanging children while the browser still builds the last ones can lose the new ones."""
        self._outcome.object = f'<div class="cl" data-testid="uploaded">{content}</div>'
        self._outcome.visible = bool(content)


def outcome_html(outcomes: list[Outcome]) -> str:
    """Return what became of uploaded files.

    Examples
    --------
    >>> outcome_html([Outcome(("a.txt",), problem="FormatError: a.txt: no known format; export it again")])  # doctest: +ELLIPSIS
    '<div class="box err" role="alert"><div class="bt">a.txt was not added</div>...'
    """
    out = []
    for o in outcomes:
        named = o.files[0] if len(o.files) == 1 else f"{len(o.files)} files"
        if o.problem:
            out.append(message(f"{named or 'The upload'} was not added", o.problem, "err"))
        elif not o.name:
            out.append(message("Added one by one", o.note, "warn"))
    traces = [o for o in outcomes if o.trace is not None]
    for o in traces[:_MAX_SHOWN]:
        assert o.trace is not None
        out.append(_added(o, coverage_html(o.trace) + _notes(o.trace)))
    rest = [o for o in outcomes if o.name and o not in traces[:_MAX_SHOWN]]
    if rest:
        listed = [(o.name, o.kind, _coverage(o.trace)) for o in rest]
        out.append(_box(f"Added: {len(rest)} more" if traces else "Added", rows_html(["Name", "Kind", "Records used"], listed)))
    return f'<div style="display:grid;gap:10px">{"".join(out)}</div>' if len(out) > 1 else "".join(out)


def _added(o: Outcome, inside: str) -> str:
    title = o.note if o.note else f"{o.name} was added"
    return _box(title, inside)


def _notes(trace: Trace) -> str:
    notes = notes_html(trace.notes[:6], trace.warnings)
    return f'<div style="margin-top:12px">{notes}</div>' if notes else ""


def _box(title: str, inside: str) -> str:
    return f'<div class="box" role="status"><div class="bt" style="margin-bottom:8px">{escape(title)}</div>{inside}</div>'


def _coverage(trace: Any) -> str:
    return "" if trace is None else f"{trace.coverage.used:,} of {trace.coverage.read:,}"
