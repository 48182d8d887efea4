"""Writes the reference of every command into `cli.md` while the pages are built, from the command line application itself.

The page holds the line ``<!-- cli-reference -->``; `render` returns what takes its place. So the reference cannot be out of date.
"""

from __future__ import annotations

from typing import Any

import click
import typer.main

__all__ = ["MARKER", "render", "setup"]

MARKER = "<!-- cli-reference -->"


def render() -> str:
    """Return the reference of all verbs as Markdown, in the order in which the application lists them."""
    from commcanary_lab.cli import app

    root = typer.main.get_command(app)
    assert isinstance(root, click.Group) or hasattr(root, "commands")
    return "\n".join(part for name, command in root.commands.items() for part in _command(name, command))  # type: ignore[attr-defined]


def _command(name: str, command: Any) -> list[str]:
    context = click.Context(command, info_name=f"commcanary-lab {name}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"### `{name}`", "", (command.help or "").strip(), "", "```text", usage, "```", ""]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    if arguments:
        lines += _table("argument", [(f"`{p.make_metavar(context)}`", getattr(p, "help", "") or "") for p in arguments])
    if options:
        lines += _table("option", [(_option_text(p, context), _help(p)) for p in options])
    return lines


def _option_text(option: Any, context: click.Context) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return f"`{names}`"
    return f"`{names} {option.make_metavar(context)}`"


def _help(option: Any) -> str:
    text = (option.help or "").strip()
    shown = option.default
    if option.required:
        return f"{text} Required."
    if shown is None or shown is False or callable(shown) or shown == () or shown == []:
        return text
    return f"{text} Default: `{shown}`."


def _table(head: str, rows: list[tuple[str, str]]) -> list[str]:
    escaped = [tuple(cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in row) for row in rows]
    return [f"| {head} | meaning |", "|---|---|", *(f"| {a} | {b} |" for a, b in escaped), ""]


def _insert(app: Any, name: str, source: list[str]) -> None:
    if MARKER in source[0]:
        source[0] = source[0].replace(MARKER, render())


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
