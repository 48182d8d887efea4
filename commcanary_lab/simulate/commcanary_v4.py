"""The ``commcanary-v4`` cost model (published as deterministic-scheduler-v4), in float64 in the published order of operations."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from commcanary_lab.simulate import plain
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import register_model
from commcanary_lab.simulate.prepare import Prepared

__all__ = ["CommCanaryV4"]

FloatArray = npt.NDArray[np.float64]

_ITERATION = 0xD6E8FEB86659FD93
_MASK = (1 << 64) - 1

#: Factor by operation; the two negative marks stand for shares that depend on the group size.
_ONE_SHARE, _TWO_SHARES = -1.0, -2.0
_FACTORS = {"all_reduce": _TWO_SHARES, "reduce_scatter": _ONE_SHARE, "all_gather": _ONE_SHARE, "all_to_all": 1.6, "broadcast": 0.8}


class CommCanaryV4:
    """Start-up, bandwidth, contention, pressure and counter-based noise with a rare tail; the default model.

    Formula: `docs/models.md`. One event costs ``max(0.5, startup + transfer * factor * contention * penalty + noise)``.
    """

    name = "commcanary-v4"

    def service_us(self, prepared: Prepared, backend: Backend, iteration: int, ablations: frozenset[str]) -> FloatArray:
        """Return the service time of each event in microseconds, shape (n,)."""
        if plain.preferred(len(prepared)):
            from commcanary_lab.simulate.plain import service
        else:
            from commcanary_lab.simulate.kernels import service

        no_skew = "arrival_skew" in ablations
        codes, sizes = prepared.size_codes
        startup = np.array([backend.latency_floor_us + math.log2(max(2, k)) * 1.15 + 4 for k in sizes.tolist()] or [0.0])
        transfer = prepared.size_bytes.astype(np.float64) * 8 / (backend.bandwidth_gbps * 1000) * _factors(prepared)
        out = np.empty(len(prepared))
        salt = (backend.seed ^ ((iteration + 1) * _ITERATION & _MASK)) & _MASK
        service(
            transfer,
            startup[codes],
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
    codes, n = prepared.size_codes
    factor = np.array([_FACTORS.get(name, 1.0) for name in prepared.trace.op.names] or [1.0])[:, None]
    share = (n - 1) / np.maximum(1, n)
    table = np.where(factor == _TWO_SHARES, 2 * (n - 1) / np.maximum(1, n), np.where(factor == _ONE_SHARE, share, factor))
    return table[prepared.trace.op.codes, codes]


register_model(CommCanaryV4())
