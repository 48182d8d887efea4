"""From B to what one rank hands in and gets, in elements: the convention of PARAM and of PyTorch's communication metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from commcanary_lab.export.program import Call
from commcanary_lab.trace.ops import ALL_TO_ALL_V, DTYPE_BYTES

__all__ = ["ASSUMABLE", "ROOTED", "Elements", "completed", "elements", "why_not_elements"]

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})

#: What an export may assume where the source does not say it, and as what.
ASSUMABLE = {"dtype": ("uint8",), "root": ("first",)}

#: Operations of which one end holds k shards, by the end: what a rank hands in, or what it gets.
_SHARDS = {"all_gather": "in", "gather": "in", "reduce_scatter": "out", "scatter": "out"}
_SAME = frozenset({"all_reduce", "broadcast", "reduce", "all_to_all", "point_to_point"})
_DIVIDED = frozenset({*_SHARDS, "all_to_all"})


@dataclass(frozen=True)
class Elements:
    """Elements of one rank's call.

    Parameters
    ----------
    sent, received : int
        What the rank hands in and gets.
    sent_splits, received_splits : tuple of int
        Per member, for uneven all-to-alls; empty otherwise.
    """

    sent: int
    received: int
    sent_splits: tuple[int, ...] = ()
    received_splits: tuple[int, ...] = ()


def completed(call: Call, assumptions: Mapping[str, str]) -> Call:
    """Fill in what is to be assumed, where it is unknown: the dtype, and the root of rooted operations (the group's first rank)."""
    if call.dtype is None and "dtype" in assumptions:
        call = replace(call, dtype=assumptions["dtype"])
    if call.root is None and call.op in ROOTED and "root" in assumptions:
        call = replace(call, root=call.members[0])
    return call


def why_not_elements(call: Call, dtypes: Mapping[str, str], ops: frozenset[str]) -> str | None:
    """Return why a call has no equivalent in elements; None where it has one.

    Parameters
    ----------
    call : Call
        The call.
    dtypes : mapping of str to str
        Types that the format knows, by their canonical names.
    ops : frozenset of str
        Operations that it knows, by their canonical names.

    Examples
    --------
    >>> f8 = Call("all_reduce", 0, (0, 1), 64, dtype="float8_e4m3fn")
    >>> why_not_elements(f8, {"float32": "float"}, frozenset({"all_reduce"}))
    'dtype without equivalent: float8_e4m3fn'
    >>> why_not_elements(replace(f8, dtype="float32", size_bytes=10), {"float32": "float"}, frozenset({"all_reduce"}))
    'not a whole number of elements: 10 bytes of float32'
    """
    if call.op not in ops:
        return f"operation without equivalent: {call.op}"
    if call.op == "barrier":
        return None if call.size_bytes == 0 else f"barrier with bytes: {call.size_bytes}"
    if call.dtype is None:
        return "dtype unknown: --assume dtype=uint8 exports bytes"
    if call.dtype not in dtypes:
        return f"dtype without equivalent: {call.dtype}"
    if call.op == "point_to_point":
        if call.sender is None or call.receiver is None:
            return "peer unknown"
        if call.sender == call.receiver:
            return "message of a rank to itself"
    if call.op in ROOTED and call.root is None:
        return "root unknown: --assume root=first takes the group's first rank"
    if call.op in ROOTED and call.root not in call.members:
        return f"root outside the group: {call.root}"
    return _why_not_whole(call)


def _why_not_whole(call: Call) -> str | None:
    width = DTYPE_BYTES[call.dtype or ""]
    if call.op == ALL_TO_ALL_V:
        if call.cells is None or any(v < 0 for row in call.cells for v in row):
            return "splits unknown"
        wrong = next((v for row in call.cells for v in row if v % width), None)
        return None if wrong is None else f"not a whole number of elements: a split of {wrong} bytes of {call.dtype}"
    parts = len(call.members) if call.op in _DIVIDED else 1
    if call.size_bytes % (width * parts):
        among = f" in {parts} equal parts" if parts > 1 else ""
        return f"not a whole number of elements: {call.size_bytes} bytes of {call.dtype}{among}"
    return None


def elements(call: Call, rank: int) -> Elements:
    """Return what a rank hands in and gets.

    Examples
    --------
    >>> elements(Call("all_gather", 0, (0, 1, 2, 3), 64, dtype="float32"), 0)
    Elements(sent=4, received=16, sent_splits=(), received_splits=())
    >>> elements(Call("all_to_all_v", 0, (0, 1), 12, dtype="float32", cells=((4, 8), (0, 4))), 1)
    Elements(sent=1, received=3, sent_splits=(0, 1), received_splits=(2, 1))
    """
    width = DTYPE_BYTES[call.dtype or ""]
    if call.op == ALL_TO_ALL_V:
        sent, received = (tuple(v // width for v in side) for side in call.splits(rank))
        return Elements(sum(sent), sum(received), sent, received)
    whole = call.size_bytes // width
    end = _SHARDS.get(call.op)
    shard = whole // len(call.members)
    return Elements(shard if end == "in" else whole, shard if end == "out" else whole)
