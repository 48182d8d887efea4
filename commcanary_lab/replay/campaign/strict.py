"""Tables of a TOML file become structures, and everything that is wrong is said at once."""

from __future__ import annotations

import difflib
import types
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from commcanary_lab.errors import Problem

__all__ = ["Complaints", "convert", "nearest"]

S = TypeVar("S", bound=msgspec.Struct)


class Complaints:
    """Collects problems of one file.

    Parameters
    ----------
    file : str
        Its name in messages.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(self, field: str, what: str, remedy: str) -> None:
        """Take one problem."""
        self.problems.append(Problem(what, file=self.file, field=field, remedy=remedy))


def nearest(name: str, known: list[str]) -> str:
    """Return a remedy for an unknown name.

    Examples
    --------
    >>> nearest("critera", ["criteria", "audits"])
    "did you mean 'criteria'?"
    """
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"


def convert(table: object, kind: type[S], complaints: Complaints, at: str = "") -> S | None:
    """Return a table as a structure; None where something was wrong, which is then among the complaints.

    Parameters
    ----------
    table : object
        From the TOML reader.
    kind : type
        A frozen structure.
    complaints : Complaints
        Takes every problem: unknown keys, missing ones, wrong values.
    at : str
        Where the table stands, for messages.
    """
    if not isinstance(table, dict):
        complaints.add(at or "the file", f"is {_told(table)}, not a table", "write a table")
        return None
    before = len(complaints.problems)
    known = {f.name: f for f in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{at}.{key}" if at else key
        if key not in known:
            complaints.add(where, "there is no such key", nearest(key, list(known)))
        else:
            values[key] = _value(value, hints[key], complaints, where)
    for name, field in known.items():
        if field.required and name not in table:
            complaints.add(f"{at}.{name}" if at else name, "is missing", f"write {name} = ...")
    return kind(**values) if len(complaints.problems) == before else None


def _value(value: object, hint: Any, complaints: Complaints, at: str) -> Any:
    inner = _struct(hint)
    if inner is not None:
        return convert(value, inner, complaints, at)
    if get_origin(hint) is tuple and (item := _struct(get_args(hint)[0])) is not None:
        if not isinstance(value, list):
            complaints.add(at, f"is {_told(value)}, not a list of tables", f"write [[{at}]]")
            return ()
        return tuple(convert(v, item, complaints, f"{at}[{_name(v, i)}]") for i, v in enumerate(value))
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        complaints.add(at, f"is {_told(value)}", str(error)[:1].lower() + str(error)[1:])
        return None


def _name(table: object, i: int) -> str:
    name = table.get("name") if isinstance(table, dict) else None
    return name if isinstance(name, str) and name else str(i)


def _struct(hint: Any) -> type[msgspec.Struct] | None:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, msgspec.Struct)), None)


def _told(value: object) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list" if len(value) > 4 else repr(value)
    return repr(value).lower() if isinstance(value, bool) else repr(value)
