"""Ledgers of minimisers as files: which method wrote one, and what it came to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commcanary_lab.canonical import canonical_bytes, read_document, sha256_hex
from commcanary_lab.errors import FormatError
from commcanary_lab.limits import DEFAULT, Limits
from commcanary_lab.workspace.stated import DDMIN_LEDGER, SEARCH_LEDGER

__all__ = ["LedgerFile", "parse_ledger", "read_ledger"]

_REMEDY = "write it again with --ledger"

#: The list of what was tried, and the counts that must be there, per format.
_FIELDS = {
    SEARCH_LEDGER: ("search", "candidates", ("accepted", "evaluations")),
    DDMIN_LEDGER: ("ddmin", "steps", ("events_before", "events_after", "oracle_calls", "decisions_kept", "decisions_total")),
}


@dataclass(frozen=True, eq=False)
class LedgerFile:
    """A ledger; `minimize.verify_ledger` recomputes that of a search.

    Attributes
    ----------
    method : {"search", "ddmin"}
        Which minimiser wrote it.
    tried : int
        Candidates of a search, steps of ddmin.
    stopped : str
        Why it stopped.
    document : mapping
        The decoded file.
    """

    method: str
    tried: int
    stopped: str
    document: Mapping[str, Any] = field(repr=False)


def read_ledger(path: str | os.PathLike[str], *, limits: Limits = DEFAULT) -> LedgerFile:
    """Read a ledger.

    Raises
    ------
    InputError
        If the file cannot be read or is no ledger; the message names file and field.
    """
    return parse_ledger(read_document(path, _REMEDY, limits=limits), file=str(path))


def parse_ledger(document: Any, *, file: str | None = None) -> LedgerFile:
    """Check a decoded ledger and return it typed.

    Raises
    ------
    FormatError
        If a count or the list of candidates or steps is missing, or a search ledger does not have its own SHA-256.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> parse_ledger(lab.search(lab.samples.adversarial(), range(2, 4)).ledger()).method
    'search'
    """

    def refuse(what: str, where: str) -> FormatError:
        return FormatError(what, file=file, field=where, remedy=_REMEDY)

    if not isinstance(document, dict):
        raise FormatError("is not an object", file=file, remedy=_REMEDY)
    name = document.get("format")
    if not isinstance(name, str) or name not in _FIELDS:
        raise refuse(f"is {name!r}, expected {' or '.join(_FIELDS)}", "format")
    method, listed, counts = _FIELDS[name]
    if not isinstance(entries := document.get(listed), list) or not all(isinstance(e, dict) for e in entries):
        raise refuse("is no list of objects", listed)
    for count in counts:
        if not isinstance(value := document.get(count), int) or isinstance(value, bool) or value < 0:
            raise refuse(f"is {value!r}, expected a count", count)
    if not isinstance(stopped := document.get("stopped"), str):
        raise refuse("is no text", "stopped")
    own = {k: v for k, v in document.items() if k != "sha256"}
    if method == "search" and document.get("sha256") != sha256_hex(canonical_bytes(own)):
        raise refuse("is not that of the ledger: the file was changed after the search", "sha256")
    return LedgerFile(method, len(entries), stopped, document)
