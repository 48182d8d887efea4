"""What a ddmin ledger must agree with: the reduced trace, the rule followed with its own answers and, with the source, a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.canary.commit import commitment
from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import LabError
from commcanary_lab.limits import DEFAULT
from commcanary_lab.minimize.ddmin import Reduction, ddmin
from commcanary_lab.minimize.ddmin_rule import Stop, ranges_of, reduce_by_rule
from commcanary_lab.minimize.oracle import decision_labels
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.derived import derived_from
from commcanary_lab.verify.documents import difference, first_of
from commcanary_lab.verify.model import Tolerances

__all__ = ["first_difference"]

IntArray = npt.NDArray[np.int64]


def first_difference(
    document: Mapping[str, Any], result: Canary | Trace, trace: Trace | None, salt: bytes, model: CostModel | None
) -> str | None:
    """Return where a ddmin ledger first differs from what it must agree with; None where it does not.

    Parameters
    ----------
    document, result, trace, salt, model
        As for `ledger.verify_ledger`.
    """
    found = _binding(document, result) or _replay(document)
    if found is None and trace is not None:
        found = _rerun(document, result, trace, salt, model)
    return found


def _binding(document: Mapping[str, Any], result: Canary | Trace) -> str | None:
    stated = derived_from(result)
    if stated is None:
        return f"derived_from: stated {document['derived_from']['method']}, the result was not derived from anything"
    events = result.source.events if isinstance(result, Canary) else len(result)
    return first_of(
        [("derived_from", document["derived_from"], stated.to_json()), ("events_after", document["events_after"], events)],
    )


class _Script:
    """Answers the tests of the rule as the ledger does, and notes what should have been tested."""

    def __init__(self, steps: list[Mapping[str, Any]], stopped: str) -> None:
        self.steps, self.stopped = steps, stopped
        self.asked: list[tuple[str, int, int, IntArray]] = []

    def accepts(self, kind: str, parts: int, part: int, kept: IntArray) -> bool:
        if len(self.asked) == len(self.steps):
            raise Stop(self.stopped if self.stopped in ("budget", "cancelled") else "nothing, with tests left")
        self.asked.append((kind, parts, part, kept))
        return bool(self.steps[len(self.asked) - 1]["accepted"])


def _replay(document: Mapping[str, Any]) -> str | None:
    """Follow the rule with the stated answers; nothing is simulated."""
    events, (whole, *steps) = document["events_before"], document["steps"]
    protocol, decisions = document["protocol"], document["decisions"]
    if not 0 <= events <= DEFAULT.max_events:
        return f"events_before: stated {events}, a trace has at most {DEFAULT.max_events}"
    if len(steps) > protocol["budget"]:
        return f"protocol.budget: stated {protocol['budget']}, found {len(steps)} tests"
    script = _Script(steps, document["stopped"])
    kept, stopped = reduce_by_rule(events, script.accepts)
    asked = [("whole", 1, 0, np.arange(events, dtype=np.int64)), *script.asked]
    tested = {k.tobytes() for *_, k in script.asked}
    held = next(s for s in reversed(document["steps"]) if s["accepted"])["decisions_held"]
    pairs: list[tuple[str, Any, Any]] = [("steps: tests", len(steps), len(script.asked)), ("stopped", document["stopped"], stopped)]
    if stopped == "budget":
        pairs.append(("oracle_calls at the end of the budget", len(steps), protocol["budget"]))
    pairs += [
        ("method", document["method"], "ddmin"),
        ("derived_from.method", document["derived_from"]["method"], "ddmin"),
        ("derived_from.kept", document["derived_from"]["kept"], kept.tolist()),
        ("events_after", document["events_after"], len(kept)),
        ("oracle_calls", document["oracle_calls"], len(steps)),
        ("oracle_evaluations", document["oracle_evaluations"], len(tested)),
        ("decisions", decisions, list(decision_labels([Backend(**b) for b in protocol["backends"]]))),
        ("decisions_total", document["decisions_total"], len(decisions)),
        ("decisions_kept", document["decisions_kept"], held),
        ("steps[0].accepted", whole["accepted"], True),
    ]
    for i, (step, test) in enumerate(zip(document["steps"], asked, strict=False)):
        pairs += _step(f"steps[{i}]", step, test, len(decisions))
    return first_of(pairs)


def _step(at: str, step: Mapping[str, Any], test: tuple[str, int, int, IntArray], decisions: int) -> Iterator[tuple[str, Any, Any]]:
    kind, parts, part, kept = test
    flipped = step["flipped"]
    yield from ((f"{at}.{n}", step[n], v) for n, v in zip(("kind", "parts", "part", "events"), (kind, parts, part, len(kept)), strict=True))
    yield f"{at}.flipped", flipped, sorted({f for f in flipped if 0 <= f < decisions})
    yield f"{at}.decisions_held", step["decisions_held"], decisions - len(flipped)
    yield f"{at}.accepted", step["accepted"], not flipped
    figures = {"p50_error", "p99_error", "tail_recall", "kept"}
    yield f"{at}: figures of accepted steps", sorted(set(step) & figures), sorted(figures) if step["accepted"] else []
    if step["accepted"]:
        yield f"{at}.kept", step["kept"], ranges_of(kept)


def _rerun(document: Mapping[str, Any], result: Canary | Trace, trace: Trace, salt: bytes, model: CostModel | None) -> str | None:
    if document["stopped"] == "cancelled":
        return "stopped: a cancelled reduction cannot be run again"
    try:
        p = document["protocol"]
        found = ddmin(
            trace,
            backends=[Backend(**b) for b in p["backends"]],
            model=model or p["model"],
            budget=p["budget"],
            tolerances=Tolerances(**p["tolerances"]),
            assume=p["assume"],
        )
    except (LabError, KeyError, TypeError, ValueError) as e:
        return f"protocol: cannot be run again: {e}"
    return difference(document, found.ledger()) or _events(found, result, salt)


def _events(found: Reduction, result: Canary | Trace, salt: bytes) -> str | None:
    """Whether the result holds the kept events: their values, not only their number."""
    if isinstance(result, Canary):
        part = found.trace.take(slice(result.source.start, result.source.stop))
        return difference(result.source.root, commitment(part, salt), "events of the canary")
    wanted, given = (commitment(t) for t in (found.trace, result))
    return difference(given, wanted, "events of the reduced trace")
