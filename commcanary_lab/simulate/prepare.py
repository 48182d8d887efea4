"""Events prepared for the engine: everything that does not depend on the backend, computed once per trace and shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import UnknownValueError, UsageError
from commcanary_lab.simulate import plain
from commcanary_lab.trace.columns import Ragged
from commcanary_lab.trace.model import Trace
from commcanary_lab.trace.numbering import first_rows, number_rows, stable_order
from commcanary_lab.trace.signatures import default_group_names, factorize, occurrence_codes
from commcanary_lab.trace.timing import gaps_ns

if TYPE_CHECKING:
    from commcanary_lab.simulate.identity import IdentityTable

__all__ = ["ASSUMABLE", "Assumptions", "Prepared", "parse_assumptions", "prepare"]

FloatArray = npt.NDArray[np.float64]

#: Fields that may be assumed where a source does not say them.
ASSUMABLE = ("skew_us", "overlap_us")

Assumptions = Mapping[str, float]


def parse_assumptions(text: str) -> dict[str, float]:
    """Parse ``skew_us=0,overlap_us=0``.

    Raises
    ------
    UsageError
        If a field cannot be assumed or a value is not a number >= 0.

    Examples
    --------
    >>> parse_assumptions("skew_us=0,overlap_us=2.5")
    {'skew_us': 0.0, 'overlap_us': 2.5}
    """
    out = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        _check_assumption(name, value, part)
        out[name] = value
    return out


def _check_assumption(name: str, value: float, text: str) -> None:
    if name not in ASSUMABLE or not 0 <= value < 1e12:
        raise UsageError(f"cannot assume {text!r}", remedy=f"write {' or '.join(f'{a}=NUMBER' for a in ASSUMABLE)}")


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the cost models and the engine see of a trace; all arrays have shape (n,).

    Attributes
    ----------
    trace : Trace
        The source.
    size_bytes, group_size, concurrent_groups : ndarray
        B, k and concurrency (default 1).
    gap_us, skew_us, overlap_us, wait_us : ndarray of float64
        Gap before, arrival skew, overlapping compute, mean rank wait.
    pressure : ndarray of float64
        Compute pressure (default 0.5).
    resource : ndarray of int64
        The queue that the event occupies.
    assumptions : mapping
        What was assumed for unknown fields.
    """

    trace: Trace
    size_bytes: npt.NDArray[np.int64]
    group_size: npt.NDArray[np.int64]
    concurrent_groups: npt.NDArray[np.int64]
    gap_us: FloatArray
    skew_us: FloatArray
    overlap_us: FloatArray
    wait_us: FloatArray
    pressure: FloatArray
    resource: npt.NDArray[np.int64]
    assumptions: Assumptions

    def __len__(self) -> int:
        return len(self.size_bytes)

    @cached_property
    def keys(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Occurrence keys (codes, first rows)."""
        return occurrence_codes(self.trace)

    @cached_property
    def size_codes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number of each event's group size, and the sizes in ascending order."""
        codes, count = number_rows(self.group_size)
        return codes, self.group_size[first_rows(codes, count)]

    @cached_property
    def identities(self) -> IdentityTable:
        """Text of the noise identities, shared with every trace of the same events."""
        from commcanary_lab.simulate.identity import IdentityTable

        return IdentityTable(self.trace, *self.keys)

    @cached_property
    def identity(self) -> npt.NDArray[np.uint64]:
        """Noise identity of each event."""
        return self.identities.of(self.assumed_arrival_ns)

    @cached_property
    def identity_without_skew(self) -> npt.NDArray[np.uint64]:
        """Noise identity of each event with all arrival offsets zero."""
        return self.identities.of(self.trace.arrival_ns, zero_offsets=True)

    @cached_property
    def assumed_arrival_ns(self) -> Ragged:
        """Arrivals with the assumed skew in place of unknown ones, as far as the identity sees them."""
        if np.all(self.trace.arrival_known):
            return self.trace.arrival_ns
        known = np.asarray(self.trace.arrival_known)
        lengths = np.where(known, self.trace.arrival_ns.lengths, 1)
        out = Ragged.from_lengths(np.zeros(int(lengths.sum()), np.int64), lengths)
        values = np.zeros(int(lengths.sum()), np.int64)
        owner = np.repeat(np.arange(len(self)), lengths)
        values[known[owner]] = self.trace.arrival_ns.take(np.flatnonzero(known)).values
        values[~known[owner]] = round(self.assumptions.get("skew_us", 0.0) * 1000)
        return Ragged(values, out.pointers)

    @cached_property
    def workload_sha256(self) -> str:
        """Commits to everything that a simulation reads (`simulate.workload.workload_sha256`)."""
        from commcanary_lab.simulate.workload import workload_sha256

        return workload_sha256(self)

    @cached_property
    def canonical_order(self) -> npt.NDArray[np.int64]:
        """Order of the operation-ordering ablation: a stable sort by operation identity, time forgotten."""
        t = self.trace
        codes, first = self.keys
        names = default_group_names(t)
        root, sender, receiver = (c.take(first).filled(-1).tolist() for c in (t.root, t.sender, t.receiver))
        rows = [
            (
                t.phase.text(i) or "unknown",
                t.op.text(i) or "",
                t.dtype.text(i) or "",
                t.reduction.text(i) or "",
                int(t.size_bytes[i]),
                names[t.group[i]],
                t.groups[t.group[i]].members,
                root[k],
                sender[k],
                receiver[k],
                t.tag.text(i) or "",
                t.channel.text(i) or "",
            )
            for k, i in enumerate(first.tolist())
        ]
        ranks = {row: r for r, row in enumerate(sorted(set(rows)))}
        return stable_order(np.array([ranks[row] for row in rows], np.int64)[codes], len(ranks)) if rows else codes


def prepare(trace: Trace, assumptions: Assumptions | None = None) -> Prepared:
    """Prepare a trace for simulation.

    Parameters
    ----------
    trace : Trace
        Events in time order.
    assumptions : mapping of str to float, optional
        Values for unknown fields, in microseconds: ``skew_us``, ``overlap_us``.

    Raises
    ------
    UnknownValueError
        If a field that the simulator needs is unknown and not assumed; the message names the flag.
    UsageError
        If a field cannot be assumed, or a value is no time.
    """
    assumptions = dict(assumptions or {})
    for name, value in assumptions.items():
        _check_assumption(name, value, f"{name}={value}")
    lacking = {f: n for f, n in trace.unknown_fields.items() if f not in assumptions}
    if lacking:
        listed = ", ".join(f"{name} on {n} of {len(trace)} events" for name, n in lacking.items())
        flag = ",".join(f"{name}=0" for name in lacking)
        raise UnknownValueError(f"unknown {listed}", remedy=f"assume values with --assume {flag}; the result is then marked as assumed")
    used = {f: v for f, v in assumptions.items() if f in trace.unknown_fields}
    skew = np.where(trace.skew_ns.mask, trace.skew_ns.values / 1000.0, used.get("skew_us", 0.0))
    return Prepared(
        trace=trace,
        size_bytes=trace.size_bytes,
        group_size=trace.group_sizes,
        concurrent_groups=trace.concurrent_groups.filled(1).astype(np.int64),
        gap_us=gaps_ns(trace) / 1000.0,
        skew_us=skew,
        overlap_us=np.where(trace.overlap_ns.mask, trace.overlap_ns.values / 1000.0, used.get("overlap_us", 0.0)),
        wait_us=_mean_wait_us(trace, skew),
        pressure=trace.pressure.filled(0.5).astype(np.float64),
        resource=_resources(trace),
        assumptions=used,
    )


def _mean_wait_us(trace: Trace, skew_us: FloatArray) -> FloatArray:
    """Mean over ranks of (last arrival - own arrival)."""
    if plain.preferred(len(trace)):
        from commcanary_lab.simulate.plain import mean_wait_us
    else:
        from commcanary_lab.simulate.kernels import mean_wait_us

    arrival = trace.arrival_ns
    return mean_wait_us(np.ascontiguousarray(arrival.values), np.ascontiguousarray(arrival.pointers), trace.group_sizes, skew_us)


def _resources(trace: Trace) -> npt.NDArray[np.int64]:
    """A named group is one queue; an unnamed one is the queue of its rank set; each message channel is its own."""
    if not len(trace):
        return np.zeros(0, np.int64)
    names = default_group_names(trace)
    keys = [(name, () if name != "default" else g.members) for name, g in zip(names, trace.groups, strict=True)]
    table = {k: i for i, k in enumerate(dict.fromkeys(keys))}
    queue = np.array([table[k] for k in keys], np.int64)[trace.group]
    messages = (
        np.array([name == "point_to_point" for name in trace.op.names] or [False])[trace.op.codes] & trace.sender.mask & trace.receiver.mask
    )
    if not messages.any():
        return queue

    def only(values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        return np.where(messages, values, -2).astype(np.int64)

    return factorize(
        [
            queue,
            only(trace.sender.values),
            only(trace.receiver.values),
            only(trace.channel.codes),
            only(trace.tag.codes),
            only(trace.message_sequence.filled(-1)),
        ]
    )[0]
