"""Recompute a report from its protocol, and say where what it states is not what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import loads_strict
from commcanary_lab.errors import UnknownValueError
from commcanary_lab.simulate.report_file import ReportFile, parse_report, recompute_report
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.documents import Difference, DocumentCheck, check_document

__all__ = ["NOT_COVERED", "verify_report"]

#: What no recomputation can decide, because nothing follows from it.
NOT_COVERED = {
    "backend.label": "the name of a configuration is chosen freely; its numbers are recomputed",
    "source.trace": "a file name is a label; the events are bound by workload.sha256",
}


def verify_report(report: ReportFile | Mapping[str, Any], source: Canary | Trace) -> DocumentCheck:
    """Recompute a report bit for bit from its own protocol and compare every value.

    Parameters
    ----------
    report : ReportFile or mapping
        The report, read from a file or decoded from JSON.
    source : Canary or Trace
        What it was simulated from.

    Returns
    -------
    DocumentCheck
        ``mismatch`` if a metric, a breakdown, a sample, the calibration, the protocol or the identity of the source differs.

    Raises
    ------
    FormatError
        If the report is not a valid report.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> canary = lab.compile(lab.samples.adversarial())
    >>> report = lab.simulate(canary).to_json()
    >>> verify_report(report, canary)
    DocumentCheck(recomputed: 39 values)
    >>> report["metrics"]["p99_us"] = 200.0
    >>> verify_report(report, canary).first_difference
    Difference(path='metrics.p99_us', stated=200.0, recomputed=263.601)
    """
    file = report if isinstance(report, ReportFile) else parse_report(dict(report))
    stated = loads_strict(file.canonical)
    trace = source.trace if isinstance(source, Canary) else source
    try:
        again = recompute_report(file, trace, source=_source(file, source), samples="samples" in stated)
    except UnknownValueError as e:
        return DocumentCheck("mismatch", Difference("assumptions", stated["assumptions"], e.problems[0].what), 1, 1, {})
    return check_document(stated, again, NOT_COVERED)


def _source(file: ReportFile, source: Canary | Trace) -> dict[str, str]:
    """What the report should state as its source: a file name as it is, a canary by its identity, nothing where it states nothing."""
    out = {k: v for k, v in file.source.items() if k == "trace"}
    if "canary" in file.source:
        out["canary"] = source.identity if isinstance(source, Canary) else "(a trace was given, not the canary)"
    return out
