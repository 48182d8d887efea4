"""Open what a preregistration names, find out whether it can run here, and freeze it."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import InputError, LabError, Problem
from commcanary_lab.files import MAX_CONFIG_BYTES, read_file
from commcanary_lab.replay.campaign.manifest import (
    INPUTS,
    PROGRAMS,
    FrozenConfiguration,
    FrozenProgram,
    Manifest,
    configuration_identity,
    planned_order,
    python_version,
    this_tool,
    torch_version,
)  # fmt: skip
from commcanary_lab.replay.campaign.preregistration import Configuration, Criterion, Preregistration
from commcanary_lab.replay.campaign.read import parse_preregistration
from commcanary_lab.replay.fabric_spec import fabric_from
from commcanary_lab.replay.launch import need_torch
from commcanary_lab.replay.probe import check_fault
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.run import choose_backend
from commcanary_lab.replay.source import sha256_of, write_source
from commcanary_lab.trace.model import Trace

__all__ = ["Frozen", "audit_of_program", "freeze", "open_program_file"]

_IS_CANARY = re.compile(rb'"format"\s*:\s*"commcanary_lab\.canary\.v')


@dataclass(frozen=True, eq=False)
class Frozen:
    """A campaign that is ready to run.

    Attributes
    ----------
    file : Path
        The preregistration.
    data : bytes
        Its content.
    asked : Preregistration
        The same, read.
    manifest : Manifest
        The identity.
    sources : dict of str to Canary or Trace
        The programs.
    files : dict of str to Path
        What is copied into the evidence, by where it goes.
    """

    file: Path
    data: bytes
    asked: Preregistration
    manifest: Manifest
    sources: dict[str, Canary | Trace]
    files: dict[str, Path]

    def program(self, c: Configuration) -> Program:
        """Return what a configuration runs."""
        return program_of(self.asked, self.sources, c)


def program_of(asked: Preregistration, sources: dict[str, Canary | Trace], c: Configuration) -> Program:
    """Return what a configuration runs."""
    return Program.of(sources[asked.program_of(c)], c.ranks, skip_unsupported=c.skip_unsupported)


def freeze(path: str | os.PathLike[str]) -> Frozen:
    """Read a preregistration and freeze it; nothing is written.

    Raises
    ------
    InputError
        With every problem: the file itself, its programs, settings that cannot run here.
    MissingExtraError
        If torch is not installed.
    """
    need_torch()
    file = Path(path)
    data = read_file(file, max_bytes=MAX_CONFIG_BYTES)
    asked = parse_preregistration(data, str(path))
    problems: list[Problem] = []
    files, sources, programs = _programs(file, asked, problems)
    inputs = {}
    for number, name in enumerate(asked.inputs, 1):
        given = file.parent / name
        if not given.is_file():
            problems.append(Problem(f"{name!r} is no file", file=str(path), field="inputs", remedy="check the path"))
            continue
        kept = f"{INPUTS}/{number:02d}-{given.name}"
        files[kept], inputs[kept] = given, sha256_of(given)
    tool = this_tool()
    code = [tool.running_sha256, python_version(), torch_version()]
    configurations = {}
    for c in asked.configurations:
        frozen = _configuration(asked, c, sources, str(path), problems)
        if frozen is not None:
            name = asked.program_of(c)
            identity = configuration_identity(asked, c, programs[name], frozen, code)
            configurations[c.name] = FrozenConfiguration(program=name, ranks=frozen[0], backend=frozen[1], identity=identity)  # type: ignore[arg-type]
    if not problems:
        problems += [p for criterion in asked.criteria for p in _filter(asked, sources, criterion, str(path))]
    if problems:
        raise InputError(problems)
    manifest = Manifest(
        name=asked.name, tool=tool, python=code[1], torch=code[2], preregistration_sha256=sha256_of(file), programs=programs, inputs=inputs,
        configurations=configurations, order=planned_order(asked),
    )  # fmt: skip
    return Frozen(file, data, asked, manifest, sources, files)


def _programs(
    file: Path, asked: Preregistration, problems: list[Problem]
) -> tuple[dict[str, Path], dict[str, Canary | Trace], dict[str, FrozenProgram]]:
    files: dict[str, Path] = {}
    sources: dict[str, Canary | Trace] = {}
    programs: dict[str, FrozenProgram] = {}
    for name, given in asked.programs.items():
        place = file.parent / given
        try:
            source = open_program_file(place)
        except LabError as error:
            problems += [Problem(str(error), file=str(file), field=f"programs.{name}")]
            continue
        kept = f"{PROGRAMS}/{name}{''.join(place.suffixes[-2:])}"
        with tempfile.TemporaryDirectory() as scratch:
            replayed, digest = write_source(source, Path(scratch))
        events = source.event_count if isinstance(source, Canary) else len(source)
        files[kept], sources[name] = place, source
        programs[name] = FrozenProgram(file=kept, sha256=sha256_of(place), replayed=replayed, replayed_sha256=digest, events=events)
    return files, sources, programs


def open_program_file(path: Path) -> Canary | Trace:
    """Open a canary or a trace of one file.

    Raises
    ------
    InputError
        If it is a directory, missing, or neither.
    """
    if path.is_dir():
        raise InputError("is a directory", file=str(path), remedy="write it into one file: commcanary-lab open DIR -o trace.parquet")
    if not path.is_file():
        raise InputError("does not exist", file=str(path), remedy="check the path; it is relative to the preregistration")
    if _IS_CANARY.search(read_file(path)):
        from commcanary_lab.canary.read import read_canary

        return read_canary(path)
    from commcanary_lab.importers.open import open_trace

    return open_trace(path)


def _configuration(
    asked: Preregistration, c: Configuration, sources: dict[str, Canary | Trace], file: str, problems: list[Problem]
) -> tuple[int, str] | None:
    if asked.program_of(c) not in sources:
        return None
    try:
        program = program_of(asked, sources, c)
        if c.probe is not None and c.probe.fault is not None:
            check_fault(program, c.probe.fault, c.probe.epochs * c.probe.replays)
        if c.fabric is not None:
            fabric_from(c.fabric)
        backend = choose_backend("gloo" if c.fabric is not None and c.backend == "auto" else c.backend, program.size)
    except LabError as error:
        at = f"configurations[{c.name}]"
        problems += [Problem(p.what, file=file, field=f"{at}.fabric.{p.field}" if p.field else at, remedy=p.remedy) for p in error.problems]
        return None
    if c.probe is not None and c.probe.mode != "eager" and backend != "nccl":
        what = f"the probe mode {c.probe.mode!r} captures CUDA graphs"
        problems.append(Problem(what, file=file, field=f"configurations[{c.name}].probe.mode", remedy="use eager, or run on GPUs"))
        return None
    return program.size, backend


def _filter(asked: Preregistration, sources: dict[str, Canary | Trace], criterion: Criterion, file: str) -> list[Problem]:
    """Return what is wrong with a criterion on an operation that the program does not have."""
    if not criterion.op and criterion.size_bytes is None:
        return []
    out = []
    for side in asked.sides(criterion):
        steps = [s for s in program_of(asked, sources, asked.configuration(side)).steps if s is not None]
        if not any(criterion.op in ("", s.op) and criterion.size_bytes in (None, s.size_bytes) for s in steps):
            has = sorted({f"{s.op} of {s.size_bytes} B" for s in steps})
            told = f"{side!r} has no {criterion.op or 'event'}" + (
                f" of {criterion.size_bytes} B" if criterion.size_bytes is not None else ""
            )
            out.append(Problem(told, file=file, field=f"criteria[{criterion.name}]", remedy=f"it has {', '.join(has[:8])}"))
    return out


def audit_of_program(asked: Preregistration, c: Configuration, program: Program) -> list[str]:
    """Return where the counts of a program are not those that an audit pins, per rank; nothing where all are."""
    return [
        text
        for audit in asked.audits
        if not audit.configurations or c.name in audit.configurations
        for rank in range(program.size)
        if (text := audit_text(c.name, rank, program.counts(rank), audit.counts))
    ]


def audit_text(configuration: str, rank: int, found: dict[str, int], pinned: dict[str, int]) -> str:
    """Say how counts differ from pinned ones; empty where they do not. A rank without any event takes no part and is not audited.

    Examples
    --------
    >>> audit_text("canary", 2, {"all_gather": 95, "all_reduce": 1}, {"all_gather": 96, "all_reduce": 1})
    'canary, rank 2: 95 all_gather instead of 96; 96 events instead of 97'
    """
    found, pinned = ({op: n for op, n in counts.items() if n} for counts in (found, pinned))
    if not found or found == pinned:
        return ""
    parts = [
        f"{found.get(op, 0)} {op} instead of {pinned.get(op, 0)}" for op in sorted({*found, *pinned}) if found.get(op) != pinned.get(op)
    ]
    if sum(found.values()) != sum(pinned.values()):
        parts.append(f"{sum(found.values())} events instead of {sum(pinned.values())}")
    return f"{configuration}, rank {rank}: {'; '.join(parts)}"
