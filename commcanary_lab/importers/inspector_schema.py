"""What the lines of NCCL Inspector and RCCL Inspector hold, as far as it is read. Unknown keys are passed over."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Collective", "Dump", "Header", "KernelTimes", "Line", "Message", "Metadata", "Number", "Step", "Times"]

#: A measured number; plugins write NaN as the text "nan".
Number: TypeAlias = float | str | None


class Header(msgspec.Struct, gc=False):
    """The communicator, and the rank in it."""

    rank: int
    n_ranks: int
    id: str = ""
    comm_name: str = ""
    nnodes: int = 0


class Metadata(msgspec.Struct, gc=False):
    """The process, and when it wrote the line (not when the operation ran)."""

    hostname: str = ""
    pid: int = -1
    dump_timestamp_us: int = -1


class KernelTimes(msgspec.Struct, gc=False):
    """One channel's kernel; zeros where the channel was not used."""

    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class Times(msgspec.Struct, gc=False):
    """Event times of a verbose record."""

    coll_start_ts: int = 0
    p2p_start_ts: int = 0
    kernel_events: list[KernelTimes] = []


class Step(msgspec.Struct, gc=False):
    """A part of an operation, in the variant that writes them as a tree: a channel's kernel, or a proxy operation on the wire."""

    event_type: str = ""
    event_trace_ts: KernelTimes | None = None
    proxy_direction: str = ""
    proxy_peer: int = -1
    proxy_trans_size: int = 0


class Collective(msgspec.Struct, gc=False, rename={
    "name": "coll", "sequence": "coll_sn", "size_bytes": "coll_msg_size_bytes", "time_us": "coll_exec_time_us",
    "clock": "coll_timing_source", "algbw_gb_s": "coll_algobw_gbs", "busbw_gb_s": "coll_busbw_gbs", "algorithm": "coll_algo",
    "protocol": "coll_proto", "times": "event_trace_ts", "steps": "events", "peer": "coll_peer",
}):  # fmt: skip
    """A collective; the attributes are those of `Message`, in one order."""

    name: str
    sequence: int
    size_bytes: int
    time_us: Number = None
    clock: str = ""
    algbw_gb_s: Number = None
    busbw_gb_s: Number = None
    algorithm: str = ""
    protocol: str = ""
    times: Times | None = None
    steps: list[Step] | None = None
    peer: int | None = None


class Message(msgspec.Struct, gc=False, rename={
    "name": "p2p", "sequence": "p2p_sn", "size_bytes": "p2p_msg_size_bytes", "time_us": "p2p_exec_time_us",
    "clock": "p2p_timing_source", "algbw_gb_s": "p2p_algobw_gbs", "busbw_gb_s": "p2p_busbw_gbs", "algorithm": "p2p_algo",
    "protocol": "p2p_proto", "times": "event_trace_ts", "steps": "events", "peer": "p2p_peer",
}):  # fmt: skip
    """A send or receive; its peer is a rank of the communicator."""

    name: str
    size_bytes: int
    peer: int
    sequence: int = -1
    time_us: Number = None
    clock: str = ""
    algbw_gb_s: Number = None
    busbw_gb_s: Number = None
    algorithm: str = ""
    protocol: str = ""
    times: Times | None = None
    steps: list[Step] | None = None

    def row(self) -> tuple[object, ...]:
        """Attributes in the order of `Collective`."""
        return (self.name, self.sequence, self.size_bytes, self.time_us, self.clock, self.algbw_gb_s, self.busbw_gb_s, self.algorithm,
                self.protocol, self.times, self.steps, self.peer)  # fmt: skip


class Dump(msgspec.Struct, gc=False):
    """How many records a dump wrote, and how many were overwritten before it."""

    coll_records: int = 0
    coll_dropped_total: int = 0
    coll_dropped_since_last_dump: int = 0
    p2p_records: int = 0
    p2p_dropped_total: int = 0
    p2p_dropped_since_last_dump: int = 0


class Line(msgspec.Struct, gc=False):
    """A record: header, metadata, and one payload."""

    header: Header
    metadata: Metadata | None = None
    coll_perf: Collective | None = None
    p2p_perf: Message | None = None
    dump_stats: Dump | None = None
