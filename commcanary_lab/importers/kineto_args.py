"""The arguments of communication events: typed, checked, with what is unreadable said instead of guessed."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from commcanary_lab.importers.kineto_repair import repair_json, to_utf8

__all__ = ["CommArgs", "IntList", "RawArgs", "Unreadable", "parse_args", "parse_int_list", "read_args"]

_MAX_ELEMENTS = 1 << 62
_METADATA_KEYS = ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size", "Process Group Name")


class RawArgs(msgspec.Struct, gc=False):  # type: ignore[call-arg]
    """The keys of ``args`` that the import reads, as the file has them."""

    external_id: Any = msgspec.field(default=None, name="External id")
    external_id_old: Any = msgspec.field(default=None, name="external id")
    correlation: Any = None
    device: Any = None
    stream: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    dtype: Any = None
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    in_splits: Any = msgspec.field(default=None, name="In split size")
    out_splits: Any = msgspec.field(default=None, name="Out split size")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_id: Any = msgspec.field(default=None, name="Process Group ID")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank_start: Any = msgspec.field(default=None, name="Global rank start")
    rank_stride: Any = msgspec.field(default=None, name="Global rank stride")
    sequence: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    destination: Any = msgspec.field(default=None, name="Dst Rank")
    input_dims: Any = msgspec.field(default=None, name="Input Dims")


_RAW_ARGS = msgspec.json.Decoder(RawArgs)


@dataclass(frozen=True)
class Unreadable:
    """Metadata that is there but cannot be used."""

    why: str


@dataclass(frozen=True)
class IntList:
    """A list of integers as the profiler prints it, perhaps cut.

    Parameters
    ----------
    values : tuple of int
        The first entries.
    cut : bool
        True where "..." stands for entries that are not shown.
    last : int, optional
        The last entry, where it is shown after the dots.
    """

    values: tuple[int, ...]
    cut: bool = False
    last: int | None = None

    def agrees_with(self, full: tuple[int, ...]) -> bool:
        """Tell whether `full` can be the whole list."""
        if not self.cut:
            return self.values == full
        shown = len(self.values) + (self.last is not None)
        return (
            len(full) > shown - 1
            and full[: len(self.values)] == self.values
            and (self.last is None or (bool(full) and full[-1] == self.last))
        )


@dataclass(frozen=True)
class CommArgs:
    """What a communication event says about its collective.

    Parameters
    ----------
    name : str
        Operation, as the source writes it.
    dtype : str
        As the source writes it; empty where it is missing.
    in_elements, out_elements : int, optional
        Elements that this rank gives and gets.
    in_splits, out_splits : IntList, optional
        Split sizes in rows of the tensor; None where the list is empty or missing.
    group_name : str, optional
        "Process Group Name", or the older "Process Group ID".
    source, destination : int, optional
        Global ranks of a message's ends. (torch maps the peer's rank in the group to its global rank before it writes them, and
        writes only the other end: "Dst Rank" of a send, "Src Rank" of a recv.)
    in_rows : int, optional
        Rows (first dimension) of the input tensor, where shapes were recorded.
    splits_unknown : bool
        True where the source never writes split sizes, so that their absence does not mean equal parts.
    """

    name: str
    dtype: str
    in_elements: int | None
    out_elements: int | None
    group_size: int | None
    group_name: str | None
    group_description: str | None
    group_ranks: IntList | None
    rank_start: int | None
    rank_stride: int | None
    in_splits: IntList | None
    out_splits: IntList | None
    sequence: int | None
    source: int | None
    destination: int | None
    in_rows: int | None
    splits_unknown: bool = False


def read_args(raw: msgspec.Raw) -> RawArgs | Unreadable:
    """Decode ``args``; a text that only needs the repairs of `kineto_repair` is repaired.

    Examples
    --------
    >>> read_args(msgspec.Raw(b'{"External id": 7}')).external_id
    7
    >>> read_args(msgspec.Raw(b"[]"))
    Unreadable(why='args is not an object')
    """
    if not memoryview(raw).nbytes:
        return RawArgs()
    try:
        return _RAW_ARGS.decode(raw)
    except msgspec.ValidationError as e:
        return Unreadable("args is not an object" if " - at" not in str(e) else f"args: {e}")
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _RAW_ARGS.decode(repair_json(to_utf8(bytes(raw)).data).data)
    except (msgspec.DecodeError, RecursionError) as e:
        return Unreadable(f"args: {e}")


def parse_args(args: RawArgs, raw: msgspec.Raw) -> CommArgs | Unreadable | None:
    """Return the collective that `args` describe, None where they describe none.

    Parameters
    ----------
    args : RawArgs
        The decoded arguments.
    raw : msgspec.Raw
        Their text, to find keys that occur twice.

    Returns
    -------
    CommArgs, Unreadable or None
        Unreadable where a field has a type or value that it cannot have, or occurs twice with different values.
    """
    if args.collective is None:
        return None
    try:
        if not isinstance(args.collective, str) or not args.collective:
            raise _FieldError("Collective name", args.collective)
        if twice := _contradicting_key(bytes(raw)):
            return Unreadable(f"{twice} occurs twice with different values")
        ranks = _list("Process Group Ranks", args.group_ranks)
        return CommArgs(
            name=args.collective,
            dtype=_text("dtype", args.dtype) or "",
            in_elements=_count("In msg nelems", args.in_elements),
            out_elements=_count("Out msg nelems", args.out_elements),
            group_size=_count("Group size", args.group_size),
            group_name=_text("Process Group Name", args.group_name if args.group_name is not None else args.group_id),
            group_description=_text("Process Group Description", args.group_description),
            group_ranks=ranks if ranks is not None and (ranks.values or ranks.cut) else None,
            rank_start=_int("Global rank start", args.rank_start),
            rank_stride=_int("Global rank stride", args.rank_stride),
            in_splits=_splits("In split size", args.in_splits),
            out_splits=_splits("Out split size", args.out_splits),
            sequence=_known(_int("Seq", args.sequence)),
            source=_known(_int("Src Rank", args.source)),
            destination=_known(_int("Dst Rank", args.destination)),
            in_rows=_rows(args.input_dims, args.in_elements),
        )
    except _FieldError as e:
        return Unreadable(str(e))


@lru_cache(maxsize=4096)
def parse_int_list(text: str) -> IntList | None:
    """Parse a printed list of integers, or return None if it is something else.

    Examples
    --------
    >>> parse_int_list("[0, 1, ..., 63]")
    IntList(values=(0, 1), cut=True, last=63)
    >>> parse_int_list("[]"), parse_int_list("[a]")
    (IntList(values=(), cut=False, last=None), None)
    """
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    inner = text[1:-1].strip()
    if not inner:
        return IntList(())
    head, dots, tail = inner.partition("...")
    try:
        values = tuple(int(x) for x in head.split(",") if x.strip() or not dots)
        rest = [int(x) for x in tail.split(",") if x.strip()]
    except ValueError:
        return None
    if len(rest) > 1 or any(abs(v) >= 1 << 62 for v in (*values, *rest)):
        return None
    return IntList(values, bool(dots), rest[0] if rest else None)


class _FieldError(Exception):
    def __init__(self, name: str, value: object) -> None:
        shown = repr(value)
        super().__init__(f"{name} is {shown if len(shown) <= 40 else shown[:37] + '...'}")


def _int(name: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value) if len(value) < 40 else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_ELEMENTS:
        raise _FieldError(name, value)
    return value


def _count(name: str, value: object) -> int | None:
    number = _int(name, value)
    if number is not None and number < 0:
        raise _FieldError(name, value)
    return number


def _known(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _FieldError(name, value)
    return str(value)


def _list(name: str, value: object) -> IntList | None:
    if value is None or value == "":
        return None
    if isinstance(value, list):
        out = [_int(name, v) for v in value]
        if None in out:
            raise _FieldError(name, value)
        return IntList(tuple(v for v in out if v is not None))
    parsed = parse_int_list(value) if isinstance(value, str) else None
    if parsed is None:
        raise _FieldError(name, value)
    return parsed


def _splits(name: str, value: object) -> IntList | None:
    parsed = _list(name, value)
    if parsed is None or not (parsed.values or parsed.cut):
        return None
    if any(v < 0 for v in parsed.values) or (parsed.last or 0) < 0:
        raise _FieldError(name, value)
    return parsed


def _rows(dims: object, elements: object) -> int | None:
    """Rows of the first input, if its recorded shape accounts for all the elements."""
    shape = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(shape, list) or not shape or not all(type(d) is int and 0 <= d < _MAX_ELEMENTS for d in shape):
        return None
    product = 1
    for d in shape:
        product *= d
    return shape[0] if product == elements and product > 0 else None


def _contradicting_key(text: bytes) -> str | None:
    """Return a metadata key that occurs twice with different values: JSON readers would silently keep one of them."""
    doubled = [k for k in _METADATA_KEYS if text.count(b'"' + k.encode() + b'"') > 1]
    if not doubled:
        return None
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    for key in doubled:
        values = [v for k, v in pairs if k == key]
        if any(v != values[0] for v in values[1:]):
            return key
    return None
