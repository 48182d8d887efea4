"""Traces derived from a source by keeping some of its events, and the verification of their canaries against the whole source.

A reducer's result says what it kept: ``derived_from`` holds the commitment to the whole source (``trace_sha256``, the unsalted root of
`docs/formats/commitment.md`), the kept source indices and the method. It travels in ``trace.extra`` (so in ``system.commcanary_lab`` of
the interchange format) and in the ``source`` section of a canary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.commit import commitment
from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import FormatError, UsageError
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.simulate.report import Report
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.behavior import TAILS, behavior_checks, tail_events
from commcanary_lab.verify.conclusion import conclude, traffic_checks
from commcanary_lab.verify.model import Check, Tolerances, Verification
from commcanary_lab.verify.ranking import ranking_checks
from commcanary_lab.verify.setting import Setting
from commcanary_lab.verify.source import bounds_checks, commitment_checks

__all__ = ["DerivedFrom", "derive", "derived_from", "mapped_tail_recall", "trace_sha256", "verify_derived"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DerivedFrom:
    """What a trace or a canary was derived from.

    Parameters
    ----------
    trace_sha256 : str
        Unsalted root commitment to all events of the source.
    kept : ndarray of int64, shape (k,)
        Source index of each event.
    method : str
        The reducer.
    """

    trace_sha256: str
    kept: IntArray
    method: str

    def to_json(self) -> dict[str, Any]:
        """Return the statement as a JSON object."""
        return {"trace_sha256": self.trace_sha256, "kept": self.kept.tolist(), "method": self.method}


def trace_sha256(trace: Trace) -> str:
    """Return the SHA-256 over all source values of a trace, whatever file format it came from.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> trace = lab.samples.adversarial()
    >>> trace_sha256(trace) == lab.compile(trace).source.root
    True
    """
    return commitment(trace)


def derive(trace: Trace, kept: Sequence[int] | IntArray, method: str, *, sha256: str | None = None) -> Trace:
    """Keep some events of a trace, and say so in the result.

    Parameters
    ----------
    trace : Trace
        The source.
    kept : sequence of int, shape (k,)
        Indices of the events, ascending.
    method : str
        Who chose them.
    sha256 : str, optional
        `trace_sha256` of the source, where it is known already.

    Raises
    ------
    UsageError
        If an index is outside the trace, or they do not ascend.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> part = derive(lab.samples.adversarial(), [3, 5], "by hand")
    >>> len(part), part.extra["derived_from"]["kept"], part.notes[-1]
    (2, [3, 5], 'derived: by hand kept 2 of 100 events')
    """
    index = np.asarray(kept, np.int64)
    if len(index) and (index[0] < 0 or index[-1] >= len(trace) or (np.diff(index) <= 0).any()):
        raise UsageError(f"kept events do not ascend within 0:{len(trace)}", remedy="give ascending indices of the source")
    stated = DerivedFrom(trace_sha256(trace) if sha256 is None else sha256, index, method)
    part = trace.take(index)
    note = f"derived: {method} kept {len(index)} of {len(trace)} events"
    return replace(part.with_notes(note), extra={**trace.extra, "derived_from": stated.to_json()})


def derived_from(artifact: Trace | Canary) -> DerivedFrom | None:
    """Return what a trace or a canary says it was derived from.

    Raises
    ------
    FormatError
        If the statement does not have its shape.
    """
    value = artifact.source.derived_from if isinstance(artifact, Canary) else artifact.extra.get("derived_from")
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise FormatError("is not an object", field="derived_from", remedy="reduce the source again")
    sha256, kept, method = (value.get(name) for name in ("trace_sha256", "kept", "method"))
    whole = isinstance(kept, list) and all(type(i) is int and 0 <= i < 1 << 62 for i in kept)
    if set(value) != {"trace_sha256", "kept", "method"} or not isinstance(sha256, str) or not isinstance(method, str) or not whole:
        raise FormatError("does not state trace_sha256, kept and method", field="derived_from", remedy="reduce the source again")
    return DerivedFrom(sha256, np.array(kept, np.int64), method)


def mapped_tail_recall(source: Report, canary: Report, kept: IntArray, q: float) -> tuple[float, float, float]:
    """Return how much of the source's tail a canary of kept events has in its own tail.

    As `behavior.tail_recall`, with canary events mapped to their source index; a canary with fewer events than the tail holds offers
    all it has.

    Returns
    -------
    recall, source_us, canary_us : float
    """
    tail = tail_events(source, q)
    exposed = canary.samples.exposed_us
    index = kept[canary.samples.event] + (np.arange(len(exposed)) // max(1, len(kept))) * len(source.prepared)
    order = np.lexsort((index, -exposed))[: len(tail)]
    recall = len(np.intersect1d(tail, index[order])) / len(tail) if len(tail) else 1.0
    return recall, float(source.samples.exposed_us[tail].sum()), float(exposed[np.isin(index, tail)].sum())


def verify_derived(
    trace: Trace,
    canary: Canary,
    *,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    tolerances: Tolerances | None = None,
    salt: bytes = b"",
    assume: Mapping[str, float] | None = None,
    model: str | CostModel = "commcanary-v4",
) -> Verification:
    """Verify a canary of kept events: commitments and bounds over the kept rows, everything else against the whole source.

    Parameters
    ----------
    trace : Trace
        The whole source, before the reduction.
    canary : Canary
        Compiled from the reduced trace.
    backends, tolerances, salt, assume, model
        As in `verify.run.verify_canary`.

    Returns
    -------
    Verification
        Coverage is always ``partial_source``.

    Raises
    ------
    FormatError
        If the canary's ``derived_from`` does not have its shape.
    RefusedError
        If the commitments are salted and no salt is given.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.canary.compile import compile_trace
    >>> trace = lab.samples.adversarial()
    >>> part = derive(trace, [0], "by hand")
    >>> check = verify_derived(trace, compile_trace(part, derived_from=part.extra["derived_from"]))
    >>> check.coverage, check.commitments, check.ranking, check.behavior, check.claim
    ('partial_source', 'recomputed', 'pass', 'fail', 'refused')
    """
    stated = derived_from(canary)
    if stated is None:
        raise UsageError("the canary was not derived from kept events", remedy="use verify_canary")
    setting = Setting.of(backends, tolerances, assume, model, salt)
    setting.check_salt(canary)
    checks = [
        Check("coverage", "source events", len(trace) == canary.source.events, len(trace), canary.source.events),
        Check("coverage", "events stood for", False, len(trace), canary.event_count),
    ]
    checks += _kept_rows(trace, canary, stated, salt)
    checks += traffic_checks(trace, canary, setting.tolerances, counts=False)
    ours, theirs = prepare(trace, assume), prepare(canary.trace, assume)
    reports, answers = setting.reports(ours), setting.reports(theirs)
    checks += ranking_checks(reports, answers, setting.tolerances)
    kept = stated.kept[canary.source.start : canary.source.stop]
    for a, b in zip(reports, answers, strict=True):
        checks += [c for c in behavior_checks(a, b, setting.tolerances) if " tail " not in f" {c.name} "]
        if len(kept) == len(theirs):
            checks += _tails(a, b, kept, setting.tolerances)
    return conclude(
        canary,
        checks,
        setting,
        assumptions=ours.assumptions,
        assumed=bool(ours.assumptions or theirs.assumptions),
        of_events=len(trace),
        notes=canary.notes,
    )


def _kept_rows(trace: Trace, canary: Canary, stated: DerivedFrom, salt: bytes) -> list[Check]:
    """Commitments and bounds over the kept rows of the source."""
    found = trace_sha256(trace)
    checks = [Check("commitments", "trace that the events were kept from", found == stated.trace_sha256, found, stated.trace_sha256)]
    try:
        part = derive(trace, stated.kept, stated.method, sha256=stated.trace_sha256)
    except UsageError as e:
        return [Check("commitments", "kept events", False, len(trace), str(e)), *checks]
    source = canary.source
    checks.append(Check("bounds", "events of the reduced trace", len(part) == source.events, len(part), source.events))
    checks.append(Check("bounds", "source format", part.source_format == source.format, part.source_format, source.format))
    checks.append(Check("bounds", "notes", part.notes == canary.notes, "; ".join(part.notes), "; ".join(canary.notes)))
    if (source.start, source.stop) != (0, len(part)):
        part = part.take(slice(source.start, source.stop))
    return checks + commitment_checks(part, canary, salt) + bounds_checks(part, canary)


def _tails(source: Report, canary: Report, kept: IntArray, tolerances: Tolerances) -> Iterator[Check]:
    label = source.backend.label
    for q in TAILS:
        recall, ours, theirs = mapped_tail_recall(source, canary, kept, q)
        name, limit = f"p{round(q * 100)} tail", tolerances.tail_recall
        yield Check("behavior", f"{name} recall (at least {limit:g})", recall >= limit, 1.0, round(recall, 3), label)
        close = abs(ours - theirs) <= tolerances.relative * abs(ours)
        yield Check("behavior", f"{name} total exposed (us)", close, round(ours, 3), round(theirs, 3), label)
