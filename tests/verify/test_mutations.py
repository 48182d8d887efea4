"""Every artifact, changed at every place: each change is refused or found by a verify verb, or is listed here with the reason.

A forger is assumed who knows the formats and recomputes every hash inside a document, but does not have the source.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest

import commcanary_lab as lab
from commcanary_lab.canary.compile import compile_trace
from commcanary_lab.canary.read import read_canary_bytes
from commcanary_lab.canary.streams import BoundedStream, ExactStream
from commcanary_lab.canonical import canonical_bytes, loads_strict
from commcanary_lab.errors import LabError
from commcanary_lab.minimize.ddmin import ddmin
from commcanary_lab.minimize.ledger import verify_ledger
from commcanary_lab.minimize.search import search
from commcanary_lab.review import Policy, compare, compare_measured, verify_comparison
from commcanary_lab.simulate import DEFAULT_BACKENDS, Backend, prepare
from commcanary_lab.simulate.report import simulate_prepared
from commcanary_lab.simulate.report_file import ReportFile
from commcanary_lab.trace import Trace
from commcanary_lab.trace.columns import Column, Ragged
from commcanary_lab.verify.reports import verify_report
from commcanary_lab.verify.run import verify_canary
from tests.golden_traces import golden_trace
from tests.mutations import Mutation, mutations, rehashed
from tests.review.test_measured import measured
from tests.verify.traces import KNOWN, mixed_trace, repeating_trace


@dataclass(frozen=True)
class Case:
    """A true document of one kind, what verifies it, and what verifies it knowing less (``alone``) or more (``further``)."""

    document: Any
    passes: Callable[[Any], bool]
    rehash: Callable[[Any], Any] = rehashed
    alone: Callable[[Any], bool] | None = None
    further: Callable[[Any], bool] | None = None


def _plain(document: Any) -> Any:
    return loads_strict(canonical_bytes(document))


# -- what no verification decides -------------------------------------------------------------------------------------------


def _near(mutation: Mutation, document: Any) -> bool:
    """A number of the backend changed by no more than 0.001."""
    name = mutation.path.removeprefix("backend.")
    old, new = document["backend"].get(name), mutation.document["backend"].get(name)
    return isinstance(new, float) and abs(new - old) <= 0.001


def _is(pattern: str) -> Callable[[Mutation, Any], bool]:
    return lambda mutation, _: re.fullmatch(pattern, str(mutation)) is not None


#: Numbers of a protocol that were changed; lists, missing and unheard-of fields are found.
_PROTOCOL = r"protocol\.(backends\[\d\]\.\w+|tolerances\.\w+|budget|refine|exhaustive|flat|(records|scales)\[\d\]) = (True|False|[\d.e-]+)"
_LABEL = "the name of a configuration is chosen freely and nothing follows from it; its numbers are recomputed"

#: Kind of artifact, which changes of it, and why nothing finds them.
NOT_COVERED: list[tuple[str, Callable[[Mutation, Any], bool], str]] = [
    ("report", _is(r"backend\.label = .*"), _LABEL),
    ("report", _is(r"source\.trace = .*"), "a file may be renamed; its events are bound by workload.sha256"),
    ("report", _is(r"source(\.\w+)? removed|samples removed"), "says less and nothing false: the hashes of workload and samples stay"),
    ("report", _near, "a true report of another backend, none of whose samples differs by 1 ns"),
    ("search ledger", _is(_PROTOCOL), "a true ledger: a search by this other protocol tries and selects the very same candidates"),
    ("search ledger", _is(r"protocol\.backends\[\d\]\.label = .*"), _LABEL),
    ("ddmin ledger", _is(_PROTOCOL), "a true ledger: a reduction by this other protocol takes the very same steps"),
    ("comparison", _is(r"thresholds\..*"), "a true comparison under another policy; `verify-comparison --policy` finds it"),
]


# -- the artifacts ----------------------------------------------------------------------------------------------------------


def canary_of(trace: Trace, records: int | None) -> Case:
    backends = (Backend("a"), Backend("b", bandwidth_gbps=99))
    canary = compile_trace(trace, records=records)
    if records is not None:
        assert {type(s) for s in canary.streams} == {BoundedStream, ExactStream}

    def passes(document: Any) -> bool:
        found = verify_canary(trace, read_canary_bytes(canonical_bytes(document)), backends=backends, assume=KNOWN)
        # ranking and behaviour are left out: commitments, bounds and traffic find every change without them
        return all(c.passed for c in found.checks if c.status not in ("ranking", "behavior"))

    return Case(_plain(loads_strict(canary.canonical)), passes)


def canaries() -> Iterator[Case]:
    yield canary_of(mixed_trace(9, "mixed"), None)
    yield canary_of(repeating_trace(96, "start"), 1)


def more_canaries() -> Iterator[Case]:
    for timing in ("gap", "start", "compute_before"):
        yield canary_of(mixed_trace(16, timing), None)
    yield canary_of(repeating_trace(96, "mixed"), 1)


def reports() -> Iterator[Case]:
    def case(document: dict[str, Any], source: Any) -> Case:
        return Case(_plain(document), lambda forged: verify_report(forged, source).passed)

    few = golden_trace("irr100").take(slice(0, 5))
    few = replace(few, observed_exposed_ns=Column.from_optional([50_000, None, *[90_000] * 3]), notes=("observational",))
    canary = lab.compile(few)
    report = simulate_prepared(prepare(canary.trace), Backend()).to_json(samples=True)
    yield case({**report, "source": {"canary": canary.identity}}, canary)
    unknown = replace(few, arrival_ns=Ragged.empty(5), arrival_known=np.zeros(5, np.bool_))
    report = simulate_prepared(prepare(unknown, {"skew_us": 2.0}), Backend("three", iterations=2, seed=9)).to_json(samples=True)
    yield case({**report, "source": {"trace": "few.json"}}, unknown)
    whole = golden_trace("irr100")
    yield case(simulate_prepared(prepare(whole), Backend(), ablations=frozenset(["pressure", "arrival_skew"])).to_json(), whole)


def search_ledgers() -> Iterator[Case]:
    trace = golden_trace("irr100").take(slice(0, 30))
    found = search(trace, (1,), scales=(5,), flat=False, refine=1, backends=DEFAULT_BACKENDS[:2])
    canary = found.canary
    assert canary is not None
    yield Case(
        _plain(found.ledger()),
        lambda forged: verify_ledger(forged, canary, trace).passed,
        alone=lambda forged: verify_ledger(forged, canary).passed,
    )


def ddmin_ledgers() -> Iterator[Case]:
    for trace, budget in ((golden_trace("irr100").take(slice(0, 40)), 256), (golden_trace("lay100"), 5)):
        found = ddmin(trace, budget=budget)
        reduced = found.trace
        yield Case(
            _plain(found.ledger()),
            lambda forged, reduced=reduced, trace=trace: verify_ledger(forged, reduced, trace).passed,
            alone=lambda forged, reduced=reduced: verify_ledger(forged, reduced).passed,
        )


def comparisons() -> Iterator[Case]:
    def rehash(document: Any) -> Any:
        """The hash of the policy follows from the thresholds that the comparison states."""
        with contextlib.suppress(LabError, KeyError, TypeError, ValueError):
            document["policy_sha256"] = Policy.from_mapping(document["thresholds"]).sha256(document["kind"])
        return document

    def case(document: Any, a: Any, b: Any, policy: Policy) -> Case:
        return Case(
            document,
            lambda forged: verify_comparison(forged, a, b).passed,
            rehash,
            further=lambda forged: verify_comparison(forged, a, b, policy).passed,
        )

    trace = golden_trace("irr100")
    base, slow, seed = (ReportFile.of(lab.simulate(trace, b)) for b in ("baseline", "congested", "seed=8"))
    for a, b in ((base, slow), (base, seed)):
        found = compare(a, b, allow_incompatible=b is seed)
        yield case(_plain(found.to_json()), a, b, Policy())
    policy = Policy(measured_resamples=100)
    c, d = measured(seed=1, n=120), measured((1, 1.3, 0.75, 1), seed=2, n=120)
    yield case(_plain(compare_measured(c, d, policy).to_json()), c, d, policy)


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "canary": canaries,
    "report": reports,
    "search ledger": search_ledgers,
    "ddmin ledger": ddmin_ledgers,
    "comparison": comparisons,
}


def _passes(check: Callable[[Any], bool], document: Any) -> bool:
    try:
        return check(document)
    except LabError:
        return False  # no longer a valid document: refused


@dataclass
class Counts:
    """What became of the changes of one kind of artifact."""

    changes: int = 0
    found: int = 0
    found_without_the_source: int = 0
    not_covered: int = 0


def _examine(kind: str, cases: Iterator[Case]) -> tuple[Counts, list[str]]:
    """Change every case everywhere; returns counts and the changes that are neither found nor listed."""
    counts, unlisted, used = Counts(), list[str](), set[int]()
    listed = [i for i, (k, _, _) in enumerate(NOT_COVERED) if k == kind]
    for case in cases:
        assert case.passes(case.document)
        assert case.rehash(_plain(case.document)) == case.document
        for mutation in mutations(case.document, case.rehash, once=kind != "report"):
            counts.changes += 1
            if case.alone is not None and not _passes(case.alone, mutation.document):
                counts.found_without_the_source += 1
                counts.found += 1  # what is found without the source is found with it: the source only adds checks
                continue
            if not _passes(case.passes, mutation.document):
                counts.found += 1
                continue
            reasons = {i for i in listed if NOT_COVERED[i][1](mutation, case.document)}
            used |= reasons
            counts.not_covered += bool(reasons)
            if not reasons or (case.further is not None and _passes(case.further, mutation.document)):
                unlisted.append(str(mutation))
    unlisted += [f"nothing needs the entry {NOT_COVERED[i][2]!r}" for i in listed if i not in used]
    return counts, unlisted


@pytest.mark.parametrize("kind", CASES)
def test_every_change_is_found_or_listed(kind: str, record_property: Callable[[str, object], None]) -> None:
    counts, unlisted = _examine(kind, CASES[kind]())
    for name, count in asdict(counts).items():
        record_property(f"{kind}: {name}", count)
    print(f"{kind}: " + ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in asdict(counts).items()))
    assert not unlisted
    assert counts.found > 100


@pytest.mark.slow
def test_every_change_of_more_canaries_is_found() -> None:
    counts, unlisted = _examine("canary", more_canaries())
    assert not unlisted
    assert counts.found == counts.changes
