"""The result of comparing two reports: a verdict with reasons, every evaluation, and a document that can be recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from commcanary_lab._shown import Shown
from commcanary_lab.errors import FormatError, LabError, Problem
from commcanary_lab.review.evaluate import SEVERITY, Evaluation
from commcanary_lab.review.policy import Policy
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.verify.documents import Difference, DocumentCheck, check_document

if TYPE_CHECKING:
    import pandas as pd

    from commcanary_lab.trace.model import Trace

__all__ = ["FORMAT", "Comparison", "Evaluation", "Incompatibility", "percent", "with_sign", "verify_comparison"]

FORMAT = "commcanary_lab.comparison.v1"


@dataclass(frozen=True)
class Incompatibility:
    """Something in which two reports must agree and do not."""

    what: str
    baseline: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.what}: {self.baseline} against {self.candidate}"


@dataclass(frozen=True)
class Comparison(Shown):
    """Two reports under a policy.

    Attributes
    ----------
    verdict : str
        ``pass``, ``warn`` or ``fail``.
    reasons : tuple of str
        One sentence for each value outside the policy, or one that says there is none.
    evaluations : tuple of Evaluation
        Every value against its threshold.
    policy : Policy
        The thresholds.
    incompatibilities : tuple of Incompatibility
        In what the reports differ that they should share; empty unless the caller allowed it.
    allow_incompatible : bool
        True where incompatible reports were compared because that was allowed.
    base, candidate : ReportFile
        Both reports.
    """

    verdict: str
    reasons: tuple[str, ...]
    evaluations: tuple[Evaluation, ...]
    policy: Policy
    incompatibilities: tuple[Incompatibility, ...]
    allow_incompatible: bool
    base: ReportFile = field(repr=False)
    candidate: ReportFile = field(repr=False)

    @property
    def passed(self) -> bool:
        """True unless the verdict is ``fail``."""
        return self.verdict != "fail"

    @property
    def deltas(self) -> dict[str, float | None]:
        """Relative changes in percent and the change of the hidden share in points; None where the baseline is 0 or absent."""
        return {e.key: e.delta for e in self.evaluations}

    @property
    def headline(self) -> str:
        """The verdict and the largest changes in one sentence."""
        overall = [e for e in self.evaluations if e.scope == "overall" and not e.is_hidden_share]
        parts = [f"{e.label} {percent(e.change)}" for e in reversed(overall)]
        phases = [e for e in self.evaluations if e.scope == "phase" and e.metric == "p99"]
        parts += [f"{e.label} {percent(e.change)}" for e in phases[:4]]
        return f"{self.verdict}: {', '.join(parts)}"

    def where(self, scope: str) -> tuple[Evaluation, ...]:
        """Return the p99 evaluations of a scope (``phase`` or ``operation``), the largest growth first."""
        return tuple(e for e in self.evaluations if e.scope == scope and e.metric == "p99")

    def __repr__(self) -> str:
        return f"Comparison({self.headline})"

    @cached_property
    def df(self) -> pd.DataFrame:
        """The evaluations as a pandas table; latencies in microseconds, the hidden share in percent."""
        import pandas as pd

        return pd.DataFrame([asdict(e) for e in self.evaluations], columns=list(Evaluation.__dataclass_fields__))

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "format": FORMAT,
            "kind": "reports",
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "deltas": self.deltas,
            "evaluations": [e.to_json() for e in self.evaluations],
            "thresholds": self.policy.to_json("reports"),
            "policy_sha256": self.policy.sha256("reports"),
            "compatibility": {
                "compatible": not self.incompatibilities,
                "allowed": self.allow_incompatible,
                "differences": [asdict(i) for i in self.incompatibilities],
            },
            "baseline": _side(self.base),
            "candidate": _side(self.candidate),
        }

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        rows = ((e.scope, e.label, e.baseline, e.candidate, percent(e.change, " points" if e.is_hidden_share else " %"), e.threshold_result)
                for e in self.evaluations)  # fmt: skip
        headers = ["scope", "value", "baseline", "candidate", "change", "result"]
        return table_html(self.headline, headers, rows, len(self.evaluations), self.reasons)


def _side(report: ReportFile) -> dict[str, Any]:
    return {
        "sha256": report.sha256,
        "workload_sha256": report.workload_sha256,
        "events": report.events,
        "backend": asdict(report.backend),
        "model": report.model,
        "ablations": list(report.ablations),
        "assumptions": [{"field": k, "value": v} for k, v in report.assumptions.items()],
        "notes": list(report.notes),
    }


def percent(value: float | None, unit: str = " %") -> str:
    """Format a change with its sign.

    Examples
    --------
    >>> percent(40.41), percent(-3.0), percent(None)
    ('+40.4 %', '-3.0 %', 'not defined')
    """
    return "not defined" if value is None else f"{value:+.1f}{unit}"


def with_sign(value: float | None, unit: str = " %") -> str:
    """Format a change with its sign for a page: as `percent`, with a minus sign instead of a hyphen.

    Examples
    --------
    >>> with_sign(-3.0)
    '−3.0 %'
    """
    return percent(value, unit).replace("-", "−")


def verify_comparison(
    document: Mapping[str, Any], base: ReportFile | Trace, candidate: ReportFile | Trace, policy: Policy | None = None
) -> DocumentCheck:
    """Recompute a comparison from its two inputs and its policy, and compare every value.

    Parameters
    ----------
    document : mapping
        A decoded comparison.
    base, candidate : ReportFile or Trace
        The inputs, in the same order.
    policy : Policy, optional
        The policy that was agreed on. Without it the thresholds are those that the document states, and a comparison under any
        policy is a true one.

    Returns
    -------
    DocumentCheck
        ``recomputed``, or ``mismatch`` with the first difference.

    Raises
    ------
    FormatError
        If the document is no comparison.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.review import compare
    >>> trace = lab.samples.adversarial()
    >>> a, b = (ReportFile.of(lab.simulate(trace, name)) for name in ("baseline", "high_bandwidth"))
    >>> document = compare(a, b).to_json()
    >>> document["deltas"]["p99_pct"] = 1.5
    >>> verify_comparison(document, a, b).first_difference
    Difference(path='deltas.p99_pct', stated=1.5, recomputed=18.35)
    """
    from commcanary_lab.review.compare import compare
    from commcanary_lab.review.measured import compare_measured

    if document.get("format") != FORMAT:
        raise FormatError(f"is {document.get('format')!r}, expected {FORMAT}", field="format", remedy="give the output of compare --json")
    policy = _policy(document) if policy is None else policy
    again: dict[str, Any]
    try:
        if isinstance(base, ReportFile) and isinstance(candidate, ReportFile):
            compatibility = document.get("compatibility")
            allowed = isinstance(compatibility, Mapping) and compatibility.get("allowed") is True
            again = compare(base, candidate, policy, allow_incompatible=allowed).to_json()
        elif not isinstance(base, ReportFile) and not isinstance(candidate, ReportFile):
            again = compare_measured(base, candidate, policy).to_json()
        else:
            raise FormatError("one input is a report and the other a trace", remedy="give what was compared")
    except FormatError:
        raise
    except LabError as e:
        return DocumentCheck("mismatch", Difference("compatibility", document.get("compatibility"), e.problems[0].what), 1, 1, {})
    return check_document(dict(document), again)


def _policy(document: Mapping[str, Any]) -> Policy:
    stated = document.get("thresholds")
    if not isinstance(stated, Mapping):
        raise FormatError("is missing", field="thresholds", remedy="compare again")
    try:
        return Policy.from_mapping(stated)
    except LabError as e:
        raise FormatError(Problem(e.problems[0].what, field="thresholds", remedy="compare again")) from None


def worst(results: tuple[str, ...]) -> str:
    """Return the most severe verdict; ``pass`` for none."""
    return max(results, key=SEVERITY.index, default="pass")
