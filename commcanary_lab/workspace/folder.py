"""The workspace folder: listing, opening, adding, deleting."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from commcanary_lab.canary.model import Canary
from commcanary_lab.errors import InputError, UsageError
from commcanary_lab.trace.model import Trace
from commcanary_lab.workspace.artifact import Artifact
from commcanary_lab.workspace.cache import ResultCache
from commcanary_lab.workspace.evidence import CONTAINERS, evidence_stamp
from commcanary_lab.workspace.index import Index
from commcanary_lab.workspace.leftovers import sweep
from commcanary_lab.workspace.links import leads_out
from commcanary_lab.workspace.openers import OPENERS
from commcanary_lab.workspace.recognise import recognise
from commcanary_lab.workspace.staging import Staging
from commcanary_lab.workspace.stamps import stamp_of, walked
from commcanary_lab.workspace.trash import Trashed, purge, restore, throw_away, trashed
from commcanary_lab.workspace.upload import MAX_UPLOAD_BYTES, check_size, safe_name

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

    The files are all there is: what is opened or computed sits in a bounded cache whose keys change when a file does, and what a
    listing shows in an `Index`, which may be deleted at any time.

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
        self.index = Index(self.path)
        sweep(self.path)

    # -- listing ------------------------------------------------------------------------------------------------------

    def list(self, kind: str | None = None) -> list[Artifact]:
        """Return the artifacts, by name; of one kind if asked for."""
        found = [a for name in self._names() if (a := self._look(name)) is not None]
        self.index.retain(a.name for a in found)
        self.index.flush()
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
        self.index.flush()
        return artifact

    def _look(self, name: str) -> Artifact | None:
        found = self._marked(name)
        return found[0] if found is not None else None

    def _marked(self, name: str) -> tuple[Artifact, str] | None:
        """Return an artifact and its mark. Hidden files and links that lead out of the folder are no artifacts."""
        folder, _, last = name.rpartition("/")
        if not last or last.startswith((".", "/")) or "\\" in name or folder not in ("", *CONTAINERS) or name.startswith("/"):
            return None
        path = self.path / name
        try:
            if (folder and not self._is_inside(self.path / folder)) or not self._is_inside(path):
                return None
            if name in CONTAINERS and _inside(path) is not None:
                return None  # what lies in it are the artifacts
            if path.is_dir() and (link := leads_out(path, self.path, deep=evidence_stamp(path) is None)) is not None:
                info = os.lstat(path)
                stamp = info.st_mtime_ns, 0, 0
                return Artifact(name, "other", 0, f"holds a link that leads out of the workspace: {link}", stamp), "link"
            stamp, mark = stamp_of(path)
        except (OSError, ValueError):
            return None
        if (known := self.index.kind(name, mark)) is None:
            found = recognise(path)
            known = found.kind, found.summary
            if _settled(path, mark):
                self.index.keep(name, mark, *known)
        return Artifact(name, known[0], stamp[1], known[1], stamp), mark

    def place(self, name: str) -> Path:
        """Return where an artifact lies.

        Raises
        ------
        UsageError
            If the workspace has none of that name.
        InputError
            If a link in it leads out of the workspace, however deep.
        """
        path = self.path / self.get(name).name
        if path.is_dir() and (link := leads_out(path, self.path)) is not None:
            raise InputError("leads out of the workspace", file=f"{name}/{link}", remedy="replace the link by a copy")
        return path

    def _is_inside(self, path: Path) -> bool:
        return not stat.S_ISLNK(os.lstat(path).st_mode) or Path(os.path.realpath(path)).is_relative_to(self.path)

    # -- the index ----------------------------------------------------------------------------------------------------

    def fact(self, name: str, what: str, compute: Callable[[], bytes]) -> bytes:
        """Return something small that was computed from an artifact, from the index while the artifact is unchanged.

        Parameters
        ----------
        name : str
            The artifact.
        what : str
            What it is, with every parameter that it depends on and the version of what computes it.
        compute : callable
            Computes it; what it raises is raised and not kept.
        """
        found = self.known_fact(name, what)
        if found is None:
            marked = self._marked(name)
            found = compute()
            if marked is not None and self._marked(name) == marked:  # else the file changed meanwhile
                self.index.keep_fact(name, marked[1], what, found)
        return found

    def known_fact(self, name: str, what: str) -> bytes | None:
        """Return what the index has; None if it would have to be computed."""
        marked = self._marked(name)
        return None if marked is None else self.index.fact(name, marked[1], what)

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

        path = self.place(name)

        def opened() -> Replay:
            found = read_replay(path)
            self.place(name)  # and no link has led out meanwhile
            return found

        return self.cache.get(("replay", name, walked(path)), opened)

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
        return self.cache.get((kind, name, artifact.stamp), lambda: self._unchanged(name, kind))

    def _unchanged(self, name: str, kind: str) -> object:
        """Open a file or folder that stays what it is meanwhile: neither half of one and half of another, nor exchanged for a link."""
        for _ in range(2):
            before = self._marked(name)
            found = OPENERS[kind](self.path / name)
            if before is not None and before[0].kind == kind and self._marked(name) == before:
                return found
        raise InputError("is being changed", file=name, remedy="open it again when it is complete")

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
        staging = self.stage(limit_bytes=limit_bytes)
        try:
            staging.begin(name)
            staging.write(data)
            return self.get(staging.add_only(name, rename=rename))
        finally:
            staging.abandon()

    def stage(self, *, limit_bytes: int = MAX_UPLOAD_BYTES) -> Staging:
        """Return a place for files that come in parts, or belong together."""
        return Staging(self.path, limit_bytes)

    # -- deleting -----------------------------------------------------------------------------------------------------

    def trash(self, name: str) -> Trashed:
        """Move an artifact, of whatever kind, into the folder ``.trash`` of the workspace.

        Raises
        ------
        UsageError
            If the workspace has none of that name: what is outside, hidden, or a link that leads out is none.
        InputError
            If it cannot be moved.
        """
        return throw_away(self.path, self.get(name))

    def trashed(self) -> tuple[Trashed, ...]:
        """Return what is in the trash, the latest first."""
        return trashed(self.path)

    def restore(self, entry: str) -> Artifact:
        """Put an artifact of the trash back under its own name; nothing is overwritten.

        Parameters
        ----------
        entry : str
            `Trashed.entry`.

        Raises
        ------
        UsageError
            If there is no such entry, or its name is taken.
        """
        return self.get(restore(self.path, entry))

    def purge(self, entry: str) -> None:
        """Remove an artifact of the trash for good; raises like `restore`."""
        purge(self.path, entry)


def _inside(folder: Path) -> list[str] | None:
    """Names in a folder of evidence; None if it has files of its own, and so is an artifact itself."""
    if not folder.is_dir():
        return None
    with os.scandir(folder) as entries:
        found = [(e.name, e.is_dir()) for e in entries if not e.name.startswith(".")]
    return sorted((n for n, _ in found), key=str.casefold) if all(is_dir for _, is_dir in found) else None


def _settled(path: Path, mark: str) -> bool:
    """Did the file stay as it was while it was looked at? One that is being copied here is looked at again."""
    try:
        return stamp_of(path)[1] == mark
    except OSError:
        return False
