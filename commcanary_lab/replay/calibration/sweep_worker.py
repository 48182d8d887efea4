"""One rank of a size sweep. torchrun starts it: ``python -m commcanary_lab.replay.calibration.sweep_worker DIRECTORY``."""

from __future__ import annotations

import os
import platform
import socket
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from commcanary_lab.errors import RefusedError
from commcanary_lab.replay.calibration.sweep_spec import SPEC_FILE, SweepSpec, raw_path, round_order, steps_of, write_raw
from commcanary_lab.replay.operations import Arena, Operation, prepare
from commcanary_lab.replay.orphans import end_with_launcher
from commcanary_lab.replay.pattern import expected, inputs
from commcanary_lab.replay.program import Program, Step
from commcanary_lab.replay.spec import RankMarker, marker_path, read_document, write_document

if TYPE_CHECKING:
    import torch

__all__ = ["main"]


@dataclass(frozen=True)
class _Steps:
    """The part of a program that preparing operations reads."""

    steps: tuple[Step, ...]


def main(arguments: list[str] | None = None) -> int:
    """Run one rank and leave its marker; return the exit status."""
    directory = Path((arguments or sys.argv[1:])[0])
    end_with_launcher()
    rank = int(os.environ["RANK"])
    spec = read_document(directory / SPEC_FILE, SweepSpec)
    (directory / f"rank-{rank:05d}.started").write_text(f"{os.getpid()}\n")
    error = ""
    try:
        _run(directory, spec, rank)
    except BaseException as caught:  # the marker must say why, whatever it was
        traceback.print_exc()
        error = f"{type(caught).__name__}: {next(iter(str(caught).splitlines()), '')}"
    write_document(marker_path(directory, rank), _marker(spec, rank, error))
    if error:
        return 1
    import torch.distributed as dist

    dist.destroy_process_group()
    return 0


def _marker(spec: SweepSpec, rank: int, error: str) -> RankMarker:
    import torch

    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    device = f"{platform.machine()} CPU"
    if spec.backend == "nccl":
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        device = torch.cuda.get_device_name()
    done = 0 if error else spec.repeat
    return RankMarker(rank=rank, status="fail" if error else "pass", error=error, ended_ns=monotonic_ns(), host=socket.gethostname(),
                      device=device, versions=versions, iterations=done)  # fmt: skip


def _run(directory: Path, spec: SweepSpec, rank: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // spec.ranks))
    device = torch.device("cpu")
    if spec.backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group(spec.backend, timeout=timedelta(seconds=max(10.0, spec.timeout_s)))
    group: dict[tuple[int, ...], Any] = {tuple(range(spec.ranks)): None}
    operations = prepare(cast(Program, _Steps(steps_of(spec))), rank, spec.backend, Arena(device), group)
    mine = [cast(Operation, o) for o in operations]
    for number in range(-max(1, spec.warmup), 0):
        for i in round_order(spec, number):
            if number == -1:
                _check(mine[i], rank, i)
            else:
                _once(mine[i], device)
    for operation in mine:  # sums of sums grow without end: from here on everything is 0
        operation.given.zero_()
        operation.got.zero_()
    arrival = np.zeros((spec.repeat, len(spec.sizes)), np.int64)
    finish = np.zeros_like(arrival)
    for number in range(spec.repeat):
        for i in round_order(spec, number):
            arrival[number, i], finish[number, i] = _once(mine[i], device)
    write_raw(raw_path(directory, rank), arrival, finish)
    dist.barrier()


def _once(operation: Operation, device: torch.device) -> tuple[int, int]:
    """Run an operation after a barrier; return when this rank arrived and when it was done."""
    import torch
    import torch.distributed as dist

    cuda = device.type == "cuda"
    dist.barrier()
    if cuda:
        torch.cuda.synchronize(device)
    arrived = monotonic_ns()
    operation.start().wait()
    if cuda:
        torch.cuda.synchronize(device)
    return arrived, monotonic_ns()


def _check(operation: Operation, rank: int, event: int) -> None:
    """Compare the result with one computed without torch: the time of a wrong result means nothing."""
    import torch

    step, b = operation.step, operation.buffers
    operation.got.zero_()
    if len(given := inputs(step, b, rank, event, 0)):
        operation.given.view(torch.uint8)[: len(given)].copy_(torch.from_numpy(np.ascontiguousarray(given)))
    _once(operation, operation.got.device)
    wanted = expected(step, b, rank, event, 0)
    if wanted is not None:
        found = np.array(operation.got.view(torch.uint8).cpu().numpy())[: len(wanted)]
        if not np.array_equal(found, wanted):
            raise RefusedError(f"the result of {step.op} of {step.size_bytes} bytes is wrong on rank {rank}")


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of a broken group would keep a failed rank alive
