"""Records: what one rank's source wrote about one event. Per-rank importers produce them; `merge` makes a Trace."""

from __future__ import annotations

from dataclasses import dataclass, field

from commcanary_lab.trace.model import ImportCoverage, UnsizedRow

__all__ = ["RankCapture", "Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """One collective or message as one rank's source tells it.

    Parameters
    ----------
    rank : int
        Global rank whose source this is.
    op : str
        Canonical operation (``trace.ops``), or the source's own name with ``custom_op=True``. A message whose both ends are
        known becomes one ``point_to_point`` event, whichever end wrote it.
    size_bytes : int
        B, the "size" of nccl-tests: all_gather k times what one rank sends, reduce_scatter k times what one rank receives,
        all_to_all k times what goes to one peer, everything else the buffer. For all_to_all_v max(sent, received).
    members : tuple of int
        Global ranks of the communicator (for ``point_to_point`` too), ascending.
    group : str, optional
        The communicator's name.
    sequence : int, optional
        The communicator's own count of the collective, where the source has one; ranks are matched by it. Messages are matched by
        their position within (sender, receiver, tag) instead, because sources count them per rank.
    start_ns, duration_ns : int, optional
        Start on this rank's clock, and measured time.
    overlap_ns : int, optional
        Compute that ran during the collective on this rank; None where the source cannot tell.
    sent_splits, received_splits : tuple of int, optional
        all_to_all_v: bytes to / from each member in member order, the self chunk included; -1 where unknown.
    sent_bytes, received_bytes : int, optional
        all_to_all_v: row totals, self chunk included; known even where the splits are not.
    """

    rank: int
    op: str
    size_bytes: int
    members: tuple[int, ...]
    group: str | None = None
    custom_op: bool = False
    dtype: str | None = None
    reduction: str | None = None
    phase: str | None = None
    root: int | None = None
    sender: int | None = None
    receiver: int | None = None
    tag: str | None = None
    sequence: int | None = None
    start_ns: int | None = None
    duration_ns: int | None = None
    overlap_ns: int | None = None
    sent_splits: tuple[int, ...] | None = None
    received_splits: tuple[int, ...] | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None


@dataclass(frozen=True)
class RankCapture:
    """Everything that one rank's source says.

    Parameters
    ----------
    rank : int
        The global rank.
    records : list of Record
        In the order of the source.
    file : str
        The file, for messages.
    clock : str
        Name of the clock domain. Starts of captures with the same name compare directly. Only a domain that begins with
        ``monotonic@`` (one host's clock) makes differences of starts an arrival skew.
    """

    rank: int
    records: list[Record]
    file: str
    clock: str
    world_size: int | None = None
    coverage: ImportCoverage = field(default_factory=ImportCoverage)
    unsized: tuple[UnsizedRow, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
