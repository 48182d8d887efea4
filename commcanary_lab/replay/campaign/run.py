"""Run a campaign: freeze, write the manifest, run in the planned order, decide, seal."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from commcanary_lab.canonical import atomic_file, write_atomic
from commcanary_lab.capture.processes import terminable
from commcanary_lab.errors import FormatError
from commcanary_lab.files import open_regular
from commcanary_lab.replay.campaign.decide import audit_of_run, evaluate
from commcanary_lab.replay.campaign.freeze import Frozen, audit_of_program, freeze
from commcanary_lab.replay.campaign.history import refuse_failed
from commcanary_lab.replay.campaign.manifest import DECISION, JOURNAL, MANIFEST, PREREGISTRATION, STOP, PlannedRun, running_sha256
from commcanary_lab.replay.campaign.outcome import Outcome, Stop
from commcanary_lab.replay.campaign.preregistration import Configuration
from commcanary_lab.replay.campaign.record import options_of, planned_spec, read_record
from commcanary_lab.replay.campaign.result import Campaign, read_campaign
from commcanary_lab.replay.evidence import new_directory, seal
from commcanary_lab.replay.progress import ReplayProgress
from commcanary_lab.replay.result import read_replay
from commcanary_lab.replay.run import execute, prepare
from commcanary_lab.replay.source import sha256_of
from commcanary_lab.replay.spec import ReplaySpec, RunState, write_document

__all__ = ["CampaignProgress", "Start", "run_campaign"]

#: Starts the ranks of a prepared run and returns how they ended; as `replay.run.execute` takes it.
Start = Callable[[Path, ReplaySpec], RunState]


@dataclass(frozen=True)
class CampaignProgress:
    """What a campaign is doing.

    Parameters
    ----------
    run, planned : int
        The run that is going on, from 1, and how many there are.
    configuration : str
        What runs.
    phase : str
        In words.
    done, total : int
        How much of the phase; 0 of 0 where that is not known.
    """

    run: int
    planned: int
    configuration: str
    phase: str
    done: int = 0
    total: int = 0


def run_campaign(
    preregistration: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    history: Sequence[str | os.PathLike[str]] = (),
    progress: Callable[[CampaignProgress], None] | None = None,
    cancelled: Event | None = None,
    start: Callable[[Configuration], Start | None] | None = None,
) -> Campaign:
    """Run a preregistered campaign and return it with its decision.

    Parameters
    ----------
    preregistration : path-like
        TOML file.
    out : path-like
        Directory for the evidence, new or empty.
    history : sequence of path-like
        Further evidence, or folders of it, in which an unchanged probe may have failed; the folder of `out` is always looked at.
    progress : callable, optional
        Called with a `CampaignProgress`.
    cancelled : threading.Event, optional
        Ends the campaign when it is set; the evidence keeps what there is, and a decision with the reason.
    start : callable, optional
        Returns for a configuration what starts its ranks; None for torchrun on this host. By default configurations with a fabric
        run on a lab fabric.

    Raises
    ------
    InputError
        If the preregistration is not valid, with every problem. Nothing is written.
    RefusedError
        If a probe failed before and nothing changed, or a fabric cannot be built here. Nothing is written.
    UsageError
        If there is something in the directory.
    MissingExtraError
        If torch is not installed.
    """
    frozen = freeze(preregistration)
    refuse_failed(frozen.manifest, [Path(out).absolute().parent, *map(Path, history)])
    starts = {c.name: start(c) if start is not None else _on_fabric(c, cancelled) for c in frozen.asked.configurations}
    place = new_directory(out)
    session = _Session(place, frozen, starts, progress, cancelled)
    with terminable():
        session.write_identity()
        try:
            session.run_all()
        except BaseException as error:
            if session.stop is None:
                kind = "cancelled" if isinstance(error, (KeyboardInterrupt, SystemExit)) else "error"
                session.end(kind, "interrupted" if kind == "cancelled" else f"{type(error).__name__}: {error}")
            raise
        finally:
            session.finish()
    return read_campaign(place)


def _on_fabric(c: Configuration, cancelled: Event | None) -> Start | None:
    if c.fabric is None:
        return None
    from commcanary_lab.replay.lab_fabric import fabric_start

    return fabric_start(c.fabric, cancelled=cancelled)


class _Session:
    """A campaign while it runs."""

    def __init__(
        self, place: Path, frozen: Frozen, starts: dict[str, Start | None], progress: Callable[[CampaignProgress], None] | None,
        cancelled: Event | None,
    ) -> None:  # fmt: skip
        self.place, self.frozen, self.starts, self.progress, self.cancelled = place, frozen, starts, progress, cancelled
        self.stop: Stop | None = None
        self.begun = 0

    def write_identity(self) -> None:
        """Write what is frozen; the manifest comes last, so that where it is, everything is."""
        for name, given in self.frozen.files.items():
            target = self.place / name
            target.parent.mkdir(exist_ok=True)
            with open_regular(given) as source, atomic_file(target) as f:
                shutil.copyfileobj(source, f)
            target.chmod(0o444)
        self._write(PREREGISTRATION, self.frozen.data)
        manifest = self.frozen.manifest
        kept = {p.file: p.sha256 for p in manifest.programs.values()} | manifest.inputs
        for name, digest in kept.items():
            if sha256_of(self.place / name) != digest:
                raise FormatError("was changed while the campaign began", file=str(self.place / name), remedy="start again")
        write_document(self.place / MANIFEST, manifest)
        (self.place / MANIFEST).chmod(0o444)
        self._note("manifest written", sha256=manifest.sha256)

    def run_all(self) -> None:
        """Run until the plan is done or something ends it."""
        frozen = self.frozen
        for c in frozen.asked.configurations:
            for text in audit_of_program(frozen.asked, c, frozen.program(c))[:1]:
                self.end("audit", f"counts differ: {text}")
                return
        for planned in frozen.manifest.order:
            if self.cancelled is not None and self.cancelled.is_set():
                self.end("cancelled", f"cancelled after {self.begun} of {len(frozen.manifest.order)} runs")
            elif running_sha256() != frozen.manifest.tool.running_sha256:
                self.end("identity", f"the code was changed after run {self.begun}")
            if self.stop is not None:
                return
            self._run(planned)
            if self.stop is not None:
                return

    def _run(self, planned: PlannedRun) -> None:
        asked, manifest = self.frozen.asked, self.frozen.manifest
        c = asked.configuration(planned.configuration)
        place, settled = self.place / planned.directory, manifest.configurations[c.name]
        self.begun = planned.run
        self._tell(planned, ReplayProgress("starting the ranks"))
        self._note("run begins", run=planned.run, configuration=c.name)
        source = self.frozen.sources[settled.program]
        spec = prepare(source, place, ranks=settled.ranks, backend=settled.backend, **options_of(asked, c, planned))
        if spec != planned_spec(manifest, asked, planned, spec.source_ranks):
            self.end("identity", f"run {planned.run} would not be what the manifest says")
            return
        report = (lambda now: self._tell(planned, now)) if self.progress is not None else None
        state = execute(place, spec, progress=report, cancelled=self.cancelled, start=self.starts[c.name])
        self._note("run ends", run=planned.run, status=state.status, seconds=round(state.seconds, 3))
        self._judge(planned, c, state)

    def _judge(self, planned: PlannedRun, c: Configuration, state: RunState) -> None:
        """End the campaign where nothing that comes could change the decision."""
        where = f"run {planned.run} ({c.name})"
        replay = read_replay(self.place / planned.directory)
        if replay.probe.status == "fail":
            self.end("probe", f"{where}: {replay.probe.text}")
        elif state.status == "cancelled":
            self.end("cancelled", f"{where} was cancelled")
        elif state.status != "done":
            self.end("launch", f"{where}: {state.reason}")
        elif differences := audit_of_run(self.frozen.asked, c, replay):
            self.end("audit", f"{where}: counts differ: {differences[0]}")

    def end(self, kind: str, reason: str) -> None:
        """Say why the campaign ends before its last run."""
        self.stop = Stop(kind=kind, reason=reason, after_run=self.begun)  # type: ignore[arg-type]
        write_document(self.place / STOP, self.stop)
        (self.place / STOP).chmod(0o444)
        self._note("stopped", kind=kind, reason=reason)

    def finish(self) -> None:
        """Decide and seal, whatever happened, unless not even the manifest is there."""
        if not (self.place / MANIFEST).exists():
            return
        outcome: Outcome = evaluate(read_record(self.place))
        write_document(self.place / DECISION, outcome)
        (self.place / DECISION).chmod(0o444)
        self._note("decided", decision=outcome.decision)
        seal(self.place)

    def _write(self, name: str, data: bytes) -> None:
        write_atomic(self.place / name, data)
        (self.place / name).chmod(0o444)

    def _note(self, what: str, **values: object) -> None:
        """Add a line to the journal; the only place of the evidence that knows the time of day."""
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "what": what, **values}
        with open(self.place / JOURNAL, "a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")

    def _tell(self, planned: PlannedRun, now: ReplayProgress) -> None:
        if self.progress is not None:
            total = len(self.frozen.manifest.order)
            self.progress(CampaignProgress(planned.run, total, planned.configuration, now.phase, now.done, now.total))
