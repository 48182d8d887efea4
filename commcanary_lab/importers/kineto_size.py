"""From element counts to bytes: B of each operation, split rows, and the events that must be refused."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.importers.kineto_args import CommArgs, IntList
from commcanary_lab.trace.ops import ALL_TO_ALL_V, DTYPE_BYTES, canonical_dtype, canonical_op

__all__ = ["Size", "dtype_width", "measure"]

#: Types of torch without a place in the trace vocabulary, by width: their bytes count, their name is not kept.
_OTHER_WIDTHS = {
    "uint16": 2, "uint32": 4, "uint64": 8, "qint8": 1, "quint8": 1, "qint32": 4, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "bits8": 1, "bits16": 2,
}  # fmt: skip

#: A cut split list can be taken as elements only where the entries that it hides stay below this multiple of the largest one shown.
_PLAUSIBLE = 8

_MAX_BYTES = 1 << 62


@dataclass(frozen=True)
class Size:
    """Sizes of one event in bytes, ready for a record.

    Parameters
    ----------
    op : str
        Canonical operation, or the source's name with ``custom``.
    size_bytes : int
        B, the "size" of nccl-tests.
    sent_splits, received_splits : tuple of int, optional
        Uneven all-to-all: bytes per member in group order, -1 where unknown.
    sent_bytes, received_bytes : int, optional
        Uneven all-to-all: row totals.
    notes : tuple of str
        How the splits were read.
    """

    op: str
    size_bytes: int
    custom: bool = False
    sent_splits: tuple[int, ...] | None = None
    received_splits: tuple[int, ...] | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    notes: tuple[str, ...] = ()


def dtype_width(name: str) -> tuple[str | None, int | None]:
    """Return the canonical dtype (None outside the vocabulary) and its width in bytes (None where unknown).

    Examples
    --------
    >>> dtype_width("BFloat16"), dtype_width("UInt16"), dtype_width("Undefined")
    (('bfloat16', 2), (None, 2), (None, None))
    """
    dtype = canonical_dtype(name)
    if dtype is not None:
        return dtype, DTYPE_BYTES[dtype]
    return None, _OTHER_WIDTHS.get(name.strip().lower())


def measure(args: CommArgs, k: int) -> Size | str:
    """Return the sizes of an event over `k` ranks, or the reason why it has none.

    all_gather must fulfil out = in * k and reduce_scatter in = out * k; all_to_all is even only where nothing says otherwise: no
    splits, in = out, divisible by k. ``In msg nelems`` of an all_to_all is the whole buffer.

    Examples
    --------
    >>> from dataclasses import replace
    >>> base = CommArgs("_allgather_base", "Float", 2, 8, 4, "0", None, None, None, None, None, None, None, None, None, None)
    >>> measure(base, 4).size_bytes, measure(base, 2)
    (32, 'sizes contradict: all_gather of 2 ranks with 2 elements in and 8 out')
    >>> uneven = measure(replace(base, name="all_to_all", in_elements=50, out_elements=46), 4)
    >>> uneven.op, uneven.sent_bytes, uneven.received_bytes, uneven.sent_splits
    ('all_to_all_v', 200, 184, None)
    """
    op = canonical_op(args.name)
    base = args.name.strip().lower().rsplit(":", 1)[-1]
    if base in ("barrier", "monitored_barrier", "monitoredbarrier", "all_reduce_barrier"):
        return Size("barrier", 0, custom=True)
    _, width = dtype_width(args.dtype)
    if width is None:
        return f"dtype unknown: {args.dtype[:40] or 'none given'}"
    sent, received = args.in_elements, args.out_elements
    if sent is None or received is None:
        return "size missing: " + ("In msg nelems" if sent is None else "Out msg nelems")
    if max(sent, received) * width >= _MAX_BYTES:
        return "size out of range"
    if op in ("all_to_all", ALL_TO_ALL_V):
        return _all_to_all(args, sent, received, width, k)
    contradiction = f"sizes contradict: {op} of {k} ranks with {sent} elements in and {received} out"
    if op == "all_gather":
        return Size(op, received * width) if received == sent * k else contradiction
    if op == "reduce_scatter":
        return Size(op, sent * width) if sent == received * k else contradiction
    if op in ("send", "recv"):
        return Size("point_to_point", (sent if op == "send" else received) * width)
    if op is None or op == "point_to_point":  # a message without a direction has no ends: kept under its own name
        return Size("reduce" if base == "_reduce_oop" else args.name, max(sent, received) * width, custom=True)
    return Size(op, sent * width) if sent == received else contradiction


def _all_to_all(args: CommArgs, sent: int, received: int, width: int, k: int) -> Size:
    even = args.in_splits is None and args.out_splits is None and sent == received and sent % k == 0
    if even and (k == 1 or not args.splits_unknown):
        return Size("all_to_all", sent * width)
    notes: list[str] = []
    row = sent // args.in_rows if args.in_rows else None
    sent_splits = _splits(args.in_splits, sent, width, k, row, notes)
    received_splits = _splits(args.out_splits, received, width, k, None, notes)
    if (args.in_splits is None) != (args.out_splits is None):
        # torch: where one of the two lists is given, the other may be left out, and then means equal parts
        if args.in_splits is None and sent % k == 0:
            sent_splits = (sent // k * width,) * k
        elif args.out_splits is None and received % k == 0:
            received_splits = (received // k * width,) * k
        notes.append("all-to-all with one split list: the list left out means equal parts (torch's rule)")
    return Size(
        ALL_TO_ALL_V,
        max(sent, received) * width,
        sent_splits=sent_splits,
        received_splits=received_splits,
        sent_bytes=sent * width,
        received_bytes=received * width,
        notes=tuple(notes),
    )


def _splits(shown: IntList | None, total: int, width: int, k: int, row: int | None, notes: list[str]) -> tuple[int, ...] | None:
    """Bytes per member from a printed split list, -1 for entries that are not shown; None where it contradicts the total.

    Split sizes count rows of the tensor, so one entry stands for total / sum elements; a cut list has no sum, its entries are
    taken as elements where nothing speaks against it.
    """
    if shown is None:
        return None
    entries = [*shown.values, *([] if shown.last is None else [shown.last])]
    known = sum(entries)
    if not shown.cut:
        if len(entries) != k:
            notes.append(f"split lists that do not have one entry per rank are not used ({len(entries)} for {k} ranks)")
            return None
        if known == 0 or total % known:
            if known or total:
                notes.append("split lists that do not add up to the message are not used")
                return None
            return (0,) * k
        unit = total // known
        if unit != 1:
            notes.append("split sizes count rows: bytes = entry / sum of the entries * message")
        return tuple(v * unit * width for v in entries)
    hidden = k - len(entries)
    unit = row or 1
    rest = total - known * unit
    if hidden < 1 or rest < 0 or (row is None and rest > hidden * _PLAUSIBLE * max([1, *entries])):
        notes.append("cut split lists whose unit cannot be told are not used: the division of these messages is unknown")
        return None
    notes.append("split lists are cut: what goes to or comes from the ranks that are not shown has an unknown division")
    out = [v * unit * width for v in shown.values] + [-1] * hidden
    return tuple(out if shown.last is None else [*out, shown.last * unit * width])
