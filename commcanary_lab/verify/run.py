"""Verify a canary against its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel, get_model
from commcanary_lab.simulate.prepare import Prepared, prepare
from commcanary_lab.simulate.report import Report, simulate_prepared
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.verify.behavior import behavior_checks
from commcanary_lab.verify.model import Check, Tolerances, Verification, claim_of
from commcanary_lab.verify.ranking import ranking_checks
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
    """
    tolerances = tolerances or Tolerances()
    names = [b.label for b in backends]
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(f"the backends are {', '.join(names) or 'none'}", remedy="give at least two, each with its own name")
    if canary.source.derived_from is not None and "derived_from" not in trace.extra:
        # the canary of a reduced trace, held against the source that the reduction started from
        from commcanary_lab.verify.derived import verify_derived

        return verify_derived(trace, canary, backends=backends, tolerances=tolerances, salt=salt, assume=assume, model=model)
    if canary.source.salted and not salt:
        raise RefusedError("the canary's commitments are salted", remedy="give the owner's salt with --salt-file")
    if salt and not canary.source.salted:
        raise RefusedError("the canary's commitments are unsalted: it was not made with a salt", remedy="leave the salt out")
    whole = (0, len(trace)) == (canary.source.start, canary.source.stop)
    source = trace if whole else trace.take(slice(canary.source.start, canary.source.stop))
    checks = _coverage(trace, canary)
    commitments = commitment_checks(source, canary, salt)
    committed = all(c.passed for c in commitments)
    checks += commitments
    checks += bounds_checks(source, canary)
    checks += _statements(trace, canary)
    checks += _traffic(source, canary, tolerances)
    # an exact canary whose commitments hold expands to the very columns of its source: nothing is hashed or simulated twice
    same = committed and canary.timing == "lossless"
    ours = prepare(source, assume)
    reports = _reports(ours, backends, model)
    answers = reports if same else _reports(prepare(canary.trace, assume), backends, model)
    ranking = ranking_checks(reports, answers, tolerances)
    checks += ranking
    for a, b in zip(reports, answers, strict=True):
        checks += behavior_checks(a, b, tolerances)
    statuses = _statuses(canary, checks, bool(ours.assumptions))
    stated = canary.source
    scope = f"{canary.event_count} of {stated.events} events ({stated.records_used} of {stated.records_read} source records)"
    claim, reason = claim_of(statuses, tuple(checks), ours.assumptions, scope)
    return Verification(
        **statuses,
        claim=claim,
        claim_reason=reason,
        checks=tuple(checks),
        decisions_kept=sum(c.passed for c in ranking),
        decisions_total=len(ranking),
        backends=tuple(names),
        model=get_model(model).name,
        tolerances=tolerances,
        assumptions=ours.assumptions,
        notes=trace.notes,
        canary_sha256=canary.identity,
    )


def _reports(prepared: Prepared, backends: Sequence[Backend], model: str | CostModel) -> list[Report]:
    return [simulate_prepared(prepared, b, model=model) for b in backends]


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


def _traffic(source: Trace, canary: Canary, tolerances: Tolerances) -> list[Check]:
    a, b = build_matrix(source), build_matrix(canary.trace)
    out = [Check("traffic", "sum of M (bytes)", _near(a.sum_bytes, b.sum_bytes, tolerances), a.sum_bytes, b.sum_bytes)]
    for name in ("unattributed_bytes", "records", "payload_bytes"):
        x, y = getattr(a, name), getattr(b, name)
        # rows without size or members are no events: a canary cannot carry them, and M does not count them
        x -= sum(u.size_bytes or 0 for u in source.unsized) if name == "unattributed_bytes" else 0
        out.append(Check("traffic", name.replace("_", " "), x == y, x, y))
    cell = a.first_difference(b, tolerances.traffic_relative)
    out.append(
        Check("traffic", "every cell of M" if cell is None else f"M: {cell}", cell is None, "equal" if cell is None else "different", "")
    )
    return out


def _near(a: float, b: float, tolerances: Tolerances) -> bool:
    return abs(a - b) <= tolerances.traffic_relative * max(abs(a), abs(b))


def _statuses(canary: Canary, checks: list[Check], assumed: bool) -> dict[str, str]:
    def ok(status: str) -> bool:
        return all(c.passed for c in checks if c.status == status)

    return {
        "timing": canary.timing,
        "coverage": "full_source" if ok("coverage") else "partial_source",
        "commitments": "recomputed" if ok("commitments") else "mismatch",
        "bounds": "recomputed" if ok("bounds") else "mismatch",
        "traffic": "pass" if ok("traffic") else "fail",
        "ranking": "pass" if ok("ranking") else "fail",
        "behavior": ("unverified" if assumed else "pass") if ok("behavior") else "fail",
    }
