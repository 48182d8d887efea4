"""Runs what the pages show, and compares or refreshes what they say it prints.

    python docs/examples.py            compare: lists every page whose output is out of date
    python docs/examples.py --refresh  write the output of this version into the pages

Three kinds of fenced blocks are examples:

- ``console``: lines that begin with ``$`` are commands, the lines below one are its output;
- ``bash``: every line is a command, its output is not shown;
- ``python``: with ``>>>`` it is a doctest, otherwise it only has to run.

A page is one session: its blocks run in order, in one directory with a copy of `data/samples`, and share files and names. A comment
above a command says what differs from the ordinary: ``# exits 1: why``, or ``# not run by the tests: why`` for what never returns,
needs other hardware or takes long (in a python block: its first line). An output line that is just ``...`` stands for any lines.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Block", "Failure", "Session", "blocks", "pages"]

ROOT = Path(__file__).resolve().parents[1]

NOT_RUN = "# not run by the tests:"
_EXITS = re.compile(r"# exits (\d+)")
_FENCE = re.compile(r"^(`{3,})(console|bash|python)\s*$")
#: What only a shell understands; everything else runs inside this process, which saves a start per command.
_SHELL = re.compile(r"[|<>;&$*]")


@dataclass(frozen=True)
class Block:
    """A fenced example: its kind, its text, and the (zero-based) line where the text begins."""

    kind: str
    lines: tuple[str, ...]
    start: int


@dataclass(frozen=True)
class Failure:
    """An example that failed or printed something else than the page says."""

    page: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line + 1}: {self.what}"


@dataclass
class _Command:
    text: str
    line: int
    exits: int = 0
    skipped: str | None = None
    output: list[str] = field(default_factory=list)
    output_at: int = 0


def pages() -> list[Path]:
    """Return every page with examples: the README, CONTRIBUTING and all of `docs/`."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [p for p in found if p.is_file() and "_build" not in p.parts and "api" not in p.parts and blocks(p.read_text("utf-8"))]


def blocks(text: str) -> list[Block]:
    """Return the examples of a page in order."""
    out = []
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        match = _FENCE.match(lines[i])
        if match is None:
            i += 1
            continue
        start = i + 1
        end = next((j for j in range(start, len(lines)) if lines[j].startswith(match.group(1))), len(lines))
        out.append(Block(match.group(2), tuple(lines[start:end]), start))
        i = end + 1
    return out


def _commands(block: Block) -> list[_Command]:
    """Split a block into commands with what the page says they print."""
    out: list[_Command] = []
    exits, skipped = 0, None
    open_line = False
    for offset, line in enumerate(block.lines):
        at = block.start + offset
        if open_line:
            out[-1].text = out[-1].text.rstrip("\\").rstrip() + " " + line.removeprefix("> ").strip()
            open_line = line.endswith("\\")
        elif line.startswith("#") and (block.kind == "bash" or not out or not out[-1].output or line.startswith((NOT_RUN, "# exits"))):
            if line.startswith(NOT_RUN):
                skipped = line.removeprefix(NOT_RUN).strip()
            elif match := _EXITS.match(line):
                exits = int(match.group(1))
            continue
        elif block.kind == "bash" or line.startswith("$ "):
            if not line.strip():
                continue
            out.append(_Command(line.removeprefix("$ "), at, exits, skipped))
            exits, skipped = 0, None
            open_line = line.endswith("\\")
        elif out:
            out[-1].output.append(line)
        if out and not out[-1].output:
            out[-1].output_at = at + 1
    for command in out:
        while command.output and not command.output[-1].strip():
            command.output.pop()
    return out


def _matches(expected: list[str], printed: list[str]) -> bool:
    """Whether the printed lines are the expected ones; a line of three dots stands for any lines."""
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()) + r"\n" for line in expected)
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in printed)) is not None


class Session:
    """One page: a directory with the samples, names shared by its python blocks, and the outcome of each example.

    Attributes
    ----------
    failures : list of Failure
    ran, skipped : int
        Examples that ran, and those that the page says are not run.
    changes : list of (int, int, list of str)
        Lines of the page to replace by what was printed.
    """

    def __init__(self, page: Path) -> None:
        self.page = page
        self.name = page.relative_to(ROOT).as_posix()
        self.failures: list[Failure] = []
        self.ran = self.skipped = 0
        self.changes: list[tuple[int, int, list[str]]] = []
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def run(self) -> Session:
        """Run the page's examples in order."""
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "data" / "samples", Path(folder) / "data" / "samples")
            os.chdir(folder)
            try:
                for block in blocks(self.page.read_text("utf-8")):
                    if block.kind == "python":
                        self._python(block)
                    else:
                        for command in _commands(block):
                            self._command(command, shown=block.kind == "console")
            finally:
                os.chdir(before)
        return self

    def refresh(self) -> bool:
        """Write what was printed into the page; returns whether anything changed."""
        lines = self.page.read_text("utf-8").splitlines()
        for start, stop, new in sorted(self.changes, reverse=True):
            lines[start:stop] = new
        if self.changes:
            self.page.write_text("\n".join(lines) + "\n", "utf-8")
        return bool(self.changes)

    def _fail(self, line: int, what: str) -> None:
        self.failures.append(Failure(self.name, line, what))

    def _command(self, command: _Command, *, shown: bool) -> None:
        if command.skipped is not None:
            self.skipped += 1
            return
        self.ran += 1
        code, text = _run(command.text)
        printed = [line.rstrip() for line in text.splitlines()]
        if code != command.exits:
            self._fail(command.line, f"{command.text!r} exits {code}, the page says {command.exits}\n{text[-2000:]}")
        elif shown and not _matches(command.output, printed):
            self._fail(command.line, f"{command.text!r} prints\n" + "\n".join(printed))
            self.changes.append((command.output_at, command.output_at + len(command.output), printed))

    def _python(self, block: Block) -> None:
        source = "\n".join(block.lines) + "\n"
        if source.startswith(NOT_RUN):
            self.skipped += 1
            return
        self.ran += 1
        if ">>>" not in source:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(source, f"{self.name}:{block.start}", "exec"), self._names)
            except Exception as e:
                self._fail(block.start, f"{type(e).__name__}: {e}")
            return
        for example in doctest.DocTestParser().get_examples(source, self.name):
            self._example(example, block)

    def _example(self, example: doctest.Example, block: Block) -> None:
        line = block.start + example.lineno
        got = _evaluate(example.source, self._names)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        wanted = example.want
        if example.exc_msg is not None:
            wanted, got = example.exc_msg.strip(), got.strip().splitlines()[-1] if got.strip() else ""
            wanted = wanted.splitlines()[-1]
        if doctest.OutputChecker().check_output(wanted, got, flags):
            return
        self._fail(line, f"{example.source.strip()!r} prints\n{got}")
        first = line + example.source.count("\n")
        self.changes.append((first, first + example.want.count("\n"), got.splitlines()))


def _evaluate(source: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            tree = ast.parse(source)
            exec(compile(ast.Interactive(tree.body), "<page>", "single"), names)
        except Exception as e:
            print(f"{type(e).__module__}.{type(e).__name__}: {e}".removeprefix("builtins."))
    return out.getvalue()


def _run(text: str) -> tuple[int, str]:
    """Run a command as a user would; returns exit code and everything printed."""
    words = shlex.split(text)
    if words[0] == "commcanary-lab" and not _SHELL.search(text) and "capture" not in words[:2]:
        from commcanary_lab.cli import run

        buffer = io.BytesIO()
        stream = io.TextIOWrapper(buffer, encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            code = run(words[1:])
        stream.flush()
        return code, buffer.getvalue().decode("utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                          env={**os.environ, "PATH": path}, check=False)
    return done.returncode, done.stdout


def _all(names: list[str]) -> Iterator[Path]:
    wanted = {(Path.cwd() / n).resolve() for n in names}
    return (p for p in pages() if not wanted or p.resolve() in wanted)


def main(arguments: list[str]) -> int:
    """Compare or refresh the pages named, or all."""
    refresh = "--refresh" in arguments
    code = 0
    for page in list(_all([a for a in arguments if not a.startswith("--")])):
        session = Session(page).run()
        print(f"{session.name}: {session.ran} ran, {session.skipped} not run, {len(session.failures)} differ")
        if refresh and session.refresh():
            session = Session(page).run()  # what an example cannot show stays a failure
        for failure in session.failures:
            print(failure)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
