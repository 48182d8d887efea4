"""Writes the reference of every command into `cli.md` while the pages are built, from the command line application itself.

The page holds the line ``<!-- cli-reference -->``; `render` returns what takes its place. So the reference cannot be out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

__all__ = ["MARKER", "render", "setup"]

MARKER = "<!-- cli-reference -->"


def render() -> str:
    """Return the reference of all verbs as Markdown, in the order in which the application lists them."""
    from commcanary_lab.cli import app

    root: Any = typer.main.get_command(app)
    return "\n".join(part for name, command in _leaves("", root) for part in _command(name, command))


def _leaves(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name; a group such as `layout` stands for the commands in it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(f"{prefix}{name} ", command)
        else:
            yield f"{prefix}{name}", command


def _command(name: str, command: Any) -> list[str]:
    context = command.context_class(command, info_name=f"commcanary-lab {name}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"### `{name}`", "", (command.help or "").strip(), "", "```text", usage, "```", ""]
    rows = {"argument": [], "option": []}  # type: dict[str, list[tuple[str, str]]]
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and not getattr(parameter, "hidden", False):
            rows[parameter.param_type_name].append((f"`{record[0]}`", record[1].replace("  [", " [")))
    return lines + [line for kind, found in rows.items() if found for line in _table(kind, found)]


def _table(head: str, rows: list[tuple[str, str]]) -> list[str]:
    escaped = [tuple(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    return [f"| {head} | meaning |", "|---|---|", *(f"| {a} | {b} |" for a, b in escaped), ""]


def _insert(app: Any, name: str, source: list[str]) -> None:
    if MARKER in source[0]:
        source[0] = source[0].replace(MARKER, render())


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
