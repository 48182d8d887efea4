"""The ``alpha-beta`` cost model: steps times a latency, plus the bytes on the busiest link over its bandwidth.

Per algorithm, with k ranks and size B (DESIGN: the size of nccl-tests):

=================  =======================  ==========================
operation          steps                    bytes on the busiest link
=================  =======================  ==========================
all_reduce         2 (k - 1)                2 (k - 1) / k * B
all_gather,
reduce_scatter     k - 1                    (k - 1) / k * B
all_to_all         k - 1                    (k - 1) / k * B
broadcast, reduce  k - 1                    B
messages           1                        B
=================  =======================  ==========================

The model has no noise and no tail; two runs of one trace differ only by the backend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import register_model
from commcanary_lab.simulate.prepare import Prepared
from commcanary_lab.trace.ops import ALL_TO_ALL_V

__all__ = ["AlphaBeta"]

_ONE_STEP = {"send", "recv", "point_to_point"}


@dataclass(frozen=True)
class AlphaBeta:
    """Latency-bandwidth model of ring collectives and pairwise exchanges.

    Parameters
    ----------
    alpha_us : float, optional
        Latency of one step in microseconds; the backend's latency floor where not given.
    bandwidth_gbps : float, optional
        Bandwidth of the busiest link in Gbit/s; the backend's where not given.
    gpus_per_node : int, optional
        With it, groups that span nodes use the inter-node terms.
    inter_alpha_us, inter_bandwidth_gbps : float, optional
        Terms of links between nodes; the intra-node ones where not given.
    """

    alpha_us: float | None = None
    bandwidth_gbps: float | None = None
    gpus_per_node: int | None = None
    inter_alpha_us: float | None = None
    inter_bandwidth_gbps: float | None = None
    name: str = "alpha-beta"

    def service_us(self, prepared: Prepared, backend: Backend, iteration: int, ablations: frozenset[str]) -> npt.NDArray[np.float64]:
        """Return the service time of each event in microseconds, shape (n,)."""
        k = prepared.group_size
        names = np.array([*prepared.trace.op.names, ""], object)[prepared.trace.op.codes]
        ring = (k - 1) / np.maximum(1, k)
        reduce, message = names == "all_reduce", np.isin(names, list(_ONE_STEP))
        shared = np.isin(names, ["all_gather", "reduce_scatter", "all_to_all", ALL_TO_ALL_V])
        steps = np.select([reduce, message], [2 * (k - 1), np.minimum(1, k - 1)], k - 1)
        share = np.select([reduce, shared], [2 * ring, ring], np.where(k > 1, 1.0, 0.0))
        spans = self._spans_nodes(prepared)
        alpha = np.where(
            spans, _first(self.inter_alpha_us, self.alpha_us, backend.latency_floor_us), _first(self.alpha_us, backend.latency_floor_us)
        )
        rate = np.where(
            spans,
            _first(self.inter_bandwidth_gbps, self.bandwidth_gbps, backend.bandwidth_gbps),
            _first(self.bandwidth_gbps, backend.bandwidth_gbps),
        )
        out: npt.NDArray[np.float64] = steps * alpha + prepared.size_bytes.astype(np.float64) * share * 8 / (rate * 1000)
        return out

    def _spans_nodes(self, prepared: Prepared) -> npt.NDArray[np.bool_]:
        if self.gpus_per_node is None:
            return np.zeros(len(prepared), np.bool_)
        width = self.gpus_per_node
        spans = np.array([len({r // width for r in g.members}) > 1 for g in prepared.trace.groups], np.bool_)
        return spans[prepared.trace.group]


def _first(*values: float | None) -> float:
    return next(v for v in values if v is not None)


register_model(AlphaBeta())
