"""Verbs that judge: ablate, compare, verify-report, verify-comparison, verify-signoff."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Assume, BackendsFile, Json, load_artifact, load_backends_file, load_trace
from commcanary_lab.commands.output import busy, emit_json, say, table
from commcanary_lab.errors import InputError, UsageError, naming

if TYPE_CHECKING:
    from commcanary_lab.review.comparison import Comparison
    from commcanary_lab.review.measured import MeasuredComparison
    from commcanary_lab.simulate.ablation import AblationTable
    from commcanary_lab.simulate.report_file import ReportFile
    from commcanary_lab.trace.model import Trace
    from commcanary_lab.verify.documents import DocumentCheck

__all__ = ["open_side", "register"]

_Source = Annotated[Path, typer.Argument(help="A canary or a trace.", show_default=False)]
_Base = Annotated[Path, typer.Argument(help="A report, or a measured trace: before the change.", show_default=False)]
_Candidate = Annotated[Path, typer.Argument(help="A report, or a measured trace: after the change.", show_default=False)]

#: Bytes at both ends of a file that are searched for the name of its format.
_PROBED = 1 << 16


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command()(ablate)
    app.command()(compare)
    app.command("verify-report")(verify_report)
    app.command("verify-comparison")(verify_comparison)
    app.command("verify-signoff")(verify_signoff)


def ablate(
    source: _Source,
    backends: BackendsFile = None,
    model: Annotated[str, typer.Option("--model", help="Cost model: commcanary-v4 or alpha-beta.")] = "commcanary-v4",
    assume: Assume = None,
    json: Json = False,
) -> None:
    """Remove each preserved mechanism in turn on every backend: what it contributes, and which rankings rest on it."""
    from commcanary_lab.canary.model import Canary
    from commcanary_lab.simulate.ablation import ablate as run
    from commcanary_lab.simulate.prepare import parse_assumptions

    assumed = parse_assumptions(assume or "")
    configurations = load_backends_file(backends)
    artifact = load_artifact(source)
    with busy("simulating"):
        found = run(artifact.trace if isinstance(artifact, Canary) else artifact, configurations, model=model, assume=assumed)
    if json:
        emit_json(found.to_json())
        return
    _print_ablations(found)


def _print_ablations(found: AblationTable) -> None:
    from commcanary_lab.simulate.ablation import LABEL
    from commcanary_lab.simulate.backend import ABLATIONS

    total = found.decisions_total
    shown = ("median_us", "p95_us", "p99_us", "communication_hidden_pct")
    rows = []
    for name in ABLATIONS:
        own = [m for m in found.mechanisms if m.ablation == name]
        if len({m.reason for m in own}) == 1 and not own[0].applicable:
            rows.append([name, "every backend", "", "", "", "", f"not applicable: {own[0].reason}"])
            continue
        for m in own:
            if not m.applicable:
                rows.append([name, m.backend, "", "", "", "", f"not applicable: {m.reason}"])
                continue
            deltas = [found.value(name, m.backend, metric).delta for metric in shown]
            rows.append([name, m.backend, *("" if d is None else f"{d:+,.3f}" for d in deltas), ""])
    table(["without", "on", "p50 us", "p95 us", "p99 us", "hidden %", ""], rows)
    for name in found.applicable:
        flips = found.flips(name)
        say(f"without {name}: {len(flips)} of {total} ranking decisions flip")
        for f in flips:
            say(f"  {f.left} / {f.right}, {f.metric}: {f.before} -> {f.after}")
    say(f"{found.model}, {found.origin}: {LABEL}")
    _print_conditions(found.assumptions, found.notes)


def compare(
    base: _Base,
    candidate: _Candidate,
    policy: Annotated[Path | None, typer.Option("--policy", help="TOML file with thresholds instead of the defaults.")] = None,
    allow_incompatible: Annotated[
        bool, typer.Option("--allow-incompatible", help="Compare reports of different workloads or protocols; at least a warning.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the comparison as one HTML file that works offline.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the comparison as JSON.")] = None,
    json: Json = False,
) -> None:
    """Compare two reports, or two measured traces, under a policy; exits 1 when the verdict is fail or inconclusive."""
    from commcanary_lab.canonical import canonical_bytes, write_atomic
    from commcanary_lab.review.compare import compare as compare_reports
    from commcanary_lab.review.measured import compare_measured
    from commcanary_lab.review.policy import Policy, load_policy
    from commcanary_lab.simulate.report_file import ReportFile

    thresholds = Policy() if policy is None else load_policy(policy)
    a, b = _pair(base, candidate)
    found: Comparison | MeasuredComparison
    if isinstance(a, ReportFile) and isinstance(b, ReportFile):
        found = compare_reports(a, b, thresholds, allow_incompatible=allow_incompatible)
    else:
        assert not isinstance(a, ReportFile)
        assert not isinstance(b, ReportFile)
        with busy("resampling"):
            found = compare_measured(a, b, thresholds)
    if output is not None:
        write_atomic(output, canonical_bytes(found.to_json()) + b"\n")
    if html is not None:
        from commcanary_lab.review.html import html_report

        write_atomic(html, html_report(found, names=(base.name, candidate.name)).encode())
    if json:
        emit_json(found.to_json())
    else:
        _print_comparison(found)
    if not found.passed:
        raise typer.Exit(1)


def _print_comparison(found: Comparison | MeasuredComparison) -> None:
    from commcanary_lab.review.comparison import Comparison, percent

    say(found.headline)
    for reason in found.reasons:
        say(f"- {reason}")
    if isinstance(found, Comparison):
        rows = [
            [e.scope, e.label, e.baseline, e.candidate, percent(e.change, " points" if e.is_hidden_share else " %"), e.threshold_result]
            for e in found.evaluations
        ]
        table(["", "value", "baseline", "candidate", "change", ""], rows)
        _print_conditions(found.candidate.assumptions, found.candidate.notes)
        return
    shown = [[r.label, r.metric, r.a_us, r.b_us, percent(r.change_pct), _interval(r.change_interval), r.verdict] for r in found.rows[:40]]
    table(["operation", "", "before us", "after us", "change", "interval", ""], shown)
    if len(found.rows) > len(shown):
        say(f"... and {len(found.rows) - len(shown)} more rows (--json)")
    _print_conditions({}, found.notes)


def _interval(interval: Any) -> str:
    return "" if interval is None else f"{interval.low:+.1f} to {interval.high:+.1f} %"


def _print_conditions(assumptions: Any, notes: Any) -> None:
    for name, value in assumptions.items():
        say(f"assumed: {name} = {value:g}")
    for note in notes:
        say(f"note: {note}")


def verify_report(
    report: Annotated[Path, typer.Argument(help="A report of simulate -o.", show_default=False)], source: _Source, json: Json = False
) -> None:
    """Recompute a report bit for bit from its protocol; exits 1 with the first value that differs."""
    from commcanary_lab.simulate.report_file import read_report
    from commcanary_lab.verify.reports import verify_report as verify

    stated = read_report(_existing(report))
    artifact = load_artifact(source)
    with busy("simulating"):
        check = verify(stated, artifact)
    _finish(check, "report", json)


def verify_comparison(
    comparison: Annotated[Path, typer.Argument(help="The output of compare -o, or of compare --json.", show_default=False)],
    base: _Base,
    candidate: _Candidate,
    policy: Annotated[Path | None, typer.Option("--policy", help="TOML file with the thresholds that the comparison has to use.")] = None,
    json: Json = False,
) -> None:
    """Recompute a comparison from its inputs and its policy; exits 1 with the first value that differs."""
    from commcanary_lab.canonical import read_document
    from commcanary_lab.review.comparison import verify_comparison as verify
    from commcanary_lab.review.policy import load_policy

    document = read_document(_existing(comparison), "give the output of compare -o")
    a, b = _pair(base, candidate)
    with busy("comparing"), naming(str(comparison)):
        check = verify(document, a, b, None if policy is None else load_policy(policy))
    _finish(check, "comparison", json)


def verify_signoff(
    signoff: Annotated[Path, typer.Argument(help="A sign-off that was written on the page Review.", show_default=False)],
    base: _Base,
    candidate: _Candidate,
    approved: Annotated[bool, typer.Option("--approved", help="Exit 1 also where the decision is not to approve.")] = False,
    json: Json = False,
) -> None:
    """Recompute the comparison that a sign-off is about; exits 1 when an input or the verdict is another one."""
    from commcanary_lab.review.signoff import read_signoff
    from commcanary_lab.review.signoff import verify_signoff as verify

    signed = read_signoff(_existing(signoff))
    a, b = _pair(base, candidate)
    with busy("comparing"):
        check = verify(signed, a, b)
    if json:
        emit_json({"status": check.status, "reasons": list(check.reasons), "signoff": signed.to_json()})
    else:
        by = f" by {signed.reviewer}" if signed.reviewer else ""
        say(f"{check.status}: {signed.words.lower()}{by} on {signed.written_at}, the verdict was {signed.verdict}")
        for reason in check.reasons:
            say(f"- {reason}")
    if not check.passed or (approved and signed.decision != "approve"):
        raise typer.Exit(1)


def _finish(check: DocumentCheck, what: str, json: bool) -> None:
    if json:
        emit_json(check.to_json())
    elif check.first_difference is None:
        say(f"{check.status}: all {check.leaves:,} values of the {what} come out as stated")
    else:
        say(f"{check.status}: {check.differences:,} of {check.leaves:,} values differ; the first is {check.first_difference}")
    if not json:
        for path, reason in check.not_covered.items():
            say(f"not covered: {path} ({reason})")
    if not check.passed:
        raise typer.Exit(1)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise InputError("does not exist", file=str(path), remedy="check the path")
    return path


def _pair(base: Path, candidate: Path) -> tuple[ReportFile | Trace, ReportFile | Trace]:
    a, b = open_side(base), open_side(candidate)
    kinds = ["trace" if hasattr(x, "duration_max_ns") else "report" for x in (a, b)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{base} is a {kinds[0]}, {candidate} is a {kinds[1]}", remedy="give two reports, or two measured traces")
    return a, b


def open_side(path: Path) -> ReportFile | Trace:
    """Open a report or a trace, recognised by content."""
    from commcanary_lab.canary.document import FORMAT as CANARY
    from commcanary_lab.simulate.report_file import FORMAT, read_report

    _existing(path)
    if path.is_file():
        with path.open("rb") as f:
            ends = f.read(_PROBED)
            f.seek(max(0, path.stat().st_size - _PROBED))
            ends += f.read()
        if FORMAT.encode() in ends:
            return read_report(path)
        if CANARY.encode() in ends:
            raise InputError("is a canary", file=str(path), remedy="simulate it with -o REPORT, and compare the reports")
    return load_trace([path])
