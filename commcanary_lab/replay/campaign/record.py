"""The evidence of a campaign, read back: what was planned, what ran, why it ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from commcanary_lab.errors import FormatError
from commcanary_lab.replay.campaign.manifest import MANIFEST, PREREGISTRATION, STOP, Manifest, PlannedRun
from commcanary_lab.replay.campaign.outcome import Stop
from commcanary_lab.replay.campaign.preregistration import Configuration, Preregistration
from commcanary_lab.replay.campaign.read import read_preregistration
from commcanary_lab.replay.result import Replay, read_replay
from commcanary_lab.replay.spec import ReplaySpec, read_document

__all__ = ["Record", "planned_spec", "read_record"]


@dataclass(frozen=True, eq=False)
class Record:
    """What a campaign's directory says.

    Attributes
    ----------
    directory : Path
        The evidence.
    manifest : Manifest
        The identity.
    asked : Preregistration
        What was asked.
    stop : Stop, optional
        Why it ended early.
    """

    directory: Path
    manifest: Manifest
    asked: Preregistration
    stop: Stop | None

    @cached_property
    def replays(self) -> Mapping[int, Replay]:
        """Runs that took place, by number; they end where the first one is missing."""
        out: dict[int, Replay] = {}
        for planned in self.manifest.order:
            if not (self.directory / planned.directory / "run.json").is_file():
                break
            out[planned.run] = read_replay(self.directory / planned.directory)
        return out

    def configuration(self, planned: PlannedRun) -> Configuration:
        """Return the configuration of a run."""
        return self.asked.configuration(planned.configuration)


def read_record(directory: str | os.PathLike[str]) -> Record:
    """Read the directory of a campaign, finished or not.

    Raises
    ------
    FormatError
        If it is not the directory of a campaign.
    """
    place = Path(directory)
    if not (place / MANIFEST).is_file():
        raise FormatError(f"has no {MANIFEST}", file=str(place), remedy="give the directory that campaign run wrote")
    manifest = read_document(place / MANIFEST, Manifest)
    stop = read_document(place / STOP, Stop) if (place / STOP).exists() else None
    return Record(place, manifest, read_preregistration(place / PREREGISTRATION), stop)


def planned_spec(manifest: Manifest, asked: Preregistration, planned: PlannedRun, source_ranks: int) -> ReplaySpec:
    """Return what a run's directory has to say that it ran."""
    c = asked.configuration(planned.configuration)
    frozen = manifest.configurations[c.name]
    program = manifest.programs[frozen.program]
    options = options_of(asked, c, planned)
    return ReplaySpec(program.replayed, program.replayed_sha256, frozen.ranks, source_ranks, frozen.backend, **options)


def options_of(asked: Preregistration, c: Configuration, planned: PlannedRun) -> dict[str, Any]:
    """Return the options with which a configuration is replayed."""
    measured = c.kind == "measured"
    return {
        "timing": c.timing, "barrier": c.barrier, "overlap": c.overlap, "warmup": c.warmup if measured else 0,
        "iterations": c.iterations if measured else 1, "timeout_s": asked.timeout_s if c.timeout_s is None else c.timeout_s,
        "probe": None if c.probe is None else c.probe.asked(), "skip_unsupported": c.skip_unsupported,
        "note": f"campaign {asked.name}: run {planned.run}, {c.name}, repetition {planned.round}",
    }  # fmt: skip
