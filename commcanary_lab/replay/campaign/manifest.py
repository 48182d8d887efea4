"""The frozen identity of a campaign: what will run, with which code, in which order. Written before the first run."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import msgspec

import commcanary_lab
from commcanary_lab.canonical import canonical_bytes, sha256_hex
from commcanary_lab.replay.campaign.preregistration import Configuration, Preregistration
from commcanary_lab.replay.source import sha256_of

__all__ = [
    "DECISION", "INPUTS", "JOURNAL", "MANIFEST", "PREREGISTRATION", "PROGRAMS", "RUNS", "STOP", "FrozenConfiguration", "FrozenProgram",
    "Manifest", "PlannedRun", "Tool", "configuration_identity", "planned_order", "this_tool", "torch_version",
]  # fmt: skip

MANIFEST, PREREGISTRATION, DECISION, JOURNAL, STOP = "manifest.json", "preregistration.toml", "decision.json", "journal.jsonl", "stop.json"
PROGRAMS, INPUTS, RUNS = "programs", "inputs", "runs"


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The code that runs.

    Parameters
    ----------
    version : str
        Of the package.
    commit : str
        Of its git checkout, or ``unknown``.
    modified : bool, optional
        Whether the package differs from the commit; None where there is no git.
    sources_sha256 : str
        One digest over all files of the package.
    running_sha256 : str
        The same over what takes part in a run: reading a program and replaying it. While a campaign runs, it may not change.
    """

    version: str
    commit: str
    modified: bool | None
    sources_sha256: str
    running_sha256: str


class FrozenProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program as it was when the campaign began.

    Parameters
    ----------
    file : str
        Its copy, relative to the evidence.
    sha256 : str
        Of that file, which equals the one that was given.
    replayed : str
        Name of the file that a run's directory has of it: a canary in canonical form, or a trace as Parquet.
    replayed_sha256 : str
        Of that file.
    events : int
        Events of the program.
    """

    file: str
    sha256: str
    replayed: str
    replayed_sha256: str
    events: int


class FrozenConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A configuration with everything that was left to the machine.

    Parameters
    ----------
    program : str
        Name of the program.
    ranks : int
        Processes.
    backend : str
        ``gloo`` or ``nccl``.
    identity : str
        SHA-256 over what decides about right and wrong data: program, settings, sources, versions. A probe that failed under an
        identity is not run again.
    """

    program: str
    ranks: int
    backend: Literal["gloo", "nccl"]
    identity: str


class PlannedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run.

    Parameters
    ----------
    run : int
        Its place in the order, from 1.
    round : int
        The repetition, from 1; what is compared is compared within a round.
    configuration : str
        What runs.
    """

    run: int
    round: int
    configuration: str

    @property
    def directory(self) -> str:
        """Its directory, relative to the evidence."""
        return f"{RUNS}/{self.run:04d}-{self.configuration}"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole identity; nothing in it depends on the time of day or on the place.

    Parameters
    ----------
    name : str
        Of the campaign.
    tool : Tool
        The code.
    python, torch : str
        Versions.
    preregistration_sha256 : str
        Of the preregistration, byte for byte.
    programs, inputs, configurations : dict
        By name.
    order : tuple of PlannedRun
        All runs.
    """

    name: str
    tool: Tool
    python: str
    torch: str
    preregistration_sha256: str
    programs: dict[str, FrozenProgram]
    inputs: dict[str, str]
    configurations: dict[str, FrozenConfiguration]
    order: tuple[PlannedRun, ...]
    format: Literal["commcanary.manifest.v1"] = "commcanary.manifest.v1"

    @property
    def sha256(self) -> str:
        """The campaign's identity: the SHA-256 of the manifest in canonical form."""
        return sha256_hex(canonical_bytes(msgspec.to_builtins(self)))


def planned_order(asked: Preregistration) -> tuple[PlannedRun, ...]:
    """Return the order of the runs.

    ``ABBA`` begins every other repetition with the candidate, so that a steady drift of the machine falls on both alike. ``rotation``
    begins each repetition with the next configuration.
    """
    names = [c.name for c in asked.configurations]
    if asked.order == "ABBA":
        names = [asked.control, asked.candidate]
    runs = []
    for repetition in range(asked.repetitions):
        begin = repetition % len(names)
        turn = names[begin:] + names[:begin]
        runs += [(repetition + 1, name) for name in turn]
    return tuple(PlannedRun(run=i, round=r, configuration=n) for i, (r, n) in enumerate(runs, 1))


def configuration_identity(
    asked: Preregistration, c: Configuration, program: FrozenProgram, frozen: tuple[int, str], code: list[str]
) -> str:
    """Return the SHA-256 over what decides about the data of a configuration: its name, repetitions and times do not.

    Parameters
    ----------
    asked : Preregistration
        The campaign.
    c : Configuration
        The configuration.
    program : FrozenProgram
        What it runs.
    frozen : pair of int and str
        Ranks and backend.
    code : list of str
        Digest of the sources, versions.
    """
    probe = msgspec.to_builtins(c.probe) if c.probe is not None else None
    ranks, backend = frozen
    settings = {"timing": c.timing, "barrier": c.barrier, "overlap": c.overlap, "skip_unsupported": c.skip_unsupported}
    values = {"program": program.replayed_sha256, "ranks": ranks, "backend": backend, "probe": probe, "fabric": c.fabric, "code": code}
    return sha256_hex(canonical_bytes(settings | values))


def this_tool() -> Tool:
    """Return what code this is."""
    package = Path(commcanary_lab.__file__).parent
    commit = _git(package, "rev-parse", "HEAD")
    changes = _git(package, "status", "--porcelain", "--", ".") if commit is not None else None
    modified = None if changes is None else bool(changes)
    return Tool(
        version=commcanary_lab.__version__, commit=commit or "unknown", modified=modified, sources_sha256=_digest(_sources()),
        running_sha256=running_sha256(),
    )  # fmt: skip


def running_sha256() -> str:
    """Return one digest over the sources that ranks read when they start; what decides is loaded by then."""
    return _digest([(name, path) for name, path in _sources() if _is_running(name)])


def _is_running(name: str) -> bool:
    folder, separator, rest = name.partition("/")
    return not separator or folder in _RUNNING or (folder == "replay" and "/" not in rest)


#: Packages of which a rank imports something, besides the modules of `replay` itself.
_RUNNING = ("trace", "canary")


def _sources() -> list[tuple[str, Path]]:
    package = Path(commcanary_lab.__file__).parent
    found = [(p.relative_to(package).as_posix(), p) for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return sorted(found)


def _digest(files: list[tuple[str, Path]]) -> str:
    """Return the SHA-256 of the names and SHA-256 of files, as a list of sha256sum."""
    return hashlib.sha256("".join(f"{sha256_of(path)}  {name}\n" for name, path in files).encode()).hexdigest()


def _git(place: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def python_version() -> str:
    """Return the version of this Python."""
    return platform.python_version()


def torch_version() -> str:
    """Return the version of torch without importing it, which takes seconds; ``not installed`` without it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed"
