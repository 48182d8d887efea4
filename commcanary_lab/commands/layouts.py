"""Verbs on layout files: layout infer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commcanary_lab.commands.inputs import Format, Json, Paths, check_output, load_events
from commcanary_lab.commands.matrices import GpusPerNode
from commcanary_lab.commands.output import emit_json, say

__all__ = ["register"]

layouts = typer.Typer(name="layout", no_args_is_help=True, help="Layout files: which ranks form which group.", rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    """Add the verbs to the application."""
    layouts.command("infer")(infer)
    app.add_typer(layouts)


def infer(
    paths: Paths,
    format: Format = None,
    gpus_per_node: GpusPerNode = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where the layout file goes; - is standard output.")] = None,
    json: Json = False,
) -> None:
    """Which groups look like TP, PP, CP, EP, DP, how sure that is, and a layout file of it."""
    from commcanary_lab.errors import UsageError
    from commcanary_lab.traffic import infer_layout

    if json and output is not None and str(output) == "-":
        raise UsageError("--json and -o - both want standard output", remedy="write the layout to a file")
    check_output(output, *paths)
    found = infer_layout(load_events(paths, format=format), gpus_per_node=gpus_per_node)
    if output is not None and str(output) == "-":
        say(found.to_toml().rstrip("\n"))
        return
    if output is not None:
        found.write(output)
    if json:
        emit_json(
            {
                "groups": [
                    {
                        "kind": r.kind,
                        "confidence": r.confidence,
                        "names": [g.name for g in r.groups],
                        "ranks": [list(g.members) for g in r.groups],
                        "size": r.size,
                        "stride": r.stride,
                        "nodes": r.nodes,
                        "evidence": list(r.evidence),
                        "alternatives": list(r.alternatives),
                    }
                    for r in found.rows
                ],
                "layout": found.layout.to_toml(),
                "notes": list(found.notes),
            }
        )
        return
    for r in found.rows:
        shape = f"{len(r.groups)} groups of {r.size}" if len(r.groups) > 1 else f"one group of {r.size}"
        other = f" (or {', '.join(r.alternatives)})" if r.alternatives else ""
        say(f"{r.kind}{other}, {r.confidence}: {shape}")
        say(f"  {'; '.join(r.evidence)}")
    for note in found.notes:
        say(f"note: {note}")
    if output is not None:
        say(f"wrote {output}")
    else:
        say("layout file (write it with -o):")
        say(found.layout.to_toml().rstrip("\n"))
