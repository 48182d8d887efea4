"""Verbs on traces: open, ops, stragglers, diff, capture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from commcanary_lab.commands.inputs import Format, Json, LayoutFile, Paths, check_output, load_events, load_trace
from commcanary_lab.commands.output import busy, emit_json, say, table
from commcanary_lab.units import format_bytes, format_us

__all__ = ["register"]

_Offsets = Annotated[
    str | None, typer.Option("--clock-offsets", metavar="R=US,...", help="Microseconds to add to each rank's clock, or a file.")
]
_Align = Annotated[bool, typer.Option("--align-ends", help="Estimate clock offsets from matched collective ends (recorded in the notes).")]
_Rank = Annotated[list[str] | None, typer.Option("--rank", metavar="FILE=RANK", help="Rank of a file that does not name it.")]
_Output = Annotated[Path | None, typer.Option("-o", "--output", help="Where to write; the suffix chooses the format.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    app.command("open")(open_)
    app.command()(ops)
    app.command()(stragglers)
    app.command()(diff)
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(capture)


def open_(
    paths: Paths,
    format: Format = None,
    clock_offsets: _Offsets = None,
    align_ends: _Align = False,
    rank: _Rank = None,
    round_ns: Annotated[bool, typer.Option("--round-ns", help="Round times to whole nanoseconds.")] = False,
    check: Annotated[bool, typer.Option("--check", help="List all errors and unknown fields (slower).")] = False,
    layout: LayoutFile = None,
    output: _Output = None,
    json: Json = False,
) -> None:
    """Recognise the format, import, merge ranks, and say what is there."""
    from commcanary_lab.trace.summary import summarise, summary_text

    check_output(output, *paths)
    trace = load_trace(
        paths,
        format=format,
        clock_offsets=clock_offsets,
        align_ends=align_ends,
        round_ns=round_ns,
        check=check,
        ranks=rank,
        layout=layout,
    )
    if output is not None:
        from commcanary_lab.api import write

        write(trace, output)
    if json:
        emit_json(summarise(trace).to_json())
    else:
        say(summary_text(trace))
        if output is not None:
            say(f"wrote {output}")


def ops(paths: Paths, format: Format = None, layout: LayoutFile = None, json: Json = False) -> None:
    """Operation table: op x size x group with counts, bytes, latencies, bandwidths and share of communication."""
    from commcanary_lab.inspect import ops as operation_table
    from commcanary_lab.trace.groups import ranks_text

    found = operation_table(load_events(paths, format=format, layout=layout))
    if json:
        emit_json(
            {
                "rows": [_row(r) for r in found.rows],
                "communication_us": found.communication_us,
                "origin": found.origin,
                "unsized": {"count": found.unsized_count, "time_us": found.unsized_us},
                "notes": list(found.notes),
            }
        )
        return
    table(
        ["op", "group", "ranks", "size", "count", "bytes", "p50 us", "p95 us", "algbw GB/s", "busbw GB/s", "share", "exposed us"],
        [
            [
                r.op,
                r.group,
                ranks_text(r.members) if r.members else None,
                None if r.size_bytes is None else format_bytes(r.size_bytes),
                r.count,
                format_bytes(r.total_bytes),
                r.p50_us,
                r.p95_us,
                r.algbw_gb_s,
                r.busbw_gb_s,
                r.share,
                r.exposed_us,
            ]
            for r in found.rows
        ],
        title=f"{found.events:,} events, {found.measured:,} measured; "
        f"{format_us(found.communication_us)} of communication ({found.origin})",
    )
    _notes(found.notes)


def _row(row: Any) -> dict[str, Any]:
    out = asdict(row)
    if "members" in out:
        out["group_size"] = len(out["members"])
    return out


def _notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        say(f"note: {note}")


def stragglers(
    paths: Paths,
    format: Format = None,
    clock_offsets: _Offsets = None,
    align_ends: _Align = False,
    layout: LayoutFile = None,
    json: Json = False,
) -> None:
    """Late ranks: how often each is the last to arrive, how late, and what waiting it causes."""
    from commcanary_lab.inspect import stragglers as find

    found = find(load_events(paths, format=format, clock_offsets=clock_offsets, align_ends=align_ends, layout=layout))
    if json:
        emit_json(
            {
                "rows": [_row(r) for r in found.rows],
                "known": found.known,
                "unknown": found.unknown,
                "origin": found.origin,
                "notes": list(found.notes),
            }
        )
        return
    table(
        ["rank", "events", "last", "last share", "median late us", "p95 late us", "max late us", "waiting caused us", "waited us"],
        [
            [
                r.rank,
                r.events,
                r.last,
                r.last_fraction,
                r.median_lateness_us,
                r.p95_lateness_us,
                r.max_lateness_us,
                r.waiting_caused_us,
                r.waited_us,
            ]
            for r in found.rows
        ],
        title=f"{found.known:,} events with known arrivals, {found.unknown:,} without ({found.origin})",
    )
    _notes(found.notes)


def diff(
    a: Annotated[Path, typer.Argument(help="The base trace.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="The other trace.", show_default=False)],
    layout: LayoutFile = None,
    json: Json = False,
) -> None:
    """Compare two traces row by row of their operation tables."""
    from commcanary_lab.inspect import diff as compare
    from commcanary_lab.trace.groups import ranks_text

    found = compare(load_events([a], layout=layout), load_events([b], layout=layout))
    if json:
        emit_json(
            {
                "rows": [_row(r) for r in found.rows],
                "same_operations": found.same_operations,
                "origin": found.origin,
                "notes": list(found.notes),
            }
        )
        return
    table(
        ["op", "group", "ranks", "size", "count A", "count B", "p50 A us", "p50 B us", "delta us", "p95 A us", "p95 B us", "only in"],
        [
            [
                r.op,
                r.group,
                ranks_text(r.members) if r.members else None,
                None if r.size_bytes is None else format_bytes(r.size_bytes),
                r.count_a,
                r.count_b,
                r.p50_a_us,
                r.p50_b_us,
                r.p50_delta_us,
                r.p95_a_us,
                r.p95_b_us,
                r.only_in,
            ]
            for r in found.rows
        ],
        title=f"A: {a.name}   B: {b.name}",
    )
    _notes(found.notes)


def capture(
    context: typer.Context,
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory of the shards: new, or without any.", show_default=False)],
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds after which the command is ended.")] = None,
    json: Json = False,
) -> None:
    """Run a torch.distributed command with the recorder on, and merge what each rank wrote: capture -o DIR -- torchrun ..."""
    from commcanary_lab.capture import launch
    from commcanary_lab.errors import UsageError

    if not context.args:
        raise UsageError(
            "no command to run", remedy="write the command after --, e.g. capture -o DIR -- torchrun --nproc-per-node 4 job.py"
        )
    import sys

    with busy("running"):
        # the command's own output must not mix with the JSON document
        result = launch(context.args, output, timeout=timeout, stdout=sys.stderr if json else None)
    if json:
        emit_json(
            {
                "shards": [str(s) for s in result.shards],
                "events": len(result.trace),
                "ranks": len(result.trace.ranks),
                "seconds": result.seconds,
                "notes": list(result.trace.notes),
                "warnings": list(result.trace.warnings),
            }
        )
        return
    say(f"{len(result.trace):,} events of {len(result.trace.ranks)} ranks in {len(result.shards)} shards under {output}")
    _notes(result.trace.notes)
