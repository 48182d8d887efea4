"""Behaviour search: the smallest canary whose rankings and behaviour still pass.

Every timing budget in a range is compiled; identical canaries are judged once; the smallest are judged first, so that the first that
passes ends the range; then budgets are lowered signature group by signature group while everything still passes. The result is the
smallest passing candidate *that was tried*: nothing proves that no smaller one exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from commcanary_lab._shown import Shown
from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import UsageError
from commcanary_lab.minimize.candidates import Candidate, Problem
from commcanary_lab.minimize.ddmin import Cancel
from commcanary_lab.minimize.plan import Recipe, level_of_records, level_of_scale
from commcanary_lab.minimize.refine import refine as refine_groups
from commcanary_lab.minimize.work import SMALL_EVENTS, Cancelled, Progress, Work
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.simulate.models import CostModel, get_model
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.model import Tolerances, Verification
from commcanary_lab.verify.run import verify_canary

__all__ = ["LEDGER_FORMAT", "SCALES", "SMALL_EVENTS", "Progress", "Protocol", "Search", "search"]

LEDGER_FORMAT = "commcanary_lab.search_ledger.v1"

#: Multiples of the default error scales (1 us, pressure 0.01) that are tried besides record budgets.
SCALES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)

#: Refinement judges at most so many candidates, and fewer where each takes long.
REFINE_CALLS = 64
_REFINE_SQUARED_EVENTS = 400_000_000


@dataclass(frozen=True)
class Protocol:
    """What was asked for; a search is a function of trace and protocol.

    Parameters
    ----------
    records : tuple of int
        Record budgets.
    scales : tuple of float
        Multiples of the default error scales.
    flat : bool
        Whether programs without loop nests are tried, too.
    refine : int
        Candidates that the refinement may judge.
    exhaustive : bool
        Whether candidates larger than the first that passes are judged, too.
    backends, model, tolerances, assume
        As in `verify.run.verify_canary`.
    """

    records: tuple[int, ...]
    scales: tuple[float, ...]
    flat: bool
    refine: int
    exhaustive: bool
    backends: tuple[Backend, ...]
    model: str
    tolerances: Tolerances
    assume: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the protocol as a JSON object."""
        out = asdict(self)
        return {**out, "records": list(self.records), "scales": list(self.scales), "backends": [asdict(b) for b in self.backends]}


@dataclass(frozen=True, eq=False)
class Search(Shown):
    """Result of `search`.

    Attributes
    ----------
    trace : Trace
        The source.
    canary : Canary or None
        The smallest passing canary; None only when the search was cancelled before one passed.
    selected : Candidate or None
        Its entry.
    verification : Verification or None
        Its full verification against the source.
    candidates : tuple of Candidate
        Every candidate.
    stopped : str
        ``complete``, ``budget`` (the refinement had more to try) or ``cancelled``.
    protocol : Protocol
        What was asked for.
    """

    trace: Trace
    canary: Canary | None
    selected: Candidate | None
    verification: Verification | None
    candidates: tuple[Candidate, ...]
    stopped: str
    protocol: Protocol

    @property
    def passed(self) -> bool:
        """True when a canary was found and its verification passed."""
        return self.verification is not None and self.verification.passed

    @property
    def accepted(self) -> int:
        """Candidates that passed."""
        return sum(c.status in ("accepted", "selected") for c in self.candidates)

    @property
    def evaluations(self) -> int:
        """Distinct canaries that were simulated."""
        return len({c.sha256 for c in self.candidates if c.judgement is not None})

    def ledger(self) -> dict[str, Any]:
        """Return every candidate as a JSON object, bound to trace and canary by SHA-256."""
        out: dict[str, Any] = {
            "format": LEDGER_FORMAT,
            "source": {"events": len(self.trace), "sha256": _source_sha256(self)},
            "protocol": self.protocol.to_json(),
            "candidates": [c.to_json() for c in self.candidates],
            "accepted": self.accepted,
            "evaluations": self.evaluations,
            "selected": None if self.selected is None else self.selected.index,
            "canary_sha256": None if self.canary is None else self.canary.identity,
            "canary_bytes": None if self.canary is None else self.canary.size_bytes,
            "statuses": None if self.verification is None else self.verification.statuses,
            "claim": None if self.verification is None else self.verification.claim,
            "stopped": self.stopped,
        }
        return {**out, "sha256": sha256_hex(canonical_bytes(out))}

    def to_json(self) -> dict[str, Any]:
        """Return the key figures as a JSON object."""
        return {
            "candidates": len(self.candidates),
            "accepted": self.accepted,
            "evaluations": self.evaluations,
            "canary_bytes": None if self.canary is None else self.canary.size_bytes,
            "canary_sha256": None if self.canary is None else self.canary.identity,
            "selected": None if self.selected is None else self.selected.to_json(),
            "statuses": None if self.verification is None else self.verification.statuses,
            "claim": None if self.verification is None else self.verification.claim,
            "claim_reason": None if self.verification is None else self.verification.claim_reason,
            "stopped": self.stopped,
        }

    def __repr__(self) -> str:
        size = "no canary" if self.canary is None else f"{self.canary.size_bytes:,} bytes"
        how = "" if self.selected is None else f" ({self.selected.recipe})"
        return f"Search({size}{how}, {self.accepted} of {len(self.candidates)} candidates accepted, stopped: {self.stopped})"

    def _repr_html_(self) -> str:
        from commcanary_lab.inspect.html import table_html

        found = (
            "no canary passed" if self.canary is None else f"{self.canary.size_bytes:,} bytes stand for {self.canary.event_count:,} events"
        )
        claim = "" if self.verification is None else f", claim: {self.verification.claim}"
        title = f"Behaviour search: {found}{claim}; {self.accepted} of {len(self.candidates)} candidates passed, stopped: {self.stopped}"
        order = sorted(self.candidates, key=lambda c: (c.status != "selected", c.index))
        rows = ((c.index, c.stage, str(c.recipe), c.canary_records, c.size_bytes, c.worst_error, c.status, c.reason) for c in order)
        headers = ["", "stage", "recipe", "records", "bytes", "worst error / tolerance", "status", "why"]
        notes = ("the smallest of the candidates tried; no optimality beyond them is claimed",)
        return table_html(title, headers, rows, len(self.candidates), notes)


def _source_sha256(found: Search) -> str:
    from commcanary_lab.verify.derived import trace_sha256

    return trace_sha256(found.trace)


def search(
    trace: Trace,
    records: Iterable[int] = range(2, 33),
    *,
    scales: Iterable[float] | None = None,
    flat: bool | None = None,
    refine: int | None = None,
    exhaustive: bool = False,
    backends: Sequence[Backend] = DEFAULT_BACKENDS,
    model: str | CostModel = "commcanary-v4",
    tolerances: Tolerances | None = None,
    assume: Mapping[str, float] | None = None,
    salt: bytes = b"",
    executor: Executor | None = None,
    progress: Progress | None = None,
    cancelled: Cancel | None = None,
) -> Search:
    """Find the smallest canary, by canonical bytes, whose rankings and behaviour pass.

    Parameters
    ----------
    trace : Trace
        The source.
    records : iterable of int
        Record budgets to try; the lossless canary is always the last candidate of the range.
    scales : iterable of float, optional
        Multiples of the default error scales to try, too; by default `SCALES` up to `SMALL_EVENTS` events, none above.
    flat : bool, optional
        Try programs without loop nests, too; by default up to `SMALL_EVENTS` events.
    refine : int, optional
        Candidates that the refinement per signature group may judge; by default `REFINE_CALLS`, fewer for long traces.
    exhaustive : bool
        Judge candidates larger than the first that passes, too.
    backends, model, tolerances, assume
        As in `verify.run.verify_canary`.
    salt : bytes
        Mixed into the commitments.
    executor : concurrent.futures.Executor, optional
        Compiles and judges candidates in parallel; the result is the same. A Dask client's executor works.
    progress : callable, optional
        Called with the candidate, how many are done, and of how many.
    cancelled : threading.Event, optional
        Stops the search when set; what was found so far is returned.

    Returns
    -------
    Search

    Raises
    ------
    UsageError
        If the range is empty or a budget is below 1.
    UnknownValueError
        If a field that the simulator needs is unknown and not assumed.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> found = search(lab.samples.adversarial(), range(2, 9))
    >>> found.passed, found.verification.claim, found.canary.size_bytes <= 2000
    (True, 'verified', True)
    """
    protocol = _protocol(trace, records, scales, flat, refine, exhaustive, backends, model, tolerances, assume)
    work = Work(Problem(trace, protocol.backends, model, protocol.tolerances, protocol.assume, salt), executor, progress, cancelled)
    stopped = "complete"
    try:
        work.measure(_recipes(work, protocol))
        _judge_by_size(work, exhaustive)
        if not refine_groups(work, protocol.refine, _levels(protocol)):
            stopped = "budget"
    except Cancelled:
        stopped = "cancelled"
    best = work.best()
    canary = verification = None
    if best is not None:
        canary = work.workshop.plan.canary(best.recipe)
        verification = verify_canary(
            trace, canary, backends=protocol.backends, tolerances=protocol.tolerances, salt=salt, assume=protocol.assume, model=model
        )
    candidates = tuple(_explained(c, best) for c in work.candidates)
    selected = None if best is None else candidates[best.index]
    return Search(trace, canary, selected, verification, candidates, stopped, protocol)


def _protocol(
    trace: Trace,
    records: Iterable[int],
    scales: Iterable[float] | None,
    flat: bool | None,
    refine: int | None,
    exhaustive: bool,
    backends: Sequence[Backend],
    model: str | CostModel,
    tolerances: Tolerances | None,
    assume: Mapping[str, float] | None,
) -> Protocol:
    budgets = tuple(sorted(set(records)))
    if not budgets or budgets[0] < 1:
        raise UsageError(f"record budgets are {list(budgets)[:5]}", remedy="give at least one whole number >= 1")
    small = len(trace) <= SMALL_EVENTS
    factors = (SCALES if small else ()) if scales is None else tuple(sorted({float(s) for s in scales}))
    if any(not 0 < s < 1e9 for s in factors):
        raise UsageError(f"scales are {list(factors)}", remedy="give numbers > 0")
    calls = min(REFINE_CALLS, _REFINE_SQUARED_EVENTS // max(1, len(trace)) ** 2) if refine is None else refine
    return Protocol(
        budgets,
        factors,
        small if flat is None else flat,
        calls,
        exhaustive,
        tuple(backends),
        get_model(model).name,
        tolerances or Tolerances(),
        dict(sorted((assume or {}).items())),
    )


def _recipes(work: Work, protocol: Protocol) -> list[tuple[str, Recipe]]:
    plan = work.workshop.plan
    programs = ["nested"]
    if protocol.flat and not plan.same_program():
        programs.append("flat")
    out = [("records", Recipe(p, (level_of_records(n),))) for p in programs for n in protocol.records]
    out += [("scale", Recipe(p, (level_of_scale(s),))) for p in programs for s in protocol.scales]
    return [*out, ("lossless", Recipe("lossless"))]


def _levels(protocol: Protocol) -> list[str]:
    return [*map(level_of_records, protocol.records), *map(level_of_scale, protocol.scales)]


def _judge_by_size(work: Work, exhaustive: bool) -> None:
    """Judge distinct candidates from the smallest up; all of one size are judged, then the first size that has a passing one ends it."""
    distinct = sorted((c for c in work.candidates if c.status != "duplicate"), key=lambda c: (c.size_bytes, c.index))
    if exhaustive:
        work.judge([c.index for c in distinct])
        return
    for _, same_size in groupby(distinct, key=lambda c: c.size_bytes):
        if any(c.status == "accepted" for c in work.judge([c.index for c in same_size])):
            return


def _explained(candidate: Candidate, best: Candidate | None) -> Candidate:
    if best is None:
        return replace(candidate, reason=candidate.reason or "the search was cancelled")
    if candidate.index == best.index:
        return replace(candidate, status="selected")
    if candidate.status == "skipped":
        return replace(candidate, reason=f"not simulated: no smaller than candidate {best.index}, which passes")
    if candidate.status == "accepted":
        return replace(candidate, reason=f"passes, but is no smaller than candidate {best.index}")
    return candidate
