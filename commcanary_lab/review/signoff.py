"""Sign-offs: what a reviewer decided about one comparison, and whether that decision still is about what lies here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from commcanary_lab.canonical import canonical_bytes, read_document, sha256_hex
from commcanary_lab.errors import FormatError, LabError, Problem, UsageError
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.review.compare import compare
from commcanary_lab.review.comparison import Comparison
from commcanary_lab.review.measured import MeasuredComparison
from commcanary_lab.review.policy import Policy
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace.model import Trace

__all__ = [
    "DECISIONS",
    "FORMAT",
    "MAX_NAME",
    "MAX_NOTE",
    "SignOff",
    "SignOffCheck",
    "SignedSide",
    "check_signoff",
    "parse_signoff",
    "read_signoff",
    "sign_off",
    "verify_signoff",
]

FORMAT = "commcanary_lab.signoff.v1"

#: What a reviewer can decide, and how it is said.
DECISIONS = {"approve": "Approved", "reject": "Rejected", "needs_data": "Needs more data"}

#: Longest name of a reviewer, longest note and longest file name, characters.
MAX_NAME, MAX_NOTE, MAX_FILE_NAME = 120, 4000, 400

_KEYS = {
    *("format", "decision", "reviewer", "note", "written_at", "kind", "verdict", "baseline", "candidate"),
    *("thresholds", "policy_sha256", "allow_incompatible", "comparison_sha256"),
}
_VERDICTS = ("pass", "warn", "fail", "inconclusive")
_WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
#: Control characters, and those that turn the direction of writing: a note must read as it was written.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_REMEDY = "sign off again on the page Review"


@dataclass(frozen=True)
class SignedSide:
    """One input of the comparison: what it was called, and the SHA-256 that identifies it."""

    name: str
    sha256: str


@dataclass(frozen=True)
class SignOff:
    """A decision about one comparison.

    Attributes
    ----------
    decision : {"approve", "reject", "needs_data"}
    reviewer : str
        As it was typed, not authenticated; may be empty.
    note : str
        May be empty.
    written_at : str
        When it was written by the clock of the machine, UTC, as ``2026-11-30T12:00:00Z``.
    kind : {"reports", "measured"}
        What was compared.
    verdict : str
        That of the comparison when the reviewer decided.
    baseline, candidate : SignedSide
        What was compared.
    policy : Policy
        The thresholds that the verdict used.
    allow_incompatible : bool
        Whether reports of different work were compared because that was allowed.
    comparison_sha256 : str
        SHA-256 of the whole comparison as canonical JSON.
    """

    decision: str
    reviewer: str
    note: str
    written_at: str
    kind: str
    verdict: str
    baseline: SignedSide
    candidate: SignedSide
    policy: Policy
    allow_incompatible: bool
    comparison_sha256: str

    def __post_init__(self) -> None:
        if self.decision not in DECISIONS:
            raise UsageError(f"the decision is {self.decision!r}", remedy=f"expected {', '.join(DECISIONS)}")
        _check_text(self.reviewer, "the name", MAX_NAME, lines=False)
        _check_text(self.note, "the note", MAX_NOTE, lines=True)

    @property
    def words(self) -> str:
        """The decision in words."""
        return DECISIONS[self.decision]

    @property
    def policy_sha256(self) -> str:
        """SHA-256 of the thresholds that the kind of comparison uses."""
        return self.policy.sha256(self.kind)

    @property
    def file_name(self) -> str:
        """Name of its file: it holds part of the content's SHA-256, so that another sign-off has another file."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", self.candidate.name.rpartition("/")[2]).removesuffix(".json").removesuffix(".report")
        return f"{stem.strip('._')[:80] or 'comparison'}.{sha256_hex(canonical_bytes(self.to_json()))[:12]}.signoff.json"

    def to_json(self) -> dict[str, Any]:
        """Return the sign-off as a JSON object."""
        return {
            "format": FORMAT,
            "decision": self.decision,
            "reviewer": self.reviewer,
            "note": self.note,
            "written_at": self.written_at,
            "kind": self.kind,
            "verdict": self.verdict,
            "baseline": {"name": self.baseline.name, "sha256": self.baseline.sha256},
            "candidate": {"name": self.candidate.name, "sha256": self.candidate.sha256},
            "thresholds": self.policy.to_json(self.kind),
            "policy_sha256": self.policy_sha256,
            "allow_incompatible": self.allow_incompatible,
            "comparison_sha256": self.comparison_sha256,
        }

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        return canonical_bytes(self.to_json()) + b"\n"


@dataclass(frozen=True)
class SignOffCheck:
    """Whether a sign-off is about a comparison.

    Attributes
    ----------
    status : {"current", "other_policy", "stale"}
        ``current``: about exactly this comparison. ``other_policy``: about the same inputs under other thresholds. ``stale``: an input
        changed, or the same inputs and thresholds no longer give the verdict that was signed.
    reasons : tuple of str
        What differs, in words; empty for ``current``.
    """

    status: str
    reasons: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True when the sign-off is about exactly this comparison."""
        return self.status == "current"


def sign_off(
    comparison: Comparison | MeasuredComparison,
    decision: str,
    *,
    names: tuple[str, str] = ("baseline", "candidate"),
    reviewer: str = "",
    note: str = "",
    written_at: str | None = None,
) -> SignOff:
    """Write down a decision about a comparison.

    Parameters
    ----------
    comparison : Comparison or MeasuredComparison
        What was decided about; its inputs, policy and verdict are stated by SHA-256 and in words.
    decision : {"approve", "reject", "needs_data"}
    names : (str, str)
        What both inputs are called, such as file names.
    reviewer, note : str
        Free text; at most 120 and 4,000 characters.
    written_at : str, optional
        UTC time as ``2026-11-30T12:00:00Z``; now, if not given.

    Raises
    ------
    UsageError
        If the decision is none, or a text is too long or holds control characters.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> found = lab.compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))
    >>> signed = sign_off(found, "reject", names=("a.json", "b.json"), note="too slow", written_at="2026-11-30T12:00:00Z")
    >>> signed.verdict, signed.words, check_signoff(signed, found).status
    ('fail', 'Rejected', 'current')
    """
    a, b = _sides(comparison)
    return SignOff(
        decision,
        reviewer.strip(),
        note.replace("\r\n", "\n").replace("\r", "\n").strip(),
        written_at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        _kind(comparison),
        comparison.verdict,
        SignedSide(names[0][:MAX_FILE_NAME], a),
        SignedSide(names[1][:MAX_FILE_NAME], b),
        comparison.policy,
        _allowed(comparison),
        _sha256(comparison),
    )


def check_signoff(signed: SignOff, comparison: Comparison | MeasuredComparison) -> SignOffCheck:
    """Say whether a sign-off is about a comparison as it comes out now.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> a, b = lab.simulate(trace), lab.simulate(trace, "high_bandwidth")
    >>> signed = sign_off(lab.compare(a, b), "reject")
    >>> check_signoff(signed, lab.compare(a, b, Policy(p99_threshold_pct=50))).status
    'other_policy'
    >>> check_signoff(signed, lab.compare(a, lab.simulate(trace, "congested"))).reasons[0]
    'the candidate is another one than the one that was signed'
    """
    if signed.kind != _kind(comparison):
        return SignOffCheck("stale", ("something else was compared when it was signed",))
    stated = (signed.baseline.sha256, signed.candidate.sha256)
    sides = zip(("baseline", "candidate"), stated, _sides(comparison), strict=True)
    moved = tuple(f"the {side} is another one than the one that was signed" for side, was, now in sides if was != now)
    if moved:
        return SignOffCheck("stale", moved)
    if signed.policy_sha256 != comparison.policy.sha256(signed.kind) or signed.allow_incompatible != _allowed(comparison):
        return SignOffCheck("other_policy", (f"it was signed under another policy, whose verdict was {signed.verdict}",))
    if signed.verdict != comparison.verdict:
        return SignOffCheck("stale", (f"it states the verdict {signed.verdict}, which is {comparison.verdict} now",))
    if signed.comparison_sha256 != _sha256(comparison):
        return SignOffCheck("stale", ("the same inputs and policy give another comparison than the one that was signed",))
    return SignOffCheck("current")


def verify_signoff(signed: SignOff, base: ReportFile | Trace, candidate: ReportFile | Trace) -> SignOffCheck:
    """Recompute the comparison that a sign-off is about from its inputs, under the policy that it states.

    Parameters
    ----------
    signed : SignOff
        From `read_signoff`.
    base, candidate : ReportFile or Trace
        The inputs, in the same order.

    Returns
    -------
    SignOffCheck
        ``current``, or ``stale`` with what differs.

    Raises
    ------
    UsageError
        If one input is a report and the other a trace.
    """
    found: Comparison | MeasuredComparison
    try:
        if isinstance(base, ReportFile) and isinstance(candidate, ReportFile):
            found = compare(base, candidate, signed.policy, allow_incompatible=signed.allow_incompatible)
        elif isinstance(base, Trace) and isinstance(candidate, Trace):
            found = compare(base, candidate, signed.policy)
        else:
            raise UsageError("one input is a report and the other a trace", remedy="give what was compared")
    except UsageError:
        raise
    except LabError as e:
        return SignOffCheck("stale", (e.problems[0].what,))
    return check_signoff(signed, found)


def read_signoff(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> SignOff:
    """Read a sign-off file.

    Raises
    ------
    InputError
        If the file cannot be read or is no sign-off; the message names file and field.
    """
    return parse_signoff(read_document(path, _REMEDY, limits=limits), file=str(path))


def parse_signoff(document: Mapping[str, Any], *, file: str | None = None) -> SignOff:
    """Check a decoded sign-off strictly.

    Raises
    ------
    FormatError
        If a field is missing, unknown, or not what it should be.

    Examples
    --------
    >>> parse_signoff({"format": "commcanary_lab.signoff.v1"})
    Traceback (most recent call last):
    commcanary_lab.errors.FormatError: allow_incompatible: is missing; sign off again on the page Review
    """
    try:
        return _parse(document)
    except LabError as e:
        raise FormatError([Problem(p.what, file=file, field=p.field, remedy=_REMEDY) for p in e.problems]) from None


def _parse(document: Mapping[str, Any]) -> SignOff:
    if document.get("format") != FORMAT:
        raise FormatError(f"is {document.get('format')!r}, expected {FORMAT}", field="format")
    for name in sorted(_KEYS ^ set(document)):
        raise FormatError("is missing" if name in _KEYS else "is unknown", field=name)
    text = {name: _text(document, name) for name in ("decision", "reviewer", "note", "written_at", "kind", "verdict")}
    if text["kind"] not in ("reports", "measured"):
        raise FormatError(f"is {text['kind']!r}, expected reports or measured", field="kind")
    if text["verdict"] not in _VERDICTS:
        raise FormatError(f"is {text['verdict']!r}, expected one of {', '.join(_VERDICTS)}", field="verdict")
    if not _WRITTEN.fullmatch(text["written_at"]):
        raise FormatError(f"is {text['written_at'][:40]!r}, expected a time such as 2026-11-30T12:00:00Z", field="written_at")
    if not isinstance(allowed := document["allow_incompatible"], bool):
        raise FormatError("is neither true nor false", field="allow_incompatible")
    if not isinstance(thresholds := document["thresholds"], dict):
        raise FormatError("is no object", field="thresholds")
    signed = SignOff(
        **text,
        baseline=_side(document, "baseline"),
        candidate=_side(document, "candidate"),
        policy=Policy.from_mapping(thresholds),
        allow_incompatible=allowed,
        comparison_sha256=_hash(document["comparison_sha256"], "comparison_sha256"),
    )
    if _hash(document["policy_sha256"], "policy_sha256") != signed.policy_sha256:
        raise FormatError("is not the SHA-256 of the thresholds", field="policy_sha256")
    return signed


def _text(document: Mapping[str, Any], name: str) -> str:
    if not isinstance(value := document[name], str):
        raise FormatError("is no text", field=name)
    return value


def _side(document: Mapping[str, Any], name: str) -> SignedSide:
    value = document[name]
    if not isinstance(value, dict) or set(value) != {"name", "sha256"}:
        raise FormatError("is no object with name and sha256", field=name)
    called = _text(value, "name")
    _check_text(called, f"the name of the {name}", MAX_FILE_NAME, lines=False)
    return SignedSide(called, _hash(value["sha256"], f"{name}.sha256"))


def _hash(value: Any, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise FormatError("is not 64 hexadecimal digits", field=where)
    return value


def _check_text(text: str, what: str, longest: int, *, lines: bool) -> None:
    if len(text) > longest:
        raise UsageError(f"{what} has {len(text):,} characters", remedy=f"shorten it to {longest:,}")
    if _HIDDEN.search(text) or (not lines and ("\n" in text or "\t" in text)):
        raise UsageError(f"{what} holds control characters", remedy="write plain text" + ("" if lines else " on one line"))


def _kind(comparison: Comparison | MeasuredComparison) -> str:
    return "reports" if isinstance(comparison, Comparison) else "measured"


def _allowed(comparison: Comparison | MeasuredComparison) -> bool:
    return isinstance(comparison, Comparison) and comparison.allow_incompatible


def _sides(comparison: Comparison | MeasuredComparison) -> tuple[str, str]:
    if isinstance(comparison, Comparison):
        return comparison.base.sha256, comparison.candidate.sha256
    return comparison.sha256_a, comparison.sha256_b


def _sha256(comparison: Comparison | MeasuredComparison) -> str:
    return sha256_hex(canonical_bytes(comparison.to_json()))
