"""A size sweep on a real process group of this host: barrier, one collective, the next size; round after round."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Literal

import numpy as np

from commcanary_lab.errors import LaunchError, UsageError
from commcanary_lab.replay.calibration.costs import OPS, cost_of
from commcanary_lab.replay.calibration.samples import SizeSamples
from commcanary_lab.replay.calibration.sweep_spec import SPEC_FILE, SweepSpec, raw_path, read_raw
from commcanary_lab.replay.evidence import new_directory, seal
from commcanary_lab.replay.launch import LOG, need_torch, run_ranks, torchrun
from commcanary_lab.replay.run import choose_backend
from commcanary_lab.replay.spec import RankMarker, marker_path, read_document, write_document
from commcanary_lab.trace.ops import ALL_TO_ALL_V, DTYPE_BYTES

__all__ = ["measure", "read_sweep", "size_multiple"]

_MESSAGES = ("send", "recv")
_LOG_LINES = 12


def size_multiple(ranks: int, dtype: str = "float32") -> int:
    """Return what B must be a multiple of, so that every rank has the same whole number of elements."""
    return ranks * DTYPE_BYTES[dtype]


def measure(op: str, ranks: int, sizes: Sequence[int], *, backend: str = "auto", repeat: int = 30, warmup: int = 3, dtype: str = "float32",
            seed: int = 7, timeout_s: float = 300.0, keep: str | os.PathLike[str] | None = None,
            cancelled: Event | None = None) -> SizeSamples:  # fmt: skip
    """Measure one collective over sizes on `ranks` processes of this host.

    Every round holds each size once, in an order that changes from round to round, so that a machine that gets slower does not look
    like a size that is slow. Before each call is a barrier. The latency is the last finish minus the last arrival over the ranks, by
    the monotonic clock, which the processes of a host share. Warm-up rounds are not counted; the last of them checks the results.

    Parameters
    ----------
    op : str
        Operation; messages need two ranks.
    ranks : int
        Processes, at least 2.
    sizes : sequence of int
        B, multiples of `size_multiple`.
    backend : str
        gloo, nccl, or auto: NCCL where there is a GPU per rank.
    repeat, warmup : int
        Rounds measured, and before.
    dtype : str
        Element type.
    seed : int
        Of the order of sizes.
    timeout_s : float
        Seconds after which all ranks are ended.
    keep : path-like, optional
        New directory for the clock readings of every rank; it is sealed (SHA256SUMS).
    cancelled : threading.Event, optional
        Ends the ranks when it is set.

    Returns
    -------
    SizeSamples

    Raises
    ------
    UsageError
        If an option makes no sense.
    MissingExtraError
        If torch is not installed.
    LaunchError
        If a rank fails, a result is wrong, or time is up; no process is left.
    """
    ordered = tuple(sorted(set(sizes)))
    _check(op, ranks, ordered, repeat, warmup, dtype)
    need_torch()
    kind: Literal["gloo", "nccl"] = choose_backend(backend, ranks)
    spec = SweepSpec(op, ranks, kind, ordered, repeat, max(1, warmup), dtype, seed, timeout_s)
    with ExitStack() as stack:
        directory = new_directory(keep) if keep is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-")))
        write_document(directory / SPEC_FILE, spec)
        command = torchrun(["-m", "commcanary_lab.replay.calibration.sweep_worker", str(directory.resolve())], ranks)
        state = run_ranks([command], directory, ranks, timeout_s=timeout_s, cancelled=cancelled)
        if state.status != "done":
            raise LaunchError(f"the sweep failed: {state.reason}", remedy=_log_tail(directory / LOG))
        if keep is not None:
            seal(directory)
        return read_sweep(directory)


def read_sweep(directory: str | os.PathLike[str]) -> SizeSamples:
    """Return the samples from the clock readings that the ranks of a sweep left.

    Raises
    ------
    FormatError
        If a file is missing or damaged.
    """
    place = Path(directory)
    spec = read_document(place / SPEC_FILE, SweepSpec)
    markers = [read_document(marker_path(place, r), RankMarker) for r in range(spec.ranks)]
    raw = [read_raw(raw_path(place, r), spec) for r in range(spec.ranks)]
    last_arrival = np.max([a for a, _ in raw], axis=0)
    latency_us = (np.max([f for _, f in raw], axis=0) - last_arrival) / 1e3
    notes = [
        f"{spec.repeat} rounds, each size once per round in changing order; {spec.warmup} warm-up rounds before",
        "latency: last finish minus last arrival over the ranks, after a barrier",
    ]
    cores = os.cpu_count() or 1
    if spec.backend == "gloo" and spec.ranks >= cores:
        notes.append(f"{spec.ranks} ranks and their threads on {cores} cores: latencies cluster on the ticks of the scheduler (4 ms)")
    if spec.backend == "gloo" and spec.op == "reduce_scatter":
        notes.append("Gloo runs a reduce_scatter as an all_reduce of the whole input: its terms are not those of a ring")
    one = markers[0]
    library = f", NCCL {one.versions['nccl']}" if "nccl" in one.versions else ""
    ran_on = f"{spec.backend} on {one.device}, {spec.ranks} processes of one host, torch {one.versions.get('torch', 'unknown')}{library}"
    columns = tuple(np.ascontiguousarray(c) for c in latency_us.T)
    return SizeSamples(spec.op, spec.ranks, spec.dtype, spec.sizes, columns, ran_on, "measured", tuple(notes))


def _check(op: str, ranks: int, sizes: tuple[int, ...], repeat: int, warmup: int, dtype: str) -> None:
    measurable = [o for o in OPS if o != ALL_TO_ALL_V and o not in _MESSAGES]
    if op not in measurable:
        raise UsageError(f"{op!r} cannot be swept", remedy=f"choose one of {', '.join(measurable)}")
    cost_of(op, ranks)
    if op == "point_to_point" and ranks != 2:
        raise UsageError(f"a message between {ranks} ranks", remedy="measure messages on 2 ranks")
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"unknown dtype {dtype!r}", remedy="choose float32")
    if repeat < 1 or warmup < 0:
        raise UsageError(f"{repeat} rounds, {warmup} of warm-up", remedy="measure at least one round")
    multiple = size_multiple(ranks, dtype)
    odd = [s for s in sizes if s < multiple or s % multiple]
    if odd or not sizes:
        raise UsageError(f"a size of {odd[0] if odd else 'nothing'} bytes", remedy=f"give multiples of {multiple}, an element per rank")


def _log_tail(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = [x for x in lines if x.strip()][-_LOG_LINES:]
    return "its last output: " + " | ".join(told) if told else "it printed nothing"
