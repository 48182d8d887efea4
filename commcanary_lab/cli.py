"""The command line: parse, call, print, exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from commcanary_lab.commands import (
    calibration,
    campaigns,
    canaries,
    exports,
    fabrics,
    matrices,
    minimisers,
    replays,
    reviews,
    serving,
    traces,
    trends,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="commcanary-lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Distil a distributed job's communication trace into a small canary, and prove that it still answers like the workload.\n\n"
    "Exit codes: 0 done, 1 a verdict is negative, 2 wrong usage, 3 the input is invalid or refused, 4 a launched run failed.",
)


#: Wrong usage as the parser reports it. Newer Typer brings its own copy of click, so the class is found from Typer's side.
_CLICK_ERRORS: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _version(wanted: bool) -> None:
    if wanted:
        from commcanary_lab import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    pass


for _family in (traces, matrices, fabrics, canaries, minimisers, exports, replays, campaigns, calibration, reviews, trends, serving):
    _family.register(app)


def main() -> None:
    """Run the command line; no traceback reaches the user."""
    if "serve" not in sys.argv:
        from commcanary_lab._allocator import keep_freed_memory

        keep_freed_memory()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    from commcanary_lab.errors import LabError

    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except typer.Exit as e:
        return int(e.exit_code)
    except typer.Abort:
        return 130
    except LabError as e:
        sys.stderr.write(f"error: {e}\n")
        return e.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone: nothing is left to say
        return 0
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        sys.stderr.write(f"error: {where}{e.strerror or e}; check the path, its permissions and the free space\n")
        return 3
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        sys.stderr.write("error: out of memory; filter the trace or use a machine with more memory\n")
        return 3
    except Exception as e:
        return _unexpected(e)


def _unexpected(error: Exception) -> int:
    if isinstance(error, _CLICK_ERRORS):
        error.show(sys.stderr)
        return error.exit_code
    if os.environ.get("COMMCANARY_LAB_DEBUG"):
        raise error
    sys.stderr.write(f"error: internal: {type(error).__name__}: {error}; please report it (COMMCANARY_LAB_DEBUG=1 shows where)\n")
    return 3


if __name__ == "__main__":
    main()
