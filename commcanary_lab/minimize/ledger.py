"""Verify the ledger of a minimiser: its binding to the result, its inner consistency and, with the source, every figure in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.errors import FormatError
from commcanary_lab.minimize import ddmin_ledger, search_ledger
from commcanary_lab.minimize.ddmin import LEDGER_FORMAT as DDMIN_FORMAT
from commcanary_lab.minimize.search import LEDGER_FORMAT as SEARCH_FORMAT
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.trace.model import Trace
from commcanary_lab.verify.documents import difference

__all__ = ["LedgerCheck", "verify_ledger"]

#: What is wrong with a document when reading a field of it raises.
_INCOMPLETE = (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError)


@dataclass(frozen=True)
class LedgerCheck:
    """Result of `verify_ledger`.

    Attributes
    ----------
    status : str
        ``recomputed`` (the minimiser was run again and gave this very ledger), ``consistent`` (bound to its result and true to itself;
        without the source, figures that only a simulation gives are not covered) or ``mismatch``.
    first_difference : str or None
        Where the ledger first differs, with both values.
    method : str
        ``search`` or ``ddmin``.
    entries : int
        Candidates or steps of the ledger.
    """

    status: str
    first_difference: str | None
    method: str
    entries: int

    @property
    def passed(self) -> bool:
        """True unless something differs."""
        return self.status != "mismatch"

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return asdict(self)


def verify_ledger(
    ledger: Mapping[str, Any], result: Canary | Trace, trace: Trace | None = None, *, salt: bytes = b"", model: CostModel | None = None
) -> LedgerCheck:
    """Verify a ledger against what the minimiser returned and, where the source is given, by running the minimiser again.

    Parameters
    ----------
    ledger : mapping
        What `Search.ledger` or `Reduction.ledger` returned.
    result : Canary or Trace
        The canary that a search selected; for ddmin the reduced trace, or a canary of it.
    trace : Trace, optional
        The source; the minimiser is then run again and the ledgers are compared value by value.
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
        If it is no ledger, or the result is of another kind.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> from commcanary_lab.minimize import reduce, search
    >>> trace = lab.samples.adversarial()
    >>> found = search(trace, range(2, 5))
    >>> verify_ledger(found.ledger(), found.canary).status, verify_ledger(found.ledger(), found.canary, trace).status
    ('consistent', 'recomputed')
    >>> verify_ledger({**found.ledger(), "accepted": 9}, found.canary).first_difference.split(":")[0]
    'sha256'
    >>> reduced = reduce(trace)
    >>> verify_ledger(reduced.ledger(), reduced.trace).status, verify_ledger(reduced.ledger(), reduced.trace, trace).status
    ('consistent', 'recomputed')
    """
    document = dict(ledger)
    name = document.get("format")
    if name == DDMIN_FORMAT:
        return _check(document, "ddmin", "steps", lambda: ddmin_ledger.first_difference(document, result, trace, salt, model), trace)
    if name != SEARCH_FORMAT:
        raise FormatError(f"format is {name!r}", field="format", remedy=f"expected {SEARCH_FORMAT} or {DDMIN_FORMAT}")
    if not isinstance(result, Canary):
        raise FormatError("a search is verified with the canary that it selected", remedy="give the canary, not a trace")
    return _check(document, "search", "candidates", lambda: search_ledger.first_difference(document, result, trace, salt, model), trace)


def _check(document: dict[str, Any], method: str, listed: str, find: Callable[[], str | None], trace: Trace | None) -> LedgerCheck:
    if not isinstance(document.get(listed), list):
        raise FormatError("is no list", field=listed, remedy="write it again with --ledger")
    count = len(document[listed])
    try:
        own = sha256_hex(canonical_bytes({k: v for k, v in document.items() if k != "sha256"}))
        found = difference(document["sha256"], own, "sha256") or find()
    except _INCOMPLETE as e:
        return LedgerCheck("mismatch", f"not a complete ledger: {type(e).__name__}: {e}", method, count)
    passed = "consistent" if trace is None else "recomputed"
    return LedgerCheck("mismatch" if found else passed, found, method, count)
