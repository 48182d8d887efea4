"""Overview: what the open trace holds, what of the source it covers, and the workspace."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from html import escape

from commcanary_lab.inspect import OperationTable, ops
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.timing import clock_ns, timing_mode
from commcanary_lab.units import format_bytes, format_ns, format_us
from commcanary_lab.views.import_coverage import coverage_html, notes_html
from commcanary_lab.views.markup import Figure, coverage_text, html, percent
from commcanary_lab.views.operations import shares_card, table_card
from commcanary_lab.views.theme import paper
from commcanary_lab.workspace import Artifact, Workspace

from ..page import Built, PageSpec, Selection, columns, failure, head
from ..samples_offer import SamplesOffer
from ..session import Session
from ..workspace_panel import WorkspacePanel

__all__ = ["PAGE"]


@dataclass(frozen=True)
class Data:
    """What the page shows; `problem` when the trace cannot be opened."""

    artifact: Artifact | None
    trace: Trace | None
    operations: OperationTable | None
    span_ns: int | None
    problem: str = ""


def gather(workspace: Workspace, selection: Selection) -> Data:
    """Open the trace and tabulate it."""
    from commcanary_lab.errors import LabError

    if selection.trace is None:
        return Data(None, None, None, None)
    try:
        trace = workspace.trace(selection.trace)
        table = workspace.derived(selection.trace, "ops", lambda: ops(trace))
        return Data(workspace.get(selection.trace), trace, table, span_ns(trace))
    except LabError as e:  # the list of artifacts must stay reachable
        return Data(None, None, None, None, str(e))


def span_ns(trace: Trace) -> int | None:
    """Return the time from the first event to the end of the last one, as far as ends were measured; None without times."""
    if not len(trace) or timing_mode(trace) == "none":
        return None
    return int((clock_ns(trace) + trace.duration_max_ns.values).max())


def build(data: Data, session: Session) -> Built:
    """Make the page."""
    folder = workspace_panel(session)
    if data.trace is None or data.operations is None or data.artifact is None:
        state = failure(f"{session.trace} cannot be opened", data.problem) if data.problem else SamplesOffer(session).view
        return Built([state, folder.view, *([folder.provenance.view] if folder.has_artifacts else [])])
    trace, table = data.trace, data.operations
    notes = notes_html(trace.notes, trace.warnings)
    left = [shares_card(table)]
    right = [paper(html(coverage_html(trace)))]
    (right if len(left) >= len(right) else left).append(paper(html(notes))) if notes else None
    crumb = f"{data.artifact.name} · {trace.source_format} · {format_bytes(data.artifact.size_bytes)} on disk"
    return Built([
        head(crumb, _answer(trace, table), _figures(trace, table, data.span_ns)),
        columns(left, right, 58),
        table_card(table),
        folder.provenance.view,
        folder.view,
    ])  # fmt: skip


def workspace_panel(session: Session) -> WorkspacePanel:
    """Return the panel of this visitor: one for all visits of the page, so that the outcome of an upload stays."""
    if session.folder is None:
        session.folder = WorkspacePanel(session)
    session.folder.refresh()
    return session.folder


def _answer(trace: Trace, table: OperationTable) -> str:
    if not len(trace):
        unsized = f" {len(trace.unsized):,} collectives lack size or members and count as time only." if trace.unsized else ""
        return f"The source has <b>no collective with a known size and members</b>.{unsized}"
    groups = len({int(g) for g in set(trace.group.tolist())})
    first = f"<b>{len(trace):,} collectives</b> of {len(trace.ranks):,} rank{_s(len(trace.ranks))} in {groups:,} process group{_s(groups)}."
    amounts: dict[str, float] = defaultdict(float)
    timed = table.measured > 0
    for r in table.rows:
        amounts[r.op] += (0.0 if math.isnan(r.share) else r.share) if timed else float(r.total_bytes)
    total = sum(amounts.values())
    if not total:
        return first
    name, most = max(amounts.items(), key=lambda kv: (kv[1], kv[0]))
    whole = "the measured communication time" if timed else "the bytes; the source measured no times"
    return f"{first} <b>{escape(name)}</b> takes {percent(most / total)} of {whole}."


def _s(n: int) -> str:
    return "" if n == 1 else "s"


def _figures(trace: Trace, table: OperationTable, span: int | None) -> list[Figure]:
    payload = int(trace.size_bytes.sum())
    skew = trace.skew_ns
    known = skew.values[skew.mask & (trace.group_sizes > 1)]
    out = [
        Figure("Events", f"{len(trace):,}", coverage_text(trace.coverage)),
        Figure("Payload", format_bytes(payload), "B summed over events"),
        Figure("Span", "unknown" if span is None else format_ns(span), trace.origin if span is not None else "the source has no times"),
    ]
    if table.measured:
        out.append(Figure("Communication", format_us(table.communication_us), f"{table.origin}, over reporting ranks"))
    else:
        out.append(Figure("Communication", "unknown", "no measured durations"))
    if len(known):
        import numpy as np

        out.append(Figure("Arrival skew, median", format_ns(float(np.median(known))), f"{_skew_origin(trace)}, {len(known):,} events"))
    else:
        out.append(Figure("Arrival skew", "unknown", "no arrivals per rank"))
    return out


def _skew_origin(trace: Trace) -> str:
    return "assumed clocks" if any("arrival skew is an estimate" in n for n in trace.notes) else trace.origin


PAGE = PageSpec("overview", "Overview", "", gather, build, first=2)
