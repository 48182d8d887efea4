"""What the operations of NCCL and RCCL logs mean: name, size, datatype, reduction."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.importers.nccl_log_parts import Call

__all__ = ["MESSAGES", "OP_NAMES", "Meaning", "meaning"]

MESSAGES = frozenset({"Send", "Recv"})

#: Code -> name and bytes per element.
_DATATYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float16", 2), ("float32", 4), ("float64", 8),
    ("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1),
)  # fmt: skip
#: Codes above are operators that the job made itself.
_REDUCTIONS = ("sum", "product", "max", "min", "avg")
#: Name in the log -> canonical name, and whether the count is that of one rank's part.
_OPS = {
    "AllReduce": ("all_reduce", False), "AllReduceWithBias": ("all_reduce", False), "Broadcast": ("broadcast", False),
    "Bcast": ("broadcast", False), "Reduce": ("reduce", False), "AllGather": ("all_gather", True),
    "ReduceScatter": ("reduce_scatter", True), "AllToAll": ("all_to_all", True), "AlltoAll": ("all_to_all", True),
    "Gather": ("gather", True), "Scatter": ("scatter", True), "Send": ("point_to_point", False), "Recv": ("point_to_point", False),
}  # fmt: skip
#: Names of operations in the log.
OP_NAMES = frozenset(_OPS)
_STANDARD = frozenset({"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "point_to_point"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_REDUCING = frozenset({"all_reduce", "reduce_scatter"})
_MAX_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a call means.

    Parameters
    ----------
    op : str
        Canonical name, or the log's own.
    part_bytes : int
        Count times width.
    per_rank : bool
        B is the number of ranks times `part_bytes`.
    rooted : bool
        `root` is the root or, for a message, the peer.
    reason : str, optional
        Why the size is unknown.
    """

    op: str
    part_bytes: int
    per_rank: bool
    dtype: str | None
    reduction: str | None
    rooted: bool
    custom: bool
    reason: str | None = None

    def size_bytes(self, nranks: int) -> int:
        """Return B.

        Examples
        --------
        >>> meaning(Call("AllGather", 8, 0, 0, 0)).size_bytes(4), meaning(Call("AllReduce", 8, 7, 0, 0)).size_bytes(4)
        (32, 32)
        """
        return self.part_bytes * (nranks if self.per_rank else 1)

    def sent_bytes(self, nranks: int, receives: bool) -> int | None:
        """Return what one rank gives: unattributed bytes, where nothing says to whom."""
        if nranks == 1:
            return 0
        if receives:
            return None
        return self.part_bytes * (nranks if self.op in ("reduce_scatter", "all_to_all", "scatter") else 1)


def meaning(call: Call) -> Meaning:
    """Return what a call means; with a reason where its size cannot be known.

    Examples
    --------
    >>> meaning(Call("Send", 1000, 9, 0, 1)).part_bytes, meaning(Call("AllReduce", 1, 44, 0, 0)).reason
    (2000, 'datatype 44 unknown')
    """
    op, per_rank = _OPS.get(call.op, (call.op, False))
    known = call.datatype < len(_DATATYPES)
    dtype, width = _DATATYPES[call.datatype] if known else (None, 0)
    reduction = _REDUCTIONS[call.reduction] if op in _REDUCING and call.reduction < len(_REDUCTIONS) else None
    reason = None
    if not known:
        reason = f"datatype {call.datatype} unknown"
    elif call.elements * width >= _MAX_BYTES:
        reason = "size out of range"
    rooted = op in _ROOTED or call.op in MESSAGES
    return Meaning(op, 0 if reason else call.elements * width, per_rank, dtype, reduction, rooted, op not in _STANDARD, reason)
