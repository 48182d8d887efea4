"""Read a pickle that holds nothing but plain values: None, booleans, numbers, texts, bytes, lists, tuples, dictionaries.

A pickle is a program. This reader never hands it to `pickle`: it follows the few instructions that make plain values and refuses the file
at the first other one, so nothing is ever looked up, imported or called. Lengths that instructions claim are checked against the bytes
that are there, so that a small file cannot ask for a large allocation, and containers cannot be keys, whose hash could take forever.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, NoReturn

from commcanary_lab.errors import FormatError

__all__ = ["is_pickle", "load_plain"]

_MAX_BITS = 256
_MAX_DEPTH = 64

#: Instructions whose argument is the value.
_VALUES = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
})  # fmt: skip
_MAKE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple,
}  # fmt: skip
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NAMES = frozenset({"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "EXT1", "EXT2", "EXT4"})


def is_pickle(head: bytes) -> bool:
    """Tell from the first bytes whether it looks like a pickle of protocol 2 or later, or an older one of a dictionary.

    Examples
    --------
    >>> import pickle
    >>> is_pickle(pickle.dumps({})), is_pickle(pickle.dumps({}, 0)), is_pickle(b"{}")
    (True, True, False)
    """
    return (len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5) or head.startswith((b"(dp", b"(d.", b"}q"))


def load_plain(data: bytes, *, file: str, what: str) -> Any:
    """Return the plain value that a pickle holds.

    Parameters
    ----------
    data : bytes
        The pickle.
    file, what : str
        The file, and what it should be, for messages.

    Raises
    ------
    FormatError
        If it holds anything else, is damaged, or claims more than it has.

    Examples
    --------
    >>> import pickle
    >>> load_plain(pickle.dumps({"a": [1, (2.5, None)]}), file="x", what="a dump")
    {'a': [1, (2.5, None)]}
    >>> load_plain(pickle.dumps(print, 2), file="x", what="a dump")
    Traceback (most recent call last):
    commcanary_lab.errors.FormatError: x: the pickle names '__builtin__ print' (GLOBAL), and nothing is looked up; give plain values
    """
    machine = _Machine(file)
    try:
        value = machine.run(data)
    except FormatError:
        raise
    except Exception as e:
        # pickletools raises ValueError and others for what is damaged
        raise FormatError(f"not readable as a pickle: {str(e)[:120] or type(e).__name__}", file=file, remedy=f"give {what}") from None
    if _too_deep(value):
        raise FormatError(f"the pickle nests deeper than {_MAX_DEPTH} levels, or holds itself", file=file, remedy=f"give {what}")
    return value


class _Machine:
    """Follows the instructions of one pickle."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """Return the value that is on top at the end."""
        for code, argument, position in pickletools.genops(data):
            name = code.name
            if name in _VALUES:
                self._value(argument, position)
            elif name in _MAKE:
                self.stack.append(_MAKE[name]())
            elif name == "STOP":
                return self.stack.pop()
            elif name not in ("PROTO", "FRAME"):
                self._step(name, argument, position)
        self._refuse("the pickle ends early")

    def _value(self, argument: Any, position: int | None) -> None:
        if isinstance(argument, int) and argument.bit_length() > _MAX_BITS:
            self._refuse(f"the pickle has a number of {argument.bit_length()} bits at byte {position}")
        self.stack.append(argument)

    def _step(self, name: str, argument: Any, position: int | None) -> None:
        stack = self.stack
        if name == "MARK":
            self.marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            if argument not in self.memo:
                self._refuse(f"the pickle asks at byte {position} for entry {argument}, which it has not stored")
            stack.append(self.memo[argument])
        elif name in _TUPLES:
            self._need(_TUPLES[name])
            stack.append(tuple(self._cut(len(stack) - _TUPLES[name])))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._cut(self._mark())
            stack.append(tuple(items) if name == "TUPLE" else items if name == "LIST" else self._filled({}, items))
        elif name in ("APPEND", "APPENDS"):
            items = self._cut(self._mark() if name == "APPENDS" else len(stack) - 1)
            self._container(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            self._need(0 if name == "SETITEMS" else 3)
            items = self._cut(self._mark() if name == "SETITEMS" else len(stack) - 2)
            self._filled(self._container(dict), items)
        else:
            shown = f" {str(argument)[:80]!r}" if isinstance(argument, str) else ""
            what = f"the pickle names{shown} ({name}), and nothing is looked up"
            other = f"the pickle has the instruction {name} at byte {position}, which plain values do not need"
            self._refuse(what if name in _NAMES else other)

    def _mark(self) -> int:
        if not self.marks:
            self._refuse("the pickle closes a list that it has not opened")
        return self.marks.pop()

    def _cut(self, at: int) -> list[Any]:
        if at < (self.marks[-1] if self.marks else 0):
            self._refuse("the pickle takes more than it has")
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def _need(self, count: int) -> None:
        if len(self.stack) < count:
            self._refuse("the pickle takes more than it has")

    def _container(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            self._refuse(f"the pickle fills something that is no {kind.__name__}")
        return self.stack[-1]

    def _filled(self, target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
        if len(items) % 2:
            self._refuse("the pickle has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(key, (list, dict, tuple)):
                self._refuse(f"the pickle has a {type(key).__name__} as a key")
            target[key] = value
        return target

    def _refuse(self, what: str) -> NoReturn:
        raise FormatError(what, file=self.file, remedy="give plain values")


def _too_deep(value: Any) -> bool:
    """Tell whether containers nest too deep (or without end), without recursion; a shared container is looked at once per level."""
    level: dict[int, Any] = {id(value): value}
    for _ in range(_MAX_DEPTH):
        below: dict[int, Any] = {}
        for item in level.values():
            inside = item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else ()
            below.update((id(x), x) for x in inside if isinstance(x, (dict, list, tuple)))
        if not below:
            return False
        level = below
    return True
