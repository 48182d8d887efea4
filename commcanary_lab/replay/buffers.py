"""How many elements of which type each rank gives and gets: B and a dtype become buffers, and what had to change is said."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.replay.program import MESSAGES, Step
from commcanary_lab.trace.ops import ALL_TO_ALL_V, DTYPE_BYTES

__all__ = ["REDUCING", "Buffers", "buffers"]

#: Operations that compute on what they move.
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
#: Operations whose buffer has one chunk per rank.
_CHUNKED = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})

#: What Gloo carries (torch 2.13); NCCL carries the floats of 8 bits, too, and no complex type of its own (torch views them as real).
_GLOO = frozenset(DTYPE_BYTES) - {n for n in DTYPE_BYTES if n.startswith("float8")} - {"int16"}
_NCCL = frozenset(DTYPE_BYTES) - {"int16", "complex32"}
_INTEGERS = frozenset({"int8", "uint8", "int16", "int32", "int64", "bool"})


@dataclass(frozen=True)
class Buffers:
    """The buffers of one step, per member.

    Parameters
    ----------
    dtype : str
        What is moved; not always what the source says, see `changes`.
    reduction : str
        ``sum`` where the operation reduces and the source does not say.
    sent, received : tuple of int
        Elements that each member gives and gets.
    splits : tuple of tuple of int, optional
        Elements from member to member, for an uneven all-to-all.
    changes : tuple of str
        What differs from the source, and why.
    """

    dtype: str
    reduction: str
    sent: tuple[int, ...]
    received: tuple[int, ...]
    splits: tuple[tuple[int, ...], ...] | None = None
    changes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]


def buffers(step: Step, backend: str) -> Buffers:
    """Return the buffers of a step.

    A dtype that the backend lacks travels as another one of the same number of bytes. A size that is no whole number of elements
    travels as bytes, or, where a reduction computes on it, grows to the next whole number. Each of this is a `change`.

    Parameters
    ----------
    step : Step
        What is run.
    backend : str
        ``gloo`` or ``nccl``.

    Examples
    --------
    >>> buffers(Step("all_gather", (0, 1, 2, 3), 32, "bfloat16"), "gloo").sent
    (4, 4, 4, 4)
    >>> buffers(Step("all_reduce", (0, 1), 8, "float8_e4m3fn", "sum"), "gloo").changes
    ('float8_e4m3fn runs as uint8: gloo does not carry it',)
    """
    changes: list[str] = []
    reduces = step.op in REDUCING
    dtype = _carrier(step, backend, reduces, changes)
    k = len(step.members)
    parts = k if step.op in _CHUNKED else 1
    width = DTYPE_BYTES[dtype]
    pieces = [b for row in step.splits for b in row] if step.splits is not None else [step.size_bytes]
    if any(b % (width * parts) for b in pieces) and not reduces and dtype != "uint8":
        changes.append(f"runs as bytes: {step.size_bytes} B is no whole number of {dtype} elements per rank")
        dtype, width = "uint8", 1
    if step.splits is not None:
        splits = tuple(tuple(b // width for b in row) for row in step.splits)
        sent, received = tuple(map(sum, splits)), tuple(map(sum, zip(*splits, strict=True)))
        return Buffers(dtype, "sum", sent, received, splits, tuple(changes))
    chunk = -(-step.size_bytes // (width * parts))
    if chunk * width * parts != step.size_bytes:
        changes.append(f"{step.size_bytes} B grow to {chunk * width * parts} B, a whole number of {dtype} elements per rank")
    whole = chunk * parts
    sent, received = _counts(step, chunk, whole, k)
    return Buffers(dtype, _reduction(step, dtype, backend, changes) if reduces else "sum", sent, received, None, tuple(changes))


def _carrier(step: Step, backend: str, reduces: bool, changes: list[str]) -> str:
    if step.op in ("barrier", "monitored_barrier"):
        return "uint8"
    dtype = step.dtype
    if dtype is None:
        dtype = "float32" if reduces and step.size_bytes % 4 == 0 else "uint8"
        changes.append(f"runs as {dtype}: the source does not say the dtype")
    if dtype not in DTYPE_BYTES:
        carrier = "float32" if reduces and step.size_bytes % 4 == 0 else "uint8"
        changes.append(f"{dtype} runs as {carrier}: no such dtype here")
        return carrier
    if dtype in (_GLOO if backend == "gloo" else _NCCL):
        return dtype
    carrier = "float16" if reduces and DTYPE_BYTES[dtype] == 2 else "float32" if DTYPE_BYTES[dtype] == 4 else "uint8"
    changes.append(f"{dtype} runs as {carrier}: {backend} does not carry it")
    return carrier


def _reduction(step: Step, dtype: str, backend: str, changes: list[str]) -> str:
    reduction = step.reduction or "sum"
    if reduction not in ("sum", "avg", "min", "max", "product"):
        changes.append(f"reduction {reduction!r} runs as sum")
        return "sum"
    if reduction == "avg" and dtype in _INTEGERS:
        changes.append(f"the average of {dtype} runs as sum")
        reduction = "sum"
    if reduction == "sum" and dtype == "bool" and backend == "gloo":
        changes.append("the sum of bool runs as max: gloo adds the bytes of a bool, and true becomes 2")
        return "max"
    if reduction in ("min", "max", "product") and dtype.startswith("complex"):
        changes.append(f"the {reduction} of {dtype} runs as sum")
        return "sum"
    return reduction


def _counts(step: Step, chunk: int, whole: int, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    op, all_of = step.op, (whole,) * k
    at = [i for i, r in enumerate(step.members) if r == step.root]

    def only_root(n: int) -> tuple[int, ...]:
        return tuple(n if i in at else 0 for i in range(k))

    if op in MESSAGES:
        sends = tuple(whole if r == step.sender else 0 for r in step.members)
        return sends, tuple(whole if r == step.receiver else 0 for r in step.members)
    if op == "all_gather":
        return (chunk,) * k, all_of
    if op == "reduce_scatter":
        return all_of, (chunk,) * k
    if op == "broadcast":
        return only_root(whole), all_of
    if op == "reduce":
        return all_of, only_root(whole)
    if op == "gather":
        return (chunk,) * k, only_root(whole)
    if op == "scatter":
        return only_root(whole), (chunk,) * k
    if op in ("barrier", "monitored_barrier"):
        return (0,) * k, (0,) * k
    assert op in ("all_reduce", "all_to_all") or op == ALL_TO_ALL_V
    return all_of, all_of
