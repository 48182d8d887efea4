"""Feeds every reader random damage: ``make fuzz``. A crash is anything but a result or a typed error; its input is kept.

What a reader accepts goes further: the trace is summarised, compiled without loss, written and read again, and has to be the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import LabError
from commcanary_lab.trace.model import Trace
from tests.robustness.mutate import mutated
from tests.robustness.readers import READERS, Reader, same

__all__ = ["Fuzzed", "fuzz", "main"]

#: A reader that takes longer for one small file hangs, as far as anybody can tell.
SECONDS = 20.0


@dataclass
class Fuzzed:
    """What one reader did with random damage."""

    reader: str
    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    further: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    crashes: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """One line of the table."""
        rate = self.inputs / max(self.seconds, 1e-9)
        return (
            f"{self.reader:<24} {self.inputs:>8} {self.refused:>8} {self.accepted:>8} {self.further:>10} {len(self.crashes):>8} "
            f"{rate:>9.0f} {self.slowest_s:>10.2f}"
        )


HEAD = f"{'reader':<24} {'inputs':>8} {'refused':>8} {'accepted':>8} {'went on':>10} {'crashes':>8} {'inputs/s':>9} {'slowest s':>10}"


def fuzz(reader: Reader, inputs: int, seed: int, folder: Path, crashes: Path | None = None) -> Fuzzed:
    """Feed one reader.

    Parameters
    ----------
    reader : Reader
    inputs : int
        How many damaged files.
    seed : int
        Decides which; the same seed makes the same files.
    folder : Path
        For the files.
    crashes : Path, optional
        Where inputs that crash are kept.
    """
    out = Fuzzed(reader.name)
    target = reader.target(folder)
    whole = reader.sample
    target.write_bytes(whole)
    if problem := _feed(reader, target, folder, Fuzzed(reader.name)):  # and compiled code is loaded before anything is timed
        raise AssertionError(f"the sample of {reader.name}: {problem}")
    begin = time.perf_counter()
    try:
        for number in range(inputs):
            data = mutated(reader, random.Random(f"{reader.name}:{seed}:{number}"))
            target.write_bytes(data)
            started = time.perf_counter()
            problem = _feed(reader, target, folder, out)
            spent = time.perf_counter() - started
            out.slowest_s = max(out.slowest_s, spent)
            out.inputs += 1
            if not problem and spent > SECONDS:
                problem = f"takes {spent:.1f} s"
            if problem:
                kept = _keep(crashes, f"{reader.name}-{seed}-{number}{reader.suffix}", data)
                out.crashes.append(f"{reader.name}: seed {seed}, input {number}{kept}: {problem}")
    finally:
        target.write_bytes(whole)
    out.seconds = time.perf_counter() - begin
    return out


def _keep(crashes: Path | None, name: str, data: bytes) -> str:
    if crashes is None:
        return ""
    crashes.mkdir(parents=True, exist_ok=True)
    (crashes / name).write_bytes(data)
    return f" ({crashes / name})"


def _feed(reader: Reader, target: Path, folder: Path, out: Fuzzed) -> str:
    """Read one file; return what is wrong with what happened."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = reader.read(target)
            out.accepted += 1
            out.further += _go_on(found, folder)
    except LabError as e:
        if found_problem := _bad_refusal(e, target):
            return found_problem
        out.refused += 1
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        return f"{type(e).__name__}: {str(e)[:200]} ({where.filename}:{where.lineno})"
    return ""


def _bad_refusal(error: LabError, target: Path) -> str:
    text = str(error)
    if len(text) > 30_000 or (not text.isprintable() and any(not c.isprintable() and c != "\n" for c in text)):
        return f"a message that cannot be shown: {text[:200]!r}"
    if any(not p.what or not p.remedy or not p.file for p in error.problems):
        return f"a refusal without file or remedy: {text[:200]!r}"
    return ""


def _go_on(found: Any, folder: Path) -> bool:
    """Use what was read as anybody would; what is written has to be readable, and the same."""
    if isinstance(found, Trace):
        _use_trace(found, folder)
    elif isinstance(found, Canary):
        _written(found.canonical, "again.canary.json", folder, _read_canary, found)
    else:
        return False
    return True


def _use_trace(trace: Trace, folder: Path) -> None:
    import commcanary_lab as lab
    from commcanary_lab.trace.json_v1 import read_json
    from commcanary_lab.trace.parquet import read_parquet, write_parquet
    from commcanary_lab.trace.write_v1 import write_json

    repr(trace)
    trace._repr_html_()
    for write, read, name in ((write_json, read_json, "again.json"), (write_parquet, read_parquet, "again.parquet")):
        path = folder / name
        try:
            write(trace, path)
        except LabError:
            continue  # refused before anything was written
        try:
            again = read(path)
        except LabError as e:
            raise AssertionError(f"writes {name} and refuses to read it: {e}") from None
        assert same(trace, again), f"{name} reads as another trace"
    try:
        canary = lab.compile(trace, lossless=True)
    except LabError:
        return  # for example: unknown values
    _written(canary.canonical, "again.canary.json", folder, _read_canary, canary)


def _read_canary(path: Path) -> Canary:
    from commcanary_lab.canary.read import read_canary

    return read_canary(path)


def _written(data: bytes, name: str, folder: Path, read: Callable[[Path], Any], found: Any) -> None:
    path = folder / name
    path.write_bytes(data)
    try:
        again = read(path)
    except LabError as e:
        raise AssertionError(f"makes {name} and refuses to read it: {e}") from None
    assert same(found, again), f"{name} reads as another one"


def main(arguments: list[str] | None = None) -> int:
    """Fuzz the readers and print a table; 1 where one crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="per reader")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="readers, with commas between them; all by default")
    parser.add_argument("--crashes", type=Path, default=Path("build/crashes"), help="where inputs that crash are kept")
    given = parser.parse_args(arguments)
    wanted = given.only.split(",") if given.only else [r.name for r in READERS]
    print(HEAD, flush=True)
    total = Fuzzed("all")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for reader in READERS:
            if reader.name in wanted:
                out = fuzz(reader, given.inputs, given.seed, Path(folder), given.crashes)
                print(out.row, flush=True)
                for crash in out.crashes[:5]:
                    print(f"  {crash}", flush=True)
                for name in ("inputs", "refused", "accepted", "further", "seconds"):
                    setattr(total, name, getattr(total, name) + getattr(out, name))
                total.slowest_s = max(total.slowest_s, out.slowest_s)
                total.crashes += out.crashes
    print(total.row, flush=True)
    return int(bool(total.crashes))


if __name__ == "__main__":
    sys.exit(main())
