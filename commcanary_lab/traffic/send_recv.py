"""Messages: from the sender to the receiver."""

from __future__ import annotations

from commcanary_lab.traffic.attribution import Calls, Links, register

__all__ = ["send_recv"]

_OPS = ("send", "recv", "point_to_point")


@register("send_recv", ops=_OPS, default_for=_OPS)
def send_recv(calls: Calls) -> Links:
    """Attribute messages: ``M[src, dst] += B`` once, whichever end reports it; a message to oneself contributes nothing.

    `members` holds the sender and the receiver of each message.

    Examples
    --------
    >>> import numpy as np
    >>> links = send_recv(Calls("send", np.array([[3, 7], [3, 3]]), np.array([8.0, 8.0]), np.zeros((2, 2), bool), np.array([-1, -1])))
    >>> links.src.tolist(), links.dst.tolist(), links.size_bytes.tolist()
    ([3], [7], [8.0])
    """
    src, dst = calls.members[:, 0], calls.members[:, 1]
    return Links.where(src != dst, src, dst, calls.size_bytes)
