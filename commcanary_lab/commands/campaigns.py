"""Verbs on preregistered campaigns: new, run, show, verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Json
from commcanary_lab.commands.output import busy, emit_json, progress, say, table, warn

if TYPE_CHECKING:
    from commcanary_lab.commands.output import Tell
    from commcanary_lab.replay.campaign.result import Campaign
    from commcanary_lab.replay.campaign.run import CampaignProgress

__all__ = ["register"]

_Evidence = Annotated[Path, typer.Argument(metavar="DIR", help="What campaign run wrote.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    campaign = typer.Typer(no_args_is_help=True, help="Ask first, then measure: preregistered runs, evidence, a decision.")
    for command in (new, run, show, verify):
        campaign.command()(command)
    app.add_typer(campaign, name="campaign")


def new(
    file: Annotated[Path, typer.Argument(help="Where to write it; - is standard output.", show_default=False)],
    control: Annotated[str, typer.Option("--control", help="Program of the control, relative to the file.")] = "control.json",
    candidate: Annotated[str, typer.Option("--candidate", help="Program of the candidate.")] = "candidate.json",
    ranks: Annotated[int | None, typer.Option("--ranks", help="Processes; all of the programs' by default.", min=1)] = None,
) -> None:
    """Write an example of a preregistration, with every part explained."""
    from commcanary_lab.canonical import write_atomic
    from commcanary_lab.errors import UsageError
    from commcanary_lab.replay.campaign.example import example

    if str(file) == "-":
        say(example(control=control, candidate=candidate, ranks=ranks).rstrip("\n"))
        return
    if file.exists():
        raise UsageError("exists", file=str(file), remedy="choose another name: a preregistration is not overwritten")
    write_atomic(file, example(file=file.name, control=control, candidate=candidate, ranks=ranks).encode())


def run(
    file: Annotated[Path, typer.Argument(help="Preregistration (TOML).", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="New directory for the evidence.", show_default=False)],
    history: Annotated[
        list[Path] | None,
        typer.Option("--history", help="Further evidence, or folders of it, in which an unchanged probe may have failed."),
    ] = None,
    json: Json = False,
) -> None:
    """Run a campaign and decide it; exits 1 unless the decision is pass, and 4 when a run failed."""
    from commcanary_lab.replay.campaign.run import run_campaign

    with progress("starting") as tell:
        found = run_campaign(file, output, history=history or (), progress=_shown(tell))
    _finish(found, json)


def show(directory: _Evidence, json: Json = False) -> None:
    """Show what was decided and why; exits like the run did."""
    from commcanary_lab.replay.campaign.result import read_campaign

    _finish(read_campaign(directory), json)


def verify(directory: _Evidence, json: Json = False) -> None:
    """Recompute everything from the raw samples and compare it with the evidence; exits 1 with the first difference."""
    from commcanary_lab.errors import InputError
    from commcanary_lab.replay.campaign.verify import verify_campaign

    if not directory.is_dir():
        raise InputError("is no directory", file=str(directory), remedy="give the directory that campaign run wrote")
    with busy("recomputing"):
        check = verify_campaign(directory)
    if json:
        emit_json(check.to_json())
    elif check.passed:
        say(f"recomputed: {check.files:,} files as sealed, {check.runs:,} runs, {check.values:,} values of the decision ({check.decision})")
    else:
        say(f"mismatch: {len(check.differences):,} differences; the first is {check.first_difference}")
        for text in check.differences[1:20]:
            say(f"- {text}")
    if not check.passed:
        raise typer.Exit(1)


def _finish(campaign: Campaign, json: bool) -> None:
    if json:
        emit_json(_document(campaign))
    else:
        _print(campaign)
    if campaign.exit_code:
        raise typer.Exit(campaign.exit_code)


def _document(campaign: Campaign) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(campaign.outcome)
    return {**document, "evidence": str(campaign.directory)}


def _print(campaign: Campaign) -> None:
    o = campaign.outcome
    say(f"{o.name}: {o.decision}")
    say(o.question)
    say(f"- {o.reason}")
    if o.failure_boundary is not None:
        ranks = ", ".join(map(str, o.failure_ranks))
        say(f"- failure boundary: {o.failure_boundary}, sample {o.failure_sample}, ranks {ranks}, run {o.failure_run}")
    if o.stopped is not None:
        say(f"- stopped ({o.stopped.kind}) after run {o.stopped.after_run} of {o.planned}")
    rows = [
        [r.name if r.required else f"({r.name})", r.metric, r.boundary, r.value, r.interval, r.spread, r.verdict, r.reason]
        for r in campaign.criteria
    ]
    table(["criterion", "what", "boundary", "value", "interval", "spread", "verdict", "why"], rows)
    for f in o.factors:
        share = "" if f.cycle_share is None else f"; {100 * f.cycle_share:.1f} % of the change is the cycle time"
        say(
            f"{f.rate}: {f.control_rate:,.2f} -> {f.candidate_rate:,.2f} per second ({f.change_pct:+.2f} %): "
            f"yield {f.per_cycle_pct:+.2f} %, cycle time {f.cycle_pct:+.2f} %{share}"
        )
    _print_agreement(campaign)
    for line in dict.fromkeys(r.ran_on for r in o.runs):
        say(f"measured on {line}")
    warn(o.audits)
    say(f"{len(o.runs)} of {o.planned} runs; evidence: {campaign.directory}")


def _print_agreement(campaign: Campaign) -> None:
    lines = campaign.agreement
    if not lines:
        return
    rows = [
        [a.ranking, a.source, f"{a.agreeing} of {a.pairs}", _between(a.agreement_low, a.agreement_high), a.tau_b,
         _between(a.tau_low, a.tau_high), len(a.false_positives), len(a.false_negatives), len(a.inversions)]
        for a in lines
    ]  # fmt: skip
    head = ["ranking", "source", "pairs agree", "interval", "tau-b", "interval", "false positives", "false negatives", "inversions"]
    table(head, rows, title=f"against {lines[0].reference}")
    for a in lines:
        for text in a.inversions:
            say(f"- {text}")


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _shown(tell: Tell | None) -> Callable[[CampaignProgress], None] | None:
    if tell is None:
        return None

    def show(now: CampaignProgress) -> None:
        part = now.done / now.total if now.total else 0.0
        tell(f"run {now.run} of {now.planned}, {now.configuration}: {now.phase}", now.run - 1 + part, now.planned)

    return show
