"""Whole processes, from start to exit, against the published figures of CommCanary 0.3.0 on the same generated traces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

GENERATOR = Path(__file__).parent / "gen_traces.py"
COMMAND = [sys.executable, "-m", "commcanary_lab.cli"]

#: CPU seconds and peak megabytes of theirs: operation, shape, events. None where theirs was refused or not run.
THEIRS: dict[tuple[str, str], dict[int, tuple[float, float] | None]] = {
    ("load", "regular"): {1_000: (0.041, 26), 10_000: (0.40, 47), 100_000: (2.2, 180)},
    ("compile lossless", "regular"): {1_000: (0.217, 33), 10_000: (2.40, 94), 100_000: (27.1, 668)},
    ("compile lossless", "irregular"): {1_000: (0.368, 34), 10_000: (3.95, 115), 100_000: (42.1, 814)},
    ("simulate", "regular"): {1_000: (0.132, 33), 10_000: (1.36, 94), 100_000: (15.2, 668)},
    ("simulate", "irregular"): {1_000: (0.204, 34), 10_000: (2.60, 115), 100_000: (32.6, 813)},
    ("verify", "regular"): {1_000: (2.16, 35), 10_000: (23.1, 106), 100_000: None},
    ("verify", "irregular"): {1_000: (0.464 + 3.07, 41), 10_000: (6.57 + 44.6, 171), 100_000: None},
    ("search, 2 to 4 records", "regular"): {1_000: (7.12, 36), 10_000: (75.7, 115), 100_000: None},
    ("search, 2 to 4 records", "irregular"): {1_000: (11.0, 43), 10_000: (159.0, 193), 100_000: None},
    ("ddmin, budget 256", "irregular"): {1_000: (2.65, 34), 10_000: (32.9, 115)},
    ("export to PARAM", "irregular"): {1_000: (0.122, 34), 10_000: (1.55, 115)},
    ("export to PARAM", "regular"): {100_000: (7.5, 0)},
}
CELLS = [(op, shape, events) for (op, shape), by_events in THEIRS.items() for events in by_events]
#: Those of the cold start: what is run, and the seconds that it may take.
COLD = {"--help": (["--help"], 0.3), "simulate 10 events": (["simulate", "ten.json"], 1.2)}


class Files:
    """Generated traces, and the canaries of those that operations need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def trace(self, shape: str, events: int) -> Path:
        path = self.folder / f"{shape}-{events}.json"
        if not path.exists():
            subprocess.run([sys.executable, str(GENERATOR), shape, str(events), str(path)], check=True)
        return path

    def canary(self, shape: str, events: int) -> Path:
        path = self.folder / f"{shape}-{events}.canary.json"
        if not path.exists():
            subprocess.run([*COMMAND, "compile", str(self.trace(shape, events)), "-o", str(path)], check=True, capture_output=True)
        return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("peer"))


def arguments(op: str, files: Files, shape: str, events: int, out: Path) -> list[str]:
    """Return what our command line is given for an operation."""
    trace = str(files.trace(shape, events))
    match op:
        case "load":
            return ["open", trace]
        case "compile lossless":
            return ["compile", trace, "-o", str(out / "c.json")]
        case "simulate":
            return ["simulate", trace]
        case "verify":
            return ["verify", trace, str(files.canary(shape, events))]
        case "search, 2 to 4 records":
            return ["search", trace, "--records", "2:4", "-o", str(out / "c.json")]
        case "ddmin, budget 256":
            return ["reduce", trace, "--budget", "256", "-o", str(out / "r.json")]
        case "export to PARAM":
            return ["export", "param", str(files.canary(shape, events)), "-o", str(out / "param"), "--skip-unsupported"]
    raise AssertionError(op)


#: A small process between: the peak of a child counts what its parent holds when it is started.
_APART = """
import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
sys.stderr.write(f"\\n{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}")
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a command; return its CPU seconds and its peak memory in MB."""
    done = subprocess.run([sys.executable, "-S", "-c", _APART, *COMMAND, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    cpu, peak = done.stderr.rsplit("\n", 1)[1].split()
    return float(cpu), float(peak)


@pytest.mark.parametrize(("op", "shape", "events"), CELLS)
def test_whole_process(benchmark: BenchmarkFixture, files: Files, tmp_path: Path, op: str, shape: str, events: int) -> None:
    used: list[tuple[float, float]] = []
    number = 0

    def work() -> None:
        nonlocal number
        number += 1
        out = tmp_path / str(number)
        out.mkdir()
        used.append(run(arguments(op, files, shape, events, out), out))

    benchmark.group = f"peer: {op}, {shape}"
    benchmark.pedantic(work, rounds=3 if events < 100_000 else 1, iterations=1)
    middle = sorted(used)[len(used) // 2]
    benchmark.extra_info |= {"events": events, "cpu_s": middle[0], "peak_mb": middle[1], "theirs": THEIRS[op, shape][events]}


@pytest.mark.parametrize("name", COLD)
def test_cold_start(benchmark: BenchmarkFixture, files: Files, tmp_path: Path, name: str) -> None:
    """A fresh process whose files are in the page cache."""
    (tmp_path / "ten.json").write_bytes(files.trace("irregular", 10).read_bytes())
    benchmark.group = f"cold: {name}"
    benchmark.pedantic(lambda: run(COLD[name][0], tmp_path), rounds=7, iterations=1, warmup_rounds=1)
    benchmark.extra_info |= {"events": 10, "target_s": COLD[name][1]}
    assert benchmark.stats.stats.min < 5 * COLD[name][1]
