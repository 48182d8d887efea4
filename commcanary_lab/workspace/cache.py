"""A bounded cache of opened artifacts and of what was computed from them."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import TypeVar, cast

import numpy as np

__all__ = ["ResultCache", "deep_size"]

T = TypeVar("T")


class ResultCache:
    """Least recently used results, bounded by the memory that their arrays take.

    Several threads may ask at once; one of them computes, the others wait for it.

    Parameters
    ----------
    max_bytes : int
        Bound of all entries together. A single larger result is returned, and not kept.

    Examples
    --------
    >>> cache = ResultCache(max_bytes=2000)
    >>> cache.get("a", lambda: np.zeros(100)).size, cache.get("b", lambda: np.zeros(20)).size, cache.keys()
    (100, 20, ['a', 'b'])
    >>> cache.get("c", lambda: np.zeros(150)).size, cache.keys()
    (150, ['b', 'c'])
    """

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._busy: dict[Hashable, threading.Lock] = {}

    def keys(self) -> list[Hashable]:
        """Keys, least recently used first."""
        with self._lock:
            return list(self._entries)

    @property
    def used_bytes(self) -> int:
        """Memory of all entries."""
        with self._lock:
            return sum(size for _, size in self._entries.values())

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the entry `key`, computing it if it is not there. What `compute` raises is raised and not kept."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return cast(T, self._entries[key][0])
            mine = self._busy.setdefault(key, threading.Lock())
        with mine:
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    return cast(T, self._entries[key][0])
            try:
                value = compute()
                self._keep(key, value)
            finally:
                with self._lock:
                    self._busy.pop(key, None)
        return value

    def _keep(self, key: Hashable, value: object) -> None:
        size = deep_size(value)
        if size > self.max_bytes:
            return
        with self._lock:
            self._entries[key] = (value, size)
            while sum(s for _, s in self._entries.values()) > self.max_bytes:
                self._entries.popitem(last=False)

    def drop(self, matches: Callable[[Hashable], bool]) -> None:
        """Forget the entries whose key matches."""
        with self._lock:
            for key in [k for k in self._entries if matches(k)]:
                del self._entries[key]


def deep_size(value: object, depth: int = 0) -> int:
    """Estimate the memory of a result: its arrays, exactly, and everything else roughly.

    Examples
    --------
    >>> deep_size(np.zeros(1000)) >= 8000
    True
    """
    if isinstance(value, np.ndarray):
        return 128 if 0 in value.strides and value.size > 1 else value.nbytes + 128
    if depth > 6:
        return 0
    if is_dataclass(value) and not isinstance(value, type):
        return 64 + sum(deep_size(getattr(value, f.name), depth + 1) for f in fields(value))
    if isinstance(value, (tuple, list)):
        if len(value) > 64 and isinstance(value[0], (int, float, str)):
            return sys.getsizeof(value) + len(value) * sys.getsizeof(value[0])
        return sys.getsizeof(value) + sum(deep_size(v, depth + 1) for v in value)
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(deep_size(v, depth + 1) for v in value.values())
    return sys.getsizeof(value)
