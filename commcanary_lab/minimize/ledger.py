"""Verify a search ledger: its binding to the canary, its inner consistency and, with the source, every figure in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import FormatError, LabError
from commcanary_lab.minimize.search import LEDGER_FORMAT, search
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.model import Tolerances

__all__ = ["LedgerCheck", "first_difference", "verify_ledger"]


@dataclass(frozen=True)
class LedgerCheck:
    """Result of `verify_ledger`.

    Attributes
    ----------
    status : str
        ``recomputed`` (the search was run again and gave this very ledger), ``consistent`` (bound to the canary and true to itself;
        without the source, figures of candidates that were not selected are not covered) or ``mismatch``.
    first_difference : str or None
        Where the ledger first differs, with both values.
    candidates : int
        Entries of the ledger.
    """

    status: str
    first_difference: str | None
    candidates: int

    @property
    def passed(self) -> bool:
        """True unless something differs."""
        return self.status != "mismatch"

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return {"status": self.status, "first_difference": self.first_difference, "candidates": self.candidates}


def first_difference(stated: Any, found: Any, path: str = "") -> str | None:
    """Return where two JSON values first differ, None when they are equal; 1 and 1.0 differ.

    Examples
    --------
    >>> first_difference({"a": [1, 2]}, {"a": [1, 3]}), first_difference([1], [1.0]), first_difference({}, {})
    ('a[1]: stated 2, found 3', '[0]: stated 1, found 1.0', None)
    """
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in sorted({*stated, *found}):
            where = f"{path}.{key}" if path else str(key)
            if key not in stated or key not in found:
                return f"{where}: {'not stated' if key not in stated else 'stated'}, {'not found' if key not in found else 'found'}"
            if (difference := first_difference(stated[key], found[key], where)) is not None:
                return difference
        return None
    if isinstance(stated, list) and isinstance(found, list):
        for i, (a, b) in enumerate(zip(stated, found, strict=False)):
            if (difference := first_difference(a, b, f"{path}[{i}]")) is not None:
                return difference
        return None if len(stated) == len(found) else f"{path}: stated {len(stated)} entries, found {len(found)}"
    if type(stated) is not type(found) or stated != found:
        return f"{path}: stated {stated!r}, found {found!r}"
    return None


def verify_ledger(
    ledger: Mapping[str, Any], canary: Canary, trace: Trace | None = None, *, salt: bytes = b"", model: CostModel | None = None
) -> LedgerCheck:
    """Verify a ledger against the canary that it selected and, where the source is given, by running the search again.

    Parameters
    ----------
    ledger : mapping
        What `Search.ledger` returned.
    canary : Canary
        The selected canary.
    trace : Trace, optional
        The source; the search is then run again and the ledgers are compared value by value.
    salt : bytes
        The owner's salt, where there was one.
    model : CostModel, optional
        The cost model, where it is not a registered one.

    Returns
    -------
    LedgerCheck

    Raises
    ------
    FormatError
        If it is no ledger.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.minimize import search
    >>> trace = lab.samples.adversarial()
    >>> found = search(trace, range(2, 5))
    >>> verify_ledger(found.ledger(), found.canary).status, verify_ledger(found.ledger(), found.canary, trace).status
    ('consistent', 'recomputed')
    >>> verify_ledger({**found.ledger(), "accepted": 9}, found.canary).first_difference.split(":")[0]
    'sha256'
    """
    document = dict(ledger)
    if document.get("format") != LEDGER_FORMAT or not isinstance(document.get("candidates"), list):
        raise FormatError(f"format is {document.get('format')!r}", field="format", remedy=f"expected {LEDGER_FORMAT}")
    count = len(document["candidates"])
    try:
        difference = _own_hash(document) or _binding(document, canary) or _consistency(document)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError) as e:
        return LedgerCheck("mismatch", f"not a complete ledger: {type(e).__name__}: {e}", count)
    if difference is None and trace is not None:
        difference = _rerun(document, trace, salt, model)
        return LedgerCheck("mismatch" if difference else "recomputed", difference, count)
    return LedgerCheck("mismatch" if difference else "consistent", difference, count)


def _own_hash(document: Mapping[str, Any]) -> str | None:
    found = sha256_hex(canonical_bytes({k: v for k, v in document.items() if k != "sha256"}))
    return _equal("sha256", document["sha256"], found)


def _equal(path: str, stated: Any, found: Any) -> str | None:
    return first_difference(stated, found, path)


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
    return next((d for d in (_equal(*p) for p in pairs) if d is not None), None)


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
    return next((d for d in (_equal(*p) for p in pairs) if d is not None), None)


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
    return first_difference(document, found.ledger())
