"""Canary: what it runs, how exact it is, what it proves and what it reveals."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import LabError
from commcanary_lab.trace.model import ImportCoverage
from commcanary_lab.units import format_bytes, format_us
from commcanary_lab.verify.model import Verification
from commcanary_lab.verify.run import verify_canary
from commcanary_lab.views.commitments import commitments_card, disclosure_card
from commcanary_lab.views.error_bounds import errors, field_bounds, steps_card
from commcanary_lab.views.import_coverage import notes_html
from commcanary_lab.views.loop_nest import program
from commcanary_lab.views.markup import Figure, html, message, title_html
from commcanary_lab.views.status_chips import checks_card, chips_html
from commcanary_lab.views.theme import paper
from commcanary_lab.views.verification_matrix import matrix_card
from commcanary_lab.workspace import Workspace

from ..compile_panel import CompilePanel
from ..page import Built, PageSpec, Selection, columns, empty, failure, head
from ..session import Session

__all__ = ["PAGE"]


@dataclass(frozen=True)
class Data:
    """The canary, and its verification against the open trace where that is its source."""

    name: str
    canary: Canary | None
    trace_name: str | None
    verification: Verification | None
    why_not: str
    problem: str = ""
    coverage: ImportCoverage | None = None


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Open the canary and verify it against the open trace."""
    if selection.canary is None:
        return Data("", None, selection.trace, None, "")
    try:
        canary = workspace.canary(selection.canary)
        _ = canary.size_bytes, canary.records, canary.by_step
    except LabError as e:
        return Data(selection.canary, None, selection.trace, None, "", str(e))
    try:
        check = _verified(workspace, selection, canary)
        return Data(
            selection.canary,
            canary,
            selection.trace,
            check if isinstance(check, Verification) else None,
            check if isinstance(check, str) else "",
            coverage=workspace.trace(selection.trace).coverage if selection.trace is not None else None,
        )
    except LabError as e:
        return Data(selection.canary, canary, selection.trace, None, str(e))


def _verified(workspace: Workspace, selection: Selection, canary: Canary) -> Verification | str:
    """Verify, unless the open trace cannot be the source."""
    if selection.trace is None:
        return "No trace is open. Open the source of this canary to verify it."
    trace = workspace.trace(selection.trace)
    if len(trace) != canary.source.events:
        return (
            f"{selection.trace} has {len(trace):,} events, the source of this canary had {canary.source.events:,}. "
            "Open the trace that the canary was compiled from to verify it."
        )
    return workspace.derived(selection.trace, f"verify {canary.identity}", lambda: verify_canary(trace, canary))


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    controls = CompilePanel(session)
    if data.canary is None:
        state = (
            failure(f"{data.name} cannot be opened", data.problem)
            if data.problem
            else empty("No canary is open", "Choose one at the left, or compile the open trace with the controls at the left.")
        )
        return Built([controls.progress, state], [controls.view])
    c = data.canary
    check = (
        paper(html(chips_html(data.verification)))
        if data.verification is not None
        else paper(
            html(
                title_html("Verification", "Statuses are recomputed from the source")
                + f'<div style="height:10px"></div>{message("Not verified here", data.why_not)}'
            )
        )
    )
    notes = notes_html(c.notes, ())
    v = data.verification
    checks = [matrix_card(v, coverage=data.coverage), checks_card(v)] if v is not None and v.checks else []
    tail = [paper(html(notes))] if notes else []
    top = head(_crumb(data), _answer(data), _figures(c))
    bounds = columns([errors(c)], [disclosure_card(c)], 54)
    return Built([controls.progress, top, check, program(c), bounds, steps_card(c), commitments_card(c), *checks, *tail], [controls.view])


def _crumb(data: Data) -> str:
    c = data.canary
    assert c is not None
    return f"{data.name} · from {c.source.format} · SHA-256 {c.identity[:12]}"


def _answer(data: Data) -> str:
    c = data.canary
    assert c is not None
    part = "" if c.source.is_whole else f" It stands for {c.event_count:,} of the source's {c.source.events:,} events."
    size = f"<b>{format_bytes(c.size_bytes)}</b> stand for {c.event_count:,} events ({format_bytes(c.source.size_bytes)})"
    if c.timing == "lossless":
        exact = "every value exact"
    else:
        worst = next((b for b in field_bounds(c) if b.field == "clock_ns"), None)
        exact = f"no event more than <b>{format_us(worst.largest)}</b> off its time" if worst else "within stated bounds"
    claims = {
        "verified": "The canary <b>answers like its source</b>: every status passes.",
        "partial": "It verifies, for the part of the source that it stands for.",
        "unverified": "Its behaviour is <b>unverified</b>: something was assumed.",
        "refused": "It does <b>not</b> answer like its source; see the failed status.",
    }
    claim = claims.get(data.verification.claim, "") if data.verification is not None else ""
    return f"{size}, {exact}.{part} {claim}"


def _figures(c: Canary) -> list[Figure]:
    return [
        Figure(
            "Byte ratio",
            f"{_ratio(c.byte_ratio)} ×",
            f"{format_bytes(c.source.size_bytes)} to {format_bytes(c.size_bytes)}, canonical JSON",
        ),
        Figure(
            "Event ratio", f"{_ratio(c.event_ratio)} ×", f"{c.event_count:,} events in {c.records:,} timing record{'s' * (c.records != 1)}"
        ),
        Figure("Canary", format_bytes(c.size_bytes), "canonical bytes, counted"),
        Figure("Source", format_bytes(c.source.size_bytes), f"{c.source.records_used:,} of {c.source.records_read:,} source records"),
    ]


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


PAGE = PageSpec("canary", "Canary", "", gather, build, first=5)
