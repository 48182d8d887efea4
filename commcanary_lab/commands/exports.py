"""The verb export: canaries and traces in the formats of other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Json, LayoutFile, check_output, load_artifact, load_events, load_layout
from commcanary_lab.commands.matrices import Algorithm_, GpusPerNode, RingOrder_, parse_algorithm, parse_order
from commcanary_lab.commands.output import busy, emit_json, say
from commcanary_lab.errors import UsageError
from commcanary_lab.units import format_bytes

if TYPE_CHECKING:
    from commcanary_lab.export import Export

__all__ = ["register"]

KINDS = {
    "param": "PARAM's basic trace, one file per rank",
    "param-et": "execution traces that PARAM replays",
    "chakra": "Chakra execution traces",
    "nccl-tests": "matrix files of an all-to-all-v benchmark",
    "perfetto": "a timeline for ui.perfetto.dev",
    "events-csv": "a table of the events",
}
#: Kinds that write one file, and its name in a directory.
_FILES = {"perfetto": "timeline.json", "events-csv": "events.csv"}
#: Options that only some kinds take.
_TAKES = {
    "--algorithm": ("nccl-tests",), "--ring-order": ("nccl-tests",), "--gpus-per-node": ("nccl-tests",), "--layout": ("nccl-tests",),
    "--skip-unsupported": ("param", "param-et", "chakra", "nccl-tests"), "--assume": ("param", "param-et", "perfetto"),
    "--times": ("perfetto",), "--backend": ("perfetto",),
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command()(export)


def export(
    kind: Annotated[str, typer.Argument(help="; ".join(f"{k}: {v}" for k, v in KINDS.items()) + ".", show_default=False)],
    source: Annotated[Path, typer.Argument(help="Canary or trace.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Directory; for one file also its name, or - for standard output.", show_default=False),
    ],
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Leave out what the format cannot say, and list it.")
    ] = False,
    assume: Annotated[
        str | None,
        typer.Option(
            "--assume", metavar="F=V,...", help="Values for unknown fields: dtype=uint8,root=first (param); skew_us=0,... (perfetto)."
        ),
    ] = None,
    times: Annotated[str | None, typer.Option("--times", help="perfetto: measured or simulated; measured where there are any.")] = None,
    backend: Annotated[str | None, typer.Option("--backend", help="perfetto: simulated backend, a name or key=value,...")] = None,
    algorithm: Algorithm_ = None,
    ring_order: RingOrder_ = None,
    gpus_per_node: GpusPerNode = None,
    layout: LayoutFile = None,
    json: Json = False,
) -> None:
    """Write a canary or a trace in the format of another tool."""
    if kind not in KINDS:
        raise UsageError(f"there is no export {kind!r}", remedy=f"there is: {', '.join(KINDS)}")
    given = {"--algorithm": algorithm, "--ring-order": ring_order, "--gpus-per-node": gpus_per_node, "--layout": layout,
             "--skip-unsupported": skip_unsupported or None, "--assume": assume, "--times": times, "--backend": backend}  # fmt: skip
    for option, value in given.items():
        if value is not None and kind not in _TAKES[option]:
            raise UsageError(f"{kind} takes no {option}", remedy=f"it is for: {', '.join(_TAKES[option])}")
    if str(output) == "-" and (json or kind not in _FILES):
        why = "-o - and --json both want standard output" if json else f"{kind} writes several files"
        raise UsageError(why, remedy="give one of them" if json else "name a directory")
    if kind == "nccl-tests":
        _matrix_files(source, output, algorithm, ring_order, gpus_per_node, layout, skip_unsupported, json)
        return
    check_output(output if kind in _FILES and str(output) != "-" else None, source)
    artifact = load_artifact(source)
    with busy("exporting"):
        done = _export(kind, artifact, output, skip_unsupported, assume, times, backend)
    if str(output) != "-":
        _print(done, json)


def _export(kind: str, artifact: Any, output: Path, skip: bool, assume: str | None, times: str | None, backend: str | None) -> Export:
    from commcanary_lab import export as kinds

    if kind == "param":
        return kinds.export_param(artifact, output, skip_unsupported=skip, assume=_assumed(assume))
    if kind == "param-et":
        return kinds.export_param_et(artifact, output, skip_unsupported=skip, assume=_assumed(assume))
    if kind == "chakra":
        return kinds.export_chakra(artifact, output, skip_unsupported=skip)
    target = sys.stdout.buffer if str(output) == "-" else _file(output, _FILES[kind])
    if kind == "events-csv":
        return kinds.export_events_csv(artifact, target)
    from commcanary_lab.simulate.backend import parse_backend
    from commcanary_lab.simulate.prepare import parse_assumptions

    chosen = None if backend is None else parse_backend(backend)
    return kinds.export_perfetto(artifact, target, times=times or "auto", backend=chosen, assume=parse_assumptions(assume or ""))


def _file(output: Path, name: str) -> Path:
    """The file to write: as named, or under its usual name in a directory."""
    named = output.name.removesuffix(".gz").endswith(Path(name).suffix) and not output.is_dir()
    return output if named else output / name


def _assumed(text: str | None) -> dict[str, str]:
    out = {}
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        name, sign, value = part.partition("=")
        if not sign:
            raise UsageError(f"{part!r} is not FIELD=VALUE", remedy="write for example --assume dtype=uint8")
        out[name] = value
    return out


def _print(done: Export, json: bool) -> None:
    if json:
        emit_json(done.to_json())
        return
    whole = f"{done.events:,} events" + (f" as {done.entries:,} entries" if done.entries != done.events else "")
    say(f"{whole} of {done.ranks} ranks")
    for s in done.skipped:
        say(f"left out: {s.events} {s.op} ({format_bytes(s.size_bytes)}), first event {s.first_event}: {s.reason}")
    for note in done.notes:
        say(f"note: {note}")
    if len(done.files) > 4:
        say(f"wrote {len(done.files)} files, {done.files[0]} to {done.files[-1].name}")
    else:
        for file in done.files:
            say(f"wrote {file}")


def _matrix_files(
    source: Path,
    output: Path,
    algorithm: str | None,
    ring_order: str | None,
    gpus_per_node: int | None,
    layout: Path | None,
    skip: bool,
    json: bool,
) -> None:
    from commcanary_lab.export import export_nccl_tests
    from commcanary_lab.traffic import build_matrix

    trace = load_events([source], layout=layout)
    m = build_matrix(
        trace,
        algorithm=parse_algorithm(algorithm),
        ring_order=parse_order(ring_order),
        gpus_per_node=gpus_per_node,
        layout=load_layout(layout),
    )
    done = export_nccl_tests(m, output, skip_unsupported=skip)
    if json:
        emit_json(
            {
                "entries": done.entries,
                "skipped": [{"reason": reason, "bytes": size} for reason, size in done.skipped],
                "ranks": done.ranks,
                "size_bytes": done.size_bytes,
                "files": [str(f) for f in done.files],
                "notes": list(m.notes),
            }
        )
        return
    say(f"{done.entries:,} pairs of {done.ranks} ranks; run the benchmark at a size of {done.size_bytes} bytes")
    for reason, size in done.skipped:
        say(f"left out: {format_bytes(size)} {reason}")
    for file in done.files:
        say(f"wrote {file}")
