"""The loops of `kernels` and `identity_kernels` in plain Python, for traces so short that loading the compiler would take longer.

Values are the same to the last bit: `tests/simulate/test_plain.py` compares them.
"""

from __future__ import annotations

import hashlib
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["identities", "mean_wait_us", "preferred", "queue", "service"]

FloatArray = npt.NDArray[np.float64]

#: Up to this many events take less time here than the import of numba.
_FEW = 2000
_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def preferred(events: int) -> bool:
    """Whether these loops are the faster ones: few events, and nothing has loaded the compiler yet."""
    return events <= _FEW and "numba" not in sys.modules


def mean_wait_us(
    arrival_ns: npt.NDArray[np.int64], pointers: npt.NDArray[np.int64], group_size: npt.NDArray[np.int64], skew_us: FloatArray
) -> FloatArray:
    """As `kernels.mean_wait_us`."""
    bounds, skews, out = pointers.tolist(), skew_us.tolist(), np.zeros(len(group_size))
    for i, k in enumerate(group_size.tolist()):
        if k < 2:
            continue
        total = 0.0
        if bounds[i + 1] - bounds[i] == k:
            given = arrival_ns[bounds[i] : bounds[i + 1]].tolist()
            low = min(given)
            last = (max(given) - low) / 1000.0
            for arrival in given:
                total += last - (arrival - low) / 1000.0
        else:
            for _ in range(k - 1):
                total += skews[i]
        out[i] = total / k
    return out


def queue(
    gap: FloatArray,
    skew: FloatArray,
    service: FloatArray,
    overlap: FloatArray,
    efficiency: float,
    resource: npt.NDArray[np.int64],
    resources: int,
    out: FloatArray,
) -> None:
    """As `kernels.queue`."""
    free, clock = [0.0] * resources, 0.0
    columns = (gap.tolist(), skew.tolist(), service.tolist(), overlap.tolist(), resource.tolist())
    for i, (before, late, busy, beside, lane) in enumerate(zip(*columns, strict=True)):
        clock += before
        last = clock + late
        start = max(last, free[lane])
        free[lane] = start + busy
        total = start + busy - clock
        hidden = min(total, beside * efficiency)
        out[:, i] = clock, start, start + busy, start - last, total, hidden, total - hidden


def service(
    transfer: FloatArray,
    startup: FloatArray,
    concurrent: npt.NDArray[np.int64],
    pressure: FloatArray,
    skew: FloatArray,
    identity: npt.NDArray[np.uint64],
    salt: np.uint64,
    backend_pressure: float,
    tails: bool,
    out: FloatArray,
) -> None:
    """As `kernels.service`."""
    columns = (c.tolist() for c in (transfer, startup, concurrent, pressure, skew, identity))
    for i, (moved, begun, others, pressed, late, number) in enumerate(zip(*columns, strict=True)):
        p = min(1.5, max(0.0, backend_pressure * pressed / 0.55))
        counter = int(salt) ^ number
        noise = -0.45 + _uniform(counter, 0) * 1.35
        if tails:
            p_tail = min(0.35, 0.015 + late / 180 + p * 0.035 + (others - 1) * 0.04)
            if _uniform(counter, 1) <= p_tail:
                noise = noise - math.log(max(1e-15, 1 - _uniform(counter, 2))) * (3.5 + p * 8 + late * 0.08)
        out[i] = max(0.5, begun + moved * (1 + (others - 1) * 0.22) * (1 + p * 0.18) + noise)


def _uniform(counter: int, lane: int) -> float:
    v = (counter ^ (lane * _GAMMA & _MASK)) + _GAMMA & _MASK
    v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    v = (v ^ (v >> 27)) * 0x94D049BB133111EB & _MASK
    return ((v ^ (v >> 31)) >> 11) / 9007199254740992.0


def identities(
    values: npt.NDArray[np.int64],
    pointers: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    zero: bool,
    key: npt.NDArray[np.int64],
    pieces: list[bytes],
    sequence: npt.NDArray[np.int64],
    occurrence: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint64],
) -> None:
    """As `identity_kernels.hash_range` over all events; `pieces` holds five texts per key."""
    columns: Any = zip(sizes.tolist(), key.tolist(), sequence.tolist(), occurrence.tolist(), strict=True)
    for i, (k, kind, number, earlier) in enumerate(columns):
        given = values[int(pointers[i]) : int(pointers[i + 1])].tolist()
        offsets = [0] * k
        if not zero:
            if len(given) == k:
                offsets = [a - min(given) for a in given]
            elif len(given) == 1:
                offsets[-1] = given[0]
        begin, group, sequenced, counted, rest = pieces[5 * kind : 5 * kind + 5]
        message = sequenced + b"%d" % number if number >= 0 else b""
        times = ",".join(map(_us_text, offsets)).encode("ascii")
        text = b"".join((begin, times, group, message, counted, b"%d" % earlier, rest))
        out[i] = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _us_text(time_ns: int) -> str:
    """``time_ns / 1000`` as Python prints that float, for any size."""
    return f"{time_ns // 1000}.{f'{time_ns % 1000:03d}'.rstrip('0') or '0'}"
