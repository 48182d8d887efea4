"""A compiled scan of a large trace file: its keys, and where its events are.

msgspec drops unknown fields and lets the last of two duplicate keys win. This scan counts the keys, so that a
large file needs the slow checker only when something is odd with it, and cuts the events into batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["BATCH", "FileScan", "key_hash", "scan_file"]

_PRIME = np.uint64(0x100000001B3)
_BASIS = np.uint64(0xCBF29CE484222325)
_SLOTS = 256

#: Events per batch: their objects stay in the cache of one core.
BATCH = 1500


def key_hash(name: str) -> int:
    """FNV-1a of a key, as the scan computes it."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


@dataclass(frozen=True)
class FileScan:
    """What a trace file consists of.

    Attributes
    ----------
    event_keys : dict of int to int
        Keys of the event objects by `key_hash`.
    nested : int
        Keys of objects inside events (arrival maps, recipes).
    outside : int
        All other keys: the top level, workload and system.
    repeated : bool
        Whether an event has a key twice.
    events : int
        How many events there are.
    array : tuple of int
        Where the bracket that opens the list of events is, and the one that closes it; None if there is not exactly one list.
    cuts : tuple of int
        Where the first event of each batch of `BATCH` begins.
    """

    event_keys: dict[int, int]
    nested: int
    outside: int
    repeated: bool
    events: int
    array: tuple[int, int] | None
    cuts: tuple[int, ...]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _scan(
    data: npt.NDArray[np.uint8],
    events_key: np.uint64,
    hashes: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    cuts: npt.NDArray[np.int64],
    batch: int,
) -> tuple[int, int, int, bool, int, int, int, int]:
    """Count keys, those of objects at depth 3 under the root key ``events`` by hash, and find the events.

    Returns (kinds or -1 if too many, nested, outside, whether an event repeats a key, events, lists of events, begin and end of the
    last such list). `last` is scratch: where each kind was seen last.
    """
    start, repeated = -1, False
    events, arrays, begin, end = 0, 0, -1, -1
    depth, kinds, nested, outside, i, n = 0, 0, 0, 0, 0, len(data)
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
                if not in_events or depth == 1:
                    outside += 1
                elif depth == 3:
                    k = 0
                    while k < kinds and hashes[k] != h:
                        k += 1
                    if k == kinds:
                        if kinds == len(hashes):
                            return -1, nested, outside, repeated, events, arrays, begin, end
                        hashes[k] = h
                        kinds += 1
                    counts[k] += 1
                    repeated |= last[k] > start
                    last[k] = i
                else:
                    nested += 1
                i = j
        elif c == 123 or c == 91:
            depth += 1
            if depth == 3:
                start = i
                if in_events:
                    if events % batch == 0:
                        cuts[events // batch] = i
                    events += 1
            elif depth == 2 and in_events:
                arrays += 1
                begin = i
        elif c == 125 or c == 93:
            depth -= 1
            if depth == 1 and in_events:
                end = i
        i += 1
    return kinds, nested, outside, repeated, events, arrays, begin, end


def scan_file(data: bytes, batch: int = BATCH) -> FileScan | None:
    """Scan a trace file.

    Parameters
    ----------
    data : bytes
        The file; whether it is well formed is for the parser to say.
    batch : int
        Events per batch.

    Returns
    -------
    FileScan, or None if there are too many different keys to be a trace.

    Examples
    --------
    >>> c = scan_file(b'{"events": [{"op": "x", "rank_arrival_us": {"0": 1}}, {"op": "y"}], "system": {"a": {"b": 1}}}', 1)
    >>> c.event_keys[key_hash("op")], c.nested, c.outside, c.events, c.array, c.cuts
    (2, 1, 4, 2, (11, 65), (12, 54))
    >>> scan_file(b'{"events": [{"op": "x", "op": "y"}]}').repeated
    True
    """
    hashes = np.zeros(_SLOTS, np.uint64)
    counts = np.zeros(_SLOTS, np.int64)
    last = np.full(_SLOTS, -1, np.int64)
    cuts = np.zeros(len(data) // (3 * batch) + 2, np.int64)  # an event and its comma take three bytes or more
    found = _scan(np.frombuffer(data, np.uint8), np.uint64(key_hash("events")), hashes, counts, last, cuts, batch)
    kinds, nested, outside, repeated, events, arrays, begin, end = found
    if kinds < 0:
        return None
    return FileScan(
        dict(zip(hashes[:kinds].tolist(), counts[:kinds].tolist(), strict=True)),
        nested,
        outside,
        bool(repeated),
        events,
        (begin, end) if arrays == 1 and begin < end else None,
        tuple(cuts[: -(-events // batch)].tolist()),
    )
