"""Run a program on real ranks: prepare a directory, start the ranks, seal what they leave."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import UsageError
from commcanary_lab.replay.evidence import new_directory, seal
from commcanary_lab.replay.launch import batch_script, check_nodes, need_torch, run_ranks, torchrun, worker_command
from commcanary_lab.replay.probe import check_fault
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.progress import ReplayProgress, read_progress
from commcanary_lab.replay.result import Replay, read_replay
from commcanary_lab.replay.source import write_source
from commcanary_lab.replay.spec import ProbeAsked, ReplaySpec, RunState, write_document
from commcanary_lab.trace.model import Trace

__all__ = ["choose_backend", "conclude", "execute", "prepare", "replay"]

_REPORT_S = 0.2


def choose_backend(backend: str, ranks: int) -> Literal["gloo", "nccl"]:
    """Return the backend that runs: ``auto`` takes NCCL where there is a GPU per rank, and Gloo otherwise.

    Raises
    ------
    UsageError
        If NCCL is asked for without enough GPUs, or the name is unknown.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend == "auto":
        return "nccl" if gpus >= ranks else "gloo"
    if backend == "nccl":
        if gpus < ranks:
            raise UsageError(f"NCCL needs a GPU per rank: {ranks} ranks, {gpus} GPUs here", remedy="choose gloo, or write a batch script")
        return "nccl"
    if backend != "gloo":
        raise UsageError(f"there is no backend {backend!r}", remedy="choose gloo, nccl or auto")
    return "gloo"


def prepare(
    source: Canary | Trace,
    directory: str | os.PathLike[str],
    *,
    ranks: int | None = None,
    backend: str = "auto",
    nodes: int | None = None,
    **options: Any,
) -> ReplaySpec:
    """Write what will run into a new directory: the program, the specification and, for several nodes, a batch script.

    Parameters
    ----------
    source : Canary or Trace
        What to run.
    directory : path-like
        New or empty.
    ranks : int, optional
        Processes; all of the program's by default.
    backend : str
        ``auto``, ``gloo`` or ``nccl``; with `nodes` it is not checked here.
    nodes : int, optional
        Also write ``replay.sbatch`` for so many nodes.
    **options
        Fields of `ReplaySpec`.

    Raises
    ------
    UsageError
        If an option makes no sense.
    RefusedError
        If the program cannot be run.
    """
    _check(options)
    program = Program.of(source, ranks, skip_unsupported=options.get("skip_unsupported", False))
    probe: ProbeAsked | None = options.get("probe")
    if probe is not None and probe.fault is not None:
        check_fault(program, probe.fault, probe.samples)
    kind = choose_backend(backend, program.size) if nodes is None else ("gloo" if backend == "gloo" else "nccl")
    if probe is not None and probe.mode != "eager" and kind != "nccl":
        raise UsageError(f"the probe mode {probe.mode!r} captures CUDA graphs", remedy="use eager, or run on GPUs")
    if nodes is not None:
        check_nodes(program.size, nodes)
    place = new_directory(directory)
    name, digest = write_source(source, place)
    spec = ReplaySpec(name, digest, program.size, program.source_ranks, kind, **options)
    write_document(place / "run.json", spec)
    if nodes is not None:
        script = place / "replay.sbatch"
        write_atomic(script, batch_script(spec, nodes, script.name).encode())
    return spec


def _check(options: dict[str, Any]) -> None:
    for name, low in (("iterations", 1), ("warmup", 0), ("timeout_s", 1)):
        if name in options and not options[name] >= low:
            raise UsageError(f"{name} is {options[name]}", remedy=f"at least {low}")
    if options.get("timing", "back_to_back") not in ("back_to_back", "preserve"):
        raise UsageError(f"there is no timing {options['timing']!r}", remedy="choose back_to_back or preserve")


def execute(
    directory: str | os.PathLike[str],
    spec: ReplaySpec,
    *,
    progress: Callable[[ReplayProgress], None] | None = None,
    cancelled: Event | None = None,
    start: Callable[[Path, ReplaySpec], RunState] | None = None,
) -> RunState:
    """Run a prepared directory on this host and seal it, also after a failure, a timeout or an interrupt.

    Parameters
    ----------
    directory : path-like
        From `prepare`.
    spec : ReplaySpec
        From `prepare`.
    progress : callable, optional
        Called with the progress when it changes.
    cancelled : threading.Event, optional
        Ends the run when it is set.
    start : callable, optional
        Starts the ranks in another way than torchrun on this host.
    """
    place = Path(directory)
    over = Event()
    reporter = _report(place, progress, over) if progress is not None else None
    state = RunState(status="cancelled", seconds=0.0, reason="interrupted")
    try:
        if start is not None:
            state = start(place, spec)
        else:
            commands = [torchrun(worker_command(place), spec.ranks)]
            state = run_ranks(commands, place, spec.ranks, timeout_s=spec.timeout_s, cancelled=cancelled)
    finally:
        over.set()
        if reporter is not None:
            reporter.join()
        conclude(place, state)
    return state


def conclude(directory: Path, state: RunState) -> None:
    """Write how a run ended and seal its directory; all ranks have ended."""
    write_document(directory / "result.json", state)
    for leftover in directory.glob("rank-*.started"):
        leftover.unlink()
    seal(directory)


def _report(place: Path, progress: Callable[[ReplayProgress], None], over: Event) -> Thread:
    def loop() -> None:
        last = None
        while not over.wait(_REPORT_S):
            now = read_progress(place)
            if now != last:
                last = now
                progress(now)

    thread = Thread(target=loop, name="replay-progress", daemon=True)
    thread.start()
    return thread


def replay(
    source: Canary | Trace,
    ranks: int | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    backend: str = "auto",
    progress: Callable[[ReplayProgress], None] | None = None,
    cancelled: Event | None = None,
    **options: Any,
) -> Replay:
    """Replay a canary or a trace on real processes of this host and return what was measured.

    Parameters
    ----------
    source : Canary or Trace
        What to run.
    ranks : int, optional
        Processes; all of the program's by default. Less run the part of the job that the first ranks see.
    out : path-like, optional
        Directory for the evidence, new or empty; a temporary one by default.
    backend : str
        ``auto`` (NCCL where there is a GPU per rank, otherwise Gloo), ``gloo`` or ``nccl``.
    progress : callable, optional
        Called with a `ReplayProgress`.
    cancelled : threading.Event, optional
        Ends the run when it is set.
    **options
        Fields of `ReplaySpec`: ``timing``, ``barrier``, ``overlap``, ``warmup``, ``iterations``, ``timeout_s``, ``probe``, ``note``,
        ``skip_unsupported``.

    Returns
    -------
    Replay
        Its `status` is ``done`` when all ranks ended well; `Replay.probe` says whether the data were right.

    Raises
    ------
    MissingExtraError
        If torch is not installed.
    UsageError, RefusedError
        If the program cannot run like that.
    LaunchError
        If a rank failed, time was up, or the run was cancelled; the directory keeps what there is.
    """
    need_torch()
    place = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="commcanary-replay-"))
    spec = prepare(source, place, ranks=ranks, backend=backend, **options)
    execute(place, spec, progress=progress, cancelled=cancelled)
    result = read_replay(place)
    result.raise_if_failed()
    return result
