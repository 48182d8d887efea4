"""What contributes to a traffic matrix: one operation on one group in one phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from commcanary_lab.errors import UsageError
from commcanary_lab.trace import ProcessGroup

__all__ = ["Part", "group_names", "joined", "part_keys"]


@dataclass(frozen=True)
class Part:
    """What one operation on one group in one phase contributes.

    Parameters
    ----------
    op : str
        The operation.
    group : ProcessGroup
        The process group.
    phase : str or None
        The phase; None where the source has none.
    events, records : int
        Logical events, and the rank records behind them.
    payload_bytes : int
        Sum of B over the records.
    unattributed_bytes : int
        Bytes that were sent and whose destination is unknown.
    unattributed_received_bytes : int
        Bytes that were received and whose source is unknown; the same bytes may be unattributed on the sender's side.
    reporters : tuple of int or None
        Ranks whose own source tells (nearly) everything that they send in it, ascending; None for every member.
    """

    op: str
    group: ProcessGroup
    phase: str | None
    events: int
    records: int
    payload_bytes: int
    unattributed_bytes: int = 0
    unattributed_received_bytes: int = 0
    reporters: tuple[int, ...] | None = None


def part_keys(parts: Sequence[Part], what: str) -> list[str]:
    """Return the key of each part when a matrix is taken apart by ``op``, ``group`` or ``phase``.

    Raises
    ------
    UsageError
        If `what` is something else.
    """
    if what == "op":
        return [p.op for p in parts]
    if what == "phase":
        return ["no phase" if p.phase is None else p.phase for p in parts]
    if what == "group":
        names = group_names({p.group: None for p in parts})
        return [names[p.group] for p in parts]
    raise UsageError(f"a traffic matrix has no {what!r}", remedy="give op, group or phase")


def group_names(groups: Iterable[ProcessGroup]) -> dict[ProcessGroup, str]:
    """Return a distinct name for each group: its own, with size and ranks where that is not unique, numbered where they are cut.

    Examples
    --------
    >>> list(group_names([ProcessGroup("tp", (0, 1)), ProcessGroup("tp", (2, 3)), ProcessGroup("dp", (0, 2))]).values())
    ['tp (2 ranks: 0-1)', 'tp (2 ranks: 2-3)', 'dp']
    """
    out: dict[ProcessGroup, str] = {}
    groups = list(groups)
    for style in ("name", "label"):
        counts: dict[str, int] = {}
        texts = {g: (g.name or "unnamed" if style == "name" else g.label) for g in groups if g not in out}
        for text in texts.values():
            counts[text] = counts.get(text, 0) + 1
        out.update({g: text for g, text in texts.items() if counts[text] == 1})
    rest = [g for g in groups if g not in out]
    out.update({g: f"{g.label} #{i}" for i, g in enumerate(rest, 1)})
    return {g: out[g] for g in groups}


def joined(a: Part, b: Part) -> Part:
    """Return the sum of the figures of two parts of the same operation, group and phase.

    Each may be the source of other ranks: what either knows is known.
    """
    both = None if a.reporters is None or b.reporters is None else tuple(sorted({*a.reporters, *b.reporters}))
    return replace(
        a,
        events=a.events + b.events,
        records=a.records + b.records,
        payload_bytes=a.payload_bytes + b.payload_bytes,
        unattributed_bytes=a.unattributed_bytes + b.unattributed_bytes,
        unattributed_received_bytes=a.unattributed_received_bytes + b.unattributed_received_bytes,
        reporters=None if both == a.group.members else both,
    )
