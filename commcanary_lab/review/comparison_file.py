"""Comparisons as files: what one states, read strictly enough to show it and to find what it compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commcanary_lab.canonical import read_document
from commcanary_lab.errors import FormatError, LabError, Problem
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.review.comparison import FORMAT
from commcanary_lab.review.policy import Policy

__all__ = ["ComparisonFile", "parse_comparison", "read_comparison"]

_KINDS = {"reports": ("pass", "warn", "fail"), "measured": ("pass", "warn", "fail", "inconclusive")}
_REMEDY = "compare again with -o"


@dataclass(frozen=True, eq=False)
class ComparisonFile:
    """What a comparison file states; `verify_comparison` says whether that follows from its inputs.

    Attributes
    ----------
    kind : {"reports", "measured"}
        What was compared.
    verdict : str
        ``pass``, ``warn``, ``fail`` or, for measured traces, ``inconclusive``.
    reasons : tuple of str
        Its sentences.
    policy : Policy
        The thresholds that it used; the others have their defaults.
    base_sha256, candidate_sha256 : str
        Identity of both inputs: of the report, or of the measured latencies of the trace.
    allow_incompatible : bool
        Whether reports of different workloads or protocols were allowed.
    document : mapping
        The decoded file.
    """

    kind: str
    verdict: str
    reasons: tuple[str, ...]
    policy: Policy
    base_sha256: str
    candidate_sha256: str
    allow_incompatible: bool
    document: Mapping[str, Any] = field(repr=False)


def read_comparison(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> ComparisonFile:
    """Read a comparison file.

    Raises
    ------
    InputError
        If the file cannot be read or is no comparison; the message names file and field.
    """
    return parse_comparison(read_document(path, _REMEDY, limits=limits), file=str(path))


def parse_comparison(document: Any, *, file: str | None = None) -> ComparisonFile:
    """Check a decoded comparison and return it typed.

    Raises
    ------
    FormatError
        If a field that this needs is missing or of the wrong type.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> found = lab.compare(lab.simulate(trace), lab.simulate(trace, "high_bandwidth"))
    >>> parse_comparison(found.to_json()).verdict, parse_comparison(found.to_json()).policy == found.policy
    ('fail', True)
    """
    try:
        return _parse(document)
    except LabError as e:
        problems = [Problem(p.what, file=file, field=p.field, remedy=p.remedy or _REMEDY) for p in e.problems]
        raise FormatError(problems) from None


def _parse(document: Any) -> ComparisonFile:
    if not isinstance(document, dict):
        raise FormatError("is not an object")
    if document.get("format") != FORMAT:
        raise FormatError(f"is {document.get('format')!r}, expected {FORMAT}", field="format")
    kind, verdict = document.get("kind"), document.get("verdict")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise FormatError(f"is {kind!r}, expected {' or '.join(_KINDS)}", field="kind")
    if verdict not in _KINDS[kind]:
        raise FormatError(f"is {verdict!r}, expected one of {', '.join(_KINDS[kind])}", field="verdict")
    reasons = document.get("reasons")
    if not isinstance(reasons, list) or not all(isinstance(r, str) for r in reasons):
        raise FormatError("is no list of sentences", field="reasons")
    if not isinstance(thresholds := document.get("thresholds"), dict):
        raise FormatError("is missing", field="thresholds")
    try:
        policy = Policy.from_mapping(thresholds)
    except LabError as e:
        raise FormatError(e.problems[0].what, field="thresholds") from None
    compatibility = document.get("compatibility", {})
    allowed = isinstance(compatibility, dict) and compatibility.get("allowed") is True
    sides = [_sha256(document, side) for side in ("baseline", "candidate")]
    return ComparisonFile(kind, verdict, tuple(reasons), policy, sides[0], sides[1], allowed, document)


def _sha256(document: Mapping[str, Any], side: str) -> str:
    stated = document.get(side)
    found = stated.get("sha256") if isinstance(stated, dict) else None
    if not isinstance(found, str) or len(found) != 64:
        raise FormatError("is no SHA-256", field=f"{side}.sha256")
    return found
