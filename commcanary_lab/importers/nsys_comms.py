"""Who is in a communicator of an nsys report: from the calls that made it, whose payloads have its size and each process's rank.

Global ranks are the ranks in the largest communicator, where it has every process of the reports; the members of others follow where all
their processes are seen. A layout says more (`membership`).
"""

from __future__ import annotations

from collections.abc import Iterable

from commcanary_lab.importers.membership import Communicator, resolve
from commcanary_lab.importers.membership_names import group_of_id
from commcanary_lab.importers.nsys_payload import Payload
from commcanary_lab.layout import Layout

__all__ = ["Comms"]

_MAX_RANKS = 1 << 20
UNSEEN = "members unknown: the call that made communicator {comm:#x} is not in the report (was it before the capture began?)"


class Comms:
    """Communicators of the reports together.

    Parameters
    ----------
    payloads : iterable of (int, int, Payload)
        Number of the report, process, and payload of every range that has one.
    layout : Layout, optional
        The groups of the job.

    Raises
    ------
    RefusedError
        If more than one assignment of communicators to the groups of a layout fits; lists them.
    InputError
        If none fits.

    Attributes
    ----------
    warnings : list of str
        What contradicts itself.

    Examples
    --------
    >>> made = [(0, p, Payload(comm=7, ranks=2, rank=r)) for p, r in ((100, 1), (200, 0))]
    >>> comms = Comms(made)
    >>> comms.rank(0, 100), comms.members(0, 100, 7)
    (1, ((0, 1), 1))
    """

    def __init__(self, payloads: Iterable[tuple[int, int, Payload]], layout: Layout | None = None) -> None:
        self.warnings: list[str] = []
        self._ranks: dict[int, dict[tuple[int, int], int]] = {}
        self._sizes: dict[int, int] = {}
        self._broken: set[int] = set()
        processes: set[tuple[int, int]] = set()
        for report, process, p in payloads:
            if p.comm is None:
                continue
            processes.add((report, process))
            if p.ranks is not None and p.rank is not None:
                self._add((report, process), p.comm, p.ranks, p.rank)
        self._layout = layout
        self._laid_out: dict[int, tuple[int, ...]] = {}
        self._global = self._world(processes) if layout is None else self._from_layout(layout)

    def _add(self, process: tuple[int, int], comm: int, size: int, rank: int) -> None:
        ranks = self._ranks.setdefault(comm, {})
        sized = self._sizes.setdefault(comm, size)
        taken = rank in ranks.values() and ranks.get(process) != rank
        if sized != size or not 0 <= rank < size <= _MAX_RANKS or taken or ranks.get(process, rank) != rank:
            if comm not in self._broken:
                self.warnings.append(
                    f"communicator {comm:#x}: its processes contradict each other about its size and ranks; it is not used"
                )
            self._broken.add(comm)
            return
        ranks[process] = rank

    def _from_layout(self, layout: Layout) -> dict[tuple[int, int], int]:
        """Global rank of each process, from the groups of a layout."""
        usable = [c for c in sorted(self._sizes) if c not in self._broken]
        slots = list(dict.fromkeys(p for c in usable for p in self._ranks[c]))
        number = {slot: i for i, slot in enumerate(slots)}
        seen = {c: tuple(sorted((rank, number[p]) for p, rank in self._ranks[c].items())) for c in usable}
        asked = [Communicator(f"{c:#x}", None, self._sizes[c], 0, seen[c]) for c in usable]
        found = resolve(asked, [f"process {process} of report {report}" for report, process in slots], layout=layout)
        self._laid_out = dict(zip(usable, found.members, strict=True))
        return {p: self._laid_out[c][r] for c in usable for p, r in self._ranks[c].items()}

    def _world(self, processes: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Global rank of each process; empty where no communicator has them all, or two of them number them differently."""
        usable = {c: k for c, k in self._sizes.items() if c not in self._broken}
        if not usable:
            return {}
        largest = max(usable.values())
        numberings = [self._ranks[c] for c, k in sorted(usable.items()) if k == largest and processes <= self._ranks[c].keys()]
        if not numberings:
            self.warnings.append("no communicator of the reports has all their processes: global ranks are unknown")
            return {}
        if any(n != numberings[0] for n in numberings):
            self.warnings.append("the largest communicators number the processes differently: global ranks are unknown")
            return {}
        return numberings[0]

    def rank(self, report: int, process: int) -> int | None:
        """Return the global rank of a process, where it is known."""
        return self._global.get((report, process))

    def members(self, report: int, process: int, comm: int | None) -> tuple[tuple[int, ...], int] | str:
        """Return the global ranks of a communicator in its own order, and that of the process; or why they are unknown."""
        own = self._global.get((report, process))
        if self._layout is not None and comm is not None and own is not None and comm not in self._sizes:
            named = group_of_id(self._layout, f"{comm:#x}", 0)  # made before the capture began, but listed by its id
            if named is not None and own in named.members:
                return named.members, own
        if comm is None or comm not in self._sizes:
            return UNSEEN.format(comm=comm or 0)
        if comm in self._broken:
            return f"members unknown: the processes contradict each other about communicator {comm:#x}"
        if comm in self._laid_out and own is not None:
            return self._laid_out[comm], own
        if own is None:
            return "members unknown: no communicator numbers all the processes"
        size, ranks = self._sizes[comm], self._ranks[comm]
        if (report, process) not in ranks:
            return UNSEEN.format(comm=comm)
        if size == max(self._sizes[c] for c in self._sizes if c not in self._broken) and all(
            self._global.get(p) == r for p, r in ranks.items()
        ):
            return tuple(range(size)), own
        by_rank = {r: self._global[p] for p, r in ranks.items() if p in self._global}
        if len(by_rank) != size:
            return f"members unknown: {len(by_rank)} of the {size} processes of communicator {comm:#x} are in the reports"
        return tuple(by_rank[r] for r in range(size)), own
