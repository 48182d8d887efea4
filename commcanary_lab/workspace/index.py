"""The index of a workspace: what its files are, kept in a hidden SQLite file, so that a restart does not open them again."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from commcanary_lab.workspace.artifact import KINDS

__all__ = ["INDEX_FILE", "Index"]

T = TypeVar("T")

#: Inside the workspace; hidden files are no artifacts.
INDEX_FILE = ".commcanary-index.sqlite3"

#: "CcLb": tells our file from anybody else's.
_APPLICATION = 0x43634C62
#: Counts changes of the tables and of what recognising and reading mean: an index with another number is built anew.
_VERSION = 1
_TABLES = (
    "CREATE TABLE kinds (name TEXT PRIMARY KEY, mark TEXT NOT NULL, kind TEXT NOT NULL, summary TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE facts (name TEXT, what TEXT, mark TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (name, what)) WITHOUT ROWID",
)

#: A listing must not wait for another process; what cannot be written now is written a little later.
_WAIT_S = 0.2
_BACK_OFF_S = 20.0
#: Rows that wait at most before they are written: what a killed process had found out is mostly kept.
_BATCH = 64
#: A file that breaks this often is left alone.
_MAX_OPENED = 4


class Index:
    """What was found out about files, by name and mark; a file whose mark has changed counts as unknown.

    Only a cache: the file may be deleted at any time, may be damaged, of another version or of another program (then it is built
    anew), and may be unwritable (then everything is kept in memory alone). No method raises for any of these.

    Several processes may use one file at once, and any of them may be killed at any time: SQLite's rollback journal is made for that,
    and works where shared memory does not (network file systems), which is why it is not the write-ahead log.

    Parameters
    ----------
    folder : Path
        The workspace.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> index = Index(folder)
    >>> index.keep("t.json", "mark 1", "trace", "commcanary.trace.v1 trace")
    >>> index.flush()
    >>> again = Index(folder)
    >>> again.kind("t.json", "mark 1"), again.kind("t.json", "mark 2")
    (('trace', 'commcanary.trace.v1 trace'), None)
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / INDEX_FILE
        self._kinds: dict[str, tuple[str, str, str]] = {}
        self._facts: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._new_kinds: set[str] = set()
        self._new_facts: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._opened = 0
        self._not_before = 0.0
        self._again = False
        self.writable = False
        with self._lock:
            self._open()

    # -- asking and keeping -------------------------------------------------------------------------------------------

    def kind(self, name: str, mark: str) -> tuple[str, str] | None:
        """Return kind and summary of a file; None if they are not known for this mark."""
        with self._lock:
            found = self._kinds.get(name)
            if found is None or found[0] != mark:
                found = _kind_row(self._read("SELECT mark, kind, summary FROM kinds WHERE name = ?", (name,)))
                if found is None or found[0] != mark:
                    return None
                self._kinds[name] = found
            return found[1], found[2]

    def keep(self, name: str, mark: str, kind: str, summary: str) -> None:
        """Keep kind and summary of a file."""
        with self._lock:
            self._kinds[name] = (mark, kind, summary)
            self._new_kinds.add(name)
            self._flush_many()

    def fact(self, name: str, mark: str, what: str) -> bytes | None:
        """Return what was computed from a file; None if it is not known for this mark."""
        with self._lock:
            found = self._facts.get((name, what))
            if found is None or found[0] != mark:
                found = _fact_row(self._read("SELECT mark, value FROM facts WHERE name = ? AND what = ?", (name, what)))
                if found is None or found[0] != mark:
                    return None
                self._facts[name, what] = found
            return found[1]

    def keep_fact(self, name: str, mark: str, what: str, value: bytes) -> None:
        """Keep what was computed from a file."""
        with self._lock:
            self._facts[name, what] = (mark, value)
            self._new_facts.add((name, what))
            self._flush_many()

    def retain(self, names: Iterable[str]) -> None:
        """Forget every file but these: the others are gone."""
        with self._lock:
            there = set(names)
            gone = {n for n in self._kinds if n not in there} | {n for n, _ in self._facts if n not in there}
            if not gone:
                return
            self._kinds = {n: v for n, v in self._kinds.items() if n not in gone}
            self._facts = {k: v for k, v in self._facts.items() if k[0] not in gone}
            self._new_kinds -= gone
            self._new_facts = {k for k in self._new_facts if k[0] not in gone}
            rows = [(n,) for n in gone]
            self._write(lambda db: [db.executemany(f"DELETE FROM {table} WHERE name = ?", rows) for table in ("kinds", "facts")])

    def flush(self) -> None:
        """Write what is new; what cannot be written now waits."""
        with self._lock:
            if not (self._new_kinds or self._new_facts):
                return
            kinds = [(n, *self._kinds[n]) for n in self._new_kinds]
            facts = [(n, w, *self._facts[n, w]) for n, w in self._new_facts]

            def write(db: sqlite3.Connection) -> None:
                db.executemany("INSERT OR REPLACE INTO kinds VALUES (?, ?, ?, ?)", kinds)
                db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)", facts)

            if self._write(write):
                self._new_kinds.clear()
                self._new_facts.clear()

    def close(self) -> None:
        """Write what is new and close the file."""
        with self._lock:
            self.flush()
            self._close()

    def _flush_many(self) -> None:
        if len(self._new_kinds) + len(self._new_facts) >= _BATCH:
            self.flush()

    # -- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open or make the file; without one, everything stays in memory."""
        for attempt in range(2):
            self._close()
            if self._opened >= _MAX_OPENED or not _is_plain(self.path):
                return
            self._opened += 1
            try:
                self._db = self._connect()
                self._load()
                return
            except sqlite3.OperationalError as e:  # locked, unwritable, or no file can be made here
                self._close()
                if _is_busy(e):
                    self._opened -= 1
                    self._not_before = time.monotonic() + _BACK_OFF_S
                    self._again = True
                    return
                if not _is_damage(e):
                    self._open_read_only()
                    return
            except (sqlite3.DatabaseError, OverflowError, ValueError):  # damaged, or another program's
                self._close()
            if attempt or not self._remove():
                return

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application != _APPLICATION and tables:
                raise sqlite3.DatabaseError("of another program")
            if (application, version) != (_APPLICATION, _VERSION):
                self._make(db)
        except BaseException:
            db.close()
            raise
        # SQLite falls back to reading in silence; without the folder it could not make its journal
        self.writable = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        return db

    @staticmethod
    def _make(db: sqlite3.Connection) -> None:
        db.execute("BEGIN EXCLUSIVE")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:  # another process may have been faster
            for kind, name in db.execute("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall():
                db.execute(f'DROP {kind} "{name}"')
            for sql in _TABLES:
                db.execute(sql)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
        db.execute("COMMIT")

    def _open_read_only(self) -> None:
        """A folder that cannot be written may have an index all the same."""
        self.writable = False
        try:
            self._db = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=_WAIT_S, check_same_thread=False)
            found = self._db.execute("PRAGMA application_id").fetchone() + self._db.execute("PRAGMA user_version").fetchone()
            if found != (_APPLICATION, _VERSION):
                self._close()
                return
            self._load()
        except (sqlite3.Error, OverflowError, ValueError):
            self._close()

    def _load(self) -> None:
        assert self._db is not None
        for name, *row in self._db.execute("SELECT name, mark, kind, summary FROM kinds"):
            if isinstance(name, str) and name not in self._new_kinds and (found := _kind_row(tuple(row))) is not None:
                self._kinds[name] = found

    def _read(self, sql: str, values: tuple[str, ...]) -> object:
        return self._try(lambda db: db.execute(sql, values).fetchone())

    def _write(self, write: Callable[[sqlite3.Connection], object]) -> bool:
        def transaction(db: sqlite3.Connection) -> bool:
            db.execute("BEGIN IMMEDIATE")
            try:
                write(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return True

        if time.monotonic() < self._not_before:
            return False
        if self._again:  # it was busy when it was to be opened
            self._again = False
            self._open()
        if not self.writable:
            return False
        return bool(self._try(transaction))

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Use the file. A busy one is left for later; one that was damaged or replaced is opened again, a few times."""
        if self._db is None:
            return None
        try:
            return work(self._db)
        except sqlite3.OperationalError as e:
            if not _is_damage(e) and "moved" not in str(e) and "readonly" not in str(e):
                self._not_before = time.monotonic() + _BACK_OFF_S
                return None
        except (sqlite3.Error, OverflowError, ValueError):
            pass
        self._open()
        return None

    def _close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
        self._db, self.writable = None, False

    def _remove(self) -> bool:
        """Remove a damaged file with its journal, which must not be applied to the next one."""
        try:
            for end in ("-journal", "-wal", "-shm", ""):
                (self.path.parent / (self.path.name + end)).unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _kind_row(row: object) -> tuple[str, str, str] | None:
    """What a row holds is checked: somebody else may have written it."""
    match row:
        case (str(mark), str(kind), str(summary)) if kind in KINDS:
            return mark, kind, summary
    return None


def _fact_row(row: object) -> tuple[str, bytes] | None:
    match row:
        case (str(mark), bytes(value)):
            return mark, value
    return None


def _is_plain(path: Path) -> bool:
    """A link, a folder or a pipe of this name is not ours: it is neither followed nor removed."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def _is_damage(error: sqlite3.OperationalError) -> bool:
    """An error that opening again does not mend: the tables are not what they should be."""
    return any(words in str(error) for words in ("no such table", "no such column", "has no column", "malformed", "columns but"))
