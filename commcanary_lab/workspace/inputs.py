"""Which files of a workspace a comparison was made of: found by content, whatever their names are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from commcanary_lab.errors import LabError
from commcanary_lab.review.comparison_file import ComparisonFile
from commcanary_lab.review.latencies import latencies, latencies_sha256, matched
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace.folder import Workspace

__all__ = ["QUICK_BYTES", "inputs_of", "measured_traces"]

#: Traces up to this size open in less than a second; larger ones are not opened to look what they hold.
QUICK_BYTES = 16 << 20
_MAX_TRACES = 40


def measured_traces(workspace: Workspace) -> list[str]:
    """Return the traces of a workspace that hold measured latencies, by name; a large one counts without being opened."""
    large = [a.name for a in workspace.list("trace") if a.size_bytes > QUICK_BYTES]
    known = [name for name, trace in _opened(workspace) if trace.duration_max_ns.known_count]
    return sorted({*large, *known}, key=str.casefold)


def _opened(workspace: Workspace) -> Iterator[tuple[str, Trace]]:
    """Open the small traces; damaged ones have no say here."""
    for artifact in [a for a in workspace.list("trace") if a.size_bytes <= QUICK_BYTES][:_MAX_TRACES]:
        try:
            yield artifact.name, workspace.trace(artifact.name)
        except LabError:
            continue


def inputs_of(workspace: Workspace, comparison: ComparisonFile) -> tuple[str, str] | None:
    """Find baseline and candidate of a comparison.

    Parameters
    ----------
    workspace : Workspace
        Where to look.
    comparison : ComparisonFile
        It states the SHA-256 of both reports, or of the measured latencies of both traces.

    Returns
    -------
    (str, str) or None
        Names in the workspace; None where one of the two is not there.
    """
    return _reports(workspace, comparison) if comparison.kind == "reports" else _traces(workspace, comparison)


def _reports(workspace: Workspace, comparison: ComparisonFile) -> tuple[str, str] | None:
    by_hash: dict[str, str] = {}
    for artifact in workspace.list("report"):
        try:
            by_hash.setdefault(workspace.report(artifact.name).sha256, artifact.name)
        except LabError:  # a damaged report was not compared
            continue
    base, candidate = (by_hash.get(h) for h in (comparison.base_sha256, comparison.candidate_sha256))
    return (base, candidate) if base is not None and candidate is not None else None


def _traces(workspace: Workspace, comparison: ComparisonFile) -> tuple[str, str] | None:
    events: list[Any] = [comparison.document[side].get("events") for side in ("baseline", "candidate")]
    stated = (comparison.base_sha256, comparison.candidate_sha256)
    opened = [(name, trace) for name, trace in _opened(workspace) if len(trace) in events]
    tables = {name: latencies(trace) for name, trace in opened}
    for base, one in opened:
        for candidate, two in opened:
            if [len(one), len(two)] != events:
                continue
            a, b = matched(tables[base], tables[candidate])  # names of operations depend on the pair
            if (latencies_sha256(a), latencies_sha256(b)) == stated:
                return base, candidate
    return None
