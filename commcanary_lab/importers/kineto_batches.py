"""Decode the event list of a large profiler trace in batches, so that what the import does not need is never held all at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

__all__ = ["decode_batches"]

#: The end of an event, and the beginning of the next one; inside of a string or of an inner object it may look the same.
_BORDER = re.compile(rb"\}(\s*),\s*\{")
_TRIES = 64

T = TypeVar("T")


def decode_batches(
    text: memoryview, decoder: msgspec.json.Decoder[list[T]], keep: Callable[[T], T | None], absent: T, batch_bytes: int
) -> list[T] | None:
    """Decode a JSON list of objects batch after batch.

    A batch that begins at a true border is a valid list of its own only where it ends at one: inside a string or an inner object the
    text before would be left open. A wrong border is therefore always noticed, and the next one is tried.

    Parameters
    ----------
    text : memoryview
        The list with its brackets; well formed.
    decoder : msgspec.json.Decoder
        Of lists.
    keep : callable
        Returns what to keep of an object, independent of its batch's text; None for what is not needed.
    absent : object
        Stands in place of those, so that positions stay.
    batch_bytes : int
        About so much text at a time.

    Returns
    -------
    list or None
        None where an object is not what the decoder expects, or no border is found: then decode it as a whole.

    Examples
    --------
    >>> text = memoryview(b'[{"a": 1}, {"a": "}, {"}, {"a": 3}]')
    >>> decode_batches(text, msgspec.json.Decoder(list[dict]), lambda d: d if d["a"] != 1 else None, {}, 4)
    [{}, {'a': '}, {'}, {'a': 3}]
    """
    out: list[T] = []
    begin, end = 1, len(text) - 1
    while begin < end:
        found = _batch(text, begin, end, decoder, batch_bytes)
        if found is None:
            return None
        events, begin = found
        out += [absent if kept is None else kept for kept in map(keep, events)]
    return out


def _batch(
    text: memoryview, begin: int, end: int, decoder: msgspec.json.Decoder[list[T]], batch_bytes: int
) -> tuple[list[T], int] | None:
    """Return the objects of one batch, and where the next one begins."""
    at = begin + batch_bytes
    for _ in range(_TRIES):
        border = _BORDER.search(text, at, end) if at < end else None
        stop = end if border is None else border.start() + 1
        try:
            events = decoder.decode(b"[%b]" % bytes(text[begin:stop]))
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError:
            if border is None:
                return None
            at = border.start() + 1
            continue
        return events, end if border is None else border.end() - 1
    return None
