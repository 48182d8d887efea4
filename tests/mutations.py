"""Forged documents: every leaf changed, every field left out, every list longer or shorter, every object with a field more."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from commcanary_lab.canonical import canonical_bytes, sha256_hex

__all__ = ["Mutation", "leaves", "mutations", "rehashed"]


@dataclass(frozen=True)
class Mutation:
    """A forged document: where, what was done, and what came of it."""

    path: str
    how: str
    document: Any

    def __str__(self) -> str:
        return f"{self.path} {self.how}"


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, list[Any], Any]]:
    """Yield path, keys and value of each leaf; empty lists and objects are leaves."""
    for where, keys, value in _nodes(document, path, []):
        if not (isinstance(value, (dict, list)) and value):
            yield where, keys, value


def _nodes(value: Any, path: str, keys: list[Any]) -> Iterator[tuple[str, list[Any], Any]]:
    yield path, keys, value
    if isinstance(value, dict):
        for k, v in value.items():
            yield from _nodes(v, f"{path}.{k}" if path else k, [*keys, k])
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from _nodes(v, f"{path}[{i}]", [*keys, i])


def _changed(value: Any) -> list[Any]:
    """Values that a forger might write instead: near, far, and of the same type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [math.nextafter(value, math.inf), round(value + 0.001, 6), value * 0.5 + 0.2501]
    if isinstance(value, str):
        if re.fullmatch("[0-9a-f]{16,64}", value):  # a digit of a hash
            return [value[:-1] + ("1" if value[-1] == "0" else "0")]
        return [value + "x", ""]
    return [0, "x"] if value is None else [[0]] if value == [] else [{"x": 0}]


def mutations(document: Any, rehash: Callable[[Any], Any] = lambda d: d, *, once: bool = False) -> Iterator[Mutation]:
    """Yield every forged document.

    Parameters
    ----------
    document : JSON value
        The true one; it is not changed.
    rehash : callable
        Recomputes the hashes inside a document that follow from the rest of it, as a forger would.
    once : bool
        Change each leaf once, not in several ways.
    """
    for path, keys, value in _nodes(document, "", []):
        if isinstance(value, dict):
            yield _forged(document, path, keys, "with a field more", lambda v: {**v, "unheard_of": 0}, rehash)
        elif isinstance(value, list) and value:
            yield _forged(document, path, keys, "with the last entry twice", lambda v: [*v, v[-1]], rehash)
            yield _forged(document, path, keys, "without the last entry", lambda v: v[:-1], rehash)
        if not (isinstance(value, (dict, list)) and value):
            others = [new for new in _changed(value) if new != value]
            for new in others[: 1 if once else None]:
                yield _forged(document, path, keys, f"= {new!r}", lambda _, new=new: new, rehash)
        if keys and isinstance(keys[-1], str):
            yield _forged(document, path, keys, "removed", None, rehash)


def _forged(
    document: Any, path: str, keys: list[Any], how: str, change: Callable[[Any], Any] | None, rehash: Callable[[Any], Any]
) -> Mutation:
    root: Any = [copy.deepcopy(document)]
    *way, last = [0, *keys]
    parent = root
    for key in way:
        parent = parent[key]
    if change is None:
        del parent[last]
    else:
        parent[last] = change(parent[last])
    forged = copy.deepcopy(root[0])
    again = rehash(root[0])
    # a changed hash that is recomputed is the true one again: nothing would have been forged
    return Mutation(path or "(document)", how, forged if again == document else again)


def rehashed(document: Any) -> Any:
    """Give a document the SHA-256 of itself, where it has one."""
    if isinstance(document, dict) and "sha256" in document:
        document["sha256"] = sha256_hex(canonical_bytes({k: v for k, v in document.items() if k != "sha256"}))
    return document
