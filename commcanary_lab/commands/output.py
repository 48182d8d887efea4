"""What commands print: one JSON document, or text for people."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, TypeAlias

__all__ = ["Tell", "busy", "emit_json", "progress", "say", "table", "warn"]

#: Shows what is being done, how much of it, and of how much (0 where that is not known).
Tell: TypeAlias = Callable[[str, float, float], None]


def emit_json(document: Any) -> None:
    """Print one JSON document; numbers that JSON cannot say become null."""
    sys.stdout.write(json.dumps(_plain(document), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def say(text: str = "") -> None:
    """Print a line for people."""
    sys.stdout.write(text + "\n")


def warn(lines: Iterable[str]) -> None:
    """Print warnings to standard error."""
    for line in lines:
        sys.stderr.write(f"warning: {line}\n")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, file: TextIO | None = None) -> None:
    """Print a table for people, on standard output unless `file` is given; numbers are right aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    cells = [[_cell(c) for c in r] for r in rows]
    for i, header in enumerate(headers):
        right = all(not r[i] or r[i][0].isdigit() or r[i][0] in "-+." for r in cells)
        out.add_column(header, justify="right" if right else "left", no_wrap=right)
    for r in cells:
        out.add_row(*(Text(c) for c in r))
    file = sys.stdout if file is None else file
    width = None if file.isatty() else 160
    Console(file=file, width=width, highlight=False, soft_wrap=False).print(out)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,d}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show what is going on while it lasts, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def progress(what: str) -> Iterator[Tell | None]:
    """Give a function that moves a bar, on a terminal; None in a pipe, where nothing is shown."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def tell(text: str, done: float, total: float) -> None:
            bar.update(task, description=text, completed=done, total=total or None)

        yield tell
