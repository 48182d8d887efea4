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
from commcanary_lab.traffic.attribution import BoolArray, Calls, IntArray, Links, asked_ops, choose
from commcanary_lab.traffic.calls import CallTable, attribute
from commcanary_lab.traffic.cells import canonical
from commcanary_lab.traffic.matrix import Part, TrafficMatrix
from commcanary_lab.traffic.order import RingOrder, stated_order
from commcanary_lab.traffic.placement import Placement
from commcanary_lab.traffic.reporters import reporters
from commcanary_lab.traffic.splits import SplitTraffic, attribute_splits
from commcanary_lab.traffic.stated import How, how, stated_codes
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
        Attribution algorithm, or one per operation; default: the one that the source states (`traffic.stated`), or else ring for
        all_reduce, all_gather and reduce_scatter, chain for broadcast and reduce, pairwise for all_to_all.
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
    placement = placement if placement is not None else Placement.of(gpus_per_node, layout)
    e = _Events.of(trace, algorithm, placement is not None)
    order = RingOrder.of(ring_order, e.groups)
    splits = attribute_splits(trace, e.with_splits, e.part.codes[e.with_splits], e.part.count)
    parts, calls = _parts(e, splits), _calls(e)
    links = Links.joined([attribute(parts, calls, order, placement), *_messages(e), *splits.links])
    part, cells = canonical(links.call, links.src, links.dst, links.size_bytes)
    ranks = np.unique(np.concatenate([np.array(trace.ranks, np.int64), cells.src[cells.src >= 0], cells.dst[cells.dst >= 0]]))
    return TrafficMatrix(
        ranks,
        parts,
        part,
        cells,
        source=trace.source_format,
        algorithms=_algorithms(e),
        algorithm_origin=_algorithm_origin(e, algorithm),
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
    ways: tuple[How, ...]
    way: IntArray
    collective: BoolArray
    message: BoolArray
    unattributed: BoolArray
    with_splits: npt.NDArray[np.intp]

    @classmethod
    def of(cls, trace: Trace, wanted: str | Mapping[str, str] | None, nodes_known: bool) -> _Events:
        chosen, asked = choose(wanted), asked_ops(wanted)
        op, texts = text_codes(trace.op)
        # sources spell custom operations as they like; the name decides, not the case
        names = tuple("" if t is None else t.strip().lower() if t.strip().lower() in chosen else t for t in texts)
        group, groups = group_codes(trace)
        phase, phases = text_codes(trace.phase)
        said, words = stated_codes(trace, names, op, groups, group)
        code = group_by(op, np.where(np.array([name in asked for name in names], np.bool_)[op], 0, said + 1))
        ways = tuple(
            how(names[op[i]], words[said[i]] if said[i] >= 0 and names[op[i]] not in asked else None, chosen.get(names[op[i]]),
                nodes_known=nodes_known)
            for i in code.first.tolist()
        )  # fmt: skip

        def is_op(test: list[bool]) -> BoolArray:
            return np.array(test, np.bool_)[op]

        def is_way(test: list[bool]) -> BoolArray:
            return np.array(test, np.bool_)[code.codes]

        # one rank, or no bytes: nothing travels
        live = (trace.group_sizes > 1) & (trace.size_bytes > 0)
        message = is_op([name in _MESSAGES for name in names]) & live
        rooted = is_way([_rooted(w) for w in ways])
        collective = is_way([w.algorithm is not None and w.op not in _MESSAGES for w in ways]) & live
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
            ways,
            code.codes,
            collective,
            message,
            live & ~(collective | message | uneven),
            np.flatnonzero(uneven),
        )


def _rooted(way: How) -> bool:
    return way.algorithm is not None and way.op in way.algorithm.rooted


def _calls(e: _Events) -> CallTable:
    """Sum B over events that are attributed alike: contributions are linear in it."""
    rows = np.flatnonzero(e.collective)
    root = np.where(np.array([_rooted(w) for w in e.ways], np.bool_)[e.way[rows]], e.trace.root.values[rows] + 1, 0)
    key = group_by(e.part.codes[rows], e.trace.observers[rows] + 1, root, e.way[rows])
    first = rows[key.first]
    root = root[key.first] - 1
    for event, rank in zip(first[root >= 0].tolist(), root[root >= 0].tolist(), strict=True):
        group = e.groups[e.group[event]]
        if rank not in group.members:
            raise InputError(f"the root {rank} is no member of {group.label}", record=event, field="root",
                             remedy="give the root as a global rank of the group")  # fmt: skip
    total = sums(key.codes, e.trace.size_bytes[rows], key.count)
    names = tuple("" if w.algorithm is None else w.algorithm.name for w in e.ways)
    return CallTable(e.part.codes[first], total, root, e.trace.observers[first].astype(np.int64), e.trace.rank_sets, e.way[first], names)


def _messages(e: _Events) -> list[Links]:
    """Messages, each once: a recv event beside a send event of the same ends and size is the other side of it."""
    rows = np.flatnonzero(e.message)
    if not len(rows):
        return []
    src, dst = e.trace.sender.values[rows], e.trace.receiver.values[rows]
    name = np.array(e.names, object)[e.op[rows]]
    keep = _first_sides(name == "send", name == "recv", src, dst, e.trace.size_bytes[rows])
    rows, src, dst = rows[keep], src[keep], dst[keep]
    key = group_by(e.part.codes[rows], src, dst, e.way[rows])
    total = sums(key.codes, e.trace.size_bytes[rows], key.count)
    part = e.part.codes[rows[key.first]]
    out = []
    for way in np.unique(e.way[rows]).tolist():
        algorithm = e.ways[way].algorithm
        assert algorithm is not None
        at = np.flatnonzero(e.way[rows[key.first]] == way)
        ends = np.stack([src[key.first[at]], dst[key.first[at]]], axis=1)
        calls = Calls(e.ways[way].op, ends, total[at].astype(np.float64), np.ones(ends.shape, np.bool_), np.full(len(at), -1))
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
        reporters(e.trace, e.part, [e.names[op] in _MESSAGES for op in e.op[e.part.first].tolist()], e.message),
        strict=True,
    )
    return tuple(Part(e.names[op], e.groups[group], e.phases[phase], *figures) for op, group, phase, *figures in columns)


def _algorithms(e: _Events) -> tuple[tuple[str, str], ...]:
    used = {(w.op, w.algorithm.name) for w in _used(e, e.collective | e.message) if w.algorithm is not None}
    return tuple(sorted({*used, *([(ALL_TO_ALL_V, "splits")] if len(e.with_splits) else [])}))


def _used(e: _Events, which: BoolArray) -> list[How]:
    return [e.ways[w] for w in np.unique(e.way[which]).tolist()]


def _algorithm_origin(e: _Events, wanted: str | Mapping[str, str] | None) -> str:
    """Who says the algorithms of the collectives; one that stands in for a stated one is assumed."""
    asked = asked_ops(wanted)
    stated = {"asked" if w.op in asked else "stated" if w.stated and not w.instead else "assumed" for w in _used(e, e.collective)}
    return "mixed" if len(stated) > 1 else next(iter(stated), "assumed")


def _ordered(e: _Events) -> list[ProcessGroup]:
    """Groups whose traffic depends on the order of their ranks; a ring of two has only one."""
    uses = np.array([w.algorithm is not None and w.algorithm.uses_order for w in e.ways], np.bool_)[e.way]
    return [g for g in (e.groups[i] for i in np.unique(e.group[uses & e.collective]).tolist()) if g.size > 2]


def _notes(e: _Events, splits: SplitTraffic) -> list[str]:
    out = []
    lost = np.flatnonzero(e.unattributed)
    payload = sums(e.way[lost], (e.trace.observer_counts * e.trace.size_bytes)[lost], len(e.ways)).tolist()
    counts = np.bincount(e.way[lost], minlength=len(e.ways)).tolist()
    for way in np.unique(e.way[lost]).tolist():
        w = e.ways[way]
        out.append(f"{_many(counts[way], f'{w.op} event')} unattributed ({format_bytes(payload[way])}): {_why(w)}")
    out += _stated_notes(e)
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


def _stated_notes(e: _Events) -> list[str]:
    """Which algorithms the source states, and where another one stands in."""
    counts = np.bincount(e.way[e.collective], minlength=len(e.ways)).tolist()
    stated = [(w, n) for w, n in zip(e.ways, counts, strict=True) if w.stated and n and w.algorithm is not None]
    out = []
    same = sorted(f"{w.op} {w.stated} as {w.algorithm.name} ({n:,})" for w, n in stated if w.algorithm is not None and not w.instead)
    if same:
        out.append(f"attributed by the algorithms that the source states: {', '.join(same)}")
    for w, n in stated:
        if w.instead and w.algorithm is not None:
            out.append(f"the source states {w.stated} for {_many(n, f'{w.op} event')}: attributed as {w.algorithm.name}, for {w.instead}")
    return out


def _why(way: How) -> str:
    if way.why is not None:
        return way.why
    if way.op in _MESSAGES:
        return "sender or receiver is unknown"
    if way.op == ALL_TO_ALL_V:
        return "the splits are unknown"
    return "the root is unknown" if way.algorithm is not None else "the traffic of this operation is not defined"


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
