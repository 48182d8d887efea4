"""Inspector records for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEADER = {"id": "0xc0ffee", "rank": 0, "n_ranks": 2, "nnodes": 1}
METADATA = {
    "inspector_output_format_version": "v4.1", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
    "dump_timestamp_us": 1748030377748202, "hostname": "n1", "pid": 77,
}  # fmt: skip


def header(**changes: Any) -> dict[str, Any]:
    return {**HEADER, **changes}


def collective(coll: str = "AllReduce", sn: int = 1, size: Any = 16384, us: Any = 20, **changes: Any) -> dict[str, Any]:
    return {
        "coll": coll,
        "coll_sn": sn,
        "coll_msg_size_bytes": size,
        "coll_exec_time_us": us,
        "coll_timing_source": "kernel_gpu",
        **changes,
    }


def message(p2p: str = "Send", peer: int = 1, size: Any = 1 << 20, us: Any = 4, **changes: Any) -> dict[str, Any]:
    return {"p2p": p2p, "p2p_sn": 1, "p2p_peer": peer, "p2p_msg_size_bytes": size, "p2p_exec_time_us": us, **changes}


def line(payload: dict[str, Any], head: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """A record; the payload says which kind it is."""
    kind = "coll_perf" if "coll" in payload else "p2p_perf" if "p2p" in payload else "dump_stats"
    return {"header": head or HEADER, "metadata": {**METADATA, **metadata}, kind: payload}


def rank_line(payload: dict[str, Any], rank: int, n_ranks: int = 2, **changes: Any) -> dict[str, Any]:
    """A record of one rank of one communicator, each rank a process."""
    return line(payload, header(rank=rank, n_ranks=n_ranks, **changes), pid=100 + rank)


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in lines))
    return path


def starts(start: int, *kernels: int) -> dict[str, Any]:
    """Event times of a verbose collective."""
    events = [{"channel_id": i, "kernel_start_ts": k, "kernel_stop_ts": k and k + 9} for i, k in enumerate(kernels)]
    return {"event_trace_ts": {"coll_start_ts": start, "coll_stop_ts": start + 1, "kernel_events": events}}
