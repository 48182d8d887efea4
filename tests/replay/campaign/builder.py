"""Campaigns whose ranks are not started: their samples and markers are written here, everything else is the real thing."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from commcanary_lab.replay.campaign.preregistration import Configuration
from commcanary_lab.replay.campaign.result import Campaign
from commcanary_lab.replay.campaign.run import Start, run_campaign
from commcanary_lab.replay.evidence import seal
from commcanary_lab.replay.probe import boundary
from commcanary_lab.replay.sample_file import SampleWriter, sample_path
from commcanary_lab.replay.source import open_program
from commcanary_lab.replay.spec import Mismatch, RankMarker, ReplaySpec, RunState, marker_path, write_document

PROBE = "probe = { epochs = 1, replays = 4 }"


def write_trace(path: Path, *, all_gathers: int = 4, all_reduces: int = 1, ranks: int = 2, size_bytes: int = 64) -> Path:
    """Write a trace of all-gathers that ends with all-reduces."""
    events = []
    for i in range(all_gathers + all_reduces):
        gather = i < all_gathers
        event = (
            {"op": "all_gather", "bytes": size_bytes * ranks}
            if gather
            else {"op": "all_reduce", "bytes": size_bytes, "reduction_op": "sum"}
        )
        events.append({"phase": "decode", "dtype": "bfloat16", "ranks": ranks, "start_us": 10 * i, **event})
    path.write_text(json.dumps({"format": "commcanary.trace.v1", "workload": {}, "system": {}, "events": events}))
    return path


@dataclass
class Made:
    """What a synthetic run does.

    Parameters
    ----------
    cycle_us : callable
        Time of a cycle: of configuration, run of this configuration (from 0), rank, iteration.
    wrong : mapping of (configuration, run) to (event, sample, ranks)
        Boundaries with wrong bytes.
    counts : mapping of configuration to mapping
        Counts that the markers state instead of the program's.
    hosts : mapping of configuration to str
        Where it ran.
    status : mapping of (configuration, run) to RunState
        Runs that do not end well; their ranks leave no marker.
    """

    cycle_us: Callable[[str, int, int, int], float] = lambda name, run, rank, iteration: 1000.0
    wrong: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    status: dict[tuple[str, int], RunState] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)

    def start(self, configuration: Configuration) -> Start:
        """Return what writes the runs of a configuration."""

        def start(place: Path, spec: ReplaySpec) -> RunState:
            run = self.started.count(configuration.name)
            self.started.append(configuration.name)
            state = self.status.get((configuration.name, run), RunState(status="done", seconds=1.5, exit_status=0))
            if state.status == "done":
                for rank in range(spec.ranks):
                    self._rank(place, spec, configuration.name, run, rank)
            return state

        return start

    def _rank(self, place: Path, spec: ReplaySpec, name: str, run: int, rank: int) -> None:
        program = open_program(place, spec)
        calls = [c for c in program.calls() if rank in program.steps[c.step].participants]
        with SampleWriter(sample_path(place, rank), rank) as samples:
            for iteration in range(-spec.warmup, spec.iterations):
                cycle_ns = round(1000 * self.cycle_us(name, run, rank, iteration))
                begin = (iteration + spec.warmup + 1) * 10**9
                edges = [begin + cycle_ns * i // len(calls) for i in range(len(calls) + 1)]
                for call, ready, finish in zip(calls, edges[:-1], edges[1:], strict=True):
                    samples.add(iteration, call.event, ready, ready + (finish - ready) // 10, finish, 0)
        boundaries = len(calls) * spec.probe.samples if spec.probe is not None else 0
        event, sample, ranks = self.wrong.get((name, run), (0, 0, ()))
        first = None
        if rank in ranks:
            first = Mismatch(sample, event, boundary(program.steps[calls[event].step].op, event), 0, 1, 2, 1, 64)
        samples_checked = spec.probe.samples if spec.probe is not None else 0
        write_document(marker_path(place, rank), RankMarker(
            rank=rank, status="pass", ended_ns=1, host=self.hosts.get(name, "node0"), device="CPU", versions={"python": "3", "torch": "2"},
            counts=self.counts.get(name, program.counts(rank)), payload_bytes=program.payload(rank), iterations=spec.iterations,
            samples_checked=samples_checked, boundaries_checked=boundaries, bytes_checked=64 * boundaries,
            mismatches=int(first is not None), first_mismatch=first,
        ))  # fmt: skip


def paired(text: str = "", *, repetitions: int = 6, probe: str = "", top: str = "", ranks: int = 2) -> str:
    """Return a preregistration of control and candidate with criteria from `text`."""
    return textwrap.dedent(f"""
        format = "commcanary.campaign.v1"
        name = "paired"
        question = "Is the candidate faster?"
        repetitions = {repetitions}
        order = "ABBA"
        control = "control"
        candidate = "candidate"
        {top}
        [programs]
        control = "control.json"
        candidate = "candidate.json"
        [[configurations]]
        name = "control"
        program = "control"
        ranks = {ranks}
        backend = "gloo"
        iterations = 3
        {probe}
        [[configurations]]
        name = "candidate"
        program = "candidate"
        ranks = {ranks}
        backend = "gloo"
        iterations = 3
        {probe}
        """) + textwrap.dedent(text)


@dataclass
class Lab:
    """A folder with two programs in which campaigns are made."""

    folder: Path

    @classmethod
    def at(cls, folder: Path, **control: int) -> Lab:
        """Make it: the control has the events of `write_trace`, the candidate one all-gather instead of four."""
        write_trace(folder / "control.json", **control)
        write_trace(folder / "candidate.json", all_gathers=1, ranks=control.get("ranks", 2))
        return cls(folder)

    def write(self, text: str, name: str = "campaign.toml") -> Path:
        """Write a preregistration."""
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, text: str, made: Made | None = None, out: str = "evidence/a", **options: object) -> Campaign:
        """Run a campaign."""
        (self.folder / "evidence").mkdir(exist_ok=True)
        file = self.write(text)
        return run_campaign(file, self.folder / out, start=(made or Made()).start, **options)  # type: ignore[arg-type]


def reseal(place: Path) -> None:
    """Seal evidence again after a change, as somebody would who hides it."""
    for folder in [p.parent for p in place.rglob("SHA256SUMS") if p.parent != place] + [place]:
        (folder / "SHA256SUMS").chmod(0o644)
        (folder / "SHA256SUMS").unlink()
        seal(folder)
