"""What a replay measured, read back from its directory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from commcanary_lab._shown import Shown
from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import FormatError, LaunchError, RefusedError
from commcanary_lab.limits import DEFAULT
from commcanary_lab.replay.evidence import verify_seal
from commcanary_lab.replay.fabric_spec import FABRIC_FILE, FabricSpec
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.sample_file import read_samples, sample_path
from commcanary_lab.replay.source import open_source
from commcanary_lab.replay.spec import Mismatch, RankMarker, ReplaySpec, RunState, marker_path, read_document
from commcanary_lab.trace.model import Trace
from commcanary_lab.units import format_ns

__all__ = ["LatencyRow", "ProbeVerdict", "RankRow", "Replay", "read_replay"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ProbeVerdict:
    """Whether the data of a replay were right.

    Parameters
    ----------
    status : str
        ``pass``, ``fail``, ``incomplete`` or ``not run``.
    boundary : str, optional
        The first boundary with wrong bytes: ``all_reduce #98``.
    event, sample : int, optional
        The same in numbers, from 0.
    ranks : tuple of int
        Ranks that had wrong bytes there.
    samples, boundaries, size_bytes : int
        What was compared, over all ranks.
    mismatches : int
        Boundaries with wrong bytes, over all ranks and samples.
    """

    status: Literal["pass", "fail", "incomplete", "not run"]
    boundary: str | None = None
    event: int | None = None
    sample: int | None = None
    ranks: tuple[int, ...] = ()
    samples: int = 0
    boundaries: int = 0
    size_bytes: int = 0
    mismatches: int = 0
    first: Mismatch | None = None

    @property
    def text(self) -> str:
        """The verdict in one sentence."""
        if self.status == "not run":
            return "data were not checked"
        if self.status == "fail":
            ranks = f"rank{'s' * (len(self.ranks) > 1)} {', '.join(map(str, self.ranks))}"
            return f"wrong bytes first after {self.boundary} in sample {self.sample}, on {ranks}"
        checked = f"{self.boundaries:,} boundaries and {self.size_bytes:,} bytes compared in {self.samples:,} samples"
        return f"every byte right: {checked}" if self.status == "pass" else f"not complete: {checked}"


@dataclass(frozen=True)
class LatencyRow:
    """Latency of one operation and size, over its events and the measured iterations; microseconds.

    The spread is the coefficient of variation of the median over iterations: with more ranks than cores it is large, and minimum and
    10th percentile say more than the mean would.
    """

    op: str
    size_bytes: int
    ranks: int
    count: int
    min_us: float
    p10_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    spread: float


@dataclass(frozen=True)
class RankRow:
    """Times of one rank, over its measured iterations; microseconds.

    Parameters
    ----------
    rank, events : int
        Which, and how many samples it has.
    p50_us, p99_us : float
        Quantiles of the time in an operation.
    inside_us, wait_us, between_us : float
        Sums: in operations, at the barriers before them, and between the end of one and the barrier of the next. The last is the worker's
        own time, and not a number where gaps were preserved: then the worker waits on purpose.
    bookkeeping_p50_us : float
        Median of that per event.
    """

    rank: int
    events: int
    p50_us: float
    p99_us: float
    inside_us: float
    wait_us: float
    between_us: float
    bookkeeping_p50_us: float


@dataclass(frozen=True, eq=False)
class Replay(Shown):
    """A finished replay.

    Attributes
    ----------
    directory : Path
        The evidence.
    spec : ReplaySpec
        What was asked.
    state : RunState
        How it ended.
    markers : tuple of RankMarker or None
        What each rank left.
    samples : tuple of mapping of str to ndarray
        Raw samples of each rank; columns as in `sample_file.COLUMNS`.
    notes : tuple of str
        What differs from the source, and what a reader must know.
    """

    directory: Path
    spec: ReplaySpec
    state: RunState
    markers: tuple[RankMarker | None, ...]
    samples: tuple[dict[str, IntArray], ...]
    source: Canary | Trace

    @property
    def status(self) -> str:
        """``done``, ``failed``, ``timeout`` or ``cancelled``."""
        return self.state.status

    @cached_property
    def program(self) -> Program:
        """What ran."""
        return Program.of(self.source, self.spec.ranks, skip_unsupported=self.spec.skip_unsupported)

    def raise_if_failed(self) -> None:
        """Raise where the run did not end well.

        Raises
        ------
        LaunchError
        """
        if self.status != "done":
            raise LaunchError(f"the replay {_ENDED[self.status]}: {self.state.reason}", remedy=f"what there is lies in {self.directory}")

    # -- what ran -----------------------------------------------------------------------------------------------------

    @property
    def ran_on(self) -> str:
        """Backend, ranks, devices, hosts and versions, in words."""
        known = [m for m in self.markers if m is not None]
        if not known:
            return f"{self.spec.backend}, {self.spec.ranks} ranks"
        devices = ", ".join(dict.fromkeys(m.device for m in known))
        hosts = len({m.host for m in known})
        versions = " ".join(f"{k} {v}" for k, v in known[0].versions.items())
        where = f"{hosts} host{'s' * (hosts > 1)}"
        return f"{self.spec.backend} on {self.spec.ranks} ranks of {where} ({devices}), {versions}"

    @cached_property
    def changes(self) -> tuple[str, ...]:
        """What ran differently from the source: dtypes, sizes, reductions."""
        return tuple(dict.fromkeys(c for m in self.markers if m is not None for c in m.changes))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes of the program, the links it ran on where they were shaped, changes, and what did not run."""
        fabric = self.directory / FABRIC_FILE
        links = read_document(fabric, FabricSpec) if fabric.exists() else None
        shaped = () if links is None else (f"on the lab fabric {links.name}: {links.text}",)
        dropped = tuple(f"{n:,} events did not run: {reason}" for reason, n in self.program.dropped.items())
        return (*self.program.notes, *shaped, *self.changes, *dropped)

    @cached_property
    def count_differences(self) -> tuple[str, ...]:
        """Where counts or bytes of a rank are not those of the program; nothing where all agree."""
        out = []
        for rank, marker in enumerate(self.markers):
            if marker is None or marker.status != "pass":
                continue
            grown = any("grow to" in c for c in marker.changes)
            for what, got, want in (
                ("events", marker.counts, self.program.counts(rank)), ("bytes", marker.payload_bytes, self.program.payload(rank)),
            ):  # fmt: skip
                if got != want and not (what == "bytes" and grown):
                    out.append(f"rank {rank}: {what} {got}, the program has {want}")
        return tuple(out)

    # -- what was measured --------------------------------------------------------------------------------------------

    @cached_property
    def events(self) -> IntArray:
        """Events that ran, shape (e,)."""
        return np.array([c.event for c in self.program.calls()], np.int64)

    @cached_property
    def steps(self) -> IntArray:
        """Step of each event that ran, shape (e,)."""
        return np.array([c.step for c in self.program.calls()], np.int64)

    @property
    def iterations(self) -> int:
        """Measured iterations that all ranks completed."""
        return min((m.iterations for m in self.markers if m is not None and m.status == "pass"), default=0)

    @cached_property
    def _dense(self) -> dict[str, IntArray]:
        """Columns of the complete iterations, shape (ranks, iterations, e); -1 where a rank takes no part."""
        n, e = self.iterations, len(self.events)
        out = {name: np.full((self.spec.ranks, n, e), -1, np.int64) for name in ("ready_ns", "start_ns", "finish_ns", "overlap_ns")}
        for rank, columns in enumerate(self.samples):
            keep = (columns["iteration"] >= 0) & (columns["iteration"] < n)
            at = np.searchsorted(self.events, columns["event"][keep])
            for name, target in out.items():
                target[rank, columns["iteration"][keep], at] = columns[name][keep]
        return out

    @cached_property
    def latency_ns(self) -> IntArray:
        """Latency of each event in each measured iteration, shape (iterations, e).

        On one host, whose processes share a clock: the last finish minus the last start. Over hosts: the time on the rank that was
        in the operation for the shortest time, which is the one that came last.
        """
        return self._since(self._dense["start_ns"])

    @cached_property
    def exposed_ns(self) -> IntArray:
        """What of the latency no compute hid, shape (iterations, e): as the latency, from the end of the compute beside it."""
        d = self._dense
        return self._since(np.maximum(np.minimum(d["overlap_ns"], d["finish_ns"]), d["start_ns"]))

    def _since(self, begin: IntArray) -> IntArray:
        finish = self._dense["finish_ns"]
        if len({m.host for m in self.markers if m is not None}) <= 1:
            return np.asarray(finish.max(axis=0) - begin.max(axis=0), np.int64)
        return np.asarray(np.where(begin >= 0, finish - begin, np.iinfo(np.int64).max).min(axis=0), np.int64)

    @cached_property
    def cycle_ns(self) -> IntArray:
        """Time of each measured iteration on its slowest rank, shape (iterations,)."""
        ready, finish = self._dense["ready_ns"], self._dense["finish_ns"]
        first = np.where(ready >= 0, ready, np.iinfo(np.int64).max).min(axis=2)
        return np.asarray((finish.max(axis=2) - first).max(axis=0), np.int64)

    def bookkeeping_ns(self, rank: int) -> IntArray:
        """Time between an event's end and the next one's barrier on a rank: what the worker itself takes. Back to back only.

        Raises
        ------
        RefusedError
            Where gaps were preserved: then the worker waits on purpose.
        """
        if self.spec.timing != "back_to_back":
            raise RefusedError("the worker waits between events on purpose", remedy="replay back to back")
        c = self.samples[rank]
        keep = c["iteration"] >= 0
        same = np.diff(c["iteration"][keep]) == 0
        return np.asarray((c["ready_ns"][keep][1:] - c["finish_ns"][keep][:-1])[same], np.int64)

    @cached_property
    def kinds(self) -> dict[tuple[str, int, int], BoolArray]:
        """Operation, size and ranks that take part, each with the events that are so: a mask over `events`."""
        numbers: dict[tuple[str, int, int], list[int]] = {}
        for number, step in enumerate(self.program.steps):
            if step is not None:
                numbers.setdefault((step.op, step.size_bytes, len(step.participants)), []).append(number)
        return {kind: np.isin(self.steps, of) for kind, of in numbers.items()}

    @cached_property
    def latencies(self) -> tuple[LatencyRow, ...]:
        """Latencies by operation, size and group size, longest share first."""
        out = []
        for (op, size, k), of in self.kinds.items():
            values = self.latency_ns[:, of] / 1000
            if values.size:
                low, p10, p50, p95, p99 = (float(v) for v in np.quantile(values, [0, 0.1, 0.5, 0.95, 0.99]))
                out.append(LatencyRow(op, size, k, values.size, low, p10, p50, p95, p99, _spread(values)))
        return tuple(sorted(out, key=lambda r: (-r.count * r.p50_us, r.op, r.size_bytes)))

    @cached_property
    def ranks(self) -> tuple[RankRow, ...]:
        """Times of each rank: in the operation, waiting at barriers, and between events."""
        out = []
        for rank, c in enumerate(self.samples):
            keep = c["iteration"] >= 0
            if not keep.any():
                continue
            inside = (c["finish_ns"] - c["start_ns"])[keep] / 1000
            wait = float((c["start_ns"] - c["ready_ns"])[keep].sum() / 1000)
            between, median = float("nan"), float("nan")
            if self.spec.timing == "back_to_back" and len(own := self.bookkeeping_ns(rank) / 1000):
                between, median = float(own.sum()), float(np.median(own))
            p50, p99 = (float(q) for q in np.quantile(inside, [0.5, 0.99]))
            out.append(RankRow(rank, int(keep.sum()), p50, p99, float(inside.sum()), wait, between, median))
        return tuple(out)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Figures of all events: p50, p95 and p99 of the latency and of its exposed part, and the cycle time; microseconds."""
        if not self.latency_ns.size:
            return {}
        lat, exposed = self.latency_ns / 1000, self.exposed_ns / 1000
        out = {f"latency_p{q}_us": float(np.quantile(lat, q / 100)) for q in (50, 95, 99)}
        out |= {f"exposed_p{q}_us": float(np.quantile(exposed, q / 100)) for q in (50, 95, 99)}
        return out | {"cycle_min_us": float(self.cycle_ns.min() / 1000), "cycle_p50_us": float(np.median(self.cycle_ns) / 1000)}

    @cached_property
    def probe(self) -> ProbeVerdict:
        """Whether the data were right."""
        asked = self.spec.probe
        if asked is None:
            return ProbeVerdict("not run")
        known = [m for m in self.markers if m is not None]
        samples = min((m.samples_checked for m in known), default=0)
        counts = (sum(m.boundaries_checked for m in known), sum(m.bytes_checked for m in known), sum(m.mismatches for m in known))
        wrong = [(m.first_mismatch, m.rank) for m in known if m.first_mismatch is not None]
        if wrong:
            first, _ = min(wrong, key=lambda w: (w[0].sample, w[0].event, w[1]))
            ranks = tuple(r for w, r in wrong if (w.sample, w.event) == (first.sample, first.event))
            return ProbeVerdict("fail", first.boundary, first.event, first.sample, ranks, samples, *counts, first)
        complete = len(known) == self.spec.ranks and samples == asked.samples and all(m.status == "pass" for m in known)
        return ProbeVerdict("pass" if complete else "incomplete", None, None, None, (), samples, *counts)

    def verify(self) -> list[str]:
        """Return what is not as it was sealed: changed, missing and added files."""
        return verify_seal(self.directory)

    def __repr__(self) -> str:
        return f"Replay({self.status}, {self.ran_on}, {self.iterations} iterations of {self.program.runs:,} events, {self.probe.status})"

    def _repr_html_(self) -> str:
        head = "<tr><th>operation</th><th>B</th><th>ranks</th><th>count</th><th>min</th><th>p50</th><th>p99</th></tr>"
        rows = ""
        for r in self.latencies[:12]:
            times = "".join(f"<td>{format_ns(int(1000 * us))}</td>" for us in (r.min_us, r.p50_us, r.p99_us))
            rows += f"<tr><td>{escape(r.op)}</td><td>{r.size_bytes:,}</td><td>{r.ranks}</td><td>{r.count:,}</td>{times}</tr>"
        notes = "".join(f"<li>{escape(n)}</li>" for n in self.notes)
        return (
            f"<p><b>Replay</b>: {escape(self.status)}, measured; {escape(self.ran_on)}. Probe: {escape(self.probe.text)}.</p>"
            f"<table>{head}{rows}</table><ul>{notes}</ul>"
        )


_ENDED = {"failed": "failed", "timeout": "ran out of time", "cancelled": "was cancelled"}


def _spread(values: npt.NDArray[Any]) -> float:
    medians = np.median(values, axis=1)
    return float(medians.std(ddof=1) / medians.mean()) if len(medians) > 1 and medians.mean() > 0 else float("nan")


def read_replay(directory: str | Path) -> Replay:
    """Read the directory of a replay, finished or not.

    Raises
    ------
    FormatError
        If it is not the directory of a replay.
    """
    place = Path(directory)
    spec = read_document(place / "run.json", ReplaySpec)
    if not 1 <= spec.ranks <= DEFAULT.max_ranks:
        remedy = "the directory was changed: read a copy of it"
        raise FormatError(f"names {spec.ranks} ranks", file=str(place / "run.json"), field="ranks", remedy=remedy)
    try:
        state = read_document(place / "result.json", RunState)
    except FormatError:
        if (place / "result.json").exists():
            raise
        state = RunState(status="failed", seconds=0.0, reason="the run has not ended, or its launcher was killed")
    markers: list[RankMarker | None] = []
    samples = []
    for rank in range(spec.ranks):
        marker = marker_path(place, rank)
        markers.append(read_document(marker, RankMarker) if marker.exists() else None)
        try:
            samples.append(read_samples(sample_path(place, rank))[0])
        except FormatError:
            samples.append({})
    empty: dict[str, IntArray] = dict.fromkeys(
        ("iteration", "event", "ready_ns", "start_ns", "finish_ns", "overlap_ns"), np.zeros(0, np.int64)
    )
    return Replay(place, spec, state, tuple(markers), tuple(s or empty for s in samples), open_source(place, spec))
