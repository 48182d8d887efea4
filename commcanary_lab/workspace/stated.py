"""What documents of this package say about themselves at their top level, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from commcanary_lab.units import format_bytes, format_us

__all__ = ["CANARY", "COMPARISON", "DDMIN_LEDGER", "MARK", "REPORT", "SEARCH_LEDGER", "SIGNOFF", "Stated", "described"]

#: Every format name of this package begins like this.
MARK = b"commcanary_lab."

# Written out, because a listing must not wait for the packages that write these files; a test compares them with the writers.
CANARY = "commcanary_lab.canary.v1"
REPORT = "commcanary_lab.report.v1"
COMPARISON = "commcanary_lab.comparison.v1"
SIGNOFF = "commcanary_lab.signoff.v1"
SEARCH_LEDGER = "commcanary_lab.search_ledger.v1"
DDMIN_LEDGER = "commcanary_lab.ddmin_ledger.v1"

_TIMINGS = {"lossless": "lossless canary", "bounded_approximate": "bounded canary"}


class Stated(msgspec.Struct):
    """Top-level fields that summaries use. They are not checked here: a damaged file keeps its kind, and opening it says what is wrong.

    Formats of sources that a document mentions stand deeper.
    """

    format: Any = None
    timing: Any = None
    backend: Any = None
    metrics: Any = None
    protocol: Any = None
    workload: Any = None
    kind: Any = None
    verdict: Any = None
    decision: Any = None
    candidate: Any = None
    events_before: Any = None
    events_after: Any = None
    decisions_kept: Any = None
    decisions_total: Any = None
    candidates: Any = None
    accepted: Any = None
    canary_bytes: Any = None


def described(stated: Stated) -> tuple[str, str] | None:
    """Return kind and summary of a document; None if its format is none of this package.

    Examples
    --------
    >>> described(Stated(format=COMPARISON, kind="reports", verdict="fail"))
    ('comparison', 'comparison of two reports: fail')
    >>> described(Stated(format=DDMIN_LEDGER, events_before=2015, events_after=41, decisions_kept=40, decisions_total=40))
    ('ledger', 'ddmin ledger: 41 of 2,015 events keep 40 of 40 decisions')
    >>> described(Stated(format=REPORT)), described(Stated(format="commcanary.trace.v1"))
    (('report', 'report'), None)
    """
    found = _DOCUMENTS.get(stated.format) if isinstance(stated.format, str) else None
    if found is None:
        return None
    kind, words, summary = found
    try:
        return kind, summary(stated)
    except (TypeError, ValueError, KeyError, AttributeError):  # not what the format says: opening names the field
        return kind, words


def _canary(s: Stated) -> str:
    return _TIMINGS.get(s.timing, "canary")


def _report(s: Stated) -> str:
    removed = s.protocol["ablations"]
    without = f" without {', '.join(removed)}" if removed else ""
    return f"report: {s.backend['label']}{without}, {s.workload['events']:,} events, p99 {format_us(s.metrics['p99_us'])}"


def _comparison(s: Stated) -> str:
    what = {"reports": "two reports", "measured": "two measured traces"}[s.kind]
    return f"comparison of {what}: {s.verdict:s}"


def _signoff(s: Stated) -> str:
    words = {"approve": "approved", "reject": "rejected", "needs_data": "more data wanted"}[s.decision]
    return f"sign-off of {s.candidate['name']:.80s}: {words}, the verdict was {s.verdict:s}"


def _search(s: Stated) -> str:
    count, size = len(s.candidates), "none passed" if s.canary_bytes is None else f"the smallest {format_bytes(s.canary_bytes)}"
    return f"search ledger: {s.accepted:,} of {count:,} candidates pass, {size}"


def _ddmin(s: Stated) -> str:
    kept = f"{s.events_after:,} of {s.events_before:,} events keep"
    return f"ddmin ledger: {kept} {s.decisions_kept:,} of {s.decisions_total:,} decisions"


#: Kind, words for a damaged document, and what a whole one says about itself.
_DOCUMENTS: dict[str, tuple[str, str, Callable[[Stated], str]]] = {
    CANARY: ("canary", "canary", _canary),
    REPORT: ("report", "report", _report),
    COMPARISON: ("comparison", "comparison", _comparison),
    SIGNOFF: ("signoff", "sign-off", _signoff),
    SEARCH_LEDGER: ("ledger", "search ledger", _search),
    DDMIN_LEDGER: ("ledger", "ddmin ledger", _ddmin),
}
