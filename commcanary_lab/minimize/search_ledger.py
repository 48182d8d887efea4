"""What a search ledger must agree with: the selected canary, the rest of itself and, with the source, the search run again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import LabError
from commcanary_lab.minimize.search import search
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.documents import difference, first_of
from commcanary_lab.verify.model import Tolerances

__all__ = ["first_difference"]


def first_difference(document: Mapping[str, Any], canary: Canary, trace: Trace | None, salt: bytes, model: CostModel | None) -> str | None:
    """Return where a search ledger first differs from what it must agree with; None where it does not.

    Parameters
    ----------
    document, canary, trace, salt, model
        As for `ledger.verify_ledger`.
    """
    found = _binding(document, canary) or _consistency(document)
    if found is None and trace is not None:
        found = _rerun(document, trace, salt, model)
    return found


def _binding(document: Mapping[str, Any], canary: Canary) -> str | None:
    """The ledger's statements about the selected canary against the canary itself."""
    if document["selected"] is None:
        return "selected: stated None, a canary was given"
    chosen = document["candidates"][document["selected"]]
    at = f"candidates[{document['selected']}]"
    pairs: list[tuple[str, Any, Any]] = [
        ("canary_sha256", document["canary_sha256"], canary.identity),
        ("canary_bytes", document["canary_bytes"], canary.size_bytes),
        (f"{at}.sha256", chosen["sha256"], canary.identity),
        (f"{at}.canary_bytes", chosen["canary_bytes"], canary.size_bytes),
        (f"{at}.canary_records", chosen["canary_records"], canary.records),
        (f"{at}.timing", chosen["timing"], canary.timing),
        (f"{at}.status", chosen["status"], "selected"),
        ("source.events", document["source"]["events"], canary.source.events),
        ("statuses.timing", document["statuses"]["timing"], canary.timing),
    ]
    if not canary.source.salted:
        pairs.append(("source.sha256", document["source"]["sha256"], canary.source.root))
    return first_of(pairs)


def _consistency(document: Mapping[str, Any]) -> str | None:
    """What follows from the rest of the ledger."""
    entries = document["candidates"]
    selected = entries[document["selected"]]
    passed = [c for c in entries if c["status"] in ("accepted", "selected")]
    pairs: list[tuple[str, Any, Any]] = [
        ("accepted", document["accepted"], len(passed)),
        ("evaluations", document["evaluations"], len({c["sha256"] for c in entries if "judgement" in c})),
    ]
    for i, c in enumerate(entries):
        at = f"candidates[{i}]"
        pairs.append((f"{at}.index", c["index"], i))
        levels = c["recipe"]["levels"]
        budget = int(levels[0].removeprefix("records=")) if len(levels) == 1 and levels[0].startswith("records=") else None
        pairs.append((f"{at}.records", c["records"], budget))
        earlier = next((e["index"] for e in entries[:i] if e["sha256"] == c["sha256"]), None)
        pairs.append((f"{at}: the same canary as an earlier one", c["status"] == "duplicate", earlier is not None))
        if c["status"] == "duplicate":
            pairs.append((f"{at}.reason", c["reason"], f"the same canary as candidate {earlier}"))
        pairs.append((f"{at}: simulated", "judgement" in c, c["status"] in ("accepted", "rejected", "selected")))
        if c["status"] == "skipped" and document["stopped"] != "cancelled":
            pairs.append((f"{at}: skipped and smaller than the selected", c["canary_bytes"] < selected["canary_bytes"], False))
        if "judgement" in c:
            pairs += _judgement(at, c)
    smallest = min((c["canary_bytes"], c["judgement"]["worst_error"], c["index"]) for c in passed)
    pairs.append(("selected", document["selected"], smallest[2]))
    return first_of(pairs)


def _judgement(at: str, entry: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    found, passed = entry["judgement"], entry["status"] in ("accepted", "selected")
    worst = found["worst_error"]
    return [
        (f"{at}: the status follows from the checks", passed, found["reason"] is None),
        (f"{at}.judgement.worst_error <= 1", worst is not None and worst <= 1, passed),
        (f"{at}.judgement.ranking", found["ranking"] == "pass", found["decisions_kept"] == found["decisions_total"]),
        (f"{at}: ranking and behaviour pass", found["ranking"] == "pass" and found["behavior"] in ("pass", "unverified"), passed),
        *([(f"{at}.reason", entry["reason"], found["reason"])] if not passed else []),
    ]


def _rerun(document: Mapping[str, Any], trace: Trace, salt: bytes, model: CostModel | None) -> str | None:
    if document["stopped"] == "cancelled":
        return "stopped: a cancelled search cannot be run again"
    try:
        p = document["protocol"]
        found = search(
            trace,
            p["records"],
            scales=p["scales"],
            flat=p["flat"],
            refine=p["refine"],
            exhaustive=p["exhaustive"],
            backends=[Backend(**b) for b in p["backends"]],
            model=model or p["model"],
            tolerances=Tolerances(**p["tolerances"]),
            assume=p["assume"],
            salt=salt,
        )
    except (LabError, KeyError, TypeError, ValueError) as e:
        return f"protocol: cannot be run again: {e}"
    return difference(document, found.ledger())
