"""From checks to a verification: statuses, and the strongest claim that they allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from commcanary_lab.canary.model import Canary
from commcanary_lab.simulate.models import get_model
from commcanary_lab.trace.model import Trace
from commcanary_lab.traffic.build import build_matrix
from commcanary_lab.verify.model import Check, Tolerances, Verification, claim_of
from commcanary_lab.verify.setting import Setting

__all__ = ["conclude", "traffic_checks"]


def traffic_checks(source: Trace, canary: Canary, tolerances: Tolerances, *, counts: bool) -> Iterator[Check]:
    """Compare the traffic matrices of a source and a canary.

    Parameters
    ----------
    source : Trace
        What the canary is held against.
    canary : Canary
    tolerances : Tolerances
    counts : bool
        Compare records, payload and what could not be attributed, too.
    """
    # a canary does not carry what the source states about algorithms and ring orders: both are attributed by it
    said = {key: source.extra[key] for key in ("algorithms", "ring_order") if key in source.extra}
    a, b = build_matrix(source), build_matrix(replace(canary.trace, extra={**canary.trace.extra, **said}))
    near = abs(a.sum_bytes - b.sum_bytes) <= tolerances.traffic_relative * max(abs(a.sum_bytes), abs(b.sum_bytes))
    yield Check("traffic", "sum of M (bytes)", near, a.sum_bytes, b.sum_bytes)
    for name in ("unattributed_bytes", "records", "payload_bytes") if counts else ():
        x, y = getattr(a, name), getattr(b, name)
        # rows without size or members are no events: a canary cannot carry them, and M does not count them
        x -= sum(u.size_bytes or 0 for u in source.unsized) if name == "unattributed_bytes" else 0
        yield Check("traffic", name.replace("_", " "), x == y, x, y)
    cell = a.first_difference(b, tolerances.traffic_relative)
    same = cell is None
    yield Check("traffic", "every cell of M" if same else f"M: {cell}", same, "equal" if same else "different", "")


def conclude(
    canary: Canary,
    checks: Sequence[Check],
    setting: Setting,
    *,
    assumptions: Mapping[str, float],
    assumed: bool,
    of_events: int,
    notes: tuple[str, ...],
) -> Verification:
    """Return the verification that the checks allow.

    Parameters
    ----------
    canary : Canary
    checks : sequence of Check
        All of them.
    setting : Setting
        With what they were made.
    assumptions : mapping
        What was assumed for the source.
    assumed : bool
        Whether anything was assumed on either side.
    of_events : int
        Events of the whole source.
    notes : tuple of str
        Go into the result.
    """
    statuses = _statuses(canary, checks, assumed)
    stated = canary.source
    scope = f"{canary.event_count} of {of_events} events ({stated.records_used} of {stated.records_read} source records)"
    claim, reason = claim_of(statuses, tuple(checks), assumptions, scope)
    ranking = [c.passed for c in checks if c.status == "ranking"]
    return Verification(
        **statuses,
        claim=claim,
        claim_reason=reason,
        checks=tuple(checks),
        decisions_kept=sum(ranking),
        decisions_total=len(ranking),
        backends=setting.labels,
        model=get_model(setting.model).name,
        tolerances=setting.tolerances,
        assumptions=assumptions,
        notes=notes,
        canary_sha256=canary.identity,
    )


def _statuses(canary: Canary, checks: Sequence[Check], assumed: bool) -> dict[str, str]:
    failed = {c.status for c in checks if not c.passed}

    def word(status: str, good: str, bad: str) -> str:
        return bad if status in failed else good

    return {
        "timing": canary.timing,
        "coverage": word("coverage", "full_source", "partial_source"),
        "commitments": word("commitments", "recomputed", "mismatch"),
        "bounds": word("bounds", "recomputed", "mismatch"),
        "traffic": word("traffic", "pass", "fail"),
        "ranking": word("ranking", "pass", "fail"),
        "behavior": word("behavior", "unverified" if assumed else "pass", "fail"),
    }
