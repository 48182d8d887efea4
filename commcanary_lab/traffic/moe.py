"""What if the bytes between nodes were an expert exchange: the same volume as an all-to-all of all ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commcanary_lab.errors import UsageError
from commcanary_lab.traffic.attribution import IntArray
from commcanary_lab.traffic.placement import Placement

__all__ = ["MoeWhatIf", "moe_what_if"]


@dataclass(frozen=True)
class MoeWhatIf:
    """An all-to-all over the ranks of a job that moves a given volume between nodes.

    Parameters
    ----------
    inter_node_bytes : float
        Its volume between nodes.
    skew : float
        0: every rank receives the same; s: rank number i of the job receives in proportion to ``(i + 1) ** -s`` (hot experts).
    cross_rail_fraction : float
        Share of the inter-node bytes that changes rails, less what PXN moves.
    hottest_ingress : float
        Bytes that the busiest rank receives from other nodes, over the mean.
    hottest_rank : int
        That rank.
    """

    inter_node_bytes: float
    skew: float
    cross_rail_fraction: float
    hottest_ingress: float
    hottest_rank: int


def moe_what_if(
    ranks: IntArray, placement: Placement, inter_node_bytes: float, *, skew: float = 0.0, pxn: bool = False
) -> MoeWhatIf | None:
    """Return the what-if, or None where all ranks share one node.

    Rank i sends ``w[j]`` to every other rank j; everything is scaled so that the bytes between nodes are `inter_node_bytes`.

    Parameters
    ----------
    ranks : ndarray of int64, shape (n,)
        Ranks of the job.
    placement : Placement
        Ranks on nodes.
    inter_node_bytes : float
        The volume.
    skew : float
        Exponent of the weights; 0 is uniform.
    pxn : bool
        As in `Crossing.of`.

    Raises
    ------
    UsageError
        If the skew is negative or not finite.

    Examples
    --------
    >>> moe_what_if(np.arange(8), Placement(4), 4096.0).cross_rail_fraction
    0.75
    """
    if not 0 <= skew < np.inf:
        raise UsageError(f"{skew} is not a skew", remedy="give 0 for a uniform exchange, or for example 1 for a hot expert")
    nodes, rails = placement.nodes(ranks), placement.rails(ranks)
    node_ids, node = np.unique(nodes, return_inverse=True)
    if len(node_ids) < 2:
        return None
    weight = np.power(np.arange(len(ranks)) + 1.0, -skew)
    on_node, on_rail = np.bincount(node), np.bincount(rails)
    senders = len(ranks) - on_node[node]  # ranks of other nodes
    crossing = senders - (on_rail[rails] - 1)
    if pxn:
        crossing = _without_proxy(node, rails, on_node)
    ingress = weight * senders
    hottest = int(np.argmax(ingress))
    return MoeWhatIf(
        inter_node_bytes,
        skew,
        float((weight * crossing).sum() / ingress.sum()),
        float(ingress[hottest] / ingress.mean()),
        int(ranks[hottest]),
    )


def _without_proxy(node: IntArray, rails: IntArray, on_node: IntArray) -> IntArray:
    """For each receiver the number of senders on nodes that have no rank on its rail."""
    present = np.zeros((len(on_node), int(rails.max()) + 1), np.bool_)
    present[node, rails] = True
    blind = (~present * on_node[:, None]).sum(axis=0)  # its own node is never among them: the receiver is on it
    return blind[rails]
