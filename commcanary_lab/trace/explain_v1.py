"""Schema errors of one event of ``commcanary.trace.v1``, in words: field, what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from commcanary_lab.trace.ops import canonical_dtype, canonical_reduction
from commcanary_lab.trace.schema_v1 import EVENT_SCHEMA

__all__ = ["Finding", "kind_of", "schema_findings"]

_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "of length at least",
    "maxLength": "of length at most",
}


class Finding(NamedTuple):
    """Something wrong with one event: the field, what is wrong with it, what to do."""

    field: str | None
    what: str
    remedy: str | None


def kind_of(value: Any) -> str:
    """Return what a JSON value is, in words.

    Examples
    --------
    >>> kind_of({}), kind_of(None), kind_of(2.5)
    ('an object', 'null', 'a number')
    """
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def schema_findings(event: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what the event schema finds wrong, one finding per value.

    Examples
    --------
    >>> for f in schema_findings({"op": "all_reduce", "bytes": "8", "gap_us": None, "ranks": 2}):
    ...     print(f.field, f.what, f.remedy, sep="; ")
    bytes; bytes is a string ('8'); write an integer, without quotes
    gap_us; gap_us is null (None); leave the field out where the value is unknown
    """
    for error in _validator().iter_errors(event):
        yield _explain(error)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # JSON Schema calls 8.0 an integer; a count that is written as a float is a sign of a lossy export
    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return extend(Draft202012Validator, type_checker=checker)(EVENT_SCHEMA)


def _explain(error: Any) -> Finding:
    path = list(error.absolute_path)
    field = str(path[0]) if path else None
    if error.validator == "required":
        name = error.message.split("'")[1]
        return Finding(name, "is missing", f"every event needs {name}")
    value = _short(error.instance)
    label = f"{field}{''.join(f'[{p}]' for p in path[1:])}" if field else "event"
    if error.validator == "enum":
        return _vocabulary(str(field), error.instance, value)
    if error.validator in _LIMITS:
        return Finding(field, f"{label} is {value}", f"expected a value {_LIMITS[error.validator]} {error.validator_value}")
    if error.validator == "minItems":
        return Finding(field, f"{label} is empty", "list at least one rank")
    if error.validator == "type":
        return Finding(field, f"{label} is {kind_of(error.instance)} ({value})", _type_remedy(error))
    if error.validator == "uniqueItems":
        return Finding(field, f"{label} lists a rank twice", "list each rank once")
    if error.validator == "const":
        return Finding(field, f"{label} is {value}", f"the only value is {error.validator_value!r}")
    if error.validator == "pattern":
        return Finding(field, f"{label} has the key {value}, which is not a rank", "use ranks as keys")
    if error.validator == "anyOf" and (inner := _alternative(error)) is not None:
        return _explain(inner)
    return Finding(field, f"{label}: {error.message}"[:300], None)


def _alternative(error: Any) -> Any:
    """The error inside the alternative that the value was meant as: the one whose type fits, else the first that is not null."""
    for inner in error.context:
        if inner.validator != "type" or len(inner.relative_path) > 0:
            return inner
    return next((e for e in error.context if e.validator_value != "null"), None)


def _vocabulary(field: str, instance: Any, value: str) -> Finding:
    text = instance if isinstance(instance, str) else ""
    if field == "dtype":
        alias = canonical_dtype(text)
        return Finding(field, f"dtype {value} is not a known dtype", f"write {alias!r}" if alias else "see the dtype table of the format")
    alias = canonical_reduction(text)
    return Finding(field, f"{field} {value} is not known", f"write {alias!r}" if alias else "one of sum, avg, min, max, product")


def _type_remedy(error: Any) -> str:
    expected = error.validator_value
    if error.instance is None:
        return "leave the field out where the value is unknown"
    article = f"an {expected}" if expected[0] in "aeio" else f"a {expected}"
    return (
        f"write {article}, without quotes"
        if isinstance(error.instance, str) and expected in ("number", "integer")
        else f"expected {article}"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
