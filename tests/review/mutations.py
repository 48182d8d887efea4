"""Every leaf of a document changed in turn, and every field left out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any


def changed(value: Any) -> list[Any]:
    """Values that a forger might write instead: near, far, and of the same type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [round(value + 0.001, 6), value * 0.5 + 0.2501]
    if isinstance(value, str):
        # a digit of a hash, a letter of a name
        last = {"0": "1"}.get(value[-1:], "0") if len(value) == 64 else "x"
        return [value[:-1] + last if len(value) == 64 else value + last]
    return [0]


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, list[Any], Any]]:
    """Yield path, keys and value of each leaf; empty lists and objects are leaves."""

    def walk(value: Any, path: str, keys: list[Any]) -> Iterator[tuple[str, list[Any], Any]]:
        if isinstance(value, dict) and value:
            for k, v in value.items():
                yield from walk(v, f"{path}.{k}" if path else k, [*keys, k])
        elif isinstance(value, list) and value:
            for i, v in enumerate(value):
                yield from walk(v, f"{path}[{i}]", [*keys, i])
        else:
            yield path, keys, value

    yield from walk(document, path, [])


def mutations(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path of each change with the changed document: every leaf changed, every leaf removed."""
    for path, keys, value in leaves(document):
        for new in changed(value) if not isinstance(value, (dict, list)) else [[0] if isinstance(value, list) else {"x": 0}]:
            forged = copy.deepcopy(document)
            parent = forged
            for k in keys[:-1]:
                parent = parent[k]
            parent[keys[-1]] = new
            yield path, forged
        forged = copy.deepcopy(document)
        parent = forged
        for k in keys[:-1]:
            parent = parent[k]
        del parent[keys[-1]]
        yield f"{path} removed", forged
