"""Is the evidence of a campaign what it was, and does its decision follow from its raw samples? Everything is recomputed."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from commcanary_lab.errors import LabError
from commcanary_lab.replay.campaign.decide import evaluate
from commcanary_lab.replay.campaign.freeze import open_program_file, program_of
from commcanary_lab.replay.campaign.manifest import (
    DECISION,
    MANIFEST,
    PREREGISTRATION,
    RUNS,
    configuration_identity,
    planned_order,
)
from commcanary_lab.replay.campaign.outcome import Outcome
from commcanary_lab.replay.campaign.record import Record, planned_spec, read_record
from commcanary_lab.replay.evidence import SUMS, verify_seal
from commcanary_lab.replay.source import sha256_of
from commcanary_lab.replay.spec import read_document
from commcanary_lab.verify.documents import check_document

__all__ = ["CampaignCheck", "verify_campaign"]

#: Figures agree up to the last digits, in which processors differ.
_RELATIVE = 1e-9


@dataclass(frozen=True)
class CampaignCheck:
    """Outcome of a verification.

    Attributes
    ----------
    differences : tuple of str
        What is not as it should be, files first; nothing where all is well.
    files : int
        Files that the seal lists.
    runs : int
        Runs that were read again.
    values : int
        Values of the decision that were recomputed.
    decision : str, optional
        Recomputed; None where the evidence does not allow it.
    """

    differences: tuple[str, ...]
    files: int = 0
    runs: int = 0
    values: int = 0
    decision: str | None = None

    @property
    def passed(self) -> bool:
        """Everything is as it was sealed, and comes out again."""
        return not self.differences

    @property
    def first_difference(self) -> str | None:
        """The first of them."""
        return self.differences[0] if self.differences else None

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return {
            "status": "recomputed" if self.passed else "mismatch", "first_difference": self.first_difference,
            "differences": list(self.differences), "files": self.files, "runs": self.runs, "values": self.values, "decision": self.decision,
        }  # fmt: skip

    def __repr__(self) -> str:
        if self.passed:
            return f"CampaignCheck(recomputed: {self.files} files, {self.runs} runs, {self.values} values)"
        return f"CampaignCheck(mismatch: {len(self.differences)} differences; first {self.first_difference})"


def verify_campaign(directory: str | os.PathLike[str]) -> CampaignCheck:
    """Verify the evidence of a campaign.

    In this order: the seal of the whole and of each run (changed, missing and added files), the hashes of the manifest, the planned
    order, what each run says that it ran, and every value of the decision, recomputed from the raw samples.

    Parameters
    ----------
    directory : path-like
        The evidence.
    """
    place = Path(directory)
    differences = _seal(place)
    files = (place / SUMS).read_bytes().count(b"\n") if (place / SUMS).is_file() else 0
    runs = values = 0
    decision = None
    try:
        record = read_record(place)
        differences += _identity(record)
        differences += _runs(record)
        runs = len(record.replays)
        outcome = evaluate(record)
        decision = outcome.decision
        stated = msgspec.to_builtins(read_document(place / DECISION, Outcome))
        found = _settled(msgspec.to_builtins(outcome), stated)
        check = check_document(_plain(stated), _plain(found), path="decision")
        values = check.leaves
        if check.first_difference is not None:
            more = f"; {check.differences} values differ" if check.differences > 1 else ""
            differences.append(f"{DECISION}: {check.first_difference}{more}")
    except (LabError, OSError) as error:
        differences.append(str(error))
    except Exception as error:  # damaged evidence may break anything, and that is a finding
        differences.append(f"cannot be evaluated: {type(error).__name__}: {error}")
    return CampaignCheck(tuple(dict.fromkeys(differences)), files, runs, values, decision)


def _seal(place: Path) -> list[str]:
    out = verify_seal(place)
    runs = place / RUNS
    for run in sorted(p for p in runs.iterdir() if p.is_dir()) if runs.is_dir() else []:
        out += [f"{RUNS}/{run.name}/{text}" for text in verify_seal(run)]
    # a directory is no file and is in no list of files
    for folder, names, files in os.walk(place):
        for name in names:
            path = Path(folder) / name
            if path.is_symlink():
                out.append(f"{path.relative_to(place)}: added")
        if not names and not files:
            out.append(f"{Path(folder).relative_to(place)}: added")
    return list(dict.fromkeys(out))


def _identity(record: Record) -> list[str]:
    """Compare the manifest with what lies beside it and with what follows from the preregistration."""
    m, asked, place = record.manifest, record.asked, record.directory
    out = []
    hashes = {PREREGISTRATION: m.preregistration_sha256, **{p.file: p.sha256 for p in m.programs.values()}, **m.inputs}
    for name, digest in hashes.items():
        if not (place / name).is_file() or sha256_of(place / name) != digest:
            out.append(f"{MANIFEST}: {name} does not have the SHA-256 that is frozen")
    if m.name != asked.name or set(m.programs) != set(asked.programs) or set(m.configurations) != {c.name for c in asked.configurations}:
        return [*out, f"{MANIFEST}: is of another preregistration"]
    if m.order != planned_order(asked):
        out.append(f"{MANIFEST}: order: is not the preregistered one")
    code = [m.tool.running_sha256, m.python, m.torch]
    for c in asked.configurations:
        frozen = m.configurations[c.name]
        identity = configuration_identity(asked, c, m.programs[asked.program_of(c)], (frozen.ranks, frozen.backend), code)
        if frozen.program != asked.program_of(c) or frozen.identity != identity:
            out.append(f"{MANIFEST}: configurations.{c.name}.identity: does not come out again")
    return out


def _runs(record: Record) -> list[str]:
    m, asked, place = record.manifest, record.asked, record.directory
    out = []
    expected = {p.directory for p in m.order if p.run in record.replays}
    present = {f"{RUNS}/{p.name}" for p in (place / RUNS).iterdir()} if (place / RUNS).is_dir() else set()
    out += [f"{name}: is no run of the plan, or comes after one that is missing" for name in sorted(present - expected)]
    sources = {name: open_program_file(place / p.file) for name, p in m.programs.items()}
    for planned in m.order:
        if planned.run not in record.replays:
            break
        c, replay = asked.configuration(planned.configuration), record.replays[planned.run]
        program = program_of(asked, sources, c)
        if replay.spec != planned_spec(m, asked, planned, program.source_ranks):
            out.append(f"{planned.directory}/run.json: is not what was planned")
        if replay.program.steps != program.steps or replay.program.events != program.events:
            out.append(f"{planned.directory}/{replay.spec.program}: is not the program {asked.program_of(c)!r}")
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _settled(found: Any, stated: Any) -> Any:
    """Return what was recomputed, with numbers of the document where they agree up to rounding."""
    if isinstance(found, dict) and isinstance(stated, dict):
        return {k: _settled(v, stated.get(k)) for k, v in found.items()}
    if isinstance(found, (list, tuple)) and isinstance(stated, (list, tuple)) and len(found) == len(stated):
        return [_settled(v, s) for v, s in zip(found, stated, strict=True)]
    if isinstance(found, float) and isinstance(stated, float) and math.isclose(found, stated, rel_tol=_RELATIVE, abs_tol=1e-12):
        return stated
    return found
