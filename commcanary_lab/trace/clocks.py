"""Clocks of the ranks: offsets that bring them together, and what differences of calibrated times mean."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low

from commcanary_lab.errors import MergeError
from commcanary_lab.trace.records import RankCapture, Record

__all__ = ["Clocks", "calibrate"]

_SAME_HOST = "monotonic@"

#: Per rank, the end of each event on that rank's clock.
_Ends = Mapping[int, Mapping[Hashable, int]]


@dataclass(frozen=True)
class Clocks:
    """Offset to add to each rank's clock, and what differences of the result mean.

    Attributes
    ----------
    offset_ns : mapping of int to int
        By rank.
    calibrated : bool
        True where differences between ranks are arrival skew.
    shared : bool
        True where all ranks read one clock, so that their raw times compare.
    notes : tuple of str
        What was done.
    """

    offset_ns: Mapping[int, int]
    calibrated: bool
    shared: bool
    notes: tuple[str, ...] = ()


def calibrate(
    captures: Mapping[int, RankCapture],
    events: Iterable[tuple[Hashable, Iterable[Record]]],
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
    domains = {c.clock for c in captures.values()}
    shared = len(domains) == 1
    if offsets_ns is not None:
        missing = sorted(set(captures) - set(offsets_ns))
        if missing:
            raise MergeError(f"no clock offset for rank {missing[0]}", remedy="give one offset per rank")
        offsets = {rank: offsets_ns[rank] for rank in captures}
        return Clocks(offsets, True, not any(offsets.values()) and shared, ("clocks of the ranks calibrated by given offsets",))
    if align_ends:
        offsets, sets = _aligned(_ends(captures, events, measured=True))
        if len(captures) > 1 and sets == len(captures):
            raise MergeError("no two ranks share a collective whose end was measured on both", remedy="give the clock offsets instead")
        note = "clocks of the ranks aligned at the ends of matched collectives (median): arrival skew is an estimate"
        return Clocks(offsets, True, False, (note, *_apart(sets)))
    if shared:
        same_host = next(iter(domains)).startswith(_SAME_HOST)
        note = "clocks of the ranks are not calibrated: arrival skew is unknown (--clock-offsets or --align-ends would make it known)"
        return Clocks(dict.fromkeys(captures, 0), same_host, True, () if same_host or len(captures) == 1 else (note,))
    offsets, sets = _aligned(_ends(captures, events, measured=False))
    note = "ranks have different clocks: aligned at matched ends only to order the events; arrival skew is unknown"
    return Clocks(offsets, False, False, (note, *_apart(sets)))


def _apart(sets: int) -> tuple[str, ...]:
    return (f"{sets} sets of ranks share no collective: their order relative to each other is not known",) if sets > 1 else ()


def _ends(captures: Mapping[int, RankCapture], events: Iterable[tuple[Hashable, Iterable[Record]]], measured: bool) -> _Ends:
    """Ends by rank and event; without `measured` the start stands in where no duration is known, which is enough for an order."""
    ends: dict[int, dict[Hashable, int]] = {rank: {} for rank in captures}
    for key, records in events:
        for r in records:
            if r.start_ns is not None and (r.duration_ns is not None or not measured):
                ends[r.rank][key] = r.start_ns + (r.duration_ns or 0)
    return ends


def _aligned(ends: _Ends) -> tuple[dict[int, int], int]:
    """Offsets that make the ends of shared events agree in the median, breadth first from the lowest rank, and the number of sets."""
    offsets: dict[int, int] = {}
    sets = 0
    for root in ends:
        if root in offsets:
            continue
        sets += 1
        offsets[root] = 0
        queue = [root]
        for reached in queue:
            for other in ends:
                if other not in offsets and (both := ends[reached].keys() & ends[other].keys()):
                    # median_low stays an exact integer: the clocks may be apart by more than float64 resolves
                    offsets[other] = offsets[reached] + median_low(ends[reached][k] - ends[other][k] for k in both)
                    queue.append(other)
    return offsets, sets
