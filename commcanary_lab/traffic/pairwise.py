"""Pairwise: every rank sends to every other one directly."""

from __future__ import annotations

import numpy as np

from commcanary_lab.traffic.attribution import Calls, Links, check_links, register

__all__ = ["pairwise"]


@register("pairwise", ops=("all_to_all",), default_for=("all_to_all",))
def pairwise(calls: Calls) -> Links:
    """Attribute an even all-to-all: ``M[i, j] += B / k`` for every pair; the chunk that a rank keeps is left out.

    Examples
    --------
    >>> links = pairwise(Calls("all_to_all", np.array([[0, 1, 2]]), np.array([9.0]), np.array([[True, False, False]]), np.array([-1])))
    >>> links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()
    ([0, 0], [1, 2], [3.0, 3.0])
    """
    k = calls.group_size
    check_links(calls.op, int(np.count_nonzero(calls.reporting)) * (k - 1))
    call, source = np.nonzero(calls.reporting)
    peers = (source[:, None] + np.arange(1, k)[None, :]) % k  # every position but the own one
    call = np.repeat(call, k - 1)
    return Links(
        call.astype(np.int64, copy=False),
        calls.members[call, np.repeat(source, k - 1)],
        calls.members[call, peers.ravel()],
        calls.size_bytes[call] / k,
    )
