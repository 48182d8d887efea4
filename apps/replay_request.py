"""What the page Replay shows: the program that may run, and the replay that the address names, opened and checked."""

from __future__ import annotations

from dataclasses import dataclass

from commcanary_lab.errors import LabError, RefusedError, UnknownValueError
from commcanary_lab.replay.campaign import Campaign, read_campaign
from commcanary_lab.replay.evidence import verify_seal
from commcanary_lab.replay.modelled import Modelled, modelled
from commcanary_lab.replay.program import Program
from commcanary_lab.replay.ranking_rows import MethodRow, method_rows
from commcanary_lab.replay.result import Replay
from commcanary_lab.simulate.backend import DEFAULT_BACKENDS, Backend
from commcanary_lab.workspace import Artifact, Workspace
from commcanary_lab.workspace.stamps import walked

from .backend_choice import known_backends
from .page import Selection
from .replay_jobs import Job, jobs_of
from .replay_settings import Settings, gpus, settings

__all__ = ["Asked", "Runnable", "Shown", "ShownCampaign", "asked", "find_replay", "stem_of"]


@dataclass(frozen=True)
class Runnable:
    """The program of the open canary or trace.

    Parameters
    ----------
    kind, name : str
        What is open.
    size, events, dropped : int
        Ranks, events of the program, and those that would not run.
    why_not : str
        Why it cannot run; empty if it can.
    skippable : bool
        It could run without some of its events.
    """

    kind: str
    name: str
    size: int = 0
    events: int = 0
    why_not: str = ""
    skippable: bool = False


@dataclass(frozen=True)
class Shown:
    """The replay that is shown.

    Parameters
    ----------
    name : str
        As in the address.
    result : Replay, optional
        None while it runs, and where it cannot be opened.
    problems : tuple of str
        What is wrong with its seal.
    model : Modelled, optional
        The same, simulated.
    why_no_model, problem : str
        Why there is none, or no result.
    log : str
        The end of what was said.
    job : Job, optional
        Where it was started here.
    """

    name: str
    result: Replay | None = None
    problems: tuple[str, ...] = ()
    model: Modelled | None = None
    why_no_model: str = ""
    problem: str = ""
    log: str = ""
    job: Job | None = None

    @property
    def active(self) -> bool:
        """It waits or runs."""
        return self.job is not None and self.job.state != "ended"


@dataclass(frozen=True)
class ShownCampaign:
    """The campaign that is shown; `problems` are those of its seal, `problem` says why it cannot be opened."""

    name: str
    result: Campaign | None = None
    problems: tuple[str, ...] = ()
    problem: str = ""
    rows: tuple[MethodRow, ...] = ()


@dataclass(frozen=True)
class Asked:
    """Everything that the page needs."""

    settings: Settings
    runnable: Runnable | None
    devices: int
    backends: tuple[Backend, ...]
    backend: Backend
    assume: bool
    replays: tuple[Artifact, ...]
    campaigns: tuple[Artifact, ...]
    shown: Shown | None
    campaign: ShownCampaign | None = None


def asked(workspace: Workspace, selection: Selection) -> Asked:
    """Open what the address names; runs in a worker."""
    chosen = settings(selection)
    runnable = _runnable(workspace, selection, chosen)
    if runnable is not None and runnable.size:
        chosen = chosen.for_program(runnable.size)
    known, _ = known_backends(workspace.path)
    wanted = selection.option("model", DEFAULT_BACKENDS[0].label)
    backend = next((b for b in known if b.label == wanted), known[0])
    assume = selection.option("assume", "") == "0"
    replays = tuple(sorted(workspace.list("replay"), key=lambda a: (-a.stamp[0], a.name)))
    campaigns = tuple(workspace.list("campaign"))
    if which := selection.option("campaign", ""):
        campaign = _campaign(workspace, which)
        return Asked(chosen, runnable, gpus(), known, backend, assume, replays, campaigns, None, campaign)
    name = selection.option("replay", "") or _latest(replays, runnable)
    shown = _shown(workspace, name, backend, assume) if name else None
    return Asked(chosen, runnable, gpus(), known, backend, assume, replays, campaigns, shown)


def _campaign(workspace: Workspace, name: str) -> ShownCampaign:
    try:
        artifact = workspace.get(find_replay(workspace, name, "campaigns"))
        if artifact.kind != "campaign":
            return ShownCampaign(name, problem=f"{name!r} is no campaign: {artifact.summary}")
        path = workspace.place(artifact.name)
        problems = tuple(verify_seal(path))
        state = f"{walked(path)} {problems}"  # the stamp of evidence is that of a few of its files
        result = workspace.derived(artifact.name, f"campaign {state}", lambda: read_campaign(path))
        rows = workspace.derived(artifact.name, f"rankings {state}", lambda: _rows(result))
        return ShownCampaign(name, result, problems, rows=rows)
    except LabError as error:
        return ShownCampaign(name, problem=str(error))


def _rows(campaign: Campaign) -> tuple[MethodRow, ...]:
    """What the rankings rest on: every run of the campaign is read. Empty where there is nothing to rank, or not yet."""
    try:
        return method_rows(campaign)
    except RefusedError:
        return ()


def find_replay(workspace: Workspace, name: str, folder: str = "replays") -> str:
    """Return the name of an artifact for the short name of a replay, or of a campaign, in the address."""
    inner = f"{folder}/{name}"
    if "/" in name:
        return name
    try:
        return workspace.get(inner).name
    except LabError:
        return name


def stem_of(name: str) -> str:
    """Return how the names of the replays of an artifact begin.

    Examples
    --------
    >>> stem_of("gloo4.lossless.canary.json"), stem_of("gloo4.json")
    ('gloo4.lossless', 'gloo4')
    """
    return name.removesuffix(".json").removesuffix(".canary")


def _runnable(workspace: Workspace, selection: Selection, chosen: Settings) -> Runnable | None:
    name = selection.canary if chosen.of == "canary" else selection.trace
    if name is None:
        return None
    kind = chosen.of
    try:
        source = workspace.canary(name) if kind == "canary" else workspace.trace(name)
        try:
            program = workspace.derived(name, "program", lambda: Program.of(source))
        except RefusedError as error:
            try:
                program = workspace.derived(name, "program in part", lambda: Program.of(source, skip_unsupported=True))
            except LabError:
                return Runnable(kind, name, why_not=str(error))
            return Runnable(kind, name, program.size, program.events, "" if chosen.skip else str(error), skippable=True)
    except LabError as error:
        return Runnable(kind, name, why_not=str(error))
    return Runnable(kind, name, program.size, program.events)


def _latest(replays: tuple[Artifact, ...], runnable: Runnable | None) -> str:
    """The newest replay of what is open, by its name."""
    if runnable is None:
        return ""
    return next((n for a in replays if (n := a.name.removeprefix("replays/")).startswith(f"{stem_of(runnable.name)}-")), "")


def _shown(workspace: Workspace, name: str, backend: Backend, assume: bool) -> Shown:
    jobs = jobs_of(workspace.path)
    job = jobs.job(name)
    if job is not None and job.state != "ended":
        return Shown(name, job=job)
    log = jobs.log(name) if job is not None else ""
    try:
        result = workspace.replay(find_replay(workspace, name))
        problems = tuple(result.verify())
        _ = result.latencies, result.ranks, result.metrics  # computed here, not while the page is drawn
    except LabError as error:
        if job is not None and not (workspace.path / "replays" / name).exists():
            return Shown(name, problem=_why_nothing(job, log), log=log, job=job)
        return Shown(name, problem=str(error), log=log, job=job)
    model, why = _model(result, backend, assume)
    return Shown(name, result, problems, model, why, log=log or _log(result), job=job)


def _model(result: Replay, backend: Backend, assume: bool) -> tuple[Modelled | None, str]:
    trace = getattr(result.source, "trace", result.source)
    unknown = trace.unknown_fields
    if not result.metrics:
        return None, ""
    try:
        return modelled(result, backend, assume=dict.fromkeys(unknown, 0.0) if assume else None), ""
    except UnknownValueError:
        fields = {"skew_us": "arrival skew", "overlap_us": "concurrent compute"}
        listed = " and ".join(f"the {fields.get(k, k)} of {n:,} events" for k, n in unknown.items())
        return None, f"The source does not say {listed}. Assume 0 for it with the switch at the left; the model is then marked as assumed."
    except LabError as error:
        return None, str(error)


def _log(result: Replay) -> str:
    try:
        return (result.directory / "log.txt").read_text("utf-8", errors="replace")[-(24 << 10) :]
    except OSError:
        return ""


def _why_nothing(job: Job, log: str) -> str:
    """A replay that ended before it had a directory: the launcher's last words say why."""
    if job.cancelled_s is not None:
        return "It was cancelled before its ranks were started; nothing was measured."
    said = [line for line in log.splitlines() if line.startswith(("error:", "Error"))]
    return (said[-1] if said else "It ended before its ranks were started.") + " The log below has the details."
