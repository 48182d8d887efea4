"""Compiled loops of preparation, cost model and engine; `plain` has them for short traces."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["mean_wait_us", "queue", "service"]

FloatArray = npt.NDArray[np.float64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def mean_wait_us(
    arrival_ns: npt.NDArray[np.int64], pointers: npt.NDArray[np.int64], group_size: npt.NDArray[np.int64], skew_us: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Mean over ranks of (last arrival - own arrival), summed left to right in rank order as the published model does.

    Where only the skew is known, every rank but the last arrives at 0.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    out = np.zeros(len(group_size))
    for i in range(len(out)):
        k, start = group_size[i], pointers[i]
        if pointers[i + 1] - start == k and k > 1:
            low, high = arrival_ns[start], arrival_ns[start]
            for j in range(start + 1, start + k):
                low, high = min(low, arrival_ns[j]), max(high, arrival_ns[j])
            last, total = (high - low) / 1000.0, 0.0
            for j in range(start, start + k):
                total += last - (arrival_ns[j] - low) / 1000.0
            out[i] = total / k
        elif k > 1:
            total = 0.0
            for _ in range(k - 1):
                total += skew_us[i]
            out[i] = total / k
    return out


@njit(cache=True, nogil=True)
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
    """Run the queues of one iteration; `out` has a row for each of clock, start, completion, wait, total, hidden, exposed."""
    free = np.zeros(resources)
    clock = 0.0
    for i in range(len(gap)):
        clock += gap[i]
        last = clock + skew[i]
        start = max(last, free[resource[i]])
        completion = start + service[i]
        free[resource[i]] = completion
        total = completion - clock
        hidden = min(total, overlap[i] * efficiency)
        out[0, i] = clock
        out[1, i] = start
        out[2, i] = completion
        out[3, i] = start - last
        out[4, i] = total
        out[5, i] = hidden
        out[6, i] = total - hidden


@njit(cache=True, nogil=True, inline="always")
def _uniform(counter: np.uint64, lane: int) -> float:
    v = (counter ^ np.uint64(np.uint64(lane) * _GAMMA)) + _GAMMA
    v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    v = v ^ (v >> np.uint64(31))
    return np.float64(v >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
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
    """Service time of each event under the ``commcanary-v4`` model, microseconds, into `out`."""
    for i in range(len(out)):
        p = min(1.5, max(0.0, backend_pressure * pressure[i] / 0.55))
        counter = salt ^ identity[i]
        noise = -0.45 + _uniform(counter, 0) * 1.35
        if tails:
            p_tail = min(0.35, 0.015 + skew[i] / 180 + p * 0.035 + (concurrent[i] - 1) * 0.04)
            if _uniform(counter, 1) <= p_tail:
                noise = noise - math.log(max(1e-15, 1 - _uniform(counter, 2))) * (3.5 + p * 8 + skew[i] * 0.08)
        contention = 1 + (concurrent[i] - 1) * 0.22
        out[i] = max(0.5, startup[i] + transfer[i] * contention * (1 + p * 0.18) + noise)
