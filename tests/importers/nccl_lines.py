"""Lines of NCCL logs as tests need them."""

from __future__ import annotations

MIB = 1 << 20


def prefix(rank: int, per_node: int = 4) -> str:
    return f"node{rank // per_node}:{1000 + rank}:{2000 + rank} [{rank % per_node}] NCCL INFO"


def init(rank: int, pointer: str, group_rank: int, nranks: int, tail: str, stage: str = "COMPLETE", device: int | None = None) -> str:
    device = rank % 4 if device is None else device
    head = f"{prefix(rank)} ncclCommInitRank comm {pointer} rank {group_rank} nranks {nranks} cudaDev {device} nvmlDev {device} busId 1000"
    return f"{head} {tail} - Init {stage}".replace("  ", " ")


def coll(rank: int, op: str, pointer: str, nranks: int, count: int, *, datatype: int = 7, op_count: int = 0, root: int = 0,
         reduction: int = 0, tail: str = "") -> str:  # fmt: skip
    return (
        f"{prefix(rank)} {op}: opCount {op_count:x} sendbuff 0x7f00 recvbuff (nil) count {count} datatype {datatype} op {reduction} "
        f"root {root} comm {pointer} [nranks={nranks}] stream 0x1{tail}"
    )


def job(*, numbered: bool = True, world: bool = True, steps: int = 1) -> list[str]:
    """8 ranks on 2 nodes: per step 24 all-reduces of 64 MiB in nodes of 4, and one of 512 MiB across the nodes."""
    lines = []
    for r in range(8):
        if world:
            lines.append(init(r, f"0xa{r}", r, 8, "commId 0xaaaa" if numbered else ""))
        lines.append(init(r, f"0xb{r}", r % 4, 4, f"commId 0xb00{r // 4}" if numbered else ""))
        lines.append(init(r, f"0xd{r}", r // 4, 2, f"commId 0xd00{r % 4}" if numbered else ""))
    for step in range(steps):
        for i in range(24):
            lines += [coll(r, "AllReduce", f"0xb{r}", 4, 32 * MIB, datatype=9, op_count=24 * step + i) for r in range(8)]
        lines += [coll(r, "AllReduce", f"0xd{r}", 2, 128 * MIB, op_count=step) for r in range(8)]
    return lines
