"""Which ranks tell everything that they send in a part of the traffic."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from commcanary_lab.inspect.grouping import Grouping, group_by
from commcanary_lab.trace import Trace
from commcanary_lab.traffic.attribution import BoolArray

__all__ = ["NEARLY_ALL", "reporters"]

#: Share of the events of a part that a rank must report to count as one that reports them: captures begin and end at different events.
NEARLY_ALL = 0.9


def reporters(trace: Trace, part: Grouping, messages: Sequence[bool], with_ends: BoolArray) -> list[tuple[int, ...] | None]:
    """Return the ranks that report nearly every event of a part; of messages, those that report any: they report what they send.

    Parameters
    ----------
    trace : Trace
        The events.
    part : Grouping
        The part of each event; the events of a part are of one group.
    messages : sequence of bool
        Whether a part consists of messages.
    with_ends : ndarray of bool, shape (n,)
        Messages whose ends are known.

    Returns
    -------
    list of (tuple of int or None)
        Ascending ranks per part; None for every member of the group.
    """
    out: list[tuple[int, ...] | None] = [None] * part.count
    if not np.any(trace.observers >= 0):
        return out
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    key = group_by(part.codes, trace.observers + 1)
    for row, events in zip(key.first.tolist(), key.sizes.tolist(), strict=True):
        code = int(trace.observers[row])
        if code >= 0 or not with_ends[row]:
            for rank in trace.groups[trace.group[row]].members if code < 0 else trace.rank_sets[code]:
                counts[int(part.codes[row])][rank] += events
    rows = np.flatnonzero(with_ends & (trace.observers < 0))  # both ends report these
    for ends in (trace.sender.values, trace.receiver.values) if len(rows) else ():
        key = group_by(part.codes[rows], ends[rows])
        for row in rows[key.first].tolist():
            counts[int(part.codes[row])][int(ends[row])] += 1
    for p, own in counts.items():
        least = 1 if messages[p] else NEARLY_ALL * int(part.sizes[p])
        whole = tuple(sorted(rank for rank, events in own.items() if events >= least))
        out[p] = None if len(whole) == trace.groups[trace.group[int(part.first[p])]].size else whole
    return out
