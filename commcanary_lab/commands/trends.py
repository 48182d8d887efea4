"""The verb trend: a series of reports or measured traces against a policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commcanary_lab.commands.inputs import Json
from commcanary_lab.commands.output import busy, emit_json, say, table
from commcanary_lab.commands.reviews import open_side
from commcanary_lab.errors import UsageError

if TYPE_CHECKING:
    from commcanary_lab.review.history import Entry, History

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb to the application."""
    app.command()(trend)


def trend(
    paths: Annotated[list[Path], typer.Argument(help="Reports, or measured traces, of one workload.", show_default=False)],
    policy: Annotated[Path | None, typer.Option("--policy", help="TOML file with thresholds instead of the defaults.")] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="first|previous|NAME", help="What each entry is compared with; NAME is a file name.")
    ] = "first",
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Keep the order of PATHS instead of ordering by date or name.")] = False,
    allow_incompatible: Annotated[
        bool, typer.Option("--allow-incompatible", help="Compare reports of different workloads or protocols; at least a warning.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the series as one HTML file that works offline.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the series as JSON.")] = None,
    json: Json = False,
) -> None:
    """Show how a series of reports or measured traces moved; exits 1 when the newest entry fails or cannot be decided."""
    from commcanary_lab.canonical import canonical_bytes, write_atomic
    from commcanary_lab.review.history import history
    from commcanary_lab.review.policy import Policy, load_policy

    thresholds = Policy() if policy is None else load_policy(policy)
    names = _names(paths)
    baseline = next((n for n, p in zip(names, paths, strict=True) if baseline == str(p)), baseline)
    members = []
    for name, path in zip(names, paths, strict=True):
        with busy(f"reading {path}"):
            members.append((name, open_side(path)))
    with busy("comparing"):
        found = history(members, thresholds, baseline=baseline, keep_order=keep_order, allow_incompatible=allow_incompatible)
    if found.verdict == "baseline":
        raise UsageError(f"the newest entry {found.newest.name} is the baseline", remedy="choose an earlier one with --baseline")
    if output is not None:
        write_atomic(output, canonical_bytes(found.to_json()) + b"\n")
    if html is not None:
        from commcanary_lab.review.html_history import history_html

        write_atomic(html, history_html(found).encode())
    if json:
        emit_json(found.to_json())
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(1)


def _names(paths: list[Path]) -> list[str]:
    """File names; where two are the same, with as much of the folders as tells them apart."""
    names = [p.name or str(p) for p in paths]
    if len(set(names)) == len(names):
        return names
    full = [os.path.abspath(p) for p in paths]
    if len(set(full)) < len(full):
        twice = next(p for i, p in enumerate(full) if p in full[:i])
        raise UsageError(f"{Path(twice).name} is given twice", remedy="give every file once")
    common = os.path.commonpath(full)
    return [Path(os.path.relpath(p, common)).as_posix() for p in full]


def _print(found: History) -> None:
    say(found.headline)
    for sentence in found.sentences:
        say(f"- {sentence}")
    rows = [[e.name, e.date or "", *e.member.figures.values(), _change(e), e.verdict, e.against or "", _moved(e)] for e in found.entries]
    table(["entry", "date", "p50 us", "p95 us", "p99 us", "mean us", "p99", "verdict", "against", "moved"], rows)
    for e in found.incomparable:
        say(f"not comparable: {e.name}: {e.problem}")


def _change(e: Entry) -> str:
    from commcanary_lab.review.comparison import Comparison, percent

    return percent(e.comparison.deltas["p99_pct"]) if isinstance(e.comparison, Comparison) else ""


def _moved(e: Entry) -> str:
    """Quantiles that moved since the entry before."""
    words: dict[str, list[Any]] = {"rise": [], "fall": []}
    for s in e.steps:
        if s.moved:
            words[s.verdict].append("p50" if s.metric == "median" else s.metric)
    return ", ".join(f"{' '.join(m)} {'up' if v == 'rise' else 'down'}" for v, m in words.items() if m)
