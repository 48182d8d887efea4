"""A compiled scan of the keys of a large trace file.

msgspec drops unknown fields and lets the last of two duplicate keys win. This scan counts the keys of the event objects, so that a
large file needs the slow checker only when something is odd with it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["count_event_keys", "key_hash"]

_PRIME = np.uint64(0x100000001B3)
_BASIS = np.uint64(0xCBF29CE484222325)
_SLOTS = 256


def key_hash(name: str) -> int:
    """FNV-1a of a key, as the scan computes it."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


@njit(cache=True)
def _scan(
    data: npt.NDArray[np.uint8], events_key: np.uint64, hashes: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64]
) -> tuple[int, int]:
    """Count keys of objects at depth 3 under the root key ``events`` by hash; returns (kinds, deeper keys), kinds -1 if too many."""
    depth, kinds, deeper, i, n = 0, 0, 0, 0, len(data)
    in_events = False
    while i < n:
        c = data[i]
        if c == 34:  # a string: hash it, then see whether a colon makes it a key
            h = _BASIS
            i += 1
            while i < n and data[i] != 34:
                if data[i] == 92:
                    i += 1
                if i < n:
                    h = (h ^ np.uint64(data[i])) * _PRIME
                i += 1
            j = i + 1
            while j < n and (data[j] == 32 or data[j] == 10 or data[j] == 13 or data[j] == 9):
                j += 1
            if j < n and data[j] == 58:
                if depth == 1:
                    in_events = h == events_key
                elif in_events and depth == 3:
                    k = 0
                    while k < kinds and hashes[k] != h:
                        k += 1
                    if k == kinds:
                        if kinds == len(hashes):
                            return -1, deeper
                        hashes[k] = h
                        kinds += 1
                    counts[k] += 1
                elif in_events and depth > 3:
                    deeper += 1
                i = j
        elif c == 123 or c == 91:
            depth += 1
        elif c == 125 or c == 93:
            depth -= 1
        i += 1
    return kinds, deeper


def count_event_keys(data: bytes) -> tuple[dict[int, int], int] | None:
    """Count the keys of the event objects of a trace file.

    Returns
    -------
    counts : dict of int to int
        Occurrences by `key_hash`.
    deeper : int
        Keys inside objects within events (arrival maps).
    None if there are too many different keys to be a trace.

    Examples
    --------
    >>> counts, deeper = count_event_keys(b'{"events": [{"op": "x", "rank_arrival_us": {"0": 1}}, {"op": "y"}]}')
    >>> counts[key_hash("op")], deeper
    (2, 1)
    """
    hashes = np.zeros(_SLOTS, np.uint64)
    counts = np.zeros(_SLOTS, np.int64)
    kinds, deeper = _scan(np.frombuffer(data, np.uint8), np.uint64(key_hash("events")), hashes, counts)
    if kinds < 0:
        return None
    return dict(zip(hashes[:kinds].tolist(), counts[:kinds].tolist(), strict=True)), deeper
