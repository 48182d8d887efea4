"""The ``commcanary-v4`` cost model (published as deterministic-scheduler-v4), in float64 in the published order of operations."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import register_model
from commcanary_lab.simulate.prepare import Prepared

__all__ = ["CommCanaryV4"]

FloatArray = npt.NDArray[np.float64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ITERATION = 0xD6E8FEB86659FD93
_MASK = (1 << 64) - 1

#: Factor by operation; the two negative marks stand for shares that depend on the group size.
_ONE_SHARE, _TWO_SHARES = -1.0, -2.0
_FACTORS = {"all_reduce": _TWO_SHARES, "reduce_scatter": _ONE_SHARE, "all_gather": _ONE_SHARE, "all_to_all": 1.6, "broadcast": 0.8}


@njit(cache=True, nogil=True, inline="always")
def _uniform(counter: np.uint64, lane: int) -> float:
    v = (counter ^ np.uint64(np.uint64(lane) * _GAMMA)) + _GAMMA
    v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    v = v ^ (v >> np.uint64(31))
    return np.float64(v >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def _service(
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


class CommCanaryV4:
    """Start-up, bandwidth, contention, pressure and counter-based noise with a rare tail; the default model.

    Formula: `docs/models.md`. One event costs ``max(0.5, startup + transfer * factor * contention * penalty + noise)``.
    """

    name = "commcanary-v4"

    def service_us(self, prepared: Prepared, backend: Backend, iteration: int, ablations: frozenset[str]) -> FloatArray:
        """Return the service time of each event in microseconds, shape (n,)."""
        n = prepared.group_size
        no_skew = "arrival_skew" in ablations
        distinct, inverse = np.unique(n, return_inverse=True)
        startup = np.array([backend.latency_floor_us + math.log2(max(2, k)) * 1.15 + 4 for k in distinct.tolist()])
        transfer = prepared.size_bytes.astype(np.float64) * 8 / (backend.bandwidth_gbps * 1000) * _factors(prepared)
        out = np.empty(len(prepared))
        salt = (backend.seed ^ ((iteration + 1) * _ITERATION & _MASK)) & _MASK
        _service(
            transfer,
            startup[inverse.reshape(-1)] if len(distinct) else startup,
            prepared.concurrent_groups,
            np.full(len(prepared), 0.55) if "pressure" in ablations else prepared.pressure,
            np.zeros(len(prepared)) if no_skew else prepared.skew_us,
            prepared.identity_without_skew if no_skew else prepared.identity,
            np.uint64(salt),
            backend.compute_pressure,
            "rare_tail_windows" not in ablations,
            out,
        )
        return out


def _factors(prepared: Prepared) -> FloatArray:
    """Bytes on the wire per byte of B, as the model counts them."""
    n = prepared.group_size
    by_name = np.array([_FACTORS.get(name, 1.0) for name in prepared.trace.op.names] or [1.0])
    factor = by_name[prepared.trace.op.codes]
    share = (n - 1) / np.maximum(1, n)
    return np.where(factor == _TWO_SHARES, 2 * (n - 1) / np.maximum(1, n), np.where(factor == _ONE_SHARE, share, factor))


register_model(CommCanaryV4())
