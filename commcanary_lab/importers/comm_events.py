"""From what a source says about one collective to a record, or to the reason why there is none.

Shared by the sources that write PyTorch's communication metadata: profiler traces, execution traces, flight recorder dumps and PARAM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from commcanary_lab.importers.kineto_args import CommArgs, Unreadable
from commcanary_lab.importers.kineto_group import GroupDirectory, Members, group_label
from commcanary_lab.importers.kineto_size import Size, dtype_width, measure
from commcanary_lab.trace.ops import canonical_op
from commcanary_lab.trace.records import Record

__all__ = ["UNREADABLE", "Described", "Refusal", "Timed", "base_name", "describe", "distinct_sequences", "implied_size", "row_total"]

UNREADABLE = "metadata not readable"

#: Repeated sequence numbers (coalesced collectives share one) are told apart above this bit.
_REPEAT_SHIFT = 40


@dataclass(frozen=True)
class Timed:
    """When a collective began on the rank's clock, how long it took there, and what ran meanwhile; None where unknown."""

    start_ns: int | None = None
    duration_ns: int | None = None
    overlap_ns: int | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a collective becomes an unsized row.

    Parameters
    ----------
    reason : str
        The whole reason.
    kind : str
        Its kind, under which it is counted.
    size_bytes : int, optional
        What the rank sends, where that is known: unattributed bytes.
    """

    reason: str
    kind: str
    size_bytes: int | None = None


@dataclass(frozen=True)
class Described:
    """A record, where its members came from, and how its size was read."""

    record: Record
    origin: str
    notes: tuple[str, ...] = ()


def base_name(name: str) -> str:
    """Return the operation without its backend, in lower case.

    Examples
    --------
    >>> base_name("nccl:Send"), base_name("all_reduce")
    ('send', 'all_reduce')
    """
    return name.strip().lower().rsplit(":", 1)[-1]


def describe(
    args: CommArgs | Unreadable, groups: GroupDirectory, rank: int, timed: Timed, *, group_root: int | None = None
) -> Described | Refusal:
    """Return the record that the metadata describe, or why they describe none.

    Parameters
    ----------
    args : CommArgs or Unreadable
        The metadata.
    groups : GroupDirectory
        Finds members.
    rank : int
        Global rank whose source this is.
    timed : Timed
        Its time.
    group_root : int, optional
        Root of a rooted operation, as its rank in the group.
    """
    if isinstance(args, Unreadable):
        return Refusal(f"{UNREADABLE}: {args.why}", UNREADABLE)
    members = groups.members(args)
    if isinstance(members, str):
        return Refusal(members, "members unknown", row_total(args))
    size = measure(args, len(members.in_order))
    if isinstance(size, str):
        return Refusal(size, size.partition(":")[0], row_total(args))
    ends = _ends(args, size, members, rank)
    if isinstance(ends, str):
        return Refusal(ends, "peer unknown", row_total(args))
    root = None
    if group_root is not None and ends is None:
        if not 0 <= group_root < len(members.in_order):
            return Refusal(f"{UNREADABLE}: root {group_root} in a group of {len(members.in_order)}", UNREADABLE, row_total(args))
        root = members.in_order[group_root]
    return Described(_record(args, size, members, ends, rank, timed, root), members.origin, size.notes)


def row_total(args: CommArgs) -> int | None:
    """Return the bytes that this rank gives, where they are known: they stay visible as unattributed."""
    _, width = dtype_width(args.dtype)
    if width is None or args.in_elements is None or base_name(args.name) in ("recv", "irecv"):
        return None
    total = args.in_elements * width
    return total if total < 1 << 62 else None


def implied_size(args: CommArgs) -> int | None:
    """Return the size of the group that the metadata imply: as stated, one split per rank, or the ratio of a gather's two ends.

    Examples
    --------
    >>> base = CommArgs("_allgather_base", "Float", 2, 8, None, None, None, None, None, None, None, None, None, None, None, None)
    >>> implied_size(base), implied_size(replace(base, name="allreduce"))
    (4, None)
    """
    if args.group_size is not None:
        return args.group_size
    for splits in (args.in_splits, args.out_splits):
        if splits is not None and not splits.cut:
            return len(splits.values)
    op, small, large = canonical_op(args.name), args.in_elements, args.out_elements
    if op == "reduce_scatter":
        small, large = large, small
    if op in ("all_gather", "reduce_scatter") and small and large and large % small == 0:
        return large // small
    return None


def distinct_sequences(records: Iterable[Record]) -> list[Record]:
    """Tell apart the collectives that share a sequence number: torch counts a coalesced call once."""
    seen: dict[tuple[object, ...], int] = defaultdict(int)
    out = []
    for r in records:
        if r.sequence is not None and r.sender is None:
            key = (r.members, r.group, r.sequence)
            repeat = seen[key]
            seen[key] += 1
            if repeat:
                r = replace(r, sequence=r.sequence + (repeat << _REPEAT_SHIFT))
        out.append(r)
    return out


def _ends(args: CommArgs, size: Size, members: Members, rank: int) -> tuple[int, int] | str | None:
    """Sender and receiver of a message: this rank is one of them, the other must be stated."""
    if size.op != "point_to_point":
        return None
    sends = base_name(args.name) in ("send", "isend")
    own, peer = (args.source, args.destination) if sends else (args.destination, args.source)
    if peer is None:
        return f"peer unknown: the event has no {'Dst Rank' if sends else 'Src Rank'}"
    if own is not None and own != rank:
        return f"peer unknown: {args.name} of rank {own} in the trace of rank {rank}"
    if peer not in members.in_order:
        return f"peer unknown: rank {peer} is not in the group"
    return (rank, peer) if sends else (peer, rank)


def _record(
    args: CommArgs, size: Size, members: Members, ends: tuple[int, int] | None, rank: int, timed: Timed, root: int | None
) -> Record:
    return Record(
        rank=rank,
        op=size.op,
        size_bytes=size.size_bytes,
        members=members.ascending,
        group=group_label(args),
        custom_op=size.custom,
        dtype=None if size.op == "barrier" else dtype_width(args.dtype)[0],
        root=root,
        sender=None if ends is None else ends[0],
        receiver=None if ends is None else ends[1],
        sequence=args.sequence,
        start_ns=timed.start_ns,
        duration_ns=timed.duration_ns,
        overlap_ns=timed.overlap_ns,
        sent_splits=_by_rank(size.sent_splits, members),
        received_splits=_by_rank(size.received_splits, members),
        sent_bytes=size.sent_bytes,
        received_bytes=size.received_bytes,
    )


def _by_rank(splits: tuple[int, ...] | None, members: Members) -> tuple[int, ...] | None:
    """Splits in ascending order of global ranks; the source has them in the group's order."""
    if splits is None:
        return None
    return tuple(v for _, v in sorted(zip(members.in_order, splits, strict=True)))
