"""Recompute a report, or any other document, and say where what it states is not what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import loads_strict
from commcanary_lab.errors import UnknownValueError
from commcanary_lab.simulate.report_file import ReportFile, parse_report, recompute_report
from commcanary_lab.trace.model import Trace

__all__ = ["Difference", "ReportCheck", "check_document", "verify_report"]


class _Absent:
    """Stands for a value that one of the two documents does not have; equal to no text that a document may hold."""


_ABSENT = _Absent()

#: What no recomputation can decide, because nothing follows from it.
_LABELS = {
    "backend.label": "the name of a configuration is chosen freely; its numbers are recomputed",
    "source.trace": "a file name is a label; the events are bound by workload.sha256",
}


@dataclass(frozen=True)
class Difference:
    """One leaf that differs: its path, what the document states, and what was recomputed."""

    path: str
    stated: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: stated {_text(self.stated)}, recomputed {_text(self.recomputed)}"


@dataclass(frozen=True)
class ReportCheck:
    """Outcome of a recomputation.

    Attributes
    ----------
    status : str
        ``recomputed`` or ``mismatch``.
    first_difference : Difference or None
        In the order of the document.
    leaves, differences : int
        Values compared, and those that differ.
    not_covered : mapping of str to str
        Paths that the document has and no recomputation decides, with the reason.
    """

    status: str
    first_difference: Difference | None
    leaves: int
    differences: int
    not_covered: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """True when every value came out as stated."""
        return self.status == "recomputed"

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return {
            "format": "commcanary_lab.check.v1",
            "status": self.status,
            "first_difference": None if self.first_difference is None else asdict(self.first_difference),
            "leaves": self.leaves,
            "differences": self.differences,
            "not_covered": [{"path": k, "reason": v} for k, v in self.not_covered.items()],
        }

    def __repr__(self) -> str:
        if self.first_difference is None:
            return f"ReportCheck({self.status}: {self.leaves:,} values)"
        return f"ReportCheck({self.status}: {self.differences:,} of {self.leaves:,} values; first {self.first_difference})"


def verify_report(report: ReportFile | Mapping[str, Any], source: Canary | Trace) -> ReportCheck:
    """Recompute a report bit for bit from its own protocol and compare every value.

    Parameters
    ----------
    report : ReportFile or mapping
        The report, read from a file or decoded from JSON.
    source : Canary or Trace
        What it was simulated from.

    Returns
    -------
    ReportCheck
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
    ReportCheck(recomputed: 39 values)
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
        return ReportCheck("mismatch", Difference("assumptions", stated["assumptions"], e.problems[0].what), 1, 1, {})
    return check_document(stated, again, _LABELS)


def _source(file: ReportFile, source: Canary | Trace) -> dict[str, str]:
    """What the report should state as its source: a file name as it is, a canary by its identity, nothing where it states nothing."""
    out = {k: v for k, v in file.source.items() if k == "trace"}
    if "canary" in file.source:
        out["canary"] = source.identity if isinstance(source, Canary) else "(a trace was given, not the canary)"
    return out


def check_document(stated: Any, recomputed: Any, labels: Mapping[str, str] | None = None) -> ReportCheck:
    """Compare two JSON values leaf by leaf, types and bits included.

    Parameters
    ----------
    stated, recomputed : JSON value
        The document, and what it should be.
    labels : mapping of str to str, optional
        Paths that nothing decides, with the reason; those present are listed in the result.

    Examples
    --------
    >>> check_document({"a": [1, 2.0]}, {"a": [1, 2]}).first_difference
    Difference(path='a[1]', stated=2.0, recomputed=2)
    """
    first, leaves, differences = None, 0, 0
    present = {}
    for path, a, b in _leaves(stated, recomputed, ""):
        leaves += 1
        if labels and path in labels:
            present[path] = labels[path]
        if type(a) is not type(b) or repr(a) != repr(b):  # by text, so that -0.0 is not 0.0
            differences += 1
            first = first or Difference(path, _shown(a), _shown(b))
    return ReportCheck("mismatch" if differences else "recomputed", first, leaves, differences, present)


def _leaves(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*b, *(k for k in a if k not in b)]:
            yield from _leaves(a.get(key, _ABSENT), b.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(a, list) and isinstance(b, list):
        for i in range(max(len(a), len(b))):
            yield from _leaves(a[i] if i < len(a) else _ABSENT, b[i] if i < len(b) else _ABSENT, f"{path}[{i}]")
    else:
        yield path, a, b


def _shown(value: Any) -> Any:
    return "(absent)" if value is _ABSENT else value


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
