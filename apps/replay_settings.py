"""How a replay is to run: what the address says of it, and the command line that it becomes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from .page import Selection

__all__ = ["BOUNDS", "Settings", "can_replay", "gpus", "settings"]

#: Of the whole numbers: smallest, largest, and what is proposed.
BOUNDS = {
    "ranks": (1, 4096, 0),
    "iterations": (1, 10_000, 5),
    "warmup": (0, 1000, 1),
    "epochs": (1, 10_000, 1),
    "replays": (1, 10_000, 2),
    "limit_s": (1, 86_400, 600),
}


@dataclass(frozen=True)
class Settings:
    """The choices of a replay.

    Parameters
    ----------
    of : str
        ``canary`` or ``trace``: which of the two that are open.
    ranks : int
        Processes; 0 for as many as fit this machine.
    backend : str
        ``auto``, ``gloo`` or ``nccl``.
    timing : str
        ``back_to_back`` or ``preserve``.
    iterations, warmup : int
        Measured runs of the program, and those before them.
    overlap, probe, skip : bool
        Compute beside operations; check every byte; leave out what no backend runs.
    epochs, replays : int
        Of the probe.
    limit_s : int
        Seconds after which the run is ended.
    """

    of: str = "canary"
    ranks: int = 0
    backend: str = "auto"
    timing: str = "back_to_back"
    iterations: int = 5
    warmup: int = 1
    overlap: bool = False
    probe: bool = False
    skip: bool = False
    epochs: int = 1
    replays: int = 2
    limit_s: int = 600

    def for_program(self, size: int) -> Settings:
        """Return the same with ranks that the program has; by default no more than there are cores, but at least two."""
        proposed = min(size, max(2, os.cpu_count() or 2))
        return replace(self, ranks=min(self.ranks, size) if self.ranks else proposed)

    def ran_by(self, devices: int) -> str:
        """Return the backend that ``auto`` means with so many GPUs."""
        if self.backend != "auto":
            return self.backend
        return "nccl" if devices >= self.ranks else "gloo"

    def title(self, source: str, devices: int) -> str:
        """Say in words what runs."""
        backend = {"gloo": "Gloo", "nccl": "NCCL"}[self.ran_by(devices)]
        timing = "back to back" if self.timing == "back_to_back" else "gaps preserved"
        parts = [f"{source} on {self.ranks:,} {backend} rank{'s' * (self.ranks != 1)}", timing]
        parts.append(f"{self.iterations:,} iteration{'s' * (self.iterations != 1)}")
        parts += ["compute beside operations"] if self.overlap else []
        parts += [f"data checked in {self.epochs * self.replays:,} samples"] if self.probe else []
        return ", ".join(parts)

    def command(self, source: Path, directory: Path, devices: int) -> list[str]:
        """Return the command line, one argument per item."""
        numbers = {"ranks": self.ranks, "iterations": self.iterations, "warmup": self.warmup, "timeout": self.limit_s}
        line = [sys.executable, "-m", "commcanary_lab.cli", "replay", str(source), "-o", str(directory)]
        line += ["--backend", self.ran_by(devices), "--timing", self.timing.replace("_", "-")]
        for name, value in numbers.items():
            line += [f"--{name}", str(value)]
        line += ["--overlap"] if self.overlap else []
        line += ["--probe", "--epochs", str(self.epochs), "--replays", str(self.replays)] if self.probe else []
        return line + (["--skip-unsupported"] if self.skip else [])


def settings(selection: Selection) -> Settings:
    """Return what the address asks for; what it says wrongly is left as it is proposed."""
    options: Mapping[str, tuple[str, ...]] = selection.options
    given = {name.removeprefix("run_"): values[0] for name, values in options.items() if name.startswith("run_") and values}
    out = Settings()
    choices = {"of": ("canary", "trace"), "backend": ("auto", "gloo", "nccl"), "timing": ("back_to_back", "preserve")}
    for name, allowed in choices.items():
        if given.get(name) in allowed:
            out = replace(out, **{name: given[name]})  # type: ignore[arg-type]
    for name, (low, high, _) in BOUNDS.items():
        text = given.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9 and low <= int(text) <= high:
            out = replace(out, **{name: int(text)})  # type: ignore[arg-type]
    for name in ("overlap", "probe", "skip"):
        out = replace(out, **{name: given.get(name) == "1"})  # type: ignore[arg-type]
    if out.of == "canary" and selection.canary is None and selection.trace is not None:
        out = replace(out, of="trace")
    return out


def can_replay() -> bool:
    """Say whether torch is there, without importing it."""
    return find_spec("torch") is not None


@cache
def gpus() -> int:
    """Return how many GPUs torch sees; asked in a process of its own, and only where there is a driver."""
    if not can_replay() or not Path("/dev/nvidiactl").exists():
        return 0
    ask = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    try:
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=120, check=False)
        return int(done.stdout.strip() or 0)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0
