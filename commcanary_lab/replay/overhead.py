"""What the worker costs: its loop against the bare operations, in A B B A blocks on one group.

``python -m commcanary_lab.replay.overhead CANARY`` measures it on this machine and prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING

import numpy as np

from commcanary_lab.errors import LaunchError
from commcanary_lab.replay.calibration.resample import Interval, resampled_rounds

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.trace.model import Trace

__all__ = ["ReplayOverhead", "measure"]

_RESAMPLES = 2000


@dataclass(frozen=True)
class ReplayOverhead:
    """Time of a program in the worker's loop (A) over that of its bare operations (B).

    Parameters
    ----------
    ranks, events, rounds : int
        Processes, events of one pass, and rounds of A B B A.
    ratio : float
        Median over rounds of (A + A) / (B + B), on the slowest rank.
    low, high : float
        95 % bootstrap interval of that median.
    replayed_us, bare_us : float
        Median time per event.
    bookkeeping_p50_us : float
        Between an event and the next, in the worker's own samples; the median over ranks.
    """

    ranks: int
    events: int
    rounds: int
    ratio: float
    low: float
    high: float
    replayed_us: float
    bare_us: float
    bookkeeping_p50_us: float


def measure(source: Canary | Trace, ranks: int | None = None, rounds: int = 20, timeout_s: float = 300.0) -> ReplayOverhead:
    """Measure on this host, with Gloo.

    Both loops run the same prepared operations on the same group without barriers; a block is one pass of the program. Blocks of one
    round follow each other as A B B A, so that a drift of the machine's speed meets both.

    Parameters
    ----------
    source : Canary or Trace
        The program.
    ranks : int, optional
        Processes; all of the program's by default. More than there are cores measure the scheduler.
    rounds : int
        Rounds of four blocks.
    timeout_s : float
        Seconds after which it is ended.

    Raises
    ------
    LaunchError
        If a rank fails.
    """
    from commcanary_lab.replay.launch import need_torch, run_ranks, torchrun
    from commcanary_lab.replay.run import prepare

    need_torch()
    with tempfile.TemporaryDirectory(prefix="commcanary-overhead-") as folder:
        place = Path(folder) / "run"
        spec = prepare(source, place, ranks=ranks, backend="gloo", barrier=False, warmup=1, iterations=1, timeout_s=timeout_s)
        command = torchrun(["-m", "commcanary_lab.replay.overhead", "--rank-of", str(place), "--rounds", str(rounds)], spec.ranks)
        state = run_ranks([command], place, 0, timeout_s=timeout_s)
        if state.status != "done":
            log = (place / "log.txt").read_text("utf-8", "replace").splitlines()
            raise LaunchError(f"the measurement failed: {state.reason}; {log[-1] if log else ''}", remedy="look at the machine's load")
        parts = [json.loads((place / f"overhead-{r}.json").read_text()) for r in range(spec.ranks)]
    blocks = np.array([p["blocks"] for p in parts], np.float64).max(axis=0)  # (rounds, 4), of the slowest rank
    a, b = blocks[:, 0] + blocks[:, 3], blocks[:, 1] + blocks[:, 2]
    ratios = a / b
    drawn = ratios[resampled_rounds(len(ratios), _RESAMPLES, "replay overhead")]
    interval = Interval.of(np.median(drawn, axis=1), 0.95)
    events = int(parts[0]["events"])
    own = float(np.median([p["bookkeeping_p50_us"] for p in parts]))
    replayed_us, bare_us = (float(np.median(x)) / 2000 / events for x in (a, b))
    return ReplayOverhead(spec.ranks, events, rounds, float(np.median(ratios)), interval.low, interval.high, replayed_us, bare_us, own)


def _rank(place: Path, rounds: int) -> None:
    """One rank: time both loops in turn."""
    import os

    import torch.distributed as dist

    from commcanary_lab.replay import worker
    from commcanary_lab.replay.sample_file import SampleWriter, read_samples
    from commcanary_lab.replay.spec import ReplaySpec, read_document

    rank = int(os.environ["RANK"])
    state = worker.start(place, read_document(place / "run.json", ReplaySpec), rank)
    order = [state.operations[call.step] for call in state.program.calls()]
    mine = [o for o in order if o is not None]
    path = place / f"overhead-{rank}.arrows"
    blocks = []
    with SampleWriter(path, rank) as samples:

        def replayed() -> int:
            start = monotonic_ns()
            worker.iterate(state, 0, samples)
            return monotonic_ns() - start

        def bare() -> int:
            dist.barrier()
            start = monotonic_ns()
            for operation in mine:
                work = operation.start()
                if work is not None:
                    work.wait()
            return monotonic_ns() - start

        for loop in (replayed, bare):
            loop()
        for _ in range(rounds):
            blocks.append([replayed(), bare(), bare(), replayed()])
    columns, _whole = read_samples(path)
    gaps = (columns["ready_ns"][1:] - columns["finish_ns"][:-1])[np.diff(columns["event"]) > 0]
    document = {"blocks": blocks, "events": len(mine), "bookkeeping_p50_us": float(np.median(gaps)) / 1000}
    (place / f"overhead-{rank}.json").write_text(json.dumps(document))
    dist.barrier()
    dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> None:
    """Measure a trace or a canary and print the result."""
    parser = argparse.ArgumentParser(description="What the replay worker costs, in A B B A blocks.")
    parser.add_argument("source", type=Path, nargs="?", help="a canary")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.rank_of is not None:
        _rank(given.rank_of, given.rounds)
        return
    if given.source is None:
        parser.error("name a canary")
    from commcanary_lab.canary.read import read_canary

    json.dump(asdict(measure(read_canary(given.source), given.ranks, given.rounds)), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
