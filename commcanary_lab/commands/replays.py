"""Verbs on real process groups: replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Json, load_artifact
from commcanary_lab.commands.output import emit_json, progress, say, table
from commcanary_lab.units import format_bytes, format_us

if TYPE_CHECKING:
    from commcanary_lab.replay.result import Replay
    from commcanary_lab.replay.spec import Fault, ProbeAsked

__all__ = ["register"]

_PROBE = "Correctness probe"
_SCALE = "Where it runs"


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command()(replay)


def replay(
    canary: Annotated[Path, typer.Argument(help="A canary or a trace.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="New directory for the evidence; a temporary one by default.", show_default=False)
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="Processes; all of the program's by default.", rich_help_panel=_SCALE)
    ] = None,
    backend: Annotated[str, typer.Option("--backend", help="gloo, nccl, or auto: NCCL where there is a GPU per rank.")] = "auto",
    timing: Annotated[str, typer.Option("--timing", help="back-to-back, or preserve: events wait for their time.")] = "back-to-back",
    barrier: Annotated[bool, typer.Option(help="A barrier before each event, so that no latency contains a wait for a late rank.")] = True,
    overlap: Annotated[bool, typer.Option("--overlap", help="Compute beside the collectives as long as the source says.")] = False,
    iterations: Annotated[int, typer.Option("--iterations", help="Measured runs of the program.")] = 5,
    warmup: Annotated[int, typer.Option("--warmup", help="Runs before that are not measured.")] = 1,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which the run is ended.")] = 600.0,
    probe: Annotated[
        bool, typer.Option("--probe", help="Compare every byte with an independent reference.", rich_help_panel=_PROBE)
    ] = False,
    epochs: Annotated[int, typer.Option("--epochs", help="Epochs of the probe.", rich_help_panel=_PROBE)] = 1,
    replays: Annotated[int, typer.Option("--replays", help="Runs per epoch, each with inputs of its own.", rich_help_panel=_PROBE)] = 2,
    probe_mode: Annotated[
        str, typer.Option("--probe-mode", help="eager; on CUDA also graph and segmented.", rich_help_panel=_PROBE)
    ] = "eager",
    fault: Annotated[
        str | None,
        typer.Option(
            "--fault", metavar="KIND:EVENT:SAMPLE[:RANKS]", help="Damage for a test: stale, swap or flip.", rich_help_panel=_PROBE
        ),
    ] = None,
    fabric: Annotated[
        Path | None, typer.Option("--fabric", help="Lab fabric (TOML): ranks in network namespaces, rates shaped.", rich_help_panel=_SCALE)
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Do not run: write the directory and a Slurm script.", rich_help_panel=_SCALE)
    ] = None,
    skip_unsupported: Annotated[bool, typer.Option("--skip-unsupported", help="Leave out operations that no backend runs.")] = False,
    note: Annotated[str, typer.Option("--note", help="Kept in the evidence.")] = "",
    json: Json = False,
) -> None:
    """Run a canary's program on real ranks: measured latencies, and on demand every byte checked."""
    import tempfile

    from commcanary_lab.errors import UsageError
    from commcanary_lab.replay.launch import need_torch
    from commcanary_lab.replay.result import read_replay
    from commcanary_lab.replay.run import execute, prepare

    need_torch()
    asked = _probe(probe, epochs, replays, probe_mode, fault)
    if fabric is not None and nodes is not None:
        raise UsageError("--fabric makes a network on this host, --nodes is for several", remedy="give one of them")
    if nodes is not None and output is None:
        raise UsageError("--nodes needs a directory", remedy="name it with -o")
    start = _fabric_start(fabric)
    source = load_artifact(canary)
    place = output if output is not None else Path(tempfile.mkdtemp(prefix="commcanary-replay-"))
    spec = prepare(
        source, place, ranks=ranks, backend=backend, nodes=nodes, timing=timing.replace("-", "_"), barrier=barrier, overlap=overlap,
        iterations=iterations, warmup=warmup, timeout_s=timeout, probe=asked, skip_unsupported=skip_unsupported, note=note,
    )  # fmt: skip
    if nodes is not None:
        emit_json({"directory": str(place), "script": str(place / "replay.sbatch")}) if json else say(
            f"{place}: prepared for {spec.ranks} ranks on {nodes} nodes; copy it to where all nodes see it, then: sbatch replay.sbatch"
        )
        return
    with progress("starting the ranks") as tell:
        execute(place, spec, progress=(lambda now: tell(now.phase, now.done, now.total)) if tell is not None else None, start=start)
    result = read_replay(place)
    result.raise_if_failed()
    if json:
        emit_json(_document(result))
    else:
        _print(result)
    if result.probe.status == "fail" or result.count_differences:
        raise typer.Exit(1)


def _fabric_start(fabric: Path | None) -> Any:
    if fabric is None:
        return None
    from commcanary_lab.replay.lab_fabric import fabric_start

    return fabric_start(fabric)


def _probe(wanted: bool, epochs: int, replays: int, mode: str, fault: str | None) -> ProbeAsked | None:
    from commcanary_lab.errors import UsageError
    from commcanary_lab.replay.spec import PROBE_MODES, ProbeAsked

    if mode not in PROBE_MODES:
        raise UsageError(f"there is no probe mode {mode!r}", remedy=f"choose {', '.join(PROBE_MODES)}")
    if epochs < 1 or replays < 1:
        raise UsageError("a probe needs at least one epoch of one replay", remedy="raise --epochs or --replays")
    if not wanted:
        if fault is not None:
            raise UsageError("--fault damages the data of a probe", remedy="add --probe")
        return None
    return ProbeAsked(epochs, replays, mode, None if fault is None else _fault(fault))  # type: ignore[arg-type]


def _fault(text: str) -> Fault:
    from commcanary_lab.errors import UsageError
    from commcanary_lab.replay.spec import FAULTS, Fault

    kind, *numbers = text.split(":")
    try:
        event, sample = int(numbers[0]), int(numbers[1])
        ranks = tuple(int(r) for r in numbers[2].split(",")) if len(numbers) > 2 else ()
    except (ValueError, IndexError):
        raise UsageError(f"--fault {text!r} is not KIND:EVENT:SAMPLE[:RANKS]", remedy="for example stale:97:2 or flip:3:0:1,2") from None
    if kind not in FAULTS or len(numbers) > 3:
        raise UsageError(f"there is no damage {kind!r}", remedy=f"choose {', '.join(FAULTS)}")
    return Fault(kind, event, sample, ranks)  # type: ignore[arg-type]


def _document(r: Replay) -> dict[str, Any]:
    import msgspec

    p = r.probe
    return {
        "status": r.status,
        "ran_on": r.ran_on,
        "origin": "measured",
        "ranks": r.spec.ranks,
        "source_ranks": r.spec.source_ranks,
        "events": r.program.runs,
        "dropped": r.program.dropped,
        "iterations": r.iterations,
        "metrics": r.metrics,
        "latencies": [
            {"op": x.op, "size_bytes": x.size_bytes, "ranks": x.ranks, "count": x.count, "min_us": x.min_us, "p10_us": x.p10_us,
             "p50_us": x.p50_us, "p95_us": x.p95_us, "p99_us": x.p99_us, "spread": x.spread}
            for x in r.latencies
        ],
        "per_rank": [
            {"rank": x.rank, "events": x.events, "p50_us": x.p50_us, "p99_us": x.p99_us, "wait_us": x.wait_us,
             "bookkeeping_p50_us": x.bookkeeping_p50_us}
            for x in r.ranks
        ],
        "counts": {str(m.rank): m.counts for m in r.markers if m is not None},
        "payload_bytes": {str(m.rank): m.payload_bytes for m in r.markers if m is not None},
        "count_differences": list(r.count_differences),
        "probe": {
            "status": p.status, "failure_boundary": p.boundary, "event": p.event, "sample": p.sample, "ranks": list(p.ranks),
            "samples": p.samples, "boundaries": p.boundaries, "bytes": p.size_bytes, "mismatches": p.mismatches,
            "first_failure": None if p.first is None else msgspec.to_builtins(p.first),
        },
        "notes": list(r.notes),
        "evidence": str(r.directory),
    }  # fmt: skip


def _print(r: Replay) -> None:
    say(f"{r.program.runs:,} events, {r.iterations} measured iterations; {r.ran_on}")
    table(
        ["op", "B", "ranks", "count", "min", "p10", "p50", "p95", "p99", "spread"],
        [[x.op, format_bytes(x.size_bytes), x.ranks, x.count, *(format_us(v) for v in (x.min_us, x.p10_us, x.p50_us, x.p95_us, x.p99_us)),
          f"{100 * x.spread:.0f} %" if x.spread == x.spread else ""] for x in r.latencies],
    )  # fmt: skip
    m = r.metrics
    if m:
        say(f"cycle: fastest {format_us(m['cycle_min_us'])}, median {format_us(m['cycle_p50_us'])}")
    say(f"probe: {r.probe.text}")
    for line in r.count_differences:
        say(f"differs from the program: {line}")
    for note in r.notes:
        say(f"note: {note}")
    say(f"evidence: {r.directory}")
