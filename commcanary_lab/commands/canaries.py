"""Verbs on canaries: compile, simulate, verify."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from commcanary_lab.commands.inputs import (
    Assume,
    BackendsFile,
    Json,
    SaltFile,
    check_output,
    load_artifact,
    load_backends_file,
    load_trace,
    parse_range,
    read_salt,
)
from commcanary_lab.commands.output import busy, emit_json, say, table
from commcanary_lab.units import format_us

if TYPE_CHECKING:
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.simulate.report import Report
    from commcanary_lab.trace.model import Trace
    from commcanary_lab.verify.model import Check

__all__ = ["register"]

_Trace = Annotated[Path, typer.Argument(help="The source: a file or a directory of ranks.", show_default=False)]


def _budget(name: str, what: str) -> Any:
    unit = "" if name == "pressure" else "-us"
    return typer.Option(f"--max-{name.replace('_', '-')}-error{unit}", help=f"Error budget of the {what}.", rich_help_panel="Error budgets")


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command("compile")(compile_)
    app.command()(simulate)
    app.command()(verify)


def compile_(
    trace: _Trace,
    output: Annotated[Path, typer.Option("-o", "--output", help="The canary file; - for standard output.", show_default=False)],
    lossless: Annotated[bool, typer.Option("--lossless", help="Exact timing (the default without records and budgets).")] = False,
    records: Annotated[int | None, typer.Option("--records", help="At most this many intervals per step stream.")] = None,
    events: Annotated[str | None, typer.Option("--events", metavar="LO:HI", help="Range of source events.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse unknown fields, and verify before writing.")] = False,
    salt_file: SaltFile = None,
    gap: Annotated[float | None, _budget("gap", "gap before an event")] = None,
    prefix_gap: Annotated[float | None, _budget("prefix_gap", "running sum of gaps in an interval")] = None,
    skew: Annotated[float | None, _budget("skew", "arrival skew")] = None,
    arrival: Annotated[float | None, _budget("arrival", "arrival offset of a rank")] = None,
    compute_before: Annotated[float | None, _budget("compute_before", "compute before an event")] = None,
    overlap: Annotated[float | None, _budget("overlap", "overlapping compute")] = None,
    observed_exposed: Annotated[float | None, _budget("observed_exposed", "observed exposed latency")] = None,
    pressure: Annotated[float | None, _budget("pressure", "compute pressure")] = None,
    json: Json = False,
) -> None:
    """Compile a trace into a canary: exact by default, or bounded by records or error budgets."""
    import sys

    from commcanary_lab.canary.compile import compile_trace
    from commcanary_lab.canary.read import write_canary
    from commcanary_lab.errors import UsageError

    budgets = {
        "gap": gap,
        "prefix_gap": prefix_gap,
        "skew": skew,
        "arrival": arrival,
        "compute_before": compute_before,
        "overlap": overlap,
        "observed_exposed": observed_exposed,
        "pressure": pressure,
    }
    given = {name: value for name, value in budgets.items() if value is not None}
    if lossless and (records is not None or given):
        raise UsageError("--lossless excludes --records and error budgets", remedy="give one of them")
    to_stdout = str(output) == "-"
    if to_stdout and json:
        raise UsageError("-o - and --json both want standard output", remedy="write the canary to a file")
    check_output(output, trace, *([] if salt_file is None else [salt_file]))
    source = load_trace([trace])
    salt = read_salt(salt_file)
    with busy("compiling"):
        canary = compile_trace(source, records=records, budgets=given, events=parse_range(events, "--events"), salt=salt, strict=strict)
    if strict:
        _verify_strictly(source, canary, salt, json=json, to_stdout=to_stdout)
    if to_stdout:
        sys.stdout.buffer.write(canary.canonical + b"\n")
        return
    write_canary(canary, output)
    if json:
        emit_json(_compiled_json(canary))
    else:
        _print_compiled(canary, output)


def _compiled_json(canary: Canary) -> dict[str, Any]:
    return {
        "source_events": canary.source.events,
        "events": canary.event_count,
        "canary_records": canary.records,
        "event_ratio": canary.event_ratio,
        "source_bytes": canary.source.size_bytes,
        "canary_bytes": canary.size_bytes,
        "byte_ratio": canary.byte_ratio,
        "timing": canary.timing,
        "errors": _errors_us(canary.errors),
        "root": canary.source.root,
        "sha256": canary.identity,
        "notes": list(canary.notes),
    }


def _print_compiled(canary: Canary, output: Path) -> None:
    say(
        f"{output}: {canary.event_count:,} events in {canary.records:,} records ({canary.event_ratio:.3g} x), "
        f"{canary.size_bytes:,} of {canary.source.size_bytes:,} bytes ({canary.byte_ratio:.3g} x), {canary.timing}"
    )
    if canary.timing != "lossless":
        table(
            ["field", "largest error"],
            [[n.removesuffix("_ns"), f"{v:g}" if n == "pressure" else format_us(v / 1000)] for n, v in canary.errors.items()],
        )
    for note in canary.notes:
        say(f"note: {note}")


def _errors_us(errors: Any) -> dict[str, float]:
    return {(n if n == "pressure" else n.replace("_ns", "_us")): (v if n == "pressure" else v / 1000) for n, v in errors.items()}


def _verify_strictly(source: Trace, canary: Canary, salt: bytes, *, json: bool, to_stdout: bool) -> None:
    """Refuse a canary that does not verify, and show every check that failed."""
    import sys

    from commcanary_lab.errors import BudgetError
    from commcanary_lab.verify.run import verify_canary

    check = verify_canary(source, canary, salt=salt)
    if check.passed:
        return
    failed = [c for c in check.failures if c.status != "coverage"]  # a range is no failure
    if json:
        emit_json({**check.to_json(), "written": False})
    else:
        # standard output was asked for the canary: the table must not look like one
        _print_checks(failed, check.backends, sys.stderr if to_stdout else sys.stdout)
    raise BudgetError(
        f"strict compile wrote nothing: {len(failed)} of {len(check.checks)} checks failed, first {failed[0]}",
        remedy="allow more records, or raise the budgets",
    )


def _print_checks(checks: Sequence[Check], backends: Sequence[str], file: TextIO | None = None) -> None:
    """Print checks with both values: those of no backend, then each backend's, then those of pairs of backends."""
    places: dict[str | None, int] = {None: 0, **{label: i + 1 for i, label in enumerate(backends)}}
    rows = sorted(checks, key=lambda c: places.get(c.backend, len(places)))
    table(
        ["status", "check", "on", "source", "canary", ""],
        [[c.status, c.name, c.backend, c.source, c.canary, _mark(c)] for c in rows],
        file=file,
    )


def simulate(
    source: Annotated[Path, typer.Argument(help="A canary or a trace.", show_default=False)],
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            help="A name, or key=value,... over the defaults (bandwidth_gbps, latency_floor_us, "
            "compute_pressure, overlap_efficiency, iterations, seed).",
        ),
    ] = "baseline",
    backends: BackendsFile = None,
    model: Annotated[str, typer.Option("--model", help="Cost model: commcanary-v4 or alpha-beta.")] = "commcanary-v4",
    ablate: Annotated[list[str] | None, typer.Option("--ablate", help="Mechanism to remove (repeatable).")] = None,
    assume: Assume = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write the report; - for standard output.")] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Include one sample per event.")] = False,
    json: Json = False,
) -> None:
    """Run a canary or a trace through the model on one backend."""
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.canonical import canonical_bytes, write_atomic
    from commcanary_lab.errors import UsageError
    from commcanary_lab.simulate.backend import parse_ablations, parse_backend
    from commcanary_lab.simulate.prepare import parse_assumptions, prepare
    from commcanary_lab.simulate.report import simulate_prepared
    from commcanary_lab.simulate.workload import hashed_beside

    to_stdout = str(output) == "-"
    if to_stdout and json:
        raise UsageError("-o - and --json both want standard output", remedy="give one of them")
    check_output(output, source)
    chosen = parse_backend(backend, load_backends_file(backends))
    ablations = parse_ablations(ablate or [])
    assumed = parse_assumptions(assume or "")
    artifact = load_artifact(source)
    trace = artifact.trace if isinstance(artifact, Canary) else artifact
    with busy("simulating"):
        prepared = prepare(trace, assumed)
        with hashed_beside(prepared):
            report = simulate_prepared(prepared, chosen, ablations=ablations, model=model)
    document = report.to_json(samples=samples)
    document["source"] = {"canary": artifact.identity} if isinstance(artifact, Canary) else {"trace": source.name}
    if to_stdout:
        say(canonical_bytes(document).decode("ascii"))
        return
    if output is not None:
        write_atomic(output, canonical_bytes(document) + b"\n")
    if json:
        emit_json(document)
        return
    _print_report(report)


def _print_report(report: Report) -> None:
    m = report.metrics
    say(
        f"{report.backend.label} ({report.model}, {report.origin}): "
        f"exposed p50 {m['median_us']} us, p95 {m['p95_us']} us, p99 {m['p99_us']} us, "
        f"max {m['max_us']} us, mean {m['mean_us']} us; hidden {m['communication_hidden_pct']} %"
    )
    rows = [["phase", *_summary(n, s)] for n, s in report.by_phase.items()] + [["op", *_summary(n, s)] for n, s in report.by_op.items()]
    table(["", "name", "count", "p50 us", "p95 us", "p99 us", "max us", "mean us"], rows)
    if report.ablations:
        say(f"without {', '.join(report.ablations)}: a simulator control, not a physical intervention")
    for name, value in report.assumptions.items():
        say(f"assumed: {name} = {value:g}")
    for note in report.notes:
        say(f"note: {note}")


def _summary(name: str, s: Any) -> list[Any]:
    return [name, s.count, s.median_us, s.p95_us, s.p99_us, s.max_us, s.mean_us]


def verify(
    trace: _Trace,
    canary: Annotated[Path, typer.Argument(help="The canary.", show_default=False)],
    backends: BackendsFile = None,
    salt_file: SaltFile = None,
    assume: Assume = None,
    relative: Annotated[float, typer.Option("--relative", help="Relative tolerance of latencies.")] = 0.10,
    absolute_us: Annotated[float, typer.Option("--absolute-us", help="Absolute tolerance of latencies.")] = 1.0,
    hidden_points: Annotated[float, typer.Option("--hidden-points", help="Tolerance of the hidden share, percentage points.")] = 5.0,
    tail_recall: Annotated[float, typer.Option("--tail-recall", help="Smallest share of tail events kept.")] = 0.80,
    all_checks: Annotated[bool, typer.Option("--all", help="Print every check, not only the failed ones.")] = False,
    json: Json = False,
) -> None:
    """Verify a canary against its source; exits 1 when a status failed or is unverified."""
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.errors import InputError
    from commcanary_lab.simulate.prepare import parse_assumptions
    from commcanary_lab.verify.model import Tolerances
    from commcanary_lab.verify.run import verify_canary

    artifact = load_artifact(canary)
    if not isinstance(artifact, Canary):
        raise InputError("is a trace, not a canary", file=str(canary), remedy="the order is: verify TRACE CANARY")
    source = load_trace([trace])
    tolerances = Tolerances(relative=relative, absolute_us=absolute_us, hidden_points=hidden_points, tail_recall=tail_recall)
    with busy("verifying"):
        check = verify_canary(
            source,
            artifact,
            backends=load_backends_file(backends),
            salt=read_salt(salt_file),
            tolerances=tolerances,
            assume=parse_assumptions(assume or ""),
        )
    if json:
        emit_json(check.to_json())
    else:
        table(["status", "value"], [[n, v] for n, v in check.statuses.items()])
        say(f"ranking decisions kept: {check.decisions_kept} of {check.decisions_total}")
        say(f"claim: {check.claim} - {check.claim_reason}")
        shown = check.checks if all_checks else check.failures
        if shown:
            _print_checks(shown[: None if all_checks else 20], check.backends)
            if not all_checks and len(shown) > 20:
                say(f"... and {len(shown) - 20} more failed checks (--all)")
        if source.notes:
            say("\n".join(f"note: {n}" for n in source.notes))
    if not check.passed:
        raise typer.Exit(1)


def _mark(check: Check) -> str:
    """A part of a source is no failure; everything else that does not pass is."""
    if check.passed:
        return ""
    return "partial" if check.status == "coverage" else "FAILED"
