"""Short, distinct names of process groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from commcanary_lab.trace.groups import ProcessGroup

__all__ = ["group_labels", "ranks_text"]


def ranks_text(members: tuple[int, ...], limit: int = 6) -> str:
    """Return ranks in a few characters.

    Examples
    --------
    >>> ranks_text((0, 1, 2, 3)), ranks_text((0, 4)), ranks_text((7,))
    ('0-3', '0,4', '7')
    """
    first, last = members[0], members[-1]
    if len(members) > 1 and last - first + 1 == len(members):
        return f"{first}-{last}"
    return ",".join(map(str, members[:limit])) + (",..." if len(members) > limit else "")


def group_labels(groups: Iterable[ProcessGroup]) -> dict[ProcessGroup, str]:
    """Return a name per group: its own and its ranks, numbered where many ranks are cut and two look alike.

    Examples
    --------
    >>> list(group_labels([ProcessGroup("tp", (0, 1)), ProcessGroup("tp", (2, 3)), ProcessGroup("dp", (0, 2))]).values())
    ['tp (0-1)', 'tp (2-3)', 'dp (0,2)']
    """
    out = {g: f"{g.name or 'unnamed'} ({ranks_text(g.members)})" for g in groups}
    counts = Counter(out.values())
    seen: Counter[str] = Counter()
    for g, text in list(out.items()):
        if counts[text] > 1:
            seen[text] += 1
            out[g] = f"{text} #{seen[text]}"
    return out
