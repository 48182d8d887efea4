"""Kills running commands at random points and checks what they leave: ``make kill-test``.

Every scenario runs the real program in a process of its own and ends it with SIGKILL, half of the times at a moment drawn over its whole
run and half of the times while it writes. After each kill every file under its final name has to be whole.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "samples" / "adversarial.json"

#: Seconds in which the ranks of a killed campaign have to be gone, on a slow and busy machine.
ORPHANS_S = 30.0

__all__ = ["SCENARIOS", "Outcome", "Scenario", "main", "run"]


@dataclass
class Outcome:
    """What came of the kills of one scenario."""

    name: str
    kills: int = 0
    ended_before: int = 0
    while_writing: int = 0
    leftovers: int = 0
    finished_files: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """One line of the table."""
        return (
            f"{self.name:<12} {self.kills:>6} {self.while_writing:>14} {self.ended_before:>13} {self.finished_files:>15} "
            f"{self.leftovers:>10} {len(self.problems):>9} {self.seconds:>8.0f}"
        )


HEAD = (
    f"{'scenario':<12} {'kills':>6} {'while writing':>14} {'ended before':>13} {'whole outputs':>15} "
    f"{'leftovers':>10} {'problems':>9} {'s':>8}"
)


@dataclass(frozen=True)
class Scenario:
    """A program that is killed.

    Parameters
    ----------
    name : str
    prepare : callable
        Writes the inputs into a new folder, and artifacts that have to survive.
    command : callable
        From folder and number of the run to the command line.
    check : callable
        Looks at the folder after a kill; returns how many whole outputs there are, and problems.
    writing : callable
        From folder and number to whether the program is writing at this moment.
    """

    name: str
    prepare: Callable[[Path], None]
    command: Callable[[Path, int], list[str]]
    check: Callable[[Path, int], tuple[int, list[str]]]
    writing: Callable[[Path, int], bool]


def _cli(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "commcanary_lab.cli", *map(str, arguments)]


def _temporaries(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.name.startswith(".") and p.name.endswith(".tmp")] if folder.is_dir() else []


def _strangers(folder: Path, known: set[str]) -> list[str]:
    """Visible files that nobody should have left."""
    return [f"{p.name}: left behind" for p in folder.iterdir() if not p.name.startswith(".") and p.name not in known]


# -- compile, search ---------------------------------------------------------------------------------------------------


def _prepare(folder: Path) -> None:
    shutil.copyfile(SAMPLE, folder / "trace.json")
    subprocess.run(_cli("compile", folder / "trace.json", "--records", 3, "-o", folder / "done.canary.json"), check=True, stdout=-3)
    (folder / "done.sha").write_bytes((folder / "done.canary.json").read_bytes())


def _check_canary(folder: Path, number: int) -> tuple[int, list[str]]:
    from commcanary_lab.canary.read import read_canary
    from commcanary_lab.workspace.ledger_file import read_ledger

    problems = []
    if (folder / "done.canary.json").read_bytes() != (folder / "done.sha").read_bytes():
        problems.append("done.canary.json: changed")
    whole = 0
    for name, read in (("out.canary.json", read_canary), ("out.ledger.json", read_ledger)):
        if (folder / name).exists():
            try:
                read(folder / name)
                whole += 1
            except Exception as e:
                problems.append(f"{name}: {type(e).__name__}: {e}")
            (folder / name).unlink()
    return whole, problems + _strangers(folder, {"trace.json", "done.canary.json", "done.sha"})


def _writes_here(folder: Path, number: int) -> bool:
    return bool(_temporaries(folder))


# -- workspace ---------------------------------------------------------------------------------------------------------

_INDEXING = """
import sys
from commcanary_lab.workspace import Workspace
w = Workspace(sys.argv[1])
for i in range(int(sys.argv[2]), int(sys.argv[2]) + 40):
    event = b'{"op": "all_reduce", "bytes": %d, "ranks": 2, "gap_us": 1}' % (8 + i % 7)
    w.add("added-%03d.json" % (i % 60), b'{"format": "commcanary.trace.v1", "events": [' + event + b"]}", rename=True)
    w.list()
"""


def _prepare_workspace(folder: Path) -> None:
    (folder / "ws").mkdir()
    for i in range(40):
        shutil.copyfile(SAMPLE, folder / "ws" / f"trace-{i:02d}.json")
    subprocess.run(_cli("compile", SAMPLE, "--records", 3, "-o", folder / "ws" / "done.canary.json"), check=True, stdout=-3)
    (folder / "done.sha").write_bytes((folder / "ws" / "done.canary.json").read_bytes())


def _check_workspace(folder: Path, number: int) -> tuple[int, list[str]]:
    """Every artifact opens, in the killed folder and in a new look at it; now and then everything that is cached is thrown away."""
    from commcanary_lab.importers.open import open_trace
    from commcanary_lab.workspace import Workspace

    problems = []
    place = folder / "ws"
    if (place / "done.canary.json").read_bytes() != (folder / "done.sha").read_bytes():
        problems.append("done.canary.json: changed")
    listed = {a.name: a.kind for a in Workspace(place).list()}
    there = {p.name for p in place.iterdir() if not p.name.startswith(".")}
    if set(listed) != there:
        problems.append(f"listed {sorted(set(listed) ^ there)[:3]} differently from what is there")
    wrong = [n for n, kind in listed.items() if kind != ("canary" if "canary" in n else "trace")]
    problems += [f"{n}: listed as {listed[n]}" for n in wrong[:3]]
    added = [p for p in place.iterdir() if p.name.startswith("added-")]
    for path in added:
        try:
            open_trace(path)
        except Exception as e:
            problems.append(f"{path.name}: {type(e).__name__}: {e}")
    if number % 10 == 9:
        for path in added:
            path.unlink()
    return len(added), problems


def _uploads(folder: Path, number: int) -> bool:
    return any(p.name.startswith(".upload-") or p.name.endswith((".tmp", "-wal", "-journal")) for p in (folder / "ws").iterdir())


# -- campaign ----------------------------------------------------------------------------------------------------------

_CAMPAIGN = """
format = "commcanary.campaign.v1"
name = "killed"
question = "Are the bytes right?"
repetitions = 1
order = "rotation"
timeout_s = 60
[programs]
job = "job.json"
[[configurations]]
name = "job"
program = "job"
ranks = 2
backend = "gloo"
kind = "probe"
[configurations.probe]
epochs = 1
replays = 2
[decision]
rule = "all"
"""


def _prepare_campaign(folder: Path) -> None:
    events = [
        {"op": "all_reduce", "bytes": 64, "dtype": "float32", "reduction_op": "sum", "ranks": 2, "start_us": 10 * i} for i in range(5)
    ]
    (folder / "job.json").write_text(json.dumps({"format": "commcanary.trace.v1", "workload": {}, "system": {}, "events": events}))
    (folder / "campaign.toml").write_text(_CAMPAIGN)
    subprocess.run(_cli("campaign", "run", folder / "campaign.toml", "-o", folder / "evidence" / "done"), check=False, stdout=-3, stderr=-3)


def _check_campaign(folder: Path, number: int) -> tuple[int, list[str]]:
    from commcanary_lab.replay.campaign.record import read_record
    from commcanary_lab.replay.campaign.result import read_campaign
    from commcanary_lab.replay.evidence import verify_seal
    from commcanary_lab.replay.result import read_replay

    problems = [f"done: {p}" for p in verify_seal(folder / "evidence" / "done")]
    deadline = time.monotonic() + ORPHANS_S
    place = folder / "evidence" / f"run-{number}"
    while (left := _processes(place)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        problems.append(f"{len(left)} processes of the killed campaign still run after {ORPHANS_S:g} s")
    whole = 0
    try:
        if (place / "SHA256SUMS").exists():
            problems += [f"sealed, but {p}" for p in verify_seal(place)]
        if (place / "manifest.json").exists():
            read_record(place)
            whole += 1
        if (place / "decision.json").exists():
            read_campaign(place)
            whole += 1
        for run in place.glob("runs/*"):
            if (run / "run.json").exists():
                read_replay(run)
            if (run / "SHA256SUMS").exists():
                problems += [f"{run.name} is sealed, but {p}" for p in verify_seal(run)]
    except Exception as e:
        problems.append(f"{place.name}: {type(e).__name__}: {e}")
    shutil.rmtree(place, ignore_errors=True)
    return whole, problems


def _processes(place: Path) -> list[int]:
    """Living processes whose command line names a directory of evidence."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path("/proc", entry, "cmdline").read_bytes()
                state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if os.fsencode(f"{place}{os.sep}") in line and state not in "ZX":
                found.append(int(entry))
    return found


def _runs(folder: Path, number: int) -> bool:
    return any((folder / "evidence" / f"run-{number}" / "runs").glob("*/rank-*"))


SCENARIOS: dict[str, Scenario] = {
    s.name: s
    for s in (
        Scenario(
            "compile",
            _prepare,
            lambda f, n: _cli("compile", f / "trace.json", "--records", 2 + n % 5, "-o", f / "out.canary.json"),
            _check_canary,
            _writes_here,
        ),
        Scenario(
            "search",
            _prepare,
            lambda f, n: _cli(
                "search", f / "trace.json", "--records", "2:4", "--ledger", f / "out.ledger.json", "-o", f / "out.canary.json"
            ),
            _check_canary,
            _writes_here,
        ),
        Scenario(
            "index",
            _prepare_workspace,
            lambda f, n: [sys.executable, "-c", _INDEXING, str(f / "ws"), str(7 * n)],
            _check_workspace,
            _uploads,
        ),
        Scenario(
            "campaign",
            _prepare_campaign,
            lambda f, n: _cli("campaign", "run", f / "campaign.toml", "-o", f / "evidence" / f"run-{n}"),
            _check_campaign,
            _runs,
        ),
    )
}


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _kill(scenario: Scenario, folder: Path, number: int, delay_s: float, aimed: bool, most_s: float) -> tuple[bool, bool]:
    """Start the program and kill it; return whether it ended before, and whether it was writing."""
    with _started(scenario.command(folder, number)) as process:
        begin = time.monotonic()
        if aimed:
            while not scenario.writing(folder, number) and process.poll() is None and time.monotonic() < begin + most_s:
                time.sleep(0.0005)
            time.sleep(delay_s)
        else:
            while process.poll() is None and time.monotonic() < begin + delay_s:
                time.sleep(0.001)
        ended = process.poll() is not None
        writing = not ended and scenario.writing(folder, number)
        process.send_signal(signal.SIGKILL)  # nothing where it has ended
        process.wait()
    return ended, writing


def run(scenario: Scenario, kills: int, seed: int, folder: Path) -> Outcome:
    """Kill a program so many times.

    Parameters
    ----------
    scenario : Scenario
    kills : int
        How often.
    seed : int
        Decides when.
    folder : Path
        New; what is made in it stays.
    """
    rng = random.Random(f"{scenario.name}:{seed}")
    out = Outcome(scenario.name)
    begin = time.monotonic()
    scenario.prepare(folder)
    subprocess.run(scenario.command(folder, 0), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    scenario.check(folder, 0)
    started = time.monotonic()
    subprocess.run(scenario.command(folder, 10**6), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    lasts = time.monotonic() - started
    out.problems += [f"undisturbed: {p}" for p in scenario.check(folder, 10**6)[1]]
    for number in range(kills):
        aimed = number % 2 == 1
        delay = rng.random() * (0.004 if aimed else lasts)
        ended, writing = _kill(scenario, folder, number, delay, aimed, 20 * lasts + 10)
        out.kills += 1
        out.ended_before += ended
        out.while_writing += writing
        whole, problems = scenario.check(folder, number)
        out.finished_files += whole
        out.problems += [f"kill {number} ({'aimed' if aimed else f'{delay:.2f} s'}): {p}" for p in problems]
    out.leftovers = len(_temporaries(folder)) + len([p for p in (folder / "ws").glob(".*")] if (folder / "ws").is_dir() else [])
    last = subprocess.run(scenario.command(folder, 10**6 + 1), capture_output=True, text=True, check=False)
    if last.returncode not in (0, 1):
        out.problems.append(f"the next run exits {last.returncode}: {last.stderr[-300:]}")
    out.problems += [f"next run: {p}" for p in scenario.check(folder, 10**6 + 1)[1]]
    out.seconds = time.monotonic() - begin
    return out


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios and print a table; 1 where anything was lost or half-written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="per scenario")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default=",".join(SCENARIOS), help="scenarios, with commas between them")
    given = parser.parse_args(arguments)
    print(HEAD, flush=True)
    failed = False
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(prefix=f"kill-{name}-") as folder:
            out = run(SCENARIOS[name], given.kills, given.seed, Path(folder))
        print(out.row, flush=True)
        for problem in out.problems:
            failed = True
            print(f"  {problem}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
