"""Events of a ``commcanary.trace.v1`` file, packed into arrays batch by batch.

Python objects of a whole file do not fit any cache, and every pass over them waits for memory. A batch of a few thousand events
does: it is decoded, its fields are packed, and its objects are freed before the next one is decoded into the same memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from commcanary_lab.trace.columns import Coded, Ragged
from commcanary_lab.trace.schema_v1 import EVENT_FIELDS, EventV1

__all__ = ["EventColumns", "GroupKey", "count_keys_of"]

_IntArray = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]

#: How an event names its process group: the name or ``UNSET``, and the ranks as the file lists them, or their number.
GroupKey = tuple[Any, "tuple[int, ...] | int"]


class _Packer(Protocol):
    """Collects one field; `given` says which events of the batch have it, None where all have: the others have ``UNSET``."""

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None: ...


def _given(values: Sequence[Any]) -> _BoolArray:
    return np.frombuffer(bytes([x is not UNSET for x in values]), np.bool_)


def _joined(parts: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Concatenate, and keep the result in place of the parts."""
    if len(parts) != 1:
        parts[:] = [np.concatenate(parts) if parts else np.zeros(0, dtype)]
    return parts[0]


class _Numbers:
    """Numbers, 0 where there is none."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = dtype
        self.parts: list[npt.NDArray[Any]] = []

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        items = values if given is None else [0 if x is UNSET else x for x in values]
        self.parts.append(np.fromiter(items, self.dtype, len(values)))


class _Flags:
    """Where a field is ``true``."""

    def __init__(self) -> None:
        self.parts: list[npt.NDArray[Any]] = []

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        self.parts.append(np.frombuffer(bytes([x is True for x in values]), np.bool_))


class _Keys:
    """Hashable values by code, in order of first appearance; ``UNSET`` is -1."""

    def __init__(self) -> None:
        self.parts: list[npt.NDArray[Any]] = []
        self._codes: dict[Any, int] = {UNSET: -1}

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        try:
            codes = np.fromiter(map(self._codes.__getitem__, values), np.int32, len(values))
        except KeyError:  # a value not seen before
            for value in dict.fromkeys(values):
                self._codes.setdefault(value, len(self._codes) - 1)
            codes = np.fromiter(map(self._codes.__getitem__, values), np.int32, len(values))
        self.parts.append(codes)

    @property
    def names(self) -> tuple[Any, ...]:
        return tuple(self._codes)[1:]


class _Sets(_Keys):
    """Lists of ranks by code."""

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        super().add([x if x is UNSET else tuple(x) for x in values], given)


class _Lists:
    """Lists of numbers, one after the other, empty where there is none; null is NaN."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = dtype
        self.flat: list[npt.NDArray[Any]] = []
        self.lengths: list[npt.NDArray[Any]] = []

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        rows = [() if x is UNSET else x for x in values] if given is not None else values
        self.flat.append(np.array(list(chain.from_iterable(rows)), self.dtype))  # numpy turns None into NaN
        self.lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))

    def ragged(self) -> Ragged:
        return Ragged.from_lengths(_joined(self.flat, self.dtype), _joined(self.lengths, np.int64))


class _Maps(_Lists):
    """Arrivals by rank: maps as their values with the code of their keys, or plain lists (the code of None)."""

    def __init__(self) -> None:
        super().__init__(np.float64)
        self.shapes = _Keys()
        self.keys = 0

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        self.shapes.add([tuple(x) if type(x) is dict else x if x is UNSET else None for x in values], given)
        self.keys += sum(len(x) for x in values if type(x) is dict)
        super().add([x.values() if type(x) is dict else x for x in values], given)


class _Names:
    """Distinct texts as UTF-8, empty where there is none."""

    def __init__(self) -> None:
        self.text: list[npt.NDArray[Any]] = []
        self.lengths: list[npt.NDArray[Any]] = []
        self.hashes: list[npt.NDArray[Any]] = []

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        names = ["" if x is UNSET else x for x in values] if given is not None else values
        joined = "".join(names)
        encoded = names if joined.isascii() else [x.encode() for x in names]
        self.text.append(np.frombuffer(joined.encode(), np.uint8))
        self.lengths.append(np.fromiter(map(len, encoded), np.int64, len(names)))
        self.hashes.append(np.fromiter(map(hash, names), np.int64, len(names)))

    def ragged(self) -> Ragged:
        return Ragged.from_lengths(_joined(self.text, np.uint8), _joined(self.lengths, np.int64))

    def distinct(self) -> bool:
        """Whether no two texts are equal; equal hashes are looked at, different ones need not be."""
        rows = self.ragged()
        given = rows.lengths > 0
        hashes = np.sort(_joined(self.hashes, np.int64)[given])
        if (hashes[1:] != hashes[:-1]).all():
            return True
        texts = [rows.row(i).tobytes() for i in np.flatnonzero(given).tolist()]
        return len(set(texts)) == len(texts)


class _Raw:
    """Values that nothing computes with: how many keys their objects have."""

    def __init__(self) -> None:
        self.keys = 0

    def add(self, values: Sequence[Any], given: _BoolArray | None) -> None:
        self.keys += sum(count_keys_of(msgspec.json.decode(raw)) for raw in values if raw is not UNSET)


def count_keys_of(value: Any) -> int:
    """How many keys the objects inside a decoded JSON value have.

    Examples
    --------
    >>> count_keys_of({"a": [{"b": 1}, 2]})
    2
    """
    count, stack = 0, [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            count += len(part)
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return count


def _packers() -> dict[str, _Packer]:
    """One packer per field; `group` holds the pair of group and ranks."""
    texts = ("op", "phase", "tag", "channel", "dtype", "reduction_op", "lab_dtype", "lab_reduction_op")
    floats = ("start_us", "gap_us", "compute_before_us", "compute_overlap_us", "observed_exposed_us", "arrival_skew_us", "compute_pressure")
    integers = ("bytes", "rank_count", "root_rank", "sender_rank", "receiver_rank", "message_sequence", "concurrent_groups", "lab_bytes")
    flags = ("custom_op", "compute_overlap_unknown", "arrival_skew_unknown", "partial_rank_arrival")
    out: dict[str, _Packer] = {name: _Keys() for name in texts}
    out |= {name: _Numbers(np.float64) for name in floats}
    out |= {name: _Numbers(np.int64) for name in integers}
    out |= {name: _Flags() for name in flags}
    out |= {name: _Lists(np.float64) for name in ("lab_duration_us", "lab_rank_start_us")}
    out |= {name: _Raw() for name in ("compute_recipe", "compute_recipe_by_rank")}
    out |= {"id": _Names(), "group": _Keys(), "rank_arrival_us": _Maps(), "lab_observers": _Sets(), "lab_splits": _Lists(np.int64)}
    return out


class EventColumns:
    """The events by field.

    Parameters
    ----------
    fields : collection of str
        The fields that the events are decoded with.
    complete : collection of str
        Those that every event has; they are not searched for gaps.

    Examples
    --------
    >>> from commcanary_lab.trace.schema_v1 import narrowed
    >>> event = narrowed(frozenset(["phase", "gap_us"]))
    >>> c = EventColumns(["phase", "gap_us"])
    >>> c.add([event("all_reduce", 8, 2, phase="decode", gap_us=1.5), event("all_reduce", 8, 2)])
    >>> len(c), c.coded("phase").to_list(), c.numbers("gap_us").tolist(), c.missing("gap_us"), c.none("tag")
    (2, ['decode', None], [1.5, 0.0], 1, True)
    """

    def __init__(self, fields: Collection[str], complete: Collection[str] = ()) -> None:
        required = {"op", "bytes", "ranks"}
        self._fields = tuple(name for name in EVENT_FIELDS if name in required or name in fields)
        self._complete = required.union(complete)
        self._packers = {name: packer for name, packer in _packers().items() if name in self._fields or name == "group"}
        self._given: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in self._fields if name not in self._complete}
        self._missing = dict.fromkeys(self._fields, 0)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, events: list[EventV1]) -> None:
        """Pack a batch of events, which have the fields of this object in the order of `EventV1`."""
        n = len(events)
        if not n:
            return
        self._count += n
        columns = dict(zip(self._fields, zip(*map(msgspec.structs.astuple, events), strict=True), strict=True))
        ranks = [m if type(m) is int else tuple(m) for m in columns.pop("ranks")]
        names = columns.pop("group", (UNSET,) * n)
        self._packers["group"].add(list(zip(names, ranks, strict=True)), None)
        for name, values in columns.items():
            self._packers[name].add(values, self._note_given(name, values))

    def _note_given(self, name: str, values: Sequence[Any]) -> _BoolArray | None:
        if name in self._complete:
            return None
        given = _given(values)
        self._given[name].append(given)
        missing = len(values) - int(np.count_nonzero(given))
        self._missing[name] += missing
        return given if missing else None

    def missing(self, name: str) -> int:
        """How many events lack the field."""
        return self._missing.get(name, self._count)

    def none(self, name: str) -> bool:
        """True when no event has the field."""
        return self.missing(name) == self._count

    def given(self, name: str) -> _BoolArray:
        """Which events have the field, shape (n,)."""
        if self.none(name):
            return np.broadcast_to(np.False_, (self._count,))
        if not self.missing(name):
            return np.broadcast_to(np.True_, (self._count,))
        return _joined(self._given[name], np.bool_)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a number per event, 0 where it has none, shape (n,)."""
        packer = self._packers[name]
        assert isinstance(packer, _Numbers)
        return _joined(packer.parts, packer.dtype)

    def flag(self, name: str) -> _BoolArray:
        """Which events say ``true``, shape (n,)."""
        if self.none(name):
            return np.broadcast_to(np.False_, (self._count,))
        packer = self._packers[name]
        assert isinstance(packer, _Flags)
        return _joined(packer.parts, np.bool_)

    def coded(self, name: str) -> Coded:
        """Return a text field."""
        if self.none(name):
            return Coded.constant(self._count, None)
        return Coded(*self._keys(name))

    def group_keys(self) -> tuple[npt.NDArray[np.int32], tuple[GroupKey, ...]]:
        """Return the code of each event's pair of group and ranks, and the pairs."""
        return self._keys("group")

    def rank_sets(self, name: str) -> tuple[npt.NDArray[np.int32], tuple[tuple[int, ...], ...]]:
        """Return the code of each event's list of ranks, -1 for none, and the lists."""
        return self._keys(name)

    def _keys(self, name: str) -> tuple[npt.NDArray[np.int32], tuple[Any, ...]]:
        packer = self._packers[name]
        assert isinstance(packer, _Keys)
        return _joined(packer.parts, np.int32), packer.names

    def lists(self, name: str) -> Ragged:
        """Return a field of lists, NaN for null; the values of arrival maps in the order of the file."""
        packer = self._packers.get(name)
        if packer is None:
            return Ragged.empty(self._count)
        assert isinstance(packer, _Lists)
        return packer.ragged()

    def arrival_shapes(self) -> tuple[npt.NDArray[np.int32], tuple[tuple[str, ...] | None, ...]]:
        """Return the code of each event's arrival keys, -1 for none, and the keys (None for a plain list)."""
        packer = self._packers["rank_arrival_us"]
        assert isinstance(packer, _Maps)
        return _joined(packer.shapes.parts, np.int32), packer.shapes.names

    def ids(self) -> tuple[Ragged, bool]:
        """Return the ids as UTF-8, empty where an event has none, and whether they are distinct."""
        packer = self._packers["id"]
        assert isinstance(packer, _Names)
        return packer.ragged(), packer.distinct()

    def nested_keys(self) -> int:
        """How many keys the objects inside the events have."""
        return sum(packer.keys for packer in self._packers.values() if isinstance(packer, (_Maps, _Raw)))
