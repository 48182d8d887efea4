"""A probe that failed is not run again unchanged: the evidence beside a new campaign is looked through first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from commcanary_lab.errors import LabError, RefusedError, UsageError
from commcanary_lab.replay.campaign.decide import evaluate
from commcanary_lab.replay.campaign.manifest import DECISION, MANIFEST, Manifest
from commcanary_lab.replay.campaign.outcome import Outcome
from commcanary_lab.replay.campaign.record import read_record
from commcanary_lab.replay.spec import read_document

__all__ = ["evidence_in", "failed_probe", "refuse_failed"]


def evidence_in(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the campaigns among folders and their children, by name.

    Raises
    ------
    UsageError
        If a folder does not exist.
    """
    seen = set()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError("is no directory", file=str(folder), remedy="name the evidence of a campaign, or a folder of it")
        for place in (folder, *sorted(p for p in folder.iterdir() if p.is_dir())):
            if (place / MANIFEST).is_file() and place.resolve() not in seen:
                seen.add(place.resolve())
                yield place


def failed_probe(place: Path) -> tuple[str, str] | None:
    """Return the identity of the configuration whose probe failed in a campaign, and what failed; None where none did.

    What the campaign decided is read; one that was killed before it could decide is evaluated. A directory that is no whole campaign
    says nothing.
    """
    try:
        manifest = read_document(place / MANIFEST, Manifest)
        decided = (place / DECISION).exists()
        outcome = read_document(place / DECISION, Outcome) if decided else evaluate(read_record(place))
    except LabError:
        return None
    if not outcome.failed_by_probe:
        return None
    planned = next((p for p in manifest.order if p.run == outcome.failure_run), None)
    frozen = manifest.configurations.get(planned.configuration) if planned is not None else None
    return (frozen.identity, outcome.reason) if frozen is not None else None


def refuse_failed(manifest: Manifest, folders: Sequence[Path]) -> None:
    """Refuse a campaign that would run a probe which failed and of which nothing changed since.

    Unchanged means: the same program, ranks, backend, settings and faults, run by the same code on the same versions. The text of the
    question, the repetitions and the criteria do not matter.

    Raises
    ------
    RefusedError
        With the directory of the failure.
    """
    planned = {c.identity: name for name, c in manifest.configurations.items()}
    for place in evidence_in([f for f in folders if f.is_dir() or f is not folders[0]]):
        failed = failed_probe(place)
        if failed is not None and failed[0] in planned:
            raise RefusedError(
                f"the probe of {planned[failed[0]]!r} failed before and is unchanged: {failed[1]}", file=str(place),
                remedy="change what failed, and run a new campaign; a failure is a result",
            )  # fmt: skip
