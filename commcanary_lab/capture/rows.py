"""The lines of a shard, as the recorder writes them (``commcanary_lab.shard.v1``).

A shard is JSON lines: one header, then group, operation and pending lines in any order, then one end line. The reader
(`importers/shards.py`) holds its own definition of the same lines; a test keeps the two equal.
"""

from __future__ import annotations

import msgspec

__all__ = ["FORMAT", "EndRow", "GroupRow", "HeaderRow", "OpRow", "PendingRow", "encode_rows", "pending"]

FORMAT = "commcanary_lab.shard.v1"


class HeaderRow(msgspec.Struct, tag_field="kind", tag="header", frozen=True):
    """First line: whose shard this is, on which clock, and what the recorder costs."""

    format: str
    rank: int
    world_size: int
    host: str
    boot_id: str
    clock: str
    pid: int
    started_unix_ns: int
    started_clock_ns: int
    versions: dict[str, str]
    overhead_ns: int
    notes: list[str] = []


class GroupRow(msgspec.Struct, tag_field="kind", tag="group", frozen=True):
    """A process group at its first use; `ranks` are global, in the group's own order."""

    id: int
    name: str
    ranks: list[int]
    torch_name: str
    backend: str


class OpRow(msgspec.Struct, tag_field="kind", tag="op", omit_defaults=True, gc=False):
    """One finished operation of this rank.

    Times are nanoseconds of the header's clock: `arrival_ns` at entry, `issued_ns` when the call returned, `wait_ns`
    when the job began to wait, `finish_ns` when the wait returned. Splits are bytes per rank in the group's own order.
    """

    n: int
    group: int
    op: str
    arrival_ns: int
    seq: int | None = None
    size_bytes: int | None = None
    dtype: str | None = None
    reduction: str | None = None
    phase: str | None = None
    root: int | None = None
    sender: int | None = None
    receiver: int | None = None
    tag: int | None = None
    sent_splits: list[int] | None = None
    received_splits: list[int] | None = None
    is_async: bool | None = None
    device: str | None = None
    issued_ns: int | None = None
    wait_ns: int | None = None
    finish_ns: int | None = None
    error: str | None = None


class PendingRow(msgspec.Struct, tag_field="kind", tag="pending", omit_defaults=True, gc=False):
    """An operation that had arrived and not finished when the buffer was flushed; an op line with the same `n` replaces it."""

    n: int
    group: int
    op: str
    arrival_ns: int
    seq: int | None = None
    size_bytes: int | None = None
    dtype: str | None = None
    phase: str | None = None
    sender: int | None = None
    receiver: int | None = None
    tag: int | None = None
    device: str | None = None


class EndRow(msgspec.Struct, tag_field="kind", tag="end", frozen=True):
    """Last line of a shard that was closed.

    `outside` counts, per group name, collectives that the backend ran and that did not pass the recorder.
    `overhead_ns` is the median bookkeeping around the call, sampled while the job ran (the wait's share, about a quarter of it, is only
    in the header's figure); None when nothing was sampled.
    """

    operations: int
    unfinished: int
    stopped_clock_ns: int
    overhead_ns: int | None
    outside: dict[str, int]
    problems: dict[str, int]


_PENDING_FIELDS = PendingRow.__struct_fields__


def pending(row: OpRow) -> PendingRow:
    """Return the pending line of an unfinished operation.

    Examples
    --------
    >>> encode_rows([pending(OpRow(n=3, group=0, op="barrier", arrival_ns=10, seq=1, size_bytes=0))])
    b'{"kind":"pending","n":3,"group":0,"op":"barrier","arrival_ns":10,"seq":1,"size_bytes":0}\\n'
    """
    return PendingRow(*[getattr(row, name) for name in _PENDING_FIELDS])


_encoder = msgspec.json.Encoder()


def encode_rows(rows: list[HeaderRow | GroupRow | OpRow | PendingRow | EndRow]) -> bytes:
    """Encode rows as JSON lines, each ended by a newline."""
    return _encoder.encode_lines(rows)
