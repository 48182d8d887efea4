"""The workspace folder: listing, opening, adding."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from commcanary_lab.canary.model import Canary
from commcanary_lab.canonical import write_atomic
from commcanary_lab.errors import FormatError, InputError, LabError, UsageError
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace.artifact import Artifact
from commcanary_lab.workspace.cache import ResultCache
from commcanary_lab.workspace.evidence import CONTAINERS, evidence_stamp
from commcanary_lab.workspace.recognise import Recognised, recognise
from commcanary_lab.workspace.upload import MAX_UPLOAD_BYTES, check_size, numbered, safe_name

if TYPE_CHECKING:
    from commcanary_lab.replay.result import Replay
    from commcanary_lab.review.comparison_file import ComparisonFile
    from commcanary_lab.review.signoff import SignOff
    from commcanary_lab.simulate.report_file import ReportFile
    from commcanary_lab.workspace.ledger_file import LedgerFile

__all__ = ["Workspace"]

T = TypeVar("T")


class Workspace:
    """A folder of plain artifact files (`KINDS`), each recognised by its content.

    Nothing outside the files is kept: what is opened or computed sits in a bounded cache whose keys change when a file does.

    Parameters
    ----------
    path : path-like
        The folder; it is made if it does not exist.
    cache : ResultCache, optional
        Shared by everything that opens the same folder in one process.

    Examples
    --------
    >>> import tempfile
    >>> w = Workspace(tempfile.mkdtemp())
    >>> event = b'{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1}'
    >>> added = w.add("tiny.json", b'{"format": "commcanary.trace.v1", "events": [' + event + b']}')
    >>> [(a.name, a.kind) for a in w.list()], len(w.trace("tiny.json"))
    ([('tiny.json', 'trace')], 1)
    """

    def __init__(self, path: str | os.PathLike[str], cache: ResultCache | None = None) -> None:
        self.path = Path(path).resolve()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"cannot be made: {e.strerror}", file=str(path), remedy="choose another workspace folder") from None
        self.cache = cache if cache is not None else ResultCache()
        self._kinds: dict[tuple[str, tuple[int, int, int]], Recognised] = {}

    # -- listing ------------------------------------------------------------------------------------------------------

    def list(self, kind: str | None = None) -> list[Artifact]:
        """Return the artifacts, by name; of one kind if asked for."""
        found = [a for name in self._names() if (a := self._look(name)) is not None]
        return [a for a in found if kind is None or a.kind == kind]

    def _names(self) -> Iterator[str]:
        """What lies in the folder, and in place of a folder of evidence what lies in that."""
        for name in sorted(os.listdir(self.path), key=str.casefold):
            inner = _inside(self.path / name) if name in CONTAINERS else None
            yield from [name] if inner is None else [f"{name}/{i}" for i in inner]

    def get(self, name: str) -> Artifact:
        """Return one artifact.

        Raises
        ------
        UsageError
            If the workspace has none of that name.
        """
        artifact = self._look(name)
        if artifact is None:
            raise UsageError(f"the workspace has no file named {name!r}", remedy="choose one from the list, or upload it")
        return artifact

    def _look(self, name: str) -> Artifact | None:
        """Hidden files and links that lead out of the folder are no artifacts."""
        folder, _, last = name.rpartition("/")
        if not last or last.startswith(".") or "\\" in name or folder not in ("", *CONTAINERS):
            return None
        path = self.path / name
        try:
            if not path.resolve().is_relative_to(self.path):
                return None
            stamp = _stamp(path)
        except (OSError, ValueError):
            return None
        key = (name, stamp)
        if key not in self._kinds:
            if len(self._kinds) > 10_000:
                self._kinds.clear()
            self._kinds[key] = recognise(path)
        found = self._kinds[key]
        return Artifact(name, found.kind, stamp[1], found.summary, stamp)

    # -- opening ------------------------------------------------------------------------------------------------------

    def trace(self, name: str) -> Trace:
        """Open a trace.

        Raises
        ------
        LabError
            If there is none of that name, or it is invalid.
        """
        return self._open(name, "trace")

    def canary(self, name: str) -> Canary:
        """Open a canary; raises like `trace`."""
        return self._open(name, "canary")

    def report(self, name: str) -> ReportFile:
        """Open a report; raises like `trace`."""
        return self._open(name, "report")

    def comparison(self, name: str) -> ComparisonFile:
        """Open a comparison; raises like `trace`."""
        return self._open(name, "comparison")

    def signoff(self, name: str) -> SignOff:
        """Open a sign-off; raises like `trace`."""
        return self._open(name, "signoff")

    def ledger(self, name: str) -> LedgerFile:
        """Open the ledger of a search or of ddmin; raises like `trace`."""
        return self._open(name, "ledger")

    def replay(self, name: str) -> Replay:
        """Open the directory of a replay, finished or not; raises like `trace`. Any change of any of its files opens it anew."""
        artifact = self.get(name)
        if artifact.kind != "replay":
            raise UsageError(f"{name!r} is no replay: {artifact.summary}", remedy="choose a replay")
        from commcanary_lab.replay.result import read_replay

        path = self.path / name
        return self.cache.get(("replay", name, _walked(path)), lambda: read_replay(path))

    def derived(self, name: str, what: str, compute: Callable[[], T]) -> T:
        """Return a result computed from an artifact, from the cache while the file is unchanged.

        Parameters
        ----------
        name : str
            The artifact.
        what : str
            Which result; with every parameter that it depends on.
        compute : callable
            Computes it.
        """
        return self.cache.get((what, name, self.get(name).stamp), compute)

    def _open(self, name: str, kind: str) -> Any:
        artifact = self.get(name)
        if artifact.kind != kind:
            raise UsageError(f"{name!r} is no {kind}: {artifact.summary}", remedy=f"choose a {kind}")
        return self.cache.get((kind, name, artifact.stamp), lambda: OPENERS[kind](self.path / name))

    # -- adding -------------------------------------------------------------------------------------------------------

    def add(self, name: str, data: bytes, *, limit_bytes: int = MAX_UPLOAD_BYTES, rename: bool = False) -> Artifact:
        """Add a file. It is opened first and becomes visible only when that succeeds.

        Parameters
        ----------
        name : str
            A plain file name.
        data : bytes
            The content.
        limit_bytes : int
            Largest size.
        rename : bool
            When the name is taken by another content, add a number to it; otherwise that is refused.

        Returns
        -------
        Artifact
            The new one, or the one that already had the same name and content.

        Raises
        ------
        LabError
            If the name, the size or the content is refused; nothing is left behind.
        """
        name = safe_name(name)
        check_size(name, len(data), limit_bytes)
        self._validate(name, data)
        for candidate in _candidates(name) if rename else [name]:
            target = self.path / candidate
            if not os.path.lexists(target):
                write_atomic(target, data)
                return self.get(candidate)
            if target.is_file() and target.stat().st_size == len(data) and target.read_bytes() == data:
                return self.get(candidate)
        raise UsageError(f"{name!r} exists with other content", remedy="rename the file; nothing is overwritten")

    def _validate(self, name: str, data: bytes) -> None:
        """Open the bytes in a hidden folder next to the artifacts (same file system, same free space)."""
        try:
            stage = Path(tempfile.mkdtemp(prefix=".upload-", dir=self.path))
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", file=str(self.path), remedy="make the workspace writable") from None
        path = stage / name
        try:
            write_atomic(path, data)
            kind = recognise(path)
            if kind.kind not in OPENERS:
                raise FormatError(
                    f"not a trace and not a canary: {kind.summary}",
                    file=name,
                    remedy="upload a commcanary.trace.v1 file, a profile, a canary, a report, a comparison or a ledger",
                )
            OPENERS[kind.kind](path)
        except LabError as e:  # the user knows the file by its own name, not by where it was staged
            raise type(e)(tuple(replace(p, file=name, what=p.what.replace(str(path), name)) for p in e.problems)) from None
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _candidates(name: str) -> Iterator[str]:
    yield name
    for number in range(2, 1000):
        yield numbered(name, number)


def _inside(folder: Path) -> list[str] | None:
    """Names in a folder of evidence; None if it has files of its own, and so is an artifact itself."""
    if not folder.is_dir():
        return None
    with os.scandir(folder) as entries:
        found = [(e.name, e.is_dir()) for e in entries if not e.name.startswith(".")]
    return sorted((n for n, _ in found), key=str.casefold) if all(is_dir for _, is_dir in found) else None


def _stamp(path: Path) -> tuple[int, int, int]:
    if not path.is_dir():
        info = path.stat()
        return info.st_mtime_ns, info.st_size, 1
    if (evidence := evidence_stamp(path)) is not None:
        return evidence
    return _walked(path)


def _walked(path: Path) -> tuple[int, int, int]:
    """Latest modification, size and number of files of everything in a folder."""
    latest, size, count = path.stat().st_mtime_ns, 0, 0
    for folder, _, files in os.walk(path):
        for file in files:
            info = os.stat(os.path.join(folder, file))
            latest, size, count = max(latest, info.st_mtime_ns), size + info.st_size, count + 1
    return latest, size, count


def _open_trace(path: Path) -> Trace:
    """A trace file, or a folder of per-rank files."""
    from commcanary_lab.importers.open import open_trace

    return open_trace([path])


def _open_canary(path: Path) -> Canary:
    from commcanary_lab.canary.read import read_canary

    return read_canary(path)


def _open_report(path: Path) -> ReportFile:
    from commcanary_lab.simulate.report_file import read_report

    return read_report(path)


def _open_comparison(path: Path) -> ComparisonFile:
    from commcanary_lab.review.comparison_file import read_comparison

    return read_comparison(path)


def _open_signoff(path: Path) -> SignOff:
    from commcanary_lab.review.signoff import read_signoff

    return read_signoff(path)


def _open_ledger(path: Path) -> LedgerFile:
    from commcanary_lab.workspace.ledger_file import read_ledger

    return read_ledger(path)


#: How each kind is opened; what opening raises, a user may read.
OPENERS: dict[str, Callable[[Path], object]] = {
    "trace": _open_trace,
    "canary": _open_canary,
    "report": _open_report,
    "comparison": _open_comparison,
    "signoff": _open_signoff,
    "ledger": _open_ledger,
}
