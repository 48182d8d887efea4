"""Replays that the server runs in the background: one per device set, the rest in a queue; all of it written down in the workspace."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from commcanary_lab.errors import FormatError, LimitError, UsageError
from commcanary_lab.replay.progress import ReplayProgress, read_progress
from commcanary_lab.replay.spec import read_document, write_document

from .access import visitor
from .replay_process import ask_to_end, born, end_now, is_same, leftovers, start

__all__ = ["MOST_QUEUED", "MOST_QUEUED_EACH", "Job", "ReplayJobs", "bound_ranks", "jobs_of", "may_operate"]

#: Waiting replays of the server, and of one visitor.
MOST_QUEUED, MOST_QUEUED_EACH = 12, 4
#: Processes of one replay.
_MOST_RANKS = [64]

_TICK_S = 0.25
#: The launcher gives its ranks 5 seconds to end and 5 more to be killed; what lives after that is killed from here.
_PATIENCE_S = 20.0
#: Ended jobs that are remembered: only what ended before it had a directory is not in the evidence.
_KEPT = 60
_TAIL_BYTES, _TAIL_LINES = 24 << 10, 200


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One replay that was asked for. Times are seconds since 1970, for people.

    Parameters
    ----------
    name : str
        Also of its directory in ``replays``.
    title : str
        What runs, in words.
    device : str
        The device set that it needs: ``CPU`` or ``GPU``.
    owner : str
        Which visitor asked for it.
    command : tuple of str
        What is started.
    number : int
        Its order.
    mark : str
        In the environment of all its processes.
    asked_s, started_s, ended_s, cancelled_s : float, optional
        When.
    pid : int, optional
        The process, and in `born` what tells it from a later one with the same number.
    exit_status : int, optional
        Unknown if the server that started it was ended.
    """

    name: str
    title: str
    device: str
    owner: str
    command: tuple[str, ...]
    number: int
    mark: str
    asked_s: float
    started_s: float | None = None
    ended_s: float | None = None
    cancelled_s: float | None = None
    pid: int | None = None
    born: str = ""
    exit_status: int | None = None
    format: Literal["commcanary_lab.replay_job.v1"] = "commcanary_lab.replay_job.v1"

    @property
    def state(self) -> str:
        """``queued``, ``running``, ``ending`` (a cancelled one), or ``ended``."""
        if self.ended_s is not None:
            return "ended"
        if self.started_s is None:
            return "queued"
        return "running" if self.cancelled_s is None else "ending"


class ReplayJobs:
    """The replays of a workspace. Any thread may call; several servers may share the folder.

    Parameters
    ----------
    workspace : Path
        Directories go to ``replays``, what is remembered of jobs to ``replays/.jobs``.
    """

    def __init__(self, workspace: Path) -> None:
        self.folder = workspace / "replays"
        self._notes = self.folder / ".jobs"
        self._lock = threading.RLock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._read: dict[str, tuple[tuple[int, int], Job]] = {}
        self._told: dict[str, ReplayProgress] = {}
        self._worker: threading.Thread | None = None
        if self._notes.is_dir():
            self._wake()

    # -- asking -------------------------------------------------------------------------------------------------------

    def submit(self, stem: str, title: str, device: str, owner: str, command: Callable[[Path], Sequence[str]], ranks: int = 1) -> Job:
        """Queue a replay; it starts at once if its device set is free.

        Parameters
        ----------
        stem : str
            How its name begins.
        title, device, owner : str
            As in `Job`.
        command : callable
            Makes the command line for a directory.
        ranks : int
            How many processes measure.

        Raises
        ------
        LimitError
            If too many wait already, or there are too many ranks.
        NotAllowedError
            If the visitor may not operate.
        UsageError
            If the folder cannot be written.
        """
        if not may_operate():
            visitor().require("a replay")
        if ranks > _MOST_RANKS[0]:
            raise LimitError(
                f"{ranks:,} ranks are more than the {_MOST_RANKS[0]:,} that this workbench starts",
                remedy="choose fewer, raise --max-ranks where it is served, or use commcanary-lab replay",
            )
        with self._exclusive():
            jobs = self._jobs()
            waiting = [j for j in jobs if j.state == "queued"]
            mine = sum(j.owner == owner for j in waiting)
            if len(waiting) >= MOST_QUEUED or mine >= MOST_QUEUED_EACH:
                raise LimitError(
                    f"{mine} of your replays wait, and {len(waiting)} in all: no more than {MOST_QUEUED_EACH} and {MOST_QUEUED}",
                    remedy="wait for one to end, or cancel one",
                )
            name = self._free_name(stem, {j.name for j in jobs})
            number = 1 + max((j.number for j in jobs), default=0)
            line = tuple(command(self.folder / name))
            job = Job(
                name=name, title=title, device=device, owner=owner, command=line, number=number, mark=uuid.uuid4().hex, asked_s=time.time()
            )
            self._write(job)
            self._log(job, f"asked for: {title}")
            self._advance()
            job = self._job(name) or job
        self._wake()
        return job

    def cancel(self, name: str) -> None:
        """Take a replay out of the queue, or end it with all its processes; one that has ended stays as it is."""
        with self._exclusive():
            job = self._job(name)
            if job is None or job.state in ("ended", "ending"):
                return
            now = time.time()
            self._log(job, "cancelled" if job.state == "running" else "cancelled before it was started")
            if job.state == "queued":
                self._write(msgspec.structs.replace(job, cancelled_s=now, ended_s=now))
                return
            self._write(msgspec.structs.replace(job, cancelled_s=now))
            if job.pid is not None and self._lives(job):
                ask_to_end(job.pid)
        self._wake()

    # -- looking ------------------------------------------------------------------------------------------------------

    def job(self, name: str) -> Job | None:
        """Return a job that is remembered."""
        with self._lock:
            self._jobs()
            return self._job(name)

    def active(self) -> tuple[Job, ...]:
        """Return running jobs, then those that wait, in their order."""
        with self._lock:
            jobs = [j for j in self._jobs() if j.state != "ended"]
        return tuple(sorted(jobs, key=lambda j: (j.state == "queued", j.number)))

    def place(self, job: Job) -> int:
        """Return how many replays of its device set come before a waiting one."""
        return sum(j.device == job.device and (j.state != "queued" or j.number < job.number) for j in self.active() if j.name != job.name)

    def progress(self, name: str) -> ReplayProgress:
        """Return how far a running replay is."""
        return read_progress(self.folder / name)

    def log(self, name: str) -> str:
        """Return the end of what the launcher and the ranks of a replay said, each bounded."""
        texts = [_tail(self._notes / f"{name}.log"), _tail(self.folder / name / "log.txt")]
        return "\n".join(t for t in texts if t)

    # -- what happens -------------------------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Note what has ended, start what may start; return whether anything is active."""
        for job in self._jobs():
            if job.state in ("running", "ending"):
                self._watch(job)
            elif job.name in self._children and self._children[job.name].poll() is not None:
                del self._children[job.name]  # another server of this folder has noted its end
        jobs = sorted((j for j in self._jobs() if j.state != "ended"), key=lambda j: j.number)
        busy = {j.device for j in jobs if j.state != "queued"}
        for job in jobs:
            if job.device not in busy:
                busy.add(job.device)
                self._start(job)
        return bool(jobs)

    def _start(self, job: Job) -> None:
        self._log(job, "started")
        try:
            child = start(job.command, self._notes / f"{job.name}.log", job.mark)
        except OSError as error:
            self._log(job, f"cannot be started: {error}")
            self._write(msgspec.structs.replace(job, started_s=time.time(), ended_s=time.time(), exit_status=127))
            return
        self._children[job.name] = child
        self._write(msgspec.structs.replace(job, started_s=time.time(), pid=child.pid, born=born(child.pid)))

    def _watch(self, job: Job) -> None:
        if self._lives(job):
            self._tell(job)
            if job.cancelled_s is not None and time.time() - job.cancelled_s > _PATIENCE_S:
                self._log(job, "killed: it did not end")
                end_now(job.pid, job.mark)
            return
        if leftovers(job.mark):  # its launcher was killed and left ranks behind
            self._log(job, "the launcher is gone; its processes are ended")
            end_now(None, job.mark)
        child = self._children.pop(job.name, None)
        status = child.returncode if child is not None else None
        self._tell(job)
        self._log(job, "ended" if not status else f"ended with exit status {status}")
        self._write(msgspec.structs.replace(job, ended_s=time.time(), exit_status=status))

    def _lives(self, job: Job) -> bool:
        child = self._children.get(job.name)
        if child is not None:
            return child.poll() is None
        return job.pid is not None and is_same(job.pid, job.born)

    def _tell(self, job: Job) -> None:
        """Write into the log how far a replay is: its launcher is quiet in a pipe."""
        if not (self.folder / job.name / "progress.json").exists():
            return
        now = self.progress(job.name)
        if now != self._told.get(job.name):
            self._told[job.name] = now
            self._log(job, now.phase + (f": {now.done} of {now.total}" if now.total > 1 else ""))

    def _wake(self) -> None:
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="workbench-replays", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while True:
            with self._exclusive():
                if not self._advance():
                    self._forget()
                    self._worker = None
                    return
            time.sleep(_TICK_S)

    # -- what is written down -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Alone among the threads of this server and among the servers of this folder."""
        with self._lock:
            try:
                self._notes.mkdir(parents=True, exist_ok=True)
                lock = open(self._notes / "lock", "ab")  # noqa: SIM115  (closed below)
            except OSError as error:
                raise UsageError(
                    f"the workspace cannot be written: {error.strerror}", file=str(self.folder), remedy="make it writable"
                ) from None
            with lock, _locked(lock.fileno()):
                yield

    def _jobs(self) -> list[Job]:
        """All jobs that are remembered; files that have not changed are not read again."""
        found: dict[str, tuple[tuple[int, int], Job]] = {}
        with contextlib.suppress(OSError), os.scandir(self._notes) as entries:
            for entry in entries:
                if not entry.name.endswith(".json") or entry.name.startswith("."):
                    continue
                try:
                    info = entry.stat()
                    stamp = info.st_mtime_ns, info.st_ino
                    known = self._read.get(entry.name)
                    found[entry.name] = known if known and known[0] == stamp else (stamp, read_document(Path(entry.path), Job))
                except (OSError, FormatError):  # gone, or not ours
                    continue
        self._read = found
        return [job for _, job in found.values()]

    def _job(self, name: str) -> Job | None:
        known = self._read.get(f"{name}.json")
        return known[1] if known else None

    def _write(self, job: Job) -> None:
        path = self._notes / f"{job.name}.json"
        write_document(path, job)
        info = path.stat()
        self._read[path.name] = ((info.st_mtime_ns, info.st_ino), job)

    def _log(self, job: Job, text: str) -> None:
        with open(self._notes / f"{job.name}.log", "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')}  {text}\n")

    def _forget(self) -> None:
        ended = sorted((j for j in self._jobs() if j.state == "ended"), key=lambda j: -j.number)
        for job in ended[_KEPT:]:
            for suffix in (".json", ".log"):
                (self._notes / f"{job.name}{suffix}").unlink(missing_ok=True)
            self._read.pop(f"{job.name}.json", None)
            self._told.pop(job.name, None)

    def _free_name(self, stem: str, taken: set[str]) -> str:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-")[:60] or "replay"
        base = f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
        name, number = base, 1
        while name in taken or (self.folder / name).exists():
            number += 1
            name = f"{base}-{number}"
        return name


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks here: then one server per folder
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _tail(path: Path) -> str:
    """The last lines of a file that may be long and may be growing."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            data = file.read(_TAIL_BYTES)
    except OSError:
        return ""
    lines = data.decode("utf-8", errors="replace").splitlines()
    if size > _TAIL_BYTES:
        lines = lines[1:]  # the first one is cut
    return "\n".join(lines[-_TAIL_LINES:])


def bound_ranks(most: int) -> None:
    """Set how many ranks a replay of this server may have."""
    _MOST_RANKS[0] = most


_MANAGERS: dict[Path, ReplayJobs] = {}
_MANAGERS_LOCK = threading.Lock()


def jobs_of(workspace: Path) -> ReplayJobs:
    """Return the replays of a workspace; one object per server."""
    with _MANAGERS_LOCK:
        if workspace not in _MANAGERS:
            _MANAGERS[workspace] = ReplayJobs(workspace)
        return _MANAGERS[workspace]


def may_operate() -> bool:
    """Say whether this visitor may start and end replays, as `access` decides."""
    return visitor().operates
