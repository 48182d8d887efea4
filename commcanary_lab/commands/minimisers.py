"""Verbs that minimise: reduce, search, pareto, baseline, contrast, verify-ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import (
    Assume,
    BackendsFile,
    Json,
    SaltFile,
    load_artifact,
    load_backends_file,
    load_trace,
    parse_range,
    read_salt,
)
from commcanary_lab.commands.output import busy, emit_json, progress, say, table
from commcanary_lab.errors import UsageError, naming

if TYPE_CHECKING:
    from commcanary_lab.minimize.search import Progress

__all__ = ["register"]

_Trace = Annotated[Path, typer.Argument(help="The source: a file or a directory of ranks.", show_default=False)]
_TraceOut = Annotated[Path, typer.Option("-o", "--output", help="The reduced trace (.json, .parquet).", show_default=False)]
_Ledger = Annotated[Path | None, typer.Option("--ledger", help="Where to write every step or candidate, as JSON.")]
_Records = Annotated[str, typer.Option("--records", metavar="LO:HI", help="Record budgets to try, both ends included.")]
_Jobs = Annotated[int, typer.Option("--jobs", help="Processes that compile and judge candidates.")]
_Executor = Annotated[
    str,
    typer.Option(
        "--executor", metavar="dask:ADDRESS", help="Workers of a running Dask cluster instead of processes here.", show_default=False
    ),
]
_Scales = Annotated[
    str | None, typer.Option("--scales", metavar="X,...", help="Multiples of the default error scales to try, too; '' for none.")
]
_Budget = Annotated[int, typer.Option("--budget", help="Oracle calls allowed, repeats included.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command("reduce")(reduce_)
    app.command("search")(search_)
    app.command("pareto")(pareto_)
    app.command("baseline")(baseline_)
    app.command("contrast")(contrast_)
    app.command("verify-ledger")(verify_ledger_)


def reduce_(
    trace: _Trace,
    output: _TraceOut,
    budget: _Budget = 256,
    ledger: _Ledger = None,
    backends: BackendsFile = None,
    assume: Assume = None,
    json: Json = False,
) -> None:
    """Reduce a trace by ddmin to events that keep every ranking decision, and nothing else."""
    from commcanary_lab.api import write
    from commcanary_lab.minimize import reduce
    from commcanary_lab.simulate.prepare import parse_assumptions

    source = load_trace([trace])
    with busy("reducing"):
        found = reduce(source, backends=load_backends_file(backends), budget=budget, assume=parse_assumptions(assume or ""))
    write(found.trace, output)
    _write_json(ledger, found.ledger())
    if json:
        emit_json(found.to_json())
        return
    say(
        f"{output}: {found.events_after:,} of {found.events_before:,} events keep {found.decisions_kept} of {found.decisions_total} "
        f"ranking decisions ({found.oracle_calls} oracle calls, {found.oracle_evaluations} evaluations, stopped: {found.stopped})"
    )
    say("rankings are all that was kept: verify a canary of it against the source before trusting it")


def search_(
    trace: _Trace,
    output: Annotated[Path, typer.Option("-o", "--output", help="The canary file.", show_default=False)],
    records: _Records = "2:32",
    ledger: _Ledger = None,
    jobs: _Jobs = 1,
    executor: _Executor = "",
    scales: _Scales = None,
    refine: Annotated[int | None, typer.Option("--refine", help="Candidates that the refinement may judge.")] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="Judge candidates larger than the first that passes, too.")] = False,
    backends: BackendsFile = None,
    salt_file: SaltFile = None,
    assume: Assume = None,
    json: Json = False,
) -> None:
    """Find the smallest canary whose rankings and behaviour pass; exits 1 when its claim is not verified."""
    from commcanary_lab.canary.read import write_canary
    from commcanary_lab.minimize import search
    from commcanary_lab.minimize.executors import open_executor
    from commcanary_lab.simulate.prepare import parse_assumptions

    source = load_trace([trace])
    with open_executor(executor, jobs) as pool, _progress("searching") as progress:
        found = search(
            source,
            _budgets(records),
            scales=_factors(scales),
            refine=refine,
            exhaustive=exhaustive,
            backends=load_backends_file(backends),
            assume=parse_assumptions(assume or ""),
            salt=read_salt(salt_file),
            executor=pool,
            progress=progress,
        )
    if found.canary is not None:
        write_canary(found.canary, output)
    _write_json(ledger, found.ledger())
    if json:
        emit_json(found.to_json())
    elif found.canary is not None and found.selected is not None and found.verification is not None:
        say(
            f"{output}: {found.canary.size_bytes:,} bytes, {found.canary.records:,} records, {found.canary.timing} "
            f"({found.selected.recipe}); {found.accepted} of {len(found.candidates)} candidates accepted, "
            f"{found.evaluations} simulated, stopped: {found.stopped}"
        )
        table(["status", "value"], [[n, v] for n, v in found.verification.statuses.items()])
        say(f"claim: {found.verification.claim} - {found.verification.claim_reason}")
    if not found.passed:
        raise typer.Exit(1)


def pareto_(
    trace: _Trace,
    records: _Records = "2:32",
    scales: _Scales = None,
    jobs: _Jobs = 1,
    executor: _Executor = "",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write all points, as JSON.")] = None,
    backends: BackendsFile = None,
    assume: Assume = None,
    json: Json = False,
) -> None:
    """Frontier of canonical bytes against worst behavioural error (largest difference over tolerance; at most 1 passes)."""
    from commcanary_lab.minimize import pareto
    from commcanary_lab.minimize.executors import open_executor
    from commcanary_lab.simulate.prepare import parse_assumptions

    source = load_trace([trace])
    with open_executor(executor, jobs) as pool, _progress("searching") as progress:
        found = pareto(
            source,
            _budgets(records),
            scales=_factors(scales),
            backends=load_backends_file(backends),
            assume=parse_assumptions(assume or ""),
            executor=pool,
            progress=progress,
        )
    _write_json(output, found.to_json())
    if json:
        emit_json(found.to_json())
        return
    table(
        ["bytes", "worst error", "records", "how", ""],
        [[p.canary_bytes, p.worst_error, p.canary_records, p.recipe, "selected by search" if p.selected else ""] for p in found.points],
        title=f"{len(found.points)} of {found.evaluated} simulated candidates on the frontier",
    )


def baseline_(
    kind: Annotated[str, typer.Argument(help="isolated, random, frequency, cluster or stratified.", show_default=False)],
    trace: _Trace,
    output: _TraceOut,
    events: Annotated[int | None, typer.Option("--events", help="Events to keep; by default as many as ddmin keeps.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random choices.")] = 0,
    backends: BackendsFile = None,
    assume: Assume = None,
    json: Json = False,
) -> None:
    """Reduce a trace by a simple rule, to as many events as the method it is compared with."""
    from commcanary_lab.api import write
    from commcanary_lab.minimize import baseline, reduce
    from commcanary_lab.simulate.prepare import parse_assumptions

    source = load_trace([trace])
    with busy("choosing events"):
        if events is None:
            events = reduce(source, backends=load_backends_file(backends), assume=parse_assumptions(assume or "")).events_after
        found = baseline(source, kind, events=events, seed=seed)
    write(found.trace, output)
    if json:
        emit_json(found.to_json())
        return
    say(f"{output}: {found.label}")


def contrast_(
    a: Annotated[Path, typer.Argument(help="A reduced trace or a canary.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Another one.", show_default=False)],
    source: Annotated[Path, typer.Option("--source", help="The trace that both came from.", show_default=False)],
    kept: Annotated[Path | None, typer.Option("--kept", help="Where to write the events of both, as CSV.")] = None,
    backends: BackendsFile = None,
    salt_file: SaltFile = None,
    assume: Assume = None,
    json: Json = False,
) -> None:
    """Two minimised results of one source side by side."""
    from commcanary_lab.canonical import write_atomic
    from commcanary_lab.minimize import contrast
    from commcanary_lab.simulate.prepare import parse_assumptions

    with busy("comparing"):
        found = contrast(
            load_artifact(a),
            load_artifact(b),
            load_trace([source]),
            labels=(a.name, b.name),
            backends=load_backends_file(backends),
            assume=parse_assumptions(assume or ""),
            salt=read_salt(salt_file),
        )
    if kept is not None:
        write_atomic(kept, found.kept_csv().encode())
    if json:
        emit_json(found.to_json())
        return
    table(["", "source", found.a.label, found.b.label], [[r.name, r.source, r.a, r.b] for r in found.rows])
    for side in (found.a, found.b):
        lost = found.lost(side.label)
        say(f"{side.label} lost {len(lost)} of {found.tail_total} tail events; claim: {side.verification.claim}")


def verify_ledger_(
    ledger: Annotated[Path, typer.Argument(help="A ledger of search or of reduce.", show_default=False)],
    result: Annotated[
        Path, typer.Argument(metavar="CANARY", help="The canary that a search selected; for reduce the reduced trace, or a canary of it.")
    ],
    trace: Annotated[Path | None, typer.Option("--trace", help="The source: runs the minimiser again and compares every value.")] = None,
    salt_file: SaltFile = None,
    json: Json = False,
) -> None:
    """Verify a ledger against its result, and every figure in it against the source; exits 1 with the first difference."""
    from commcanary_lab.canonical import read_document
    from commcanary_lab.minimize import verify_ledger

    document = read_document(ledger, "give the ledger first, then its result")
    source = None if trace is None else load_trace([trace])
    artifact, salt = load_artifact(result), read_salt(salt_file)
    with busy("verifying"), naming(str(ledger)):
        found = verify_ledger(document, artifact, source, salt=salt)
    if json:
        emit_json(found.to_json())
    else:
        say(f"{found.status}: {found.entries} {'candidates' if found.method == 'search' else 'steps'} of {found.method}")
        if found.first_difference is not None:
            say(f"first difference: {found.first_difference}")
        if found.status == "consistent":
            say("figures that only a simulation gives are not covered without --trace")
    if not found.passed:
        raise typer.Exit(1)


def _write_json(path: Path | None, document: Any) -> None:
    from commcanary_lab.canonical import canonical_bytes, write_atomic

    if path is not None:
        write_atomic(path, canonical_bytes(document) + b"\n")


def _budgets(text: str) -> range:
    low, high = parse_range(text, "--records") or (2, 32)
    if not 1 <= low <= high:
        raise UsageError(f"--records {text!r} is empty", remedy="write for example --records 2:32")
    return range(low, high + 1)


def _factors(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(x) for x in text.split(",") if x.strip()]
    except ValueError:
        raise UsageError(f"--scales {text!r} is not a list of numbers", remedy="write for example --scales 1,2,5") from None


@contextmanager
def _progress(what: str) -> Iterator[Progress | None]:
    """The candidates of a search on a progress bar."""
    with progress(what) as tell:
        if tell is None:
            yield None
            return

        def show(candidate: Any, done: int, total: int) -> None:
            tell(f"{what}: {candidate.recipe}", done, total)

        yield show
