"""Documents of this package, compared leaf by leaf with what they should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Difference", "DocumentCheck", "check_document", "difference", "first_of"]


class _Absent:
    """Stands for a value that one of the two documents does not have; equal to no text that a document may hold."""


_ABSENT = _Absent()


@dataclass(frozen=True)
class Difference:
    """One leaf that differs: its path, what the document states, and what was recomputed."""

    path: str
    stated: Any
    recomputed: Any

    def __str__(self) -> str:
        return f"{self.path}: stated {_text(self.stated)}, recomputed {_text(self.recomputed)}"


@dataclass(frozen=True)
class DocumentCheck:
    """Outcome of a recomputation.

    Attributes
    ----------
    status : str
        ``recomputed`` or ``mismatch``.
    first_difference : Difference or None
        In the order of the document.
    leaves, differences : int
        Values compared, and those that differ.
    not_covered : mapping of str to str
        Paths that the document has and no recomputation decides, with the reason.
    """

    status: str
    first_difference: Difference | None
    leaves: int
    differences: int
    not_covered: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """True when every value came out as stated."""
        return self.status == "recomputed"

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return {
            "format": "commcanary_lab.check.v1",
            "status": self.status,
            "first_difference": None if self.first_difference is None else asdict(self.first_difference),
            "leaves": self.leaves,
            "differences": self.differences,
            "not_covered": [{"path": k, "reason": v} for k, v in self.not_covered.items()],
        }

    def __repr__(self) -> str:
        if self.first_difference is None:
            return f"DocumentCheck({self.status}: {self.leaves:,} values)"
        return f"DocumentCheck({self.status}: {self.differences:,} of {self.leaves:,} values; first {self.first_difference})"


def check_document(stated: Any, recomputed: Any, labels: Mapping[str, str] | None = None, *, path: str = "") -> DocumentCheck:
    """Compare two JSON values leaf by leaf, types and bits included.

    Parameters
    ----------
    stated, recomputed : JSON value
        The document, and what it should be.
    labels : mapping of str to str, optional
        Paths that nothing decides, with the reason; those present are listed in the result.
    path : str
        Where the two values stand in their documents.

    Examples
    --------
    >>> check_document({"a": [1, 2.0]}, {"a": [1, 2]}).first_difference
    Difference(path='a[1]', stated=2.0, recomputed=2)
    """
    first, leaves, differences = None, 0, 0
    present = {}
    for where, a, b in _leaves(stated, recomputed, path):
        leaves += 1
        if labels and where in labels:
            present[where] = labels[where]
        if type(a) is not type(b) or repr(a) != repr(b):  # by text, so that -0.0 is not 0.0
            differences += 1
            first = first or Difference(where, _shown(a), _shown(b))
    return DocumentCheck("mismatch" if differences else "recomputed", first, leaves, differences, present)


def difference(stated: Any, found: Any, path: str = "") -> str | None:
    """Return where two JSON values first differ, in words; None when they are equal, types and bits included.

    Examples
    --------
    >>> difference({"a": [1, 2]}, {"a": [1, 3]}), difference([1], [1.0], "b"), difference({}, {})
    ('a[1]: stated 2, recomputed 3', 'b[0]: stated 1, recomputed 1.0', None)
    """
    first = check_document(stated, found, path=path).first_difference
    return None if first is None else str(first)


def first_of(pairs: Iterable[tuple[str, Any, Any]]) -> str | None:
    """Return the first difference among pairs of path, stated and found value; None where all are equal."""
    return next((d for d in (difference(stated, found, path) for path, stated, found in pairs) if d is not None), None)


def _leaves(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*b, *(k for k in a if k not in b)]:
            yield from _leaves(a.get(key, _ABSENT), b.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(a, list) and isinstance(b, list):
        for i in range(max(len(a), len(b))):
            yield from _leaves(a[i] if i < len(a) else _ABSENT, b[i] if i < len(b) else _ABSENT, f"{path}[{i}]")
    else:
        yield path, a, b


def _shown(value: Any) -> Any:
    return "(absent)" if value is _ABSENT else value


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
