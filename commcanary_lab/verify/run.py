"""Verify a canary against its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commcanary_lab.canary.model import Canary
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import prepare
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.behavior import behavior_checks
from commcanary_lab.verify.conclusion import conclude, traffic_checks
from commcanary_lab.verify.derived import verify_derived
from commcanary_lab.verify.model import Check, Tolerances, Verification
from commcanary_lab.verify.ranking import ranking_checks
from commcanary_lab.verify.setting import Setting
from commcanary_lab.verify.source import bounds_checks, commitment_checks

__all__ = ["verify_canary"]


def verify_canary(
    trace: Trace,
    canary: Canary,
    *,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    tolerances: Tolerances | None = None,
    salt: bytes = b"",
    assume: Mapping[str, float] | None = None,
    model: str | CostModel = "commcanary-v4",
) -> Verification:
    """Verify a canary against its source: coverage, commitments, bounds, traffic, ranking and behaviour, all reported separately.

    Parameters
    ----------
    trace : Trace
        The whole source.
    canary : Canary
        The artifact.
    backends : sequence of Backend
        Configurations on which both are simulated; at least two, so that there is something to rank.
    tolerances : Tolerances, optional
        Kept in the result.
    salt : bytes
        The owner's salt, where the canary was compiled with one.
    assume : mapping of str to float, optional
        Values for unknown fields; the claim is then at most ``unverified``.
    model : str or CostModel
        The cost model.

    Returns
    -------
    Verification

    Raises
    ------
    RefusedError
        If the canary's commitments are salted and no salt is given, or the other way round.
    UnknownValueError
        If a field that the simulator needs is unknown and not assumed.
    UsageError
        If there are fewer than two backends, or two share a name.
    """
    setting = Setting.of(backends, tolerances, assume, model, salt)
    if canary.source.derived_from is not None and "derived_from" not in trace.extra:
        # the canary of a reduced trace, held against the source that the reduction started from
        return verify_derived(trace, canary, backends=backends, tolerances=tolerances, salt=salt, assume=assume, model=model)
    setting.check_salt(canary)
    whole = (0, len(trace)) == (canary.source.start, canary.source.stop)
    source = trace if whole else trace.take(slice(canary.source.start, canary.source.stop))
    commitments = commitment_checks(source, canary, salt)
    checks = [*_coverage(trace, canary), *commitments, *bounds_checks(source, canary), *_statements(trace, canary)]
    checks += traffic_checks(source, canary, setting.tolerances, counts=True)
    ours = prepare(source, assume)
    reports = setting.reports(ours)
    # an exact canary whose commitments hold expands to the very columns of its source: nothing is hashed or simulated twice
    same = canary.timing == "lossless" and all(c.passed for c in commitments)
    answers = reports if same else setting.reports(prepare(canary.trace, assume))
    checks += ranking_checks(reports, answers, setting.tolerances)
    for a, b in zip(reports, answers, strict=True):
        checks += behavior_checks(a, b, setting.tolerances)
    return conclude(
        canary,
        checks,
        setting,
        assumptions=ours.assumptions,
        assumed=bool(ours.assumptions),
        of_events=canary.source.events,
        notes=trace.notes,
    )


def _coverage(trace: Trace, canary: Canary) -> list[Check]:
    stated = canary.source.events
    checks = [Check("coverage", "source events", len(trace) == stated, len(trace), stated)]
    checks.append(Check("coverage", "events stood for", canary.source.is_whole, len(trace), canary.event_count))
    return checks


def _statements(trace: Trace, canary: Canary) -> list[Check]:
    """What a canary says of its source in words and counts; a canary of a part stands for all the notes too."""
    s = canary.source
    return [
        Check("bounds", "events of the whole source", len(trace) == s.events, len(trace), s.events),
        Check("bounds", "source format", trace.source_format == s.format, trace.source_format, s.format),
        Check("bounds", "notes", trace.notes == canary.notes, "; ".join(trace.notes), "; ".join(canary.notes)),
    ]
