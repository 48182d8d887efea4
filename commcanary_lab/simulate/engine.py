"""The open-loop, queue-aware engine.

Per event: ``clock += gap``; first arrival = clock; last = first + skew; ``start = max(last, free[resource])``;
queue wait = start - last; ``completion = start + service``; ``free[resource] = completion``; total = completion - first;
hidden = min(total, overlap * efficiency); exposed = total - hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.simulate import plain
from commcanary_lab.simulate.backend import Backend
from commcanary_lab.simulate.models import CostModel
from commcanary_lab.simulate.prepare import Prepared

__all__ = ["Samples", "run"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Samples:
    """What the engine computed per event and iteration, in microseconds; every array has shape (iterations * n,).

    Attributes
    ----------
    event : ndarray of int64
        Index of the event in the trace.
    first_us, start_us, service_us, completion_us : ndarray
        First arrival, start of the collective, its service time, its completion.
    wait_us, total_us, hidden_us, exposed_us : ndarray
        Queue wait, and the parts of the latency.
    skew_us : ndarray
        Arrival skew as the engine used it.
    """

    event: npt.NDArray[np.int64]
    first_us: FloatArray
    start_us: FloatArray
    service_us: FloatArray
    completion_us: FloatArray
    wait_us: FloatArray
    total_us: FloatArray
    hidden_us: FloatArray
    exposed_us: FloatArray
    skew_us: FloatArray
    iterations: int

    def __len__(self) -> int:
        return len(self.event)


def run(prepared: Prepared, backend: Backend, model: CostModel, ablations: frozenset[str] = frozenset()) -> Samples:
    """Run a prepared trace through one backend.

    Parameters
    ----------
    prepared : Prepared
        The trace.
    backend : Backend
        The configuration.
    model : CostModel
        Gives the service time of each event.
    ablations : frozenset of str
        Mechanisms to remove.

    Returns
    -------
    Samples
        Iteration-major.
    """
    if plain.preferred(len(prepared)):
        from commcanary_lab.simulate.plain import queue
    else:
        from commcanary_lab.simulate.kernels import queue

    n, k = len(prepared), backend.iterations
    order = prepared.canonical_order if "operation_ordering" in ablations else None
    gap = np.zeros(n) if "queue_reset_gaps" in ablations else prepared.gap_us
    skew = np.zeros(n) if "arrival_skew" in ablations else prepared.skew_us
    overlap = np.zeros(n) if "compute_overlap" in ablations else prepared.overlap_us
    resource = prepared.resource
    if order is not None:
        gap, skew, overlap, resource = gap[order], skew[order], overlap[order], resource[order]
    resources = int(resource.max()) + 1 if n else 1
    out = np.empty((k, 7, n))
    service = np.empty((k, n))
    for iteration in range(k):
        times = model.service_us(prepared, backend, iteration, ablations)
        service[iteration] = times if order is None else times[order]
        queue(gap, skew, service[iteration], overlap, backend.overlap_efficiency, resource, resources, out[iteration])
    columns = out.transpose(1, 0, 2).reshape(7, k * n)
    event = np.tile(np.arange(n) if order is None else order, k)
    return Samples(
        event, columns[0], columns[1], service.reshape(-1), columns[2], columns[3], columns[4], columns[5], columns[6], np.tile(skew, k), k
    )
