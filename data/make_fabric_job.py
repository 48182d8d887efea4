#!/usr/bin/env python3
"""Make `samples/fabric_job/`: one training step of eight ranks on two nodes of four, as four sources would record it.

Every rank takes part in 24 all-reduces of 64 MiB over the tensor-parallel group of its node (12 forward, 12 backward) and in one
all-reduce of 512 MiB over the data-parallel group of its rail: ranks 0 and 4, 1 and 5, 2 and 6, 3 and 7. That is 25 records per rank,
200 in all, 16384 MiB of payload. The MPI layer only starts the job and holds one barrier: 8 records, no bytes.

    inspector/   NCCL Inspector JSON lines, one file per process
    rccl/        the debug log of RCCL, all processes in one file
    kineto/      PyTorch profiler traces, one file per rank
    mpi/         PMPI text traces, one file per process
    layout.toml  which ranks form which group, for sources that do not say it

Times follow a schedule with hashed jitter. Standard library only; the same bytes every time.

    python data/make_fabric_job.py [OUT]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sample_json import SAMPLES, pick

MIB = 1 << 20
NODES, GPUS = 2, 4
RANKS = NODES * GPUS
LAYERS = 12
TP_BYTES, DP_BYTES = 64 * MIB, 512 * MIB
ELEMENT_BYTES = 2  # bfloat16
EPOCH_US = 1_760_000_000_000_000

LAYOUT = """\
# Eight ranks on two nodes: tensor parallelism inside a node, data parallelism between GPUs of equal index.
gpus_per_node = 4
tp = 4
dp = 2
"""


@dataclass(frozen=True)
class Call:
    """One all-reduce as one rank sees it."""

    rank: int
    kind: str  # TP or DP
    number: int  # of the group among its kind
    members: tuple[int, ...]
    sequence: int  # in the group
    size_bytes: int
    start_us: int
    duration_us: int

    @property
    def name(self) -> str:
        return f"{self.kind} Group {self.number}"

    @property
    def local_rank(self) -> int:
        return self.members.index(self.rank)

    @property
    def comm_id(self) -> str:
        """The communicator's hash."""
        return f"{pick(1 << 60, 1 << 63, 'communicator', self.kind, self.number):016x}"

    @property
    def comm_address(self) -> str:
        """Its address in the process."""
        return f"0x55{pick(0, 1 << 36, 'address', self.rank, self.kind) * 16:010x}"


def calls(rank: int) -> Iterator[Call]:
    """Yield the collectives of one rank in order."""
    node, rail = divmod(rank, GPUS)
    tp, dp = tuple(range(node * GPUS, (node + 1) * GPUS)), tuple(range(rail, RANKS, GPUS))
    clock = 1_000
    for layer in range(2 * LAYERS):
        clock += (900 if layer < LAYERS else 1_700) + pick(0, 60, "compute", rank, layer)
        duration = 420 + pick(0, 30, "tp", node, layer)
        yield Call(rank, "TP", node, tp, layer, TP_BYTES, clock, duration)
        clock += duration
    clock += 250 + pick(0, 40, "last", rank)
    yield Call(rank, "DP", rail, dp, 0, DP_BYTES, clock, 11_000 + pick(0, 300, "dp", rail))


def host(rank: int) -> str:
    """The host of a rank."""
    return f"node{rank // GPUS}"


def pid(rank: int) -> int:
    """The process of a rank."""
    return 4100 + rank


def inspector(folder: Path) -> None:
    """One file per process, one line per collective."""
    for rank in range(RANKS):
        lines = []
        for c in calls(rank):
            k, seconds = len(c.members), c.duration_us / 1e6
            algbw = c.size_bytes / seconds / 1e9
            lines.append(
                {
                    "header": {
                        "id": f"0x{c.comm_id}",
                        "comm_name": c.name,
                        "rank": c.local_rank,
                        "n_ranks": k,
                        "nnodes": 1 if c.kind == "TP" else NODES,
                    },
                    "metadata": {
                        "inspector_output_format_version": "v4.2",
                        "git_rev": "",
                        "rec_mechanism": "nccl_profiler_interface",
                        "dump_timestamp_us": EPOCH_US + c.start_us + c.duration_us,
                        "hostname": host(rank),
                        "pid": pid(rank),
                    },
                    "coll_perf": {
                        "coll": "AllReduce",
                        "coll_algo": "RING",
                        "coll_proto": "SIMPLE",
                        "coll_sn": c.sequence + 1,
                        "coll_msg_size_bytes": c.size_bytes,
                        "coll_exec_time_us": c.duration_us,
                        "coll_timing_source": "kernel_gpu",
                        "coll_algobw_gbs": round(algbw, 6),
                        "coll_busbw_gbs": round(algbw * 2 * (k - 1) / k, 6),
                    },
                }
            )
        write(folder / f"{host(rank)}-pid{pid(rank)}.log", "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in lines))


def rccl(folder: Path) -> None:
    """The log of all processes: communicators, then operations in the order in which they were issued."""
    lines: list[tuple[int, int, str]] = []
    for rank in range(RANKS):
        prefix = f"{host(rank)}:{pid(rank)}:{pid(rank)} [{rank % GPUS}] NCCL INFO "
        world = Call(rank, "World", 0, tuple(range(RANKS)), 0, 0, 0, 0)  # every job has one; this one sends nothing on it
        for i, c in enumerate({c.name: c for c in (world, *calls(rank))}.values()):
            init = f"ncclCommInitRankConfig_impl comm {c.comm_address} rank {c.local_rank} nranks {len(c.members)} cudaDev {rank % GPUS} "
            init += f"nvmlDev {rank % GPUS} busId {(rank % GPUS + 1) * 0x1000:x} commId 0x{c.comm_id} - Init COMPLETE"
            lines.append((-3 + i, rank, prefix + init))
        for c in calls(rank):
            buffer = f"0x7f{pick(0, 1 << 32, 'buffer', rank, c.kind) * 256:010x}"
            operation = f"AllReduce: opCount {c.sequence:x} sendbuff {buffer} recvbuff {buffer} acc (nil) "
            operation += f"count {c.size_bytes // ELEMENT_BYTES} datatype 9 op 0 root 0 comm {c.comm_address} [nranks={len(c.members)}] "
            lines.append((c.start_us, rank, f"{prefix}{operation}stream 0x7f{rank:02x}00 task 0 globalrank {rank}"))
    write(folder / "job.log", "".join(line + "\n" for *_, line in sorted(lines)))


def kineto(folder: Path) -> None:
    """One profile per rank: what was called, and the kernel that did it."""
    for rank in range(RANKS):
        groups = {c.name: c for c in calls(rank)}
        config = [
            {"pg_name": str(i + 1), "pg_desc": name, "backend_config": "cuda:nccl", "pg_size": len(c.members), "ranks": list(c.members)}
            for i, (name, c) in enumerate(groups.items())
        ]
        numbers = {name: str(i + 1) for i, name in enumerate(groups)}
        events = []
        for external, c in enumerate(calls(rank), 1):
            args = {
                "Collective name": "allreduce",
                "dtype": "BFloat16",
                "In msg nelems": c.size_bytes // ELEMENT_BYTES,
                "Out msg nelems": c.size_bytes // ELEMENT_BYTES,
                "In split size": "[]",
                "Out split size": "[]",
                "Group size": len(c.members),
                "Process Group Name": numbers[c.name],
                "Process Group Description": c.name,
                "Process Group Ranks": str(list(c.members)),
                "Rank": rank,
                "Seq": c.sequence + 1,
                "External id": external,
            }
            issued = c.start_us - 40
            events.append(
                {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": pid(rank), "tid": pid(rank), "ts": issued, "dur": 25,
                 "args": args}
            )  # fmt: skip
            kernel = {**args, "device": rank % GPUS, "stream": 20 if c.kind == "TP" else 24, "correlation": external}
            events.append(
                {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
                 "pid": rank % GPUS, "tid": kernel["stream"], "ts": c.start_us, "dur": c.duration_us, "args": kernel}
            )  # fmt: skip
        head = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS, "pg_count": len(config), "pg_config": config},
            "baseTimeNanoseconds": EPOCH_US * 1000,
        }
        text = json.dumps(head, separators=(",", ":"))[:-1] + ',"traceEvents":[\n'
        text += ",\n".join(json.dumps(e, separators=(",", ":")) for e in events)
        write(folder / f"rank{rank}.json", text + "\n]}\n")


def mpi(folder: Path) -> None:
    """One trace per process: start, one barrier, end."""
    for rank in range(RANKS):
        start, comm = EPOCH_US + pick(0, 90, "start", rank), f"0,{rank},{RANKS}"
        enter, leave = start + 5_000 + pick(0, 400, "barrier", rank), start + 5_600
        lines = [
            "# collprof 0.9 output file",
            f"# host: {host(rank)}",
            "# Init clockdiff: 0.000000",
            "",
            f"MPI_Init:-:140737488343500:140737488344604:{start}.000000",
            f"MPI_Comm_size:{start + 20}.000000:{comm}:140737488343496:{start + 22}.000000",
            f"MPI_Comm_rank:{start + 25}.000000:{comm}:140737488343492:{start + 27}.000000",
            f"MPI_Barrier:{enter}.000000:{comm}:{leave}.000000",
            "# Finalize clockdiff: 0.000000",
            f"MPI_Finalize:{leave + 40_000}.000000:-",
        ]
        write(folder / f"pmpi-trace-rank-{rank}.txt", "\n".join(lines) + "\n")


def write(path: Path, text: str) -> None:
    """Write one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii", newline="\n")


def main(out: Path) -> None:
    """Write all four sources and the layout."""
    for source in (inspector, rccl, kineto, mpi):
        source(out / source.__name__)
    write(out / "layout.toml", LAYOUT)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES / "fabric_job")
