"""Files on their way into a workspace: written into a hidden folder beside the artifacts, opened, and only then visible."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from commcanary_lab.errors import FormatError, InputError, LabError, LimitError, UsageError
from commcanary_lab.workspace.openers import OPENERS
from commcanary_lab.workspace.recognise import Recognised, recognise
from commcanary_lab.workspace.upload import MAX_FILES, MAX_UPLOAD_BYTES, check_size, common_name, numbered, safe_name

if TYPE_CHECKING:
    from commcanary_lab.trace.model import Trace

__all__ = ["Outcome", "Staging"]

#: Begins the name of a hidden folder; `leftovers` knows it, too.
_PREFIX = ".upload-"


@dataclass(frozen=True)
class Outcome:
    """What became of one or several files.

    Parameters
    ----------
    files : tuple of str
        Their names.
    name : str
        The artifact; empty when nothing was added.
    kind : str
        Its kind; empty when nothing was added.
    trace : Trace, optional
        A trace, opened: what of the files was read, used and skipped.
    problem : str
        Why nothing was added, with the remedy.
    note : str
        What was done, where it is not the obvious.
    """

    files: tuple[str, ...]
    name: str = ""
    kind: str = ""
    trace: Trace | None = None
    problem: str = ""
    note: str = ""


class Staging:
    """One upload. Nothing of it is visible before `commit`, and nothing stays after `abandon`.

    Parameters
    ----------
    folder : Path
        The workspace.
    limit_bytes : int
        Largest size of one file.

    Raises
    ------
    InputError
        If the folder cannot be written.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> staging = Staging(folder)
    >>> event = b'{"op": "all_reduce", "bytes": 8, "ranks": 2, "gap_us": 1}'
    >>> staging.begin("tiny.json")
    >>> staging.write(b'{"format": "commcanary.trace.v1", "events": [' + event + b']}')
    >>> sorted(os.listdir(folder)) == [staging.place.name]
    True
    >>> [(o.name, o.kind) for o in staging.commit()], os.listdir(folder)
    ([('tiny.json', 'trace')], ['tiny.json'])
    """

    def __init__(self, folder: Path, limit_bytes: int = MAX_UPLOAD_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.names: list[str] = []
        self._size = 0
        self._out: int = -1
        try:
            self.place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", file=str(folder), remedy="make the workspace writable") from None

    def begin(self, name: str) -> None:
        """Begin a file; what was written before belongs to the last one.

        Raises
        ------
        LabError
            If the name is refused, occurs twice, or there are too many files.
        """
        self._end()
        name = safe_name(name)
        if name.casefold() in {n.casefold() for n in self.names}:
            raise UsageError(f"{name!r} occurs twice in this upload", remedy="upload one of the two, or rename it")
        if len(self.names) >= MAX_FILES:
            raise LimitError(f"more than {MAX_FILES} files in one upload", remedy="copy the folder into the workspace instead")
        try:
            self._out = os.open(self.place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", file=name, remedy="free some space, or rename the file") from None
        self.names.append(name)
        self._size = 0

    def write(self, data: bytes) -> None:
        """Add bytes to the file.

        Raises
        ------
        LabError
            If the file grows over the limit or cannot be written; it is then removed.
        """
        name = self.names[-1]
        self._size += len(data)
        try:
            check_size(name, self._size, self.limit_bytes)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._out, rest) :]
        except LimitError:
            self.drop()
            raise
        except OSError as e:
            self.drop()
            raise InputError(f"cannot be written: {e.strerror}", file=name, remedy="free some space, then upload it again") from None

    def drop(self) -> None:
        """Remove the file that was begun last."""
        self._end()
        if self.names:
            (self.place / self.names.pop()).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Remove everything."""
        self._end()
        shutil.rmtree(self.place, ignore_errors=True)

    def _end(self) -> None:
        if self._out >= 0:
            out, self._out = self._out, -1
            os.close(out)

    def _sync(self) -> None:
        """What becomes visible is on the disk."""
        self._end()
        for name in self.names:
            with open(self.place / name, "rb") as f:
                os.fsync(f.fileno())

    # -- into the workspace -------------------------------------------------------------------------------------------

    def commit(self, *, together: bool = True, rename: bool = False) -> list[Outcome]:
        """Open every file and add those that are what a workspace holds.

        Parameters
        ----------
        together : bool
            Files of one format that has a file per rank become one trace, a folder of them, where they merge. Where they do not, each is
            added on its own, and the outcomes say why.
        rename : bool
            When a name is taken by another content, add a number to it; otherwise that is a problem.

        Returns
        -------
        list of Outcome
            One per artifact and per refused file; a refused file has its reason and leaves nothing behind.
        """
        try:
            self._sync()
            found = [(name, recognise(self.place / name)) for name in self.names]
            outcomes: list[Outcome] = []
            for names in _sets(found) if together else []:
                merged = self._merge(names, rename)
                outcomes.append(merged)
                if merged.name:
                    found = [(n, k) for n, k in found if n not in names]
            outcomes = [o for o in outcomes if o.name or o.note]
            return outcomes + [self._one(name, kind, rename) for name, kind in found]
        finally:
            self.abandon()

    def add_only(self, name: str, *, rename: bool = False) -> str:
        """Open one file and add it; return its name in the workspace.

        Raises
        ------
        LabError
            If it is not what a workspace holds.
        """
        try:
            self._sync()
            return self._add(name, recognise(self.place / name), rename)[0]
        finally:
            self.abandon()

    def _one(self, name: str, kind: Recognised, rename: bool) -> Outcome:
        try:
            placed, opened = self._add(name, kind, rename)
        except LabError as e:
            return Outcome((name,), problem=_spoken(e))
        return Outcome((name,), placed, kind.kind, _as_trace(opened))

    def _add(self, name: str, kind: Recognised, rename: bool) -> tuple[str, object]:
        path = self.place / name
        try:
            if kind.kind not in OPENERS:
                raise FormatError(
                    f"not a trace and not a canary: {kind.summary}",
                    file=name,
                    remedy="upload a commcanary.trace.v1 file, a profile, a canary, a report, a comparison or a ledger",
                )
            opened = OPENERS[kind.kind](path)
            return self._place(path, name, rename), opened
        except LabError as e:  # the user knows the file by its own name, not by where it was staged
            raise self._named(e) from None

    def _merge(self, names: Sequence[str], rename: bool) -> Outcome:
        """Make one trace of per-rank files."""
        inner = self.place / ".set" / common_name(names)
        inner.mkdir(parents=True)
        for name in names:
            os.rename(self.place / name, inner / name)
        try:
            trace = OPENERS["trace"](inner)
            placed = self._place(inner, inner.name, rename=True)
        except LabError as e:
            for name in names:
                os.rename(inner / name, self.place / name)
            why = _spoken(self._named(e))
            return Outcome(tuple(names), note=f"These {len(names)} files look like ranks of one job and do not make one trace: {why}")
        finally:
            shutil.rmtree(self.place / ".set", ignore_errors=True)
        note = f"{len(names)} files, one per rank, became one trace: the folder {placed}"
        return Outcome(tuple(names), placed, "trace", _as_trace(trace), note=note)

    def _place(self, path: Path, name: str, rename: bool) -> str:
        """Give a staged file or folder its name in the workspace; never that of something else."""
        for candidate in [name, *(numbered(name, n) for n in range(2, 1000))] if rename else [name]:
            target = self.folder / candidate
            try:
                if path.is_dir():
                    if os.path.lexists(target):
                        continue
                    os.rename(path, target)  # at worst replaces an empty folder
                else:
                    os.link(path, target)
                return candidate
            except FileExistsError:
                if _same(path, target):
                    return candidate
            except OSError as e:
                if os.path.lexists(target) or path.is_dir():
                    raise InputError(f"cannot be written: {e.strerror}", file=name, remedy="make the workspace writable") from None
                os.rename(path, target)  # a file system without links
                return candidate
        raise UsageError(f"{name!r} exists with other content", remedy="rename the file; nothing is overwritten")

    def _named(self, error: LabError) -> LabError:
        """The same error without the folder that the user has never seen."""

        def own(text: str | None) -> str | None:
            return None if text is None else re.sub(re.escape(str(self.place)) + r"/(\.set/[^/]*/?)?", "", text)

        return type(error)(tuple(replace(p, file=own(p.file) or None, what=own(p.what) or "") for p in error.problems))


def _sets(found: Sequence[tuple[str, Recognised]]) -> list[tuple[str, ...]]:
    """Files of one format with a file per rank."""
    from commcanary_lab.importers import FORMATS

    per_rank = {f.about for f in FORMATS if f.per_rank}
    by_format: dict[str, list[str]] = {}
    for name, kind in found:
        if kind.kind == "trace" and kind.summary in per_rank:
            by_format.setdefault(kind.summary, []).append(name)
    return [tuple(sorted(names)) for names in by_format.values() if len(names) > 1]


def _same(path: Path, target: Path) -> bool:
    """Do both have the same content?"""
    if path.is_dir() or not target.is_file() or target.stat().st_size != path.stat().st_size:
        return False
    with path.open("rb") as a, target.open("rb") as b:
        while block := a.read(1 << 20):
            if block != b.read(1 << 20):
                return False
    return True


def _as_trace(opened: object) -> Trace | None:
    from commcanary_lab.trace.model import Trace

    return opened if isinstance(opened, Trace) else None


def _spoken(error: LabError) -> str:
    return f"{type(error).__name__}: {error}"
