"""Measured latencies of a trace per operation, size and group, and the matching of two traces."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.canonical import canonical_bytes
from commcanary_lab.inspect.grouping import dense_codes, group_by, group_codes, text_codes
from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_bytes

__all__ = ["Key", "Latencies", "latencies", "latencies_sha256", "matched"]

IntArray = npt.NDArray[np.int64]

#: Operation, size, members, and the name of the group where it tells groups apart.
Key = tuple[str, int, tuple[int, ...], str]


@dataclass(frozen=True, eq=False)
class Latencies:
    """Measured latencies of one op x size x group in time order, nanoseconds."""

    op: str
    size_bytes: int
    group: str | None
    members: tuple[int, ...]
    time_ns: IntArray
    events: int

    @property
    def label(self) -> str:
        """Operation, size and group in words."""
        return f"{self.op} {format_bytes(self.size_bytes)} on {self.group or f'{len(self.members)} ranks'}"


def latencies(trace: Trace) -> list[Latencies]:
    """Return the measured latencies (the longest over the reporting ranks) of each op x size x group.

    Examples
    --------
    >>> import commcanary_lab as lab
    >>> one = latencies(lab.samples.gloo4())[0]
    >>> one.label, one.events, len(one.time_ns)
    ('broadcast 256 KiB on default_pg', 1, 1)
    """
    op, op_names = text_codes(trace.op)
    size, sizes = dense_codes(trace.size_bytes)
    group, groups = group_codes(trace)
    g = group_by(op, group, size)
    order = np.argsort(g.codes, kind="stable")
    ends = np.cumsum(g.sizes)
    duration = trace.duration_max_ns
    out = []
    for i, first in enumerate(g.first.tolist()):
        rows = order[ends[i] - g.sizes[i] : ends[i]]
        known = rows[duration.mask[rows]]
        where = groups[group[first]]
        name = str(op_names[op[first]])
        out.append(Latencies(name, int(sizes[size[first]]), where.name, where.members, duration.values[known].astype(np.int64), len(rows)))
    return out


def matched(a: list[Latencies], b: list[Latencies]) -> tuple[dict[Key, Latencies], dict[Key, Latencies]]:
    """Give the operations of both traces keys that agree: by members and name, by members alone where that is unambiguous.

    Communicator names may be addresses that differ from run to run.
    """
    names: list[dict[tuple[int, ...], set[str | None]]] = [defaultdict(set), defaultdict(set)]
    for side, used in zip((a, b), names, strict=True):
        for o in side:
            used[o.members].add(o.group)
    alone = [{m for m, n in used.items() if len(n) == 1} for used in names]
    by_members = alone[0] & alone[1]

    def keyed(side: list[Latencies]) -> dict[Key, Latencies]:
        return {(o.op, o.size_bytes, o.members, "" if o.members in by_members else o.group or ""): o for o in side}

    return keyed(a), keyed(b)


def latencies_sha256(operations: dict[Key, Latencies]) -> str:
    """Identity of what was compared: every operation with its measured latencies in time order."""
    digest = hashlib.sha256(b"commcanary_lab.measured.v1\0")
    for key in sorted(operations):
        o = operations[key]
        digest.update(canonical_bytes([o.op, o.size_bytes, list(o.members), o.group, o.events, len(o.time_ns)]))
        digest.update(o.time_ns.astype("<i8").tobytes())
    return digest.hexdigest()
