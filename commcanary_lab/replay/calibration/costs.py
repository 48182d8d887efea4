"""How many latencies and how many bytes on the busiest link a collective costs, per algorithm.

With k ranks and size B (the size of nccl-tests):

=========================  ===============  =====================  ======================  =====================
operation                  algorithm        steps                  bytes on busiest link   half-performance size
=========================  ===============  =====================  ======================  =====================
all_reduce                 ring             2 (k - 1)              2 (k - 1) / k * B       k alpha Bw
all_reduce                 tree             2 log2 k               2 B                     log2(k) alpha Bw
all_gather,
reduce_scatter             ring             k - 1                  (k - 1) / k * B         k alpha Bw
all_to_all (and uneven)    pairwise         k - 1                  (k - 1) / k * B         k alpha Bw
broadcast, reduce          ring (a chain)   k - 1                  B                       (k - 1) alpha Bw
broadcast, reduce          tree             log2 k                 B                       log2(k) alpha Bw
messages                   point_to_point   1                      B                       alpha Bw
=========================  ===============  =====================  ======================  =====================

Rings and exchanges count as nccl-tests counts its bus bandwidth, so the bandwidth of a fit is the bus bandwidth of large messages.
A tree sends B up and B down over each edge, after each other. At the half-performance size both terms are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from commcanary_lab.errors import RefusedError, UsageError
from commcanary_lab.trace.ops import ALL_TO_ALL_V

__all__ = ["ALGORITHMS", "OPS", "Cost", "cost_of", "default_algorithm"]

ALGORITHMS = ("ring", "tree", "pairwise", "point_to_point")

_MESSAGES = ("point_to_point", "send", "recv")
_KNOWN = {
    "all_reduce": ("ring", "tree"),
    "all_gather": ("ring",),
    "reduce_scatter": ("ring",),
    "all_to_all": ("pairwise",),
    ALL_TO_ALL_V: ("pairwise",),
    "broadcast": ("ring", "tree"),
    "reduce": ("ring", "tree"),
    **dict.fromkeys(_MESSAGES, ("point_to_point",)),
}

#: Operations that have a cost here.
OPS = tuple(_KNOWN)


@dataclass(frozen=True)
class Cost:
    """What one call of an operation costs: ``steps * alpha + share * B / bandwidth``.

    Parameters
    ----------
    op : str
        The operation.
    ranks : int
        k.
    algorithm : str
        One of `ALGORITHMS`.
    steps : float
        Latencies after each other.
    share : float
        Bytes on the busiest link over B.
    """

    op: str
    ranks: int
    algorithm: str
    steps: float
    share: float

    def wire_bytes(self, size_bytes: float) -> float:
        """Return the bytes on the busiest link for a call of B bytes."""
        return self.share * size_bytes

    def half_size_bytes(self, alpha_us: float, bandwidth_gb_s: float) -> float:
        """Return the B at which latency and bandwidth cost the same.

        Examples
        --------
        >>> cost_of("all_reduce", 8).half_size_bytes(10.0, 50.0), cost_of("all_reduce", 8, "tree").half_size_bytes(10.0, 50.0)
        (4000000.0, 1500000.0)
        """
        return self.steps * alpha_us * bandwidth_gb_s * 1e3 / self.share


def default_algorithm(op: str) -> str:
    """Return the algorithm that an operation is taken to use unless somebody says otherwise.

    Raises
    ------
    RefusedError
        If the operation has no cost here.
    """
    if op not in _KNOWN:
        raise RefusedError(f"{op!r} has no latency-bandwidth cost", remedy=f"known: {', '.join(OPS)}")
    return _KNOWN[op][0]


def cost_of(op: str, ranks: int, algorithm: str | None = None) -> Cost:
    """Return the cost of an operation over `ranks` ranks.

    Parameters
    ----------
    op : str
        Canonical name.
    ranks : int
        k >= 2.
    algorithm : str, optional
        One of `ALGORITHMS`; ring, pairwise or point_to_point by default.

    Raises
    ------
    RefusedError
        If the operation has no cost here, or there are fewer than two ranks.
    UsageError
        If the operation does not come with this algorithm.

    Examples
    --------
    >>> c = cost_of("all_reduce", 4)
    >>> c.steps, c.share, c.algorithm
    (6, 1.5, 'ring')
    """
    chosen = default_algorithm(op) if algorithm is None else algorithm
    if chosen not in _KNOWN.get(op, ()):
        default_algorithm(op)
        raise UsageError(f"{op} is not done by {chosen!r}", remedy=f"it comes as: {', '.join(_KNOWN[op])}")
    if ranks < 2:
        raise RefusedError(f"a group of {ranks} communicates nothing", remedy="use two ranks or more")
    if chosen == "point_to_point":
        return Cost(op, ranks, chosen, 1, 1.0)
    if chosen == "tree":
        passes = 2 if op == "all_reduce" else 1
        return Cost(op, ranks, chosen, passes * math.log2(ranks), float(passes))
    if op in ("broadcast", "reduce"):
        return Cost(op, ranks, chosen, ranks - 1, 1.0)
    passes = 2 if op == "all_reduce" else 1
    return Cost(op, ranks, chosen, passes * (ranks - 1), passes * (ranks - 1) / ranks)
