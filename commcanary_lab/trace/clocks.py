"""Clocks of the ranks: offsets that bring them together, and what differences of calibrated times mean."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Generic, TypeVar

from commcanary_lab.errors import MergeError
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["Clocks", "calibrate"]

_SAME_HOST = "monotonic@"

_Clock = TypeVar("_Clock", int, str)

_Events = Sequence[tuple[Hashable, Sequence[Record]]]


@dataclass(frozen=True)
class Clocks:
    """Offset to add to each rank's clock, and what differences of the result mean.

    Attributes
    ----------
    offset_ns : mapping of int to int
        By rank.
    domain : mapping of int to str
        Name of each rank's clock.
    calibrated : bool
        True where all differences between ranks are arrival skew; otherwise only those between ranks of one host's clock are.
    notes : tuple of str
        What was done.
    """

    offset_ns: Mapping[int, int]
    domain: Mapping[int, str]
    calibrated: bool
    notes: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        """True where all ranks read one clock as it is, so that their raw times compare."""
        return len({*self.domain.values()}) <= 1 and not any(self.offset_ns.values())

    def comparable(self, ranks: Iterable[int]) -> bool:
        """Return True where differences between the times of these ranks are arrival skew."""
        if self.calibrated:
            return True
        domains = {self.domain[rank] for rank in ranks}
        return len(domains) == 1 and domains.pop().startswith(_SAME_HOST)


def calibrate(
    captures: Mapping[int, RankCapture],
    events: Iterable[tuple[Hashable, Sequence[Record]]],
    offsets_ns: Mapping[int, int] | None,
    align_ends: bool,
) -> Clocks:
    """Choose the offsets of the ranks' clocks.

    Parameters
    ----------
    captures : mapping of int to RankCapture
        By rank, ascending.
    events : iterable of (key, records)
        The matched events.
    offsets_ns : mapping of int to int, optional
        Offsets given by the caller: an explicit calibration.
    align_ends : bool
        Estimate the offsets from matched ends and take them as the calibration.

    Raises
    ------
    MergeError
        If an offset is missing, both choices are made, or no measured end is there to align.
    """
    if offsets_ns is not None and align_ends:
        raise MergeError("clock offsets and end alignment exclude each other", remedy="give one of the two")
    domain = {rank: c.clock for rank, c in captures.items()}
    if offsets_ns is not None:
        missing = sorted(set(captures) - set(offsets_ns))
        if missing:
            raise MergeError(f"no clock offset for rank {missing[0]}", remedy="give one offset per rank")
        offsets = {rank: offsets_ns[rank] for rank in captures}
        return Clocks(offsets, domain, True, ("clocks of the ranks calibrated by given offsets",))
    if align_ends:
        return _aligned_ends(domain, list(events))
    kinds = dict.fromkeys(domain.values())
    if len(kinds) > 1:
        return _ordered(domain, list(events))
    same_host = next(iter(kinds), _SAME_HOST).startswith(_SAME_HOST)
    note = "clocks of the ranks are not calibrated: arrival skew is unknown (--clock-offsets or --align-ends would make it known)"
    if same_host or len(captures) == 1 or all(r.start_ns is None for c in captures.values() for r in c.records):
        return Clocks(dict.fromkeys(captures, 0), domain, False)
    return Clocks(dict.fromkeys(captures, 0), domain, False, (note,))


def _aligned_ends(domain: Mapping[int, str], events: _Events) -> Clocks:
    """Align every rank at the measured ends of shared events; ranks that no event connects keep the relation of their clocks."""
    measured = [(key, [r for r in records if r.start_ns is not None and r.duration_ns is not None]) for key, records in events]
    found = _Alignment[int](domain)
    for key, records in measured:
        for r in records:
            found.add(r.rank, key, (r.start_ns or 0) + (r.duration_ns or 0), r.start_ns or 0)
    offsets, links, apart = found.solve()
    if len(domain) > 1 and not links:
        raise MergeError("no two ranks share a collective whose end was measured on both", remedy="give the clock offsets instead")
    note = "clocks of the ranks aligned at the ends of matched collectives (median): arrival skew is an estimate"
    return Clocks(offsets, domain, True, (note, *_apart(apart)))


def _ordered(domain: Mapping[int, str], events: _Events) -> Clocks:
    """Align clock domains with each other, so that events have an order; the start stands in where no end was measured."""
    found = _Alignment[str]({name: name for name in domain.values()})
    for key, records in events:
        for r in records:
            if r.start_ns is not None:
                found.add(domain[r.rank], key, r.start_ns + (r.duration_ns or 0), r.start_ns)
    offsets, _, apart = found.solve()
    note = "ranks have different clocks: aligned at matched ends only to order the events; arrival skew between them is unknown"
    return Clocks({rank: offsets[name] for rank, name in domain.items()}, domain, False, (note, *_apart(apart)))


def _apart(sets: int) -> tuple[str, ...]:
    note = f"{sets} sets of ranks share neither a collective nor a clock: each starts at 0, their relative order is not known"
    return (note,) if sets > 1 else ()


@dataclass
class _Alignment(Generic[_Clock]):
    """Offsets of clocks that make the ends of shared events agree in the median, breadth first.

    Parameters
    ----------
    domain : mapping
        The clocks, in order, and the domain of each: clocks of one domain that no event connects keep their relation.
    """

    domain: Mapping[_Clock, str]
    ends: dict[_Clock, dict[Hashable, int]] = field(default_factory=dict)
    first: dict[_Clock, int] = field(default_factory=dict)

    def add(self, clock: _Clock, key: Hashable, end_ns: int, start_ns: int) -> None:
        """Add what a clock shows of an event; of several ranks with one clock the last end counts."""
        ends = self.ends.setdefault(clock, {})
        ends[key] = max(end_ns, ends.get(key, end_ns))
        self.first[clock] = min(start_ns, self.first.get(clock, start_ns))

    def solve(self) -> tuple[dict[_Clock, int], int, int]:
        """Return the offsets, how many clocks were aligned by events, and how many sets nothing connects."""
        offsets: dict[_Clock, int] = {}
        of_domain: dict[str, int] = {}
        links, apart, begin = 0, 0, 0
        for root in self.domain:
            if root in offsets:
                continue
            part = self._connected(root, offsets)
            links += len(part) - 1
            name = next((self.domain[c] for c in part if self.domain[c] in of_domain), None)
            starts = [self.first[c] + offset for c, offset in part.items() if c in self.first]
            if name is not None:
                anchor = next(c for c in part if self.domain[c] == name)
                shift = of_domain[name] - part[anchor]
            else:
                apart += 1
                shift = begin - min(starts) if starts and apart > 1 else 0
                begin = min(starts, default=0) if apart == 1 else begin
            for clock, offset in part.items():
                offsets[clock] = offset + shift
                of_domain.setdefault(self.domain[clock], offset + shift)
        return offsets, links, apart

    def _connected(self, root: _Clock, placed: Mapping[_Clock, int]) -> dict[_Clock, int]:
        """Clocks that events connect with `root`, and their offsets to it."""
        part = {root: 0}
        queue = [root]
        for reached in queue:
            for other in self.domain:
                if other in part or other in placed:
                    continue
                both = self.ends.get(reached, {}).keys() & self.ends.get(other, {}).keys()
                if both:
                    # median_low stays an exact integer: the clocks may be apart by more than float64 resolves
                    part[other] = part[reached] + median_low(self.ends[reached][k] - self.ends[other][k] for k in both)
                    queue.append(other)
        return part
