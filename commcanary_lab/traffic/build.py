"""Build a traffic matrix from a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from commcanary_lab.errors import InputError, RefusedError
from commcanary_lab.inspect.grouping import Grouping, group_by, group_codes, sums, text_codes
from commcanary_lab.layout import Layout
from commcanary_lab.trace import ProcessGroup, Trace
from commcanary_lab.trace.ops import ALL_TO_ALL_V
from commcanary_lab.traffic.attribution import Algorithm, BoolArray, Calls, IntArray, Links, choose
from commcanary_lab.traffic.calls import CallTable, attribute
from commcanary_lab.traffic.cells import canonical
from commcanary_lab.traffic.matrix import Part, TrafficMatrix
from commcanary_lab.traffic.order import RingOrder, stated_order
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.traffic.splits import SplitTraffic, attribute_splits
from commcanary_lab.units import format_bytes

__all__ = ["build_matrix"]

_MESSAGES = frozenset({"send", "recv", "point_to_point"})


def build_matrix(
    trace: Trace,
    *,
    algorithm: str | Mapping[str, str] | None = None,
    ring_order: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
    gpus_per_node: int | None = None,
    layout: Layout | None = None,
    placement: Placement | None = None,
) -> TrafficMatrix:
    """Attribute every event of a trace to links between global ranks.

    Only the sends of reporting ranks count: the profile of one rank gives one row of M. Messages count once whichever end reports them,
    and the received splits of an uneven all-to-all fill a column. Bytes whose destination the source does not say are unattributed.

    Parameters
    ----------
    trace : Trace
        The events.
    algorithm : str or mapping of str to str, optional
        Attribution algorithm, or one per operation; default: ring for all_reduce, all_gather and reduce_scatter, chain for broadcast and
        reduce, pairwise for all_to_all.
    ring_order : sequence of int or mapping of str to sequence of int, optional
        Order of ranks in every ring, or per group name; default: the order that the source of the trace
        states, or else the order of each group, which is an assumption.

    Returns
    -------
    TrafficMatrix
        With what was assumed and what is missing.

    Raises
    ------
    InputError
        If split lists contradict each other or a root is no member of its group.
    UsageError
        On an unknown algorithm, a ring order that does not fit the groups, or an algorithm that needs to know the nodes.
    RefusedError
        If an algorithm is not defined for the way a group lies on its nodes, or the source says of none of its collectives who sends
        what to whom.
    LimitError
        If an all-to-all connects too many pairs of ranks.

    Examples
    --------
    >>> from commcanary_lab.trace import Coded
    >>> t = Trace.build(1, op=Coded.constant(1, "all_reduce"), groups=(ProcessGroup("tp", (0, 1, 4)),), group=np.zeros(1, np.int32),
    ...                 size_bytes=np.array([48]))
    >>> m = build_matrix(t)
    >>> m.links(), m.sum_bytes == 2 * (3 - 1) * 48
    ([Link(src=0, dst=1, size_bytes=64.0), Link(src=1, dst=4, size_bytes=64.0), Link(src=4, dst=0, size_bytes=64.0)], True)
    """
    if not len(trace) and trace.unsized:
        raise _nothing_known(trace)
    ring_order = stated_order(trace) if ring_order is None else ring_order
    chosen = choose(algorithm)
    e = _Events.of(trace, chosen)
    order = RingOrder.of(ring_order, e.groups)
    placement = placement if placement is not None else Placement.of(gpus_per_node, layout)
    splits = attribute_splits(trace, e.with_splits, e.part.codes[e.with_splits], e.part.count)
    parts, calls = _parts(e, splits), _calls(e)
    links = Links.joined([attribute(parts, calls, chosen, order, placement), *_messages(e), *splits.links])
    part, cells = canonical(links.call, links.src, links.dst, links.size_bytes)
    ranks = np.unique(np.concatenate([np.array(trace.ranks, np.int64), cells.src[cells.src >= 0], cells.dst[cells.dst >= 0]]))
    return TrafficMatrix(
        ranks,
        parts,
        part,
        cells,
        source=trace.source_format,
        algorithms=_algorithms(e),
        ring_order="stated" if ring_order is not None and all(order.states(g) for g in _ordered(e)) else "assumed",
        coverage=trace.coverage,
        notes=tuple(dict.fromkeys([*trace.notes, *_notes(e, splits)])),
        unsized_bytes=sum(row.size_bytes or 0 for row in trace.unsized),
        calls=calls,
        placement=placement,
    )


@dataclass(frozen=True, eq=False)
class _Events:
    """The events of a trace, coded; the masks say which way each event is attributed."""

    trace: Trace
    names: tuple[str, ...]  # operation by code
    op: IntArray
    groups: tuple[ProcessGroup, ...]
    group: IntArray
    part: Grouping  # by (op, group, phase)
    phases: tuple[str | None, ...]
    phase: IntArray
    algorithm: tuple[Algorithm | None, ...]  # by operation code
    collective: BoolArray
    message: BoolArray
    unattributed: BoolArray
    with_splits: npt.NDArray[np.intp]

    @classmethod
    def of(cls, trace: Trace, chosen: Mapping[str, Algorithm]) -> _Events:
        op, texts = text_codes(trace.op)
        # sources spell custom operations as they like; the name decides, not the case
        names = tuple("" if t is None else t.strip().lower() if t.strip().lower() in chosen else t for t in texts)
        group, groups = group_codes(trace)
        phase, phases = text_codes(trace.phase)
        algorithm = tuple(chosen.get(name) for name in names)

        def is_op(test: list[bool]) -> BoolArray:
            return np.array(test, np.bool_)[op]

        # one rank, or no bytes: nothing travels
        live = (trace.group_sizes > 1) & (trace.size_bytes > 0)
        message = is_op([name in _MESSAGES for name in names]) & live
        rooted = is_op([a is not None and name in a.rooted for a, name in zip(algorithm, names, strict=True)])
        collective = is_op([a is not None and name not in _MESSAGES for a, name in zip(algorithm, names, strict=True)]) & live
        uneven = is_op([name == ALL_TO_ALL_V for name in names]) & live
        if message.any():
            message &= trace.sender.mask & trace.receiver.mask
        if rooted.any():
            collective &= ~rooted | trace.root.mask
        if uneven.any():
            uneven &= trace.splits.lengths > 0
        return cls(
            trace,
            names,
            op,
            groups,
            group,
            group_by(op, group, phase),
            phases,
            phase,
            algorithm,
            collective,
            message,
            live & ~(collective | message | uneven),
            np.flatnonzero(uneven),
        )


def _calls(e: _Events) -> CallTable:
    """Sum B over events that are attributed alike: contributions are linear in it."""
    rows = np.flatnonzero(e.collective)
    rooted = np.array([a is not None and name in a.rooted for a, name in zip(e.algorithm, e.names, strict=True)], np.bool_)[e.op[rows]]
    root = np.where(rooted, e.trace.root.values[rows] + 1, 0)
    key = group_by(e.part.codes[rows], e.trace.observers[rows] + 1, root)
    first = rows[key.first]
    root = root[key.first] - 1
    for event, rank in zip(first[root >= 0].tolist(), root[root >= 0].tolist(), strict=True):
        group = e.groups[e.group[event]]
        if rank not in group.members:
            raise InputError(f"the root {rank} is no member of {group.label}", record=event, field="root",
                             remedy="give the root as a global rank of the group")  # fmt: skip
    total = sums(key.codes, e.trace.size_bytes[rows], key.count)
    return CallTable(e.part.codes[first], total, root, e.trace.observers[first].astype(np.int64), e.trace.rank_sets)


def _messages(e: _Events) -> list[Links]:
    """Messages, each once: a recv event beside a send event of the same ends and size is the other side of it."""
    rows = np.flatnonzero(e.message)
    if not len(rows):
        return []
    src, dst = e.trace.sender.values[rows], e.trace.receiver.values[rows]
    name = np.array(e.names, object)[e.op[rows]]
    keep = _first_sides(name == "send", name == "recv", src, dst, e.trace.size_bytes[rows])
    rows, src, dst = rows[keep], src[keep], dst[keep]
    key = group_by(e.part.codes[rows], src, dst)
    total = sums(key.codes, e.trace.size_bytes[rows], key.count)
    part = e.part.codes[rows[key.first]]
    out = []
    for op in np.unique(e.op[rows]).tolist():
        algorithm = e.algorithm[op]
        assert algorithm is not None
        at = np.flatnonzero(e.op[rows[key.first]] == op)
        ends = np.stack([src[key.first[at]], dst[key.first[at]]], axis=1)
        calls = Calls(e.names[op], ends, total[at].astype(np.float64), np.ones(ends.shape, np.bool_), np.full(len(at), -1))
        links = algorithm.attribute(calls)
        out.append(Links(part[at][links.call], links.src, links.dst, links.size_bytes))
    return out


def _first_sides(send: BoolArray, recv: BoolArray, src: IntArray, dst: IntArray, size: IntArray) -> BoolArray:
    """True for all but the first n recv events of each (src, dst, size), n being its number of send events."""
    keep = np.ones(len(src), np.bool_)
    if not (send.any() and recv.any()):
        return keep
    key = group_by(src, dst, size)
    sends = np.bincount(key.codes[send], minlength=key.count)
    received = np.flatnonzero(recv)
    order = received[np.argsort(key.codes[received], kind="stable")]
    codes = key.codes[order]
    start = np.searchsorted(codes, codes)  # where the run of equal codes begins
    keep[order] = np.arange(len(order)) - start >= sends[codes]
    return keep


def _parts(e: _Events, splits: SplitTraffic) -> tuple[Part, ...]:
    n, codes, size = e.part.count, e.part.codes, e.trace.size_bytes
    payload = e.trace.observer_counts * size
    plain = payload.copy()
    plain[e.with_splits] = 0
    lost = np.flatnonzero(e.unattributed)
    columns = zip(
        e.op[e.part.first].tolist(),
        e.group[e.part.first].tolist(),
        e.phase[e.part.first].tolist(),
        e.part.sizes.tolist(),
        sums(codes, e.trace.observer_counts, n).tolist(),
        (sums(codes, plain, n) + splits.payload_bytes).tolist(),
        (sums(codes[lost], payload[lost], n) + splits.unattributed).tolist(),
        splits.unattributed_received.tolist(),
        strict=True,
    )
    return tuple(Part(e.names[op], e.groups[group], e.phases[phase], *figures) for op, group, phase, *figures in columns)


def _algorithms(e: _Events) -> tuple[tuple[str, str], ...]:
    used = {(e.names[op], a.name) for op in np.unique(e.op[e.collective | e.message]).tolist() if (a := e.algorithm[op]) is not None}
    return tuple(sorted({*used, *([(ALL_TO_ALL_V, "splits")] if len(e.with_splits) else [])}))


def _ordered(e: _Events) -> list[ProcessGroup]:
    """Groups whose traffic depends on the order of their ranks; a ring of two has only one."""
    uses = np.array([a is not None and a.uses_order for a in e.algorithm], np.bool_)[e.op]
    return [g for g in (e.groups[i] for i in np.unique(e.group[uses & e.collective]).tolist()) if g.size > 2]


def _notes(e: _Events, splits: SplitTraffic) -> list[str]:
    out = []
    lost = np.flatnonzero(e.unattributed)
    payload = sums(e.op[lost], (e.trace.observer_counts * e.trace.size_bytes)[lost], len(e.names)).tolist()
    counts = np.bincount(e.op[lost], minlength=len(e.names)).tolist()
    for op in np.unique(e.op[lost]).tolist():
        out.append(f"{_many(counts[op], f'{e.names[op]} event')} unattributed ({format_bytes(payload[op])}): {_why(e, op)}")
    if splits.unattributed.any():
        out.append(f"{format_bytes(int(splits.unattributed.sum()))} of uneven all-to-alls unattributed: the splits are partly unknown")
    if splits.unattributed_received.any():
        out.append(f"{format_bytes(int(splits.unattributed_received.sum()))} received in uneven all-to-alls from unknown ranks")
    if splits.unknown_rows:
        out.append(f"{_many(splits.unknown_rows, 'row')} of uneven all-to-alls of unknown splits and total: not in the matrix")
    partial = int(np.count_nonzero((e.trace.observer_counts < e.trace.group_sizes) & ~e.message & (e.trace.size_bytes > 0)))
    if partial:
        out.append(f"{partial:,} of {len(e.trace):,} events are reported by a part of their ranks: what the others sent is unknown, not 0")
    sized = [row for row in e.trace.unsized if row.size_bytes is not None]
    if sized:
        volume = format_bytes(sum(row.size_bytes or 0 for row in sized))
        out.append(f"{_many(len(sized), 'collective')} of unknown members unattributed ({volume})")
    if len(sized) < len(e.trace.unsized):
        out.append(f"{_many(len(e.trace.unsized) - len(sized), 'collective')} of unknown size: not in the matrix")
    return out


def _why(e: _Events, op: int) -> str:
    if e.names[op] in _MESSAGES:
        return "sender or receiver is unknown"
    if e.names[op] == ALL_TO_ALL_V:
        return "the splits are unknown"
    return "the root is unknown" if e.algorithm[op] is not None else "the traffic of this operation is not defined"


def _nothing_known(trace: Trace) -> RefusedError:
    """Every collective lacks its size or members: an empty matrix would look like an answer."""
    reasons = Counter(row.reason.partition(" (")[0] for row in trace.unsized)
    size = sum(row.size_bytes or 0 for row in trace.unsized)
    said = "; ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(3))
    known = f", {format_bytes(size)} in all" if size else ""
    return RefusedError(
        f"{_many(len(trace.unsized), 'collective')}{known}, and of none does the source say who sends what to whom: {said}",
        file=trace.coverage.files[0] if len(trace.coverage.files) == 1 else None,
        remedy=next((note for note in trace.notes if note.startswith("to attribute")), "give sizes and members, or a layout"),
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
