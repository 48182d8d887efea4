"""Inputs that change with every sample, and the bytes that a collective must make of them, computed without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from commcanary_lab.replay.buffers import REDUCING, Buffers
from commcanary_lab.replay.program import MESSAGES, Step
from commcanary_lab.trace.ops import DTYPE_BYTES

__all__ = ["contributions", "expected", "inputs", "rank_order_sum"]

Bytes = npt.NDArray[np.uint8]
Contributions = Callable[[int], Bytes]
_U64 = np.uint64
_GOLDEN, _MIX_A, _MIX_B = _U64(0x9E3779B97F4A7C15), _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)

_NUMPY = {
    "float16": np.float16, "float32": np.float32, "float64": np.float64, "int8": np.int8, "uint8": np.uint8, "int16": np.int16,
    "int32": np.int32, "int64": np.int64, "bool": np.uint8, "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip


def _words(key: int, count: int) -> npt.NDArray[np.uint64]:
    """`count` random 64 bit words: splitmix64 (Steele, Lea and Flood, 2014) of a counter that starts at `key`."""
    with np.errstate(over="ignore"):
        z = (np.arange(count, dtype=_U64) + _U64(key % (1 << 64))) * _GOLDEN
        z ^= z >> _U64(30)
        z *= _MIX_A
        z ^= z >> _U64(27)
        z *= _MIX_B
        z ^= z >> _U64(31)
    return z


def _key(event: int, sample: int, rank: int) -> int:
    # far apart for neighbours: the words of one buffer are consecutive counters
    return (event * 0x632BE59BD9B4E019 + sample * 0xD1342543DE82EF95 + rank * 0x2545F4914F6CDD1D) % (1 << 64)


def inputs(step: Step, b: Buffers, rank: int, event: int, sample: int) -> Bytes:
    """Return what a rank gives to a collective, as bytes.

    What is only moved is arbitrary: every bit pattern of an integer type, finite floats with random mantissas. What is reduced are
    small whole numbers whose result is exact in the type, whatever the order of the reduction.

    Parameters
    ----------
    step, b : Step, Buffers
        The collective.
    rank : int
        The rank.
    event, sample : int
        Position in the program, and number of the replay: both change the values.

    Examples
    --------
    >>> from commcanary_lab.replay.buffers import buffers
    >>> step = Step("all_reduce", (0, 1), 8, "float32", "sum")
    >>> b = buffers(step, "gloo")
    >>> inputs(step, b, 0, 5, 1).view(np.float32).tolist() == inputs(step, b, 0, 5, 2).view(np.float32).tolist()
    False
    """
    n = b.sent[step.members.index(rank)]
    key = _key(event, sample, rank)
    if step.op in REDUCING:
        return _cast(_whole_numbers(b, key, n, len(step.members), step.members.index(rank)), b.dtype)
    return _arbitrary(b.dtype, key, n)


def _arbitrary(dtype: str, key: int, n: int) -> Bytes:
    width = DTYPE_BYTES[dtype]
    raw = _words(key, -(-n * width // 8)).view(np.uint8)[: n * width]
    if dtype == "bool":
        return raw & np.uint8(1)
    if dtype in ("bfloat16", "float16"):
        # bits of the exponent are set so that the numbers are finite and of similar size
        mantissa, exponent, low = (0x807F, 0x3F80, 0x0180) if dtype == "bfloat16" else (0x83FF, 0x3800, 0x0C00)
        bits = raw.view(np.uint16)
        return ((bits & np.uint16(mantissa | low)) | np.uint16(exponent & ~low)).view(np.uint8)
    if dtype in ("float32", "complex64"):
        bits32 = raw.view(np.uint32)
        return ((bits32 & np.uint32(0x81FFFFFF)) | np.uint32(0x3E000000)).view(np.uint8)
    if dtype in ("float64", "complex128"):
        bits64 = raw.view(np.uint64)
        return ((bits64 & _U64(0x803FFFFFFFFFFFFF)) | _U64(0x3FC0000000000000)).view(np.uint8)
    return raw


def _whole_numbers(b: Buffers, key: int, n: int, k: int, at: int) -> npt.NDArray[np.int64]:
    """Whole numbers whose reduction over k ranks is exact: bfloat16 has 8 significant bits, so sums stay within 256."""
    lanes = _words(key, -(-n // 8)).view(np.uint8)[:n].astype(np.int64)
    if b.dtype == "bool":
        return (lanes & 1).astype(np.int64)
    if b.reduction == "product":
        # at most a factor of 2 on a few ranks: each of 64 consecutive hash values doubles once
        return np.where(lanes < 4, np.int64(2), np.int64(1))
    reach = max(1, min(100, 128 // k)) if b.reduction in ("sum", "avg") else 100
    small = lanes % (2 * reach + 1) - reach
    if b.reduction == "avg":  # one rank gives a multiple of k, the others 0: sum and average are exact
        return np.where(np.arange(n) % k == at, small * k, 0)
    return np.abs(small) if b.dtype == "uint8" else small


def _cast(values: npt.NDArray[np.int64], dtype: str) -> Bytes:
    """Whole numbers as bytes of a type."""
    if dtype == "bfloat16":
        return np.ascontiguousarray(values.astype(np.float32).view(np.uint16)[1::2]).view(np.uint8)
    if dtype == "complex32":
        pairs = np.zeros((len(values), 2), np.float16)
        pairs[:, 0] = values
        return pairs.reshape(-1).view(np.uint8)
    return np.ascontiguousarray(values.astype(_NUMPY[dtype])).view(np.uint8)


def _reduced(step: Step, b: Buffers, event: int, sample: int) -> npt.NDArray[np.int64]:
    k = len(step.members)
    rows = [_whole_numbers(b, _key(event, sample, r), b.sent[i], k, i) for i, r in enumerate(step.members)]
    if b.dtype == "bool":
        return np.bitwise_or.reduce(rows) if b.reduction in ("sum", "max") else np.bitwise_and.reduce(rows)
    by: dict[str, Callable[[Any], Any]] = {
        "sum": lambda a: np.sum(a, axis=0), "avg": lambda a: np.sum(a, axis=0) // k, "min": lambda a: np.min(a, axis=0),
        "max": lambda a: np.max(a, axis=0), "product": lambda a: np.prod(a, axis=0),
    }  # fmt: skip
    out: npt.NDArray[np.int64] = by[b.reduction](rows)
    return out


def contributions(step: Step, b: Buffers, event: int, sample: int) -> Contributions:
    """Return a function that gives each rank's inputs, made once however often it is asked."""
    known: dict[int, Bytes] = {}

    def of(rank: int) -> Bytes:
        if rank not in known:
            known[rank] = inputs(step, b, rank, event, sample)
        return known[rank]

    return of


def expected(step: Step, b: Buffers, rank: int, event: int, sample: int, of: Contributions | None = None) -> Bytes | None:
    """Return the bytes that a rank must have received, or None where the operation leaves nothing defined there.

    Computed in whole numbers by NumPy from the inputs of all members, which every rank can make itself; neither torch nor the
    network takes part. `of` gives the inputs where they are made already.
    """
    at = step.members.index(rank)
    if b.received[at] == 0:
        return None

    of = of or contributions(step, b, event, sample)
    if step.op in REDUCING:
        whole = _cast(_reduced(step, b, event, sample), b.dtype)
        return _chunk(whole, at, b.received[at] * b.width) if step.op == "reduce_scatter" else whole
    if step.op in MESSAGES:
        return of(int(step.sender or 0))
    if step.op in ("all_gather", "gather"):
        return np.concatenate([of(r) for r in step.members])
    if step.op == "broadcast":
        return of(int(step.root or 0))
    if step.op == "scatter":
        return _chunk(of(int(step.root or 0)), at, b.received[at] * b.width)
    if b.splits is None:  # all_to_all
        size = b.received[at] * b.width // len(step.members)
        return np.concatenate([_chunk(of(r), at, size) for r in step.members])
    parts = []
    for i, r in enumerate(step.members):
        begin = sum(b.splits[i][:at]) * b.width
        parts.append(of(r)[begin : begin + b.splits[i][at] * b.width])
    return np.concatenate(parts)


def _chunk(data: Bytes, number: int, size: int) -> Bytes:
    return data[number * size : (number + 1) * size]


def rank_order_sum(step: Step, b: Buffers, event: int, sample: int, of: Contributions | None = None) -> Bytes | None:
    """Return the sum of what an all-gather gathers, added rank after rank in the precision of its type, or None for other types.

    A consumer that adds in another order, or adds an old part, gets other bytes: the numbers are not exactly representable sums.
    """
    if step.op != "all_gather" or b.dtype not in ("bfloat16", "float32", "float64") or not b.sent[0]:
        return None
    of = of or contributions(step, b, event, sample)
    parts = [of(r) for r in step.members]
    if b.dtype != "bfloat16":
        kind = _NUMPY[b.dtype]
        total = parts[0].view(kind).copy()
        for p in parts[1:]:
            total += p.view(kind)
        return total.view(np.uint8)
    total = _widen(parts[0])
    for p in parts[1:]:
        total = _widen(_rounded(total + _widen(p)))
    return _rounded(total)


def _widen(data: Bytes) -> npt.NDArray[np.float32]:
    return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _rounded(values: npt.NDArray[np.float32]) -> Bytes:
    """Round finite float32 to bfloat16, to nearest, ties to even."""
    bits = values.view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits >> np.uint32(16)).astype(np.uint16).view(np.uint8)
