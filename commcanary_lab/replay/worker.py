"""One rank of a replay. torchrun starts it: ``python -m commcanary_lab.replay.worker DIRECTORY``."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from commcanary_lab.replay.operations import Arena, Operation, prepare
from commcanary_lab.replay.orphans import end_with_launcher
from commcanary_lab.replay.overlap import Compute
from commcanary_lab.replay.probe import Checked, Probe
from commcanary_lab.replay.program import Call, Program
from commcanary_lab.replay.progress import ProgressFile
from commcanary_lab.replay.sample_file import SampleWriter, sample_path
from commcanary_lab.replay.source import open_program
from commcanary_lab.replay.spec import RankMarker, ReplaySpec, marker_path, read_document, write_document

if TYPE_CHECKING:
    import torch

__all__ = ["iterate", "main", "start"]

#: Below this a wait for an event's time spins instead of sleeping.
_SPIN_NS = 200_000


@dataclass
class _Rank:
    """Everything a rank holds while it runs."""

    directory: Path
    spec: ReplaySpec
    program: Program
    rank: int
    device: torch.device
    operations: list[Operation | None]
    progress: ProgressFile
    compute: Compute | None = None
    counts: Counter[str] = field(default_factory=Counter)
    payload: Counter[str] = field(default_factory=Counter)
    done: int = 0
    checked: Checked = field(default_factory=Checked)


def main(arguments: list[str] | None = None) -> int:
    """Run one rank and leave its marker; return the exit status."""
    directory = Path((arguments or sys.argv[1:])[0])
    end_with_launcher()
    rank = int(os.environ["RANK"])
    spec = read_document(directory / "run.json", ReplaySpec)
    (directory / f"rank-{rank:05d}.started").write_text(f"{os.getpid()}\n")
    state: _Rank | None = None
    try:
        state = start(directory, spec, rank)
        _run(state)
        marker = _marker(state, spec, rank, "")
    except BaseException as error:  # the marker must say why, whatever it was
        traceback.print_exc()
        marker = _marker(state, spec, rank, f"{type(error).__name__}: {_first_line(error)}")
    write_document(marker_path(directory, rank), marker)
    if marker.status == "pass":
        import torch.distributed as dist

        dist.destroy_process_group()
        return 0
    return 1


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")


def start(directory: Path, spec: ReplaySpec, rank: int) -> _Rank:
    """Join the group and prepare everything that this rank runs."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // spec.ranks))
    if spec.backend == "nccl":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    progress = ProgressFile(directory, rank == 0)
    progress.tell("joining the group")
    dist.init_process_group(spec.backend, timeout=timedelta(seconds=max(10.0, spec.timeout_s)))
    program = open_program(directory, spec)
    groups: dict[tuple[int, ...], Any] = {tuple(range(spec.ranks)): None}
    for members in program.groups:  # every rank makes every group, in the same order
        groups[members] = dist.new_group(list(members))
    operations = prepare(program, rank, spec.backend, Arena(device), groups)
    compute = Compute(device) if spec.overlap else None
    return _Rank(directory, spec, program, rank, device, operations, progress, compute)


def _run(state: _Rank) -> None:
    spec, directory = state.spec, state.directory
    with SampleWriter(sample_path(directory, state.rank), state.rank) as samples:
        for iteration in range(-spec.warmup, spec.iterations):
            phase = "warm-up" if iteration < 0 else "measuring"
            total = spec.warmup if iteration < 0 else spec.iterations
            state.progress.tell(phase, iteration + spec.warmup if iteration < 0 else iteration, total)
            iterate(state, iteration, samples)
            samples.flush()
            state.done = max(0, iteration + 1)
    if spec.probe is not None:
        _probe(state)
    _synchronise(state.device)()
    import torch.distributed as dist

    dist.barrier()
    state.progress.tell("done", 1, 1)


def _synchronise(device: torch.device) -> Callable[[], None]:
    if device.type != "cuda":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def iterate(state: _Rank, iteration: int, samples: SampleWriter) -> None:
    """Run the program once. The loop is what `bookkeeping` measures: keep it short."""
    import torch.distributed as dist

    spec, operations, compute, rank = state.spec, state.operations, state.compute, state.rank
    preserve, with_barrier = spec.timing == "preserve", spec.barrier
    wait_for_device = _synchronise(state.device)
    count = iteration == 0
    dist.barrier()
    begin_ns = monotonic_ns()
    for call in state.program.calls(timing=preserve or spec.overlap):
        operation = operations[call.step]
        if operation is None:
            continue
        if preserve:
            _wait_until(begin_ns + call.due_ns + _late_ns(call, operation, rank), samples)
        ready_ns = monotonic_ns()
        if with_barrier and operation.collective:  # the two ends of a message meet in the message
            dist.barrier(operation.group)
        start_ns = monotonic_ns()
        work = operation.start()
        overlap_ns = compute.run(call.overlap_ns) if compute is not None and call.overlap_ns else 0
        if work is not None:
            work.wait()
        wait_for_device()
        finish_ns = monotonic_ns()
        if compute is not None and call.overlap_ns and not overlap_ns:
            overlap_ns = compute.join()
        samples.add(iteration, call.event, ready_ns, start_ns, finish_ns, overlap_ns)
        if count:
            state.counts[operation.step.op] += 1
            state.payload[operation.step.op] += operation.payload_bytes


def _late_ns(call: Call, operation: Operation, rank: int) -> int:
    """How long after the first rank this one arrives, where the source says."""
    return call.arrival_ns[operation.step.members.index(rank)] if call.arrival_ns else 0


def _wait_until(due_ns: int, samples: SampleWriter) -> None:
    samples.breathe()
    while (left := due_ns - monotonic_ns()) > 0:
        if left > _SPIN_NS:
            time.sleep((left - _SPIN_NS) / 1e9)


def _probe(state: _Rank) -> None:
    asked = state.spec.probe
    assert asked is not None
    if asked.mode != "eager":
        from commcanary_lab.replay.cuda_modes import run_captured

        state.checked = run_captured(state.program, state.rank, state.operations, asked, state.progress)
        return
    probe = Probe(state.rank, asked.fault)
    state.checked = probe.checked
    wait_for_device = _synchronise(state.device)
    for sample in range(asked.samples):
        state.progress.tell("probing", sample, asked.samples)
        for call in state.program.calls():
            operation = state.operations[call.step]
            if operation is None:
                continue
            probe.fill(operation, call.event, sample)
            work = operation.start()
            if work is not None:
                work.wait()
            wait_for_device()
            probe.check(operation, call.event, sample)
        probe.checked.samples += 1


def _marker(state: _Rank | None, spec: ReplaySpec, rank: int, error: str) -> RankMarker:
    import torch

    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if spec.backend == "nccl":
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    device = f"{platform.machine()} CPU" if spec.backend == "gloo" else torch.cuda.get_device_name()
    common = {"rank": rank, "host": socket.gethostname(), "device": device, "versions": versions, "ended_ns": monotonic_ns()}
    status: Any = "fail" if error else "pass"
    if state is None:
        return RankMarker(status=status, error=error, **common)  # type: ignore[arg-type]
    changes = dict.fromkeys(c for o in state.operations if o is not None for c in o.buffers.changes)
    c = state.checked
    return RankMarker(
        status=status, error=error, counts=dict(sorted(state.counts.items())), payload_bytes=dict(sorted(state.payload.items())),
        changes=tuple(changes), iterations=state.done, samples_checked=c.samples, boundaries_checked=c.boundaries,
        bytes_checked=c.size_bytes, mismatches=c.mismatches, first_mismatch=c.first, **common,  # type: ignore[arg-type]
    )  # fmt: skip


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of a broken group would keep a failed rank alive
